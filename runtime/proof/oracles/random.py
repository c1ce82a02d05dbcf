"""Oracles of TensorFlow's stateless random numbers: Philox 4x32-10 on unsigned integers, exact.

Source: Salmon et al., Parallel random numbers: as easy as 1, 2, 3, 2011; how TensorFlow seeds it and makes numbers of
it: `stateless_random_ops_v2`, `philox_random` and `random_distributions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lstm_lower.passes.formulas.philox import KEY_STEPS, MULTIPLIERS, ROUNDS, SCRAMBLE_KEY, SMALLEST_FRACTION
from lstm_lower.runtime.proof.oracles.registry import ORACLES, oracle

Words = npt.NDArray[np.uint64]

_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)


def philox(counter: Sequence[npt.ArrayLike], key: Sequence[npt.ArrayLike]) -> list[Words]:
    """Four random words for a counter of four words and a key of two."""
    c = [np.asarray(word, np.uint64) for word in counter]
    k = [np.asarray(word, np.uint64) for word in key]
    for _ in range(ROUNDS):
        first, second = np.uint64(MULTIPLIERS[0]) * c[0], np.uint64(MULTIPLIERS[1]) * c[2]
        c = [(second >> _HALF) ^ c[1] ^ k[0], second & _LOW, (first >> _HALF) ^ c[3] ^ k[1], first & _LOW]
        k = [(word + np.uint64(step)) & _LOW for word, step in zip(k, KEY_STEPS, strict=True)]
    return c


def _split(value: npt.ArrayLike) -> tuple[Words, Words]:
    number = np.asarray(value, np.uint64)
    return number & _LOW, number >> _HALF


@oracle("StatelessRandomGetKeyCounter")
def key_and_counter(*, seed: npt.ArrayLike) -> dict[str, Words]:
    """Key and upper half of the counter are the seed's own random words; the lower half starts at 0."""
    seeds = (
        np.asarray(seed).astype(np.int64).view(np.uint64) if np.asarray(seed).dtype.kind == "i" else np.asarray(seed)
    )
    mixed = philox([*_split(seeds[0]), *_split(seeds[1])], SCRAMBLE_KEY)
    return {
        "key": np.array([mixed[0] | (mixed[1] << _HALF)], np.uint64),
        "counter": np.array([0, mixed[2] | (mixed[3] << _HALF)], np.uint64),
    }


@oracle("StatelessRandomGetAlg")
def preferred_algorithm() -> dict[str, npt.NDArray[Any]]:
    """Philox."""
    return {"alg": np.array(1, np.int32)}


def _words(counter: npt.ArrayLike, key: npt.ArrayLike, groups: int) -> Words:
    """Four words for each of so many values of the counter."""
    start = np.asarray(counter, np.uint64)
    low = start[0] + np.arange(groups, dtype=np.uint64)
    high = start[1] + (low < start[0]).astype(np.uint64)
    return np.stack(philox([*_split(low), *_split(high)], _split(np.asarray(key)[0])), axis=1).reshape(-1)


@oracle("StatelessRandomUniformV2")
def uniform(
    *, shape: npt.ArrayLike, key: npt.ArrayLike, counter: npt.ArrayLike, alg: npt.ArrayLike = 1, dtype: int = 1
) -> dict[str, npt.NDArray[np.float64]]:
    """The words' low bits behind the binary point; `dtype` is 1, 10 or 11 for float32, float16, float64, as in ONNX."""
    sizes = tuple(int(size) for size in np.ravel(shape))
    count = int(np.prod(sizes))
    words = _words(counter, key, (count + 1) // 2 if dtype == 11 else (count + 3) // 4)
    if dtype == 11:
        upper, lower = words[0::2] & np.uint64(0xFFFFF), words[1::2]
        numbers = ((upper << _HALF) | lower) * 2.0**-52
    else:
        bits = 23 if dtype == 1 else 10
        numbers = (words & np.uint64(2**bits - 1)) * 2.0**-bits
    return {"output": numbers[:count].reshape(sizes).astype(np.float64)}


@oracle("StatelessRandomNormalV2")
def normal(
    *, shape: npt.ArrayLike, key: npt.ArrayLike, counter: npt.ArrayLike, alg: npt.ArrayLike = 1, dtype: int = 1
) -> dict[str, npt.NDArray[np.float64]]:
    """Box and Muller's method on pairs of uniform numbers; halves are made of those of float32."""
    sizes = tuple(int(size) for size in np.ravel(shape))
    count = int(np.prod(sizes))
    pairs = uniform(shape=[(count + 1) // 2, 2], key=key, counter=counter, dtype=11 if dtype == 11 else 1)["output"]
    radius = np.sqrt(-2 * np.log(np.maximum(pairs[:, :1], SMALLEST_FRACTION)))
    angle = 2 * np.pi * pairs[:, 1:]
    numbers = np.concatenate([np.sin(angle), np.cos(angle)], axis=1) * radius
    return {"output": numbers.reshape(-1)[:count].reshape(sizes)}


# ONNX's number of each dtype, with which an attribute names it.
_INTEGERS = {6: np.int32, 7: np.int64, 12: np.uint32, 13: np.uint64}


def _integers(sizes: tuple[int, ...], counter: npt.ArrayLike, key: npt.ArrayLike, *, wide: bool) -> Words:
    """A word for each number, or two with the lower one first."""
    count = int(np.prod(sizes))
    words = _words(counter, key, (count + 1) // 2 if wide else (count + 3) // 4)
    numbers = words[0::2] | (words[1::2] << _HALF) if wide else words
    return numbers[:count].reshape(sizes)


@oracle("StatelessRandomUniformFullIntV2")
def full_integers(
    *, shape: npt.ArrayLike, key: npt.ArrayLike, counter: npt.ArrayLike, alg: npt.ArrayLike = 1, dtype: int = 13
) -> dict[str, npt.NDArray[Any]]:
    """The words' bits."""
    kind = np.dtype(_INTEGERS[dtype])
    numbers = _integers(tuple(int(size) for size in np.ravel(shape)), counter, key, wide=kind.itemsize == 8)
    return {"output": numbers.astype(f"uint{8 * kind.itemsize}").view(kind)}


@oracle("StatelessRandomUniformIntV2")
def integers(
    *,
    shape: npt.ArrayLike,
    key: npt.ArrayLike,
    counter: npt.ArrayLike,
    minval: npt.ArrayLike,
    maxval: npt.ArrayLike,
    alg: npt.ArrayLike = 1,
    dtype: int = 6,
) -> dict[str, npt.NDArray[Any]]:
    """The lower bound and the remainder of a word by the distance to the upper one."""
    kind = np.asarray(minval).dtype
    low, high = int(np.asarray(minval)), int(np.asarray(maxval))
    numbers = _integers(tuple(int(size) for size in np.ravel(shape)), counter, key, wide=kind.itemsize == 8)
    return {"output": ((numbers % np.uint64(high - low)).astype(np.int64) + low).astype(kind)}


@oracle("StatelessTruncatedNormalV2")
def truncated_normal(
    *, shape: npt.ArrayLike, key: npt.ArrayLike, counter: npt.ArrayLike, alg: npt.ArrayLike = 1, dtype: int = 1
) -> dict[str, npt.NDArray[np.float64]]:
    """Groups of four numbers, of two in float64, take what they need of 256 values of the counter for each word."""
    sizes = tuple(int(size) for size in np.ravel(shape))
    count, each = int(np.prod(sizes)), 2 if dtype == 11 else 4
    start = np.asarray(counter, np.uint64)
    numbers: list[float] = []
    for group in range(-(-count // each)):
        place = (int(start[1]) << 64) + int(start[0]) + group * each * 256 // 4
        own = np.array([place % 2**64, (place >> 64) % 2**64], np.uint64)
        within = [x for x in normal(shape=[64], key=key, counter=own, dtype=dtype)["output"] if abs(x) < 2]
        numbers += within[:each]
    return {"output": np.array(numbers[:count], np.float64).reshape(sizes)}


def _by_seed(op: str) -> None:
    """Registers the oracle of the form that takes a seed in place of key and counter."""

    def seeded(*, seed: npt.ArrayLike, **others: Any) -> dict[str, npt.NDArray[Any]]:
        found: dict[str, npt.NDArray[Any]] = ORACLES[f"{op}V2"](**key_and_counter(seed=seed), **others)
        return found

    oracle(op)(seeded)


for _op in ("Uniform", "Normal", "UniformInt", "UniformFullInt"):
    _by_seed(f"StatelessRandom{_op}")
_by_seed("StatelessTruncatedNormal")


@oracle("StatelessRandomGetKeyCounterAlg")
def key_counter_and_algorithm(*, seed: npt.ArrayLike) -> dict[str, npt.NDArray[Any]]:
    """All that a seed determines."""
    return {**key_and_counter(seed=seed), **preferred_algorithm()}


@oracle("StatelessMultinomial")
def multinomial(
    *, logits: npt.ArrayLike, num_samples: npt.ArrayLike, seed: npt.ArrayLike, output_dtype: int = 7
) -> dict[str, npt.NDArray[Any]]:
    """The first class whose cumulative probability is larger than a uniform number."""
    wide, samples = np.asarray(logits).astype(np.float64), int(np.asarray(num_samples))
    fractions = uniform(shape=[len(wide), samples], **key_and_counter(seed=seed), dtype=11)["output"]
    found = np.zeros((len(wide), samples), np.int64)
    for row, drawn, classes in zip(wide, fractions, found, strict=True):
        finite = np.isfinite(row)
        weights = np.where(finite, np.exp(row - row[finite].max(initial=-np.inf)), 0)
        cumulative = np.cumsum(weights)
        classes[:] = np.searchsorted(cumulative, drawn * cumulative[-1], side="right")
    return {"output": found.astype(_INTEGERS[output_dtype])}
