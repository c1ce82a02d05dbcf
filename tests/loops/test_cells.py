"""Loops whose bodies hold cells, and cells one by one: the general passes treat them like any other loop."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import lstm_lower as ll
from lstm_lower.graph.builder import Workspace
from lstm_lower.passes.loops.views.loop import Loop, scans_of
from tests.support.cell_loops import T, expected, feeds, gru_loops, gru_steps
from tests.support.duplicates import all_nodes, duplicates
from tests.support.loop_checks import run

PRODUCTS = ("MatMul", "Gemm")


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["auto", "scan", "unroll", "chunk:3"])
@pytest.mark.parametrize("build", [gru_loops, gru_steps])
def test_every_schedule_computes_the_same(build: Callable[[], onnx.ModelProto], schedule: str) -> None:
    model = ll.lower(build(), schedule=schedule, verify_each=True)
    onnx.checker.check_model(model, full_check=True)
    given = feeds()
    for optimised in (False, True):
        for ours, wanted in zip(run(model, given, optimised=optimised), expected(given), strict=True):
            np.testing.assert_allclose(ours, wanted, rtol=0, atol=1e-6)


def test_bodies_of_gru_loops() -> None:
    model = ir.from_proto(ll.lower(gru_loops(), schedule="scan"))
    forward, backward = (Loop(node, Workspace.of(model)) for node in scans_of(model.graph))
    for loop, nodes in ((forward, 13), (backward, 10)):
        body = list(loop.body)
        # Of each cell the two recurrent products stay; no gradient of a weight is carried.
        assert len(loop.states) == 1
        assert sum(node.op_type in PRODUCTS for node in body) == 2
        assert len([node for node in body if node.op_type != "Identity"]) <= nodes
    # Outside: two input sides, the gradients of two weights, and that of the input; those of the biases are small sums.
    assert sum(node.op_type in PRODUCTS for node in model.graph) == 5
    assert sum(node.op_type == "ReduceSum" for node in model.graph) == 2


def test_cells_one_by_one() -> None:
    """Nothing is computed twice; of a weight there is one transpose for all cells."""
    model = ll.lower(gru_steps())
    assert duplicates(model) == []
    transposes = [node for node in all_nodes(model.graph) if node.op_type == "Transpose"]
    assert sum(node.input[0] in ("w_ru", "w_c") for node in transposes) == 2
    # Per cell two products forward, two backward, and two gradients of weights.
    assert sum(node.op_type in PRODUCTS for node in all_nodes(model.graph)) == 6 * T
