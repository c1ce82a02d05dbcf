"""What a newer version says in another way."""

from __future__ import annotations

from lstm_lower.graph import standard as std
from lstm_lower.passes.opset.registry import Site, since


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
    shape = site.builder.facts.shape(site.node.inputs[0])
    parts = len(site.node.outputs)
    if shape is not None and shape[site.attribute("axis", 0)] == 0:
        site.set_inputs(site.input(0), site.builder.ints(*[0] * parts))
    else:
        site.set("num_outputs", parts)
