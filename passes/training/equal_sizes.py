"""Sizes of data that share a name: the graph itself fails where they differ.

onnxruntime compares the sizes of inputs with the numbers that a model declares, but not those that share a name with
each other: a batch of 8 images with 5 labels, or with one that is broadcast, would have a loss.
"""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

from lstm_lower.dims import is_name
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder
from lstm_lower.graph.values import declared_shape
from lstm_lower.passes.formulas.sizes import with_size
from lstm_lower.passes.model_pass import Pass


class EqualSizesPass(Pass):
    """Lets every reader of an input read what has the sizes that other inputs have under the same name.

    Of the inputs with a name the largest is compared with, and the others, targets above all, go through a Split of one
    part, which takes the size of that as its part's.

    Attributes:
        apart: names of inputs that are no data, as weights and the learning rate.
    """

    def __init__(self, apart: Collection[str] = ()) -> None:
        super().__init__()
        self.apart = apart

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Edits the graph."""
        first = next(iter(model.graph), None)
        if first is None:
            return ir.passes.PassResult(model, modified=False)
        facts = self.context.space.facts
        data = [value for value in model.graph.inputs if value.name not in self.apart and value.const_value is None]
        data.sort(key=facts.elements, reverse=True)
        b = Builder(self.context.space, model.graph, before=first, scope="equal_sizes")
        places: dict[str, tuple[ir.Value, int]] = {}
        for value in data:
            readers = list(value.uses())
            checked = b.wrap(value)
            for axis, name in enumerate(declared_shape(value) or ()):
                if not isinstance(name, str) or not is_name(name):
                    continue
                like, place = places.setdefault(name, (value, axis))
                if (like, place) != (value, axis) and readers:
                    checked = with_size(checked, axis, b.op(std.Shape, b.wrap(like), start=place, end=place + 1))
            for node, index in readers:
                node.replace_input_with(index, checked.value)
        return ir.passes.PassResult(model, modified=bool(b.emitted))
