"""The benchmark's cuDNN rows: what is timed computes what it should."""

from __future__ import annotations

import numpy as np
import pytest

import lstm_lower as ll
from benchmarks import block, cudnn
from benchmarks.block import Case
from benchmarks.contestants import CONTESTANTS, products_in_pytorch
from lstm_lower.runtime.proof.oracles.cudnn import cudnn_rnn, cudnn_rnn_backprop

SHAPE = (4, 2, 3, 5)


@pytest.mark.slow
@pytest.mark.parametrize("variant", cudnn.VARIANTS)
@pytest.mark.parametrize("hide_output", [False, True])
def test_backward_alone(variant: str, hide_output: bool) -> None:
    case = Case("CudnnRNNBackprop", SHAPE, variant)
    operands = cudnn.arrays(case)
    session = ll.Session(ll.lower(cudnn.model(case, operands, hide_output=hide_output)))
    results = session.run({name: operands[name] for name in session.inputs})
    for name, value in cudnn_rnn_backprop(**operands, **cudnn.attributes(case)).items():
        np.testing.assert_allclose(results[name], value, rtol=0, atol=1e-5)


def test_training() -> None:
    case = Case("CudnnRNN", SHAPE, "gru-2x2")
    operands = cudnn.arrays(case)
    session = ll.Session(ll.lower(cudnn.model(case, operands)))
    results = session.run({name: operands[name] for name in session.inputs})
    given = {name: operands[name] for name in cudnn.FORWARD}
    expected = cudnn_rnn(**given, **cudnn.attributes(case))["output"]
    np.testing.assert_allclose(results["output"], expected, rtol=0, atol=1e-5)


def test_floor() -> None:
    """Per pseudo-layer two products per step, and four over all steps."""
    model, values = cudnn.floor_model(Case("CudnnRNN", SHAPE, "lstm-2x2"))
    assert len(model.graph.node) == 4 * (2 * SHAPE[0] + 4)
    ll.Session(model).run(values)
    # With the output at hand, the top layer's two forward products over all steps at once.
    model, _ = cudnn.floor_model(Case("CudnnRNNBackprop", SHAPE, "lstm-2x2"))
    assert len(model.graph.node) == 2 * (2 * SHAPE[0] + 4) + 2 * (SHAPE[0] + 5)


@pytest.mark.parametrize("op", ["BlockLSTM", "BlockLSTMGrad", "CudnnRNN"])
def test_floor_in_pytorch(op: str) -> None:
    """Both libraries multiply the same matrices."""
    pytest.importorskip("torch")
    maker = cudnn if op == "CudnnRNN" else block
    model, values = maker.floor_model(Case(op, SHAPE, "lstm" if op == "CudnnRNN" else "plain"))
    expected = ll.Session(model).run(values)
    results = products_in_pytorch(model, values, 1)()
    assert len(results) == len(expected)
    for result, value in zip(results, expected.values(), strict=True):
        np.testing.assert_allclose(result.numpy(), value, rtol=0, atol=1e-4)


@pytest.mark.parametrize("contestant", ["lstm-lower", "textbook", "floor", "floor-sequential", "sequential", "pytorch"])
def test_contestants_run(contestant: str) -> None:
    if contestant == "pytorch":
        pytest.importorskip("torch")
    run, _ = CONTESTANTS[contestant](Case("CudnnRNNBackprop", SHAPE, "lstm"), 1, "auto")
    results = run()
    assert len(results if contestant == "pytorch" else results.get_outputs()) >= 4
