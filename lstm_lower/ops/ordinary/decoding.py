"""Definitions of TensorFlow's ops that read label sequences off the scores of a recurrent model.

Signatures: TensorFlow's raw ops of the same names. Symbols: T time steps, B batch, C classes.
"""

from __future__ import annotations

from lstm_lower.opdef import Call, OpDef, TensorInfo, attr, operand
from lstm_lower.opdef import DType as D


class CTCGreedyDecoder(OpDef):
    """The best class of each step, without blanks and, where they are merged, without repetitions: a sparse matrix.

    `log_probability` is minus the sum of the best classes' scores. A negative `blank_index` counts from the end.
    """

    class Types:
        T = ("float32", "float64")

    class Inputs:
        inputs = operand("T B C")
        sequence_length = operand("B", "int32", counts="T")

    class Outputs:
        decoded_indices = operand(None, "int64")
        decoded_values = operand(None, "int64")
        decoded_shape = operand("2", "int64")
        log_probability = operand("B 1")

    class Attrs:
        merge_repeated = attr(bool, False)
        blank_index = attr(int, -1)

    @classmethod
    def verify(cls, call: Call) -> None:
        """The blank must be one of the classes."""
        classes, blank = call.sizes.get("C"), call.attributes["blank_index"]
        if isinstance(classes, int) and not -classes <= blank < classes:
            raise call.error("blank_index", f"-{classes} to {classes - 1}, as there are {classes} classes", blank)

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """How many labels there are is known at run time only."""
        batch, dtype = call.sizes.get("B"), call.types["T"]
        known = [(D.INT64, (None, 2)), (D.INT64, (None,)), (D.INT64, (2,)), (dtype, (batch, 1))]
        return [TensorInfo(*info) for info in known]
