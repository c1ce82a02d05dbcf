"""An LSTM's forward and backward pass as frameworks with `while` write them: Loops, counters, stacks, carried sums."""

from __future__ import annotations

import numpy as np
import onnx

from lstm_lower.graph.standard import AT_LEAST_ONE, STEPS

# Time, batch and hidden sizes are open; the forward loop saves what the backward one needs.
LSTM = """
<ir_version: 10, opset_import: ["" : 18]>
lstm (float[T,B,{i}] x, float[{n},{g}] w, float[{g}] b, float[B,{h}] h0, float[B,{h}] c0, float[T,B,{h}] dhs)
  => (float[T,B,{h}] hs, float[B,{h}] h_last, float[B,{h}] c_last, float[T,B,{i}] dx, float[{n},{g}] dw, float[{g}] db,
      float[B,{h}] dh0, float[B,{h}] dc0, {counter} steps)
{{
  zero = Constant <value = {counter} {{0}}> ()
  one = Constant <value = {counter} {{1}}> ()
  axis = Constant <value = int64 {{0}}> ()
  shape = Shape (x)
  T64 = Gather <axis = 0> (shape, axis)
  T = Cast <to = {dtype}> (T64)
  {start}
  h_last, c_last, steps, other_steps, hs, hp, cp, si, sf, sg, so, cs = Loop <body = forward
    (int64 it, bool go, float[B,{h}] h, float[B,{h}] c, {counter} t, {counter} u)
    => (bool on, float[B,{h}] h2, float[B,{h}] c2, {counter} t2, {counter} u2, float[B,{h}] ys, float[B,{h}] h_in,
        float[B,{h}] c_in, float[B,{h}] i, float[B,{h}] f, float[B,{h}] g, float[B,{h}] o, float[B,{h}] c_out)
  {{
    t2 = Add (t, one)
    u2 = Add (u, one)
    in_time = Less (t2, T)
    in_bound = Less (u2, T)
    on = And (in_time, in_bound)
    xt = Gather <axis = 0> (x, t)
    xh = Concat <axis = 1> (xt, h)
    z = MatMul (xh, w)
    zb = Add (z, b)
    zi, zg, zf, zo = Split <axis = 1, num_outputs = 4> (zb)
    i = Sigmoid (zi)
    g = Tanh (zg)
    forget = Constant <value = float {{1.0}}> ()
    zff = Add (zf, forget)
    f = Sigmoid (zff)
    o = Sigmoid (zo)
    fc = Mul (f, c)
    ig = Mul (i, g)
    c2 = Add (fc, ig)
    tc = Tanh (c2)
    h2 = Mul (o, tc)
    ys = Identity (h2)
    h_in = Identity (h)
    c_in = Identity (c)
    c_out = Identity (c2)
  }}> ("", start, h0, c0, zero, zero)
  {length}
  more = GreaterOrEqual (steps, one)
  dw0 = ConstantOfShape <value = float[1] {{0}}> (w_shape)
  w_shape = Shape (w)
  db0 = ConstantOfShape <value = float[1] {{0}}> (b_shape)
  b_shape = Shape (b)
  zeros = ConstantOfShape <value = float[1] {{0}}> (c_shape)
  c_shape = Shape (c0)
  left, dh0, dc0, dw, db, dx_turned = Loop <body = backward
    (int64 jt, bool bgo, {counter} k, float[B,{h}] dh, float[B,{h}] dc, float[{n},{g}] aw, float[{g}] ab)
    => (bool bon, {counter} k2, float[B,{h}] dh2, float[B,{h}] dc2, float[{n},{g}] aw2, float[{g}] ab2,
        float[B,{i}] dxt)
  {{
    k2 = Sub (k, one)
    bon = GreaterOrEqual (k2, one)
    at = {pop}
    bxt = Gather <axis = 0> (x, at)
    bh = Gather <axis = 0> (hp, at)
    bc = Gather <axis = 0> (cp, at)
    bi = Gather <axis = 0> (si, at)
    bf = Gather <axis = 0> (sf, at)
    bg = Gather <axis = 0> (sg, at)
    bo = Gather <axis = 0> (so, at)
    bcs = Gather <axis = 0> (cs, at)
    dht = Gather <axis = 0> (dhs, at)
    unit = Constant <value = float {{1.0}}> ()
    dh_all = Add (dh, dht)
    btc = Tanh (bcs)
    btc2 = Mul (btc, btc)
    dtanh = Sub (unit, btc2)
    do = Mul (dh_all, btc)
    dco = Mul (dh_all, bo)
    dct = Mul (dco, dtanh)
    dc_all = Add (dc, dct)
    di = Mul (dc_all, bg)
    dg = Mul (dc_all, bi)
    df = Mul (dc_all, bc)
    dc2 = Mul (dc_all, bf)
    i1 = Sub (unit, bi)
    i2 = Mul (bi, i1)
    dzi = Mul (di, i2)
    f1 = Sub (unit, bf)
    f2 = Mul (bf, f1)
    dzf = Mul (df, f2)
    o1 = Sub (unit, bo)
    o2 = Mul (bo, o1)
    dzo = Mul (do, o2)
    g1 = Mul (bg, bg)
    g2 = Sub (unit, g1)
    dzg = Mul (dg, g2)
    dz = Concat <axis = 1> (dzi, dzg, dzf, dzo)
    wt = Transpose <perm = [1, 0]> (w)
    dxh = MatMul (dz, wt)
    parts = Constant <value = int64[2] {{{i}, {h}}}> ()
    dxt, dh2 = Split <axis = 1> (dxh, parts)
    bxh = Concat <axis = 1> (bxt, bh)
    bxht = Transpose <perm = [1, 0]> (bxh)
    dwt = MatMul (bxht, dz)
    aw2 = Add (aw, dwt)
    rows = Constant <value = int64[1] {{0}}> ()
    dbt = ReduceSum <keepdims = 0> (dz, rows)
    ab2 = Add (ab, dbt)
  }}> ("", more, steps, zeros, zeros, dw0, db0)
  last_row = Constant <value = int64[1] {{-1}}> ()
  beyond = Constant <value = int64[1] {{-9223372036854775807}}> ()
  rows_axis = Constant <value = int64[1] {{0}}> ()
  dx = Slice (dx_turned, last_row, beyond, rows_axis, last_row)
}}"""

FORMS = {
    # What each stack holds at its top: the length of what is read, or the counter of the loop that pushed.
    "length": ("length = Sub (T64, one64) one64 = Constant <value = int64 {1}> ()", "Sub (length, jt)"),
    "counter": ("last = Sub (steps, one)", "Sub (k, one)"),
    "counted down": (
        "s64 = Cast <to = 7> (steps) length = Sub (s64, one64) one64 = Constant <value = int64 {1}> ()",
        "Sub (length, jt)",
    ),
}
SMALL = 3, 4


def lstm(
    form: str = "length", *, counter: str = "int32", mark: bool = True, sizes: tuple[int, int] = SMALL
) -> onnx.ModelProto:
    """The model, its nodes in order."""
    units, hidden = sizes
    length, pop = FORMS[form]
    text = LSTM.format(
        i=units,
        h=hidden,
        n=units + hidden,
        g=4 * hidden,
        counter=counter,
        dtype=6 if counter == "int32" else 7,
        start="start_t = Less (zero, T) start = And (start_t, start_t)",
        length=length,
        pop=pop,
    )
    model = onnx.parser.parse_model(text)
    _sort(model.graph)
    if mark:
        for node in model.graph.node:
            if node.op_type == "Loop":
                node.metadata_props.add(key=STEPS, value=AT_LEAST_ONE)
    return model


def _sort(graph: onnx.GraphProto) -> None:
    """Puts every node behind those that it reads."""
    known = {x.name for x in graph.input} | {""}
    made = {name for node in graph.node for name in node.output}
    waiting = list(graph.node)
    ordered: list[onnx.NodeProto] = []
    while waiting:
        node = next(n for n in waiting if all(name in known or name not in made for name in _read(n)))
        waiting.remove(node)
        known.update(node.output)
        ordered.append(node)
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in ordered]
    del graph.node[:]
    graph.node.extend(copies)


def _read(node: onnx.NodeProto) -> set[str]:
    found = set(node.input)
    for attribute in node.attribute:
        for inner in attribute.g.node:
            found |= _read(inner)
    return found


def feeds(steps: int, batch: int, sizes: tuple[int, int] = SMALL) -> dict[str, np.ndarray]:
    """Random feeds."""
    random = np.random.default_rng(steps * 10 + batch)
    units, hidden = sizes
    shapes = {
        "x": (steps, batch, units),
        "w": (units + hidden, 4 * hidden),
        "b": (4 * hidden,),
        "h0": (batch, hidden),
        "c0": (batch, hidden),
        "dhs": (steps, batch, hidden),
    }
    return {name: (random.standard_normal(shape) * 0.5).astype(np.float32) for name, shape in shapes.items()}
