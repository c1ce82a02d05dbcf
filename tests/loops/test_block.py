"""What the loop optimiser makes of the block family's textbook loops, and that every schedule computes the same."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx_ir as ir
import pytest

import lstm_lower as ll
from benchmarks import block
from benchmarks.block import Case
from lstm_lower.graph.edit import captures
from lstm_lower.passes.loops.views.loop import scans_of
from lstm_lower.passes.trace import Trace

SHAPE = (7, 2, 3, 5)
PLAIN = Case("BlockLSTMGrad", SHAPE)


def lowered(case: Case, schedule: str = "scan") -> ir.Model:
    return ir.from_proto(ll.lower(block.model(case, block.arrays(case)), schedule=schedule))


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["plain", "peephole", "v2", "half", "short", "dynamic"])
def test_the_backward_step_is_one_product_and_at_most_ten_nodes(variant: str) -> None:
    (loop,) = scans_of(lowered(dataclasses.replace(PLAIN, variant=variant)).graph)
    body = list(loop.attributes["body"].as_graph())
    assert sum(node.op_type in ("MatMul", "Gemm") for node in body) == 1
    assert len(body) <= 10


@pytest.mark.slow
def test_the_weight_is_not_repacked_at_every_step_of_a_large_loop() -> None:
    (loop,) = scans_of(lowered(Case("BlockLSTMGrad", (3, 32, 64, 128))).graph)
    (product,) = [node for node in loop.attributes["body"].as_graph() if node.op_type in ("MatMul", "Gemm")]
    assert product.op_type == "Gemm"
    assert product.attributes["transB"].as_int() == 1


@pytest.mark.usefixtures("many_sequences")
def test_the_forward_loop_holds_no_input_product() -> None:
    case = Case("BlockLSTM", SHAPE)
    model = lowered(case)
    (loop,) = scans_of(model.graph)
    body = loop.attributes["body"].as_graph()
    assert sum(node.op_type in ("MatMul", "Gemm") for node in body) == 1
    assert any(node.op_type == "MatMul" for node in model.graph)


def holds_a_scan(node: ir.Node) -> bool:
    return any(inner.op_type == "Scan" for inner in node.attributes["body"].as_graph())


def test_blocks_hold_an_inner_loop_and_add_once_per_block() -> None:
    outer = [node for node in scans_of(lowered(PLAIN, "chunk:3").graph) if holds_a_scan(node)]
    assert len(outer) == 1
    inner = [node for node in outer[0].attributes["body"].as_graph() if node.op_type == "Scan"]
    assert len(inner) == 1


@pytest.mark.parametrize("variant", ["plain", "peephole"])
def test_blocks_of_one_step_write_outputs_in_place_and_copy_no_weight(variant: str) -> None:
    """A Reshape or Transpose behind the loop would copy a whole sequence, one before it a sequence or the weight."""
    model = lowered(Case("BlockLSTMGrad", (7, 16, 64, 128), variant), "chunk:1")
    (loop,) = scans_of(model.graph)
    whole = {value.name for value in model.graph.inputs if len(value.shape or ()) == 3} | {"w"}
    read = {value.name for value in [*loop.inputs, *captures(loop)] if value is not None}
    assert whole <= read
    assert {value.name for value in loop.outputs} >= {"x_grad_out", "w_grad_out"}


def test_unrolling_leaves_no_control_flow() -> None:
    assert not scans_of(lowered(PLAIN, "unroll").graph)


def test_the_trace_tells_what_changed_and_what_was_left_alone() -> None:
    trace = Trace(dump=True)
    ll.lower(block.model(PLAIN, block.arrays(PLAIN)), schedule="scan", trace=trace)
    names = {change.pass_name for change in trace.changes}
    assert {
        "product-distribution",
        "reassociation",
        "concat-fusion",
        "loop-invariant-code-motion",
        "reduction-recognition",
        "code-sinking",
    } <= names
    assert trace.changes[0].before != trace.changes[-1].after
    assert any(refusal.pass_name == "reduction-recognition" for refusal in trace.refusals)


def test_large_loops_are_divided_and_small_ones_are_not() -> None:
    small = scans_of(lowered(PLAIN, "auto").graph)
    assert len(small) == 1
    large = Case("BlockLSTMGrad", (64, 64, 256, 256))
    model = ir.from_proto(ll.lower(block.model(large, _shapes(large))))
    assert any(holds_a_scan(node) for node in scans_of(model.graph))


def _shapes(case: Case) -> dict[str, np.ndarray]:
    """Operands of the right shapes; nobody runs them."""
    T, B, I, H = case.shape  # noqa: E741
    sequences = {name: np.zeros((T, B, H), np.float32) for name in ("i", "cs", "f", "o", "ci", "co", "h")}
    return {
        "seq_len_max": np.asarray(T, np.int64),
        "x": np.zeros((T, B, I), np.float32),
        **{name: np.zeros((B, H), np.float32) for name in ("cs_prev", "h_prev")},
        "w": np.zeros((I + H, 4 * H), np.float32),
        **{name: np.zeros(H, np.float32) for name in ("wci", "wcf", "wco")},
        "b": np.zeros(4 * H, np.float32),
        **sequences,
        "cs_grad": np.zeros((T, B, H), np.float32),
        "h_grad": np.zeros((T, B, H), np.float32),
    }
