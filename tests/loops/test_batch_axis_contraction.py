"""Sums of products over steps and batches, of any size, 0 among them."""

from __future__ import annotations

import onnx
import pytest

import lstm_lower as ll
from lstm_lower.passes.loops.batch_axis_contraction import BatchAxisContraction
from tests.loops.test_each_pass import check, parsed
from tests.support.loop_checks import assert_same, run

CARRIED = """
loops (float[B,M,N] first, float[T,B,M,K] a, float[T,B,K,N] b) => (float[B,M,N] last)
{
  last = Scan <num_scan_inputs = 2, body = step (float[B,M,N] s, float[B,M,K] x, float[B,K,N] y) => (float[B,M,N] s2)
    { p = MatMul(x, y) s2 = Add(s, p) }> (first, a, b)
}"""


@pytest.mark.parametrize("sizes", [(2, 3, 5, 4), (0, 3, 5, 4), (2, 0, 5, 4), (2, 3, 0, 4), (2, 3, 5, 0)], ids=str)
@pytest.mark.parametrize("opset", [13, 18])
def test_a_carried_sum_of_products(sizes: tuple[int, int, int, int], opset: int) -> None:
    B, M, K, N = sizes
    case = parsed(CARRIED, first=(B, M, N), a=(3, B, M, K), b=(3, B, K, N))
    case.model.opset_import[0].version = opset
    after = ll.optimize(case.model, verify_each=True)
    assert not any(node.op_type == "Scan" for node in after.graph.node)
    onnx.checker.check_model(after, full_check=True)
    for optimised in (False, True):
        assert_same(run(case.model, case.feeds), run(after, case.feeds, optimised=optimised))


SUMMED = """
loops (float[T,{batch}3,2] a, float[T,{batch}2,5] b) => (y)
{{
  axes = Constant <value = int64[{count}] {{{axes}}}> ()
  p = MatMul(a, b)
  y = ReduceSum <keepdims = {keepdims}> (p, axes)
}}"""


@pytest.mark.parametrize("batch", [(), (4,)], ids=["", "batch"])
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("axes", ["0", "0, 1", "1", "0, 2"])
@pytest.mark.parametrize("steps", [3, 0])
def test_a_sum_over_a_batch_of_products(steps: int, axes: str, keepdims: int, batch: tuple[int, ...]) -> None:
    text = SUMMED.format(batch="".join(f"{b}," for b in batch), count=axes.count(",") + 1, axes=axes, keepdims=keepdims)
    case = parsed(text, a=(steps, *batch, 3, 2), b=(steps, *batch, 2, 5))
    check(case, BatchAxisContraction(), applies=True if axes == "0" and not batch else None)


def test_sums_of_integers_stay_as_they_are() -> None:
    text = SUMMED.format(batch="", count=1, axes="0", keepdims=1).replace("float", "int64")
    case = parsed(text, a=(2, 3, 2), b=(2, 2, 5))
    case.feeds = {name: array.astype("int64") for name, array in case.feeds.items()}
    check(case, BatchAxisContraction(), applies=False)
