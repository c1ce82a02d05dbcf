"""Passes by name: each example runs, the order is the user's, and a result is written without its weights in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import helper, parser

import lstm_lower as ll
from lstm_lower.graph.dump import dump
from lstm_lower.passes import Pass, named, pass_reference
from lstm_lower.passes.catalog import ENTRIES, Entry
from lstm_lower.passes.trace import Trace
from tests.support.loop_checks import assert_same, run


def _feeds(model: ir.Model) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    return {
        str(value.name): np.asarray(rng.uniform(1, 3, value.shape.numpy()), value.dtype.numpy())
        for value in model.graph.inputs
        if value.shape is not None and value.dtype is not None
    }


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_example_is_changed_and_keeps_its_results(entry: Entry) -> None:
    before, after = pass_reference.example(entry)
    assert dump(before) != dump(after)
    old, new = ir.to_proto(before), ir.to_proto(after)
    onnx.checker.check_model(new, full_check=True)
    feeds = _feeds(before)
    assert_same(run(old, feeds, optimised=False), run(new, feeds, optimised=False))


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_each_name_is_taken(entry: Entry) -> None:
    """Also under `verify_each`, on a model that it may leave alone."""
    proto = parser.parse_model(entry.example)
    optimized = ll.optimize(proto, passes=[entry.name, "dead-code-elimination"], verify_each=True)
    feeds = _feeds(ir.from_proto(proto))
    assert_same(run(proto, feeds, optimised=False), run(optimized, feeds, optimised=False))
    assert entry.name in named()


MODEL = parser.parse_model("""<ir_version: 9, opset_import: ["": 18]>
g (float[2,3] x) => (float[2,3] y) {
  a = Exp (x)
  b = Exp (x)
  unread = Neg (x)
  y = Mul (a, b)
}""")


def _names(trace: Trace) -> list[str]:
    return [change.pass_name for change in trace.changes]


def test_the_order_is_the_users() -> None:
    order = ["common-subexpression-elimination", "dead-code-elimination"]
    for passes in (order, order[::-1], [order[1]] * 2):
        trace = Trace(dump=True)
        optimized = ll.optimize(MODEL, passes=passes, trace=trace)
        assert _names(trace) == list(dict.fromkeys(passes))
        assert (trace.changes[0].before, trace.changes[-1].after) == (
            dump(ir.from_proto(ll.optimize(MODEL, passes=[]))),
            dump(ir.from_proto(optimized)),
        )


def test_the_loop_optimiser_is_one_of_them() -> None:
    trace = Trace()
    optimized = ll.optimize(MODEL, passes=["optimize"], trace=trace)
    assert dump(ir.from_proto(optimized)) == dump(ir.from_proto(ll.optimize(MODEL)))
    assert "optimize" not in _names(trace)
    assert "common-subexpression-elimination" in _names(trace)


class Renaming(Pass):
    """Writes Neg for Exp."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        found = [node for node in model.graph if node.op_type == "Exp"]
        for node in found:
            node.op_type = "Neg"
        return ir.passes.PassResult(model, modified=bool(found))


class Foreign(ir.passes.InPlacePass):
    """The same in onnx_ir's form."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        return Renaming().call(model)


class Copying(ir.passes.FunctionalPass):
    """Makes a new model."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        return ir.passes.PassResult(model.clone(), modified=True)


@pytest.mark.parametrize("step", [Renaming(), Foreign()])
def test_objects_are_taken(step: ir.passes.PassBase) -> None:
    optimized = ll.optimize(MODEL, passes=["dead-code-elimination", step, "common-subexpression-elimination"])
    assert [node.op_type for node in optimized.graph.node] == ["Neg", "Mul"]


@pytest.mark.parametrize(
    ("passes", "message"),
    [
        (
            ["code-sinkin"],
            "passes requires some of algebraic-simplification, .*got 'code-sinkin'; did you mean 'code-sinki",
        ),
        ("code-sinking", "passes requires a list of names or passes, got 'code-sinking'"),
        ([len], "passes requires names or passes of onnx_ir's form, got <built-in"),
        ([Copying()], "in place, got Copying"),
    ],
)
def test_what_is_no_pass_is_refused(passes: Any, message: str) -> None:
    with pytest.raises(ll.LstmLowerError, match=message):
        ll.optimize(MODEL, passes=passes)


def _with_external_data(folder: Path) -> Path:
    """A product with a weight of 4 kB in a file of its own, added to nothing but zeros."""
    weight = np.random.default_rng(0).standard_normal((32, 32), np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Identity", ["p"], ["q"]),
        helper.make_node("Tanh", ["q"], ["y"]),
    ]
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["B", 32]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [onnx.numpy_helper.from_array(weight, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    path = folder / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights", size_threshold=0)
    return path


def test_weights_are_copied_from_file_to_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _with_external_data(tmp_path)

    def read(*_: Any) -> Any:
        raise AssertionError("a weight is read")

    for method in ("numpy", "tobytes", "_load", "__array__"):
        monkeypatch.setattr(ir.ExternalTensor, method, read)
    (tmp_path / "made").mkdir()
    out = ll.optimize(path, out=tmp_path / "made" / "optimized.onnx")
    (data,) = (file for file in out.parent.iterdir() if file != out)
    assert data.read_bytes() == (tmp_path / "weights").read_bytes()
    sessions = [ort.InferenceSession(each, providers=["CPUExecutionProvider"]) for each in (path, out)]
    x = np.ones((2, 32), np.float32)
    np.testing.assert_array_equal(*(session.run(None, {"x": x})[0] for session in sessions))
    assert [node.op_type for node in onnx.load(out, load_external_data=False).graph.node] == ["MatMul", "Tanh"]


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    out.write_text("before")
    with pytest.raises(ll.LstmLowerError):
        ll.optimize(MODEL, passes=[Copying()], out=out)
    with pytest.raises(FileNotFoundError):
        ll.optimize(MODEL, out=tmp_path / "nowhere" / "out.onnx")
    assert (out.read_text(), list(tmp_path.iterdir())) == ("before", [out])
