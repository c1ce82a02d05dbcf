"""Accumulator joining: states that each add up one part of a value become one state that adds up the whole.

A loop over blocks of steps adds a block's gradients to those of the blocks before. Weights' and biases' gradients are
parts of one product, so that the product is cut, each part copied, and added to a state of its own.

Precondition: any Scan. States that do nothing but add up, each one of the parts that a Split, or Slices side by side,
cut a value of the body into, with axes of size 1 dropped or not; all parts are added up.

Postcondition: one state in their place, whose final value is cut behind the loop. Where it adds up a product that
nothing else reads, the addition is the product's own (Gemm). A step of [1025,K] @ [K,2048] took 0.8 of
the time at K 64, and as long as before at K 640, where the product is nearly all of it; no copy of its size is made.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, replace
from lstm_lower.passes.loops.views.loop import Loop, State, scans_of
from lstm_lower.passes.loops.views.loop_pass import LoopPass
from lstm_lower.passes.loops.views.partitions import Partition, partitions_of


@dataclasses.dataclass(frozen=True)
class _Sum:
    """A state that adds something up.

    Attributes:
        state: the state.
        part: what is added, before axes of size 1 are dropped.
        dropped: these axes of the part.
    """

    state: State
    part: ir.Value
    dropped: tuple[int, ...]


class AccumulatorJoining(LoopPass):
    """Accumulates a value as a whole instead of in parts."""

    on_blocks = True

    def rewrite(self, loop: Loop) -> bool:
        """Joins the states of one loop."""
        modified = False
        while (found := _next(loop)) is not None:
            _join(loop, *found)
            modified = True
        if modified:
            loop.commit()
        return modified

    def ensures(self, model: ir.Model) -> None:
        """No states add up the parts of one value.

        Raises:
            ir.passes.PostconditionError: some do.
        """
        super().ensures(model)
        for node in scans_of(model.graph):
            loop = Loop(node, self.context.space)
            if (found := _next(loop)) is not None:
                whole = found[0].whole.name
                raise self.broken(loop.node, f"one state that adds up '{whole}', got {len(found[1])} for its parts")


def _next(loop: Loop) -> tuple[Partition, list[_Sum]] | None:
    """A value of the body all of whose parts are added up, and the sums in the order of the parts."""
    sums = {found.part: found for state in loop.states if (found := _sum(loop, state)) is not None}
    for part in sums:
        maker = loop.facts.maker(part)
        if isinstance(maker, std.Split | std.Slice) and maker.node.graph is loop.body:
            for parts in partitions_of(loop.facts, maker.data):
                if part in parts.values and all(value in sums for value in parts.values):
                    return parts, [sums[value] for value in parts.values]
    return None


def _sum(loop: Loop, state: State) -> _Sum | None:
    """What a state adds up, where it does nothing else."""
    facts, results = loop.facts, list(loop.results())
    node = state.update.producer()
    if node is None or node.graph is not loop.body or not std.Add.matches(node) or state.update.uses():
        return None
    if results.count(state.update) != 1 or state.parameter in results or not _is_read_once(state.parameter):
        return None
    others = [value for value in node.inputs if value is not None and value is not state.parameter]
    if len(others) != 1 or others[0] in results or not facts.same_shape(others[0], state.parameter):
        return None
    view = facts.maker(others[0])
    if not isinstance(view, std.Squeeze) or view.axes is None:
        return _Sum(state, others[0], ()) if _is_read_once(others[0]) else None
    alone = _is_read_once(others[0]) and _is_read_once(view.data) and view.data not in results
    return _Sum(state, view.data, view.axes) if alone else None


def _is_read_once(value: ir.Value) -> bool:
    return len(value.uses()) == 1


def _join(loop: Loop, parts: Partition, sums: Sequence[_Sum]) -> None:
    """Puts one state in the place of several."""
    space, facts, whole = loop.space, loop.facts, parts.whole
    shape, kind = facts.shape(whole), facts.type(whole)
    parameter = space.value(loop.scope("total"), kind, shape)
    final = space.value(loop.scope("totals"), kind, shape)
    initial = _initial(loop.before("total"), parts, [(x.state.initial, x.dropped) for x in sums])
    after = loop.after("total")
    cut = after.node(std.Split, [final, after.ints(*parts.sizes)], len(sums), axis=parts.axis).outputs
    for part, x in zip(cut, sums, strict=True):
        replace(x.state.final, after.squeeze(part, *x.dropped) if x.dropped else part, space)
        loop.drop_state(x.state)
    loop.states.append(State(initial, parameter, _update(loop, parts, parameter), final))


def _initial(e: Builder, parts: Partition, values: Sequence[tuple[ir.Value, tuple[int, ...]]]) -> ir.Value:
    """The initial values, joined as the parts are; one number everywhere is not copied together."""
    shape, dtype = e.facts.shape(parts.whole), e.facts.dtype(parts.whole)
    numbers = {e.facts.uniform(value) for value, _ in values}
    if len(numbers) == 1 and None not in numbers and shape is not None and dtype is not None:
        sizes = [dim for dim in shape if isinstance(dim, int)]
        if len(sizes) == len(shape):
            number = ir.Tensor(np.full(1, numbers.pop(), dtype.numpy()), dtype=dtype)
            return e.op(std.ConstantOfShape, e.ints(*sizes), value=number).value
    return e.concat([e.unsqueeze(value, *dropped) if dropped else value for value, dropped in values], parts.axis)


def _update(loop: Loop, parts: Partition, parameter: ir.Value) -> ir.Value:
    """The whole added to a state."""
    whole, facts = parts.whole, loop.facts
    product = facts.maker(whole)
    cuts = {value.producer() for value in parts.values}
    if (
        isinstance(product, std.MatMul)
        and product.node.graph is loop.body
        and {node for node, _ in whole.uses()} <= cuts
        and whole not in set(loop.results())
        and (facts.rank(product.a), facts.rank(product.b), facts.dtype(whole)) == (2, 2, ir.DataType.FLOAT)
    ):
        e = loop.inside(before=product.node, scope="total")
        return e.op(std.Gemm, product.a, product.b, parameter)
    return loop.inside(scope="total").op(std.Add, parameter, whole)
