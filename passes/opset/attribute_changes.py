"""Changes of operators that a line describes: what became an input, and what the older form meant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx import helper

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr
from lstm_lower.graph.operator_versions import form
from lstm_lower.passes.opset.installed import MIN_OPSET
from lstm_lower.passes.opset.rewrites import Site, before, since

Operator = type[std.Standard]


def type_of_data(site: Site) -> ir.DataType:
    """The dtype of the first operand: of one that nobody here knows most likely float32; no node of two types runs."""
    return site.known_dtype() or ir.DataType.FLOAT


def became_inputs(version: int, *ops: Operator, **made: Callable[[Site, Any], Expr | None]) -> None:
    """Attributes that became the inputs behind the first one; each is said with what makes an input of its value."""

    @since(version, *ops)
    def moved(site: Site) -> None:
        values = {name: site.attribute(name, None) for name in made}
        if any(value is not None for value in values.values()):
            for name in made:
                site.drop(name)
            inputs = [None if value is None else made[name](site, value) for name, value in values.items()]
            site.set_inputs(site.input(0), *inputs)


def meant(version: int, *ops: Operator, **values: Any) -> None:
    """Attributes whose default changed or that came: what the older form means where it does not say it."""

    @since(version, *ops)
    def stated(site: Site) -> None:
        for name, value in values.items():
            site.set(name, site.attribute(name, value))

    if version <= MIN_OPSET:
        return

    @before(version, *ops)
    def omitted(site: Site) -> None:
        schema = form(site.node.op_type, version)
        assert schema is not None
        for name, meaning in values.items():
            value = site.attribute(name, helper.get_attribute_value(schema.attributes[name].default_value).decode())
            if value != meaning:
                raise site.too_new(f"{name} {value}", version)
            site.drop(name)


def _ints(site: Site, numbers: Any) -> Expr:
    return site.builder.ints(*np.atleast_1d(numbers).tolist())


def _floats(site: Site, numbers: Any) -> Expr:
    return site.builder.constant(numbers, ir.DataType.FLOAT)


def _of_data(site: Site, number: float) -> Expr:
    """A scalar of the data's type, which attributes were not."""
    dtype = type_of_data(site)
    with np.errstate(over="ignore"):
        return site.builder.constant(np.asarray(number).astype(dtype.numpy()), dtype)


# No axes to reduce mean all of them in both forms.
became_inputs(18, std.ReduceL1, std.ReduceL2, std.ReduceLogSum, std.ReduceLogSumExp, axes=_ints)
became_inputs(18, std.ReduceMax, std.ReduceMean, std.ReduceMin, std.ReduceProd, std.ReduceSumSquare, axes=_ints)
became_inputs(13, std.ReduceSum, std.Unsqueeze, axes=_ints)
# An empty list of axes meant all of size 1, as none at all do.
became_inputs(13, std.Squeeze, axes=lambda site, axes: _ints(site, axes) if axes else None)
became_inputs(13, std.Split, split=_ints)
became_inputs(11, std.Clip, min=_of_data, max=_of_data)
became_inputs(11, std.Pad, pads=_ints, value=_of_data)
became_inputs(10, std.TopK, k=_ints)
became_inputs(10, std.Slice, starts=_ints, ends=_ints, axes=_ints)
became_inputs(9, std.Upsample, scales=_floats)
became_inputs(5, std.Reshape, shape=_ints)

# It never shifted by half a pixel.
meant(16, std.RoiAlign, coordinate_transformation_mode="output_half_pixel")
# onnx's inference misses their default.
meant(13, std.MeanVarianceNormalization, axes=(0, 2, 3))
# With fewer digits.
meant(6, std.Selu, alpha=1.6732, gamma=1.0507)
meant(4, std.Concat, axis=1)
