"""Calls of TensorFlow's ordinary gradient ops: the grid over which oracles and lowered models are compared with it.

Operands are drawn from a seed that is the case's id, so that only results need recording.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

RECORDING = Path(__file__).parents[1] / "data" / "tensorflow" / "gradients.npz"

Array = np.ndarray[Any, Any]
Operands = dict[str, Array | list[Array]]


@dataclass(frozen=True)
class Case:
    """One call of one op.

    Attributes:
        op: op type.
        what: what is special about it.
        operands: by TensorFlow's names, lists for variadic ones.
        attributes: those that differ from TensorFlow's defaults, and the required ones.
        constants: operands that a graph holds as constants whenever the op's lowering needs to know them.
    """

    op: str
    what: str
    operands: Operands = field(hash=False)
    attributes: Mapping[str, Any] = field(default_factory=dict, hash=False)
    constants: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return f"{self.op}-{self.what}"


def rng_of(*key: object) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(repr(key).encode()))


def normal(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any = np.float32, scale: float = 1) -> Array:
    return np.asarray(scale * rng.standard_normal(shape), dtype)


SHAPES = [(), (1,), (7,), (3, 5), (2, 0, 3), (2, 3, 1, 4)]
DTYPES = ["float16", "float32", "float64"]


def _elementwise() -> Iterator[Case]:
    features = ["ReluGrad", "Relu6Grad", "SoftplusGrad", "SoftsignGrad"]
    outputs = {"EluGrad": np.expm1, "SeluGrad": np.expm1}
    results = {
        "SigmoidGrad": lambda x: 1 / (1 + np.exp(-x)),
        "TanhGrad": np.tanh,
        "SqrtGrad": lambda x: np.abs(x) + 0.2,
        "RsqrtGrad": lambda x: np.abs(x) + 0.2,
        "ReciprocalGrad": lambda x: x + 3,
        "InvGrad": lambda x: x + 3,
    }
    for shape, dtype in [*product(SHAPES, ["float32"]), *product([(3, 5)], DTYPES)]:
        what = f"{'x'.join(map(str, shape)) or 'scalar'}-{dtype}"
        for op in features:
            rng = rng_of(op, what)
            yield Case(op, what, {"gradients": normal(rng, shape, dtype), "features": normal(rng, shape, dtype, 4)})
        for alpha in (0.2, 0.01, 1.5):
            rng = rng_of("LeakyReluGrad", what, alpha)
            operands: Operands = {"gradients": normal(rng, shape, dtype), "features": normal(rng, shape, dtype)}
            yield Case("LeakyReluGrad", f"{what}-{alpha}", operands, {"alpha": alpha})
        for op, function in outputs.items():
            rng = rng_of(op, what)
            x = normal(rng, shape, "float64")
            y = np.where(x < 0, function(x), x).astype(dtype)
            yield Case(op, what, {"gradients": normal(rng, shape, dtype), "outputs": y})
        for op, result in results.items():
            rng = rng_of(op, what)
            y = np.asarray(result(normal(rng, shape, "float64"))).astype(dtype)
            yield Case(op, what, {"y": y, "dy": normal(rng, shape, dtype)})
        passed = normal(rng_of("PreventGradient", what), shape, dtype)
        yield Case("PreventGradient", what, {"input": passed}, {"message": "no"})
    edge = np.array([0, -0.0, np.nan, 6, np.inf, -np.inf], np.float32)
    for op in ("ReluGrad", "Relu6Grad"):
        yield Case(op, "edges", {"gradients": np.ones(6, np.float32), "features": edge})
    yield Case("LeakyReluGrad", "edges", {"gradients": np.ones(5, np.float32), "features": np.delete(edge, 2)})
    yield Case("PreventGradient", "int64", {"input": np.arange(3)})


def _bias() -> Iterator[Case]:
    for shape, layout, dtype in [
        *product([(3, 5), (2, 3, 4), (2, 3, 4, 5), (0, 3), (1, 1)], ["NHWC"], ["float32"]),
        *product([(2, 3, 4, 5), (2, 3, 4, 5, 2)], ["NCHW"], ["float32"]),
        *product([(6, 5)], ["NHWC"], DTYPES),
    ]:
        what = f"{'x'.join(map(str, shape))}-{layout}-{dtype}"
        operands: Operands = {"out_backprop": normal(rng_of("BiasAddGrad", what), shape, dtype)}
        yield Case("BiasAddGrad", what, operands, {"data_format": layout})


def _losses() -> Iterator[Case]:
    for (batch, classes), dtype in product([(1, 1), (3, 5), (8, 2), (0, 4), (5, 33)], DTYPES):
        what = f"{batch}x{classes}-{dtype}"
        rng = rng_of("losses", what)
        logits = 3 * normal(rng, (batch, classes), dtype)
        labels = rng.dirichlet(np.ones(classes), batch).astype(dtype)
        yield Case("SoftmaxCrossEntropyWithLogits", what, {"features": logits, "labels": labels})
        for index in ("int32", "int64"):
            numbers = rng.integers(0, classes, batch).astype(index)
            operands: Operands = {"features": logits, "labels": numbers}
            yield Case("SparseSoftmaxCrossEntropyWithLogits", f"{what}-{index}", operands)
    for features, labels_shape in [
        ((1, 4), (3, 4)),
        ((3, 4), (1, 4)),
        ((3, 1), (3, 4)),
        ((3, 4), (3, 1)),
        ((1, 1), (2, 3)),
    ]:
        rng = rng_of("broadcast", features, labels_shape)
        operands = {"features": normal(rng, features), "labels": np.abs(normal(rng, labels_shape))}
        what = f"broadcast-{features[0]}x{features[1]}-{labels_shape[0]}x{labels_shape[1]}"
        yield Case("SoftmaxCrossEntropyWithLogits", what, operands)
    large = np.array([[1000, 0, -1000], [80, 90, 100]], np.float32)
    yield Case("SparseSoftmaxCrossEntropyWithLogits", "large", {"features": large, "labels": np.array([2, 0])})
    masked = np.array([[1, -np.inf, 2]], np.float32)
    yield Case("SparseSoftmaxCrossEntropyWithLogits", "masked", {"features": masked, "labels": np.array([0])})


def slice_case(what: str, shape: tuple[int, ...], spec: str, dtype: str = "float32", index: str = "int32") -> Case:
    """The gradient of x[spec], with masks as TensorFlow derives them from Python's slices."""
    begin, end, strides = [], [], []
    masks = dict.fromkeys(("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"), 0)
    for position, part in enumerate(spec.split(",")):
        bit = 1 << position
        if ":" not in part:
            masks["ellipsis_mask"] |= bit * (part == "...")
            masks["new_axis_mask"] |= bit * (part == "new")
            number = 0 if part in ("...", "new") else int(part)
            masks["shrink_axis_mask"] |= bit * (part not in ("...", "new"))
            first, last, step = number, number + 1, 1
        else:
            fields = [*part.split(":"), ""][:3]
            masks["begin_mask"] |= bit * (not fields[0])
            masks["end_mask"] |= bit * (not fields[1])
            first, last, step = (int(text or 0) for text in fields)
            step = step or 1
        begin.append(first)
        end.append(last)
        strides.append(step)
    x = np.zeros(shape)
    sliced = eval("x[" + spec.replace("new", "None") + "]", {"x": x})
    rng = rng_of("slice", shape, spec)
    gradient = (
        normal(rng, np.shape(sliced)) if dtype == "float32" else rng.integers(0, 9, np.shape(sliced)).astype(dtype)
    )
    vectors = {
        name: np.array(values, index)
        for name, values in {"shape": shape, "begin": begin, "end": end, "strides": strides}.items()
    }
    return Case("StridedSliceGrad", what, {**vectors, "dy": gradient}, masks, ("strides",))


def _slices() -> Iterator[Case]:
    for shape, spec in [
        ((7,), "2:5"),
        ((7,), "-3:"),
        ((7,), ":"),
        ((7,), "5:2"),
        ((7,), "::2"),
        ((7,), "1::3"),
        ((7,), "::-1"),
        ((7,), "5:1:-2"),
        ((7,), "-2::-3"),
        ((7,), "-100:100"),
        ((7,), "100:-100:-1"),
        ((7,), "3"),
        ((7,), "-1"),
        ((7,), "9:"),
        ((4, 5), "-1"),
        ((4, 5), "1:3,2:"),
        ((4, 5), ":,1"),
        ((4, 5), "...,0"),
        ((4, 5), "new,1:2"),
        ((4, 5), "1,new,::2"),
        ((4, 5, 6), "1:,...,::-1"),
        ((4, 5, 6), "...,new,2"),
        ((4, 5, 6), "0,...,1:2"),
        ((4, 5, 6), "2:3,1:,4:"),
        ((4, 5, 6), "...,new"),
        ((4, 5, 6), ":,3,::4"),
        ((4, 5, 6), "1,2,3"),
        ((0, 5), ":,1"),
        ((2, 3, 4, 5), "1,...,3:"),
        ((2, 3, 4, 5), "new,...,new,::-2"),
    ]:
        yield slice_case(f"{'x'.join(map(str, shape))}[{spec}]", shape, spec)
    yield slice_case("int64-index", (5, 4), "1:4,0", index="int64")
    yield slice_case("int32-data", (5, 4), "1:4:2", dtype="int32")


def _mirror() -> Iterator[Case]:
    for mode, (shape, paddings), index in product(
        ("REFLECT", "SYMMETRIC"),
        [
            ((5,), [[2, 1]]),
            ((4, 3), [[1, 2], [0, 2]]),
            ((3, 4, 2), [[0, 0], [3, 0], [1, 1]]),
            ((4,), [[0, 3]]),
            ((2, 2), [[0, 0], [0, 0]]),
        ],
        ("int32", "int64"),
    ):
        padded = tuple(size + sum(row) for size, row in zip(shape, paddings, strict=True))
        what = f"{mode}-{'x'.join(map(str, shape))}-{paddings}-{index}".replace(" ", "")
        operands: Operands = {"input": normal(rng_of(what), padded), "paddings": np.array(paddings, index)}
        yield Case("MirrorPadGrad", what, operands, {"mode": mode})


def _shapes() -> Iterator[Case]:
    for (s0, s1), index in product(
        [
            ((1, 3), (1, 3)),
            ((1, 3), (2, 1, 3)),
            ((2, 1, 3), (3,)),
            ((1,), (1, 1)),
            ((), (2, 3)),
            ((2, 1, 4), (2, 5, 1)),
            ((1, 1, 4), (1, 5, 1)),
            ((0, 1), (1, 3)),
            ((), ()),
            ((4, 5), (5,)),
            ((4, 5), (4, 5)),
            ((1, 1, 1), ()),
        ],
        ("int32", "int64"),
    ):
        operands: Operands = {"s0": np.array(s0, index), "s1": np.array(s1, index)}
        yield Case("BroadcastGradientArgs", f"{s0}-{s1}-{index}".replace(" ", ""), operands)
    tensors = [np.zeros(shape, np.float32) for shape in [(2, 3), (), (4, 0, 1)]]
    yield Case("ShapeN", "int32", {"input": list(tensors)}, {"out_type": 6})
    yield Case("ShapeN", "int64", {"input": list(tensors)}, {"out_type": 7})
    for axis in (0, 1, -1, -2):
        shapes: list[Array] = [np.array([2, 5, 3], np.int32) for _ in range(3)]
        for number, shape in enumerate(shapes):
            shape[axis] = number + 1
        yield Case("ConcatOffset", f"axis{axis}", {"concat_dim": np.array(axis, np.int32), "shape": shapes})


def _stitches() -> Iterator[Case]:
    def stitch(what: str, indices: list[Any], rest: tuple[int, ...], dtype: str = "float32") -> Iterator[Case]:
        rng = rng_of("stitch", what)
        numbers = [np.array(index, np.int32) for index in indices]
        data = [normal(rng, (*index.shape, *rest)) for index in numbers]
        if dtype != "float32":
            data = [rng.integers(0, 50, value.shape).astype(dtype) for value in data]
        for op in ("DynamicStitch", "ParallelDynamicStitch"):
            if op == "DynamicStitch" or "overlap" not in what:
                yield Case(op, what, {"indices": list(numbers), "data": list(data)})

    yield from stitch("vectors", [[0, 2], [1, 3]], (3,))
    yield from stitch("scalar", [[0, 1, 2], 1], (), "int32")
    yield from stitch("overlap", [[0, 1, 2], [1], [1, 0]], ())
    yield from stitch("overlap-rows", [[3, 0, 1], [2, 1], 0], (2, 2))
    yield from stitch("matrices", [[[5, 1], [0, 4]], [2, 3]], (2,), "int64")
    yield from stitch("empty-part", [[0, 1], []], (3,))
    yield from stitch("half", [[1, 0]], (2,), "float16")


def _segments() -> Iterator[Case]:
    for (ids, segments, rest), index in product(
        [
            ([0, 2, 1, 0, 2], 3, (4,)),
            ([0, -1, 1, 1], 3, ()),
            ([[0, 1], [1, 4]], 5, (2, 3)),
            ([], 2, (3,)),
            ([5, 5, 5], 6, (1,)),
        ],
        ("int32", "int64"),
    ):
        numbers = np.array(ids, index)
        what = f"{list(numbers.shape)}-{segments}-{list(rest)}-{index}".replace(" ", "")
        operands: Operands = {
            "data": normal(rng_of(what), (*numbers.shape, *rest)),
            "segment_ids": numbers,
            "num_segments": np.array(segments, np.int32),
        }
        yield Case("UnsortedSegmentSum", what, operands)


@cache
def cases() -> tuple[Case, ...]:
    """All cases."""
    families = (_elementwise, _bias, _losses, _slices, _mirror, _shapes, _stitches, _segments)
    found = {case.id: case for family in families for case in family()}
    return tuple(found.values())


def save_recording(path: Path, results: Mapping[str, Mapping[str, Array]], version: str) -> None:
    arrays = {f"{case}/{name}": value for case, outputs in results.items() for name, value in outputs.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, allow_pickle=False, **{"tensorflow": np.array(version), **arrays})


@cache
def recording() -> dict[str, dict[str, Array]]:
    """TensorFlow's results by case id and output name."""
    found: dict[str, dict[str, Array]] = {}
    with np.load(RECORDING) as data:
        for key in data.files:
            if "/" in key:
                case, name = key.rsplit("/", 1)
                found.setdefault(case, {})[name] = data[key]
    return found
