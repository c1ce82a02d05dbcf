"""Models of opsets that onnxruntime does not run any more, and old forms at every nesting level."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import lstm_lower as ll
from lstm_lower.passes.opset.conversion import ConvertOpsetPass
from tests.support.opset_case import Array, f32, i64
from tests.support.opset_models import FLOAT, INT64, convert, info, model_of, run_ort

X = f32(2, 3, 4)
IMAGE = f32(1, 3, 2, 2)

BEFORE_SEVEN: list[tuple[str, int, list[Array], dict[str, Any], Array]] = [
    ("Add", 6, [X, f32(3)], {"broadcast": 1, "axis": 1}, X),
    ("Mul", 6, [X, f32(2, 3)], {"broadcast": 1, "axis": -3}, X),
    ("Sub", 1, [X, f32(4)], {"broadcast": 1, "consumed_inputs": [0, 0]}, X),
    ("PRelu", 6, [IMAGE, f32(3)], {}, IMAGE),
    ("Gemm", 6, [f32(2, 3), f32(3, 4), f32(4)], {"broadcast": 1}, X),
    ("Cast", 5, [X * 3], {"to": "INT64"}, (X * 3).astype(np.int64)),
    ("Tile", 5, [X, i64([2]), i64([1])], {}, np.tile(X, (1, 2, 1))),
    ("Reshape", 4, [X], {"shape": [0, -1]}, X.reshape(2, -1)),
    ("Concat", 3, [X, X], {}, np.concatenate([X, X], 1)),
    ("Pad", 1, [X], {"paddings": [0, 1, 0, 0, 0, 2]}, np.pad(X, [(0, 0), (1, 0), (0, 2)])),
    ("Split", 1, [X, i64([3])], {"axis": 1}, X),
    ("Upsample", 1, [IMAGE], {"height_scale": 2.0, "width_scale": 3.0}, IMAGE.repeat(2, 2).repeat(3, 3)),
    ("Dropout", 6, [X], {"is_test": 1}, X),
    ("GlobalLpPool", 1, [IMAGE], {"p": 2.0}, np.sqrt((IMAGE**2).sum((2, 3), keepdims=True))),
]


@pytest.mark.parametrize(("op", "opset", "operands", "attributes", "expected"), BEFORE_SEVEN)
def test_before_opset_7(
    op: str, opset: int, operands: list[Array], attributes: dict[str, Any], expected: Array
) -> None:
    """onnxruntime begins with 7."""
    places: dict[str, Any] = {
        "Add": lambda x, y: x + y[:, None],
        "Mul": lambda x, y: x * y[:, :, None],
        "Sub": np.subtract,
        "PRelu": lambda x, slope: np.where(x < 0, x * slope[:, None, None], x),
        "Gemm": lambda a, b, c: a @ b + c,
    }
    expected = places[op](*operands) if op in places else expected
    names = [f"x{index}" for index in range(len(operands))]
    inputs = [info(n, helper.np_dtype_to_tensor_dtype(x.dtype), *x.shape) for n, x in zip(names, operands, strict=True)]
    constants = [
        numpy_helper.from_array(x, n) for n, x in zip(names, operands, strict=True) if op in ("Split", "Tile")
    ][1:]
    outputs = [info("y", helper.np_dtype_to_tensor_dtype(expected.dtype), *[None] * expected.ndim)]
    fed = {value.name for value in constants}
    model = model_of(
        [helper.make_node(op, names, ["y"], **attributes)],
        [value for value in inputs if value.name not in fed],
        outputs,
        6,
        initializer=constants,
    )
    model.opset_import[0].version = opset
    converted = convert(model, 13)
    feeds = {name: x for name, x in zip(names, operands, strict=True) if name not in fed}
    np.testing.assert_allclose(run_ort(converted, feeds)[0], expected, rtol=1e-5)


@pytest.mark.parametrize("op", ["Dropout", "BatchNormalization"])
def test_training_before_opset_7_is_refused(op: str) -> None:
    names = ["x", *"abcd"[: 4 if op == "BatchNormalization" else 0]]
    inputs = [info(name, FLOAT, *((2, 3) if name == "x" else (3,))) for name in names]
    model = model_of([helper.make_node(op, names, ["y"], name="old")], inputs, [info("y", FLOAT, 2, 3)], 6)
    with pytest.raises(ll.UnsupportedOpError, match=f"{op} 'old': attribute is_test requires 1 .* got 0"):
        ll.lower(model)


LEVELS = """<ir_version: 7, opset_import: ["" : 9, "mine" : 1]>
g (float[3,4] x, float[2] s, bool c) => (float[3,2] y, float[?,?] z, float[3,3] f) {
  h = Slice <axes = [1], starts = [0], ends = [4]> (x)
  last, y = Scan <num_scan_inputs = 1, body = step (float[2] p, float[4] e) => (float[2] q, float[2] r) {
    a = Slice <axes = [0], starts = [1], ends = [3]> (e)
    b = Pad <pads = [1, 0]> (a)
    d = Slice <axes = [0], starts = [0], ends = [2]> (b)
    q = Add (p, d)
    r = Identity (q)
  }> (s, h)
  z = If (c) <
    then_branch = t () => (float[?,?] u) { k = Unsqueeze <axes = [0]> (last) u = Pad <pads = [0, 0, 0, 2]> (k) },
    else_branch = o () => (float[?,?] v) { l = Slice <starts = [0], ends = [1]> (x) v = Softmax <axis = 0> (l) }>
  f = mine.cut (x)
}
<domain: "mine", opset_import: ["" : 9]> cut (x) => (y)
{ w = Pad <pads = [0, 1, 0, 0]> (x) y = Slice <axes = [1], starts = [1], ends = [-1]> (w) }"""


@pytest.mark.parametrize("condition", [True, False])
@pytest.mark.parametrize("call", [ll.lower, ll.optimize, lambda model: ll.gradient(model, "y", "x", seeds=True)])
def test_old_forms_side_by_side_at_every_level(call: Any, condition: bool) -> None:
    """Each name occurs once: onnx's own converter gave those that it made in a graph within a second time."""
    model = parser.parse_model(LEVELS)
    feeds = {"x": f32(3, 4), "s": f32(2), "c": np.asarray(condition)}
    made = call(model)
    seeds = {value.name: np.ones((3, 2), np.float32) for value in made.graph.input if value.name.startswith("seed/")}
    for got, expected in zip(run_ort(made, feeds | seeds), run_ort(model, feeds), strict=False):
        np.testing.assert_allclose(got, expected, rtol=1e-6)


def _with_external_data(folder: Path, opset: int) -> Path:
    """Weights of a branch and of a body, at places of one file in a folder below the model's."""
    text = f"""<ir_version: 7, opset_import: ["" : {opset}]> g (float[2,2] x, bool c) => (float[2,2] y, float[2,2] z) {{
      y = If (c) <then_branch = t () => (float[2,2] a) <float[2,2] w = {{3, 0, 0, 3}}> {{ a = MatMul (x, w) }},
                  else_branch = e () => (float[2,2] w) <float[2,2] w = {{5, 0, 0, 5}}> {{ }}>
      n = Constant <value = int64 {{2}}> ()
      z = Loop (n, c, x) <body = l (int64 i, bool d, float[2,2] s) => (bool o, float[2,2] r)
        <float[2,2] w = {{1, 2, 3, 4}}> {{ o = Identity (d) r = Add (s, w) }}>
    }}"""
    model = parser.parse_model(text)
    (folder / "data").mkdir()
    file = folder / "data" / "w.bin"

    def tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
        yield from graph.initializer
        for node in graph.node:
            for attribute in node.attribute:
                yield from tensors(attribute.g)

    written = b""
    for tensor in tensors(model.graph):
        data = numpy_helper.to_array(tensor).tobytes()
        written += b"gap." * 4
        places = {"location": "data/w.bin", "offset": str(len(written)), "length": str(len(data))}
        written += data
        tensor.ClearField("float_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.extend([onnx.StringStringEntryProto(key=k, value=v) for k, v in places.items()])
    file.write_bytes(written)
    onnx.save(model, folder / "model.onnx")
    return folder / "model.onnx"


@pytest.mark.parametrize("opset", [9, 12, 13])
@pytest.mark.parametrize(
    "call", [ll.optimize, lambda path: ll.lower(path, opset=18), lambda path: ll.gradient(path, "y", "x", seeds=True)]
)
def test_external_data_of_graphs_within(call: Any, opset: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It lies beside the model, not in the folder that the process works in."""
    path = _with_external_data(tmp_path, opset)
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "data").mkdir(parents=True)
    (elsewhere / "data" / "w.bin").write_bytes(np.full(64, 9, np.float32).tobytes())
    monkeypatch.chdir(elsewhere)
    made = call(os.fspath(path))
    x = f32(2, 2)
    for condition, y, z in ((True, x * 3, x + 2 * np.array([[1, 2], [3, 4]])), (False, np.eye(2) * 5, x)):
        feeds = {"x": x, "c": np.asarray(condition)}
        seeds = {value.name: x for value in made.graph.input if value.name.startswith("seed/")}
        got = run_ort(made, feeds | seeds)
        np.testing.assert_allclose(got[0], y, rtol=1e-6)
        np.testing.assert_allclose(got[1], z, rtol=1e-6)


def test_notes_of_nodes_stay() -> None:
    model = model_of(
        [helper.make_node("Squeeze", ["x"], ["y"], axes=[0])], [info("x", FLOAT, 1, 2)], [info("y", FLOAT, 2)], 9
    )
    entry = model.graph.node[0].metadata_props.add()
    entry.key, entry.value = "note", "mine"
    assert convert(model, 13).graph.node[-1].metadata_props[0].value == "mine"


@pytest.mark.parametrize("target", [13, 15])
@pytest.mark.parametrize("read", ["y", "y a b", "y s t"])
def test_a_normalization_that_trains_goes_on_training(read: str, target: int) -> None:
    """Before opset 14 its outputs alone, read or not, ask for statistics of the batch."""
    statistics = [
        numpy_helper.from_array(np.asarray(x, np.float32), n)
        for n, x in zip("ghmv", ([1, 2], [0, 1], [0, 3], [1, 2]), strict=True)
    ]
    node = helper.make_node("BatchNormalization", ["x", *"ghmv"], ["y", *"abst"], momentum=0.75)
    outputs = [info(name, FLOAT, *((4, 2, 3) if name == "y" else (2,))) for name in read.split()]
    model = model_of([node], [info("x", FLOAT, 4, 2, 3)], outputs, 9, initializer=statistics)
    feeds = {"x": f32(4, 2, 3)}
    expected = run_ort(model, feeds)
    for made in (ll.lower(model, opset=target), ll.optimize(model), convert(model, target)):
        for got, wanted in zip(run_ort(made, feeds), expected, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_the_type_of_what_another_domains_operator_makes_is_known() -> None:
    """Old nodes of ONNX behind it ask for it."""
    text = """<ir_version: 7, opset_import: ["" : 9, "com.microsoft" : 1]>
    g (double[2] x) => (double[2] y) { h = com.microsoft.Gelu (x) y = Clip <max = 0.5> (h) }"""
    model = ir.from_proto(parser.parse_model(text))
    ConvertOpsetPass()(model)
    bound = next(node for node in model.graph if node.op_type == "Clip").inputs[2]
    assert bound is not None
    assert bound.dtype == ir.DataType.DOUBLE


def test_operands_that_do_not_fit_are_the_models_fault() -> None:
    model = model_of(
        [helper.make_node("Cast", ["x"], ["y"], to="NUMBER")], [info("x", FLOAT, 2)], [info("y", INT64, 2)], 5
    )
    with pytest.raises(ll.InvalidModelError, match="Cast 'y': the node requires operands and attributes that fit"):
        ConvertOpsetPass()(ir.from_proto(model))
