"""The ops that change variables or parts of them: the steps of optimizers, updates of rows, elements and slices."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lstm_lower.errors import UnsupportedOpError
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.graph.repetition import repeat
from lstm_lower.passes.formulas.indices import from_front, uncast
from lstm_lower.passes.formulas.kernels import computed
from lstm_lower.passes.formulas.rows import reshape_to, tail_of
from lstm_lower.passes.formulas.sizes import up_to
from lstm_lower.tensorflow.optimizers import DENSE, GRADIENTS, OPTIMIZERS, OPTIONS, SPARSE, VARIABLES, ApplyStep
from lstm_lower.tensorflow.regions import Op
from lstm_lower.tensorflow.state import cell_of, emitted, tensor_of, write
from lstm_lower.tensorflow.translator import Scope, Translator, handlers
from lstm_lower.tensorflow.values import INT64, Handle, Resource, Value

handles = handlers("Optimizers' updates")
_changes = handlers("Updates of rows")

_PREFIXES = ("Scatter", "ResourceScatter")
_KINDS = ("Add", "Sub", "Update", "Max", "Min")
_MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")

# What the variables' new values are, by name, from all operands.
Update = Callable[[dict[str, Expr]], dict[str, Expr]]


@handles(*(f"{prefix}{name}" for prefix in (*DENSE, *SPARSE) for name in OPTIMIZERS), writes=True)
def _apply(t: Translator, op: Op, scope: Scope) -> Value:
    prefix = next(prefix for prefix in (*SPARSE, *DENSE) if op.op.startswith(prefix))
    optimizer = OPTIMIZERS[op.op.removeprefix(prefix)]
    names = optimizer.sparse_operands if prefix in SPARSE else optimizer.operands
    if len(op.inputs) != len(names):
        raise UnsupportedOpError(f"{op}: requires {len(names)} operands ({', '.join(names)}), got {len(op.inputs)}")
    cells: dict[str, Resource] = {}
    operands: dict[str, Expr] = {}
    for name, source in zip(names, op.inputs, strict=True):
        if name in VARIABLES:
            cells[name] = cell_of(t, source, scope, op)
            operands[name] = tensor_of(cells[name], scope, op)
        else:
            operands[name] = t.tensor(source, scope, op)
    options = {name: op.attr[name].b if name in op.attr else default for name, default in OPTIONS.items()}

    def update(given: dict[str, Expr]) -> dict[str, Expr]:
        # Halves are computed in float32 and rounded once.
        wide = {name: computed(expr) for name, expr in given.items()}
        return {
            name: expr.cast(given[name].dtype) for name, expr in optimizer.formula(ApplyStep(wide, options)).items()
        }

    changed = update(operands) if prefix in DENSE else _by_rows(operands, [*cells], update)
    for name, value in changed.items():
        scope.cells[cells[name]] = value
    return Handle(cells["var"]) if cells["var"].reference else None


def _by_rows(operands: dict[str, Expr], names: list[str], update: Update) -> dict[str, Expr]:
    """An update of the rows that the indices name.

    A row that is named several times is updated as often, one after another, as the kernels do it: all first
    occurrences together, then all second ones. TensorFlow's own callers sum the gradients of a row before, so that
    there is one of each.
    """
    indices = operands["indices"].cast(INT64)
    gradient = next(name for name in GRADIENTS if name in operands)
    rest = {name: expr for name, expr in operands.items() if name not in ("indices", gradient, *names)}

    def rows(states: list[Expr], places: Expr, gradients: Expr) -> list[Expr]:
        given = {name: _gathered(state, places) for name, state in zip(names, states, strict=True)}
        changed = update({**given, **rest, gradient: gradients})
        return [
            state.builder.op(std.ScatterND, state, places.unsqueeze(1), changed[name]) if name in changed else state
            for name, state in zip(names, states, strict=True)
        ]

    def turn(inner: Builder, number: Expr, states: list[Expr]) -> list[Expr]:
        chosen = inner.op(std.NonZero, turns.equals(number)).reshape(-1)
        return rows(states, _gathered(indices, chosen), _gathered(operands[gradient], chosen))

    states = [operands[name] for name in names]
    if _distinct(indices):
        return dict(zip(names, rows(states, indices, operands[gradient]), strict=True))
    turns = occurrences(indices)
    b = turns.builder
    count = b.op(std.ReduceMax, b.concat([b.ints(-1), turns], 0), keepdims=0) + 1
    return dict(zip(names, repeat(b, count, states, turn), strict=True))


def _gathered(x: Expr, places: Expr) -> Expr:
    return x.take(places)


def _distinct(indices: Expr) -> bool:
    """Whether indices are known to be all different: those that somebody made so, and constants."""
    facts, value = indices.builder.facts, indices.value
    known = facts.constant(value)
    if known is not None:
        return len(np.unique(known)) == known.size
    made = uncast(indices)
    return isinstance(facts.maker(made), std.Unique) and made.index() == 0


def occurrences(indices: Expr) -> Expr:
    """Of each entry, how many equal ones stand before it; sorted, they are neighbours."""
    b = indices.builder
    count = indices.sizes()
    ordered, order = b.ops(std.TopK, indices, count, outputs=2, axis=0, largest=0, sorted=1)
    before = b.concat([ordered.slice(0, 1, axis=0) - 1, ordered.slice(0, -1, axis=0)], 0)
    starts = ~ordered.equals(before)
    group = b.op(std.CumSum, starts.cast(INT64), b.constant(0, INT64)) - 1
    first = b.op(std.NonZero, starts).reshape(-1).take(group)
    return b.op(std.ScatterND, indices, order.unsqueeze(1), up_to(b, count) - first)


@_changes(*(f"{prefix}{kind}" for prefix in _PREFIXES for kind in (*_KINDS, "Mul", "Div")), writes=True)
def _scatter_rows(t: Translator, op: Op, scope: Scope) -> Value:
    """Rows by their numbers; a single update may stand for all."""
    cell = cell_of(t, op.inputs[0], scope, op)
    old = tensor_of(cell, scope, op)
    indices, updates = (t.tensor(name, scope, op) for name in op.inputs[1:3])
    kind = op.op.rpartition("Scatter")[2]
    b = old.builder
    if updates.shape == () and indices.shape != ():
        tail = tail_of(old, 1)
        updates = b.op(std.Expand, updates, b.concat([indices.sizes(), tail], 0))
    if kind in ("Mul", "Div"):
        rows = b.sizes([old.size(0)]).reshape()
        # What several updates of a row do is the same as what their product does.
        factors = emitted(t, "UnsortedSegmentProd", [updates, from_front(indices), rows], op, scope)
        return write(op, scope, cell, emitted(t, kind, [old, factors], op, scope))
    columns = indices.unsqueeze(len(indices.shape)) if indices.shape is not None else indices.reshape(-1, 1)
    return write(op, scope, cell, emitted(t, f"TensorScatter{kind}", [old, columns, updates], op, scope))


@_changes(*(f"{prefix}Nd{kind}" for prefix in _PREFIXES for kind in _KINDS), writes=True)
def _scatter_elements(t: Translator, op: Op, scope: Scope) -> Value:
    """Elements or slices by their places."""
    cell = cell_of(t, op.inputs[0], scope, op)
    operands = [tensor_of(cell, scope, op), *(t.tensor(name, scope, op) for name in op.inputs[1:3])]
    return write(op, scope, cell, emitted(t, f"TensorScatter{op.op.rpartition('Nd')[2]}", operands, op, scope))


@_changes("StridedSliceAssign", "ResourceStridedSliceAssign", writes=True)
def _assign_slice(t: Translator, op: Op, scope: Scope) -> Value:
    """The numbers of a slice's elements are that slice of all elements' numbers."""
    cell = cell_of(t, op.inputs[0], scope, op)
    old = tensor_of(cell, scope, op)
    *bounds, value = (t.tensor(name, scope, op) for name in op.inputs[1:5])
    b = old.builder
    shape = old.sizes()
    numbers = reshape_to(up_to(b, b.op(std.ReduceProd, shape, keepdims=1)), shape)
    if old.shape is not None:
        b.set_shape(numbers, old.shape)
    masks = {name: op.attr[name].i for name in _MASKS if name in op.attr}
    chosen: Expr = emitted(t, "StridedSlice", [numbers, *bounds], op, scope, **masks)
    values = b.op(std.Expand, value, chosen.sizes()).reshape(-1)
    changed = b.op(std.ScatterND, old.reshape(-1), chosen.cast(INT64).reshape(-1, 1), values)
    return write(op, scope, cell, reshape_to(changed, shape))
