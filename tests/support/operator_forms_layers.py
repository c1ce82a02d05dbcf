"""Forms of ONNX's layers: windows, normalizations, activations with values, images, losses, spectra, recurrent ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.support.operator_forms import FULL_SHAPES, SHAPES, Draw, Form, axes_of, ints, tensor

Make = Callable[[Draw], Form]


def some(draw: Draw, **choices: list[Any]) -> dict[str, Any]:
    """Attributes, each left out or one of its values."""
    return {name: draw(st.sampled_from(values)) for name, values in choices.items() if draw(st.booleans())}


def vector(draw: Draw, size: int, low: int, high: int) -> list[int]:
    return [draw(st.integers(low, high)) for _ in range(size)]


def reals(draw: Draw, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return np.random.default_rng(draw(st.integers(0, 1000))).standard_normal(shape).astype(np.float32)


def _windows(draw: Draw, kernel: list[int], *, dilated: bool) -> dict[str, Any]:
    """Strides, dilations and padding."""
    rank = len(kernel)
    attributes: dict[str, Any] = {}
    if draw(st.booleans()):
        attributes["strides"] = vector(draw, rank, 1, 3)
    if dilated and draw(st.booleans()):
        attributes["dilations"] = vector(draw, rank, 1, 2)
    padding = draw(st.sampled_from(["none", "pads", "SAME_UPPER", "SAME_LOWER", "VALID"]))
    if padding == "pads":
        attributes["pads"] = [draw(st.integers(0, size - 1)) for size in kernel * 2]
    elif padding != "none":
        attributes["auto_pad"] = padding
    return attributes


def pool(op: str, since: int, **choices: list[Any]) -> Make:
    def form(draw: Draw) -> Form:
        rank = draw(st.integers(1, 3))
        kernel = vector(draw, rank, 1, 3)
        x = reals(draw, (draw(st.integers(1, 2)), 2, *vector(draw, rank, 5, 7)))
        attributes = {"kernel_shape": kernel, **_windows(draw, kernel, dilated=since >= 10), **some(draw, **choices)}
        outputs = draw(st.integers(1, 2)) if op == "MaxPool" else 1
        return Form(op, [x], attributes, outputs=outputs, since=since)

    return form


def over_all_places(op: str, **choices: list[Any]) -> Make:
    return lambda draw: Form(
        op, [reals(draw, (2, 2, *vector(draw, draw(st.integers(1, 3)), 1, 4)))], some(draw, **choices)
    )


def conv(op: str) -> Make:
    def form(draw: Draw) -> Form:
        rank, group = draw(st.integers(1, 3)), draw(st.integers(1, 2))
        kernel, channels = vector(draw, rank, 1, 3), vector(draw, 2, 1, 2)
        x = tensor(draw, (draw(st.integers(1, 2)), group * channels[0], *vector(draw, rank, 5, 6)))
        first = group * (channels[1] if op == "Conv" else channels[0])
        w = tensor(draw, (first, channels[0] if op == "Conv" else channels[1], *kernel))
        attributes = {**_windows(draw, kernel, dilated=True), **({"group": group} if group > 1 else {})}
        if draw(st.booleans()):
            attributes["kernel_shape"] = kernel
        if op == "ConvTranspose" and draw(st.booleans()):
            attributes["output_padding"] = [
                draw(st.integers(0, step - 1)) for step in attributes.get("strides", [1] * rank)
            ]
        bias = [tensor(draw, (group * channels[1],))] if draw(st.booleans()) else []
        return Form(op, [x, w, *bias], attributes, since=11)

    return form


def normalization(op: str) -> Make:
    def form(draw: Draw) -> Form:
        x = reals(draw, (2, 4, *vector(draw, draw(st.integers(0 if op == "BatchNormalization" else 1, 2)), 2, 3)))
        attributes = some(draw, epsilon=[1e-5, 1e-2])
        if op == "BatchNormalization":
            operands = [reals(draw, (4,)), reals(draw, (4,)), reals(draw, (4,)), reals(draw, (4,)) ** 2 + 0.5]
            return Form(op, [x, *operands], {**attributes, **some(draw, momentum=[0.5])}, since=9)
        if op == "InstanceNormalization":
            return Form(op, [x, reals(draw, (4,)), reals(draw, (4,))], attributes, since=6)
        if op == "GroupNormalization":
            return Form(op, [x, reals(draw, (4,)), reals(draw, (4,))], {"num_groups": 2, **attributes}, since=21)
        axis = draw(st.integers(-x.ndim, x.ndim - 1))
        scale, bias = reals(draw, x.shape[axis:]), [reals(draw, x.shape[axis:])] if draw(st.booleans()) else []
        if axis != -1 or draw(st.booleans()):
            attributes["axis"] = axis
        if op == "RMSNormalization":
            return Form(op, [x, scale], attributes, since=23)
        return Form(op, [x, scale, *bias], attributes, outputs=draw(st.sampled_from([1, 3])), since=17)

    return form


def lrn(draw: Draw) -> Form:
    x = reals(draw, (2, 5, *vector(draw, 2, 1, 3)))
    return Form(
        "LRN", [x], {"size": draw(st.sampled_from([1, 3, 5])), **some(draw, alpha=[0.5], beta=[0.5], bias=[2.0])}
    )


def lp_normalization(draw: Draw) -> Form:
    x = reals(draw, draw(FULL_SHAPES))
    axis = draw(st.integers(-x.ndim, x.ndim - 1))
    return Form("LpNormalization", [x], {**some(draw, p=[1, 2]), **some(draw, axis=[axis])}, since=1)


def mean_variance(draw: Draw) -> Form:
    x = reals(draw, (2, 3, *vector(draw, 2, 2, 3)))
    axes = sorted({axis % 4 for axis in axes_of(draw, 4, least=1)})
    return Form("MeanVarianceNormalization", [x], {"axes": axes} if draw(st.booleans()) else {})


def valued(op: str, since: int = 13, **choices: list[Any]) -> Make:
    """An activation with values."""
    return lambda draw: Form(op, [reals(draw, draw(SHAPES)) * 3], some(draw, **choices), since=since)


def resize(draw: Draw) -> Form:
    rank, mode = draw(st.integers(1, 2)), draw(st.sampled_from(["nearest", "linear", "cubic"]))
    rank = 2 if mode == "cubic" else rank
    x = reals(draw, (1, 2, *vector(draw, rank, 2, 5)))
    # The half of an odd number of halves rounds one way or the other.
    places = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]
    attributes = {"mode": mode, **some(draw, coordinate_transformation_mode=places)}
    if mode == "nearest":
        attributes |= some(draw, nearest_mode=["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
    if mode == "cubic":
        attributes |= some(draw, cubic_coeff_a=[-0.5], exclude_outside=[0, 1])
    if draw(st.booleans()):
        scales = np.float32([1, 1, *[draw(st.sampled_from([0.5, 0.75, 1, 1.5, 2.0, 3.0])) for _ in range(rank)]])
        return Form("Resize", [x, None, scales], attributes, since=11)
    return Form("Resize", [x, None, None, ints(1, 2, *vector(draw, rank, 1, 7))], attributes, since=11)


def grid_sample(draw: Draw) -> Form:
    x = reals(draw, (2, 1, *vector(draw, 2, 2, 4)))
    grid = np.clip(reals(draw, (2, *vector(draw, 2, 1, 3), 2)), -1.2, 1.2)
    choices = {"padding_mode": ["zeros", "border", "reflection"], "align_corners": [0, 1]}
    return Form("GridSample", [x, grid], some(draw, mode=["linear", "nearest", "cubic"], **choices), since=20)


def affine_grid(draw: Draw) -> Form:
    rank = draw(st.integers(2, 3))
    size = ints(2, 1, *vector(draw, rank, 2, 4))
    return Form("AffineGrid", [reals(draw, (2, rank, rank + 1)), size], some(draw, align_corners=[0, 1]), since=20)


def roi_align(draw: Draw) -> Form:
    x, regions = reals(draw, (2, 2, 5, 6)), np.abs(reals(draw, (3, 4))) * 2
    regions[:, 2:] += regions[:, :2] + 0.5
    chosen = np.asarray(vector(draw, 3, 0, 1), np.int64)
    sizes = {"output_height": [1, 2], "output_width": [3], "sampling_ratio": [2], "spatial_scale": [0.5]}
    return Form("RoiAlign", [x, regions, chosen], some(draw, mode=["avg"], **sizes), since=10)


def one_hot(draw: Draw) -> Form:
    shape = draw(SHAPES)[:3]
    indices = np.random.default_rng(draw(st.integers(0, 99))).integers(-4, 4, shape)
    axis = some(draw, axis=[draw(st.integers(-len(shape) - 1, len(shape)))])
    return Form("OneHot", [indices, np.asarray(4, np.int64), np.float32([2, 5])], axis, since=11)


def top_k(draw: Draw) -> Form:
    x = reals(draw, draw(FULL_SHAPES))
    axis = draw(st.integers(-x.ndim, x.ndim - 1))
    chosen = ints(draw(st.integers(1, x.shape[axis])))
    return Form("TopK", [x, chosen], {"axis": axis, **some(draw, largest=[0, 1])}, outputs=2, since=11)


def unique(draw: Draw) -> Form:
    x = tensor(draw, draw(FULL_SHAPES))
    attributes = some(draw, sorted=[0, 1], axis=[draw(st.integers(-x.ndim, x.ndim - 1))])
    return Form("Unique", [x], attributes, outputs=draw(st.integers(1, 4)), since=11)


def cumulative(op: str, since: int) -> Make:
    def form(draw: Draw) -> Form:
        x = tensor(draw, draw(FULL_SHAPES))
        axis = np.asarray(draw(st.integers(-x.ndim, x.ndim - 1)), np.int64)
        return Form(op, [x, axis], some(draw, reverse=[0, 1], exclusive=[0, 1]), small=(1,), since=since)

    return form


def reverse_sequence(draw: Draw) -> Form:
    x, first = tensor(draw, (3, 4, 2)), draw(st.integers(0, 1))
    lengths = np.asarray(vector(draw, x.shape[first], 1, x.shape[1 - first]), np.int64)
    attributes = {"batch_axis": first, "time_axis": 1 - first} if first == 0 or draw(st.booleans()) else {}
    return Form("ReverseSequence", [x, lengths], attributes, since=10)


def blocks(op: str) -> Make:
    def form(draw: Draw) -> Form:
        size = draw(st.integers(1, 2))
        modes = some(draw, mode=["DCR", "CRD"]) if op == "DepthToSpace" else {}
        return Form(op, [tensor(draw, (2, 8, 4, 2))], {"blocksize": size, **modes})

    return form


def gather_nd(draw: Draw) -> Form:
    batch = draw(st.integers(0, 1))
    x = tensor(draw, (2, 3, 4))
    indices = np.random.default_rng(draw(st.integers(0, 99))).integers(-2, 2, (2, 2, draw(st.integers(1, 3 - batch))))
    return Form("GatherND", [x, indices], {"batch_dims": batch} if batch else {})


def scatter(op: str) -> Make:
    def form(draw: Draw) -> Form:
        reductions = some(draw, reduction=["none", "add", "mul", "min", "max"])
        x = tensor(draw, (4, 5))
        since = {"": 13, "none": 16, "add": 16, "mul": 16}.get(reductions.get("reduction", ""), 18)
        random = np.random.default_rng(draw(st.integers(0, 99)))
        if op == "ScatterND":
            return Form(op, [x, random.permutation(4)[:2, None], tensor(draw, (2, 5))], reductions, since=since)
        axis = draw(st.integers(-2, 1))
        # A place twice only where the order does not count.
        places = [random.permutation(x.shape[axis])[:3] - draw(st.integers(0, 1)) * x.shape[axis] for _ in range(3)]
        indices = np.asarray(places).T if axis % 2 == 0 else np.asarray(places)
        return Form(
            op,
            [x, indices, tensor(draw, (3, 3))],
            {**reductions, **some(draw, axis=[axis])} if axis % 2 else {**reductions, "axis": axis},
            since=since,
        )

    return form


def mod(draw: Draw) -> Form:
    x, y = tensor(draw, (3, 4), np.int64), np.asarray(vector(draw, 4, 1, 4), np.int64)
    return Form("Mod", [x, y - 5 * draw(st.integers(0, 1))], some(draw, fmod=[0, 1]))


def quantize(op: str) -> Make:
    def form(draw: Draw) -> Form:
        axis = draw(st.integers(-2, 1))
        along = draw(st.booleans())
        dtype = draw(st.sampled_from([np.int8, np.uint8]))
        scale = np.abs(reals(draw, (3 + axis % 2,) if along else ())) + np.float32(0.5)
        x = (reals(draw, (3, 4)) * 40).astype(np.float32 if op == "QuantizeLinear" else dtype)
        zero = (
            [np.full(scale.shape, draw(st.integers(0, 5)), dtype)]
            if op != "QuantizeLinear" or draw(st.booleans())
            else []
        )
        return Form(op, [x, scale, *zero], {"axis": axis} if along else {}, since=13)

    return form


EQUATIONS = [
    "ij,jk->ik",
    "ij,jk",
    "...ij,...jk->...ik",
    "ii->i",
    "ij->",
    "ij,ij->j",
    "bij,bjk->bki",
    "i,j->ij",
    "bhi,ij->bhj",
]


def einsum(draw: Draw) -> Form:
    equation = draw(st.sampled_from(EQUATIONS))
    sizes = {letter: draw(st.integers(1, 3)) for letter in "bhijk"}
    terms = equation.split("->")[0].split(",")
    return Form(
        "Einsum", [tensor(draw, tuple(sizes[c] for c in term.strip("."))) for term in terms], {"equation": equation}
    )


def compress(draw: Draw) -> Form:
    x = tensor(draw, draw(FULL_SHAPES))
    axis = draw(st.sampled_from([None, *range(-x.ndim, x.ndim)]))
    whole = x.size if axis is None else x.shape[axis]
    return Form(
        "Compress", [x, tensor(draw, (draw(st.integers(1, whole)),), np.bool_)], {} if axis is None else {"axis": axis}
    )


def crop_pad(draw: Draw) -> Form:
    x = tensor(draw, draw(FULL_SHAPES))
    axes = axes_of(draw, x.ndim, least=1)
    return Form("CenterCropPad", [x, ints(*vector(draw, len(axes), 1, 6))], {"axes": axes}, small=(1,), since=18)


def col2im(draw: Draw) -> Form:
    image, block = vector(draw, 2, 4, 5), vector(draw, 2, 1, 2)
    attributes = some(
        draw, strides=[vector(draw, 2, 1, 2)], dilations=[vector(draw, 2, 1, 2)], pads=[vector(draw, 4, 0, 1)]
    )
    steps, gaps, pads = (
        attributes.get("strides", [1, 1]),
        attributes.get("dilations", [1, 1]),
        attributes.get("pads", [0] * 4),
    )
    counts = [(image[a] + pads[a] + pads[a + 2] - gaps[a] * (block[a] - 1) - 1) // steps[a] + 1 for a in range(2)]
    x = reals(draw, (2, 3 * block[0] * block[1], counts[0] * counts[1]))
    return Form("Col2Im", [x, ints(*image), ints(*block)], attributes, small=(1, 2), since=18)


def loss(op: str) -> Make:
    def form(draw: Draw) -> Form:
        places = tuple(vector(draw, draw(st.integers(0, 2)), 1, 3))
        scores = reals(draw, (3, 4, *places))
        labels = np.random.default_rng(draw(st.integers(0, 99))).integers(0, 4, (3, *places))
        attributes = some(draw, reduction=["none", "sum", "mean"], ignore_index=[1])
        if "ignore_index" in attributes:
            labels.ravel()[0] = 2
        weight = [np.float32([1, 0.5, 2, 3])] if draw(st.booleans()) else []
        outputs = draw(st.integers(1, 2)) if op == "SoftmaxCrossEntropyLoss" else 1
        return Form(op, [scores, labels, *weight], attributes, outputs=outputs)

    return form


def dft(draw: Draw) -> Form:
    x = reals(draw, (2, 4, 3, draw(st.integers(1, 2))))
    length = [np.asarray(draw(st.integers(2, 6)), np.int64)] if draw(st.booleans()) else []
    attributes = some(draw, inverse=[0, 1], axis=[1, 2])
    if x.shape[-1] == 1 and not attributes.get("inverse"):
        attributes |= some(draw, onesided=[0, 1])
    return Form("DFT", [x, *length], attributes, since=17, until=19)


def window(op: str) -> Make:
    return lambda draw: Form(op, [np.asarray(draw(st.integers(1, 9)), np.int64)], some(draw, periodic=[0, 1]), since=17)


def recurrent(op: str, functions: list[list[str]], **choices: list[Any]) -> Make:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]

    def form(draw: Draw) -> Form:
        steps, batch, units, width = vector(draw, 4, 1, 3)
        direction = draw(st.sampled_from(["forward", "reverse", "bidirectional"]))
        d = 2 if direction == "bidirectional" else 1
        # onnxruntime's LSTM does not clip what the last activation is of.
        attributes = {"hidden_size": units, "direction": direction, **some(draw, **choices)}
        if draw(st.booleans()):
            attributes["activations"] = draw(st.sampled_from(functions)) * d
        shapes = {
            3: (d, 2 * gates * units),
            5: (d, batch, units),
            **({6: (d, batch, units), 7: (d, 3 * units)} if op == "LSTM" else {}),
        }
        operands: list[Any] = [
            reals(draw, shape)
            for shape in ((steps, batch, width), (d, gates * units, width), (d, gates * units, units))
        ]
        for place in range(3, max(shapes) + 1):
            given = draw(st.booleans())
            if place == 4:
                operands.append(np.asarray(vector(draw, batch, 0, steps), np.int32) if given else None)
            else:
                operands.append(reals(draw, shapes[place]) if given else None)
        while operands[-1] is None:
            operands.pop()
        return Form(op, operands, attributes, outputs=3 if op == "LSTM" else 2, since=7)

    return form


LAYERS: dict[str, Make] = {
    "AveragePool": pool("AveragePool", 19, ceil_mode=[0, 1], count_include_pad=[0, 1]),
    "MaxPool": pool("MaxPool", 10, ceil_mode=[0, 1], storage_order=[0, 1]),
    "LpPool": pool("LpPool", 18, ceil_mode=[0, 1], p=[1, 2, 3]),
    "GlobalAveragePool": over_all_places("GlobalAveragePool"),
    "GlobalMaxPool": over_all_places("GlobalMaxPool"),
    "GlobalLpPool": over_all_places("GlobalLpPool", p=[1, 2, 3]),
    **{op: conv(op) for op in ("Conv", "ConvTranspose")},
    **{
        f"{kind}Normalization": normalization(f"{kind}Normalization")
        for kind in ("Batch", "Instance", "Group", "Layer", "RMS")
    },
    "LRN": lrn,
    "LpNormalization": lp_normalization,
    "MeanVarianceNormalization": mean_variance,
    "Elu": valued("Elu", alpha=[0.5, 2.0]),
    "Celu": valued("Celu", alpha=[0.5, 2.0]),
    "Selu": valued("Selu", alpha=[0.5], gamma=[2.0]),
    "LeakyRelu": valued("LeakyRelu", alpha=[0.5, 2.0]),
    "HardSigmoid": valued("HardSigmoid", alpha=[0.5], beta=[0.1]),
    "ThresholdedRelu": valued("ThresholdedRelu", alpha=[0.5, 2.0]),
    "Shrink": valued("Shrink", lambd=[1.0], bias=[0.5]),
    "Gelu": valued("Gelu", 20, approximate=["none", "tanh"]),
    "IsInf": valued("IsInf", detect_negative=[0, 1], detect_positive=[0, 1]),
    **{
        op: valued(op)
        for op in ("HardSwish", "Softplus", "Softsign", "Sign", "Round", "Floor", "Ceil", "Erf", "Sin", "Atan")
    },
    "Mish": valued("Mish", 18),
    "Hardmax": lambda draw: Form("Hardmax", [reals(draw, (2, 3, 4))], some(draw, axis=[-3, -1, 0, 1])),
    "Resize": resize,
    "GridSample": grid_sample,
    "AffineGrid": affine_grid,
    "RoiAlign": roi_align,
    "OneHot": one_hot,
    "TopK": top_k,
    "Unique": unique,
    "CumSum": cumulative("CumSum", 13),
    "ReverseSequence": reverse_sequence,
    **{op: blocks(op) for op in ("DepthToSpace", "SpaceToDepth")},
    "GatherND": gather_nd,
    **{op: scatter(op) for op in ("ScatterND", "ScatterElements")},
    "Mod": mod,
    **{op: quantize(op) for op in ("QuantizeLinear", "DequantizeLinear")},
    "Einsum": einsum,
    "Compress": compress,
    "CenterCropPad": crop_pad,
    "Col2Im": col2im,
    **{op: loss(op) for op in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")},
    "DFT": dft,
    **{op: window(op) for op in ("HannWindow", "HammingWindow", "BlackmanWindow")},
    "EyeLike": lambda draw: Form("EyeLike", [tensor(draw, (3, 4))], some(draw, k=[-1, 2])),
    "LSTM": recurrent("LSTM", [["Tanh", "Sigmoid", "Relu"], ["HardSigmoid", "Softsign", "Elu"]], input_forget=[0, 1]),
    "GRU": recurrent(
        "GRU", [["Tanh", "Sigmoid"], ["HardSigmoid", "LeakyRelu"]], linear_before_reset=[0, 1], clip=[0.4]
    ),
    "RNN": recurrent("RNN", [["Sigmoid"], ["Softplus"]], clip=[0.4]),
}
