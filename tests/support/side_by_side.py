"""Small models as one, which costs less to lower and to open than each of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import onnx

Array = Any


class SideBySide:
    """Models of the same opsets in one graph.

    Attributes:
        feeds: values of all inputs.
    """

    def __init__(self) -> None:
        self.feeds: dict[str, Array] = {}
        self._models: list[onnx.ModelProto] = []

    def add(self, model: onnx.ModelProto, feeds: Mapping[str, Array]) -> None:
        """Puts a model beside the others."""
        prefix = f"{len(self._models)}/"
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        _prefix(copy.graph, prefix)
        self._models.append(copy)
        self.feeds |= {f"{prefix}{name}": value for name, value in feeds.items()}

    def model(self) -> onnx.ModelProto:
        """All of them."""
        whole = onnx.ModelProto()
        whole.CopyFrom(self._models[0])
        for model in self._models[1:]:
            for field in ("node", "input", "output", "initializer"):
                getattr(whole.graph, field).extend(getattr(model.graph, field))
        return whole

    def results(self, values: Sequence[Array]) -> Iterator[Iterable[Array]]:
        """The values of each model's outputs, in order."""
        left = iter(values)
        for model in self._models:
            yield [*itertools.islice(left, len(model.graph.output))]
        assert next(left, None) is None


def _prefix(graph: onnx.GraphProto, prefix: str) -> None:
    """Puts a prefix before all names; onnx's own function leaves out what branches take from around them."""
    for value in (*graph.input, *graph.output, *graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param = f"{prefix}{dim.dim_param}"
    for named in (*graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
        named.name = f"{prefix}{named.name}"
    for node in graph.node:
        for names in (node.input, node.output):
            names[:] = [name and f"{prefix}{name}" for name in names]
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                _prefix(attribute.g, prefix)
