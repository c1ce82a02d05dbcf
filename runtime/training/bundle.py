"""`export_training`: a training step as a folder that every onnxruntime understands, whatever its language.

An input that is also an initializer is read differently by every binding of onnxruntime: Node's drops such a feed
without a word and trains nothing, the web's refuses it. So state leaves Python as required inputs, and its first
values as a model of their own. docs/bundle.md describes the folder.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort

from lstm_lower import __version__, arguments
from lstm_lower.errors import InvalidInputError, InvalidModelError, UnsupportedOpError, repeated, some
from lstm_lower.graph.copies import copy_model
from lstm_lower.graph.values import declared_shape, stated
from lstm_lower.passes.driver import run_passes
from lstm_lower.passes.lower import lower
from lstm_lower.passes.malformed import malformed_models_explained
from lstm_lower.passes.tidy import SortPass
from lstm_lower.passes.training.equal_sizes import EqualSizesPass
from lstm_lower.passes.training.evaluation import check_unmoving, evaluation_of, of_all_batches, prediction_of
from lstm_lower.passes.training.initialization import first_name, initialization
from lstm_lower.records import attachments, first_values, manifest
from lstm_lower.records import evaluation as recorded
from lstm_lower.records import state as training_state
from lstm_lower.records.files import atomic_files, check_place
from lstm_lower.records.first_values import Draw
from lstm_lower.records.model_files import constants_as_weights, save, share, write
from lstm_lower.records.state import TrainingState
from lstm_lower.runtime.loadable import check_loadable
from lstm_lower.runtime.training import operator_list
from lstm_lower.runtime.training.data.layout import sample_axes
from lstm_lower.runtime.training.page import NPM_VERSION
from lstm_lower.runtime.training.trainer import Trainer
from lstm_lower.runtime.values import shortest

File = Literal["init", "train", "eval", "predict"]
FILES: tuple[File, ...] = get_args(File)
_PRODUCER = f"lstm-lower {__version__}"
_TESTED = {"onnxruntime-node": NPM_VERSION, "onnxruntime-web": NPM_VERSION}
# What a source without updates is, by whether it has gradients, and what makes a step of it.
_WITHOUT_UPDATES = {
    True: ("one that ends at its gradients", "ll.Trainer(step, optimizer='sgd') adds them, --optimizer sgd too"),
    False: (
        "a model without gradients",
        (
            "ll.from_onnx(model, loss, optimizer) makes a step of it, --loss and --optimizer too; "
            "ll.from_torch and ll.from_keras export whole steps"
        ),
    ),
}

Array = np.ndarray[Any, Any]


def export_training(
    step_or_trainer: str | os.PathLike[str] | onnx.ModelProto | ir.Model | Trainer,
    folder: str | os.PathLike[str],
    *,
    files: Sequence[File] = FILES,
    opset: int | None = None,
    schedule: str = "auto",
    target: str | None = None,
    external_data: bool | None = None,
    class_names: Sequence[str] | None = None,
    operators: bool = False,
) -> Path:
    """Writes a training step as plain ONNX files, and a description that any language can read.

    Args:
        step_or_trainer: a training step with updates, as a path, a protobuf or an onnx_ir model, whose state starts at
            the values that it has; or a trainer, whose state starts where it is now.
        folder: the folder to write to; it is created if there is none. Files of an earlier bundle in it are replaced,
            others stay.
        files: which models to write: `init` (the first state; inputs are sizes of it that are open), `train` (state and
            data in, state and loss out), `eval` (loss, metrics and predictions; nothing changes), `predict`
            (predictions, weights inside, but for those whose sizes are open). `training.json` is always written.
        opset: as for `lower`.
        schedule: as for `lower`.
        target: as for `lower`; `webgpu-web` for WebGPU in a browser.
        external_data: keep weights in `<file>.<hash>.data`; `None` does where protobuf's 2 GB would not hold them.
            What several models hold and no step changes lies in `weights.<hash>.data`, once, if it is 4 kB or more;
            `False` keeps everything inside each model.
        class_names: of the classes that the model predicts, in order, for whoever shows predictions.
        operators: also write `required_operators_and_types.config`, what a build of onnxruntime needs for all models.

    Returns:
        The folder.

    Raises:
        InvalidModelError: the model is malformed, or is not a training step with updates.
        InvalidInputError: an option is not one of the allowed values, or `init` or `predict` lack values of the state.
        UnsupportedOpError: the model holds ops that cannot be lowered, or it is not certain how the step is evaluated.
        OSError: nothing can be written there.
    """
    wanted = _wanted(files)
    named = None if class_names is None else _class_names(class_names)
    parts = _Parts.of(step_or_trainer)
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder}: a folder is required, got a file")
    former = manifest.files_of(folder)
    if folder.exists():
        check_place(*(folder / name for name in (*map(manifest.file_name, wanted), *former)))
        former += [operator_list.NAME] if former else []
    models: dict[File, ir.Model] = {}
    totals = manifest.NO_TOTALS
    with malformed_models_explained(parts.step):
        if "init" in wanted:
            models["init"] = parts.initial()
        if "train" in wanted:
            models["train"] = parts.training()
        if "eval" in wanted or "predict" in wanted:
            evaluation = parts.evaluation(wanted)
            if "predict" in wanted:
                models["predict"] = prediction_of(evaluation)
            if "eval" in wanted:
                totals = _totals(evaluation)
                models["eval"] = evaluation
    lowered: dict[str, ir.Model] = {
        file: lower(model, opset, schedule, target=target) for file, model in models.items()
    }
    if "predict" in lowered:
        # Only now, so that weights stay as they are in the state, each in one place.
        parts.fill(lowered["predict"])
    constants = parts.constants(models.values())
    for model in lowered.values():
        parts.compare_sizes(model)
        constants_as_weights(model, constants)
    # Whenever the process ends, a folder with a description is whole.
    with atomic_files(folder, first=manifest.NAME, gone=former) as written:
        if external_data is not False:
            share(lowered.values(), written, manifest.WEIGHTS, parts.places())
        for file, model in lowered.items():
            write(model, written / manifest.file_name(file), external_data=external_data)
            check_loadable(written / manifest.file_name(file))
        if operators:
            listed = operator_list.operator_list(written / manifest.file_name(file) for file in lowered)
            (written / operator_list.NAME).write_text(listed, encoding="utf-8")
        making = manifest.Making(_PRODUCER, ort.__version__, _TESTED, target, sample_axes(parts.data()), named)
        manifest.write(manifest.describe(parts.step, parts.rate, lowered, written, making, totals), written)
    return folder


def _wanted(files: Sequence[File]) -> list[File]:
    given = [files] if isinstance(files, str) else arguments.names("files", files)
    unknown = [file for file in given if file not in FILES]
    if unknown or not given:
        raise InvalidInputError(f"files requires some of {FILES}, got {unknown[0] if unknown else 'none'!r}")
    return [file for file in FILES if file in given]


def _class_names(given: Sequence[str]) -> list[str]:
    named = arguments.names("class_names", given)
    if not named or (twice := repeated(named)):
        raise InvalidInputError(f"class_names requires different names, got {f'two {twice!r}' if named else 'none'}")
    return named


def _totals(evaluation: ir.Model) -> manifest.Totals:
    """The running totals of an evaluation, which become required inputs of it."""
    outputs, readers = recorded.totals(evaluation), of_all_batches(evaluation)
    first = training_state.detach_initial_values(evaluation)
    return manifest.Totals(outputs, {name: first[name].numpy() for name in outputs}, readers)


@dataclasses.dataclass(frozen=True)
class _Parts:
    """The ingredients of a bundle.

    Attributes:
        step: the step; its state, and every other input, has no default.
        state: what is what.
        values: state input -> its value, as far as there are values.
        draws: state input -> how its first value is drawn, where it has no value yet.
        rate: the learning rate, or `None` for a step without such an input.
    """

    step: ir.Model
    state: TrainingState
    values: Mapping[str, Array]
    draws: Mapping[str, Draw]
    rate: float | None

    @classmethod
    def of(cls, source: str | os.PathLike[str] | onnx.ModelProto | ir.Model | Trainer) -> _Parts:
        """Takes a step or a trainer apart."""
        if isinstance(source, Trainer):
            rate = None if source.state.learning_rate is None else source.learning_rate
            step = copy_model(source.model)
            training_state.write(step, source.state)
            return cls(step, source.state, source.state_dict(), {}, rate)
        step = run_passes(source, [SortPass()])
        with malformed_models_explained(step):
            state = training_state.of(step)
            training_state.write(step, state)
        if all(pair.output is None for pair in state.pairs):
            got, way = _WITHOUT_UPDATES[bool(state.pairs)]
            raise InvalidModelError(f"a bundle requires a training step with updates, got {got}; {way}")
        values = {name: tensor.numpy() for name, tensor in training_state.detach_initial_values(step).items()}
        rate = values.pop(state.learning_rate or "", None)
        pairs = {pair.input for pair in state.pairs}
        draws = first_values.parse(step.metadata_props)
        return cls(
            step,
            state,
            {name: x for name, x in values.items() if name in pairs},
            {name: draw for name, draw in draws.items() if name in pairs - values.keys()},
            None if rate is None else shortest(rate),
        )

    def training(self) -> ir.Model:
        """The step without the models in its metadata, whose weights the bundle's other files have."""
        model = copy_model(self.step)
        attachments.drop(model)
        return model

    def constants(self, models: Iterable[ir.Model]) -> dict[str, ir.TensorProtocol]:
        """What models hold that is no state, by name."""
        state = self.places()
        held = (value for model in models for value in model.graph.initializers.values())
        return {str(x.name): x.const_value for x in held if x.const_value is not None and x.name not in state}

    def places(self) -> dict[str, str | None]:
        """Initializer with the value of a state -> the state, if no step changes it; `None` for what training changes.

        That stays in `init` and `predict`, of which each has its own values from then on.
        """
        kept = {pair.input: pair.input if pair.output is None else None for pair in self.state.pairs}
        return kept | {first_name(name): state for name, state in kept.items()}

    def initial(self) -> ir.Model:
        """A model whose outputs are the state; inputs are the open sizes of what has no value yet."""
        names = [pair.input for pair in self.state.pairs]
        self._check_values(names, "init")
        return initialization(self.step, {x: self.draws.get(x) or self._tensor(x, first_name(x)) for x in names})

    def data(self) -> dict[str, Sequence[int | str | None]]:
        """Shapes of the inputs that are neither state nor learning rate, those of unknown rank left out."""
        apart = {*(pair.input for pair in self.state.pairs), self.state.learning_rate}
        shapes = {str(x.name): declared_shape(x) for x in self.step.graph.inputs if x.name not in apart}
        return {name: shape for name, shape in shapes.items() if shape is not None}

    def evaluation(self, wanted: Sequence[File]) -> ir.Model:
        """The model that evaluates the step.

        Raises:
            UnsupportedOpError: nothing certain does, or only what moves state.
        """
        left_out = "eval' and 'predict"
        try:
            evaluated = evaluation_of(self.step)
            check_unmoving(evaluated)
            left_out = "predict"
            if "predict" in wanted:
                prediction_of(evaluated)
        except (InvalidModelError, UnsupportedOpError) as error:
            raise type(error)(f"{error}; files without '{left_out}' exports the rest") from error
        return evaluated

    def fill(self, prediction: ir.Model) -> None:
        """Puts the values of the state into a model in place of inputs, but for what has none yet."""
        names = {pair.input for pair in self.state.pairs} - self.draws.keys()
        read = [value for value in prediction.graph.inputs if value.name in names]
        self._check_values([str(value.name) for value in read], "predict")
        for value in read:
            assert value.name is not None
            prediction.graph.inputs.remove(value)
            value.const_value = self._tensor(value.name, value.name)
            value.shape = stated(value.const_value.shape.numpy())
            prediction.graph.register_initializer(value)

    def compare_sizes(self, model: ir.Model) -> None:
        """Makes a model refuse data whose sizes differ where they share a name."""
        EqualSizesPass({pair.input for pair in self.state.pairs} | {str(self.state.learning_rate)})(model)

    def _tensor(self, name: str, own: str) -> ir.TensorProtocol:
        declared = next(value.dtype for value in self.step.graph.inputs if value.name == name)
        return ir.Tensor(
            np.ascontiguousarray(self.values[name]).reshape(self.values[name].shape), dtype=declared, name=own
        )

    def _check_values(self, names: Sequence[str], file: File) -> None:
        missing = [name for name in names if name not in self.values and name not in self.draws]
        if missing:
            raise InvalidInputError(
                f"{file} requires a value of every state, got none of {some(missing)}; ll.Trainer(step, "
                f"initial_values=...) has them and can be exported; files without '{file}' exports the rest"
            )


def export_prediction(
    trainer: Trainer,
    path: str | os.PathLike[str],
    *,
    opset: int | None = None,
    schedule: str = "auto",
    external_data: bool | None = None,
) -> None:
    """Writes what a bundle calls `predict`, alone: predictions of data, with the weights of a trainer inside.

    Args:
        trainer: the trainer.
        path: the file.
        opset: as for `export_training`.
        schedule: as for `export_training`.
        external_data: as for `export_training`.

    Raises:
        InvalidModelError: the step has no predictions.
        UnsupportedOpError: nothing certain evaluates the step.
        OSError: nothing can be written there.
    """
    parts = _Parts.of(trainer)
    with malformed_models_explained(parts.step):
        model = lower(prediction_of(parts.evaluation(("predict",))), opset, schedule)
    parts.fill(model)
    parts.compare_sizes(model)
    save(model, path, external_data=external_data, check=check_loadable)
