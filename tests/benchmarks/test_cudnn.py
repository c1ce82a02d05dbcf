"""The benchmark's cuDNN rows: what is timed computes what it should."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

import lstm_lower as ll
from benchmarks import block, cudnn
from benchmarks.block import Case
from benchmarks.contestants import CONTESTANTS, products_in_pytorch
from benchmarks.floors import FORMS, Form, Product, fastest_forms, model_of
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
    model, values = model_of(cudnn.floor_products(Case("CudnnRNN", SHAPE, "lstm-2x2")))
    assert len(model.graph.node) == 4 * (2 * SHAPE[0] + 4)
    ll.Session(model).run(values)
    # With the output at hand, the top layer's two forward products over all steps at once.
    model, _ = model_of(cudnn.floor_products(Case("CudnnRNNBackprop", SHAPE, "lstm-2x2")))
    assert len(model.graph.node) == 2 * (2 * SHAPE[0] + 4) + 2 * (SHAPE[0] + 5)


@pytest.mark.parametrize("op", ["BlockLSTM", "BlockLSTMGrad", "CudnnRNN"])
def test_floor_in_pytorch(op: str) -> None:
    """Both libraries multiply the same matrices."""
    pytest.importorskip("torch")
    maker = cudnn if op == "CudnnRNN" else block
    products = maker.floor_products(Case(op, SHAPE, "lstm" if op == "CudnnRNN" else "plain"))
    model, values = model_of(products, dict(zip([product.sizes for product in products], FORMS, strict=False)))
    expected = ll.Session(model).run(values)
    results = products_in_pytorch(model, values, 1)()
    assert len(results) == len(expected)
    for result, value in zip(results, expected.values(), strict=True):
        np.testing.assert_allclose(result.numpy(), value, rtol=0, atol=1e-4)


def test_a_form_computes_the_product_or_its_transpose() -> None:
    product = Product((3, 5), (5, 7))
    for form in FORMS:
        model, values = model_of([product], {product.sizes: form})
        (result,) = ll.Session(model).run(values).values()
        assert result.shape == ((7, 3) if form.swapped else (3, 7))
    assert Product((5, 3), (5, 7), turned=True).sizes == product.sizes


def test_the_floor_is_of_the_fastest_forms() -> None:
    """Of each product its own, by the least of several runs."""
    products = [Product((3, 5), (5, 7), times=2), Product((5, 3), (5, 3), turned=True)]
    best = {products[0].sizes: Form(swapped=True, right_turned=True), products[1].sizes: Form(left_turned=True)}
    now = 0.0

    def make(model: onnx.ModelProto, values: dict[str, Any]) -> Callable[[], None]:
        seconds = 1.0 if any(_is_of(product, best[product.sizes], model) for product in products) else 2.0
        noise = itertools.cycle([9.0, 5.0, 0.0, 3.0])

        def run() -> None:
            nonlocal now
            now += seconds + next(noise)

        return run

    assert fastest_forms(products, make, clock=lambda: now) == best


def _is_of(product: Product, form: Form, model: onnx.ModelProto) -> bool:
    wanted, _ = model_of([product], {product.sizes: form})
    return wanted == model


@pytest.mark.parametrize("contestant", ["lstm-lower", "textbook", "floor", "floor-sequential", "sequential", "pytorch"])
def test_contestants_run(contestant: str) -> None:
    if contestant == "pytorch":
        pytest.importorskip("torch")
    run, _ = CONTESTANTS[contestant](Case("CudnnRNNBackprop", SHAPE, "lstm"), 1, "auto")
    results = run()
    assert len(results if contestant == "pytorch" else results.get_outputs()) >= 4
