"""Definitions of TensorFlow's ops that draw random numbers anew in every run.

The numbers have the right distribution, but are not those of TensorFlow's stream. Signatures: TensorFlow's raw ops of
the same names. Symbols: R rank of a result, B rows, C classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lstm_lower.opdef import Call
from lstm_lower.ops.raw import RawOp, number


class Drawing(RawOp, abstract=True, shape="R", true_classes="B P"):
    """What draws; with both seeds 0 each node has a stream of its own, else equal seeds mean equal streams."""

    @classmethod
    def draws(cls, attributes: Mapping[str, Any]) -> bool:
        """Always."""
        return True


class RandomUniform(Drawing):
    """Uniform numbers from 0 to 1, which is excluded."""


class RandomStandardNormal(RandomUniform):
    """Normal numbers of mean 0 and variance 1."""


class TruncatedNormal(RandomUniform):
    """The same within two standard deviations: what lies outside is drawn again."""


class RandomUniformInt(Drawing, minval="", maxval=""):
    """Integers from `minval` to `maxval`, which is excluded."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """There is a number between the bounds."""
        low, high = number(call, "minval"), number(call, "maxval")
        if low is not None and high is not None and low >= high:
            raise call.error("maxval", f"more than minval, {low}", high)


class RandomShuffle(Drawing):
    """The rows in another order, every order as likely as any other."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """There are rows."""
        if call.operands["value"].shape == ():
            raise call.error("value", "rank 1 or more", "rank 0")


class Multinomial(Drawing, logits="B C", num_samples=""):
    """Classes drawn by unnormalised log probabilities, row by row."""


class RandomGamma(Drawing):
    """Numbers of the gamma distribution of scale 1, as many of a shape as asked for for each parameter `alpha`."""
