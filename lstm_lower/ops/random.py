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
_FLOATS = ("float16", "float32", "float64")
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


class StatelessRandomGetKeyCounterAlg(StatelessRandomGetKeyCounter):
    """The same with the algorithm: 1, Philox."""

    class Outputs(StatelessRandomGetKeyCounter.Outputs):
        alg = operand("", "int32")


class StatelessRandomGetAlg(OpDef):
    """The number of the algorithm that the device prefers; 1, Philox."""

    class Types:
        pass

    class Inputs:
        pass

    class Outputs:
        alg = operand("", "int32")


class _Numbers(OpDef, abstract=True):
    """Numbers of a dtype that the attribute says, in the shape that the operand `shape` says."""

    class Types:
        Tshape = ("int32", "int64")
        dtype = _FLOATS

    class Inputs:
        shape = operand("R", "Tshape")

    class Outputs:
        output = operand(None, "dtype")

    class Attrs:
        dtype = attr(int, int(DType.FLOAT), choices=_DTYPES)

    @classmethod
    def verify(cls, call: Call) -> None:
        """Binds the output's dtype: that of bounds, whatever the attribute says. The algorithm must be Philox."""
        call.types["dtype"] = call.types.get("dtype") or DType(call.attributes["dtype"])
        alg = call.operands["alg"].value if "alg" in call.operands else None
        if alg is not None and int(alg) not in (1, 3):
            raise call.error("alg", "1 (Philox) or 3 (the device's choice, which is Philox)", int(alg))
        bounds = [call.operands[name].value for name in ("minval", "maxval") if name in call.operands]
        low, high = bounds if len(bounds) == 2 else (None, None)
        if low is not None and high is not None and int(low) >= int(high):
            raise call.error("maxval", f"more than minval, {int(low)}", int(high))

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """The output has the shape that the operand `shape` says."""
        return [TensorInfo(call.types["dtype"], said_shape(call))]


class _OfKey(_Numbers, abstract=True):
    class Inputs(_Numbers.Inputs):
        key = operand("1", "uint64")
        counter = operand("2", "uint64")
        alg = operand("", "int32")


class _OfSeed(_Numbers, abstract=True):
    class Types:
        T = ("int32", "int64")
        Tseed = _SEEDS
        dtype = _FLOATS

    class Inputs:
        shape = operand("R", "T")
        seed = operand("2", "Tseed")


class StatelessRandomUniformV2(_OfKey):
    """Uniform numbers from 0 to 1, determined by key and counter: Philox 4x32 with ten rounds."""


class StatelessRandomNormalV2(_OfKey):
    """Normal numbers of mean 0 and variance 1, made of the uniform ones."""


class StatelessTruncatedNormalV2(_OfKey):
    """Normally distributed numbers within two standard deviations."""


class StatelessRandomUniformFullIntV2(_OfKey):
    """Integers of which every one is equally likely: the generator's words as they are."""

    class Types:
        Tshape = ("int32", "int64")
        dtype = _SEEDS

    class Attrs:
        dtype = attr(int, int(DType.UINT64), choices=_INTEGERS)


class StatelessRandomUniformIntV2(_OfKey):
    """Integers from `minval` to `maxval`, which is excluded: the remainder of a word."""

    class Types:
        Tshape = ("int32", "int64")
        dtype = ("int32", "int64")

    class Inputs(_OfKey.Inputs):
        minval = operand("", "dtype")
        maxval = operand("", "dtype")

    class Attrs:
        dtype = attr(int, int(DType.INT32), choices=_INTEGERS[:2])


class StatelessRandomUniform(_OfSeed):
    """The numbers of StatelessRandomUniformV2, by a seed."""


class StatelessRandomNormal(_OfSeed):
    """The numbers of StatelessRandomNormalV2, by a seed."""


class StatelessTruncatedNormal(_OfSeed):
    """The numbers of StatelessTruncatedNormalV2, by a seed."""


class StatelessRandomUniformFullInt(_OfSeed):
    """The numbers of StatelessRandomUniformFullIntV2, by a seed."""

    class Types:
        T = ("int32", "int64")
        Tseed = _SEEDS
        dtype = _SEEDS

    class Attrs:
        dtype = attr(int, int(DType.UINT64), choices=_INTEGERS)


class StatelessRandomUniformInt(_OfSeed):
    """The numbers of StatelessRandomUniformIntV2, by a seed."""

    class Types:
        T = ("int32", "int64")
        Tseed = _SEEDS
        dtype = ("int32", "int64")

    class Inputs(_OfSeed.Inputs):
        minval = operand("", "dtype")
        maxval = operand("", "dtype")

    class Attrs:
        dtype = attr(int, int(DType.INT32), choices=_INTEGERS[:2])


class StatelessMultinomial(OpDef):
    """Classes drawn by unnormalised log probabilities, row by row, determined by a seed.

    TensorFlow's kernel deals rows out to threads that start at places of their own: the numbers are those of one
    thread, all that it uses for a few hundred classes and samples.
    """

    class Types:
        T = ("bfloat16", "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16")
        Tseed = _SEEDS
        output_dtype = ("int32", "int64")

    class Inputs:
        logits = operand("B C")
        num_samples = operand("", "int32")
        seed = operand("2", "Tseed")

    class Outputs:
        output = operand(None, "output_dtype")

    class Attrs:
        output_dtype = attr(int, int(DType.INT64), choices=_INTEGERS[:2])

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """So many for each row."""
        samples = call.operands["num_samples"].value
        size = None if samples is None else int(samples)
        return [TensorInfo(DType(call.attributes["output_dtype"]), (call.sizes.get("B"), size))]
