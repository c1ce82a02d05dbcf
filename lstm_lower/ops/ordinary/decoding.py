"""Definitions of TensorFlow's ops that read label sequences off the scores of a recurrent model, and compare them.

Signatures: TensorFlow's raw ops of the same names. Symbols: T time steps, B batch, C classes.
"""

from __future__ import annotations

from lstm_lower.opdef import Call
from lstm_lower.ops.raw import NUMBERS, RawOp


class CTCGreedyDecoder(RawOp, inputs="T B C", sequence_length="B"):
    """The best class of each step, without blanks and, where they are merged, without repetitions: a sparse matrix.

    `log_probability` is minus the sum of the best classes' scores. A negative `blank_index` counts from the end.
    """

    counts = ("sequence_length", "T")

    @classmethod
    def verify(cls, call: Call) -> None:
        """The blank must be one of the classes."""
        classes, blank = call.sizes.get("C"), call.attributes["blank_index"]
        if isinstance(classes, int) and not -classes <= blank < classes:
            raise call.error("blank_index", f"-{classes} to {classes - 1}, as there are {classes} classes", blank)


class EditDistance(
    RawOp,
    hypothesis_indices="N R",
    hypothesis_values="N",
    hypothesis_shape="R",
    truth_indices="M R",
    truth_values="M",
    truth_shape="R",
    T=NUMBERS,
):
    """How many insertions, deletions and replacements make one sequence of each pair into the other.

    The elements along the last axis of a sparse array are a sequence, wherever they stand. Where `normalize`, the
    number is divided by the length of the true sequence: infinite if that is empty and the other is not, 0 if both are.
    """

    @classmethod
    def verify(cls, call: Call) -> None:
        """Sequences lie along the last of several axes."""
        rank = call.sizes.get("R")
        if isinstance(rank, int) and rank < 2:
            raise call.error("hypothesis_shape", "2 sizes or more", rank)
