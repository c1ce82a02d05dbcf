"""The optimiser on loops that other projects wrote: `tests/data/foreign/`, made by `python -m benchmarks foreign`."""

from __future__ import annotations

import collections
import dataclasses
from pathlib import Path

import numpy as np
import onnx
import pytest

import lstm_lower as ll
from tests.support.loop_checks import assert_same, run, run_reference
from tests.support.loop_forms import without_sizes

FOLDER = Path(__file__).parents[1] / "data" / "foreign"
LOOPS = ("Scan", "Loop")


@dataclasses.dataclass(frozen=True)
class Expected:
    """What becomes of a model's loops: products and all nodes of their bodies, constants aside, before and after."""

    products: tuple[list[int], list[int]]
    nodes: tuple[list[int], list[int]]


EXPECTED = {
    # Forward: four products by gate become one. Backward: the forward's four are computed outside, four for the weight
    # gradient become one outside, four for the state become one; no Transpose and no axis of seeds is left.
    "onnx_ad_lstm_gradient": Expected(([4, 12], [1, 1]), ([22, 111], [15, 7])),
    # The product with the input leaves the loop.
    "torch_gru": Expected(([2], [1]), ([15], [14])),
    "jax2onnx_lstm": Expected(([2], [1]), ([27], [13])),
    # Both weight gradients and the input's gradient leave the loop.
    "jax2onnx_lstm_gradient": Expected(([2, 4], [1, 1]), ([29, 75], [14, 7])),
}


def load(name: str) -> onnx.ModelProto:
    return onnx.load(FOLDER / f"{name}.onnx")


def feeds_of(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    shapes = {x.name: [dim.dim_value or 1 for dim in x.type.tensor_type.shape.dim] for x in model.graph.input}
    return {name: (random.standard_normal(shape) * 0.5).astype(np.float32) for name, shape in shapes.items()}


def bodies(graph: onnx.GraphProto) -> list[collections.Counter[str]]:
    return [
        collections.Counter(inner.op_type for inner in attribute.g.node if inner.op_type != "Constant")
        for node in graph.node
        for attribute in node.attribute
        if node.op_type in LOOPS and attribute.type == onnx.AttributeProto.GRAPH
    ]


def products(body: collections.Counter[str]) -> int:
    return body["MatMul"] + body["Gemm"]


def test_every_model_is_expected() -> None:
    assert {path.stem for path in FOLDER.glob("*.onnx")} == set(EXPECTED)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("schedule", ["auto", "chunk:2", "unroll"])
def test_results_stay(name: str, schedule: str) -> None:
    model = load(name)
    after = ll.optimize(model, schedule, verify_each=True)
    onnx.checker.check_model(after, full_check=True)
    feeds = feeds_of(model)
    before = run(model, feeds, optimised=False)
    assert_same(before, run(after, feeds, optimised=False))
    assert_same(before, run(after, feeds))
    assert_same(before, run_reference(after, feeds))
    assert [value.name for value in after.graph.output] == [value.name for value in model.graph.output]


@pytest.mark.usefixtures("many_sequences")
@pytest.mark.parametrize("name", EXPECTED)
def test_loops_become_what_they_should_be(name: str) -> None:
    model = load(name)
    before, after = bodies(model.graph), bodies(ll.optimize(model).graph)
    expected = EXPECTED[name]
    assert ([products(body) for body in before], [products(body) for body in after]) == expected.products
    assert ([body.total() for body in before], [body.total() for body in after]) == expected.nodes
    assert not any(body["Transpose"] or body["Expand"] or body["Gather"] or body["Cast"] for body in after)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPECTED)
def test_loops_become_scans(name: str) -> None:
    assert not any(node.op_type == "Loop" for node in ll.optimize(load(name)).graph.node)


@pytest.mark.parametrize("name", EXPECTED)
def test_results_stay_without_sizes(name: str) -> None:
    sized = load(name)
    model = without_sizes(sized)
    after = ll.optimize(model, verify_each=True)
    onnx.checker.check_model(after, full_check=True)
    feeds = feeds_of(sized)
    before = run(model, feeds, optimised=False)
    assert_same(before, run(after, feeds, optimised=False))
    assert_same(before, run(after, feeds))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["onnx_ad_lstm_gradient", "torch_gru"])
def test_products_leave_scans_without_sizes_too(name: str) -> None:
    after = bodies(ll.optimize(without_sizes(load(name))).graph)
    assert [products(body) for body in after] == EXPECTED[name].products[1]


@pytest.mark.parametrize("seeds", [1, 3])
def test_any_number_of_seed_directions(seeds: int) -> None:
    """onnx-ad's adjoint takes several seeds at once, on an axis whose size is open."""
    model = load("onnx_ad_lstm_gradient")
    feeds = feeds_of(model)
    feeds["adj_y"] = np.repeat(feeds["adj_y"], seeds, axis=-1) * np.arange(1, seeds + 1, dtype=np.float32)
    assert_same(run(model, feeds, optimised=False), run(ll.optimize(model), feeds))
