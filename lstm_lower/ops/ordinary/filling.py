"""Definitions of TensorFlow's ops that fill arrays.

Signatures: TensorFlow's raw ops of the same names. Symbols: R rank of a result.
"""

from __future__ import annotations

from lstm_lower.opdef import Call
from lstm_lower.ops.raw import RawOp, number


class Fill(RawOp, dims="R", value=""):
    """One value everywhere."""


class ZerosLike(RawOp):
    """Zeros of x's shape."""


class OnesLike(RawOp):
    """Ones of x's shape."""


class Empty(RawOp, shape="R"):
    """Room for numbers, which TensorFlow leaves as it finds it unless `init`; here it holds zeros."""


class BroadcastTo(RawOp, shape="R"):
    """Repeated along axes of size 1, and along new ones in front."""


class BroadcastArgs(RawOp, s0="P", s1="Q"):
    """The shape that operands of two shapes broadcast to."""


class Range(RawOp, start="", limit="", delta=""):
    """start, start + delta, ... before limit."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """There are steps."""
        if number(call, "delta") == 0:
            raise call.error("delta", "a step other than 0", "0")
