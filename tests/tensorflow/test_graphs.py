"""Whole TensorFlow training graphs: imported, lowered, run, and compared with TensorFlow's own results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import lstm_lower as ll
from lstm_lower.passes.repair import WrongGradientWarning

pytest.importorskip("tensorflow")

GRAPHS = Path(__file__).parents[1] / "data" / "graphs"
CASES = sorted(path.stem for path in GRAPHS.glob("*.pb"))

# TensorFlow has no CPU kernels for these, so their gradients are compared with differences of the loss.
CUDNN = [case for case in CASES if "cudnn" in case or "gpu" in case]

TOLERANCE = 1e-5

Array = np.ndarray[Any, Any]


def load(case: str) -> tuple[dict[str, Array], dict[str, Array], list[str]]:
    """Feeds, TensorFlow's results where it has any, and the outputs' names, by tensor name."""
    description = json.loads((GRAPHS / f"{case}.json").read_text())
    with np.load(GRAPHS / f"{case}.npz") as data:
        feeds = {entry["tensor"]: data[f"in:{entry['name']}"] for entry in description["inputs"]}
        outputs = [entry["tensor"] for entry in description["outputs"]]
        recorded = {
            entry["tensor"]: data[f"out:{entry['name']}"]
            for entry in description["outputs"]
            if f"out:{entry['name']}" in data
        }
    return feeds, recorded, outputs


def output_tensors(case: str) -> dict[str, str]:
    """Tensor of each output by the output's name."""
    description = json.loads((GRAPHS / f"{case}.json").read_text())
    return {entry["name"]: entry["tensor"] for entry in description["outputs"]}


def run(model: onnx.ModelProto, feeds: dict[str, Array]) -> dict[str, Array]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def lowered(model: onnx.ModelProto, **options: Any) -> onnx.ModelProto:
    result = ll.lower(model, **options)
    onnx.checker.check_model(result, full_check=True)
    assert {node.domain for node in result.graph.node} == {""}
    return result


def assert_equal(results: dict[str, Array], expected: dict[str, Array]) -> None:
    for name, value in expected.items():
        scale = np.abs(value).max(initial=0)
        np.testing.assert_allclose(results[name], value, rtol=0, atol=TOLERANCE * max(scale, 1e-30), err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in CASES if case not in CUDNN])
@pytest.mark.filterwarnings("ignore::lstm_lower.passes.repair.WrongGradientWarning")
def test_results_equal_tensorflow(case: str) -> None:
    feeds, recorded, outputs = load(case)
    model = ll.from_tensorflow(GRAPHS / f"{case}.pb", list(feeds), outputs)
    assert [value.name for value in model.graph.input] == list(feeds)
    assert [value.name for value in model.graph.output] == outputs
    result = lowered(model)
    assert [value.name for value in result.graph.input] == list(feeds)
    assert [value.name for value in result.graph.output] == outputs
    assert_equal(run(result, feeds), recorded)


@pytest.mark.slow
@pytest.mark.parametrize("case", CUDNN)
def test_gradients_are_differences_of_the_loss(case: str) -> None:
    feeds, _, outputs = load(case)
    model = lowered(ll.from_tensorflow(GRAPHS / f"{case}.pb", list(feeds), outputs))
    results = run(model, feeds)
    tensors = output_tensors(case)
    gradients = {tensors[name]: f"{name.removeprefix('grad_')}:0" for name in tensors if name.startswith("grad_")}
    assert gradients
    loss = tensors["loss"]
    rng = np.random.default_rng(0)
    direction = {weight: rng.standard_normal(feeds[weight].shape).astype(np.float32) for weight in gradients.values()}
    step = 2e-3
    ahead, behind = (
        run(model, feeds | {name: feeds[name] + sign * step * d for name, d in direction.items()})[loss]
        for sign in (1, -1)
    )
    slope = (float(ahead) - float(behind)) / (2 * step)
    predicted = sum(float((results[name] * direction[weight]).sum()) for name, weight in gradients.items())
    scale = sum(float(np.abs(results[name] * direction[weight]).sum()) for name, weight in gradients.items())
    assert abs(slope - predicted) <= 2e-3 * scale


def test_defaults_are_placeholders_and_ends() -> None:
    feeds, recorded, _ = load("block_lstm_train__dynbatch")
    model = ll.from_tensorflow(GRAPHS / "block_lstm_train__dynbatch.pb")
    assert sorted(value.name for value in model.graph.input) == sorted(feeds)
    names = {value.name for value in model.graph.output}
    assert names == set(recorded)
    assert_equal(run(lowered(model), feeds), recorded)


@pytest.mark.slow
def test_the_batch_stays_open() -> None:
    feeds, _, outputs = load("block_lstm_train__dynbatch")
    model = lowered(
        ll.from_tensorflow(
            GRAPHS / "block_lstm_train__dynbatch.pb",
            list(feeds),
            outputs,
            shapes={"ids:0": [None, "batch"], "labels:0": [None, "batch"]},
        )
    )
    dims = model.graph.input[0].type.tensor_type.shape.dim
    assert dims[0].dim_value == 7
    assert dims[1].dim_param == "batch"
    sequences = ("ids:0", "labels:0")
    doubled = {name: np.tile(value, (1, 2)) if name in sequences else value for name, value in feeds.items()}
    first, second = run(model, feeds), run(model, doubled)
    np.testing.assert_allclose(first["loss:0"], second["loss:0"], rtol=1e-6)
    np.testing.assert_allclose(first["grad_w:0"], second["grad_w:0"], atol=1e-6)


def test_outputs_that_are_not_asked_for_cost_nothing() -> None:
    feeds, recorded, _ = load("block_lstm_train__dynbatch")
    inputs = [name for name in feeds if name != "learning_rate:0"]
    model = lowered(ll.from_tensorflow(GRAPHS / "block_lstm_train__dynbatch.pb", inputs, ["loss:0"]))
    assert sum(node.op_type == "Scan" for node in model.graph.node) <= 1, "the backward loop is not there"
    assert_equal(run(model, {name: feeds[name] for name in inputs}), {"loss:0": recorded["loss:0"]})


@pytest.mark.slow
def test_wrong_gradient_of_v2_is_said_and_repaired() -> None:
    feeds, recorded, outputs = load("block_lstm_v2_train__tfregistered")
    model = ll.from_tensorflow(GRAPHS / "block_lstm_v2_train__tfregistered.pb", list(feeds), outputs)
    with pytest.warns(WrongGradientWarning, match="BlockLSTMGrad '.*' is fed by a BlockLSTMV2"):
        as_it_stands = run(lowered(model), feeds)
    assert_equal(as_it_stands, recorded)
    repaired = lowered(model, repair_v2_gradient=True)
    results = run(repaired, feeds)
    weight = "w:0" if "w:0" in feeds else next(name for name in feeds if name.startswith("w"))
    gradient = f"grad_{weight}"
    direction = np.random.default_rng(0).standard_normal(feeds[weight].shape).astype(np.float32)
    step = 1e-2
    ahead, behind = (run(repaired, feeds | {weight: feeds[weight] + s * step * direction})["loss:0"] for s in (1, -1))
    slope = (float(ahead) - float(behind)) / (2 * step)
    assert abs(slope - float((results[gradient] * direction).sum())) <= 5e-3 * abs(slope)
    assert abs(slope - float((as_it_stands[gradient] * direction).sum())) > 5e-2 * abs(slope)


@pytest.mark.parametrize("opset", [13, 15, 18])
def test_opsets(opset: int) -> None:
    feeds, recorded, outputs = load("block_lstm_train__dynbatch")
    model = ll.from_tensorflow(GRAPHS / "block_lstm_train__dynbatch.pb", list(feeds), outputs, opset)
    assert model.opset_import[0].version == opset
    assert_equal(run(lowered(model), feeds), recorded)
