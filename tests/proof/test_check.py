"""`check` passes right models and does not pass wrong ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

import lstm_lower as ll
from lstm_lower.errors import InvalidInputError, InvalidModelError, UnsupportedOpError
from lstm_lower.records import origin
from lstm_lower.registry import key_of
from lstm_lower.runtime.feeds import read_arrays
from lstm_lower.runtime.proof.check import NOTHING_FINITE, Report, check
from lstm_lower.runtime.proof.comparison import errors
from lstm_lower.runtime.proof.oracles.registry import ORACLES
from tests.support.cudnn_cases import Case
from tests.support.models import single_node_model
from tests.support.op_inputs import valid_inputs

GRAPHS = Path(__file__).parents[2] / "examples" / "graphs"
BLOCK_OPS = (
    "BlockLSTM",
    "BlockLSTMV2",
    "BlockLSTMGrad",
    "BlockLSTMGradV2",
    "LSTMBlockCell",
    "LSTMBlockCellGrad",
    "GRUBlockCell",
    "GRUBlockCellGrad",
)


def lstm(**kwargs: Any) -> onnx.ModelProto:
    return single_node_model("BlockLSTM", valid_inputs("BlockLSTM", **kwargs))


def feeds_of(op: str, **kwargs: Any) -> dict[str, np.ndarray]:
    return {name: v for name, v in valid_inputs(op, **kwargs).items() if isinstance(v, (np.ndarray, np.generic))}


def verdicts(report: Report) -> dict[str, str]:
    return {row.name: row.verdict for row in report.outputs}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("op", BLOCK_OPS)
def test_right_models_pass(op: str, dtype: type) -> None:
    if op.startswith("GRU") and dtype == np.float16:
        dtype = np.float32  # the op has no half
    kwargs = valid_inputs(op, dtype=dtype, seed=5)
    report = check(single_node_model(op, kwargs), feeds=feeds_of(op, dtype=dtype, seed=5))
    assert report.passed, verdicts(report)
    assert all(set(row.relative) == {"disabled", "default"} for row in report.outputs)
    assert any(row.absolute["default"] > 0 for row in report.outputs)


@pytest.mark.parametrize("name", ["char_lstm_train", "input_saliency"])
def test_examples_pass_with_recorded_results(name: str) -> None:
    feeds, recorded = read_arrays(GRAPHS / f"{name}.npz")
    report = check(GRAPHS / f"{name}.onnx", feeds=feeds, recorded=recorded, finite_differences=True)
    assert report.passed
    assert {row.op for row in report.gradients} == {"BlockLSTMGrad"}
    for row in report.outputs:
        assert row.recorded is not None
        assert row.relative["default"] <= row.recorded + 1e-6


def tampered(change: Callable[[ir.Model], None]) -> ir.Model:
    lowered = ir.from_proto(ll.lower(lstm(seed=1)))
    change(lowered)
    return lowered


def scaled(factor: float) -> Callable[[ir.Model], None]:
    """Multiplies output h by a factor."""

    def change(model: ir.Model) -> None:
        index = next(i for i, value in enumerate(model.graph.outputs) if value.name == "h_out")
        old = model.graph.outputs[index]
        weight = ir.val("factor", const_value=ir.tensor(np.float32(factor)))
        model.graph.register_initializer(weight)
        node = ir.node("Mul", [old, weight])
        model.graph.append(node)
        node.outputs[0].type = old.type
        model.graph.outputs[index] = node.outputs[0]
        old.name, node.outputs[0].name = "h_before", "h_out"

    return change


@pytest.mark.parametrize(
    ("factor", "verdict"), [(1 + 1e-6, "ok"), (1 + 1e-4, "out of tolerance"), (-1, "out of tolerance")]
)
def test_a_scaled_output_is_seen(factor: float, verdict: str) -> None:
    report = check(lstm(seed=1), tampered(scaled(factor)), feeds_of("BlockLSTM", seed=1))
    assert verdicts(report)["h_out"] == verdict
    assert report.passed == (verdict == "ok")
    assert [v for name, v in verdicts(report).items() if name != "h_out"] == ["ok"] * 6


def test_numbers_none_of_which_is_finite_prove_nothing() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (float[2] x) => (float[2] y) { y = Log(x) }'
    )
    report = check(model, feeds={"x": np.float32([-1, -2])})
    assert verdicts(report) == {"y": NOTHING_FINITE}
    assert not report.passed


def test_a_transposed_output_is_seen() -> None:
    def change(model: ir.Model) -> None:
        old = model.graph.outputs[0]
        node = ir.node("Transpose", [old], {"perm": [0, 2, 1]})
        node.outputs[0].type = old.type
        model.graph.append(node)
        model.graph.outputs[0] = node.outputs[0]
        old.name, node.outputs[0].name = "before", "i_out"

    report = check(lstm(seed=1), tampered(change), feeds_of("BlockLSTM", seed=1))
    assert verdicts(report)["i_out"] == "shape [4, 4, 2], not [4, 2, 4]"
    assert not report.passed


def test_a_missing_output_is_an_error() -> None:
    def change(model: ir.Model) -> None:
        del model.graph.outputs[0]

    with pytest.raises(InvalidInputError, match="requires output 'i_out'"):
        check(lstm(seed=1), tampered(change), feeds_of("BlockLSTM", seed=1))


def test_a_wrong_oracle_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    right = ORACLES["BlockLSTMGrad"]
    wrong = lambda **kwargs: right(**kwargs) | {"w_grad": 1.001 * right(**kwargs)["w_grad"]}  # noqa: E731
    wrong.__signature__ = __import__("inspect").signature(right)  # type: ignore[attr-defined]
    monkeypatch.setitem(ORACLES._entries, key_of("BlockLSTMGrad"), wrong)
    kwargs = valid_inputs("BlockLSTMGrad")
    report = check(single_node_model("BlockLSTMGrad", kwargs), feeds=feeds_of("BlockLSTMGrad"), finite_differences=True)
    assert {row.operand for row in report.gradients if row.verdict != "ok"} == {"w"}
    assert verdicts(report)["w_grad_out"] == "out of tolerance"


def test_a_recorded_result_that_differs_is_seen() -> None:
    feeds, recorded = map(dict, read_arrays(GRAPHS / "input_saliency.npz"))
    recorded["saliency:0"] = recorded["saliency:0"] * np.float32(1.001)
    recorded["score:0"] = recorded["score:0"][None]
    report = check(GRAPHS / "input_saliency.onnx", feeds=feeds, recorded=recorded)
    found = verdicts(report)
    assert found["saliency:0"] == "recorded result differs"
    assert found["score:0"] == "recorded result has shape [1]"
    assert not report.passed


def test_tolerance_is_the_users() -> None:
    feeds = feeds_of("BlockLSTM", seed=1)
    assert not check(lstm(seed=1), feeds=feeds, rtol=0, atol=0).passed
    assert check(lstm(seed=1), tampered(scaled(1.5)), feeds, rtol=0.6).passed


VARIANCE = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 18]> variance (float[N] x) => (float[] y) {
    mean = ReduceMean<keepdims=0>(x)
    square = Mul(x, x)
    mean_square = ReduceMean<keepdims=0>(square)
    squared_mean = Mul(mean, mean)
    y = Sub(mean_square, squared_mean)
}""")


def test_an_error_may_be_as_large_as_the_originals_own() -> None:
    """A variance by E[x^2] - E[x]^2 loses most of float32's digits where the mean is large, lowered or not."""
    model = VARIANCE
    feeds = {"x": (100 + np.arange(64) / 64).astype(np.float32)}
    (row,) = check(model, feeds=feeds).outputs
    assert row.verdict == "as near as the original"
    assert row.original is not None
    assert 1e-4 < row.original < 1e-2
    assert not check(model, feeds=feeds, rtol=1e-5).passed
    worse = onnx.ModelProto.FromString(model.SerializeToString())
    worse.graph.node[-1].output[0] = "exact"
    worse.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(1.1), "factor"))
    worse.graph.node.append(helper.make_node("Mul", ["exact", "factor"], ["y"]))
    assert verdicts(check(model, worse, feeds)) == {"y": "out of tolerance"}


@pytest.mark.parametrize(
    ("mean", "own", "more", "verdict"),
    [
        (60, -7e-4, -1.4e-3, "as near as the original"),
        (60, -7e-4, -7e-3, "out of tolerance"),
        (100, 8e-3, 4e-3, "not decided"),
        (0, 0, 1e-4, "out of tolerance"),
    ],
)
def test_another_rounding_may_be_a_few_times_as_far(mean: float, own: float, more: float, verdict: str) -> None:
    """Of an original that is exact nothing is explained."""
    feeds = {"x": (mean + np.arange(64) / 64).astype(np.float32)}
    exact = feeds["x"].astype(np.float64).var()
    assert ll.Session(VARIANCE).run(feeds)["y"] / exact - 1 == pytest.approx(own, rel=0.1)
    other = onnx.ModelProto.FromString(VARIANCE.SerializeToString())
    other.graph.node[-1].output[0] = "near"
    other.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(1 + more), "factor"))
    other.graph.node.append(helper.make_node("Mul", ["near", "factor"], ["y"]))
    assert verdicts(check(VARIANCE, other, feeds)) == {"y": verdict}


@pytest.mark.parametrize(("offset", "verdict"), [(100.0, "as near as the original"), (10_000.0, "not decided")])
def test_the_own_error_of_an_original_that_onnxruntime_cannot_run(offset: float, verdict: str) -> None:
    """It holds a composite op, behind which float32 loses digits as above."""
    model, kept = lstm(seed=1), onnx.ModelProto.FromString(VARIANCE.SerializeToString())
    kept.graph.node[0].input[0] = kept.graph.node[1].input[0] = kept.graph.node[1].input[1] = "x_moved"
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(offset), "offset"))
    model.graph.node.append(helper.make_node("Add", ["h_out", "offset"], ["x_moved"]))
    model.graph.node.extend(kept.graph.node)
    del model.graph.output[:]
    model.graph.output.extend(kept.graph.output)
    report = check(model, feeds=feeds_of("BlockLSTM", seed=1))
    assert (verdicts(report), report.verdict) == ({"y": verdict}, "passed" if offset == 100 else "not decided")
    worse = ll.lower(model)
    next(node for node in worse.graph.node if "y" in node.output).output[0] = "exact"
    worse.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(30), "factor"))
    worse.graph.node.append(helper.make_node("Mul", ["exact", "factor"], ["y"]))
    assert verdicts(check(model, worse, feeds_of("BlockLSTM", seed=1))) == {"y": "out of tolerance"}


@pytest.mark.parametrize("imported", [False, True])
def test_an_original_that_is_itself_far_off_decides_nothing(imported: bool) -> None:
    model = onnx.ModelProto.FromString(VARIANCE.SerializeToString())
    if imported:
        model.metadata_props.add(key=origin.METADATA_KEY, value="a source")
    report = check(model, feeds={"x": (10_000 + np.arange(64) / 64).astype(np.float32)})
    assert verdicts(report) == {"y": "not decided"}
    assert not report.passed


def test_random_outputs_are_not_compared() -> None:
    case = Case(layers=2)
    operands = case.operands(seed=1)
    given = {name: operands[name].astype(np.float32) for name in ("input", "input_h", "input_c", "params")}
    dropping = single_node_model("CudnnRNN", {**given, "dropout": 0.5, "seed": 3})
    report = check(dropping, feeds=given)
    assert verdicts(report)["output_out"] == "random"
    assert not report.passed
    without = check(single_node_model("CudnnRNN", {**given, "dropout": 0.0}), feeds=given)
    assert verdicts(without)["output_out"] == "ok"


def test_unsupported_ops_are_an_error() -> None:
    node = helper.make_node("Mystery", ["x"], ["y"], name="who", domain="tf")
    info = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in "xy"]
    graph = helper.make_graph([node], "g", info[:1], info[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("tf", 1)])
    with pytest.raises(UnsupportedOpError, match="Mystery 'who'"):
        check(model)


def test_feeds_that_do_not_fit_are_an_error() -> None:
    with pytest.raises((InvalidInputError, InvalidModelError), match="input 'x' requires"):
        check(lstm(), feeds=feeds_of("BlockLSTM", I=5))


INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    ("actual", "expected", "absolute", "relative"),
    [
        ([1.0, 2.0], [1.0, 4.0], 2.0, 0.5),
        ([0.0, 0.0], [0.0, 0.0], 0.0, 0.0),
        ([1e-3], [0.0], 1e-3, 1e-3),
        ([NAN, 1.0], [NAN, 2.0], 1.0, 0.5),
        ([INF, 1.0], [INF, 1.0], 0.0, 0.0),
        ([-INF, 1.0], [INF, 1.0], INF, INF),
        ([0.0, 1.0], [NAN, 1.0], INF, INF),
        ([NAN, 1.0], [1.0, 1.0], INF, INF),
        ([NAN], [NAN], INF, INF),
        ([], [], 0.0, 0.0),
    ],
)
def test_errors(actual: list[float], expected: list[float], absolute: float, relative: float) -> None:
    assert errors(np.array(actual, np.float32), np.array(expected)) == (
        pytest.approx(absolute),
        pytest.approx(relative),
    )


def test_integers_must_be_equal() -> None:
    assert errors(np.array([1, 2, 4]), np.array([1, 2, 3])) == (1.0, pytest.approx(1 / 3))
    assert errors(np.array([True]), np.array([True])) == (0.0, 0.0)
