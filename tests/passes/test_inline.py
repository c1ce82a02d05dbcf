"""Functions are put where they are called: same results, linear time, a limit, clear errors."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import helper, parser

import lstm_lower as ll
from lstm_lower.errors import OverBudgetError
from lstm_lower.passes.inline import InlineFunctionsPass
from tests.support.functions import call, doubling_chain, function, model_of

X = np.array([1.0, -2.0], np.float32)

NESTED = """<ir_version: 9, opset_import: ["": 18, "mine": 1]>
g (float[2] x, bool c) => (float[2] y, float[2] twice, float[2] again) {
  t = mine.leaky <alpha = 0.5> (x)
  y = If (c) <then_branch = a () => (float[2] t2) { t2 = mine.outer (t) },
              else_branch = b () => (float[2] e) { e = mine.leaky (x) }>
  twice, again = mine.both (x)
}
<domain: "mine", opset_import: ["": 18]> leaky <alpha> (a) => (b) { b = LeakyRelu <alpha: float = @alpha> (a) }
<domain: "mine", opset_import: ["": 18, "mine": 1]> outer (a) => (b) {
  p = Constant <value_float = 0.0> ()
  q = ReduceSum <keepdims = 0> (a)
  more = Greater (q, p)
  t = Abs (a)
  b = If (more) <then_branch = a () => (float[2] u) { u = mine.leaky <alpha = 2.0> (t) },
                 else_branch = b () => (float[2] v) { v = Neg (t) }>
}
<domain: "mine", opset_import: ["": 18]> both (a) => (b, c) { b = Exp (a) c = Neg (b) }"""


def run(model: onnx.ModelProto, **feeds: np.ndarray) -> list[np.ndarray]:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


@pytest.mark.parametrize("condition", [False, True])
@pytest.mark.parametrize("sign", [1, -1])
def test_results_stay(condition: bool, sign: int) -> None:
    """Calls in branches and functions, attributes with and without values, and two outputs."""
    proto = parser.parse_model(NESTED)
    model = ir.from_proto(proto)
    step = InlineFunctionsPass()
    step.verify_each = True
    assert step(model).modified
    inlined = ir.to_proto(model)
    onnx.checker.check_model(inlined, full_check=True)
    assert not inlined.functions
    feeds = {"x": sign * X, "c": np.array(condition)}
    for expected, got in zip(run(proto, **feeds), run(inlined, **feeds), strict=True):
        np.testing.assert_array_equal(expected, got)


def test_optional_inputs_and_notes() -> None:
    clip = function("clip", [helper.make_node("Clip", ["a", "low", "high"], ["b"])], ("a", "low", "high"))
    one = helper.make_node("Constant", [], ["one"], value_float=1.0)
    model = ir.from_proto(model_of([one, call("clip", ["x", "", "one"], ["y"])], [clip]))
    model.graph[1].metadata_props["from"] = "the call"
    InlineFunctionsPass()(model)
    assert model.graph[1].op_type == "Clip"
    assert model.graph[1].inputs[1] is None
    assert model.graph[1].metadata_props["from"] == "the call"
    np.testing.assert_array_equal(run(ir.to_proto(model), x=X)[0], np.minimum(X, 1))


@pytest.mark.slow
def test_time_is_linear() -> None:
    """Names are the trap: 40,000 nodes of one name took minutes when each was looked for from the start."""
    body = [helper.make_node("Neg", ["a"], ["b"], name="same")]
    nodes = [call("f", ["x"], [f"v{index}"]) for index in range(40_000)]
    nodes.append(helper.make_node("Identity", ["v0"], ["y"]))
    model = ir.from_proto(model_of(nodes, [function("f", body)]))
    start = time.process_time()
    InlineFunctionsPass()(model)
    assert time.process_time() - start < 30


def test_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    text = r"mine.f0 makes 1,152,921,504,606,846,976 nodes\) requires at most 1,000,000 nodes"
    with pytest.raises(OverBudgetError, match=text):
        ll.lower(doubling_chain(60))
    monkeypatch.setenv("LSTM_LOWER_BUDGET", "nodes=8")
    assert ll.lower(doubling_chain(3)).graph.node
    with pytest.raises(OverBudgetError, match=r"mine.f0 makes 16 nodes.*LSTM_LOWER_BUDGET=nodes=16 allows it"):
        ll.lower(doubling_chain(4))
    monkeypatch.setenv("LSTM_LOWER_BUDGET", "nodes=16")
    assert ll.lower(doubling_chain(4)).graph.node


def test_other_versions_of_operators() -> None:
    """What means the same in both versions may be written in either."""
    opsets = [helper.make_opsetid("", 13)]
    same = function("f", [helper.make_node("Neg", ["a"], ["b"])], opsets=opsets)
    model = ir.from_proto(model_of([call("f", ["x"], ["y"])], [same]))
    InlineFunctionsPass()(model)
    np.testing.assert_array_equal(run(ir.to_proto(model), x=X)[0], -X)
    split = function("f", [helper.make_node("Split", ["a"], ["b", "c"], axis=0)], opsets=opsets)
    with pytest.raises(ll.UnsupportedOpError, match=r"mine.f: Split 'b' requires ai.onnx 13, got a model of 18"):
        ll.lower(model_of([call("f", ["x"], ["y"])], [split]))


def test_an_output_that_is_an_input() -> None:
    """onnxruntime refuses such functions; what they mean is clear."""
    through = function("f", [helper.make_node("Neg", ["a"], ["unread"])], outputs=("a",))
    model = ir.from_proto(model_of([call("f", ["x"], ["z"]), call("f", ["z"], ["y"])], [through]))
    InlineFunctionsPass()(model)
    np.testing.assert_array_equal(run(ir.to_proto(model), x=X)[0], X)


def test_an_output_without_an_input() -> None:
    through = function("f", [helper.make_node("Neg", ["a"], ["c"])], ("a", "b"), ("b",))
    with pytest.raises(ll.InvalidModelError, match="output 'y' requires an input to pass on"):
        ll.lower(model_of([call("f", ["x"], ["y"])], [through]))


def test_a_call_of_another_overload_is_refused() -> None:
    model = doubling_chain(0)
    model.ir_version = 10
    model.graph.node[0].overload = "other"
    with pytest.raises(ll.UnsupportedOpError, match="1 node cannot be lowered"):
        ll.lower(model)


LEAVING_OUT = """<ir_version: 9, opset_import: ["": 18, "mine": 1]>
g (float[2] x, bool c) => (float[2] y, float[2] z) {
  y = mine.first (x)
  z = If (c) <then_branch = a () => (float[2] t) { t = mine.both (x) },
              else_branch = b () => (float[2] e) { e = mine.first (x) }>
}
<domain: "mine", opset_import: ["": 18]> both (a) => (b, c) { b = Tanh (a) c = Neg (b) }
<domain: "mine", opset_import: ["": 18, "mine": 1]> first (a) => (b) { b = mine.both (a) }"""


@pytest.mark.parametrize("call", [ll.lower, ll.optimize, lambda model: ll.gradient(model, "y", "x", seeds=True)])
@pytest.mark.parametrize("source", ["proto", "ir"])
def test_a_call_that_leaves_its_last_output_out(source: str, call: Callable[..., Any]) -> None:
    """In the main graph, a branch and a function; onnx_ir writes no last outputs without names."""
    proto = parser.parse_model(LEAVING_OUT)
    then = next(attribute.g for attribute in proto.graph.node[1].attribute if attribute.name == "then_branch")
    for node in (then.node[0], proto.functions[1].node[0]):
        node.output.append("")
    feeds = {"x": X, "c": np.ones((), bool)}
    expected = run(proto, **feeds)
    made = call(proto) if source == "proto" else ir.to_proto(call(ir.from_proto(proto)))
    onnx.checker.check_model(made, full_check=True)
    seeds = {value.name: X for value in made.graph.input if value.name.startswith("seed/")}
    for got, wanted in zip(run(made, **feeds, **seeds), expected, strict=False):
        np.testing.assert_array_equal(got, wanted)
    np.testing.assert_array_equal(ll.Session(proto).run(feeds)["z"], expected[1])


@pytest.mark.parametrize("call", [ll.lower, ll.optimize, ll.Session])
def test_a_call_with_fewer_outputs_than_its_function(call: Callable[..., Any], tmp_path: Path) -> None:
    """onnxruntime refuses the file itself."""
    onnx.save(parser.parse_model(LEAVING_OUT), tmp_path / "model.onnx")
    made = call(tmp_path / "model.onnx")
    feeds = {"x": X, "c": np.ones((), bool)}
    found = made if isinstance(made, ll.Session) else ll.Session(made)
    np.testing.assert_allclose(found.run(feeds)["z"], np.tanh(X), rtol=1e-6)
