"""Calls of TensorFlow's ordinary ops: what a case is, and what TensorFlow returned for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from tests.support.gradient_cases import Array, Operands, rng_of

FOLDER = Path(__file__).parents[2] / "data" / "tensorflow" / "ordinary"

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
HALVES = ("float16", "bfloat16")
FLOATS = (*HALVES, "float32", "float64")
INDEX = ("int32", "int64")

Results = dict[str, "Array | list[Array]"]


@dataclass(frozen=True)
class Case:
    """One call of one op.

    Attributes:
        op: op type.
        what: what is special about it.
        operands: by TensorFlow's names, lists for variadic ones; optional ones may be left out.
        attributes: those that differ from TensorFlow's defaults, and the required ones; dtypes as ONNX's numbers.
        constants: operands that a graph holds as constants whenever the op's lowering needs to know them.
        steering: operands that hold sizes, axes and the like: constants where sizes are known, else fed, of known size.
        since: the lowest opset at which the op is lowered while these come at run time; below, it is refused.
        relative: whether each element must be right by its own magnitude, and not only by that of the largest.
        unranked: whether the op is lowered even if not a single rank is known.
        taken: whether TensorFlow's CPU kernels take the call; else what is recorded is another call's that computes the
            same.
        expected: what is right, where TensorFlow's kernels are wrong in all dtypes or have nothing like it.
        oracle: whether an oracle says what is right, and nothing is recorded.
    """

    op: str
    what: str
    operands: Operands = field(hash=False)
    attributes: Mapping[str, Any] = field(default_factory=dict, hash=False)
    constants: tuple[str, ...] = ()
    steering: tuple[str, ...] = ()
    since: int = 13
    relative: bool = False
    unranked: bool = False
    taken: bool = True
    expected: Results | None = field(default=None, hash=False)
    oracle: bool = False

    @property
    def recorded(self) -> bool:
        """Whether what is right lies in a file."""
        return not self.oracle and self.expected is None

    @property
    def id(self) -> str:
        return f"{self.op}-{self.what}"


def draw(shape: tuple[int, ...], dtype: str, *key: object, scale: float = 3) -> Array:
    """Numbers of a dtype, the same ones for the same key: normal ones, small integers of either sign, truth values."""
    rng, kind = rng_of(shape, dtype, *key), numpy_dtype(dtype)
    if dtype == "bool":
        return np.asarray(rng.random(shape) < 0.5)
    if kind.kind in "iu":
        return np.asarray(rng.integers(0 if kind.kind == "u" else -9, 10, shape)).astype(kind)
    return np.asarray(scale * rng.standard_normal(shape)).astype(kind)


def numpy_dtype(name: str) -> np.dtype[Any]:
    """A dtype by its name, bfloat16 too."""
    return BFLOAT16 if name == "bfloat16" else np.dtype(name)


def text(*parts: object) -> str:
    """What is special about a case, as a part of its id: `(2,3)-int32`."""
    return "-".join(str(part).replace(" ", "").replace("/", "|") for part in parts)


def grid(shapes: Iterable[Any], dtypes: Iterable[str], common: str = "float32") -> list[tuple[Any, str]]:
    """All shapes in the common dtype, and the last one in every dtype."""
    shapes = list(shapes)
    return [*product(shapes, [common]), *((shapes[-1], dtype) for dtype in dtypes if dtype != common)]


def mixed_grid(forms: list[Any], dtypes: Iterable[str], common: str = "float32") -> list[tuple[Any, str]]:
    """The same for forms that cannot be compared, as those with lists in them."""
    return [(form, common) for form in forms] + [(forms[-1], dtype) for dtype in dtypes if dtype != common]


def save(family: str, results: Mapping[str, Results], version: str) -> Path:
    """Stores results; bfloat16, which numpy's files do not know, as float32 under a name that says so."""
    arrays: dict[str, Array] = {}
    for case, outputs in results.items():
        for name, value in outputs.items():
            for key, part in _parts(name, value):
                narrow = part.dtype == BFLOAT16
                arrays[f"{case}/{key}" + "|bfloat16" * narrow] = part.astype(np.float32) if narrow else part
    path = FOLDER / f"{family}.npz"
    np.savez_compressed(path, allow_pickle=False, **{"tensorflow": np.array(version), **arrays})
    return path


def _parts(name: str, value: Array | list[Array]) -> list[tuple[str, Array]]:
    if not isinstance(value, list):
        return [(name, value)]
    return [(f"{name}[{number}]", part) for number, part in enumerate(value)]


def flat(results: Mapping[str, Any]) -> dict[str, Array]:
    """Results by name, entries of a list numbered: `output[0]`."""
    return {key: np.asarray(part) for name, value in results.items() for key, part in _parts(name, value)}


@cache
def recording(family: str) -> dict[str, dict[str, Array]]:
    """TensorFlow's results by case id and output name, entries of a list numbered."""
    found: dict[str, dict[str, Array]] = {}
    with np.load(FOLDER / f"{family}.npz") as data:
        for key in data.files:
            if "/" in key:
                case, name = key.rsplit("/", 1)
                value = data[key]
                if name.endswith("|bfloat16"):
                    name, value = name.removesuffix("|bfloat16"), value.astype(BFLOAT16)
                found.setdefault(case, {})[name] = value
    return found
