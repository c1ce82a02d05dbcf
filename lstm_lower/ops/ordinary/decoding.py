"""Definitions of TensorFlow's ops that read label sequences off the scores of a recurrent model, and compare them.

Signatures: TensorFlow's raw ops of the same names. Symbols: T time steps, B batch, C classes.
"""

from __future__ import annotations

from lstm_lower.dims import unknown_sizes
from lstm_lower.opdef import Call, OpDef, TensorInfo, attr, operand
from lstm_lower.opdef import DType as D
from lstm_lower.ops.ordinary.bases import REAL, said


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


class EditDistance(OpDef):
    """How many insertions, deletions and replacements make one sequence of each pair into the other.

    The elements along the last axis of a sparse array are a sequence, wherever they stand. Where `normalize`, the
    number is divided by the length of the true sequence: infinite if that is empty and the other is not, 0 if both are.
    """

    class Types:
        T = REAL

    class Inputs:
        hypothesis_indices = operand("N R", "int64")
        hypothesis_values = operand("N")
        hypothesis_shape = operand("R", "int64")
        truth_indices = operand("M R", "int64")
        truth_values = operand("M")
        truth_shape = operand("R", "int64")

    class Outputs:
        output = operand(None, "float32")

    class Attrs:
        normalize = attr(bool, True)

    @classmethod
    def verify(cls, call: Call) -> None:
        """Sequences lie along the last of several axes."""
        rank = call.sizes.get("R")
        if isinstance(rank, int) and rank < 2:
            raise call.error("hypothesis_shape", "2 sizes or more", rank)

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """The larger of both sizes along all axes but the last."""
        unknown = unknown_sizes(call.sizes.get("R"))
        hypothesis, truth = (said(call, name) or unknown for name in ("hypothesis_shape", "truth_shape"))
        if hypothesis is None or truth is None:
            return [TensorInfo(D.FLOAT, None)]
        pairs = zip(hypothesis, truth, strict=True)
        sizes = [max(a, b) if isinstance(a, int) and isinstance(b, int) else None for a, b in pairs]
        return [TensorInfo(D.FLOAT, tuple(sizes[:-1]))]
