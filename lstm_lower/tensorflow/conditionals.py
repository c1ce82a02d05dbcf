"""Regions that run once: branches, which become those of an If, and functions of which a gradient is asked for.

TensorFlow itself finds the gradient of a SymbolicGradient only when it runs.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import onnx_ir as ir

from lstm_lower.errors import UnsupportedOpError
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.passes.formulas.indices import uncast
from lstm_lower.passes.gradients.reverse import pullback
from lstm_lower.tensorflow.carried_lists import Popped, Pushed
from lstm_lower.tensorflow.packed_lists import Compound, Packed
from lstm_lower.tensorflow.regions import BRANCH, Op, Region
from lstm_lower.tensorflow.structure import GRADIENT
from lstm_lower.tensorflow.tensor_list import Fresh, Joined, Put, Rows, TensorList, as_list
from lstm_lower.tensorflow.translator import Scope, Translator, handlers
from lstm_lower.tensorflow.values import FLOW, INT64, Division, Flow, Handle, OptionalValue, Resource, Value

handles = handlers("Branches")
_differentiates = handlers("Gradients of functions")

# A constant of a branch up to this size is known behind the branch: it may be an axis, or a permutation of axes.
_SMALL = 64


@handles(BRANCH)
def _branch(t: Translator, op: Op, scope: Scope) -> list[Value]:
    condition = t.tensor(op.inputs[0], scope, op)
    operands = [t.value(name, scope) for name in op.inputs[1:]]
    known = condition.builder.facts.constant(condition.value)
    if known is not None:
        number = int(known.reshape(-1)[0])
        last = len(op.regions) - 1
        # A Case takes its last branch for a number outside; an If takes any number but 0 as true.
        inside = 0 <= number <= last
        inner = Scope(scope.builder, scope.builder, scope)
        results = _run(t, op.regions[number if inside else last], operands, inner)
        scope.cells.update(inner.cells)
        return results
    if len(op.regions) == 2:
        key = condition.value
        if condition.dtype != ir.DataType.BOOL:
            condition = ~condition.equals(0)
        sides = [partial(_run, t, region, operands) for region in reversed(op.regions)]
        return _either(t, op, scope, (key, condition), sides)

    def case(number: int, index: Expr, inner: Scope) -> list[Value]:
        """The case of an index among those from a number on."""
        if number == len(op.regions) - 1:
            return _run(t, op.regions[number], operands, inner)
        first, rest = _turn(t, index)
        sides = [partial(_run, t, op.regions[number], operands), partial(case, number + 1, rest)]
        return _either(t, op, inner, (first.value, first), sides)

    return case(0, condition, scope)


def _turn(t: Translator, index: Expr) -> tuple[Expr, Expr]:
    """Whether an index is 0, and the index among the cases from 1 on: the same for a branch and for its gradient."""
    if index.value not in t.turns:
        made = t.turns[index.value] = index.equals(0), index - index.like(1)
        known = t.turns.get(t.origin(index.value), made)
        t.origins.update({a.value: b.value for a, b in zip(made, known, strict=True) if a is not b})
    return t.turns[index.value]


def _run(t: Translator, region: Region, operands: list[Value], inner: Scope) -> list[Value]:
    """Translates a region into a scope; what leaves it."""
    inner.values.update(zip(region.params, operands, strict=True))
    t.run(region, inner)
    results = [None if name is None else t.value(name, inner) for name in region.results]
    return [inner.read(x.cell) if isinstance(x, Handle) and x.cell.reference else x for x in results]


@_differentiates(GRADIENT)
def _symbolic_gradient(t: Translator, op: Op, scope: Scope) -> list[Value]:
    """Runs the function once more, and differentiates what that emits.

    Raises:
        UnsupportedOpError: the function changes variables, or takes or returns what is no tensor of numbers.
    """
    (region,) = op.regions
    inputs = t.inputs(op, scope)
    given, dys = inputs[: len(region.params)], inputs[len(region.params) :]
    b = scope.builder
    # What the function emits is what there is to differentiate: all of it here, and each argument a value of its own.
    around, b.emitted = b.emitted, []
    operands = [b.op(std.Identity, Expr(b, x.value)) for x in given]
    inner = Scope(b, b, scope)
    _run(t, region, operands, inner)
    if inner.cells:
        raise UnsupportedOpError(f"{op}: requires a function that changes no variable, got one that does")
    results = [t.tensor(name, inner, op) for name in region.results if name is not None]
    gradients = pullback(b, results, operands, [Expr(b, dy.value) for dy in dys])
    b.emitted = around + b.emitted
    return [*gradients]


def _either(
    t: Translator,
    op: Op,
    scope: Scope,
    decision: tuple[ir.Value, Expr],
    cases: Sequence[Callable[[Scope], list[Value]]],
) -> list[Value]:
    """What two cases have in common, as an If; cells that either changes are changed.

    Args:
        t: the translation.
        op: the branch.
        scope: the region around.
        decision: what decides, and whether it holds.
        cases: what runs where it holds, and where it does not.
    """
    key, condition = decision
    sides: list[tuple[Scope, list[Value]]] = []
    for number, (role, run) in enumerate(zip(("then", "else"), cases, strict=True)):
        builder = t.inner(scope.builder, role, op.name)
        inner = Scope(builder, builder, scope, side=(key, number))
        sides.append((inner, run(inner)))
    # What a side has made for itself stays there, but for what it hands out: a later branch goes on with that.
    held = [value for inner, results in sides for value in (*results, *inner.cells.values())]
    handed = dict.fromkeys(cell for value in held if (cell := _handed(value)) is not None)
    touched = dict.fromkeys([*sides[0][0].cells, *sides[1][0].cells])
    changed = [cell for cell in touched if scope.holds(cell) or cell in handed]
    columns = [
        [*results, *(inner.read(cell) if inner.holds(cell) else None for cell in changed)] for inner, results in sides
    ]
    joint = _Joint(t, op, key, [inner.builder for inner, _ in sides])
    plans = [joint.add(a, b) for a, b in zip(*columns, strict=True)]
    made: list[Expr] = []
    if joint.pairs:
        for builder, exprs in zip(joint.builders, zip(*joint.pairs, strict=True), strict=True):
            builder.graph.outputs.extend(builder.results(exprs))
        then, otherwise = (builder.graph for builder in joint.builders)
        scope.builder.scope = op.name
        made = scope.builder.ops(std.If, condition, outputs=len(joint.pairs), then_branch=then, else_branch=otherwise)
        for output, pair in zip(made, joint.pairs, strict=True):
            _tell(t, output, *pair)
        for number, value in joint.origins.items():
            t.origins[made[number].value] = value
    found = [plan(made) for plan in plans]
    scope.cells.update(zip(changed, found[len(sides[0][1]) :], strict=True))
    return found[: len(sides[0][1])]


def _tell(t: Translator, output: Expr, yes: Expr, no: Expr) -> None:
    """States what is known of a branch's result: the sizes that both sides have, where they are known outside."""
    output.value.type = ir.TensorType(yes.dtype)
    first, second = (t.outside(x.shape, min(yes.builder.depth, no.builder.depth)) for x in (yes, no))
    if first is not None and second is not None and len(first) == len(second):
        output.builder.set_shape(output, [a if a == c else None for a, c in zip(first, second, strict=True)])


def _handed(value: Value) -> Resource | None:
    """The cell whose handle a side hands out or pushes."""
    value = value.element if isinstance(value, Pushed) else value
    return value.cell if isinstance(value, Handle) else None


def _is_bare(x: TensorList) -> bool:
    """Whether nothing was written to a list, and nobody knows the shape of its elements."""
    return isinstance(x, Fresh) and x.element_shape is None and x.like is None


class _Joint:
    """What the two sides of a branch return, side by side."""

    def __init__(self, t: Translator, op: Op, condition: ir.Value, builders: list[Builder]) -> None:
        self.t = t
        self.op = op
        self.condition = condition
        self.builders = builders
        self.pairs: list[tuple[Expr, Expr]] = []
        # What comes from one side alone is, where anybody reads it, that side's value.
        self.origins: dict[int, ir.Value] = {}

    def add(self, yes: Value, no: Value) -> Any:
        """Takes up a pair; returns what makes its common value of the branch's outputs."""
        handles = [x for x in (yes, no) if isinstance(x, Handle)]
        if len(handles) == 1 and None in (yes, no):
            return lambda made: handles[0]  # noqa: ARG005
        if yes is no or isinstance(yes, Flow) or isinstance(no, Flow):
            return lambda made: yes if yes is not None else FLOW  # noqa: ARG005
        if isinstance(yes, OptionalValue) or isinstance(no, OptionalValue):
            return self._optional(yes, no)
        if isinstance(yes, TensorList) or isinstance(no, TensorList):
            try:
                return self._list(as_list(yes), as_list(no))
            except UnsupportedOpError as error:
                # Often nothing reads what is left of a list.
                refused = partial(_refuse, error)
                return lambda made: Rows(refused)  # noqa: ARG005
        alone = no if yes is None else yes if no is None else None
        if isinstance(alone, Expr):
            known = self.t.space.facts.constant(alone.value)
            if known is not None and known.size <= _SMALL:
                alone = self.t.root.constant(known, alone.dtype)
            if alone.builder not in self.builders:
                return lambda made: alone  # noqa: ARG005
            self.origins[len(self.pairs)] = alone.value
        yes = self._dummy(no, self.builders[0]) if yes is None else yes
        no = self._dummy(yes, self.builders[1]) if no is None else no
        if not isinstance(yes, Expr) or not isinstance(no, Expr):
            raise UnsupportedOpError(f"{self.op}: requires tensors on both sides, got {type(yes).__name__}")
        number = len(self.pairs)
        self.pairs.append((yes, no))
        return lambda made: made[number]

    def _list(self, yes: TensorList | None, no: TensorList | None) -> Any:
        """A list that at least one side hands out."""
        written = [x for x in (yes, no) if x is not None and not isinstance(x, Fresh)]
        if len(written) == 1 and (written[0].origin is not None or written[0].guard is not None):
            return self._alone(written[0], yes, no)
        if isinstance(yes, Pushed | Put) and isinstance(no, Pushed | Put) and _alike_changes(yes, no):
            element, found = self.add(yes.element, no.element), yes
            if isinstance(found, Put):
                # The place is known around the branch, too.
                found = dataclasses.replace(found, index=self.t.wrap(uncast(found.index)).cast(INT64).reshape())
            return lambda made: dataclasses.replace(found, element=element(made))
        for side, (changed, other) in enumerate(((yes, no), (no, yes))):
            if isinstance(changed, Pushed | Popped) and changed.base is other:
                return self._changed(changed, side)
            if isinstance(changed, Joined) and changed.first is other:
                return self._longer(changed, side)
            if isinstance(changed, Compound | Packed) and (other is None or type(other) is Packed is type(changed)):
                return self._lists(changed, other, side)
        plan = self.add(*self._rows(yes, no))
        return lambda made: Rows(plan(made))

    def _rows(self, yes: TensorList | None, no: TensorList | None) -> list[Expr | None]:
        """What two lists hold; one whose elements nobody knows the shape of, or can read, takes the other's shape."""
        known = [None if x is None or _is_bare(x) else x.rows() for x in (yes, no)]
        for side, found in enumerate((yes, no)):
            like = known[1 - side]
            if found is not None and known[side] is None and like is not None and like.shape is not None:
                sizes = [self.t.size(dim) or self.t.root.ints(0) for dim in like.shape[1:]]
                b = self.builders[side]
                known[side] = b.fill(0, b.concat([found.length().reshape(1), *sizes], 0), like.dtype)
        return [
            x.rows() if x is not None and found is None else found for x, found in zip((yes, no), known, strict=True)
        ]

    def _alone(self, found: TensorList, yes: Value, no: Value) -> Any:
        """A list that one side alone has made, of which more is known than what it holds."""
        bare = copy.copy(found)
        bare.guard = bare.origin = None
        plan = self.add(*(bare if x is found else x for x in (yes, no)))

        def made(outputs: list[Expr]) -> TensorList:
            result: TensorList = copy.copy(plan(outputs))
            result.guard, result.origin = found.guard, found.origin
            return result

        return made

    def _longer(self, changed: Joined, side: int) -> Any:
        """A list that an inner loop of one side has made longer: by nothing on the other side."""
        more: list[TensorList] = [changed.second, Fresh(self.builders[1 - side], None, changed.second.element_dtype)]
        plan = self.add(*(more if side == 0 else more[::-1]))
        return lambda made: Joined(changed.first, plan(made))

    def _lists(self, found: Compound | Packed, other: Packed | None, side: int) -> Any:
        """A list that is no tensor: what each of its parts becomes."""
        others = (None,) * len(found.parts) if other is None else other.parts
        pairs = zip(found.parts, others, strict=True)
        plans = [self.add(*(pair if side == 0 else pair[::-1])) for pair in pairs]
        return lambda made: found.again([plan(made) for plan in plans])

    def _changed(self, changed: Pushed | Popped, side: int) -> Any:
        """A list that one side only adds to or takes from: with a place in every iteration, which may hold nothing."""
        guard = self.condition, side
        if isinstance(changed, Popped):
            return lambda made: dataclasses.replace(changed, guard=guard)  # noqa: ARG005
        element = changed.element.rows() if isinstance(changed.element, TensorList) else changed.element
        plan = self.add(*((element, None) if side == 0 else (None, element)))
        return lambda made: dataclasses.replace(changed, element=plan(made), guard=guard)

    def _dummy(self, other: Value, builder: Builder) -> Expr:
        """What stands for a value on the side that does not make it: zeros, none where a size is not known before."""
        assert isinstance(other, Expr)
        sizes = [self.t.size(dim) or builder.ints(0) for dim in other.shape or ()]
        shape = builder.concat(sizes, 0) if sizes else builder.constant([], INT64)
        return builder.fill(0, shape, other.dtype)

    def _optional(self, yes: Any, no: Any) -> Any:
        sides = [x.components if isinstance(x, OptionalValue) else None for x in (yes, no)]
        if sides[0] is None or sides[1] is None:
            given = sides[0] or sides[1] or ()
            division = next((x.division for x in (yes, no) if isinstance(x, OptionalValue) and x.components), None)
            plans = [self.add(a, None) if sides[0] else self.add(None, a) for a in given]
            return lambda made: OptionalValue(tuple(plan(made) for plan in plans) or None, division)
        divisions = yes.division, no.division
        pairs = [*zip(sides[0], sides[1], strict=False)]
        if divisions == (None, None) and len(sides[0]) == len(sides[1]) and all(_alike(a, c) for a, c in pairs):
            plans = [self.add(a, c) for a, c in pairs]
            return lambda made: OptionalValue(tuple(plan(made) for plan in plans))
        plans = [self.add(a, None) for a in sides[0]] + [self.add(None, c) for c in sides[1]]
        division = Division(self.condition, len(sides[0]), divisions)
        return lambda made: OptionalValue(tuple(plan(made) for plan in plans), division)


def _alike_changes(yes: Pushed | Put, no: Pushed | Put) -> bool:
    """Whether two sides put an element to the same place of one list."""
    if type(yes) is not type(no) or yes.base is not no.base:
        return False
    if not isinstance(yes, Put) or not isinstance(no, Put):
        return True
    same = uncast(yes.index) is uncast(no.index)
    return same and (yes.add, yes.grows, yes.cut) == (no.add, no.grows, no.cut)


def _refuse(error: UnsupportedOpError) -> Expr:
    raise error


def _alike(yes: Value, no: Value) -> bool:
    """Whether two values have one form that can hold either."""
    if not isinstance(yes, Expr) or not isinstance(no, Expr):
        return yes is no
    return yes.dtype == no.dtype and yes.shape is not None and yes.shape == no.shape
