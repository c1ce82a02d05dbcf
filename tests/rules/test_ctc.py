"""CTCLoss: its oracle by brute force, differences and TensorFlow; its lowering by the oracle."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import lstm_lower as ll
from lstm_lower.runtime.proof.oracles.ctc import ctc_loss, ctc_loss_v2, log_softmax
from tests.support.ctc_cases import CASES, CtcCase

DOMAIN = "ai.onnx.converters.tensorflow"
PARAMS = [pytest.param(case, id=case.id) for case in CASES]


def model_of(case: CtcCase, op: str, opset: int, *, symbolic: bool) -> onnx.ModelProto:
    operands = case.operands()
    sizes = {"inputs": ["T", "B", "C"], "labels_indices": ["N", 2], "labels_values": ["N"], "sequence_length": ["B"]}
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(value.dtype), sizes[name] if symbolic else list(value.shape)
        )
        for name, value in operands.items()
    ]
    kind = helper.np_dtype_to_tensor_dtype(operands["inputs"].dtype)
    outputs = [helper.make_tensor_value_info(name, kind, None) for name in ("loss", "gradient")]
    attributes = {name: int(value) for name, value in case.attributes().items()}
    node = helper.make_node(op, list(operands), ["loss", "gradient"], name="ctc", domain=DOMAIN, **attributes)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(helper.make_graph([node], "ctc", inputs, outputs), opset_imports=imports, ir_version=9)


def run(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return list(onnxruntime.InferenceSession(model.SerializeToString(), options).run(["loss", "gradient"], feeds))


@pytest.mark.parametrize(("opset", "symbolic"), [(13, False), (18, True), (21, False)])
@pytest.mark.parametrize("case", PARAMS)
def test_lowered_equals_oracle(case: CtcCase, opset: int, symbolic: bool) -> None:
    lowered = ll.lower(model_of(case, "CTCLoss", opset, symbolic=symbolic))
    onnx.checker.check_model(lowered, full_check=True)
    loss, gradient = run(lowered, case.operands())
    exact = ctc_loss(**case.operands(), **case.attributes())
    rounding = 1e-12 if case.dtype == "float64" else 2e-6
    np.testing.assert_allclose(loss, exact["loss"], rtol=rounding, atol=rounding)
    np.testing.assert_allclose(gradient, exact["gradient"], rtol=0, atol=rounding)


def test_second_version_has_its_blank_first() -> None:
    case = CtcCase((6, 2, 5), ((1, 2), (3, 3)), (6, 5))
    loss, gradient = run(ll.lower(model_of(case, "CTCLossV2", 18, symbolic=True)), case.operands())
    exact = ctc_loss_v2(**case.operands(), **case.attributes())
    np.testing.assert_allclose(loss, exact["loss"], rtol=2e-6)
    np.testing.assert_allclose(gradient, exact["gradient"], atol=2e-6)
    # The same with the classes turned, so that the blank is the last one.
    operands = case.operands()
    turned = operands | {
        "inputs": np.roll(operands["inputs"], -1, axis=2),
        "labels_values": operands["labels_values"] - 1,
    }
    np.testing.assert_allclose(exact["loss"], ctc_loss(**turned, **case.attributes())["loss"])


def test_oracle_equals_the_sum_over_all_alignments() -> None:
    case = CtcCase((4, 1, 3), ((0, 1),), (4,))
    scores = log_softmax(case.operands()["inputs"].astype(np.float64))[:, 0]

    def collapsed(alignment: tuple[int, ...]) -> tuple[int, ...]:
        merged = [value for value, _ in itertools.groupby(alignment)]
        return tuple(value for value in merged if value != 2)

    total = sum(
        np.exp(sum(scores[t, value] for t, value in enumerate(alignment)))
        for alignment in itertools.product(range(3), repeat=4)
        if collapsed(alignment) == (0, 1)
    )
    loss = ctc_loss(**case.operands(), **case.attributes())["loss"][0]
    assert abs(loss + np.log(total)) < 1e-12


@pytest.mark.parametrize("case", [param for param, case in zip(PARAMS, CASES, strict=True) if case.runs])
def test_gradient_is_the_loss_derivative(case: CtcCase) -> None:
    operands = case.operands()
    operands["inputs"] = operands["inputs"].astype(np.float64)
    exact = ctc_loss(**operands, **case.attributes())
    rng = np.random.default_rng(3)
    direction, step = rng.standard_normal(case.sizes), 1e-6
    finite = np.isfinite(exact["loss"])
    ahead, behind = (
        ctc_loss(**operands | {"inputs": operands["inputs"] + sign * step * direction}, **case.attributes())["loss"]
        for sign in (1, -1)
    )
    predicted = (exact["gradient"] * direction).sum(axis=(0, 2))
    difference = (ahead[finite] - behind[finite]) / (2 * step)
    np.testing.assert_allclose(difference, predicted[finite], atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("case", [param for param, case in zip(PARAMS, CASES, strict=True) if case.runs])
def test_oracle_equals_tensorflow(case: CtcCase) -> None:
    tf = pytest.importorskip("tensorflow")
    kernel = tf.raw_ops.CTCLoss(**case.operands(), **case.attributes())
    exact = ctc_loss(**case.operands(), **case.attributes())
    np.testing.assert_allclose(kernel.loss.numpy(), exact["loss"], rtol=1e-5, atol=1e-5)
    # The kernel's logarithms grow with the number of steps, and with them their rounding.
    np.testing.assert_allclose(kernel.gradient.numpy(), exact["gradient"], atol=2e-6 * case.sizes[0])


def test_only_what_is_asked_for_is_computed() -> None:
    model = model_of(CASES[0], "CTCLoss", 18, symbolic=True)
    del model.graph.output[1]
    scans = [node for node in ll.lower(model).graph.node if node.op_type == "Scan"]
    assert len(scans) == 1, "the loss alone needs no backward pass"
