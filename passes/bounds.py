"""Axes of inputs that are open up to some size: larger ones make a run fail, in any runtime."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder
from lstm_lower.passes.model_pass import Pass
from lstm_lower.records.lengths import Place

# A size that no axis exceeds, and one that no tensor has.
_ANY, _NO_SIZE = 2**31 - 1, -2


class BoundsPass(Pass):
    """Lets what reads an input read it as it is, which no runtime makes where an axis is larger than it may be.

    Attributes:
        bounds: input and axis -> how large it may be.
    """

    def __init__(self, bounds: Mapping[Place, int]) -> None:
        super().__init__()
        self.bounds = bounds

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Puts a Reshape behind each such input."""
        found = [value for value in model.graph.inputs if any(name == value.name for name, _ in self.bounds)]
        for value in found:
            self._bound(value, model.graph)
        return ir.passes.PassResult(model, modified=bool(found))

    def _bound(self, value: ir.Value, graph: ir.Graph) -> None:
        assert value.shape is not None
        most = [self.bounds.get((str(value.name), axis), _ANY) for axis in range(len(value.shape))]
        bounds = [f"axis_{axis}_up_to_{size}" for axis, size in enumerate(most) if size != _ANY]
        readers = [*value.uses()]
        scope = "_".join([str(value.name), *bounds])
        b = Builder(self.context.space, graph, before=next(iter(graph), None), scope=scope)
        # A copy would take time, and a size that nothing reads would not be checked.
        x = b.wrap(value)
        sizes = b.op(std.Shape, x)
        target = b.where(sizes > b.ints(*most), _NO_SIZE, sizes)
        bounded = b.set_shape(b.op(std.Reshape, x, target), [*value.shape])
        for node, index in readers:
            node.replace_input_with(index, bounded.value)
