"""Induction variables: a counter that a Loop carries is computed from the number of the step instead.

Precondition: a carried integer scalar to which every step adds the same number, known now. Where it is read behind the
loop, the number of steps is the trip count (see `trip_count`).

Postcondition: the counter is not carried: it is `first + number * step` in the body and `first + number * steps` behind
the loop, with the overflow of its own type.
"""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, replace
from lstm_lower.passes.loops.views.hoisting import hoist_sizes
from lstm_lower.passes.loops.views.loop import Loop, State
from lstm_lower.passes.loops.views.loop_pass import LoopPass
from lstm_lower.passes.loops.views.while_loop import OnLoops, WhileLoop


class InductionVariables(OnLoops, LoopPass):
    """Computes the counters of Loops from the step number."""

    def rewrite(self, loop: Loop) -> bool:
        """Computes the counters of one Loop."""
        assert isinstance(loop, WhileLoop)
        modified = hoist_sizes(loop)
        if loop.node.graph is None:
            return modified
        evolution, steps = loop.evolution(), None
        counters = [(state, step) for state in loop.states if (step := evolution.growth(state.parameter)) is not None]
        for state, step in counters:
            read = bool(state.final.uses()) or state.final.is_graph_output()
            if read and not loop.view.is_counted:
                self.refuse(state.final, "it is read behind a loop whose number of steps is not known beforehand")
                continue
            if read and steps is None:
                steps = loop.count(loop.before("steps"))
            if read and steps is not None:
                replace(state.final, _counted(loop.before("counter"), state, step, steps), loop.space)
            e = loop.inside(next(iter(loop.body), None), "counter")
            loop.substitute(state.parameter, _counted(e, state, step, loop.iteration))
            loop.drop_state(state)
            modified = True
        if modified:
            loop.commit()
        return modified


def _counted(e: Builder, counter: State, step: int, number: ir.Value) -> ir.Value:
    """What a counter holds before a step, or behind all steps."""
    first, parameter = counter.initial, counter.parameter
    # Of the value before the loop less may be known.
    dtype, shape = e.facts.dtype(parameter), e.facts.shape(parameter)
    assert dtype is not None
    assert shape is not None
    value = number if dtype == ir.DataType.INT64 else e.op(std.Cast, number, to=int(dtype))
    if step != 1:
        value = e.op(std.Mul, value, e.constant(step, dtype))
    if shape:
        value = e.op(std.Reshape, value, e.ints(*[1] * len(shape)))
    zero = e.facts.constant(first)
    return value if zero is not None and not zero.any() else e.op(std.Add, value, first)
