"""Definitions of TensorFlow's random numbers that depend on a seed alone, as Keras' dropout uses them.

A training graph with dropout holds them, and its results can only be TensorFlow's if the numbers are.
"""

from __future__ import annotations

from lstm_lower.opdef import Call, DType, OpDef, TensorInfo, attr, operand
from lstm_lower.ops.indexing import said_shape

# Of Philox 4x32-10: factors and what is added to the key, round by round.
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10

# TensorFlow scrambles the user's seed with this key first.
SCRAMBLE_KEY = (0x3EC8F720, 0x02461E29)

# Box and Muller's method takes the logarithm of a uniform number, which must not be 0.
SMALLEST_FRACTION = 1e-7

_SEEDS = ("int32", "int64", "uint32", "uint64")
_INTEGERS = tuple(int(dtype) for dtype in (DType.INT32, DType.INT64, DType.UINT32, DType.UINT64))
_DTYPES = (int(DType.FLOAT16), int(DType.FLOAT), int(DType.DOUBLE))


class StatelessRandomGetKeyCounter(OpDef):
    """Scrambles a seed into the key and the counter of a random number generator."""

    class Types:
        Tseed = _SEEDS

    class Inputs:
        seed = operand("2", "Tseed")

    class Outputs:
        key = operand("1", "uint64")
        counter = operand("2", "uint64")


class StatelessRandomGetAlg(OpDef):
    """The number of the algorithm that the device prefers; 1, Philox."""

    class Types:
        pass

    class Inputs:
        pass

    class Outputs:
        alg = operand("", "int32")


class StatelessRandomUniformV2(OpDef):
    """Uniform numbers from 0 to 1, determined by key and counter: Philox 4x32 with ten rounds."""

    class Types:
        Tshape = ("int32", "int64")
        dtype = ("float16", "float32", "float64")

    class Inputs:
        shape = operand("R", "Tshape")
        key = operand("1", "uint64")
        counter = operand("2", "uint64")
        alg = operand("", "int32")

    class Outputs:
        output = operand(None, "dtype")

    class Attrs:
        dtype = attr(int, int(DType.FLOAT), choices=_DTYPES)

    @classmethod
    def verify(cls, call: Call) -> None:
        """Binds the output's dtype; the algorithm must be Philox, or left to the device."""
        call.types["dtype"] = DType(call.attributes["dtype"])
        alg = call.operands["alg"].value
        if alg is not None and int(alg) not in (1, 3):
            raise call.error("alg", "1 (Philox) or 3 (the device's choice, which is Philox)", int(alg))

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """The output has the shape that the operand `shape` says."""
        return [TensorInfo(call.types["dtype"], said_shape(call))]


class StatelessRandomNormalV2(StatelessRandomUniformV2):
    """Normal numbers of mean 0 and variance 1, made of the uniform ones."""


class StatelessRandomUniformFullIntV2(StatelessRandomUniformV2):
    """Integers of which every one is equally likely: the generator's words as they are."""

    class Types:
        Tshape = ("int32", "int64")
        dtype = _SEEDS

    class Attrs:
        dtype = attr(int, int(DType.UINT64), choices=_INTEGERS)


class StatelessRandomUniformIntV2(StatelessRandomUniformFullIntV2):
    """Integers from `minval` to `maxval`, which is excluded: the remainder of a word."""

    class Types:
        Tshape = ("int32", "int64")
        dtype = ("int32", "int64")

    class Inputs(StatelessRandomUniformV2.Inputs):
        minval = operand("", "dtype")
        maxval = operand("", "dtype")

    class Attrs:
        dtype = attr(int, int(DType.INT32), choices=_INTEGERS[:2])

    @classmethod
    def verify(cls, call: Call) -> None:
        """The output has the bounds' dtype, whatever the attribute says."""
        bounds = call.types.get("dtype")
        super().verify(call)
        call.types["dtype"] = bounds or call.types["dtype"]
        low, high = (call.operands[name].value for name in ("minval", "maxval"))
        if low is not None and high is not None and int(low) >= int(high):
            raise call.error("maxval", f"more than minval, {int(low)}", int(high))
