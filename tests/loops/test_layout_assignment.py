"""Values of a body that are kept with their axes in another order."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper

import lstm_lower as ll
from lstm_lower.passes.loops.layout_assignment import LayoutAssignment
from tests.loops.test_each_pass import check, parsed
from tests.support.loop_checks import assert_same, run

TURNED_STATE = """
loops (float[N,N] first, float[T,N,N] xs) => (float[N,N] last, float[T,N,N] ys)
{{
  last, ys = Scan <num_scan_inputs = 1, body = step (float[N,N] s, float[N,N] x) => (float[N,N] s2, float[N,N] y)
    {{ {body} }}> (first, xs)
}}"""


@pytest.mark.parametrize("schedule", ["auto", "scan", "unroll", "chunk:2"])
@pytest.mark.parametrize(
    "body",
    [
        "t = Transpose <perm = [1, 0]> (s) y = Identity(t) s2 = Add(s, t)",
        "t = Transpose <perm = [1, 0]> (s) y = Tanh(t) u = Add(t, x) s2 = Transpose <perm = [1, 0]> (u)",
        "t = Transpose <perm = [1, 0]> (x) u = Add(x, t) y = Transpose <perm = [1, 0]> (u) s2 = Mul(s, u)",
        "t = Transpose <perm = [1, 0]> (s) y = Transpose <perm = [1, 0]> (t) s2 = Mul(t, x)",
        (
            "t = Transpose <perm = [1, 0]> (s) u = Mul(t, x) p = MatMul(t, x) q = Add(p, u) y = Identity(q) "
            "s2 = Transpose <perm = [1, 0]> (q)"
        ),
    ],
)
def test_a_value_may_be_transposed_within_its_region(body: str, schedule: str) -> None:
    case = parsed(TURNED_STATE.format(body=body), first=(3, 3), xs=(4, 3, 3))
    check(case, LayoutAssignment())
    after = ll.optimize(case.model, schedule)
    for optimised in (False, True):
        assert_same(run(case.model, case.feeds, optimised=optimised), run(after, case.feeds, optimised=optimised))


def test_axes_of_three_are_turned_round_within_a_region() -> None:
    case = parsed(
        """
loops (float[3,3,3] first, float[T,3,3,3] xs) => (float[3,3,3] last, float[T,3,3,3] ys)
{
  last, ys = Scan <num_scan_inputs = 1,
    body = step (float[3,3,3] s, float[3,3,3] x) => (float[3,3,3] s2, float[3,3,3] y)
    { a = Transpose <perm = [1, 2, 0]> (s) b = Add(a, s) w = Transpose <perm = [2, 1, 0]> (x) c = Tanh(w) d = Add(b, c)
      e = Transpose <perm = [2, 1, 0]> (d) y = MatMul(e, x) s2 = Mul(d, b) }> (first, xs)
}""",
        first=(3, 3, 3),
        xs=(4, 3, 3, 3),
    )
    check(case, LayoutAssignment(), applies=True)


def test_a_captured_value_stays_upright_for_its_other_readers() -> None:
    case = parsed(
        """
loops (float[2,3] first, float[T,2,3] xs, float[2,3] bias) => (float[2,3] last, float[2,3] doubled, float[T,2,2] ys)
{
  doubled = Add(bias, bias)
  last, ys = Scan <num_scan_inputs = 1, body = step (float[2,3] s, float[2,3] x) => (float[2,3] s2, float[2,2] y)
    { u = Add(s, bias) t = Transpose <perm = [1, 0]> (u) v = Transpose <perm = [1, 0]> (s) y = MatMul(bias, t)
      w = MatMul(x, v) z = MatMul(w, x) s2 = Add(z, u) }> (first, xs)
}""",
        first=(2, 3),
        xs=(4, 2, 3),
        bias=(2, 3),
    )
    check(case, LayoutAssignment())
    after = np.asarray(run(ll.optimize(case.model), case.feeds)[1])
    np.testing.assert_allclose(after, 2 * case.feeds["bias"])


def test_an_initializer_of_the_body_is_transposed_outside() -> None:
    case = parsed(
        """
loops (float[2,3] first, float[4,2,3] xs) => (float[2,3] last, float[4,2,2] ys)
{
  last, ys = Scan <num_scan_inputs = 1, body = step (float[2,3] s, float[2,3] x) => (float[2,3] s2, float[2,2] y)
    { a = Add(s, k) t = Transpose <perm = [1, 0]> (a) u = Transpose <perm = [1, 0]> (s) y = MatMul(x, t)
      z = MatMul(y, x) w = Transpose <perm = [1, 0]> (z) v = Add(w, t) s2 = Transpose <perm = [1, 0]> (v) }> (first, xs)
}""",
        first=(2, 3),
        xs=(4, 2, 3),
    )
    (body,) = (attribute.g for attribute in case.model.graph.node[0].attribute if attribute.name == "body")
    body.initializer.append(numpy_helper.from_array(np.arange(6, dtype=np.float32).reshape(2, 3), "k"))
    check(case, LayoutAssignment(), applies=True)
