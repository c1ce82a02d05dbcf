"""Loops over the cells of the block family, as users' graphs hold them: in the body of a Scan, and one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from lstm_lower.runtime.proof.oracles.registry import ORACLES
from tests.support.models import DOMAIN

T, B, I, H = 7, 2, 3, 4  # noqa: E741
WEIGHTS = {"w_ru": (I + H, 2 * H), "w_c": (I + H, H), "b_ru": (2 * H,), "b_c": (H,)}
SHAPES = {"x": (T, B, I), "h0": (B, H), "dy": (T, B, H), "dh": (B, H), **WEIGHTS}
_HEAD = f'<ir_version: 9, opset_import: ["" : 18, "{DOMAIN}" : 1]>'
_CELL = f"{DOMAIN}.GRUBlockCell"


def feeds(seed: int = 0) -> dict[str, np.ndarray]:
    """Random inputs of the models."""
    random = np.random.default_rng(seed)
    return {name: random.standard_normal(shape).astype(np.float32) * 0.5 for name, shape in SHAPES.items()}


def _declared(shapes: dict[str, tuple[int, ...]]) -> str:
    return ", ".join(f"float[{','.join(map(str, shape))}] {name}" for name, shape in shapes.items())


_RESULTS = {"y": (T, B, H), "dx": (T, B, I), "dh0": (B, H), **{f"d{name}": shape for name, shape in WEIGHTS.items()}}
_GRAPH = f"{_HEAD} gru ({_declared(SHAPES)}) => ({_declared(_RESULTS)})"

# What TensorFlow's while loops become: the gradients of the weights are carried sums of products.
_LOOPS = f"""{_GRAPH}
{{
  last, rs, us, cs, y, before = Scan <num_scan_inputs = 1,
    body = forward (float[{B},{H}] h, float[{B},{I}] xt)
      => (float[{B},{H}] hn, float[{B},{H}] r, float[{B},{H}] u, float[{B},{H}] c, float[{B},{H}] yt, float[{B},{H}] hp)
    {{ r, u, c, hn = {_CELL} (xt, h, w_ru, w_c, b_ru, b_c) yt = Identity(hn) hp = Identity(h) }}>
    (h0, x)
  size_ru = Shape(w_ru)
  size_c = Shape(w_c)
  size_bru = Shape(b_ru)
  size_bc = Shape(b_c)
  z_ru = ConstantOfShape(size_ru)
  z_c = ConstantOfShape(size_c)
  z_bru = ConstantOfShape(size_bru)
  z_bc = ConstantOfShape(size_bc)
  dh0, dw_ru, dw_c, db_ru, db_c, dx = Scan <num_scan_inputs = 6, scan_input_directions = [1, 1, 1, 1, 1, 1],
    scan_output_directions = [1],
    body = backward (float[{B},{H}] d, float[{I + H},{2 * H}] g_ru, float[{I + H},{H}] g_c, float[{2 * H}] g_bru,
      float[{H}] g_bc, float[{B},{I}] xt, float[{B},{H}] hp, float[{B},{H}] r, float[{B},{H}] u, float[{B},{H}] c,
      float[{B},{H}] dyt)
      => (float[{B},{H}] dn, float[{I + H},{2 * H}] n_ru, float[{I + H},{H}] n_c, float[{2 * H}] n_bru,
      float[{H}] n_bc, float[{B},{I}] dxt)
    {{
      total = Add(d, dyt)
      dxt, dn, d_c, d_ru = {_CELL}Grad (xt, hp, w_ru, w_c, b_ru, b_c, r, u, c, total)
      xh = Concat <axis = 1> (xt, hp)
      xh_t = Transpose <perm = [1, 0]> (xh)
      p_ru = MatMul(xh_t, d_ru)
      n_ru = Add(g_ru, p_ru)
      hr = Mul(hp, r)
      xhr = Concat <axis = 1> (xt, hr)
      xhr_t = Transpose <perm = [1, 0]> (xhr)
      p_c = MatMul(xhr_t, d_c)
      n_c = Add(g_c, p_c)
      rows = Constant <value = int64[1] {{0}}> ()
      s_ru = ReduceSum <keepdims = 0> (d_ru, rows)
      n_bru = Add(g_bru, s_ru)
      s_c = ReduceSum <keepdims = 0> (d_c, rows)
      n_bc = Add(g_bc, s_c)
    }}>
    (dh, z_ru, z_c, z_bru, z_bc, x, before, rs, us, cs, dy)
}}"""


def gru_loops() -> onnx.ModelProto:
    """A GRU forward and backward, each cell in the body of a Scan."""
    return onnx.parser.parse_model(_LOOPS)


def gru_steps() -> onnx.ModelProto:
    """The same, cell by cell."""
    lines = [f"i{t} = Constant <value = int64 {{{t}}}> () x{t} = Gather(x, i{t})" for t in range(T)]
    lines += [f"dy{t} = Gather(dy, i{t})" for t in range(T)]
    weights = "w_ru, w_c, b_ru, b_c"
    for t in range(T):
        lines.append(f"r{t}, u{t}, c{t}, h{t + 1} = {_CELL} (x{t}, h{t}, {weights})")
    lines.append("axis0 = Constant <value = int64[1] {0}> ()")
    for t in reversed(range(T)):
        after = "dh" if t == T - 1 else f"dn{t + 1}"
        target = "dh0" if t == 0 else f"dn{t}"
        lines.append(f"total{t} = Add({after}, dy{t})")
        saved = f"r{t}, u{t}, c{t}, total{t}"
        lines.append(f"dx{t}, {target}, d_c{t}, d_ru{t} = {_CELL}Grad (x{t}, h{t}, {weights}, {saved})")
        lines.append(f"xh{t} = Concat <axis = 1> (x{t}, h{t}) xht{t} = Transpose <perm = [1, 0]> (xh{t})")
        lines.append(f"hr{t} = Mul(h{t}, r{t}) xhr{t} = Concat <axis = 1> (x{t}, hr{t})")
        lines.append(f"xhrt{t} = Transpose <perm = [1, 0]> (xhr{t})")
        lines.append(f"p_ru{t} = MatMul(xht{t}, d_ru{t}) p_c{t} = MatMul(xhrt{t}, d_c{t})")
        lines.append(f"s_ru{t} = ReduceSum <keepdims = 0> (d_ru{t}, axis0)")
        lines.append(f"s_c{t} = ReduceSum <keepdims = 0> (d_c{t}, axis0)")
        lines.append(f"ux{t} = Unsqueeze(dx{t}, axis0) uy{t} = Unsqueeze(h{t + 1}, axis0)")
    for name, part in (("dw_ru", "p_ru"), ("dw_c", "p_c"), ("db_ru", "s_ru"), ("db_c", "s_c")):
        lines.append(f"{name} = Sum({', '.join(f'{part}{t}' for t in range(T))})")
    for name, part in (("dx", "ux"), ("y", "uy")):
        lines.append(f"{name} = Concat <axis = 0> ({', '.join(f'{part}{t}' for t in range(T))})")
    body = "\n".join(lines)
    return onnx.parser.parse_model(f"{_GRAPH} {{\n{body}\n}}")


def expected(given: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The results in float64, cell by cell from the oracles."""
    wide = {name: value.astype(np.float64) for name, value in given.items()}
    weights = {name: wide[name] for name in WEIGHTS}
    h, saved, hs = wide["h0"], [], []
    for t in range(T):
        step: dict[str, Any] = {"x": wide["x"][t], "h_prev": h, **weights}
        out = ORACLES["GRUBlockCell"](**step)
        saved.append({**step, **{name: out[name] for name in ("r", "u", "c")}})
        h = out["h"]
        hs.append(h)
    sums = {name: np.zeros(shape) for name, shape in WEIGHTS.items()}
    dh, dxs = wide["dh"], []
    for t in reversed(range(T)):
        step = saved[t]
        grad = ORACLES["GRUBlockCellGrad"](**step, d_h=dh + wide["dy"][t])
        d_ru, d_c = grad["d_r_bar_u_bar"], grad["d_c_bar"]
        sums["w_ru"] += np.concatenate([step["x"], step["h_prev"]], 1).T @ d_ru
        sums["w_c"] += np.concatenate([step["x"], step["h_prev"] * step["r"]], 1).T @ d_c
        sums["b_ru"] += d_ru.sum(0)
        sums["b_c"] += d_c.sum(0)
        dh = grad["d_h_prev"]
        dxs.insert(0, grad["d_x"])
    return [np.stack(hs), np.stack(dxs), dh, *(sums[name] for name in WEIGHTS)]
