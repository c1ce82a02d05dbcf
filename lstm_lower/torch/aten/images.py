"""Images sampled anew, at other sizes or at given places, and their elements arranged otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch
from torch import Tensor
from torch.nn import functional

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr
from lstm_lower.passes.decompositions.images import Sampling, affine_places, grid_sampled
from lstm_lower.passes.formulas.sizes import up_to
from lstm_lower.torch.aten.layers import of_each_axis, rank_of, with_batch
from lstm_lower.torch.aten.registry import AtenCall, Size, translates
from lstm_lower.torch.aten.tracing import operator, traces

aten = torch.ops.aten

INT64, FLOAT = ir.DataType.INT64, ir.DataType.FLOAT


# Other sizes. The options of each kind: mode, how places are computed, and what else tells.


def _resized(n: AtenCall, x: Expr, scales: Any, **attributes: Any) -> Expr:
    """An image by the scales that are given, by its size elsewise."""
    rank, b = rank_of(x), n.b
    given = [scale for scale in scales if scale is not None] if scales is not None else []
    if len(given) == rank - 2 and all(isinstance(scale, (int, float)) for scale in given):
        operands = [None, b.constant([1.0, 1.0, *given], FLOAT)]
    else:
        operands = [None, None, n.vector(n.shape)]
    return b.op(std.Resize, x, *operands, **attributes)


def _nearest(n: AtenCall, x: Expr, scales: Any) -> Expr:
    return _resized(n, x, scales, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")


def _nearest_exact(n: AtenCall, x: Expr, scales: Any) -> Expr:
    return _resized(
        n, x, scales, mode="nearest", coordinate_transformation_mode="half_pixel", nearest_mode="round_prefer_ceil"
    )


def _smooth(n: AtenCall, x: Expr, mode: str, scales: Any, *, align_corners: bool, antialias: bool = False) -> Expr:
    places = "align_corners" if align_corners else "half_pixel"
    more = {"cubic_coeff_a": -0.5 if antialias else -0.75} if mode == "cubic" else {}
    if antialias:
        more |= {"antialias": 1, "exclude_outside": 1}
    return _resized(n, x, scales, mode=mode, coordinate_transformation_mode=places, **more)


@translates(aten.upsample_nearest1d.vec, aten.upsample_nearest2d.vec, aten.upsample_nearest3d.vec)
def _upsample_nearest(n: AtenCall, x: Expr, size: Any = None, scales: Any = None) -> Expr:
    return _nearest(n, x, scales)


@translates(aten.upsample_nearest1d.default, aten.upsample_nearest2d.default, aten.upsample_nearest3d.default)
def _upsample_nearest_to(n: AtenCall, x: Expr, size: Any, *scales: Any) -> Expr:
    return _nearest(n, x, scales)


@translates(aten._upsample_nearest_exact1d.vec, aten._upsample_nearest_exact2d.vec, aten._upsample_nearest_exact3d.vec)
def _upsample_nearest_exact(n: AtenCall, x: Expr, size: Any = None, scales: Any = None) -> Expr:
    return _nearest_exact(n, x, scales)


@translates(
    aten._upsample_nearest_exact1d.default,
    aten._upsample_nearest_exact2d.default,
    aten._upsample_nearest_exact3d.default,
)
def _upsample_nearest_exact_to(n: AtenCall, x: Expr, size: Any, *scales: Any) -> Expr:
    return _nearest_exact(n, x, scales)


@translates(aten.upsample_linear1d.vec, aten.upsample_bilinear2d.vec, aten.upsample_trilinear3d.vec)
def _upsample_linear(n: AtenCall, x: Expr, size: Any, align_corners: bool, scales: Any = None) -> Expr:
    return _smooth(n, x, "linear", scales, align_corners=align_corners)


@translates(aten.upsample_linear1d.default, aten.upsample_bilinear2d.default, aten.upsample_trilinear3d.default)
def _upsample_linear_to(n: AtenCall, x: Expr, size: Any, align_corners: bool, *scales: Any) -> Expr:
    return _smooth(n, x, "linear", scales, align_corners=align_corners)


@translates(aten.upsample_bicubic2d.vec)
def _upsample_cubic(n: AtenCall, x: Expr, size: Any, align_corners: bool, scales: Any = None) -> Expr:
    return _smooth(n, x, "cubic", scales, align_corners=align_corners)


@translates(aten.upsample_bicubic2d.default)
def _upsample_cubic_to(n: AtenCall, x: Expr, size: Any, align_corners: bool, *scales: Any) -> Expr:
    return _smooth(n, x, "cubic", scales, align_corners=align_corners)


@translates(aten._upsample_bilinear2d_aa.vec)
def _upsample_linear_smoothed(n: AtenCall, x: Expr, size: Any, align_corners: bool, scales: Any = None) -> Expr:
    return _smooth(n, x, "linear", scales, align_corners=align_corners, antialias=True)


@translates(aten._upsample_bilinear2d_aa.default)
def _upsample_linear_smoothed_to(n: AtenCall, x: Expr, size: Any, align_corners: bool, *scales: Any) -> Expr:
    return _smooth(n, x, "linear", scales, align_corners=align_corners, antialias=True)


@translates(aten._upsample_bicubic2d_aa.vec)
def _upsample_cubic_smoothed(n: AtenCall, x: Expr, size: Any, align_corners: bool, scales: Any = None) -> Expr:
    return _smooth(n, x, "cubic", scales, align_corners=align_corners, antialias=True)


@translates(aten._upsample_bicubic2d_aa.default)
def _upsample_cubic_smoothed_to(n: AtenCall, x: Expr, size: Any, align_corners: bool, *scales: Any) -> Expr:
    return _smooth(n, x, "cubic", scales, align_corners=align_corners, antialias=True)


# Given places.

_MODES = ("linear", "nearest", "cubic")
_PADDINGS = ("zeros", "border", "reflection")


@translates(aten.grid_sampler.default, aten.grid_sampler_2d.default, aten.grid_sampler_3d.default)
def _grid_sampler(n: AtenCall, x: Expr, grid: Expr, mode: int, padding: int, align_corners: bool) -> Expr:
    """An image at the places of a grid (Jaderberg et al., 2015)."""
    if rank_of(x) != 4:
        return grid_sampled(x, grid, Sampling(_MODES[mode], _PADDINGS[padding], bool(align_corners)))
    return n.b.op(
        std.GridSample,
        x,
        grid,
        mode=("bilinear", "nearest", "bicubic")[mode],
        padding_mode=_PADDINGS[padding],
        align_corners=int(align_corners),
    )


# PyTorch's own takes sizes as numbers.
@operator("affine_grid(Tensor theta, SymInt[] size, bool align_corners) -> Tensor")
def _AFFINE_GRID(theta: Tensor, size: Sequence[Any], align_corners: bool) -> Tensor:  # noqa: N802
    return theta.new_empty([size[0], *size[2:], len(size) - 2])


@traces(functional.affine_grid)
def _traced_affine_grid(theta: Tensor, size: Sequence[Any], align_corners: bool | None = None) -> Any:
    return _AFFINE_GRID(theta, list(size), bool(align_corners))


@translates(_AFFINE_GRID, aten.affine_grid_generator.default)
def _affine_grid(n: AtenCall, theta: Expr, size: Sequence[Size], align_corners: bool) -> Expr:
    sizes = [x if isinstance(x, int) else x.unsqueeze(0) for x in size]
    return affine_places(theta, sizes, align_corners=align_corners)


# Elements arranged otherwise.


@translates(aten.pixel_shuffle.default)
def _pixel_shuffle(n: AtenCall, x: Expr, factor: int) -> Expr:
    """Channels become elements of the image (Shi et al., 2016)."""
    if rank_of(x) == 4:
        return n.b.op(std.DepthToSpace, x, blocksize=factor, mode="CRD")
    *lead, _, height, width = n.sizes(n.fake(0))
    count = len(lead)
    apart = n.reshape(x, [*lead, n.shape[-3], factor, factor, height, width])
    order = [*range(count), *(count + k for k in (0, 3, 1, 4, 2))]
    return n.reshape(apart.transpose(*order), n.shape)


@translates(aten.pixel_unshuffle.default)
def _pixel_unshuffle(n: AtenCall, x: Expr, factor: int) -> Expr:
    *lead, channels, _, _ = n.sizes(n.fake(0))
    count = len(lead)
    apart = n.reshape(x, [*lead, channels, n.shape[-2], factor, n.shape[-1], factor])
    order = [*range(count), *(count + k for k in (0, 2, 4, 1, 3))]
    return n.reshape(apart.transpose(*order), n.shape)


@translates(aten.channel_shuffle.default, aten.native_channel_shuffle.default)
def _channel_shuffle(n: AtenCall, x: Expr, groups: int) -> Expr:
    """Channels of groups side by side (Zhang et al., 2018)."""
    batch, channels, *rest = n.sizes(n.fake(0))
    part = channels // groups if isinstance(channels, int) else channels / groups
    apart = n.reshape(x, [batch, groups, part, *rest])
    return n.reshape(apart.transpose(0, 2, 1, *range(3, 3 + len(rest))), n.shape)


@translates(aten.im2col.default)
def _im2col(n: AtenCall, x: Expr, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Expr:
    """All windows of an image as columns [N, C * places of a window, windows]."""
    kernel, dilation, padding, stride = (of_each_axis(x, 2) for x in (kernel, dilation, padding, stride))
    sizes = n.sizes(n.fake(0))[-2:]

    def columns(x: Expr) -> Expr:
        none: list[Size] = [0, 0]
        if any(padding):
            x = n.b.op(std.Pad, x, n.vector([*none, *padding, *none, *padding]))
        for axis in (0, 1):
            # [N, C, H, W] -> [N, C, kernel, windows, W], and that along the last axis.
            x = x.take(_window_places(n, sizes[axis], axis, kernel, dilation, padding, stride), axis=2 + 2 * axis)
        x = x.transpose(0, 1, 2, 4, 3, 5)
        size = x.size(0)
        return n.reshape(x, [size if isinstance(size, int) else n.shape[0], *n.shape[-2:]])

    return with_batch(x, 4, columns)


def _window_places(
    n: AtenCall,
    size: Size,
    axis: int,
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Expr:
    """Which elements windows have along an axis [kernel, windows]."""
    rest = size + (2 * padding[axis] - dilation[axis] * (kernel[axis] - 1) - 1)
    windows = rest // stride[axis] + 1 if isinstance(rest, int) else rest / stride[axis] + 1
    elements = n.b.constant([[k * dilation[axis]] for k in range(kernel[axis])])
    return elements + up_to(n.b, windows) * stride[axis]


@translates(aten.col2im.default)
def _col2im(n: AtenCall, x: Expr, size: Sequence[Size], kernel: Any, dilation: Any, padding: Any, stride: Any) -> Expr:
    """The sums of all columns at the places of their windows."""
    pads = of_each_axis(padding, 2)
    attributes = {
        "dilations": of_each_axis(dilation, 2),
        "pads": pads + pads,
        "strides": of_each_axis(stride, 2),
    }
    operands = [n.vector(size), n.b.ints(*of_each_axis(kernel, 2))]
    return with_batch(x, 3, lambda x: n.b.op(std.Col2Im, x, *operands, **attributes))
