"""Definitions of TensorFlow's ops that draw random numbers anew in every run.

The numbers have the right distribution, but are not those of TensorFlow's stream. Signatures: TensorFlow's raw ops of
the same names. Symbols: R rank of a result, B rows, C classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lstm_lower.opdef import Call, DType, OpDef, TensorInfo, attr, operand
from lstm_lower.ops.gradients import FLOATS
from lstm_lower.ops.ordinary.bases import ALL, INDEX, REAL, index_attr, number, said


class Drawing(OpDef, abstract=True):
    """What draws; with both seeds 0 each node has a stream of its own, else equal seeds mean equal streams."""

    class Attrs:
        seed = attr(int, 0)
        seed2 = attr(int, 0)

    @classmethod
    def draws(cls, attributes: Mapping[str, Any]) -> bool:
        """Always."""
        return True


class RandomUniform(Drawing):
    """Uniform numbers from 0 to 1, which is excluded."""

    class Types:
        T = INDEX
        dtype = FLOATS

    class Inputs:
        shape = operand("R", "T")

    class Outputs:
        output = operand(None, "dtype")

    class Attrs(Drawing.Attrs):
        dtype = attr(DType)

    @classmethod
    def verify(cls, call: Call) -> None:
        """The dtype is one of floating point."""
        if call.attributes["dtype"] not in cls.types["dtype"]:
            raise call.error("attribute dtype", f"one of {', '.join(FLOATS)}", call.attributes["dtype"].name.lower())

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """What `shape` says."""
        return [TensorInfo(call.attributes["dtype"], said(call, "shape"))]


class RandomStandardNormal(RandomUniform):
    """Normal numbers of mean 0 and variance 1."""


class TruncatedNormal(RandomUniform):
    """The same within two standard deviations: what lies outside is drawn again."""


class RandomUniformInt(Drawing):
    """Integers from `minval` to `maxval`, which is excluded."""

    class Types:
        T = INDEX
        Tout = INDEX

    class Inputs:
        shape = operand("R", "T")
        minval = operand("", "Tout")
        maxval = operand("", "Tout")

    class Outputs:
        output = operand(None, "Tout")

    @classmethod
    def verify(cls, call: Call) -> None:
        """There is a number between the bounds."""
        low, high = number(call, "minval"), number(call, "maxval")
        if low is not None and high is not None and low >= high:
            raise call.error("maxval", f"more than minval, {low}", high)

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """What `shape` says."""
        return [TensorInfo(call.types["Tout"], said(call, "shape"))]


class RandomShuffle(Drawing):
    """The rows in another order, every order as likely as any other."""

    class Types:
        T = ALL

    class Inputs:
        value = operand("*S")

    class Outputs:
        output = operand("*S")

    @classmethod
    def verify(cls, call: Call) -> None:
        """There are rows."""
        if call.operands["value"].shape == ():
            raise call.error("value", "rank 1 or more", "rank 0")


class Multinomial(Drawing):
    """Classes drawn by unnormalised log probabilities, row by row."""

    class Types:
        T = REAL
        output_dtype = INDEX

    class Inputs:
        logits = operand("B C")
        num_samples = operand("", "int32")

    class Outputs:
        output = operand(None, "output_dtype")

    class Attrs(Drawing.Attrs):
        output_dtype = index_attr(DType.INT64)

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """So many for each row."""
        return [TensorInfo(call.attributes["output_dtype"], (call.sizes.get("B"), number(call, "num_samples")))]


class RandomGamma(Drawing):
    """Numbers of the gamma distribution of scale 1, as many of a shape as asked for for each parameter `alpha`."""

    class Types:
        S = INDEX
        T = ("float16", "float32", "float64")

    class Inputs:
        shape = operand("R", "S")
        alpha = operand("*A")

    class Outputs:
        output = operand(None)

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """What `shape` says, and behind it alpha's axes."""
        sizes, parameters = said(call, "shape"), call.operands["alpha"].shape
        shape = None if sizes is None or parameters is None else (*sizes, *parameters)
        return [TensorInfo(call.types["T"], shape)]
