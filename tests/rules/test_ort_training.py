"""Ops and graphs of onnxruntime-training against its kernels' recorded results, float64 oracles and differences."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import helper

import lstm_lower as ll
from lstm_lower.extend import check_backward
from lstm_lower.opdef import REGISTRY
from lstm_lower.ops.ort_elementwise import MICROSOFT
from lstm_lower.ops.ort_recurrent import GRUGrad, GRUTraining, LSTMGrad, LSTMTraining
from lstm_lower.runtime.proof.check import check
from lstm_lower.runtime.proof.oracles.finite_differences import PAIRINGS
from lstm_lower.runtime.proof.oracles.registry import ORACLES

FOLDER = Path(__file__).parents[1] / "data" / "onnxruntime_training"
GRAPHS = sorted(path.stem for path in FOLDER.glob("*.npz") if not path.stem.startswith("optimizer"))
OPTIMIZERS = sorted(path.stem for path in FOLDER.glob("optimizer*.npz"))
# onnxruntime's kernel stops gradients at the peepholes.
WRONG = "lstm_peephole_mse"

Arrays = dict[str, Any]


def recording(name: str) -> Arrays:
    with np.load(FOLDER / f"{name}.npz") as file:
        return dict(file)


def part(recorded: Arrays, prefix: str) -> Arrays:
    return {key.removeprefix(prefix): value for key, value in recorded.items() if key.startswith(prefix)}


def run(model: onnx.ModelProto, feeds: Arrays) -> Arrays:
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    wanted = {found.name for found in session.get_inputs()}
    return dict(zip(names, session.run(names, {k: v for k, v in feeds.items() if k in wanted}), strict=True))


def lowered(recorded: Arrays, **changed: Any) -> Arrays:
    """What the lowered training graph computes."""
    model = ll.lower(onnx.ModelProto.FromString(recorded["model"].tobytes()))
    assert {node.domain for node in model.graph.node} == {""}
    return run(model, {**part(recorded, "in/"), **changed})


def gradients(results: Arrays, buffers: float = 1.0) -> Arrays:
    """Gradients by name: what was added to the accumulators."""
    suffix = "_grad.accumulation.buffer.updated"
    return {k.removesuffix(suffix): v - buffers for k, v in results.items() if k.endswith(suffix)}


@pytest.mark.parametrize("name", GRAPHS)
def test_training_graphs_compute_what_onnxruntime_training_does(name: str) -> None:
    recorded = recording(name)
    expected, results = part(recorded, "out/"), lowered(recorded)
    loss = str(recorded["loss"])
    np.testing.assert_allclose(results[loss], expected.pop(loss), rtol=1e-6)
    found = gradients(results)
    assert {f"{weight}_grad" for weight in found} == set(expected)
    for weight, gradient in found.items():
        right = expected[f"{weight}_grad"]
        # What is added to ones is rounded as these are.
        close = np.allclose(gradient, right, rtol=1e-5, atol=1e-6)
        assert close != (name == WRONG), weight


@pytest.mark.slow
def test_gradients_flow_through_peepholes_unlike_onnxruntimes() -> None:
    recorded = recording(WRONG)
    found = gradients(lowered(recorded))
    evaluation = onnx.ModelProto.FromString(recorded["evaluation"].tobytes())
    weights = {name: value.astype(np.float64) for name, value in part(recorded, "in/").items()}
    expected = run(ll.gradient(evaluation, of=str(recorded["loss"]), wrt=list(found)), part(recorded, "in/"))
    assert set(found) <= set(weights)
    for weight, gradient in found.items():
        np.testing.assert_allclose(gradient, expected[f"grad/{weight}"], rtol=1e-5, atol=1e-6)


def test_accumulators_start_anew_where_they_are_told_to() -> None:
    recorded = recording("mlp_mse")
    anew = gradients(lowered(recorded, lazy_reset_grad=np.array([True])), buffers=0.0)
    for weight, gradient in anew.items():
        np.testing.assert_allclose(gradient, recorded[f"out/{weight}_grad"], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_compute_what_onnxruntime_training_does(name: str) -> None:
    recorded = recording(name)
    model = ll.lower(onnx.ModelProto.FromString(recorded["model"].tobytes()))
    feeds: Arrays = {}
    for key, value in part(recorded, "in/").items():
        sequence, _, place = key.partition("/")
        feeds[sequence] = [*feeds.get(sequence, []), value] if place else value
    results = run(model, feeds)
    for key, expected in part(recorded, "out/").items():
        sequence, _, place = key.partition("/")
        np.testing.assert_allclose(results[f"{sequence}.updated"][int(place)], expected, rtol=2e-6, atol=1e-7)
    flags = [value for key, value in results.items() if not key.endswith(".updated")]
    assert flags
    assert all(np.all(flag) for flag in flags)


@pytest.mark.parametrize("op", ["AveragePoolGrad", "MaxPoolGrad"])
def test_gradients_of_poolings(op: str) -> None:
    dY = np.random.default_rng(0).standard_normal((1, 2, 2, 3)).astype(np.float32)
    given: Arrays = {"dY": dY}
    expected = np.repeat(np.repeat(dY, 2, 2), 2, 3) / 4
    if op == "MaxPoolGrad":
        # The second element of the second row of each window; places are those among all elements.
        places = np.arange(48).reshape(1, 2, 4, 6)[:, :, 1::2, 1::2]
        given["Indices"], expected = places, np.zeros((1, 2, 4, 6), np.float32)
        expected.ravel()[places] = dY
    windows = {"kernel_shape": [2, 2], "strides": [2, 2]}
    model = one_node(REGISTRY[MICROSOFT, op], given, ["dX"], windows, np.float32, known=True)
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info("dX", onnx.TensorProto.FLOAT, [1, 2, 4, 6]))
    np.testing.assert_allclose(run(ll.lower(model), given)["dX"], expected, rtol=1e-6)


@pytest.mark.parametrize("bound", [1.0, 100.0])
def test_gradients_whose_norm_is_clipped(bound: float) -> None:
    rng = np.random.default_rng(0)
    given = {"a": rng.standard_normal((2, 3)).astype(np.float32), "b": rng.standard_normal(4).astype(np.float32)}
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 18, "{MICROSOFT}" : 1]>
        g (float[2,3] a, float[4] b) => (float[2,3] x, float[4] y) <int64 first = {{0}}, int64 second = {{1}}> {{
          all = SequenceConstruct(a, b)
          clipped = {MICROSOFT}.InplaceClipGradNorm <max_norm = {bound}> (all)
          x = SequenceAt(clipped, first) y = SequenceAt(clipped, second) }}""")
    norm = np.sqrt(sum((value.astype(np.float64) ** 2).sum() for value in given.values()))
    results = run(ll.lower(model), given)
    for name, value in zip("xy", given.values(), strict=True):
        np.testing.assert_allclose(results[name], value * min(bound / (norm + 1e-6), 1), rtol=2e-6)


def test_an_optimizer_needs_maps_over_sequences() -> None:
    model = onnx.ModelProto.FromString(recording(OPTIMIZERS[0])["model"].tobytes())
    model.opset_import[[entry.domain for entry in model.opset_import].index("")].version = 16
    with pytest.raises(ll.UnsupportedOpError, match=r"opset=17"):
        ll.lower(model)
    assert ll.lower(model, opset=17).graph.output


@pytest.mark.parametrize(("name", "sizes"), [("lstm_peephole_mse", {"T": 3, "B": 2}), ("gelu_mse", {"B": 2})])
def test_a_training_graph_is_checked_with_its_updates(name: str, sizes: dict[str, int]) -> None:
    report = check(onnx.ModelProto.FromString(recording(name)["model"].tobytes()), sizes=sizes)
    assert all(row.verdict == "ok" for row in report.outputs)
    assert any(row.name.endswith(".updated") for row in report.outputs)


class Case(NamedTuple):
    op: str
    operands: dict[str, Any]
    attributes: Mapping[str, Any] = MappingProxyType({})


def cases() -> list[Case]:
    rng = np.random.default_rng(0)

    def n(*shape: int) -> np.ndarray[Any, Any]:
        return rng.standard_normal(shape).astype(np.float32)

    def soft(axes: tuple[int, ...]) -> np.ndarray[Any, Any]:
        e = np.exp(n(2, 3, 4))
        return np.asarray(e / e.sum(axes, keepdims=True), np.float32)

    of_result = {"dY": n(2, 3), "Y": n(2, 3) / 3}
    of_operand = {"dY": n(2, 3), "X": n(2, 3)}
    biased = {**of_operand, "B": n(3)}
    sizes = np.array([4, 3])
    norm = {"dY": n(2, 3, 4), "X": n(2, 3, 4), "scale": n(4)}
    statistics = {"mean": n(2, 3, 1), "inv_std_dev": n(2, 3, 1)}
    channels = {"dY": n(2, 3, 4), "X": n(2, 3, 4), "scale": n(3)}
    scores = {"log_prob": np.log(soft((1,))), "label": rng.integers(0, 3, (2, 4)), "weight": np.abs(n(3))}
    labels = {"scores": n(2, 3, 4), "labels": np.array([[0, 1, 2, 2], [1, -1, 0, 1]])}
    ignored = {**scores, "label": np.array([[0, 2, 2, 1], [1, 0, 2, 0]])}
    return [
        *(Case(f"{name}Grad", of_result) for name in ("Relu", "Sigmoid", "Tanh")),
        Case("LeakyReluGrad", of_result, {"alpha": 0.25}),
        *(
            Case(f"{name}Grad_13", {"dY": n(2, 3, 4), "Y": soft((1,))}, {"axis": 1})
            for name in ("Softmax", "LogSoftmax")
        ),
        *(Case(f"{name}Grad", {"dY": n(2, 3, 4), "Y": soft((1, 2))}) for name in ("Softmax", "LogSoftmax")),
        *(Case(name, {"X": n(2, 3)}) for name in ("Gelu", "FastGelu", "QuickGelu")),
        *(Case(name, {"X": n(2, 3), "B": n(3)}) for name in ("BiasGelu", "FastGelu")),
        *(Case(f"{name}Grad", of_operand) for name in ("Gelu", "FastGelu", "QuickGelu")),
        *(Case(f"Bias{name}Grad_dX", biased) for name in ("Gelu", "FastGelu")),
        Case("DivGrad", {"dY": n(2, 3), "A": n(2, 3), "B": n(3)}),
        Case("DivGrad", {"dY": n(2, 3), "A": n(3), "B": n(2, 1)}),
        *(Case("Scale", {"input": n(3), "scale": np.array(4)}, {"scale_down": down}) for down in (0, 1)),
        Case("ScaledSum", {f"input_{i}": n(3) for i in range(2)}, {"scale_0": 0.5, "scale_1": 2.0}),
        Case("ScaledSum", {f"input_{i}": n(3) for i in range(3)}, {"scale_0": 0.5, "scale_1": 2.0, "scale_2": 3.0}),
        Case("BatchScale", {"input": n(3)}, {"scale_0": 0.5, "scale_1": 2.0, "scale_2": 3.0}),
        *(
            Case(
                "DropoutGrad", {"dY": n(4), "mask": n(4) > 0, "ratio": np.float32(0.3), "training_mode": np.array(mode)}
            )
            for mode in (True, False)
        ),
        Case("DropoutGrad", {"dY": n(4), "mask": n(4) > 0}),
        Case("ZeroGradient", {"old_gradient": n(3), "reset_signal": np.array([True])}),
        Case("BroadcastGradientArgs", {"s0": np.array([2, 1, 3]), "s1": np.array([5, 3])}),
        Case("GatherGrad", {"shape": sizes, "indices": np.array([[1, -1, 1]]), "dY": n(4, 1, 3)}, {"axis": 1}),
        Case("GatherElementsGrad", {"dY": n(2, 3), "shape": sizes, "indices": np.array([[0, 1, 3], [0, -1, 3]])}),
        Case("GatherNDGrad", {"shape": sizes, "indices": np.array([[0, 1], [0, 1], [3, 2]]), "dY": n(3)}),
        Case(
            "GatherNDGrad", {"shape": sizes, "indices": np.array([[0], [2], [1], [1]]), "dY": n(4)}, {"batch_dims": 1}
        ),
        Case("SliceGrad", {"dY": n(3, 3), "shape": sizes, "starts": np.array([1]), "ends": np.array([9])}),
        Case(
            "SliceGrad",
            {"dY": n(4, 2), "shape": sizes}
            | {k: np.array([v]) for k, v in (("starts", -1), ("ends", -9), ("axes", 1), ("steps", -2))},
        ),
        Case("ConcatTraining", {"inputs": [n(2, 1), n(2, 3)]}, {"axis": 1}),
        Case("ReduceSumTraining", {"data": n(2, 3), "axes": np.array([1])}, {"keepdims": 0}),
        Case("FusedMatMul", {"A": n(5, 3, 2), "B": n(5, 4, 3)}, {"alpha": 0.5, "transA": 1, "transB": 1}),
        Case("FusedMatMul", {"A": n(2, 5, 3), "B": n(5, 3, 4)}, {"transBatchA": 1}),
        Case("FusedMatMul", {"A": n(3, 5, 2), "B": n(5, 3, 4)}, {"transBatchA": 1, "transA": 1}),
        Case("TransposeMatMul", {"A": n(2, 3), "B": n(4, 3)}, {"transB": 1}),
        Case("ReduceAllL2", {"X": [n(2, 3), n(4)]}),
        Case(
            "ConvGrad",
            {"dY": n(1, 4, 3, 3), "X": n(1, 2, 5, 4), "W": n(4, 1, 3, 3)},
            {"group": 2, "pads": [1, 0, 1, 1], "strides": [2, 1], "dilations": [1, 1]},
        ),
        Case("ConvGrad", {"dY": n(2, 2, 4), "X": n(2, 3, 4), "W": n(2, 3, 2)}, {"auto_pad": "SAME_UPPER"}),
        Case("ConvTransposeGrad", {"dY": n(1, 2, 6), "X": n(1, 2, 3), "W": n(2, 2, 2)}, {"strides": [2]}),
        Case(
            "ResizeGrad",
            {"dY": n(1, 1, 6, 4), "X": n(1, 1, 3, 2), "scales": np.array([1, 1, 2, 2], np.float32)},
            {"mode": "linear"},
        ),
        Case("LayerNormalizationGrad", {**norm, **statistics}),
        Case("LayerNormalizationGrad", {**norm, **statistics, "scale": n(3, 4)}, {"axis": 1, "epsilon": 0.1}),
        Case("SimplifiedLayerNormalization", {"X": n(2, 3, 4), "scale": n(4)}),
        Case("SimplifiedLayerNormalizationGrad", {**norm, "inv_std_var": n(2, 3, 1)}, {"axis": 2}),
        Case(
            "BatchNormInternal",
            {
                k: np.abs(v)
                for k, v in zip(("X", "scale", "B", "input_mean", "input_var"), (n(2, 3, 4), *n(4, 3)), strict=True)
            },
        ),
        Case("BatchNormalizationGrad", {**channels, "mean": n(3), "inv_std": n(3)}, {"epsilon": 0.1}),
        *(
            Case(op, {**scores, "dY": n(2, 4) if reduction == "none" else n()}, {"reduction": reduction})
            for op in ("SoftmaxCrossEntropyLossGrad", "SoftmaxCrossEntropyLossInternalGrad")
            for reduction in ("none", "sum", "mean")
        ),
        Case("SoftmaxCrossEntropyLossGrad", {**ignored, "dY": n()}, {"ignore_index": 2}),
        Case("SoftmaxCrossEntropyLossInternalGrad", {**ignored, "dY": n(), "ignore_index": np.array(2)}),
        *(Case("SoftmaxCrossEntropyLossInternal", labels, {"reduction": r}) for r in ("none", "sum", "mean")),
        *(
            Case("InPlaceAccumulator", {"old_sum": n(3), "value": n(3), "update_signal": np.array([signal])})
            for signal in (True, False)
        ),
        *(
            Case(
                "InPlaceAccumulatorV2", {"accumulation_buffer": n(3), "value": n(3), "overwrite_flag": np.array([flag])}
            )
            for flag in (True, False)
        ),
    ]


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.op)
def test_ops_compute_what_their_oracles_do(case: Case) -> None:
    op = REGISTRY[MICROSOFT, case.op]
    expected = ORACLES[op](**case.operands, **case.attributes)
    if "Conv" in case.op:
        # A window's axes are known before the run.
        model = one_node(op, case.operands, list(expected), case.attributes, np.float32, known=True)
        found = run(ll.lower(model), case.operands)
    else:
        results = getattr(ll.raw_ops, f"{MICROSOFT}.{case.op}")(**case.operands, **case.attributes)
        found = results._asdict() if isinstance(results, tuple) else {op.outputs[0].name: results}
    assert set(found) == set(expected)
    for name, value in found.items():
        np.testing.assert_allclose(value, expected[name], rtol=2e-5, atol=2e-6)


def recurrent_cases() -> list[Any]:
    directions = ("forward", "reverse", "bidirectional")
    found: list[Any] = [(LSTMTraining, LSTMGrad, {"direction": d}) for d in directions]
    return found + [
        (GRUTraining, GRUGrad, {"direction": d, "linear_before_reset": after}) for d in directions for after in (0, 1)
    ]


@pytest.mark.parametrize("missing", [(), ("B", "initial_h", "initial_c", "P", "d_all_hidden"), ("d_final_hidden",)])
@pytest.mark.parametrize(("forward", "backward", "attributes"), recurrent_cases())
def test_recurrent_layers_in_float64(forward: Any, backward: Any, attributes: Arrays, missing: tuple[str, ...]) -> None:
    rng = np.random.default_rng(1)
    attributes = {"hidden_size": 2, **attributes}
    operands = {k: v for k, v in PAIRINGS[backward].sample(rng, attributes).items() if k not in missing}
    saved = ORACLES[forward](**operands, **attributes)
    found = getattr(ll.raw_ops, f"{MICROSOFT}.{forward.op_type}")(**operands, **attributes)
    for name, value in saved.items():
        np.testing.assert_allclose(getattr(found, name), value, rtol=0, atol=1e-14)
    cotangents = {f"d_{k}": rng.standard_normal(v.shape) for k, v in saved.items()}
    given = {
        declared.name: value
        for declared in backward.inputs
        if (value := {**operands, **saved, **cotangents}.get(declared.name)) is not None
        and declared.name not in missing
    }
    wanted = [output.name for output in backward.outputs if output.name != "dP" or "P" in given]
    model = one_node(backward, given, wanted, attributes, np.float64)
    results = run(ll.lower(model), given)
    expected = ORACLES[backward](**given, **attributes)
    for name in wanted:
        np.testing.assert_allclose(results[name], expected[name], rtol=0, atol=1e-13)


def one_node(
    op: Any, given: Arrays, wanted: list[str], attributes: Mapping[str, Any], dtype: Any, *, known: bool = False
) -> onnx.ModelProto:
    """A model of one node, whose dimensions are open or known."""
    type_of = helper.np_dtype_to_tensor_dtype
    inputs = [
        helper.make_tensor_value_info(name, type_of(value.dtype), value.shape if known else [None] * value.ndim)
        for name, value in given.items()
    ]
    outputs = [helper.make_tensor_value_info(name, type_of(np.dtype(dtype)), None) for name in wanted]
    operands = [declared.name if declared.name in given else "" for declared in op.inputs]
    results = [output.name if output.name in wanted else "" for output in op.outputs]
    node = helper.make_node(op.op_type, operands, results, "node", domain=MICROSOFT, **attributes)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(helper.make_graph([node], "one", inputs, outputs), opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize(("forward", "backward", "attributes"), recurrent_cases())
def test_recurrent_oracles_against_central_differences(forward: Any, backward: Any, attributes: Arrays) -> None:
    assert backward.forward == forward.op_type
    errors = check_backward(backward, {"hidden_size": 2, **attributes}, directions=2)
    assert max(error.relative for error in errors) < 1e-7
    assert all(error.absolute >= 0 for error in errors)


@pytest.mark.parametrize(
    ("changed", "operands", "message"),
    [
        ({"activations": ["Relu", "Tanh", "Tanh"]}, {}, "activations requires Sigmoid, Tanh, Tanh, got"),
        ({"clip": 3.0}, {}, "attribute clip requires 0.0 or no value, got 3.0"),
        ({"input_forget": 1}, {}, "attribute input_forget requires 0 or no value, got 1"),
        ({"layout": 1}, {}, "attribute layout requires 0 or no value, got 1"),
        ({}, {"sequence_lens": np.array([1, 2], np.int32)}, "sequence_lens requires no lengths"),
        ({"hidden_size": 3}, {}, "attribute hidden_size requires H = 2 (from the weights), got 3"),
    ],
)
def test_what_onnxruntime_training_has_no_kernels_for_is_refused(
    changed: Arrays, operands: Arrays, message: str
) -> None:
    attributes = {"hidden_size": 2, **changed}
    given = {**PAIRINGS[LSTMGrad].sample(np.random.default_rng(0), {}), **operands}
    with pytest.raises(ll.LstmLowerError, match=re.escape(message)):
        getattr(ll.raw_ops, f"{MICROSOFT}.LSTMTraining")(**given, **attributes)


def test_gradients_of_unknown_peepholes_are_refused() -> None:
    given = PAIRINGS[LSTMGrad].sample(np.random.default_rng(0), {})
    given |= ORACLES[LSTMTraining](**given, hidden_size=2)
    names = [declared.name for declared in LSTMGrad.inputs if declared.name != "P"]
    saved = {name: given[name] for name in names if name in given}
    model = one_node(LSTMGrad, saved, ["dP"], {"hidden_size": 2}, np.float64)
    with pytest.raises(
        ll.UnsupportedOpError, match="P requires the peephole weights, or the LSTMTraining that made iofc"
    ):
        ll.lower(model)


def test_other_ops_of_onnxruntime_are_refused_by_name() -> None:
    node = helper.make_node("GatedRelativePositionBias", ["x"], ["y"], "odd", domain=MICROSOFT)
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in "xy")
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(helper.make_graph([node], "one", [x], [y]), opset_imports=opsets, ir_version=8)
    with pytest.raises(ll.UnsupportedOpError, match="GatedRelativePositionBias 'odd'"):
        ll.lower(model)
