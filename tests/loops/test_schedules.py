"""The sequence ops at every schedule and optimisation level against float64 oracles, and what a step is left with."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import lstm_lower as ll
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.passes.loops.views.loop import scans_of
from lstm_lower.runtime.proof.oracles.cudnn import cudnn_rnn_backprop_v3, cudnn_rnn_v3
from lstm_lower.runtime.proof.oracles.registry import ORACLES
from tests.support.cudnn_cases import FORWARD, Case
from tests.support.cudnn_models import attributes_of, node_model, training_model
from tests.support.loop_checks import run
from tests.support.models import outputs_of, single_node_model, split_kwargs
from tests.support.op_inputs import valid_inputs
from tests.support.tensorflow_cases import relative_error

# Seven steps, which 3 does not divide; a block of 7 holds them all.
STEPS = 7
SCHEDULES = ["auto", "scan", "unroll", "chunk:1", "chunk:3", "chunk:7"]
# Attributes, and the number of steps that count.
VARIANTS: dict[str, tuple[dict[str, Any], int]] = {
    "plain": ({"use_peephole": False}, STEPS),
    "peephole": ({"use_peephole": True}, STEPS),
    "short": ({"use_peephole": False}, STEPS - 2),
    "peephole-short": ({"use_peephole": True}, STEPS - 2),
    "clip": ({"use_peephole": True, "cell_clip": 0.4}, STEPS),
}
BLOCK = [
    (op, variant)
    for op in ("BlockLSTM", "BlockLSTMV2", "BlockLSTMGrad", "BlockLSTMGradV2")
    for variant in VARIANTS
    if variant != "clip" or not op.startswith("BlockLSTMGrad")
]


def block(
    op: str, variant: str, *, symbolic: bool = False, fixed: bool = True
) -> tuple[onnx.ModelProto, dict[str, Any]]:
    attributes, steps = VARIANTS[variant]
    kwargs = valid_inputs(op, T=STEPS, B=2, I=3, H=5, steps=steps, **attributes)
    constants = ("seq_len_max",) if fixed else ()
    return single_node_model(op, kwargs, symbolic=symbolic, constants=constants), kwargs


# A loop of two steps in a loop: unrolled, its work is the outer body's.
NESTED = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 18]>
nested (float[B,3] first, float[T,B,3] xs, float[3,3] w) => (float[B,3] last, float[T,B,3] ys) {
  last, ys = Scan <num_scan_inputs = 1, body = step (float[B,3] s, float[B,3] x) => (float[B,3] u, float[B,3] y) {
    n = Constant <value = int64 {2}> () yes = Constant <value = bool {1}> ()
    y = Loop (n, yes, x) <body = turn (int64 i, bool c, float[B,3] p) => (bool d, float[B,3] q) {
      d = Identity(c) r = Tanh(p) q = MatMul(r, w) }>
    t = Add(s, y) u = Tanh(t) }> (first, xs) }""")


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_second_run_finds_nothing_left_to_do(schedule: str) -> None:
    for model in (block("BlockLSTMGrad", "peephole", symbolic=True, fixed=False)[0], NESTED):
        once = ll.lower(model, schedule=schedule) if model is not NESTED else ll.optimize(model, schedule)
        # From the file, as another process reads it.
        twice = ll.optimize(onnx.ModelProto.FromString(once.SerializeToString()), schedule)
        graphs = [ir.from_proto(each).graph for each in (once, twice)]
        # At every level, and outside all loops.
        counts = [(len(list(all_nodes(graph))), len(graph)) for graph in graphs]
        assert counts[0] == counts[1]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("op", "variant"), BLOCK)
def test_block(op: str, variant: str, schedule: str) -> None:
    """Sizes known and open in turn, the number of steps that count a constant and an operand in turn."""
    turn = BLOCK.index((op, variant)) + SCHEDULES.index(schedule)
    model, kwargs = block(op, variant, symbolic=turn % 3 == 0, fixed=turn % 2 == 0)
    feeds, _ = split_kwargs(op, kwargs)
    lowered = ll.lower(model, schedule=schedule)
    names = [value.name for value in lowered.graph.output]
    expected = ORACLES[op](**kwargs)
    for optimised in (False, True):
        results = dict(zip(names, run(lowered, feeds, optimised=optimised), strict=True))
        for name, value in outputs_of(op, results).items():
            assert relative_error(value, expected[name]) < 1e-5, name


# Each property meets each mode; dropout needs a layer boundary.
CUDNN = [
    Case("lstm", 1, bidirectional=True, ragged=True, steps=STEPS),
    Case("lstm", 2, masks=True, steps=STEPS),
    Case("lstm", 1, proj=2, batch_major=True, ragged=True, steps=STEPS),
    Case("gru", 2, bidirectional=True, ragged=True, masks=True, steps=STEPS),
    Case("gru", 1, skip=True, batch_major=True, steps=STEPS),
    Case("rnn_tanh", 2, bidirectional=True, steps=STEPS),
    Case("rnn_relu", 1, ragged=True, steps=STEPS),
]


@pytest.mark.slow
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("case", CUDNN, ids=str)
def test_cudnn_training_graph(case: Case, schedule: str) -> None:
    operands = case.operands(seed=1)
    fixed = [] if case.ragged else ["sequence_lengths"]
    lowered = ll.lower(training_model(case, operands, constants=fixed), schedule=schedule)
    names = [value.name for value in lowered.graph.output]
    for optimised in (False, True):
        results = dict(zip(names, run(lowered, operands, optimised=optimised), strict=True))
        drawn = results["reserve_space"]
        masks = drawn if case.masks else None
        expected = cudnn_rnn_v3(**{name: operands[name] for name in FORWARD}, **case.attributes, masks=masks)
        expected |= cudnn_rnn_backprop_v3(**{**operands, "reserve_space": drawn}, **case.attributes)
        assert_close(results, expected)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("case", CUDNN[::2], ids=str)
def test_cudnn_backward_alone(case: Case, schedule: str) -> None:
    operands = case.operands(seed=2)
    masks = operands["reserve_space"] if case.masks else None
    out = cudnn_rnn_v3(**{name: operands[name] for name in FORWARD}, **case.attributes, masks=masks)
    operands |= {name: out[name] for name in ("output", "output_h", "output_c")}
    model = node_model("CudnnRNNBackpropV3", operands, attributes_of("CudnnRNNBackpropV3", case))
    lowered = ll.lower(model, schedule=schedule)
    names = [value.name for value in lowered.graph.output]
    for optimised in (False, True):
        results = dict(zip(names, run(lowered, operands, optimised=optimised), strict=True))
        assert_close(results, cudnn_rnn_backprop_v3(**operands, **case.attributes))


def assert_close(results: dict[str, Any], expected: dict[str, Any]) -> None:
    for name, value in expected.items():
        scale = max(np.max(np.abs(value), initial=0), 1)
        np.testing.assert_allclose(results[name], value, rtol=0, atol=1e-12 * scale, err_msg=name)


@pytest.mark.usefixtures("many_sequences")
@pytest.mark.parametrize(("op", "variant"), BLOCK)
def test_a_step_is_one_product_and_little_else(op: str, variant: str) -> None:
    """Backward ten nodes, with peepholes fourteen; forward what the formula has, its input side apart."""
    model, _ = block(op, variant)
    (loop,) = scans_of(ir.from_proto(ll.lower(model, schedule="scan")).graph)
    body = [node for node in loop.attributes["body"].as_graph() if node.op_type != "Identity"]
    peephole = VARIANTS[variant][0]["use_peephole"]
    most = (14 if peephole else 10) if "Grad" in op else (21 if variant == "clip" else 20 if peephole else 14)
    assert sum(node.op_type in ("MatMul", "Gemm") for node in body) == 1
    assert len(body) <= most


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("steps", ["T", STEPS], ids=str)
@pytest.mark.parametrize("dtype", ["string", "int16", "uint16", "bool", "float16"])
def test_elements_of_any_type(dtype: str, steps: str | int, schedule: str) -> None:
    """onnxruntime has no Pad of some, and its Gather takes one string of a row."""
    text = f"""<ir_version: 10, opset_import: ["" : 21]>
    loops ({dtype}[{steps},2] x, {dtype}[2] first) => ({dtype}[2] last, {dtype}[{steps},2] before) {{
      last, before = Scan <num_scan_inputs = 1, body = step ({dtype}[2] s, {dtype}[2] t) => ({dtype}[2] u, {dtype}[2] y)
        {{ u = Identity(t) y = Identity(s) }}> (first, x) }}"""
    numpy_dtype = np.dtype(object if dtype == "string" else dtype)
    elements = np.asarray([str(n) if dtype == "string" else n % 3 for n in range(2 * STEPS + 2)], numpy_dtype)
    x, first = elements[2:].reshape(STEPS, 2), elements[:2]
    results = run(ll.optimize(onnx.parser.parse_model(text), schedule), {"x": x, "first": first}, optimised=False)
    np.testing.assert_array_equal(results[0], x[-1])
    np.testing.assert_array_equal(results[1], np.concatenate([first[np.newaxis], x[:-1]]))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("dtype", ["float8e4m3fn", "int4"])
def test_elements_that_hardly_any_operator_takes(dtype: str, schedule: str) -> None:
    text = f"""<ir_version: 11, opset_import: ["" : 23]>
    loops ({dtype}[{STEPS},2] x, {dtype}[2] first) => ({dtype}[2] last, {dtype}[{STEPS},2] before) {{
      last, before = Scan <num_scan_inputs = 1, body = step ({dtype}[2] s, {dtype}[2] t) => ({dtype}[2] u, {dtype}[2] y)
        {{ u = Identity(t) y = Identity(s) }}> (first, x) }}"""
    onnx.checker.check_model(ll.optimize(onnx.parser.parse_model(text), schedule), full_check=True)
