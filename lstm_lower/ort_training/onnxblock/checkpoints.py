"""Checkpoints of parameters that blocks found."""

from __future__ import annotations

import os
from collections.abc import Sequence

import onnx
from onnx import numpy_helper

from lstm_lower.errors import InvalidInputError
from lstm_lower.ort_training.checkpoint_state import CheckpointState, StateContents


def save_checkpoint(
    parameters: tuple[Sequence[onnx.TensorProto], Sequence[onnx.TensorProto]],
    path_to_checkpoint: str | os.PathLike[str],
    nominal_checkpoint: bool = False,
) -> None:
    """Writes parameters as a checkpoint.

    Args:
        parameters: trained and frozen ones, as `TrainingBlock.parameters` gives them.
        path_to_checkpoint: the file.
        nominal_checkpoint: leave out the numbers: names, dtypes and shapes alone.

    Raises:
        InvalidInputError: these are no parameters.
        OSError: nothing can be written there.
    """
    try:
        trained, frozen = parameters
        values = {weight.name: numpy_helper.to_array(weight) for weight in (*trained, *frozen)}
    except (TypeError, ValueError, AttributeError) as error:
        raise InvalidInputError(
            f"save_checkpoint requires two lists of TensorProto, as TrainingBlock.parameters gives them: {error}"
        ) from error
    held = StateContents(parameters=values, trainable=[weight.name for weight in trained])
    CheckpointState(held.nominal() if nominal_checkpoint else held).write(path_to_checkpoint)


def load_checkpoint_to_model(path_to_checkpoint: str | os.PathLike[str], model: onnx.ModelProto) -> None:
    """Puts the parameters of a checkpoint into a model: initializers of their names are replaced.

    Raises:
        InvalidInputError: it is not a checkpoint, or a parameter fits no initializer of the model; nothing is changed.
    """
    state = CheckpointState.load_checkpoint(path_to_checkpoint)
    weights = {weight.name: weight for weight in model.graph.initializer}
    values = {name: parameter.data for name, parameter in state.parameters}
    for name, value in values.items():
        if name not in weights or list(weights[name].dims) != list(value.shape):
            raise InvalidInputError(
                f"{os.fspath(path_to_checkpoint)}: a model requires an initializer '{name}' of shape "
                f"{list(value.shape)}, got {list(weights[name].dims) if name in weights else 'none'}"
            )
    for name, value in values.items():
        weights[name].CopyFrom(numpy_helper.from_array(value, name))
