"""Definitions of TensorFlow's samplers of classes, which losses over many classes are estimated with.

Signatures: TensorFlow's raw ops of the same names. Symbols: B rows, P true classes of each, S samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lstm_lower.opdef import Call
from lstm_lower.ops.ordinary.random import Drawing
from lstm_lower.ops.raw import RawOp


class AllCandidateSampler(Drawing):
    """Every class once."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """There are as many true classes as the attribute says, and samples; different ones, if they are to be."""
        _check_true_classes(call)
        count, classes = call.attributes["num_sampled"], call.attributes.get("range_max")
        if count < 1:
            raise call.error("attribute num_sampled", "1 or more", count)
        if classes is not None and classes < 1:
            raise call.error("attribute range_max", "1 or more", classes)
        if classes is not None and call.attributes["unique"] and count > classes:
            raise call.error("attribute num_sampled", f"range_max, {classes}, or fewer different samples", count)
        call.sizes["S"] = count

    @classmethod
    def draws(cls, attributes: Mapping[str, Any]) -> bool:
        """There is nothing to choose."""
        return False


class UniformCandidateSampler(AllCandidateSampler):
    """Classes of which each is as likely as any other; `unique`: drawn again until there are enough different ones.

    The counts are how often a class is expected among the samples: so many times its probability or, of different ones,
    the probability that it is among as many draws as were made.
    """

    @classmethod
    def draws(cls, attributes: Mapping[str, Any]) -> bool:
        """Always."""
        return True


class LogUniformCandidateSampler(UniformCandidateSampler):
    """The same with probabilities log((c + 2) / (c + 1)) / log(classes + 1), as words have when sorted by frequency."""


class ComputeAccidentalHits(RawOp, true_classes="B P", sampled_candidates="S"):
    """The samples that are among a row's true classes: their rows, their places, and the lowest number for each."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """There are as many true classes as the attribute says."""
        _check_true_classes(call)


def _check_true_classes(call: Call) -> None:
    count, given = call.attributes["num_true"], call.sizes.get("P")
    if count < 1 or (isinstance(given, int) and given != count):
        raise call.error("true_classes", f"num_true columns, {count}, and 1 or more", given)
