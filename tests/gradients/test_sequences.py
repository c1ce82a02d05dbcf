"""Gradients through static sequences and optional values, against central differences in float64."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

import lstm_lower as ll
from tests.support.differences import check

MODELS = {
    "construct": """
        s = SequenceConstruct(x, z, x)  one = Constant <value = int64 {1}> ()  last = Constant <value = int64 {-1}> ()
        a = SequenceAt(s, one)  b = SequenceAt(s, last)  c = Sin(a)  y = Mul(c, b)""",
    "insert and erase": """
        e = SequenceEmpty <dtype = 11> ()  zero = Constant <value = int64 {0}> ()
        last = Constant <value = int64 {-1}> ()
        s1 = SequenceInsert(e, x)  s2 = SequenceInsert(s1, z, zero)  w = Mul(x, z)  s3 = SequenceInsert(s2, w, last)
        s4 = SequenceErase(s3, zero)  s5 = SequenceErase(s3)  a = ConcatFromSequence <axis = 1> (s4)
        b = ConcatFromSequence <axis = -1, new_axis = 1> (s5)  c = ReduceSum <keepdims = 0> (b)  y = Mul(a, c)""",
    "split": """
        s = SplitToSequence <axis = 1, keepdims = 0> (x)  two = Constant <value = int64 {2}> ()
        t = SplitToSequence <axis = 0> (z, two)  n = SequenceLength(s)  m = Cast <to = 11> (n)
        a = ConcatFromSequence <axis = 0> (s)  zero = Constant <value = int64 {0}> ()  b = SequenceAt(t, zero)
        c = ReduceSum <keepdims = 0> (b)  d = Mul(a, c)  y = Mul(d, m)""",
    "split by sizes": """
        sizes = Constant <value = int64[2] {1, 3}> ()  s = SplitToSequence <axis = -1> (x, sizes)
        one = Constant <value = int64 {1}> ()  a = SequenceAt(s, one)  t = Identity(s)
        zero = Constant <value = int64 {0}> ()
        b = SequenceAt(t, zero)  c = Mul(a, b)  d = ReduceSum <keepdims = 0> (z)  y = Mul(c, d)""",
    "map": """
        s = SequenceConstruct(x, z)  t = SequenceConstruct(z, z)
        u, v = SequenceMap <body = f (double[3,4] a, double[3,4] b, double[3,4] c) => (double[3,4] d, double[3,4] e) {
          p = Mul(a, b)  d = Sin(p)  e = Mul(d, c) }> (s, t, x)
        k = ConcatFromSequence <axis = 0> (u)  l = ConcatFromSequence <axis = 0> (v)  y = Add(k, l)""",
    "optional": """
        o = Optional(x)  h = OptionalHasElement(o)  a = OptionalGetElement(o)  w = Cast <to = 11> (h)  b = Mul(a, z)
        s = SequenceConstruct(b, x)  q = Optional(s)  r = OptionalGetElement(q)  c = ConcatFromSequence <axis = 0> (r)
        y = Mul(c, w)""",
    "body": """
        going = Constant <value = bool {1}> ()  three = Constant <value = int64 {3}> ()
        y = Loop <body = f (int64 i, bool c, double[3,4] h) => (bool c1, double[3,4] h1) {
          c1 = Identity(c)  s = SequenceConstruct(h, z)  zero = Constant <value = int64 {0}> ()
          one = Constant <value = int64 {1}> ()  a = SequenceAt(s, zero)  b = SequenceAt(s, one)  d = Mul(a, b)
          h1 = Sin(d) }> (three, going, x)""",
}


def _model(text: str, output: str = "double[M, N] y") -> onnx.ModelProto:
    head = '<ir_version: 9, opset_import: ["" : 18]>\n'
    return onnx.parser.parse_model(f"{head} g (double[3,4] x, double[3,4] z) => ({output}) {{{text}}}")


GROWN = {
    "stacked": "y = ConcatFromSequence <axis = 0, new_axis = 1> (s)",
    "stacked behind": "t = ConcatFromSequence <axis = -1, new_axis = 1> (s)  y = Transpose <perm = [1, 0]> (t)",
    "joined": """t = ConcatFromSequence <axis = 0> (s)  shape = Constant <value = int64[2] {-1, 4}> ()
        y = Reshape(t, shape)""",
    "read": """two = Constant <value = int64 {-2}> ()  a = SequenceAt(s, two)  one = Constant <value = int64[1] {0}> ()
        b = Unsqueeze(a, one)  n = SequenceLength(s)  m = Cast <to = 11> (n)  y = Mul(b, m)""",
}


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("how", GROWN)
def test_grown_by_a_loop(how: str, counted: bool) -> None:
    condition = "c1 = Identity(c)" if counted else "m = ReduceMax <keepdims = 0> (h1)  c1 = Less(m, two)"
    model = onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 18]>
      g (double[3,4] x, double[4] h0) => (double[M, 4] y) {{
        going = Constant <value = bool {{1}}> ()  three = Constant <value = int64 {{3}}> ()
        two = Constant <value = double {{2.0}}> ()  e = SequenceEmpty <dtype = 11> ()
        s, h = Loop <body = f (int64 i, bool c, seq(double[4]) q, double[4] h)
            => (bool c1, seq(double[4]) q1, double[4] h1) {{
          xt = Gather(x, i)  a = Mul(h, xt)  h1 = Sin(a)  q1 = SequenceInsert(q, h1)  {condition}
        }}> (three, going, e, h0)
        {GROWN[how].replace("two", "place")} }}""")
    rng = np.random.default_rng(0)
    check(model, {"x": rng.standard_normal((3, 4)), "h0": rng.standard_normal(4)})


@pytest.mark.parametrize("name", MODELS)
def test_static(name: str) -> None:
    rng = np.random.default_rng(0)
    feeds = {"x": rng.standard_normal((3, 4)), "z": rng.standard_normal((3, 4))}
    model = _model(MODELS[name], "double[N] y" if name == "split" else "double[M, N] y")
    check(model, feeds)


def test_what_is_known_at_run_time_only_is_refused() -> None:
    text = (
        """s = SequenceConstruct(x, z)  n = ReduceSum <keepdims = 0> (x)  k = Cast <to = 7> (n)  y = SequenceAt(s, k)"""
    )
    with pytest.raises(ll.UnsupportedOpError, match="SequenceAt 'y': its gradient requires a rule"):
        ll.gradient(_model(text), "y", ["x"], seeds=True)


def test_a_map_of_a_sequence_from_outside_is_refused() -> None:
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 18]>
      g (seq(double[N]) s, double[N] z) => (double[M] y) {
        t = SequenceMap <body = f (double[N] a) => (double[N] b) { b = Mul(a, z) }> (s)
        y = ConcatFromSequence <axis = 0> (t) }""")
    with pytest.raises(ll.UnsupportedOpError, match=r"SequenceMap '.*': its gradient requires sequences of a known"):
        ll.gradient(model, "y", ["z"], seeds=True)
