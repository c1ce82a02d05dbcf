"""A graph of TensorFlow's as an ONNX model: the way from a source to the verified model."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import onnx
import onnx_ir as ir

from lstm_lower import budget
from lstm_lower.errors import InvalidModelError, LstmLowerError, warn
from lstm_lower.tensorflow import finish
from lstm_lower.tensorflow.files.functions import OpTable
from lstm_lower.tensorflow.graph import nodes_by_name
from lstm_lower.tensorflow.interface import Interface, Resolver
from lstm_lower.tensorflow.model import ConvertedGraph, ModelBuilder, OpenRankError
from lstm_lower.tensorflow.source_preparation import expose_sources, lift_frozen_weights
from lstm_lower.tensorflow.sources import GraphSource
from lstm_lower.tensorflow.state import writes
from lstm_lower.tensorflow.structure import Raising
from lstm_lower.tensorflow.tensor_types import Shape, Sizes

Weights = Literal["inputs", "initializers"]

# Of inputs whose rank nothing tells, the ranks that are tried, and how many inputs are.
_RANKS = range(1, 5)
_MOST_OPEN = 4


def converted(
    opened: GraphSource,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    opset: int | None = None,
    *,
    weights: Weights | None = None,
    shapes: Mapping[str, Shape] | None = None,
    state: Mapping[str, str] | None = None,
) -> onnx.ModelProto:
    """Converts a graph that is open; it is changed. Arguments, result and errors are `from_tensorflow`'s."""
    lift_frozen_weights(opened, read=weights == "inputs")
    expose_sources(opened)
    nodes = nodes_by_name(opened.graph_def.node)
    table = OpTable(opened.graph_def.library.function, opened.op_defs)
    resolver = Resolver(opened, nodes, table)
    interface = resolver.resolve(inputs, outputs)

    def convert(sizes: Mapping[str, Shape]) -> onnx.ModelProto:
        with budget.account():
            made = _made(opened, resolver, interface, sizes, opset or 18)
        try:
            return finish.finish(made, weights=weights, state=state or {}, demanded=inputs is not None)
        except InvalidModelError as error:
            if not made.scalars:
                raise
            raise OpenRankError(made.scalars, error) from error

    try:
        return convert(shapes or {})
    except OpenRankError as error:
        return _of_only_rank(error, convert, opened.label, shapes or {})


def _of_only_rank(
    error: OpenRankError,
    convert: Callable[[Mapping[str, Shape]], onnx.ModelProto],
    label: str,
    shapes: Mapping[str, Shape],
) -> onnx.ModelProto:
    """The model with another rank of one input, if that is the only rank of any input that fits.

    Raises:
        OpenRankError: no rank fits, or several do.
    """
    fitting: dict[tuple[str, int], onnx.ModelProto] = {}
    for name, rank in itertools.product(error.names[:_MOST_OPEN], _RANKS):
        with contextlib.suppress(LstmLowerError):
            fitting[name, rank] = convert({**shapes, name: [None] * rank})
    if len(fitting) != 1:
        raise error
    (((name, rank), model),) = fitting.items()
    warn(
        f"{label}: the rank of {name} is not known: taken as {rank}, the only one that fits; shapes says otherwise",
        finish.UnknownRankWarning,
    )
    return model


def _made(
    source: GraphSource, resolver: Resolver, interface: Interface, shapes: Mapping[str, Shape], opset: int
) -> ConvertedGraph:
    def infer(tensor: str) -> tuple[ir.DataType | None, Sizes | None]:
        """Dtype and shape of a tensor at which the graph is cut, by translating what makes it."""
        try:
            before = _made(source, resolver, Interface(None, {tensor: tensor}, []), {}, opset)
        except LstmLowerError:
            return None, None
        (value,) = before.model.graph.outputs[:1]
        if before.scalars or value.shape is None:
            return value.dtype, None
        return value.dtype, tuple(dim if isinstance(dim, int) else None for dim in value.shape)

    builder = ModelBuilder(source, resolver, interface, shapes, opset, infer)
    raising = Raising(source.graph_def, resolver.nodes, resolver.table, writes)
    region = raising.main(interface.outputs.values(), interface.targets, builder.cut)
    return builder.build(region, raising.aliases)
