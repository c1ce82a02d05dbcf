"""Definitions of TensorFlow's ops that fill arrays.

Signatures: TensorFlow's raw ops of the same names. Symbols: R rank of a result.
"""

from __future__ import annotations

from lstm_lower.opdef import Call, DType, OpDef, TensorInfo, attr, operand
from lstm_lower.ops.ordinary.bases import (
    ALL,
    INDEX,
    REAL,
    Reshaped,
    number,
    result,
    said,
)


class Fill(OpDef):
    """One value everywhere."""

    class Types:
        T = ALL
        index_type = INDEX

    class Inputs:
        dims = operand("R", "index_type")
        value = operand("")

    class Outputs:
        output = operand(None)

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """What `dims` says."""
        return result(call, said(call, "dims"))


class ZerosLike(OpDef):
    """Zeros of x's shape."""

    class Types:
        T = ALL

    class Inputs:
        x = operand("*S")

    class Outputs:
        y = operand("*S")


class OnesLike(ZerosLike):
    """Ones of x's shape."""


class Empty(OpDef):
    """Room for numbers, which TensorFlow leaves as it finds it unless `init`; here it holds zeros."""

    class Types:
        dtype = ALL

    class Inputs:
        shape = operand("R", "int32")

    class Outputs:
        output = operand(None, "dtype")

    class Attrs:
        dtype = attr(DType)
        init = attr(bool, False)

    @classmethod
    def verify(cls, call: Call) -> None:
        """The dtype is one that there are numbers of."""
        if call.attributes["dtype"] not in cls.types["dtype"]:
            raise call.error("attribute dtype", f"one of {', '.join(ALL)}", call.attributes["dtype"].name.lower())

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """What `shape` says."""
        return [TensorInfo(call.attributes["dtype"], said(call, "shape"))]


class BroadcastTo(Reshaped):
    """Repeated along axes of size 1, and along new ones in front."""

    class Types:
        T = ALL
        Tidx = INDEX

    class Inputs:
        input = operand(None)
        shape = operand("R", "Tidx")

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """What `shape` says."""
        return result(call, said(call, "shape"))


class BroadcastArgs(OpDef):
    """The shape that operands of two shapes broadcast to."""

    class Types:
        T = INDEX

    class Inputs:
        s0 = operand("P")
        s1 = operand("Q")

    class Outputs:
        r0 = operand(None)

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """As long as the longer one."""
        lengths = [length for length in (call.sizes.get("P"), call.sizes.get("Q")) if isinstance(length, int)]
        return result(call, (max(lengths) if len(lengths) == 2 else None,))


class Range(OpDef):
    """start, start + delta, ... before limit."""

    class Types:
        Tidx = tuple(name for name in REAL if name != "uint8")

    class Inputs:
        start = operand("", "Tidx")
        limit = operand("", "Tidx")
        delta = operand("", "Tidx")

    class Outputs:
        output = operand(None, "Tidx")

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """A vector as long as there are steps."""
        bounds = [number(call, name) for name in ("start", "limit", "delta")]
        start, limit, delta = bounds
        if delta == 0:
            raise call.error("delta", "a step other than 0", "0")
        if start is None or limit is None or delta is None:
            return result(call, (None,), "Tidx")
        return result(call, (max(-((start - limit) // delta), 0),), "Tidx")
