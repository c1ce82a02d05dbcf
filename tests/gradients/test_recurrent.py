"""Gradients of ONNX's LSTM, GRU and RNN: their Scans against central differences, and the operators themselves."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import ModelProto, TensorProto

import lstm_lower as ll
from lstm_lower.passes.decompositions.decompose import DecomposePass
from tests.support.differences import check, run
from tests.support.recurrent_layers import OUTPUTS, Case

ALL = ("B", "h0", "c0", "P")
BOTH = {"direction": "bidirectional"}
CASES = [
    *(Case(op, BOTH, ALL, (4, 0, 2)) for op in OUTPUTS),
    *(Case(op, {"direction": "reverse", "layout": 1}, ("B",)) for op in OUTPUTS),
    # States are held where they could grow.
    *(Case(op, {"activations": ["Relu"] * count}, ALL, (3, 4, 0)) for op, count in (("GRU", 2), ("RNN", 1))),
    Case("LSTM", {"activations": ["Sigmoid", "Tanh", "Relu"]}, ("h0", "c0"), (3, 4, 0)),
    *(Case(op, {"clip": 0.6}, ALL) for op in OUTPUTS),
    Case("LSTM", {"input_forget": 1}, ALL),
    Case("GRU", {"linear_before_reset": 1, "direction": "reverse"}, ALL, (1, 4, 3)),
]


def decomposed(model: ModelProto) -> ModelProto:
    """Its Scans; onnxruntime has no kernels of these operators for doubles."""
    work = ir.from_proto(model)
    DecomposePass(lambda node: node.op_type in OUTPUTS)(work)
    return ir.to_proto(work)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_differences(case: Case) -> None:
    outputs = OUTPUTS[case.op]
    output = outputs[CASES.index(case) % len(outputs)]
    check(decomposed(case.model(TensorProto.DOUBLE)), case.feeds(np.float64), of=output, tolerance=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("op", OUTPUTS)
def test_operators(op: str) -> None:
    """In float32, as models have them: the results that there were stay, and nothing of the operator is asked for."""
    case = Case(op, BOTH, ALL, (4, 0, 2))
    feeds = case.feeds()
    wrt = [name for name in feeds if name != "lens"]
    gradients = ll.gradient(case.model(), "Y", wrt, seeds=True)
    seed = np.random.default_rng(1).standard_normal((4, 2, 3, 3)).astype(np.float32)
    found = run(gradients, {**feeds, "seed/Y": seed})
    wide = ll.gradient(decomposed(case.model(TensorProto.DOUBLE)), "Y", wrt, seeds=True)
    doubles = {name: value.astype(np.float64) for name, value in {**feeds, "seed/Y": seed}.items() if name != "lens"}
    wanted = run(wide, {**doubles, "lens": feeds["lens"]})
    assert found.keys() == wanted.keys() == {*OUTPUTS[op], *(f"grad/{name}" for name in wrt)}
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=0, atol=2e-6 * (1 + np.abs(value).max()), err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES[:3], ids=str)
def test_gradients_of_gradients(case: Case) -> None:
    model, feeds = decomposed(case.model(TensorProto.DOUBLE)), case.feeds(np.float64)
    seed = np.random.default_rng(1).standard_normal(run(model, feeds)["Y_h"].shape)
    check(ll.gradient(model, "Y_h", "R", seeds=True), {**feeds, "seed/Y_h": seed}, of="grad/R", tolerance=1e-6)
