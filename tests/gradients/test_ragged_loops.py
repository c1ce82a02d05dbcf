"""Gradients through loops whose steps make values of different sizes, against central differences in float64."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

import lstm_lower as ll
from tests.support.differences import Array, check, run


def _model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model('<ir_version: 9, opset_import: ["" : 18]>\n' + text)


def _random(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape)


# A decoder that reads all it has made so far.
CACHE = """g (double[T,D] x, double[D] h0, double[D,D] w, int64 n, double[P,D] past) => (double[D] h, double[M,D] all) {
  going = Constant <value = bool {1}> ()
  h, all, s = Loop <body = body (int64 i, bool c, double[D] h, double[K,D] keys)
      => (bool c1, double[D] h1, double[L,D] k1, double s) {
    c1 = Identity(c)  xt = Gather(x, i)  u = MatMul(h, w)  a = Add(u, xt)  query = Tanh(a)
    axis = Constant <value = int64[1] {0}> ()  key = Unsqueeze(query, axis)  k1 = Concat <axis = 0> (keys, key)
    scores = MatMul(k1, query)  p = Softmax(scores)  h1 = MatMul(p, k1)  s = ReduceMax <keepdims = 0> (p)
  }> (n, going, h0, past)
}"""

# Whole prefixes of a sequence.
PREFIX = """g (double[T,2] x, double[2] w, int64 n) => (double[M] y) {
  going = Constant <value = bool {1}> ()
  y = Loop <body = body (int64 i, bool c) => (bool c1, double s) {
    c1 = Identity(c)  one = Constant <value = int64[1] {1}> ()  zero = Constant <value = int64[1] {0}> ()
    to = Add(i, one)  part = Slice(x, zero, to, zero)  a = Mul(part, w)  b = Sin(a)  d = Mul(b, b)
    s = ReduceSum <keepdims = 0> (d)
  }> (n, going)
}"""

# As many inner steps as the outer one's number says.
TRIANGLE = """g (double[2] h0, double[2] w, int64 n) => (double[2] h) {
  going = Constant <value = bool {1}> ()
  h = Loop <body = body (int64 i, bool c, double[2] h) => (bool c1, double[2] h1) {
    c1 = Identity(c)
    h1 = Loop <body = inner (int64 j, bool d, double[2] z) => (bool d1, double[2] z1) {
      d1 = Identity(d)  a = Mul(z, w)  z1 = Sin(a)
    }> (i, going, h)
  }> (n, going, h0)
}"""

# The same in a Scan, with steps that may be none.
SCANNED = """g (double[T,2] x, double[2] h0, double[2] w, int64[T] counts) => (double[2,T] ys, double[2] h) {
  going = Constant <value = bool {1}> ()
  h, ys = Scan <num_scan_inputs = 2, scan_input_directions = [1, 1], scan_output_directions = [1],
      scan_output_axes = [1], body = body (double[2] h, double[2] xt, int64 k) => (double[2] h1, double[2] y) {
    z = Loop <body = inner (int64 j, bool d, double[2] z) => (bool d1, double[2] z1) {
      d1 = Identity(d)  a = Mul(z, w)  z1 = Sin(a)
    }> (k, going, h)
    h1 = Add(z, xt)  y = Mul(h1, h)
  }> (h0, x, counts)
}"""

# What is chosen by its sign.
CHOSEN = """g (double[T,B] x, double[B] h0, double[B] w) => (double[B] h) {
  h = Scan <num_scan_inputs = 1, body = body (double[B] h, double[B] xt) => (double[B] h1) {
    zero = Constant <value = double {0.0}> ()  good = Greater(xt, zero)  kept = Compress <axis = 0> (xt, good)
    a = Exp(kept)  b = Mul(a, a)  s = ReduceSum <keepdims = 0> (b)  p = Mul(h, w)  q = Add(p, s)  h1 = Tanh(q)
  }> (h0, x)
}"""

# Pieces of a sequence that its maker joins.
JOINED = """g (double[T,2] x, double[2] w, int64 n) => (double[M,2] y) {
  going = Constant <value = bool {1}> ()  e = SequenceEmpty <dtype = 11> ()
  s = Loop <body = body (int64 i, bool c, seq(double[K,2]) q) => (bool c1, seq(double[K,2]) q1) {
    c1 = Identity(c)  one = Constant <value = int64[1] {1}> ()  zero = Constant <value = int64[1] {0}> ()
    to = Add(i, one)  part = Slice(x, zero, to, zero)  a = Mul(part, w)  b = Sin(a)  q1 = SequenceInsert(q, b)
  }> (n, going, e)
  y = ConcatFromSequence <axis = 0> (s)
}"""

# A state that each step overwrites with one of another size.
OVERWRITTEN = """g (double[T,2] x, double[2] w, int64 n) => (double[M,2] y) {
  going = Constant <value = bool {1}> ()
  y = Loop <body = body (int64 i, bool c, double[K,2] h) => (bool c1, double[L,2] h1) {
    c1 = Identity(c)  one = Constant <value = int64[1] {1}> ()  zero = Constant <value = int64[1] {0}> ()
    to = Add(i, one)  part = Slice(x, zero, to, zero)  a = Mul(part, w)  h1 = Sin(a)
  }> (n, going, x)
}"""

# One that each step overwrites with the same number of elements, which need not be the state's.
REPLACED = """g (double[J] h0, double[K] w, int64 n) => (double[M] y, double[J] z) {
  going = Constant <value = bool {1}> ()
  y = Loop <body = body (int64 i, bool c, double[P] h) => (bool c1, double[Q] h1) {
    c1 = Identity(c)  zero = Constant <value = int64[1] {0}> ()  two = Constant <value = int64[1] {2}> ()
    part = Slice(w, zero, two)  h1 = Sin(part)
  }> (n, going, h0)
  z = Exp(h0)
}"""

# States that change places, one of them empty at first.
SWAPPED = """g (double[T,2] x, double[2] w, int64 n) => (double[M,2] y, double[L,2] z) {
  going = Constant <value = bool {1}> ()  zero = Constant <value = int64[1] {0}> ()  none = Slice(x, zero, zero, zero)
  y, z = Loop <body = body (int64 i, bool c, double[J,2] a, double[K,2] b)
      => (bool c1, double[U,2] a1, double[V,2] b1) {
    c1 = Identity(c)  p = Mul(a, w)  b1 = Sin(p)  a1 = Exp(b)
  }> (n, going, x, none)
}"""

# A loop of two steps whose sizes only differ from one step of the loop around it to the next.
AROUND = """g (double[T,3] x, double[3] h0, double[3,3] w) => (double[3] h) {
  h = Scan <num_scan_inputs = 1, body = body (double[3] h, double[3] xt) => (double[3] h1) {
    going = Constant <value = bool {1}> ()  two = Constant <value = int64 {2}> ()  s = Size(h0)  n = Min(s, two)
    z = Loop <body = inner (int64 j, bool d, double[3] z) => (bool d1, double[3] z1) {
      d1 = Identity(d)  zero = Constant <value = double {0.0}> ()  good = Greater(xt, zero)
      rows = Compress <axis = 0> (w, good)  a = Mul(rows, z)  b = Sin(a)  none = Constant <value = int64[1] {0}> ()
      z1 = ReduceSum <keepdims = 0> (b, none)
    }> (n, going, h)
    h1 = Add(z, xt)
  }> (h0, x)
}"""

_CACHE = {"x": _random(6, 3), "h0": _random(3), "w": _random(3, 3)}
_WEIGHTS = {"h0": _random(2), "w": _random(2) + 1}
CASES = {
    "cache": (CACHE, [_CACHE | {"past": _random(p, 3), "n": np.asarray(n)} for p, n in ((1, 5), (2, 0))]),
    "prefix": (PREFIX, [{"x": _random(t, 2), "w": _random(2), "n": np.asarray(n)} for t, n in ((4, 6), (3, 0))]),
    "triangle": (TRIANGLE, [_WEIGHTS | {"n": np.asarray(n)} for n in (4, 0)]),
    "scanned": (
        SCANNED,
        [_WEIGHTS | {"x": _random(len(k), 2), "counts": np.asarray(k)} for k in ((2, 0, 3), (0,))],
    ),
    "chosen": (CHOSEN, [{"x": _random(t, 4), "h0": _random(4), "w": _random(4)} for t in (5, 1)]),
    "overwritten": (OVERWRITTEN, [{"x": _random(4, 2), "w": _random(2), "n": np.asarray(n)} for n in (3, 0)]),
    "replaced": (REPLACED, [{"h0": _random(1), "w": _random(4), "n": np.asarray(n)} for n in (3, 0)]),
    "swapped": (SWAPPED, [{"x": _random(3, 2), "w": _random(2), "n": np.asarray(n)} for n in (2,)]),
    "around": (AROUND, [{"x": _random(5, 3), "h0": _random(3), "w": _random(3, 3)}]),
    "joined": (JOINED, [{"x": _random(t, 2), "w": _random(2), "n": np.asarray(n)} for t, n in ((4, 3), (2, 1))]),
}


@pytest.mark.parametrize("name", CASES)
def test_steps_of_different_sizes(name: str) -> None:
    text, feeds = CASES[name]
    for fed in feeds:
        check(_model(text), fed)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "wrt"), [("cache", "w"), ("triangle", "w"), ("joined", "x")])
def test_twice(name: str, wrt: str) -> None:
    text, (feeds, *_) = CASES[name]
    model = _model(text)
    of = model.graph.output[0].name
    once = ll.gradient(model, of, wrt, seeds=True)
    check(once, feeds | {f"seed/{of}": _random(*run(model, feeds)[of].shape)}, of=f"grad/{wrt}")


def test_steps_of_one_size_are_stacked() -> None:
    text = CACHE.replace("k1 = Concat <axis = 0> (keys, key)", "k1 = Add(keys, key)").replace(
        "double[L,D]", "double[K,D]"
    )
    made = ll.gradient(_model(text), "h", "x", seeds=True)
    assert not any("Sequence" in node.op_type for node in made.graph.node)
