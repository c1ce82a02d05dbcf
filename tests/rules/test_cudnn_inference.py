"""Inference on the standard LSTM, GRU and RNN operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import lstm_lower as ll
from lstm_lower.runtime.proof.oracles.block import block_lstm, block_lstm_v2
from lstm_lower.runtime.proof.oracles.cudnn import cudnn_rnn_v3
from tests.support.cudnn_cases import FORWARD, Case
from tests.support.cudnn_models import attributes_of, node_model, nodes_of
from tests.support.models import DOMAIN

STANDARD = {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "RNN", "rnn_relu": "RNN"}


def outputs_of(case: Case) -> list[str]:
    return ["output", "output_h", *(["output_c"] if case.mode == "lstm" else [])]


def inference_model(case: Case, operands: dict[str, Any], **options: Any) -> onnx.ModelProto:
    model = node_model("CudnnRNNV3", operands, attributes_of("CudnnRNNV3", case), outputs=outputs_of(case))
    return ll.lower(model, **options)


def check(case: Case, model: onnx.ModelProto, operands: dict[str, Any]) -> None:
    onnx.checker.check_model(model, full_check=True)
    session = ll.Session(model)
    results = session.run({name: operands[name] for name in session.inputs})
    expected = cudnn_rnn_v3(**{name: np.nan_to_num(operands[name]) for name in FORWARD}, **case.attributes)
    for name in outputs_of(case):
        assert results[name].shape == expected[name].shape
        np.testing.assert_allclose(results[name], expected[name], rtol=0, atol=3e-6)


@pytest.mark.parametrize("mode", STANDARD)
@pytest.mark.parametrize("two", [False, True])
@pytest.mark.parametrize(("ragged", "batch_major"), [(False, False), (True, False), (True, True)])
def test_standard_operators(mode: str, two: bool, ragged: bool, batch_major: bool) -> None:
    case = Case(mode, 2, two, ragged=ragged, batch_major=batch_major)
    operands = case.operands(dtype=np.float32)
    for row, length in enumerate(case.lengths):
        case.major(operands["input"]).flat[:0]
        (operands["input"][row] if batch_major else operands["input"][:, row])[length:] = np.nan
    model = inference_model(case, operands)
    assert len(nodes_of(model.graph, STANDARD[mode])) == 2
    assert not nodes_of(model.graph, "Scan")
    check(case, model, operands)


@pytest.mark.parametrize("opset", [13, 22, 23])
def test_opsets(opset: int) -> None:
    case = Case("gru", bidirectional=True, ragged=True)
    operands = case.operands(dtype=np.float32)
    check(case, inference_model(case, operands, opset=opset), operands)


@pytest.mark.parametrize("schedule", ["scan", "unroll"])
def test_a_schedule_forbids_them(schedule: str) -> None:
    case = Case("lstm")
    operands = case.operands(dtype=np.float32)
    model = inference_model(case, operands, schedule=schedule)
    assert not nodes_of(model.graph, "LSTM")
    check(case, model, operands)


@pytest.mark.parametrize(
    ("case", "dtype"),
    [
        (Case("lstm", proj=2), np.float32),
        (Case("gru", skip=True), np.float32),
        (Case("lstm"), np.float64),
    ],
    ids=str,
)
def test_where_they_would_not_do(case: Case, dtype: Any) -> None:
    operands = case.operands(dtype=dtype)
    model = inference_model(case, operands)
    assert len(nodes_of(model.graph, "Scan")) == 1
    check(case, model, operands)


def test_training_keeps_the_scan() -> None:
    case = Case("lstm")
    operands = case.operands(dtype=np.float32)
    model = ll.lower(node_model("CudnnRNNV3", operands, attributes_of("CudnnRNNV3", case)))
    assert nodes_of(model.graph, "Scan")


SIZES = {"T": 4, "B": 2, "I": 3, "H": 5}


def block_model(op: str, operands: dict[str, Any], outputs: list[str], **attributes: Any) -> onnx.ModelProto:
    made = ["i", "cs", "f", "o", "ci", "co", "h"]
    node = helper.make_node(
        op, list(operands), [name if name in outputs else "" for name in made], name="rnn", domain=DOMAIN, **attributes
    )
    graph = helper.make_graph(
        [node],
        "graph",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for name, value in operands.items()
            if name != "seq_len_max"
        ],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [onnx.numpy_helper.from_array(operands["seq_len_max"], "seq_len_max")],
    )
    imports = [helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


def block_operands(dtype: Any = np.float32, length: int = SIZES["T"]) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    t, b, i, h = SIZES.values()
    shapes = {
        "x": (t, b, i), "cs_prev": (b, h), "h_prev": (b, h), "w": (i + h, 4 * h),
        "wci": (h,), "wcf": (h,), "wco": (h,), "b": (4 * h,),
    }  # fmt: skip
    drawn = {name: rng.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}
    return {"seq_len_max": np.array(length), **drawn}


@pytest.mark.parametrize("op", ["BlockLSTM", "BlockLSTMV2"])
@pytest.mark.parametrize("peephole", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 3e-6), (np.float16, 2e-3)])
def test_block_lstm(op: str, peephole: bool, dtype: Any, tolerance: float) -> None:
    operands = block_operands(dtype)
    attributes: dict[str, Any] = {"cell_clip": 0.0, "use_peephole": int(peephole)}
    if op == "BlockLSTM":
        attributes["forget_bias"] = 0.75
    model = ll.lower(block_model(op, operands, ["h"], **attributes))
    onnx.checker.check_model(model, full_check=True)
    assert len(nodes_of(model.graph, "LSTM")) == 1
    session = ll.Session(model)
    h = session.run({name: operands[name] for name in session.inputs})["h"]
    assert h.dtype == dtype
    oracle = block_lstm if op == "BlockLSTM" else block_lstm_v2
    np.testing.assert_allclose(h, oracle(**operands, **attributes)["h"], rtol=0, atol=tolerance)


@pytest.mark.usefixtures("many_sequences")
@pytest.mark.parametrize(
    ("outputs", "length", "attributes"),
    [
        (["cs", "h"], 4, {"cell_clip": 0.0}),
        (["h"], 3, {"cell_clip": 0.0}),
        (["h"], 4, {"cell_clip": 3.0}),
    ],
)
def test_block_lstm_that_keeps_its_loop(outputs: list[str], length: int, attributes: dict[str, Any]) -> None:
    model = ll.lower(block_model("BlockLSTM", block_operands(length=length), outputs, **attributes))
    assert not nodes_of(model.graph, "LSTM")
