"""Which parts of which operands no op of the block family reads.

Measured on TensorFlow's CPU kernels by putting NaN there: the results did not change. Each row's `poison` does the
same to the keyword arguments of a valid call.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tests.support.op_inputs import OPS, SHAPES

PEEPHOLES = ("wci", "wcf", "wco")
EVERYTHING = np.s_[...]
SEQUENCES = ("x", "i", "cs", "f", "o", "ci", "co", "h", "cs_grad", "h_grad")


class Unread(NamedTuple):
    """Something that is not read.

    Attributes:
        op: op type.
        id: what it is.
        steps: `seq_len_max` of the call in question, of T=4 steps; `None` for the cells.
        use_peephole: of the call in question; `None` for the GRU.
        parts: operand -> the index of what is not read.
    """

    op: str
    id: str
    steps: int | None
    use_peephole: bool | None
    parts: dict[str, Any]

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes of the call in question, as far as they matter."""
        return {} if self.use_peephole is None else {"use_peephole": self.use_peephole}

    def poison(self, call: dict[str, Any]) -> dict[str, Any]:
        """Returns the call with NaN in what is not read."""
        poisoned = {name: call[name].copy() for name in self.parts}
        for name, index in self.parts.items():
            poisoned[name][index] = np.nan
        return {**call, **poisoned}


def _unread(op: str) -> Iterator[Unread]:
    sequence, peepholes = "seq_len_max" in SHAPES[op], "wci" in SHAPES[op]
    steps = 3 if sequence else None

    def row(name: str, parts: dict[str, Any], *, peephole: bool | None = True) -> Unread:
        return Unread(op, name, steps, peephole if peepholes else None, parts)

    if peepholes:
        yield row("peepholes when off", dict.fromkeys(PEEPHOLES, EVERYTHING), peephole=False)
    if sequence:
        yield row("steps past seq_len_max", {name: np.s_[3:] for name in SEQUENCES if name in SHAPES[op]})
        everything = {name: EVERYTHING for name in SHAPES[op] if name != "seq_len_max"}
        yield Unread(op, "anything when seq_len_max is 0", 0, use_peephole=True, parts=everything)
    if sequence and "Grad" in op:
        yield row("b, and h of the last step", {"b": EVERYTHING, "h": np.s_[2:]})
        yield row("cs of the last step without peepholes", {"cs": np.s_[2:]}, peephole=False)
    if op == "LSTMBlockCellGrad":
        yield row("x, h_prev, w, b", dict.fromkeys(("x", "h_prev", "w", "b"), EVERYTHING))
        yield row("cs without peepholes", {"cs": EVERYTHING}, peephole=False)
    if op == "GRUBlockCellGrad":
        yield row("x, b_ru, b_c", dict.fromkeys(("x", "b_ru", "b_c"), EVERYTHING))


UNREAD: tuple[Unread, ...] = tuple(row for op in OPS for row in _unread(op))
