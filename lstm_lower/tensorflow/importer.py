"""`from_tensorflow`: a TensorFlow training graph as ONNX, its recurrent ops as nodes that `lower` takes."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import onnx
import onnx_ir as ir

from lstm_lower import arguments
from lstm_lower.errors import InvalidInputError, LstmLowerError, LstmLowerWarning
from lstm_lower.passes.opset.conversion import check_opset
from lstm_lower.passes.training import evaluation
from lstm_lower.records import evaluation as records
from lstm_lower.records import state as training_state
from lstm_lower.tensorflow.conversion import Weights, converted
from lstm_lower.tensorflow.opening import open_source
from lstm_lower.tensorflow.sources import GraphSource
from lstm_lower.tensorflow.tensor_types import Shape
from lstm_lower.tensorflow.towers import cut_to_one

# What the signature is called that predicts, in TensorFlow's recipe for training on devices.
_INFERENCE = "infer"


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
    check: bool = False,
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
            steps that a `.meta` file records, otherwise tensors that nothing reads. A graph that holds its step for
            many workers or towers is cut to one of them, with a warning.
        opset: version of `ai.onnx`, 13 to the newest that onnx and onnxruntime share; 18 by default.
        weights: what becomes of variables: `"initializers"` of the model, or `"inputs"` with the values they have now
            as initial values (an initializer of the same name). With `"inputs"`, weights that a frozen graph holds as
            constants become inputs too. By default inputs if the outputs include a training step, that is, assign
            variables, or if values are missing; otherwise initializers.
        checkpoint: where values of a graph's variables are: the prefix of a checkpoint, or a folder with one. By
            default the one beside a `.meta` file.
        signature: which signature of a SavedModel; may be left out when there is only one, or the usual one. A step
            that returns scores alone predicts and is exported by the signature `infer`, where there is one.
        specs: a `tf.TensorSpec` for each argument of a `tf.function` that was made without an input signature.
        shapes: sizes and names for dimensions of inputs, for example `{"ids:0": [20, "batch"]}`. Without it, an input
            of unknown rank, such as a learning rate, is taken as a scalar, or given the only rank that fits, with a
            warning.
        state: further pairs of an input and the output that holds its next value, for the record in the metadata.
        check: compare three runs of the lowered model with TensorFlow's own, on random feeds that TensorFlow takes, as
            `lstm-lower check --against tensorflow` does, and record in the metadata what was compared
            (`lstm_lower.records.certificate`). Needs TensorFlow.

    Returns:
        The model, verified. Its inputs and outputs have the names that were asked for.

    Raises:
        InvalidModelError: the source is broken: truncated, cyclic, or with a function or node missing.
        InvalidInputError: a name or option does not fit the source.
        OverBudgetError: what the source is made into is more than `LSTM_LOWER_BUDGET` allows (`lstm_lower.budget`).
        UnsupportedOpError: the graph holds ops that cannot be converted, of which a few of each kind are named; or
            with `check` results differ from TensorFlow's, which are named.
    """
    check_opset(opset)
    if weights is not None and weights not in get_args(Weights):
        raise InvalidInputError(f"weights requires one of {', '.join(get_args(Weights))}, got {weights!r}")
    for what, names in (("inputs", inputs), ("outputs", outputs)):
        if names is not None:
            arguments.names(what, names)

    def opened() -> GraphSource:
        found = open_source(source, signature=signature, specs=specs, checkpoint=checkpoint)
        return found if outputs is not None else cut_to_one(found)

    asked: dict[str, Any] = {"inputs": inputs, "outputs": outputs, "opset": opset, "weights": weights, "state": state}
    model = converted(opened(), **asked, shapes=shapes)
    if isinstance(source, (str, os.PathLike)) and signature not in (None, _INFERENCE) and outputs is None:
        _record_inference(model, source, checkpoint, opset)
    if not check:
        return model
    from lstm_lower.tensorflow.against_tensorflow import Import, certified

    return certified(model, Import(opened, **asked, shapes=shapes or {}))


def _record_inference(
    model: onnx.ModelProto, path: str | os.PathLike[str], checkpoint: str | os.PathLike[str] | None, opset: int | None
) -> None:
    """Records the signature that predicts in a training step of the same SavedModel; it trains without, too."""
    step = ir.from_proto(model)
    if all(pair.output is None for pair in training_state.read(step).pairs):
        return
    with contextlib.suppress(LstmLowerError), warnings.catch_warnings():
        warnings.simplefilter("ignore", LstmLowerWarning)
        found = open_source(path, signature=_INFERENCE, checkpoint=checkpoint)
        predicting = ir.from_proto(converted(found, opset=opset, weights="inputs"))
        if evaluation.record_predictions(step, predicting):
            recorded = step.metadata_props[records.METADATA_KEY]
            model.metadata_props.add(key=records.METADATA_KEY, value=recorded)
