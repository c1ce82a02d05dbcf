"""`from_tensorflow`: a TensorFlow training graph as ONNX, its recurrent ops as nodes that `lower` takes."""

from __future__ import annotations

import contextlib
import itertools
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

import onnx
import onnx_ir as ir

from lstm_lower import arguments, budget
from lstm_lower.errors import InvalidInputError, InvalidModelError, LstmLowerError
from lstm_lower.passes.opset.versions import check_opset
from lstm_lower.tensorflow import finish
from lstm_lower.tensorflow.exposed import expose_sources
from lstm_lower.tensorflow.files.functions import OpTable
from lstm_lower.tensorflow.frozen import lift_frozen_weights
from lstm_lower.tensorflow.graph import nodes_by_name
from lstm_lower.tensorflow.interface import Interface, Resolver
from lstm_lower.tensorflow.model import Made, ModelBuilder, OpenRankError
from lstm_lower.tensorflow.opening import open_source
from lstm_lower.tensorflow.sources import Source
from lstm_lower.tensorflow.state import writes
from lstm_lower.tensorflow.structure import Raising
from lstm_lower.tensorflow.tensor_types import Shape, Sizes

Weights = Literal["inputs", "initializers"]

# Of inputs whose rank nothing tells, the ranks that are tried, and how many inputs are.
_RANKS = range(1, 5)
_MOST_OPEN = 4


def from_tensorflow(
    source: Any,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    opset: int | None = None,
    *,
    weights: Weights | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    signature: str | None = None,
    specs: Sequence[Any] | None = None,
    shapes: Mapping[str, Shape] | None = None,
    state: Mapping[str, str] | None = None,
) -> onnx.ModelProto:
    """Converts a TensorFlow graph, gradients and optimizer included, to an ONNX model with recurrent ops as nodes.

    Only what the outputs need is looked at, and nothing before a tensor that is named as an input. Functions are
    inlined; loops and branches, TensorFlow 1's and TensorFlow 2's, become Loop and If. Variables and what a run assigns
    to them become explicit: the model has an output for the new value of every variable that the graph assigns, named
    `<variable>/new`, and records which input it belongs to (see `lstm_lower.records.state`).

    Args:
        source: a GraphDef or MetaGraphDef, a file of one (`.pb`, `.pbtxt`, `.meta`; recognised by its content), the
            folder of a SavedModel, a ConcreteFunction, or a `tf.function`. Files are read without TensorFlow.
        inputs: names of the tensors that become graph inputs, in order, for example `["ids:0"]`. They may lie inside
            the graph, which is then cut there. By default the source's own: a signature's or function's arguments, a
            graph's placeholders that the outputs need.
        outputs: names of the tensors that become graph outputs, in order; the name of an operation without a colon asks
            for its assignments only. By default the source's own: what a signature or function returns, the losses and
            steps that a `.meta` file records, otherwise tensors that nothing reads.
        opset: version of `ai.onnx`, 13 to the newest that onnx and onnxruntime share; 18 by default.
        weights: what becomes of variables: `"initializers"` of the model, or `"inputs"` with the values they have now
            as initial values (an initializer of the same name). With `"inputs"`, weights that a frozen graph holds as
            constants become inputs too. By default inputs if the outputs include a training step, that is, assign
            variables, or if values are missing; otherwise initializers.
        checkpoint: where values of a graph's variables are: the prefix of a checkpoint, or a folder with one. By
            default the one beside a `.meta` file.
        signature: which signature of a SavedModel; may be left out when there is only one, or the usual one.
        specs: a `tf.TensorSpec` for each argument of a `tf.function` that was made without an input signature.
        shapes: sizes and names for dimensions of inputs, for example `{"ids:0": [20, "batch"]}`. Without it, an input
            of unknown rank, such as a learning rate, is taken as a scalar, or given the only rank that fits, with a
            warning.
        state: further pairs of an input and the output that holds its next value, for the record in the metadata.

    Returns:
        The model, verified. Its inputs and outputs have the names that were asked for.

    Raises:
        InvalidModelError: the source is broken: truncated, cyclic, or with a function or node missing.
        InvalidInputError: a name or option does not fit the source.
        OverBudgetError: what the source is made into is more than `LSTM_LOWER_BUDGET` allows (`lstm_lower.budget`).
        UnsupportedOpError: the graph holds ops that cannot be converted; a few of each kind are named.
    """
    check_opset(opset)
    if weights is not None and weights not in get_args(Weights):
        raise InvalidInputError(f"weights requires one of {', '.join(get_args(Weights))}, got {weights!r}")
    for what, names in (("inputs", inputs), ("outputs", outputs)):
        if names is not None:
            arguments.names(what, names)
    opened = open_source(source, signature=signature, specs=specs, checkpoint=checkpoint)
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
    warnings.warn(
        f"{label}: the rank of {name} is not known: taken as {rank}, the only one that fits; shapes says otherwise",
        finish.UnknownRankWarning,
        stacklevel=3,
    )
    return model


def _made(source: Source, resolver: Resolver, interface: Interface, shapes: Mapping[str, Shape], opset: int) -> Made:
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
