"""The configurations whose results TensorFlow's CPU kernels gave, and the recording of those results.

`tests/data/record_tensorflow.py` makes the recording; inputs are drawn again from each case's seed and compared with
a checksum, so only results are stored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import cycle, product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.support.op_inputs import ATTRIBUTES, OPS, SHAPES, Style, valid_inputs

RECORDING = Path(__file__).parents[1] / "data" / "tensorflow" / "block.npz"

Results = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Case:
    """One call of one op.

    Attributes:
        id: op, dtype, sizes and a running number.
        op: op type.
        sizes: T, B, I, H.
        dtype: `float32` or `float16`.
        steps: `seq_len_max`; `None` for the cells.
        attributes: all of the op's attributes.
        style: see `op_inputs.valid_inputs`.
        zero_cs_grad: whether cs_grad is all zeros, as in most training graphs.
        seed: of the operands.
    """

    id: str
    op: str
    sizes: tuple[int, int, int, int]
    dtype: str
    steps: int | None
    attributes: Mapping[str, Any] = field(hash=False)
    style: Style
    zero_cs_grad: bool
    seed: int

    def operands(self) -> dict[str, npt.NDArray[Any]]:
        """Returns the operands in TensorFlow's order."""
        T, B, I, H = self.sizes  # noqa: E741
        given = valid_inputs(
            self.op, T=T, B=B, I=I, H=H, dtype=self.dtype, seed=self.seed, steps=self.steps, style=self.style
        )
        operands = {name: given[name] for name in SHAPES[self.op]}
        if self.zero_cs_grad:
            operands["cs_grad"] = np.zeros_like(operands["cs_grad"])
        return operands

    def defined(self, name: str, value: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Returns the rows of a result that TensorFlow defines; the others hold uninitialised memory there.

        These are the steps from `seq_len_max` on of i, f, o, ci and co, and all of w_grad when the batch is empty.
        """
        if self.op in ("BlockLSTM", "BlockLSTMV2") and name not in ("cs", "h"):
            return value[: self.steps]
        return value[:0] if name == "w_grad" and self.sizes[1] == 0 else value

    def checksum(self) -> int:
        """A checksum of the operands."""
        digest = hashlib.sha256()
        for name, value in self.operands().items():
            digest.update(f"{name} {value.dtype.str} {value.shape}".encode())
            digest.update(np.ascontiguousarray(value).tobytes())
        return int.from_bytes(digest.digest()[:8], "little")


SIZES = ((1, 1, 1, 1), (2, 1, 3, 1), (3, 2, 1, 5), (5, 3, 4, 7), (4, 5, 7, 3), (7, 1, 2, 8), (6, 4, 5, 6))
LARGE = ((9, 4, 16, 32), (24, 2, 5, 16))
EMPTY = ((0, 2, 3, 4), (3, 0, 3, 4), (3, 2, 0, 4))
CLIPS = (3.0, 0.0, -1.0, float("nan"), 0.4)  # the last one is active in most calls
FORGET_BIASES = (1.0, 0.0, -0.7, 2.5, 1.0)


def _variants(op: str) -> Iterator[dict[str, Any]]:
    """All combinations of what the op has: clip, peephole, seq_len_max (as a share of T), style, zero cs_grad."""
    backward = "Grad" in op
    clips = CLIPS if "cell_clip" in ATTRIBUTES[op] else (None,)
    peepholes = (False, True) if "use_peephole" in ATTRIBUTES[op] else (None,)
    shares = (1.0, 0.5, 0.0) if "seq_len_max" in SHAPES[op] else (None,)
    styles = ("plausible", "wild") if backward else ("plausible",)
    zeros = (False, True) if "cs_grad" in SHAPES[op] else (False,)
    for clip, peephole, share, style, zero in product(clips, peepholes, shares, styles, zeros):
        yield {"cell_clip": clip, "use_peephole": peephole, "share": share, "style": style, "zero": zero}


def _make(op: str, number: int, sizes: tuple[int, int, int, int], dtype: str, variant: dict[str, Any]) -> Case:
    steps = None if variant["share"] is None else int(sizes[0] * variant["share"])
    chosen = {**variant, "forget_bias": FORGET_BIASES[number % len(FORGET_BIASES)]}
    attributes = {name: chosen[name] for name in ATTRIBUTES[op]}
    name = f"{op}-{dtype}-{'x'.join(map(str, sizes))}-{number}"
    seed = 1000 * OPS.index(op) + number
    return Case(name, op, sizes, dtype, steps, attributes, variant["style"], variant["zero"], seed)


def _cases() -> Iterator[Case]:
    for op in OPS:
        number = 0
        dtypes = ("float32",) if op.startswith("GRU") else ("float32", "float16")
        variants = list(_variants(op))
        rounds = max(1, 20 // len(variants))  # ops with few variants meet every size
        for dtype in dtypes:
            sizes = cycle(SIZES)
            for variant in variants * rounds:
                yield _make(op, number, next(sizes), dtype, variant)
                number += 1
            for large in LARGE:
                yield _make(op, number, large, dtype, _ordinary(op))
                number += 1
        for empty in EMPTY:
            if _accepts(op, empty):
                yield _make(op, number, empty, "float32", variants[0])
                number += 1


def _ordinary(op: str) -> dict[str, Any]:
    """What a large case has: wild activations over many steps would overflow half."""
    share = 1.0 if "seq_len_max" in SHAPES[op] else None
    return {"cell_clip": 3.0, "use_peephole": True, "share": share, "style": "plausible", "zero": False}


def _accepts(op: str, sizes: tuple[int, int, int, int]) -> bool:
    """Whether TensorFlow takes these empty sizes: the cells have no T, and the forward cells refuse an empty batch."""
    return "seq_len_max" in SHAPES[op] or (sizes[0] > 0 and sizes[1] > 0)


CASES: tuple[Case, ...] = tuple(_cases())


def save_recording(path: Path, results: Mapping[str, Results], version: str) -> None:
    """Stores results by case id: all numbers of a dtype in one array, with names, shapes and checksums beside it."""
    by_id = {case.id: case for case in CASES}
    names, shapes, dtypes = [], [], []
    flat: dict[str, list[npt.NDArray[Any]]] = {"float32": [], "float16": []}
    for case_id, outputs in results.items():
        for name, value in outputs.items():
            names.append(f"{case_id}/{name}")
            shapes.append([*value.shape, *[-1] * (3 - value.ndim)])
            dtypes.append(value.dtype.name)
            flat[value.dtype.name].append(value.ravel())
    np.savez_compressed(
        path,
        tensorflow=np.array(version),
        cases=np.array(list(results)),
        checksums=np.array([by_id[case_id].checksum() for case_id in results], np.uint64),
        names=np.array(names),
        shapes=np.array(shapes, np.int32),
        dtypes=np.array(dtypes),
        **{dtype: np.concatenate([np.zeros(0, dtype), *parts]) for dtype, parts in flat.items()},  # type: ignore[arg-type]
    )


def load_recording(path: Path = RECORDING) -> dict[str, Results]:
    """Returns TensorFlow's results by case id.

    Raises:
        ValueError: the operands drawn now are not those that TensorFlow saw.
    """
    by_id = {case.id: case for case in CASES}
    with np.load(path) as stored:
        data = {name: stored[name] for name in stored.files}
    for case_id, checksum in zip(data["cases"].tolist(), data["checksums"].tolist(), strict=True):
        if case_id not in by_id or by_id[case_id].checksum() != checksum:
            raise ValueError(f"{case_id}: operands differ from the recorded ones; record anew")
    results: dict[str, Results] = {case_id: {} for case_id in data["cases"].tolist()}
    position = {"float32": 0, "float16": 0}
    rows = zip(data["names"].tolist(), data["shapes"].tolist(), data["dtypes"].tolist(), strict=True)
    for name, padded, dtype in rows:
        shape = tuple(size for size in padded if size >= 0)
        start = position[dtype]
        position[dtype] += int(np.prod(shape))
        case_id, output = name.rsplit("/", 1)
        results[case_id][output] = data[dtype][start : position[dtype]].reshape(shape)
    return results


@cache
def recording() -> dict[str, Results]:
    """The recording, read once per test run."""
    return load_recording()


def relative_error(value: npt.ArrayLike, reference: npt.ArrayLike) -> float:
    """Largest absolute error over the reference's largest magnitude; the absolute one where the reference is zero."""
    value, reference = np.asarray(value, np.float64), np.asarray(reference, np.float64)
    if value.shape != reference.shape:
        raise ValueError(f"shapes differ: {value.shape} and {reference.shape}")
    error = float(np.max(np.abs(value - reference), initial=0.0))
    scale = float(np.max(np.abs(reference), initial=0.0))
    return error / scale if scale else error
