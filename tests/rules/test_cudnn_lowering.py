"""CudnnRNN and CudnnRNNBackprop lowered, in stock onnxruntime."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

import lstm_lower as ll
from lstm_lower.runtime.proof.oracles.cudnn import cudnn_rnn_backprop_v3, cudnn_rnn_v3
from tests.support.cudnn_cases import CASES, FORWARD, UNITS, Case
from tests.support.cudnn_models import attributes_of, body_of, node_model, nodes_of, training_model

# Every stride-th configuration; a stride prime to the period of each property visits all of them.
SAMPLE = CASES[::17]

STATES = ("output", "output_h", "output_c")


def forward_of(case: Case, operands: dict[str, Any], **more: Any) -> dict[str, Any]:
    return cudnn_rnn_v3(**{name: operands[name] for name in FORWARD}, **{**case.attributes, **more})


def backward_of(case: Case, operands: dict[str, Any]) -> dict[str, Any]:
    return cudnn_rnn_backprop_v3(**operands, **case.attributes)


def with_forward(case: Case, operands: dict[str, Any]) -> dict[str, Any]:
    """The operands with the true outputs of the forward op, for a backward op that stands alone."""
    masks = operands["reserve_space"] if case.masks else None
    out = forward_of(case, {**operands, "input": operands["input"].astype(np.float64)}, masks=masks)
    return {**operands, **{name: out[name].astype(operands["input"].dtype) for name in STATES}}


def assert_close(results: dict[str, Any], expected: dict[str, Any], tolerance: float = 1e-12) -> None:
    for name, value in expected.items():
        assert results[name].shape == value.shape, name
        scale = max(np.max(np.abs(value), initial=0), 1)
        np.testing.assert_allclose(results[name], value, rtol=0, atol=tolerance * scale, err_msg=name)


def run(model: onnx.ModelProto, operands: dict[str, Any]) -> dict[str, Any]:
    onnx.checker.check_model(model, full_check=True)
    session = ll.Session(model)
    return session.run({name: operands[name] for name in session.inputs})


@pytest.mark.slow
@pytest.mark.parametrize("case", SAMPLE, ids=str)
def test_training_graph(case: Case) -> None:
    """Forward and backward in one graph; under dropout the masks are those that the forward op drew."""
    operands = case.operands(seed=1)
    results = run(ll.lower(training_model(case, operands)), operands)
    masks = results["reserve_space"] if case.masks else None
    expected = forward_of(case, operands, masks=masks)
    expected |= backward_of(case, {**operands, "reserve_space": results["reserve_space"]})
    assert_close(results, expected)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES[5::37], ids=str)
def test_backward_alone(case: Case) -> None:
    operands = with_forward(case, case.operands(seed=2))
    model = node_model("CudnnRNNBackpropV3", operands, attributes_of("CudnnRNNBackpropV3", case))
    assert_close(run(ll.lower(model), operands), backward_of(case, operands))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES[3::60], ids=str)
@pytest.mark.parametrize("opset", [13, 18, 21])
def test_float32_and_opsets(case: Case, opset: int) -> None:
    operands = with_forward(case, case.operands(seed=3, dtype=np.float32))
    model = node_model("CudnnRNNBackpropV3", operands, attributes_of("CudnnRNNBackpropV3", case))
    lowered = ll.lower(model, opset=opset)
    assert {entry.domain: entry.version for entry in lowered.opset_import} == {"": opset}
    assert_close(run(lowered, operands), backward_of(case, operands), 5e-6)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["lstm", "gru", "rnn_tanh", "rnn_relu"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float16, 2e-3), (ml_dtypes.bfloat16, 2e-2)])
def test_halves(mode: str, dtype: Any, tolerance: float) -> None:
    """One rounding of a float32 result: half a unit in the last place, and no more with many steps."""
    case = Case(mode, 2, bidirectional=True, ragged=True, steps=40)
    operands = case.operands(seed=4, dtype=dtype)
    out = ll.raw_ops.CudnnRNNV3(**{name: operands[name] for name in FORWARD}, **case.attributes)
    assert out.output.dtype == out.reserve_space.dtype == dtype
    wide = {name: value.astype(np.float64) for name, value in operands.items() if value.dtype == dtype}
    wide = {**operands, **wide}
    assert_close({"output": out.output.astype(float)}, {"output": forward_of(case, wide)["output"]}, tolerance)
    operands |= {name: getattr(out, name) for name in (*STATES, "reserve_space", "host_reserved")}
    grads = ll.raw_ops.CudnnRNNBackpropV3(**operands, **case.attributes)
    results = {name: value.astype(float) for name, value in grads._asdict().items()}
    assert_close(results, backward_of(case, wide), tolerance)


@pytest.mark.parametrize(
    "level", [ort.GraphOptimizationLevel.ORT_DISABLE_ALL, ort.GraphOptimizationLevel.ORT_ENABLE_ALL]
)
@pytest.mark.parametrize("mode", ["lstm", "gru"])
def test_optimisation_levels(mode: str, level: Any) -> None:
    case = Case(mode, 2, bidirectional=True, ragged=True)
    operands = case.operands(seed=5)
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    session = ll.Session(ll.lower(training_model(case, operands)), session_options=options)
    results = session.run({name: operands[name] for name in session.inputs})
    assert_close(results, {**forward_of(case, operands), **backward_of(case, operands)})


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["lstm", "gru"])
@pytest.mark.parametrize("masks", [False, True])
def test_symbolic_sizes(mode: str, masks: bool) -> None:
    """Time and batch stay open; one model runs at several sizes and keeps the dimensions' names."""
    case = Case(mode, 2, bidirectional=True, ragged=True, masks=masks)
    symbols = {
        "input": ["T", "B", case.input_size],
        "input_h": [4, "B", UNITS],
        "sequence_lengths": ["B"],
        "output_backprop": ["T", "B", 2 * UNITS],
        "output_h_backprop": [4, "B", UNITS],
    }
    if mode == "lstm":
        symbols |= {name: [4, "B", UNITS] for name in ("input_c", "output_c_backprop")}
    model = ll.lower(training_model(case, case.operands(), symbols=symbols))
    grad = next(value for value in model.graph.output if value.name == "input_backprop")
    assert [dim.dim_param or dim.dim_value for dim in grad.type.tensor_type.shape.dim] == ["T", "B", case.input_size]
    session = ll.Session(model)
    for steps, batch in ((1, 1), (7, 2), (4, 5)):
        sized = Case(mode, 2, bidirectional=True, ragged=True, masks=masks, steps=steps, batch=batch)
        operands = {**sized.operands(seed=6), "sequence_lengths": np.minimum(sized.lengths, steps)}
        results = session.run({name: operands[name] for name in session.inputs})
        drawn = results["reserve_space"]
        expected = forward_of(sized, operands, masks=drawn if masks else None)
        assert_close(results, {**expected, **backward_of(sized, {**operands, "reserve_space": drawn})})


@pytest.mark.parametrize("mode", ["lstm", "gru", "rnn_tanh"])
@pytest.mark.parametrize("masks", [False, True])
def test_nothing_is_computed_twice(mode: str, masks: bool) -> None:
    """Backward recomputes the forward pass, and the two merge: one loop each per pseudo-layer, one product each."""
    case = Case(mode, 2, bidirectional=True, masks=masks)
    lowered = ll.lower(training_model(case, case.operands(), constants=["sequence_lengths"]))
    scans = nodes_of(lowered.graph, "Scan")
    assert len(scans) == 2 * 4
    assert all(len(nodes_of(body_of(scan), "MatMul") + nodes_of(body_of(scan), "Gemm")) == 1 for scan in scans)
    # Outside the loops: the input side forward, and the gradients of x, W and R. A GRU's input side comes in two parts.
    inputs = 2 if mode == "gru" else 1
    assert len(nodes_of(lowered.graph, "MatMul") + nodes_of(lowered.graph, "Gemm")) == 4 * (3 + inputs)


@pytest.mark.parametrize(("mode", "loops"), [("lstm", 2), ("gru", 1), ("rnn_tanh", 1)])
@pytest.mark.parametrize("reverse", [False, True])
def test_backward_alone_has_no_recurrent_product_forward(mode: str, loops: int, reverse: bool) -> None:
    """With the forward op's output at hand, only the cell state's elementwise recurrence is left of it."""
    case = Case(mode, 1, bidirectional=reverse)
    operands = with_forward(case, case.operands())
    model = node_model(
        "CudnnRNNBackpropV3", operands, attributes_of("CudnnRNNBackpropV3", case), constants=["sequence_lengths"]
    )
    scans = nodes_of(ll.lower(model).graph, "Scan")
    assert len(scans) == loops * case.directions
    assert sum(len(nodes_of(body_of(scan), "MatMul")) for scan in scans) == case.directions


def test_full_lengths_need_no_masks() -> None:
    """Constant full lengths, and those that Keras fills at run time with the number of steps."""
    case = Case("lstm", batch_major=True)
    operands = case.operands()
    plain = ll.lower(training_model(case, operands, constants=["sequence_lengths"]))
    assert not nodes_of(plain.graph, "Where")
    filled = training_model(case, operands, symbols={"input": ["B", 5, 3], "sequence_lengths": ["B"]})
    lengths = next(value for value in filled.graph.input if value.name == "sequence_lengths")
    filled.graph.input.remove(lengths)
    steps = onnx.numpy_helper.from_array(np.array(case.steps, np.int32), "steps")
    axes = onnx.numpy_helper.from_array(np.array([0]), "axes")
    filled.graph.initializer.extend([steps, axes])
    made = [
        helper.make_node("Shape", ["input"], ["shape"]),
        helper.make_node("Gather", ["shape", "axes"], ["batch"]),
        helper.make_node("Expand", ["steps", "batch"], ["sequence_lengths"]),
    ]
    for node in reversed(made):
        filled.graph.node.insert(0, node)
    lowered = ll.lower(filled)
    assert not nodes_of(lowered.graph, "Where")
    assert_close(run(lowered, operands), backward_of(case, operands))


def test_lengths_at_run_time_are_clamped_without_a_session() -> None:
    """A Session refuses lengths beyond T; bare onnxruntime treats them as T, and negative ones as 0."""
    case = Case("gru", 1, ragged=True)
    operands = case.operands()
    wild = {**operands, "sequence_lengths": np.array([-3, 9, 2], np.int32)}
    tame = {**operands, "sequence_lengths": np.array([0, 5, 2], np.int32)}
    lowered = ll.lower(training_model(case, operands))
    session = ort.InferenceSession(lowered.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    results = dict(zip(names, session.run(names, {v.name: wild[v.name] for v in session.get_inputs()}), strict=True))
    assert_close(results, backward_of(case, tame))


@pytest.mark.slow
@pytest.mark.parametrize("op", ["CudnnRNN", "CudnnRNNV2"])
def test_older_versions(op: str) -> None:
    case = Case("lstm", 2, bidirectional=True)
    operands = with_forward(case, case.operands())
    results = run(ll.lower(node_model(op, operands, attributes_of(op, case))), operands)
    expected = forward_of(case, operands)
    assert_close(results, {name: expected[name] for name in results})
    grad = op.replace("RNN", "RNNBackprop")
    assert_close(
        run(ll.lower(node_model(grad, operands, attributes_of(grad, case))), operands), backward_of(case, operands)
    )


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["lstm", "gru"])
def test_gates_of_padded_steps_are_never_read(mode: str) -> None:
    case = Case(mode, 2, bidirectional=True, ragged=True)
    operands = case.operands()
    poisoned = {name: value.copy() for name, value in operands.items()}
    for row, length in enumerate(case.lengths):
        for name in ("input", "output_backprop"):
            poisoned[name][length:, row] = np.nan
    results = run(ll.lower(training_model(case, operands)), poisoned)
    assert_close(results, {**forward_of(case, operands), **backward_of(case, operands)})


def test_relu_at_zero_has_no_gradient() -> None:
    case = Case("rnn_relu")
    operands = {**case.operands(), "params": np.zeros(case.params_size)}
    grads = run(ll.lower(training_model(case, operands)), operands)
    assert not grads["params_backprop"].any()


@pytest.mark.parametrize("width", [UNITS, UNITS - 1])
def test_auto_select(width: int) -> None:
    case = Case("gru", skip=width == UNITS)
    operands = case.operands()
    assert operands["input"].shape[-1] == width
    model = training_model(case, operands, input_mode="auto_select")
    assert_close(run(ll.lower(model), operands), {**forward_of(case, operands), **backward_of(case, operands)})


def test_unknown_sizes_are_refused() -> None:
    case = Case("lstm")
    operands = case.operands()
    model = node_model(
        "CudnnRNNV3",
        operands,
        attributes_of("CudnnRNNV3", case),
        symbols={"input_h": ["K", "B", "H"], "input_c": ["K", "B", "H"]},
    )
    with pytest.raises(
        ll.UnsupportedOpError, match=r"CudnnRNNV3 'rnn': params requires sizes known before the run.*unknown layers"
    ):
        ll.lower(model)


@pytest.mark.parametrize("schedule", ["scan", "unroll", "chunk:2"])
def test_schedules(schedule: str) -> None:
    case = Case("lstm", 1, bidirectional=True, ragged=True)
    operands = case.operands()
    model = ll.lower(training_model(case, operands), schedule=schedule)
    assert_close(run(model, operands), {**forward_of(case, operands), **backward_of(case, operands)})
