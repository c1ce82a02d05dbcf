"""Training steps written with `while`: the loops of the optimised model, and its numbers."""

from __future__ import annotations

import collections

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lstm_lower as ll
from lstm_lower.graph.standard import AT_LEAST_ONE, STEPS
from tests.loops.test_foreign_loops import bodies, products
from tests.support.examples import tried
from tests.support.loop_checks import assert_same, run, run_reference
from tests.support.loop_forms import as_while
from tests.support.loop_models import LoopModel, loop_models
from tests.support.while_loops import FORMS, feeds, lstm

SIZES = [(steps, batch) for steps in (1, 2, 7) for batch in (1, 3)]


@pytest.mark.slow
@pytest.mark.parametrize("counter", ["int32", "int64"])
@pytest.mark.parametrize("form", FORMS)
def test_an_lstm_with_stacks_becomes_what_its_gradient_op_does(form: str, counter: str) -> None:
    """Products of the input and the weight gradients are outside, seven nodes are left backwards."""
    model = lstm(form, counter=counter)
    after = ll.optimize(model, verify_each=True)
    onnx.checker.check_model(after, full_check=True)
    assert [node.op_type for node in after.graph.node if node.op_type in ("Loop", "Scan")] == ["Scan", "Scan"]
    forward, backward = bodies(after.graph)
    assert (products(forward), products(backward)) == (1, 1)
    assert backward == collections.Counter(Add=2, Mul=3, Concat=1, MatMul=1)
    outside = collections.Counter(node.op_type for node in after.graph.node)
    # The input's product and that for its gradient, for all steps, and those for the gradients of weights and bias.
    assert (outside["MatMul"], outside["Gemm"]) == (3, 1)
    # Nothing is read by a number any more, turned round, or cut to a length that it has.
    sequences = [name for node in after.graph.node if node.op_type == "Scan" for name in node.input]
    assert not any(set(node.output) & set(sequences) for node in after.graph.node if node.op_type == "Slice")
    for steps, batch in SIZES:
        fed = feeds(steps, batch)
        before = run(model, fed, optimised=False)
        assert_same(before, run(after, fed))
        assert_same(before, run(after, fed, optimised=False))
    assert_same(before, run_reference(after, fed))


@pytest.mark.parametrize("form", FORMS)
def test_without_the_mark_loops_stay_loops(form: str) -> None:
    """A run of no steps is one that a Scan would refuse."""
    model = lstm(form, mark=False)
    after = ll.optimize(model, verify_each=True)
    assert [node.op_type for node in after.graph.node if node.op_type in ("Loop", "Scan")] == ["Loop", "Loop"]
    # Neither has a condition of its own.
    assert not any(node.input[1] for node in after.graph.node if node.op_type == "Loop")
    for steps, batch in [(0, 2), *SIZES]:
        fed = feeds(steps, batch)
        assert_same(run(model, fed, optimised=False), run(after, fed))


def marked(text: str) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 18]> {text}')
    onnx.checker.check_model(model, full_check=True)
    for node in model.graph.node:
        if node.op_type == "Loop":
            node.metadata_props.add(key=STEPS, value=AT_LEAST_ONE)
    return model


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


READ = """
g (float[T,3] xs, float[S,3] others, float[3] first, int64 n) => (float[3] last, float[?,3] ys) {{
  yes = Constant <value = bool {{1}}> ()
  zero = Constant <value = int64 {{0}}> ()
  one = Constant <value = int64 {{1}}> ()
  shape = Shape (xs)
  T = Gather <axis = 0> (shape, zero)
  oshape = Shape (others)
  S = Gather <axis = 0> (oshape, zero)
  {before}
  last, ys = Loop <body = step (int64 i, bool go, float[3] s) => (bool on, float[3] s2, float[3] y) {{
    on = Identity (go)
    at = {at}
    x = Gather <axis = 0> ({source}, at)
    y = Mul (x, s)
    s2 = Add (s, x)
  }}> ({trips}, yes, first) }}"""

# What is read where, the number of steps, and whether the sequence is walked along as it is, or what is read of it.
READS = {
    "forwards": ("xs", "Identity (i)", "T", "as it is"),
    "backwards from the end": ("xs", "Sub (last_row, i)", "T", "as it is"),
    "cut": ("xs", "Identity (i)", "n", "gathered"),
    "cut and shifted": ("xs", "Add (i, one)", "n", "gathered"),
    "backwards from the step count": ("xs", "Sub (before_n, i)", "n", "gathered"),
    "a part from its end": ("xs", "Sub (last_row, i)", "n", "gathered"),
    "wrapping round": ("xs", "Sub (zero, i)", "n", "gathered"),
    "another sequence": ("others", "Identity (i)", "T", "gathered"),
    "every other": ("others", "Add (i, i)", "n", "gathered"),
}


@pytest.mark.parametrize("read", READS)
def test_what_is_walked_along(read: str) -> None:
    source, at, trips, expected = READS[read]
    before = "last_row = Sub (T, one) before_n = Sub (n, one)"
    model = marked(READ.format(source=source, at=at, trips=trips, before=before))
    after = ll.optimize(model, verify_each=True)
    (scan,) = [node for node in after.graph.node if node.op_type == "Scan"]
    made = {name: node.op_type for node in after.graph.node for name in node.output}
    assert made.get(scan.input[1]) == {"as it is": None, "gathered": "Gather"}[expected]
    for steps, others in ((1, 1), (4, 4), (4, 9), (5, 9)):
        fed = {"xs": numbers(steps, 3), "others": numbers(others, 3), "first": numbers(3)}
        for n in (1, 2, 4):
            if n < min(steps, others):
                fed["n"] = np.array(n)
                assert_same(run(model, fed, optimised=False), run(after, fed))


@pytest.mark.parametrize("at", ["Identity (i)", "Sub (before_n, i)"])
def test_a_sequence_that_is_too_short_is_an_error_still(at: str) -> None:
    model = marked(READ.format(source="xs", at=at, trips="n", before="before_n = Sub (n, one)"))
    after = ll.optimize(model)
    fed = {"xs": numbers(3, 3), "others": numbers(3, 3), "first": numbers(3), "n": np.array(5)}
    for each in (model, after):
        with pytest.raises(Exception, match="out of data bounds"):
            run(each, fed)


BOUNDS = {
    "at least one": "most = Max (T, one) bound = Min (T, most)",
    "twice": "bound = Min (T, T)",
    "the other way": "least = Min (one, T) bound = Max (least, T)",
}


@pytest.mark.parametrize("bound", BOUNDS)
def test_bounds_that_say_nothing_else(bound: str) -> None:
    """`min(T, max(1, T))`, the number of steps of a sequence without lengths."""
    text = READ.format(source="xs", at="Identity (i)", trips="bound", before=BOUNDS[bound])
    after = ll.optimize(marked(text), verify_each=True)
    (scan,) = [node for node in after.graph.node if node.op_type == "Scan"]
    assert scan.input[1] == "xs"


LENGTHS = """
g (float[T,B,3] xs, int32[B] lengths, float[B,3] first, float[3,3] w) => (float[B,3] last, float[?,B,3] ys) {
  zero = Constant <value = int32 {0}> ()
  one = Constant <value = int32 {1}> ()
  zero64 = Constant <value = int64 {0}> ()
  shape = Shape (xs)
  T64 = Gather <axis = 0> (shape, zero64)
  T = Cast <to = 6> (T64)
  longest = ReduceMax <keepdims = 0> (lengths)
  shortest = ReduceMin <keepdims = 0> (lengths)
  some = Max (longest, one)
  bound = Min (T, some)
  go_t = Less (zero, T)
  go_b = Less (zero, bound)
  start = And (go_t, go_b)
  _t, _u, last, ys = Loop <body = step (int64 i, bool go, int32 t, int32 u, float[B,3] s)
    => (bool on, int32 t2, int32 u2, float[B,3] s2, float[B,3] y) {
    t2 = Add (t, one)
    u2 = Add (u, one)
    on_t = Less (t2, T)
    on_b = Less (u2, bound)
    on = And (on_t, on_b)
    x = Gather <axis = 0> (xs, t)
    p = MatMul (s, w)
    q = Add (p, x)
    new = Tanh (q)
    all_run = Less (t, shortest)
    s2, y = If (all_run) <then_branch = then () => (float[B,3] a, float[B,3] c)
      { a = Identity (new) c = Identity (new) },
      else_branch = otherwise () => (float[B,3] d, float[B,3] e)
      { done = GreaterOrEqual (t, lengths) column = Constant <value = int64[1] {1}> () mask = Unsqueeze (done, column)
        d = Where (mask, s, new) none = CastLike (zero, s) e = Where (mask, none, new) }>
  }> ("", start, zero, zero, first) }"""


MASKED = """
g (float[T,B,3] xs, int32[B] lengths, float[B,3] first, float[3,3] w, float[B,3] d_last)
  => (float[B,3] last, float[3,3] dw, float[B,3] d_first) {
  zero = Constant <value = int32 {0}> ()
  one = Constant <value = int32 {1}> ()
  axis = Constant <value = int64 {0}> ()
  column = Constant <value = int64[1] {1}> ()
  none = Constant <value = float {0.0}> ()
  shape = Shape (xs)
  T64 = Gather <axis = 0> (shape, axis)
  T = Cast <to = 6> (T64)
  longest = ReduceMax <keepdims = 0> (lengths)
  some = Max (longest, one)
  bound = Min (T, some)
  start = Less (zero, bound)
  steps, last, before, made = Loop <body = step (int64 i, bool go, int32 t, float[B,3] s)
    => (bool on, int32 t2, float[B,3] s2, float[B,3] s_in, float[B,3] new) {
    t2 = Add (t, one)
    in_bound = Less (t2, bound)
    in_time = Less (t2, T)
    on = And (in_time, in_bound)
    x = Gather <axis = 0> (xs, t)
    p = MatMul (s, w)
    q = Add (p, x)
    new = Tanh (q)
    done = GreaterOrEqual (t, lengths)
    mask = Unsqueeze (done, column)
    s2 = Where (mask, s, new)
    s_in = Identity (s)
  }> ("", start, zero, first)
  more = GreaterOrEqual (steps, one)
  w_shape = Shape (w)
  dw0 = ConstantOfShape <value = float[1] {0.0}> (w_shape)
  left, d_first, dw = Loop <body = back (int64 j, bool bgo, int32 k, float[B,3] d, float[3,3] sum)
    => (bool bon, int32 k2, float[B,3] d2, float[3,3] sum2) {
    k2 = Sub (k, one)
    bon = GreaterOrEqual (k2, one)
    y = Gather <axis = 0> (made, k2)
    h = Gather <axis = 0> (before, k2)
    bdone = GreaterOrEqual (k2, lengths)
    bmask = Unsqueeze (bdone, column)
    through = Where (bmask, d, none)
    rest = Where (bmask, none, d)
    yy = Mul (y, y)
    unit = Constant <value = float {1.0}> ()
    slope = Sub (unit, yy)
    dq = Mul (rest, slope)
    turned = Transpose <perm = [1, 0]> (h)
    dp = MatMul (turned, dq)
    sum2 = Add (sum, dp)
    wt = Transpose <perm = [1, 0]> (w)
    dh = MatMul (dq, wt)
    d2 = Add (dh, through)
  }> ("", more, steps, d_last, dw0) }"""


def test_the_number_of_steps_from_the_data() -> None:
    """What one loop has saved is as long as the other one is, whatever number that is."""
    model = marked(MASKED)
    after = ll.optimize(model, verify_each=True)
    assert [node.op_type for node in after.graph.node if node.op_type in ("Loop", "Scan")] == ["Scan", "Scan"]
    saved = {name for node in after.graph.node if node.op_type == "Scan" for name in node.output}
    cut = [node for node in after.graph.node if node.op_type in ("Slice", "Gather") and node.input[0] in saved]
    assert cut == []
    _, backward = bodies(after.graph)
    assert products(backward) == 1
    for lengths in ([4, 2], [0, 0], [1, 1], [3, 4], [0, 2]):
        fed = {"xs": numbers(4, 2, 3), "lengths": np.array(lengths, np.int32), "first": numbers(2, 3)}
        fed |= {"w": numbers(3, 3), "d_last": numbers(2, 3) * 2}
        assert_same(run(model, fed, optimised=False), run(after, fed))


CARRIED = """
g (float[3] first, float[3] k, int64 n) => (float[3] last, float[3] kept) {
  last, kept, dead, unread = Loop <body = step (int64 i, bool go, float[3] s, float[3] same, float[3] idle)
    => (bool on, float[3] s2, float[3] same2, float[3] idle2, float[3] y) {
    on = Identity (go)
    s2 = Add (s, same)
    same2 = Identity (same)
    idle2 = Mul (idle, s)
    y = Exp (s2)
  }> (n, "", first, k, k) }"""


def test_a_loop_carries_only_what_it_changes_and_somebody_reads() -> None:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {CARRIED}')
    after = ll.optimize(model, verify_each=True)
    (loop,) = [node for node in after.graph.node if node.op_type == "Loop"]
    assert list(loop.input) == ["n", "", "first"]
    assert len(loop.output) == 1
    assert [node.op_type for node in loop.attribute[0].g.node if node.op_type != "Identity"] == ["Add"]
    for n in (0, 1, 3):
        fed = {"first": numbers(3), "k": numbers(3) * 2, "n": np.array(n)}
        assert_same(run(model, fed, optimised=False), run(after, fed))


def test_lengths_from_the_data() -> None:
    model = marked(LENGTHS)
    after = ll.optimize(model, verify_each=True)
    assert [node.op_type for node in after.graph.node if node.op_type in ("Loop", "Scan")] == ["Scan"]
    for lengths in ([4, 2], [0, 0], [1, 1], [3, 4], [0, 2]):
        fed = {"xs": numbers(4, 2, 3), "lengths": np.array(lengths, np.int32), "first": numbers(2, 3)}
        fed["w"] = numbers(3, 3)
        assert_same(run(model, fed, optimised=False), run(after, fed))


NESTED = """
g (float[T,S,3] xs, float[3] first) => (float[3] last, float[?,3] ys) {
  zero = Constant <value = int64 {0}> ()
  yes = Constant <value = bool {1}> ()
  sizes = Shape (xs)
  one = Constant <value = int64 {1}> ()
  T = Gather <axis = 0> (sizes, zero)
  start = Less (zero, T)
  c_last, last, ys = Loop <body = outer (int64 i, bool go, int64 c, float[3] s)
    => (bool on, int64 c2, float[3] s2, float[3] y) {
    c2 = Add (c, one)
    on = Less (c2, T)
    row = Gather <axis = 0> (xs, c)
    inner_sizes = Shape (row)
    S = Gather <axis = 0> (inner_sizes, zero)
    inner_start = Less (zero, S)
    d_last, s2 = Loop <body = inner (int64 j, bool jgo, int64 d, float[3] t) => (bool jon, int64 d2, float[3] t2) {
      d2 = Add (d, one)
      jon = Less (d2, S)
      last_one = Sub (S, one)
      at = Sub (last_one, d)
      element = Gather <axis = 0> (row, at)
      r = Mul (t, element)
      t2 = Tanh (r)
    }> ("", inner_start, zero, s)
    y = Neg (s)
  }> ("", start, zero, first) }"""


def test_loops_in_loops() -> None:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 18]> {NESTED}')
    fed = {"xs": numbers(4, 5, 3), "first": numbers(3)}
    plain = ll.optimize(model, verify_each=True)
    assert_same(run(model, fed, optimised=False), run(plain, fed))
    inner = [n for outer in model.graph.node for attribute in outer.attribute for n in attribute.g.node]
    for node in [*model.graph.node, *inner]:
        if node.op_type == "Loop":
            node.metadata_props.add(key=STEPS, value=AT_LEAST_ONE)
    after = ll.optimize(model, verify_each=True)
    assert not any(node.op_type == "Loop" for node in after.graph.node)
    (outer,) = bodies(after.graph)
    assert outer["Loop"] == 0
    assert outer["Scan"] == 1
    assert_same(run(model, fed, optimised=False), run(after, fed))


@pytest.mark.slow
@tried(15)
@given(case=loop_models(), counter=st.sampled_from(["int32", "int64"]), marked=st.booleans(), backwards=st.booleans())
def test_any_loop_written_with_while(case: LoopModel, counter: str, *, marked: bool, backwards: bool) -> None:
    loop = as_while(case, counter=counter, marked=marked, backwards=backwards)
    before = run(loop.model, loop.feeds, optimised=False)
    after = ll.optimize(loop.model, verify_each=True)
    onnx.checker.check_model(after, full_check=True)
    kinds = {node.op_type for node in after.graph.node if node.op_type in ("Loop", "Scan")}
    assert kinds <= ({"Scan"} if marked else {"Loop"})
    assert_same(before, run(after, loop.feeds, optimised=False))
    assert_same(before, run(after, loop.feeds))
