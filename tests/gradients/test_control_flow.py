"""Gradients through loops and branches, against central differences in float64."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

import lstm_lower as ll
from lstm_lower.errors import UnsupportedOpError
from tests.support.differences import Array, check


def _model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model('<ir_version: 9, opset_import: ["" : 17]>\n' + text)


def _random(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape)


SCAN = """g (double[T,B,3] x, double[B,4] h0, double[3,4] w, double[4,4] u) => (double[T,B,4] ys, double[B,4] hT) {
  hT, ys = Scan <num_scan_inputs = 1, body = body (double[B,4] h, double[B,3] xt) => (double[B,4] h1, double[B,4] y) {
    a = MatMul(xt, w)  b = MatMul(h, u)  c = Add(a, b)  h1 = Tanh(c)  y = Mul(h1, h)
  }> (h0, x)
}"""

# Sequences along other axes, one of them walked backwards, made backwards; a state that does not change.
TURNED = """g (double[B,T] x, double[T,B] z, double[B] h0, double[B] k) => (double[B,T] ys, double[B] hT) {
  k1, hT, ys = Scan <num_scan_inputs = 2, scan_input_axes = [1, 0], scan_input_directions = [0, 1],
      scan_output_axes = [1], scan_output_directions = [1],
      body = body (double[B] same, double[B] h, double[B] a, double[B] b)
          => (double[B] same1, double[B] h1, double[B] y) {
    same1 = Identity(same)  c = Mul(a, h)  d = Mul(b, same)  h1 = Add(c, d)  y = Sin(h1)
  }> (k, h0, x, z)
}"""

COUNTED = """g (double[6,4] x, double[4] h0, double[4] u, int64 n) => (double[4] hT, double[K,4] ys) {
  going = Constant <value = bool {1}> ()
  hT, ys = Loop <body = body (int64 i, bool c, double[4] h) => (bool c1, double[4] h1, double[4] y) {
    c1 = Identity(c)
    xt = Gather(x, i)  a = Mul(h, u)  b = Add(a, xt)  h1 = Sin(b)  y = Mul(h1, h)
  }> (n, going, h0)
}"""

UNTIL = """g (double[4] h0, double[4] u, double limit) => (double[4] hT) {
  going = Constant <value = bool {1}> ()
  hT = Loop <body = body (int64 i, bool c, double[4] h) => (bool c1, double[4] h1) {
    a = Mul(h, u)  h1 = Add(a, h)  s = ReduceSum <keepdims = 0> (h1)  t = Abs(s)  c1 = Less(t, limit)
  }> (, going, h0)
}"""

# What a step overwrites only matters where there is no step.
OVERWRITTEN = """g (double[4] h0, double[4] u, int64 n) => (double[4] hT) {
  going = Constant <value = bool {1}> ()
  hT = Loop <body = body (int64 i, bool c, double[4] h) => (bool c1, double[4] h1) {
    c1 = Identity(c)  h1 = Sin(u)
  }> (n, going, h0)
}"""

CHOICE = """g (double[4] x, double[4] u, bool b) => (double[4] y) {
  a = Exp(x)
  y = If (b) <then_branch = t () => (double[4] yt) { p = Mul(a, u) yt = Sin(p) },
              else_branch = e () => (double[4] ye) { q = Mul(a, a) ye = Add(q, x) }>
}"""

NESTED = """g (double[T,B,3] x, double[B,4] h0, double[3,4] w, double[4,4] u) => (double[B,4] hT) {
  hT = Scan <num_scan_inputs = 1, body = body (double[B,4] h, double[B,3] xt) => (double[B,4] h1) {
    a = MatMul(xt, w)
    s = ReduceSum <keepdims = 0> (xt)  zero = Constant <value = double {0.0}> ()  b = Greater(s, zero)
    g = If (b) <then_branch = t () => (double[B,4] yt) { p = MatMul(h, u)  yt = Tanh(p) },
                else_branch = e () => (double[B,4] ye) { ye = Mul(h, h) }>
    three = Constant <value = int64 {3}> ()  going = Constant <value = bool {1}> ()
    k = Loop <body = inner (int64 i, bool c, double[B,4] z) => (bool c1, double[B,4] z1) {
      c1 = Identity(c)  z2 = Mul(z, g)  z1 = Sin(z2)
    }> (three, going, a)
    h1 = Add(k, g)
  }> (h0, x)
}"""

_SEQUENCE = {"x": _random(5, 2, 3) / 2, "h0": _random(2, 4), "w": _random(3, 4), "u": _random(4, 4)}
_COUNTED = {"x": _random(6, 4), "h0": _random(4), "u": _random(4)}

# Of other ranks in each branch, which is all that is known of the gradient where it comes in.
# Exporters begin a state that each step overwrites with any tensor.
BEGUN_ANYHOW = """g (double[B,3] x, double limit) => (double[C,3] y, double[D,3] z) {
  going = Constant <value = bool {1}> ()  zero = Constant <value = double {0.0}> ()
  y, z = Loop <body = body (int64 i, bool c, double[P,3] d, double[Q,3] h)
      => (bool c1, double[R,3] d1, double[S,3] h1) {
    d1 = Mul(h, x)  h1 = Add(d1, x)  s = ReduceSum <keepdims = 0> (h1)  c1 = Less(s, limit)
  }> (, going, zero, x)
}"""

RANKS = """g (double[B,1,T] x, bool b) => (double z) {
  y = If (b) <
    then_branch = yes () => (double[B,T] p) { axis = Constant <value_ints = [1]> ()  p = Squeeze(x, axis) },
    else_branch = no () => (double[B,1,T] q) { q = Identity(x) }
  >
  s = Sin(y)  m = ReduceMean <axes = [-1]> (s)  z = ReduceSum <keepdims = 0> (m)
}"""

# Of other sizes in each branch, one of which passes the gradient on as it is.
SIZES = """g (double[2] x, double[4] u, bool b) => (double[M] y) {
  y = If (b) <then_branch = yes () => (double[4] p) { p = Sin(u) },
              else_branch = no () => (double[2] q) { q = Identity(x) }>
}"""

# Nobody knows the rank of what the steps of a Scan in a Scan read.
ANY_RANK = """g (double[T,2] x, double[R] flat, int64[A] sizes) => (double[2] h) {
  any = Reshape(flat, sizes)  one = Constant <value = double {1.0}> ()  x0 = Constant <value = double[2] {1, 2}> ()
  h = Scan <num_scan_inputs = 1, body = body (double[2] h, double[2] xt) => (double[2] h1) {
    z = Scan <num_scan_inputs = 1, body = inner (double z, double e) => (double z1) {
      a = ReduceSum <keepdims = 0> (any)  b = Mul(z, a)  d = Sin(b)  z1 = Add(d, e)
    }> (one, xt)
    h1 = Mul(h, z)
  }> (x0, x)
}"""

CASES = {
    "scan": (SCAN, _SEQUENCE),
    "scan_turned": (TURNED, {"x": _random(2, 5), "z": _random(5, 2), "h0": _random(2), "k": _random(2) + 1}),
    "loop": (COUNTED, _COUNTED | {"n": np.asarray(4)}),
    "loop_of_no_steps": (COUNTED, _COUNTED | {"n": np.asarray(0)}),
    "while": (UNTIL, {"h0": np.abs(_random(4)), "u": np.abs(_random(4)) / 4, "limit": np.asarray(40.0)}),
    "overwritten": (OVERWRITTEN, {"h0": _random(4), "u": _random(4), "n": np.asarray(2)}),
    "never_overwritten": (OVERWRITTEN, {"h0": _random(4), "u": _random(4), "n": np.asarray(0)}),
    "begun_anyhow": (BEGUN_ANYHOW, {"x": np.abs(_random(2, 3)) + 1, "limit": np.asarray(400.0)}),
    "then": (CHOICE, {"x": _random(4), "u": _random(4), "b": np.asarray(1, bool)}),
    "else": (CHOICE, {"x": _random(4), "u": _random(4), "b": np.asarray(0, bool)}),
    "nested": (NESTED, _SEQUENCE),
    "flat": (RANKS, {"x": _random(2, 1, 4), "b": np.asarray(1, bool)}),
    "long": (SIZES, {"x": _random(2), "u": _random(4), "b": np.asarray(1, bool)}),
    "short": (SIZES, {"x": _random(2), "u": _random(4), "b": np.asarray(0, bool)}),
    "any_rank": (ANY_RANK, {"x": _random(3, 2), "flat": _random(6), "sizes": np.asarray([3, 1, 2])}),
    "deep": (RANKS, {"x": _random(2, 1, 4), "b": np.asarray(0, bool)}),
}


@pytest.mark.parametrize("name", CASES)
def test_every_output(name: str) -> None:
    model, feeds = _model(CASES[name][0]), CASES[name][1]
    wrt = [key for key, value in feeds.items() if value.dtype.kind == "f" and key != "limit"]
    for output in model.graph.output:
        check(model, feeds, of=output.name, wrt=wrt)


@pytest.mark.parametrize("name", ["scan", "while", "then", "nested"])
def test_twice(name: str) -> None:
    text, feeds = CASES[name]
    once = ll.gradient(_model(text), _model(text).graph.output[-1].name, ["u"], seeds=True)
    seed = next(x for x in once.graph.input if x.name.startswith("seed/"))
    shape = {"scan": (2, 4), "nested": (2, 4)}.get(name, (4,))
    wrt = [key for key, value in feeds.items() if value.dtype.kind == "f" and key != "limit"]
    check(once, feeds | {seed.name: _random(*shape)}, of="grad/u", wrt=wrt)


def test_what_a_loop_only_passes_on_is_not_saved_in_every_step() -> None:
    """Exporters make states of all that a loop reads; of 500 steps there would be 500 copies of each weight."""
    model = _model("""g (float[4] h0, float[4,4] w0, float limit) => (float[4] hT) {
      going = Constant <value = bool {1}> ()
      hT, wT = Loop <body = body (int64 i, bool c, float[4] h, float[4,4] w) => (bool c1, float[4] h1, float[4,4] w1) {
        a = MatMul(h, w)  h1 = Tanh(a)  s = ReduceSum <keepdims = 0> (h1)  c1 = Less(s, limit)  w1 = Identity(w)
      }> (, going, h0, w0)
    }""")
    gradient = ll.gradient(model, of="hT", wrt=["h0", "w0"], seeds=True)
    forward = next(node for node in gradient.graph.node if node.op_type == "Loop")
    sizes = [len(value.type.tensor_type.shape.dim) for value in forward.attribute[0].g.output]
    assert sizes.count(2) == 0, "matrices are made by the steps"


def test_open_sizes_stay_open() -> None:
    model = ll.gradient(_model(SCAN), "hT", ["x"], seeds=True)
    for steps in (1, 3, 20):
        check(_model(SCAN), _SEQUENCE | {"x": _random(steps, 2, 3)}, of="hT")
    sizes = [dim.dim_param for dim in model.graph.output[-1].type.tensor_type.shape.dim]
    assert sizes[:2] == ["T", "B"]


# A branch that hands its operand on, or draws which of its elements.
DROPPED = """g (double[4] x, double[4] u, bool b) => (double[4] y) {{
  half = Constant <value = double {{0.5}}> ()
  yes = Constant <value = bool {{1}}> ()  no = Constant <value = bool {{0}}> ()
  y = If (b) <then_branch = t () => (double[4] yt) {{ p = Mul(x, u) q = Dropout{drawn} yt = Sin(q) }},
              else_branch = e () => (double[4] ye) {{ ye = Mul(u, u) }}>
}}"""


@pytest.mark.parametrize("drawn", ["(p)", "(p, half)", "(p, half, no)"])
def test_dropout_that_does_not_train_is_not_random(drawn: str) -> None:
    check(_model(DROPPED.format(drawn=drawn)), {"x": _random(4), "u": _random(4), "b": np.ones((), bool)})


@pytest.mark.parametrize("drawn", ["(p, half, yes)", "(p, half, b)"])
def test_a_branch_that_draws_is_refused(drawn: str) -> None:
    with pytest.raises(UnsupportedOpError, match=r"then requires nothing random, .* got Dropout"):
        ll.gradient(_model(DROPPED.format(drawn=drawn)), "y", ["u"], seeds=True)
