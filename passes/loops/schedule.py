"""The schedule: how a loop runs. As one Scan, as blocks of steps, or unrolled.

Hoisting and sinking keep some values of every step until the loop is over. That costs memory that grows with the
number of steps, and time once those values no longer fit into cache. `auto` estimates the bytes that a step keeps and
leaves the loop whole while all steps together keep less than `WHOLE_LOOP_BYTES`; else it divides the loop into blocks
that keep about `BLOCK_BYTES`, of at least `LEAST_STEPS` steps, so that the products behind a block stay large. A
block length that divides the number of steps evenly is preferred. Where the number of steps is not known, the loop is
taken for a long one; where a step's size is not known, the loop stays whole.
"""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.passes.loops.views.dependence import Dependence, Level
from lstm_lower.passes.loops.views.loop import Loop

WHOLE_LOOP_BYTES = 48 << 20
BLOCK_BYTES = 32 << 20
LEAST_STEPS = 8
# A loop of unknown length is divided when fewer steps than these fill a block.
LONG_LOOP_STEPS = 1024
# Lengths tried, on either side of the wanted one, for one that divides the number of steps evenly.
MOST_TRIED = 4096
# What may stand between a product and the accumulator that it is added to.
MOVING = (std.Transpose, std.Expand, std.Reshape, std.Unsqueeze, std.Squeeze, std.Identity)


def block_steps(loop: Loop) -> int | None:
    """Steps per block by the cost model, `None` for a loop that stays whole."""
    kept = kept_bytes(loop)
    if kept is None:
        return None
    length = loop.length
    if isinstance(length, int) and length * kept <= WHOLE_LOOP_BYTES:
        return None
    wanted = max(LEAST_STEPS, BLOCK_BYTES // max(kept, 1))
    if not isinstance(length, int):
        return wanted if wanted < LONG_LOOP_STEPS else None
    reach = min(wanted // 2, MOST_TRIED)
    even = [steps for steps in range(max(LEAST_STEPS, wanted - reach), wanted + reach + 1) if length % steps == 0]
    return min(even, key=lambda steps: abs(steps - wanted)) if even else wanted


def kept_bytes(loop: Loop) -> int | None:
    """An estimate of the bytes that one step keeps once work has been hoisted and sunk; `None` where sizes are open.

    Counted are the values that follow from the step alone and are computed in the body, and what carried state is
    concatenated to or multiplied into: work that leaves the loop reads it for all steps. What is only added to an
    accumulator is not kept.
    """
    dependence, facts = Dependence(loop), loop.facts
    total = 0
    for node in dependence.order:
        level = dependence.node_level(node)
        if level == Level.INVARIANT or (
            level == Level.CARRIED and not isinstance(facts.view(node), std.Product | std.Concat)
        ):
            continue
        for value in node.outputs:
            shape, dtype = facts.shape(value), facts.dtype(value)
            if level == Level.CARRIED and _is_accumulated(loop, dependence, value):
                continue
            if shape is None or dtype in (None, ir.DataType.STRING) or not all(isinstance(dim, int) for dim in shape):
                return None
            size = dtype.itemsize
            for dim in shape:
                size *= dim if isinstance(dim, int) else 0
            total += round(size)
    return total


def _is_accumulated(loop: Loop, dependence: Dependence, value: ir.Value) -> bool:
    """Whether a value is only added to a state."""
    parameters = {state.parameter for state in loop.states}
    readers = dependence.readers(value)
    while len(readers) == 1 and isinstance(loop.facts.view(readers[0]), MOVING):
        readers = dependence.readers(readers[0].outputs[0])
    if len(readers) != 1 or not isinstance(loop.facts.view(readers[0]), std.Add | std.Sub):
        return False
    return any(x in parameters for x in readers[0].inputs)
