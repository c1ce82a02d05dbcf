"""What a newer version says in another way."""

from __future__ import annotations

from lstm_lower.graph import standard as std
from lstm_lower.passes.opset.registry import Site, since
from lstm_lower.passes.opset.shaping import length


@since(
    18,
    std.ReduceL1,
    std.ReduceL2,
    std.ReduceLogSum,
    std.ReduceLogSumExp,
    std.ReduceMax,
    std.ReduceMean,
    std.ReduceMin,
    std.ReduceProd,
    std.ReduceSumSquare,
)
def reduce_axes_input(site: Site) -> None:
    """Axes become an input."""
    axes = site.attribute("axes", None)
    if axes is not None:
        site.drop("axes")
        # No axes meant all of them, as it does in the newer form.
        site.set_inputs(site.input(0), site.builder.ints(*axes))


@since(18, std.Split)
def split_into_equal_parts(site: Site) -> None:
    """The number of parts has to be said, or their sizes: onnxruntime refuses a number for an axis of size 0."""
    if site.has(1):
        return
    x, axis, parts = site.input(0), site.attribute("axis", 0), len(site.node.outputs)
    size = None if x.shape is None else x.shape[axis]
    if isinstance(size, int) and size > 0:
        site.set("num_outputs", parts)
    elif size == 0:
        site.set_inputs(x, site.builder.ints(*[0] * parts))
    else:
        site.set_inputs(x, site.builder.op(std.Expand, length(x, axis) / parts, site.builder.ints(parts)))
