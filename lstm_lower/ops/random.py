"""Definitions of TensorFlow's random numbers that depend on a seed alone, as Keras' dropout uses them.

A training graph with dropout holds them, and its results can only be TensorFlow's if the numbers are.
"""

from __future__ import annotations

from lstm_lower.opdef import Call, DType
from lstm_lower.ops.raw import COMPUTED, INDEX, PAIRED, RawOp

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


class StatelessRandomGetKeyCounter(RawOp, seed="2", Tseed=(*INDEX, "uint32", "uint64")):
    """Scrambles a seed into the key and the counter of a random number generator."""


class StatelessRandomGetKeyCounterAlg(RawOp, seed="2", Tseed=(*INDEX, "uint32", "uint64")):
    """The same with the algorithm: 1, Philox."""


class StatelessRandomGetAlg(RawOp):
    """The number of the algorithm that the device prefers; 1, Philox."""


class _Numbers(RawOp, abstract=True, key="1", seed="2", minval="", shape="R", maxval="", alg="", counter="2"):
    """Numbers of a dtype that the attribute says, in the shape that the operand `shape` says."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """The algorithm must be Philox."""
        alg = call.operands["alg"].value if "alg" in call.operands else None
        if alg is not None and int(alg) not in (1, 3):
            raise call.error("alg", "1 (Philox) or 3 (the device's choice, which is Philox)", int(alg))
        bounds = [call.operands[name].value for name in ("minval", "maxval") if name in call.operands]
        low, high = bounds if len(bounds) == 2 else (None, None)
        if low is not None and high is not None and int(low) >= int(high):
            raise call.error("maxval", f"more than minval, {int(low)}", int(high))


class StatelessRandomUniformV2(_Numbers, dtype=("float16", *PAIRED)):
    """Uniform numbers from 0 to 1, determined by key and counter: Philox 4x32 with ten rounds."""


class StatelessRandomNormalV2(_Numbers, dtype=("float16", *PAIRED)):
    """Normal numbers of mean 0 and variance 1, made of the uniform ones."""


class StatelessTruncatedNormalV2(_Numbers, dtype=("float16", *PAIRED)):
    """Normally distributed numbers within two standard deviations."""


class StatelessRandomUniformFullIntV2(_Numbers):
    """Integers of which every one is equally likely: the generator's words as they are."""


class StatelessRandomUniformIntV2(_Numbers):
    """Integers from `minval` to `maxval`, which is excluded: the remainder of a word."""


class StatelessRandomUniform(_Numbers, Tseed=(*INDEX, "uint32", "uint64"), dtype=("float16", *PAIRED)):
    """The numbers of StatelessRandomUniformV2, by a seed."""


class StatelessRandomNormal(_Numbers, Tseed=(*INDEX, "uint32", "uint64"), dtype=("float16", *PAIRED)):
    """The numbers of StatelessRandomNormalV2, by a seed."""


class StatelessTruncatedNormal(_Numbers, Tseed=(*INDEX, "uint32", "uint64"), dtype=("float16", *PAIRED)):
    """The numbers of StatelessTruncatedNormalV2, by a seed."""


class StatelessRandomUniformFullInt(_Numbers):
    """The numbers of StatelessRandomUniformFullIntV2, by a seed."""


class StatelessRandomUniformInt(_Numbers, Tseed=(*INDEX, "uint32", "uint64")):
    """The numbers of StatelessRandomUniformIntV2, by a seed."""


class StatelessMultinomial(
    RawOp,
    logits="B C",
    num_samples="",
    seed="2",
    T=(*COMPUTED, "int8", "int16", "uint8", "uint16"),
    Tseed=(*INDEX, "uint32", "uint64"),
):
    """Classes drawn by unnormalised log probabilities, row by row, determined by a seed.

    TensorFlow's kernel deals rows out to threads that start at places of their own: the numbers are those of one
    thread, all that it uses for a few hundred classes and samples.
    """
