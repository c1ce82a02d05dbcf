"""Gradients of operators whose operand's rank is only known at run time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx.parser
import pytest

import lstm_lower as ll
from lstm_lower.passes.training.losses import MSE
from tests.support.differences import check

R_I_K = ", int64[L] r, int64[1] i, int64[1] k"
MATRICES = {
    "MatMul of matrices and matrices": [4, 6],
    "MatMul of a vector and matrices": [3, 2, 4],
    "MatMul of matrices and a vector": [3, 4, 2],
}
CHANNELS = "a = Constant <value_floats = [1.0, -0.5]> () b = Constant <value_floats = [0.3, 2.0]> ()"
# The operator on x, the shape that x gets, and further inputs.
WEIGHTS = "w = Constant <value = float[2, 3] {1, 2, -1, 0.5, 3, 1}> ()"
FORMS: dict[str, tuple[str, list[int], str]] = {
    "MatMul": (f"{WEIGHTS} y = MatMul (x, w)", [3, 2, 2, 2], ""),
    "MatMul of a vector": (f"{WEIGHTS} u = Slice (x, i, k) y = MatMul (u, w)", [24], ", int64[1] i, int64[1] k"),
    "MatMul of matrices and matrices": ("t = Reshape (v, r) y = MatMul (x, t)", [2, 3, 4], ", int64[L] r"),
    "MatMul of a vector and matrices": ("t = Reshape (v, r) u = Slice (x, i, k) y = MatMul (u, t)", [24], R_I_K),
    "MatMul of matrices and a vector": ("t = Reshape (v, r) u = Slice (x, i, k) y = MatMul (t, u)", [24], R_I_K),
    "MatMul of vectors": ("y = MatMul (x, x)", [24], ""),
    "InstanceNormalization": (f"{CHANNELS} n = InstanceNormalization (x, a, b) y = Mul (n, x)", [1, 2, 3, 4], ""),
    "GroupNormalization": (
        f"{CHANNELS} n = GroupNormalization <num_groups = 2> (x, a, b) y = Mul (n, x)",
        [3, 2, 4],
        "",
    ),
    "BatchNormalization": (f"{CHANNELS} y = BatchNormalization (x, a, b, a, b)", [3, 2, 4], ""),
    "BatchNormalization in training": (
        (
            f"{CHANNELS} i = Constant <value_ints = [0]> () k = Constant <value_ints = [2]> () c = Slice (v, i, k) "
            "d = Exp (c) n, e, f = BatchNormalization <training_mode = 1> (x, a, b, c, d) y = Mul (n, x)"
        ),
        [3, 2, 4],
        "",
    ),
    "LayerNormalization": (
        f"{WEIGHTS} n = LayerNormalization <axis = 1> (x, w) y = Mul (n, x)",
        [4, 2, 3],
        "",
    ),
    "Concat": ("y = Concat <axis = -1> (x, x)", [3, 2, 4], ""),
    "Split": ("a, y = Split <axis = -2, num_outputs = 2> (x)", [3, 2, 4], ""),
    "Transpose": ("y = Transpose (x)", [3, 2, 4], ""),
    "Gather": ("i = Constant <value = int64[2] {1, 1}> () y = Gather <axis = -1> (x, i)", [3, 2, 4], ""),
    "Einsum": (f'{WEIGHTS} y = Einsum <equation = "bij, jk -> ikb"> (x, w)', [3, 4, 2], ""),
    "Einsum of a diagonal": ('y = Einsum <equation = "iji -> ji"> (x)', [2, 6, 2], ""),
    "MaxPool": ("y = MaxPool <kernel_shape = [2, 2]> (x)", [1, 2, 3, 4], ""),
    "AveragePool": ("y = AveragePool <kernel_shape = [2, 2], pads = [1, 0, 0, 1]> (x)", [1, 2, 3, 4], ""),
    "GlobalAveragePool": ("y = GlobalAveragePool (x)", [1, 2, 3, 4], ""),
    "Tile": ("i = Constant <value = int64[3] {1, 2, 1}> () y = Tile (x, i)", [3, 2, 4], ""),
    "Resize": ("i = Constant <value = float[3] {1, 1, 2}> () y = Resize (x, , i)", [3, 2, 4], ""),
    "behind a pooling": (
        (
            "p = MaxPool <kernel_shape = [1, 2]> (x) i = Constant <value = float[2] {1, 2}> () "
            "y = InstanceNormalization (p, i, i)"
        ),
        [1, 2, 3, 4],
        "",
    ),
    "LRN": ("y = LRN <size = 3, alpha = 0.3> (x)", [1, 4, 3, 2], ""),
    "Det": ("y = Det (x)", [6, 2, 2], ""),
    "Det of one element": ("y = Det (x)", [24, 1, 1], ""),
    "AffineGrid": ("i = Constant <value = int64[4] {4, 2, 3, 2}> () y = AffineGrid (x, i)", [4, 2, 3], ""),
    "GridSample": ("y = GridSample (x, g)", [1, 2, 3, 4], ", float[A, B, C, D] g"),
    "RoiAlign": (
        (
            "r = Constant <value = float[1, 4] {0.1, 0.2, 2.1, 2.2}> () i = Constant <value = int64[1] {0}> () "
            "y = RoiAlign <output_height = 2, output_width = 2> (x, r, i)"
        ),
        [1, 2, 3, 4],
        "",
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_differences(name: str) -> None:
    text, shape, inputs = FORMS[name]
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21]>
    g (float[N] v, int64[K] s{inputs}) => (float loss) {{
        x = Reshape (v, s) {text} z = Mul (y, y) loss = ReduceSum <keepdims = 0> (z)
    }}""")
    rng = np.random.default_rng(0)
    feeds = {"v": rng.standard_normal(24).astype(np.float32), "s": np.asarray(shape)}
    feeds |= {name: np.asarray([end]) for name, end in (("i", 0), ("k", 2)) if f"int64[1] {name}" in inputs}
    if " r" in inputs:
        feeds["r"] = np.asarray(MATRICES[name])
    if " g" in inputs:
        feeds["g"] = rng.uniform(-0.9, 0.9, (1, 2, 3, 2)).astype(np.float32)
    check(model, feeds, wrt=["v"], step=2e-2, tolerance=2e-3)


def test_one_scale_for_all() -> None:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
    g (int8[N] v, int64[K] s, float scale) => (float loss) {
        x = Reshape (v, s) y = DequantizeLinear (x, scale) z = Mul (y, y) loss = ReduceSum <keepdims = 0> (z)
    }""")
    feeds = {"v": np.arange(-3, 3, dtype=np.int8), "s": np.asarray([2, 3]), "scale": np.asarray(0.5, np.float32)}
    check(model, feeds, wrt=["scale"], step=1e-2, tolerance=1e-4)


@pytest.mark.parametrize("attribute", ["", "<strides = [1, 1]>"])
def test_an_image_of_a_length_that_attributes_tell(attribute: str) -> None:
    model = onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 18]>
    g (float[1, 9, 10] x, int64[K] i, int64[K] k) => (float loss) {{
        y = Col2Im {attribute} (x, i, k) z = Mul (y, y) loss = ReduceSum <keepdims = 0> (z)
    }}""")
    x = np.random.default_rng(0).standard_normal((1, 9, 10)).astype(np.float32)
    feeds = {"x": x, "i": np.asarray([4, 7]), "k": np.asarray([3, 3])}
    if attribute:
        check(model, feeds, step=1e-1, tolerance=1e-4)
        return
    with pytest.raises(
        ll.UnsupportedOpError, match=r"image_shape.*requires a known length, its own or that of an attr"
    ):
        ll.gradient(model, "loss", ["x"])


def test_a_declared_shape_is_the_way_on() -> None:
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 18]>
    g (float[N] v, int64[K] s, float[K] k) => (float loss) {
        x = Reshape (v, s) y = Resize <mode = "linear"> (x, , k) z = Mul (y, y) loss = ReduceSum <keepdims = 0> (z)
    }""")
    with pytest.raises(ll.UnsupportedOpError, match="a known rank, got none; declare a shape \\(value_info\\) for 'x'"):
        ll.gradient(model, "loss", ["v"])
    # Nothing flows through what makes the value itself.
    assert len(ll.gradient(model, "loss", ["y"]).graph.output) == 2
    model.graph.value_info.append(onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["A", "B", 2]))
    feeds = {"v": np.arange(1, 13, dtype=np.float32), "s": np.asarray([3, 2, 2]), "k": np.float32([1, 1, 2])}
    check(model, feeds, wrt=["v"], step=1e-1, tolerance=1e-3)


@pytest.mark.parametrize(
    "step",
    [
        lambda model: ll.from_onnx(model, "mse"),
        lambda model: ll.from_onnx(model, lambda y, target: MSE()(y, target) * 2),
    ],
    ids=["a loss by name", "a target of a function"],
)
def test_targets_like_an_output_need_its_rank(step: Callable[[onnx.ModelProto], onnx.ModelProto]) -> None:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
    g (float[2] w, int64[K] s) => (float[] y) <float[2] w = {1, 2}> { v = Exp (w) y = Reshape (v, s) }""")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    with pytest.raises(ll.InvalidInputError, match=r"requires a known rank.*got none.*; declare a shape for it"):
        step(model)
    model.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [None, None]))
    onnx.checker.check_model(step(model), full_check=True)


def test_functions_that_need_ranks_say_so() -> None:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 23]>
    g (float[N] v, int64[K] s, float[T, 2] c) => (float loss) {
        x = Reshape (v, s) y = RotaryEmbedding (x, c, c) loss = ReduceSum <keepdims = 0> (y)
    }""")
    with pytest.raises(ll.UnsupportedOpError, match=r"RotaryEmbedding 'y': its gradient requires known ranks.*for 'x'"):
        ll.gradient(model, "loss", ["v"])
