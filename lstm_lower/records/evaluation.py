"""The evaluation graph of a training step, which travels in the step's metadata.

A step's own graph runs dropout, normalizes by the statistics of one batch and moves running ones. What evaluates is
made where the source is still known, and kept under the key `lstm_lower.evaluation`. Of a recorded evaluation,

- inputs have the step's names and are all required: data and targets, and of the state what it reads. Inputs that have
  a default are no inputs of the step: they are running totals, such as those that a metric counts in. The default is
  their value before the first batch, and each next value stands among the outputs. An output that is computed from them
  is about all batches so far;
- outputs are the loss, metrics and the model's own outputs; `predictions` says which ones are the latter;
- nothing is random. State that evaluating moves, too, as of stateful layers, stands in the evaluation's own
  `lstm_lower.state`, its new values among the outputs; all other state stays as it is.

Weights are not in it, but for constants of its own; large ones that the step has as well are referred to.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from lstm_lower.errors import InvalidModelError
from lstm_lower.graph.copies import copy_model
from lstm_lower.records import attachments
from lstm_lower.records import state as training_state
from lstm_lower.records.record import Record, malformed

METADATA_KEY = attachments.EVALUATION_KEY

# Names of the outputs that are the model's own, in the metadata of the evaluation itself.
PREDICTIONS = Record("lstm_lower.predictions", list[str], None)


def write(model: ir.Model, evaluation: ir.Model, predictions: Sequence[str]) -> None:
    """Records what evaluates a step, in place of what the step recorded before.

    Args:
        model: the step.
        evaluation: a model whose inputs are inputs of the step or running totals. It is not changed.
        predictions: which of its outputs are the model's own.

    Raises:
        InvalidModelError: an input is not one of the step's, or a prediction is not one of the outputs.
    """
    _check_inputs(model, evaluation)
    outputs = [value.name for value in evaluation.graph.outputs]
    if unknown := [name for name in predictions if name not in outputs]:
        raise InvalidModelError(f"prediction '{unknown[0]}' must be one of the outputs {outputs}")
    kept = copy_model(evaluation)
    training_state.detach_initial_values(kept, kept=totals(kept).keys() - {value.name for value in model.graph.inputs})
    PREDICTIONS.write(kept, list(predictions))
    attachments.write(model, METADATA_KEY, kept)


def of(model: ir.Model) -> ir.Model | None:
    """The evaluation graph that a step records, or `None` without a record.

    Raises:
        InvalidModelError: the record is malformed, or the step no longer holds what it refers to.
    """
    evaluation = attachments.of(model, METADATA_KEY)
    if evaluation is None:
        return None
    _check_inputs(model, evaluation)
    return evaluation


def totals(evaluation: ir.Model) -> dict[str, str]:
    """Running totals of an evaluation: the input with the value before a batch -> the output with the one after it."""
    defaults = training_state.initial_values(evaluation)
    pairs = training_state.read(evaluation).pairs
    return {pair.input: pair.output for pair in pairs if pair.output is not None and pair.input in defaults}


def predictions(evaluation: ir.Model) -> list[str] | None:
    """Names of the outputs that are the model's own; `None` where they were not recorded.

    Raises:
        InvalidModelError: the record is malformed.
    """
    names = PREDICTIONS.parse(evaluation.metadata_props)
    if names is not None and not {*names} <= {value.name for value in evaluation.graph.outputs}:
        raise malformed(METADATA_KEY, str(names))
    return names


def _check_inputs(model: ir.Model, evaluation: ir.Model) -> None:
    dtypes = {value.name: value.dtype for value in model.graph.inputs}
    own = totals(evaluation)
    for value in evaluation.graph.inputs:
        if value.name in own and value.name not in dtypes:
            continue
        if value.name not in dtypes or dtypes[value.name] != value.dtype:
            raise InvalidModelError(
                f"an evaluation requires inputs of its training step, got '{value.name}' of dtype {value.dtype}, which "
                f"is not in {list(dtypes)}"
            )
