"""Gradients straight through quantization: PyTorch's formulas, and those of networks that onnxruntime's tools wrote."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import lstm_lower as ll
from lstm_lower.errors import UnsupportedOpError
from tests.support.differences import run
from tests.support.quantized_models import FORMATS, KINDS, data, dequantized, quantized

Array = np.ndarray[Any, Any]


def _parsed(inputs: str, nodes: str, result: str = "float[M] y") -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> g ({inputs}) => ({result}) {{ {nodes} }}'
    )


PAIR = "q = QuantizeLinear<axis = {axis}>(x, s, z)  y = DequantizeLinear<axis = {axis}>(q, s, z)"


@pytest.mark.parametrize(("dtype", "bounds"), [("int8", (-128, 127)), ("uint8", (0, 255)), ("int16", (-32768, 32767))])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_pairs_have_pytorchs_gradient(dtype: str, bounds: tuple[int, int], axis: int | None) -> None:
    """Nothing beyond the range, the identity within it; to the scale as a learned one's (Esser et al., 2020)."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    random = np.random.default_rng(0)
    shape = () if axis is None else ((3, 8)[axis],)
    # Beside a border between two integers, rounding of the quotient decides.
    scale = np.asarray(2.0 ** random.integers(-4, -1, shape), np.float32)
    zero = np.asarray(random.integers(3, 9, shape), dtype)
    x = (random.standard_normal((3, 8)) * (bounds[1] - bounds[0]) * 0.1).astype(np.float32)
    dims = "" if axis is None else f"[{shape[0]}]"
    given = f"float[A,B] x, float{dims} s, {dtype}{dims} z"
    model = _parsed(given, PAIR.format(axis=axis or 0), "float[A,B] y")
    seed = random.standard_normal(x.shape).astype(np.float32)
    found = run(ll.gradient(model, "y", ["x", "s"], seeds=True), {"x": x, "s": scale, "z": zero, "seed/y": seed})
    values = [torch.tensor(value, dtype=torch.float32, requires_grad=True) for value in (x, scale)]
    points = torch.tensor(zero, dtype=torch.float32)
    if axis is None:
        options = (points.reshape(1), *bounds, 1.0)
        y = torch._fake_quantize_learnable_per_tensor_affine(values[0], values[1].reshape(1), *options)
    else:
        y = torch._fake_quantize_learnable_per_channel_affine(*values, points, axis, *bounds, 1.0)
    y.backward(torch.tensor(seed))
    np.testing.assert_array_equal(found["y"], y.detach().numpy())
    np.testing.assert_array_equal(found["grad/x"], values[0].grad.numpy())
    assert 0 < np.count_nonzero(found["grad/x"]) < x.size
    expected = values[1].grad.numpy()
    np.testing.assert_allclose(found["grad/s"], expected, rtol=1e-4, atol=1e-6 * np.abs(expected).max())


def test_blocks_have_scales_of_their_own() -> None:
    """As if each block were quantized by itself, the last and shorter one, too."""
    random = np.random.default_rng(0)
    x, seed = (random.standard_normal((2, 5)).astype(np.float32) for _ in range(2))
    scale = np.asarray([[0.25, 0.5, 0.001], [0.125, 0.001, 0.5]], np.float32)
    pair = PAIR.replace("<axis = {axis}>", "<axis = 1, block_size = 2>").replace(", z", "")
    pair = pair.replace("block_size", "output_dtype = 3, block_size", 1)
    model = _parsed("float[2,5] x, float[2,3] s", pair, "float[2,5] y")
    found = run(ll.gradient(model, "y", ["x", "s"], seeds=True), {"x": x, "s": scale, "seed/y": seed})
    wide = np.repeat(scale, 2, axis=1)[:, :5]
    steps = x / wide
    inside = np.abs(steps) < 127
    np.testing.assert_array_equal(found["grad/x"], np.where(inside, seed, 0))
    slope = seed * np.where(inside, np.round(steps) - steps, np.clip(np.round(steps), -128, 127))
    expected = np.stack([slope[:, :2].sum(1), slope[:, 2:4].sum(1), slope[:, 4]], axis=1)
    np.testing.assert_allclose(found["grad/s"], expected, rtol=1e-5, atol=1e-5)


# What stands between integers q and r, and takes floats as well.
MOVES = {
    "transpose": "r = Transpose<perm = [1, 0, 2, 3]>(q)",
    "reshape": "k = Constant<value = int64[2] {4, -1}>()  r = Reshape(q, k)",
    "unsqueeze": """k = Constant<value = int64[1] {0}>()  u = Unsqueeze(q, k)  v = Concat<axis = 0>(u, u)
        r = Flatten(v)""",
    "slice": """a = Constant<value = int64[1] {0}>()  e = Constant<value = int64[1] {4}>()
        k = Constant<value = int64[1] {2}>()  r = Slice(q, a, e, k, k)""",
    "split": "o, r = Split<axis = 2, num_outputs = 2>(q)",
    "gather": "k = Constant<value = int64[3] {1, 0, 1}>()  r = Gather<axis = 2>(q, k)",
    "gather_nd": "k = Constant<value = int64[2,1] {1, 1}>()  r = GatherND(q, k)",
    "pad": "k = Constant<value = int64[8] {0, 0, 1, 1, 0, 0, 1, 1}>()  r = Pad(q, k, z)",
    "reflect": 'k = Constant<value = int64[8] {0, 0, 1, 1, 0, 0, 1, 1}>()  r = Pad<mode = "reflect">(q, k)',
    "tile": "k = Constant<value = int64[4] {1, 2, 1, 1}>()  r = Tile(q, k)",
    "expand": "k = Constant<value = int64[5] {2, 1, 1, 1, 1}>()  r = Expand(q, k)",
    "space": "o = SpaceToDepth<blocksize = 2>(q)  r = DepthToSpace<blocksize = 2>(o)",
    "pool": "r = MaxPool<kernel_shape = [3, 3]>(q)",
    "resize": """e = Constant<value = float[0] {}>()  k = Constant<value = float[4] {1.0, 1.0, 2.0, 2.0}>()
        r = Resize<mode = "nearest">(q, e, k)""",
    "max": "o = Max(q, z)  r = Relu(o)",
    "where": "k = Constant<value = bool[1] {1}>()  r = Where(k, q, z)",
    "sum": "c = Cast<to = 6>(q)  d = Add(c, c)  n = Neg(d)  o = Sub(n, c)  r = ReduceSum(o)",
}  # fmt: skip


@pytest.mark.parametrize("dims", ["2,4,4,4", "a,b,c,d"])
@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
def test_what_moves_integers(move: str, dims: str) -> None:
    """Has the gradient that it has of floats."""
    x = ((np.arange(128) - 64).reshape(2, 4, 4, 4) / 2).astype(np.float32)
    np.random.default_rng(0).shuffle(x.reshape(-1))
    begin = "s = Constant<value = float {0.5}>()  zz = Constant<value = int8 {0}>()"
    integers = f"{begin} z = Identity(zz)  q = QuantizeLinear(x, s, z)  {move}  i = Cast<to = 6>(r)"
    floats = f"{begin} z = Cast<to = 1>(zz)  q = Div(x, s)  {move.replace('<to = 6>', '<to = 1>')}"
    end = "t = Mul(y, y)  l = ReduceSum<keepdims = 0>(t)"
    models = [
        _parsed(f"float[{dims}] x", f"{nodes}  {end}", "float l")
        for nodes in (f"{integers}  y = DequantizeLinear(i, s)", f"{floats}  y = Mul(r, s)")
    ]
    ours, expected = (run(ll.gradient(model, "l", "x"), {"x": x})["grad/x"] for model in models)
    assert np.any(ours)
    np.testing.assert_allclose(ours, expected, rtol=1e-5)


def test_other_uses_of_integers_are_refused() -> None:
    begin = "s = Constant<value = float {0.5}>()  z = Constant<value = int8 {0}>()  q = QuantizeLinear(x, s, z)"
    sorting = "k = Constant<value = int64[1] {2}>()  c = Cast<to = 6>(q)  r, p = TopK(c, k)  y = DequantizeLinear(r, s)"
    with pytest.raises(UnsupportedOpError, match=r"TopK .* requires operands of a floating dtype, as DequantizeLinear"):
        ll.gradient(_parsed("float[5] x", f"{begin} {sorting}"), "y", "x", seeds=True)
    scanned = """e = Constant<value = float {0}>()  w, y = Scan<num_scan_inputs = 1, body = one (float h, int8 p)
        => (float j, float o) { f = Cast<to = 1>(p)  j = Add(h, f)  o = Identity(j) }>(e, q)"""
    with pytest.raises(UnsupportedOpError, match=r"Scan .* requires operands and results of a floating dtype"):
        ll.gradient(_parsed("float[5] x", f"{begin} {scanned}"), "y", "x", seeds=True)
    shape = "h = Shape(q)  f = Cast<to = 1>(h)  y = Mul(f, f)"
    found = run(
        ll.gradient(_parsed("float[5] x", f"{begin} {shape}"), "y", "x", seeds=True),
        {"x": np.ones(5, np.float32), "seed/y": np.ones(1, np.float32)},
    )
    np.testing.assert_array_equal(found["grad/x"], np.zeros(5))


def _slope(model: onnx.ModelProto, x: Array, direction: Array, seed: Array, step: float) -> float:
    """A central difference of the sum of the results times a seed."""
    ends = [np.vdot(run(model, {"x": x + sign * step * direction})["y"].astype(np.float64), seed) for sign in (1, -1)]
    return float(ends[0] - ends[1]) / (2 * step)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", KINDS)
def test_networks_of_integers(kind: str, form: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What they compute is what onnxruntime does; slopes are near those of the network of dequantized weights."""
    folder = tmp_path_factory.getbasetemp()
    model, x = quantized(kind, form, folder), data(kind)
    random = np.random.default_rng(2)
    seed, direction = random.standard_normal((len(x), 3)).astype(np.float32), random.standard_normal(x.shape)
    found = run(ll.gradient(model, "y", "x", seeds=True), {"x": x, "seed/y": seed})
    expected = run(model, {"x": x})["y"]
    if (kind, form) in INEXACT:
        np.testing.assert_allclose(found["y"], expected, atol=INEXACT[kind, form])
    else:
        np.testing.assert_array_equal(found["y"], expected)
    slopes = [
        _slope(dequantized(kind, model), x, d.astype(np.float32), seed, 0.01) for d in (direction, found["grad/x"])
    ]
    length = float(np.linalg.norm(found["grad/x"]))
    # What is rounded moves slopes: kinks of Relu and of MaxPool lie elsewhere.
    assert abs(np.vdot(direction, found["grad/x"]) - slopes[0]) < 0.3 * length
    assert abs(length**2 - slopes[1]) < 0.1 * length**2


# The kernel rounds states, too, by ranges of its own in each step.
INEXACT: dict[tuple[str, str], float] = {("lstm", "dynamic"): 0.02, ("crnn", "dynamic"): 0.02}


def test_a_network_follows_pytorch(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Of pairs of QuantizeLinear and DequantizeLinear, with PyTorch's rounding in their places."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    model, x = quantized("mlp", "qdq", tmp_path_factory.getbasetemp()), data("mlp")
    arrays = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    held = {
        tensor.name: torch.tensor(onnx.numpy_helper.to_array(tensor))
        for tensor in dequantized("mlp", model).graph.initializer
    }
    bias = arrays["b1_quantized"] * arrays["b1_quantized_scale"]
    held["b1"] = torch.tensor(bias.astype(np.float32))

    def rounded(value: Any, name: str) -> Any:
        scale, zero = float(arrays[f"{name}_scale"]), int(arrays[f"{name}_zero_point"])
        return torch.fake_quantize_per_tensor_affine(value, scale, zero, 0, 255)

    given = torch.tensor(x, requires_grad=True)
    hidden = rounded(torch.relu(rounded(given, "x") @ held["w1"] + held["b1"]), "r")
    y = rounded(rounded(hidden @ held["w2"], "c") + held["b2"], "y")
    seed = np.random.default_rng(2).standard_normal(y.shape).astype(np.float32)
    y.backward(torch.tensor(seed))
    found = run(ll.gradient(model, "y", "x", seeds=True), {"x": x, "seed/y": seed})
    np.testing.assert_allclose(found["y"], y.detach().numpy(), atol=float(arrays["y_scale"]) * 1.01)
    np.testing.assert_allclose(found["grad/x"], given.grad.numpy(), rtol=1e-4, atol=1e-5)
