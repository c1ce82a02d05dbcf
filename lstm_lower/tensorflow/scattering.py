"""The ops that change parts of variables: rows, elements, slices."""

from __future__ import annotations

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr
from lstm_lower.passes.formulas.indices import from_front
from lstm_lower.passes.formulas.rows import reshape_to, tail_of
from lstm_lower.passes.formulas.sizes import up_to
from lstm_lower.tensorflow.regions import Op
from lstm_lower.tensorflow.state import cell_of, emitted, tensor_of, write
from lstm_lower.tensorflow.translator import Scope, Translator, handles
from lstm_lower.tensorflow.values import INT64, Value

_PREFIXES = ("Scatter", "ResourceScatter")
_KINDS = ("Add", "Sub", "Update", "Max", "Min")
_MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


@handles(*(f"{prefix}{kind}" for prefix in _PREFIXES for kind in (*_KINDS, "Mul", "Div")), writes=True)
def _rows(t: Translator, op: Op, scope: Scope) -> Value:
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


@handles(*(f"{prefix}Nd{kind}" for prefix in _PREFIXES for kind in _KINDS), writes=True)
def _elements(t: Translator, op: Op, scope: Scope) -> Value:
    """Elements or slices by their places."""
    cell = cell_of(t, op.inputs[0], scope, op)
    operands = [tensor_of(cell, scope, op), *(t.tensor(name, scope, op) for name in op.inputs[1:3])]
    return write(op, scope, cell, emitted(t, f"TensorScatter{op.op.rpartition('Nd')[2]}", operands, op, scope))


@handles("StridedSliceAssign", "ResourceStridedSliceAssign", writes=True)
def _slice(t: Translator, op: Op, scope: Scope) -> Value:
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
