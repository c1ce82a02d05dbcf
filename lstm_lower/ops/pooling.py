"""Definitions of the gradients of TensorFlow's two-dimensional poolings.

Symbols: N batch, H x W the image, P x Q the pooled image, C channels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lstm_lower import dims
from lstm_lower.opdef import Call, OpDef, Operand, attr, operand
from lstm_lower.ops.gradients import FLOATS
from lstm_lower.spatial import FORMATS, PADDINGS, check_output_sizes, check_windows, spatial_positions

_CHANNELS_FIRST = {spec: dims.parse_shape(first) for spec, first in (("N H W C", "N C H W"), ("N P Q C", "N C P Q"))}


class _PoolingGradient(OpDef, abstract=True):
    """The gradient of a pooling with respect to its image."""

    class Types:
        T = FLOATS

    class Attrs:
        ksize = attr(list[int])
        strides = attr(list[int])
        padding = attr(str, choices=PADDINGS[:2])
        data_format = attr(str, "NHWC", choices=FORMATS)

    @classmethod
    def shape_spec(cls, operand: Operand, attributes: Mapping[str, Any]) -> dims.ShapeSpec | None:
        """Images have their channels last or second."""
        if operand.spec is not None and attributes.get("data_format") == "NCHW":
            return _CHANNELS_FIRST.get(operand.spec.text, operand.spec)
        return operand.spec

    @classmethod
    def verify(cls, call: Call) -> None:
        """Windows must lie on rows and columns, and there must be one for each element of the gradient."""
        check_windows(call, "ksize", "strides")
        kernel = [call.attributes["ksize"][position] for position in spatial_positions(call.attributes["data_format"])]
        check_output_sizes(call, "grad", kernel, [("H", "P"), ("W", "Q")])


class MaxPoolGrad(_PoolingGradient):
    """Gradient of the largest element of each window: it goes to the first one of these."""

    forward = "MaxPool"

    class Inputs:
        orig_input = operand("N H W C")
        orig_output = operand("N P Q C")
        grad = operand("N P Q C")

    class Outputs:
        output = operand("N H W C")

    class Attrs(_PoolingGradient.Attrs):
        padding = attr(str, choices=PADDINGS)
        explicit_paddings = attr(list[int], [])


class AvgPoolGrad(_PoolingGradient):
    """Gradient of the mean of each window, to which the padding does not belong."""

    forward = "AvgPool"

    class Inputs:
        orig_input_shape = operand("4", "int32")
        grad = operand("N P Q C")

    class Outputs:
        output = operand("N H W C")

    @classmethod
    def verify(cls, call: Call) -> None:
        """Binds the image's sizes where they are known."""
        value = call.operands["orig_input_shape"].value
        if value is not None:
            symbols = "NHWC" if call.attributes["data_format"] == "NHWC" else "NCHW"
            for symbol, size in zip(symbols, (int(entry) for entry in value), strict=True):
                known = call.sizes.get(symbol)
                if size < 0 or (isinstance(known, int) and known != size):
                    what = f"sizes that fit the other operand ({symbol} = {'0 or more' if known is None else known})"
                    raise call.error("orig_input_shape", what, [int(entry) for entry in value])
                call.sizes[symbol] = size
        super().verify(call)
