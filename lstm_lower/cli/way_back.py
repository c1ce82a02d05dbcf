"""`lstm-lower train --back`: trained weights in the form that the model came in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lstm_lower.cli.keras_files import check_ending
from lstm_lower.records.content_kinds import Kind, content_of, is_tensorflow
from lstm_lower.records.files import check_place

if TYPE_CHECKING:
    from lstm_lower.runtime.training.trainer import Trainer

BackOption = Annotated[
    Path | None,
    typer.Option(
        "--back",
        metavar="PATH",
        help="Where the trained weights go in the form that MODEL came in: a SavedModel's folder, the prefix of a "
        "checkpoint for another TensorFlow graph, an ONNX file, or a .keras, .h5 or .weights.h5 file.",
    ),
]


def check_back(back: Path | None, *, of_keras: bool) -> None:
    """Checks, before a run, that what it ends in can be written.

    Raises:
        InvalidInputError: Keras would not know what to write by such a name.
        OSError: it cannot, or is a file of an input.
    """
    if back is not None and of_keras:
        check_ending(back)
    if back is not None and not back.is_dir():
        check_place(back, back.with_name(f"{back.name}.index"))


def write_back(trainer: Trainer, model: Path, checkpoint: Path | None, back: Path) -> None:
    """Writes the trained weights.

    Args:
        trainer: it has trained a step of the model.
        model: the command's MODEL.
        checkpoint: where values of a TensorFlow graph's variables were, if that was said.
        back: where to.

    Raises:
        InvalidInputError: what was trained does not fit what is there.
        OSError: nothing can be written there.
    """
    if is_tensorflow(model):
        trainer.to_tensorflow(back, _values_of(model, checkpoint))
    else:
        _write_onnx(trainer, model, back)


def _values_of(model: Path, checkpoint: Path | None) -> Path | None:
    """The SavedModel or checkpoint that has the variables of a graph; `None` where it had no values."""
    from lstm_lower.checkpoints.bundle import find_checkpoint

    content = content_of(model)
    if content is not None and content.kind is Kind.SAVED_MODEL:
        return content.path.parent
    return checkpoint or find_checkpoint(model)


def _write_onnx(trainer: Trainer, path: Path, back: Path) -> None:
    """The same model with trained weights, whether they are defaults of inputs or constants."""
    import onnx_ir as ir

    from lstm_lower.records import model_files
    from lstm_lower.records import state as training_state

    model = model_files.load(path)
    inputs = {value.name: value for value in model.graph.inputs}
    for name, value in trainer.state_dict().items():
        held = model.graph.initializers.get(name)
        if name in inputs:
            training_state.set_default(model, inputs[name], value)
        elif held is not None:
            held.const_value = ir.tensor(value, dtype=held.dtype, name=name)
    model_files.save(model, back)
