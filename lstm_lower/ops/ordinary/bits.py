"""Definition of TensorFlow's op on the bits of numbers.

Signature: TensorFlow's raw op of the same name.
"""

from __future__ import annotations

from lstm_lower.dtypes import dtype_name
from lstm_lower.opdef import Call, DType, OpDef, TensorInfo, attr, operand
from lstm_lower.ops.ordinary.kinds import INTEGERS


class Bitcast(OpDef):
    """The same bits, read as integers with or without a sign."""

    class Types:
        T = INTEGERS
        type = INTEGERS

    class Inputs:
        input = operand("*S")

    class Outputs:
        output = operand("*S", "type")

    class Attrs:
        type = attr(DType)

    @classmethod
    def verify(cls, call: Call) -> None:
        """Both dtypes have as many bits, so that shapes stay."""
        given, wanted = call.types.get("T"), call.attributes["type"]
        if wanted not in cls.types["type"] or (given is not None and given.itemsize != wanted.itemsize):
            raise call.error("attribute type", f"integers of as many bits as {dtype_name(given)}", dtype_name(wanted))
        call.types["type"] = wanted

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """The attribute says the dtype."""
        return [TensorInfo(call.attributes["type"], call.operands["input"].shape)]
