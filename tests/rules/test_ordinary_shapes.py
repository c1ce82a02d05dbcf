"""Chains of ops that compute with sizes: what is known of a result's shape once they are lowered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

import lstm_lower as ll
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.values import Open
from lstm_lower.registry import DOMAIN
from tests.rules.test_gradients import run, single_node

CONSTANTS = {
    "zero": np.int32(0),
    "one": np.int32(1),
    "five": np.int32(5),
    "number": np.float32(7),
    "[-1]": np.int32([-1]),
    "minus": np.int32(-1),
    "three": np.int32(3),
    "order": np.int32([1, 0, 2]),
    "widths": np.int32([[0, 0], [1, 0], [1, 2]]),
    "times": np.int32([1, 1, 2]),
    "[0,0]": np.int32([0, 0]),
    "[1,1]": np.int32([1, 1]),
    "[0,-1]": np.int32([0, -1]),
    "[0,0,1]": np.int32([0, 0, 1]),
    "[0]": np.int32([0]),
    "[1]": np.int32([1]),
    "[2]": np.int32([2]),
    "[3]": np.int32([3]),
    "[4]": np.int32([4]),
}

# An op, the names of its operands, and its attributes; the result has the step's name.
Step = tuple[str, str, dict[str, Any]]


def size(vector: str, axis: int) -> Step:
    """An entry of a shape, as TensorFlow writes it."""
    return "StridedSlice", f"{vector} [{axis}] [{axis + 1}] [1]", {"shrink_axis_mask": 1}


def model_of(steps: dict[str, Step], opset: int, dtype: int) -> onnx.ModelProto:
    """A model of the steps on x, of a batch by name, an open size and 3; the last one's result is its output."""
    nodes = [
        helper.make_node(op, operands.split(), [name], name, domain=DOMAIN, **attributes)
        for name, (op, operands, attributes) in steps.items()
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", None, 3])
    output = helper.make_tensor_value_info(list(steps)[-1], dtype, None)
    read = {name for _, operands, _ in steps.values() for name in operands.split()}
    initializers = [numpy_helper.from_array(np.asarray(v), name) for name, v in CONSTANTS.items() if name in read]
    graph = helper.make_graph(nodes, "chain", [x], [output], initializers)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


def pack(*parts: str) -> Step:
    """Scalars as a vector."""
    return "Pack", " ".join(parts), {"N": len(parts)}


def join(*parts: str) -> Step:
    """Vectors one behind the other."""
    return "ConcatV2", " ".join([*parts, "zero"]), {"N": len(parts)}


FLOAT, INT32 = TensorProto.FLOAT, TensorProto.INT32
FILL: Step = ("Fill", "d number", {})
RESHAPE: Step = ("Reshape", "x d", {})
SHAPE: dict[str, Step] = {"s": ("Shape", "x", {})}
BATCH = {**SHAPE, "b": size("s", 0)}
BOTH = {**BATCH, "t": size("s", 1)}
FIRST: Step = ("StridedSlice", "s [0] [2] [1]", {"begin_mask": 1})
LAST: Step = ("StridedSlice", "s [2] [0] [1]", {"end_mask": 1})
MIDDLE: Step = ("StridedSlice", "s [1] [-1] [1]", {"end_mask": 1})
# x's second size, known by its identity alone.
OPEN = "the second size of x"

# What is known of the last step's shape: sizes, names, the open one; nothing for `None`.
CHAINS: dict[str, tuple[dict[str, Step], Sequence[int | str | None], int]] = {
    "fill": ({**BATCH, "d": pack("b", "five"), "y": FILL}, ["batch", 5], FLOAT),
    "fill-open": ({**BOTH, "d": pack("t", "b"), "y": FILL}, [OPEN, "batch"], FLOAT),
    "fill-shape": ({**SHAPE, "y": ("Fill", "s number", {})}, ["batch", OPEN, 3], FLOAT),
    "wide-shape": (
        {"s": ("Shape", "x", {"out_type": TensorProto.INT64}), "y": ("Fill", "s number", {})},
        ["batch", OPEN, 3],
        FLOAT,
    ),
    "reshape": ({**BATCH, "d": pack("b", "minus"), "y": RESHAPE}, ["batch", None], FLOAT),
    "reshape-all": ({**BOTH, "d": pack("one", "t", "b", "three"), "y": RESHAPE}, [1, OPEN, "batch", 3], FLOAT),
    "reshape-vector": ({**SHAPE, "f": FIRST, "d": join("f", "[1]", "[3]"), "y": RESHAPE}, ["batch", OPEN, 1, 3], FLOAT),
    "slices": ({**SHAPE, "f": FIRST, "l": LAST, "d": join("f", "[4]", "l"), "y": FILL}, ["batch", OPEN, 4, 3], FLOAT),
    "gathered": ({**SHAPE, "g": ("GatherV2", "s [2] zero", {}), "d": join("g", "[4]"), "y": FILL}, [3, 4], FLOAT),
    "squeezed": (
        {**SHAPE, "f": ("Slice", "s [0] [1]", {}), "q": ("Squeeze", "f", {}), "d": pack("q"), "y": FILL},
        ["batch"],
        FLOAT,
    ),
    "twice": (
        {**SHAPE, "b": ("Slice", "s [0] [1]", {}), "d": ("BroadcastTo", "b [2]", {}), "y": FILL},
        ["batch", "batch"],
        FLOAT,
    ),
    "reversed": ({**SHAPE, "d": ("ReverseV2", "s [0]", {}), "y": FILL}, [3, OPEN, "batch"], FLOAT),
    "zeros": ({"z": ("ZerosLike", "x", {}), "y": ("OnesLike", "z", {})}, ["batch", OPEN, 3], FLOAT),
    "broadcast": ({**SHAPE, "y": ("BroadcastTo", "number s", {})}, ["batch", OPEN, 3], FLOAT),
    "range": ({**BATCH, "y": ("Range", "zero b one", {})}, ["batch"], INT32),
    "expanded": ({**BATCH, "r": ("Range", "zero b one", {}), "y": ("ExpandDims", "r one", {})}, ["batch", 1], INT32),
    "cut": ({**BATCH, "n": pack("b", "one", "minus"), "y": ("Slice", "x [0,0,1] n", {})}, ["batch", 1, 2], FLOAT),
    "rows": ({"y": ("StridedSlice", "x [0] [1] [1]", {"begin_mask": 1, "end_mask": 1})}, ["batch", OPEN, 3], FLOAT),
    "last-step": (
        {"y": ("StridedSlice", "x [0,-1] [0,0] [1,1]", {"begin_mask": 1, "end_mask": 1, "shrink_axis_mask": 2})},
        ["batch", 3],
        FLOAT,
    ),
    "transposed": ({"y": ("Transpose", "x order", {})}, [OPEN, "batch", 3], FLOAT),
    "turned-back": (
        {"p": ("InvertPermutation", "order", {}), "y": ("Transpose", "x p", {})},
        [OPEN, "batch", 3],
        FLOAT,
    ),
    "computed-order": (
        {"r": ("Rank", "x", {}), "p": ("Range", "zero r one", {}), "y": ("Transpose", "x p", {})},
        ["batch", OPEN, 3],
        FLOAT,
    ),
    # The two calls of Reshape differ in nothing but which entry of their shapes is known.
    "outer-product": (
        {
            **BATCH,
            "r": ("Range", "zero b one", {}),
            "d": pack("b", "one"),
            "e": pack("one", "b"),
            "column": ("Reshape", "r d", {}),
            "row": ("Reshape", "r e", {}),
            "y": ("Mul", "column row", {}),
        },
        ["batch", "batch"],
        INT32,
    ),
    "one-hot": (
        {**BATCH, "r": ("Range", "zero b one", {}), "y": ("OneHot", "r five number number", {})},
        ["batch", 5],
        FLOAT,
    ),
    "padded": ({"y": ("Pad", "x widths", {})}, ["batch", None, 6], FLOAT),
    "repeated": ({"y": ("Tile", "x times", {})}, ["batch", OPEN, 6], FLOAT),
    "product": (
        {**SHAPE, "m": MIDDLE, "n": ("Prod", "m zero", {}), "d": pack("n", "five"), "y": FILL},
        [None, 5],
        FLOAT,
    ),
    "product-of-one": (
        {
            "e": ("ExpandDims", "x one", {}),
            "s": ("Shape", "e", {}),
            "f": FIRST,
            "n": ("Prod", "f zero", {}),
            "d": pack("n"),
            "y": FILL,
        },
        ["batch"],
        FLOAT,
    ),
}


def known(shape: Sequence[Any], x: ir.Value) -> list[int | str | None]:
    """Sizes and names, and which size is x's."""
    return [OPEN if isinstance(d, Open) and d.value is x else d if isinstance(d, int | str) else None for d in shape]


@pytest.mark.parametrize("opset", [13, 21])
@pytest.mark.parametrize("chain", CHAINS)
def test_what_is_known_of_the_result(chain: str, opset: int) -> None:
    steps, expected, dtype = CHAINS[chain]
    lowered = ll.lower(model_of(steps, opset, dtype))
    model = ir.from_proto(lowered)
    shape = Facts.of(model).shape(model.graph.outputs[0])
    assert shape is not None
    assert known(shape, model.graph.inputs[0]) == list(expected)
    (result,) = run(lowered, {"x": np.ones((2, 4, 3), np.float32)})
    sizes = {"batch": 2, OPEN: 4}
    assert all(a in (None, b) for a, b in zip((sizes.get(d, d) for d in expected), result.shape, strict=True))


INT = TensorProto.INT32
X = (FLOAT, [2, 3])


@pytest.mark.parametrize(
    ("op", "operands", "message"),
    [
        (
            "Transpose",
            {"x": X, "perm": (INT, ["n"])},
            "perm requires a constant or a known number of axes, got neither",
        ),
        ("ExpandDims", {"input": X, "axis": (INT, [])}, "axis requires a constant"),
        ("ReverseV2", {"tensor": X, "axis": (INT, [1])}, "axis requires a constant"),
        ("GatherV2", {"params": X, "indices": (INT, [1]), "axis": (INT, [])}, "axis requires a constant"),
        (
            "StridedSlice",
            {"input": X, "begin": (INT, ["n"]), "end": (INT, ["n"]), "strides": (INT, ["n"])},
            "begin requires a known length, got an unknown one",
        ),
        ("MatrixDiagPartV2", {"input": X, "k": (INT, []), "padding_value": (FLOAT, [])}, "k requires a constant"),
    ],
)
def test_what_must_be_known_is_said(op: str, operands: Any, message: str) -> None:
    with pytest.raises(ll.UnsupportedOpError) as caught:
        ll.lower(single_node(op, operands, 1))
    assert str(caught.value).startswith(f"{op} 'node': {message}")


@pytest.mark.parametrize(
    ("op", "operands", "attributes", "message"),
    [
        ("Squeeze", {"input": X}, {"squeeze_dims": [1]}, "input requires size 1 at axes [1], got [2, 3]"),
        ("Slice", {"input": X, "begin": (INT, [1]), "size": (INT, [1])}, {}, "begin requires an entry for each of"),
        ("Tile", {"input": X, "multiples": (INT, [3])}, {}, "multiples requires an entry for each of input's 2 axes"),
        ("Unpack", {"value": X}, {"num": 3}, "attribute num requires 2, the size of axis 0, got 3"),
        ("Pack", {"values": X}, {"N": 1, "axis": 3}, "attribute axis requires an axis from -3 to 2, got 3"),
        ("GatherNd", {"params": X, "indices": (INT, [4, 3])}, {}, "indices requires a last axis of size 2 at most"),
        ("EnsureShape", {"input": X}, {"shape": [2, 4]}, "input requires shape [2, 4], as attribute shape says"),
        ("DepthToSpace", {"input": (FLOAT, [1, 2, 2, 3])}, {"block_size": 2}, "input requires a size that 4 divides"),
        ("MatrixSetDiag", {"input": X, "diagonal": (FLOAT, [3])}, {}, "diagonal requires shape [2], got [3]"),
        ("TopK", {"input": X}, {"k": 4}, "k requires 0 to 3, got 4"),
        (
            "TensorScatterAdd",
            {"tensor": X, "indices": (INT, [4, 1]), "updates": (FLOAT, [4, 2])},
            {},
            "updates requires shape [4, 3], got [4, 2]",
        ),
        (
            "ReverseSequence",
            {"input": X, "seq_lengths": (INT, [3])},
            {"seq_dim": 1},
            "seq_lengths requires 2 lengths (as axis 0 of input), got 3",
        ),
    ],
)
def test_operands_that_do_not_fit_are_refused(op: str, operands: Any, attributes: Any, message: str) -> None:
    with pytest.raises(ll.InvalidModelError) as caught:
        ll.lower(single_node(op, operands, 1, **attributes))
    assert str(caught.value).startswith(f"{op} 'node': {message}")


def test_axes_are_named_as_in_graphs_and_as_in_python() -> None:
    x = np.ones((1, 3, 1), np.float32)
    assert ll.raw_ops.Squeeze(input=x, axis=[0]).shape == (3, 1)
    assert ll.raw_ops.Squeeze(input=x, squeeze_dims=[2]).shape == (1, 3)
    assert ll.raw_ops.Squeeze(input=x).shape == (3,)
