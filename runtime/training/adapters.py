"""Adapters: what training has changed of the model in a bundle, as a file of a few kB beside a base of any size.

An adapter holds the values of the state that steps change and `predict.onnx` reads, under the names that the framework
has for them. docs/bundle.md describes it; the packages for JavaScript and C++ write and read the same.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from lstm_lower.dims import format_shape
from lstm_lower.errors import InvalidInputError, InvalidModelError, some
from lstm_lower.graph.values import declared_shape
from lstm_lower.passes.driver import run_passes
from lstm_lower.passes.targets.fixed_sizes import FixedSizesPass
from lstm_lower.records import first_values, manifest
from lstm_lower.records.model_files import load, to_proto
from lstm_lower.runtime.training import checkpoint
from lstm_lower.runtime.training.trainer import Trainer

FORMAT = "lstm_lower.adapter.1"
# What metadata of other programs' files may say.
_FOREIGN = {"format"}

Array = np.ndarray[Any, Any]


def export_adapter(
    bundle: str | os.PathLike[str],
    trainer_or_checkpoint: Trainer | str | os.PathLike[str],
    path: str | os.PathLike[str],
) -> None:
    """Writes what training has changed of the model in a bundle.

    Args:
        bundle: the folder, with `predict.onnx`.
        trainer_or_checkpoint: a trainer of the bundle's step, or the file that `Trainer.save`, `lstm-lower train` or
            the packages for JavaScript and C++ wrote.
        path: the file, safetensors.

    Raises:
        InvalidModelError: the bundle is damaged, or has no `predict.onnx`.
        InvalidInputError: the state is none of the bundle's step.
        FileNotFoundError: a file is not there.
        MissingPackageError: safetensors is not installed.
        OSError: nothing can be written there.
    """
    about = manifest.read(Path(bundle))
    if isinstance(trainer_or_checkpoint, Trainer):
        state, what = trainer_or_checkpoint.state_dict(), "the trainer"
    else:
        state, what = checkpoint.read(trainer_or_checkpoint)[0], os.fspath(trainer_or_checkpoint)
    wanted = _changed(about, bundle)
    arrays = {name: _fitting(what, pair["input"], pair, state) for name, pair in wanted.items()}
    checkpoint.write_sealed(path, arrays, FORMAT, {"bundle": about["digest"]})


def merge(
    bundle: str | os.PathLike[str] | onnx.ModelProto | ir.Model, adapter: str | os.PathLike[str] | Trainer
) -> onnx.ModelProto:
    """A model with trained weights in place of those before training.

    Args:
        bundle: a bundle's folder, whose files are compared with their hashes and of which the model that predicts is
            taken; or a model, as a path, a protobuf or an onnx_ir model, such as the whole one of which `split_head`
            gave a head that was trained. It is not changed.
        adapter: what `export_adapter` or the packages for JavaScript and C++ wrote, for this bundle if it is one; any
            safetensors file with names of weights, which tells nothing of where it comes from; a checkpoint, or a
            trainer. What a checkpoint has besides weights, such as an optimizer's state, is left out.

    Returns:
        The model, weights inside.

    Raises:
        InvalidModelError: the model is malformed; the bundle is damaged, or has no `predict.onnx`.
        InvalidInputError: the file is damaged, is one of another bundle, or its arrays do not fit: the model lacks one
            of the trained weights, or a weight has another dtype or shape.
        FileNotFoundError: a file is not there.
        MissingPackageError: safetensors is not installed.
    """
    given = _Given.of(adapter)
    if isinstance(bundle, (str, os.PathLike)) and Path(bundle).is_dir():
        return to_proto(_merged_bundle(Path(bundle), given))
    return to_proto(_merged_model(run_passes(bundle, []), given))


@dataclasses.dataclass(frozen=True)
class _Given:
    """Trained weights.

    Attributes:
        what: where they are, for messages.
        arrays: by name.
        is_state: whether they are the whole state of a step, by its inputs; otherwise weights by their framework's
            names.
        trained: of a state's arrays the trained weights, which no model may lack; none where a file does not tell, as
            those of former versions and of the packages for JavaScript and C++.
        digest: of the bundle that they are of, where that is told.
    """

    what: str
    arrays: Mapping[str, Array]
    is_state: bool = False
    trained: Collection[str] = ()
    digest: str | None = None

    @classmethod
    def of(cls, source: str | os.PathLike[str] | Trainer) -> _Given:
        if isinstance(source, Trainer):
            moving = {pair.variable or pair.input for pair in source.state.pairs if pair.output is not None}
            return cls("the trainer", {name: x for name, x in source.weights().items() if name in moving})
        given: object = source
        if not isinstance(given, (str, os.PathLike)):
            raise InvalidInputError(f"an adapter requires the path of a file, or a trainer, got {type(given).__name__}")
        what = os.fspath(source)
        arrays, metadata = checkpoint.read_arrays(source)
        if checkpoint.FORMAT in metadata:
            trained = checkpoint.trained(source, checkpoint.sealed_notes(source, metadata, checkpoint.FORMAT))
            return cls(what, arrays, is_state=True, trained=trained)
        if FORMAT in metadata:
            notes = checkpoint.sealed_notes(source, metadata, FORMAT)
            return cls(what, arrays, digest=str(notes.get("bundle")))
        if set(metadata) - _FOREIGN:
            raise InvalidInputError(
                f"{what}: an adapter, a checkpoint or arrays without metadata are required, got {sorted(metadata)}"
            )
        return cls(what, arrays)

    def check_names(self, known: Collection[str]) -> None:
        """Refuses weights that have no place, and none at all.

        Raises:
            InvalidInputError: there are such.
        """
        unknown = [name for name in (self.trained if self.is_state else self.arrays) if name not in known]
        if unknown or not set(known) & set(self.arrays):
            got = f"'{unknown[0]}'" if unknown else "none of them"
            raise InvalidInputError(
                f"{self.what}: weights of the model are required, {some([*known])}, got {got}; merge into the model "
                "that was trained, or into the bundle of its step"
            )


def _merged_bundle(folder: Path, given: _Given) -> ir.Model:
    about = manifest.read(folder)
    wanted = _changed(about, folder)
    if given.digest not in (None, about["digest"]):
        raise InvalidInputError(
            f"{given.what}: an adapter of this bundle is required, got one of another, {str(given.digest)[:12]}…; "
            "write one of this bundle with ll.export_adapter"
        )
    names = {pair["input"] if given.is_state else name: pair for name, pair in wanted.items()}
    # Some weights may be read by the loss alone.
    given.check_names([pair["input"] for pair in about["state"]] if given.is_state else names)
    manifest.check_files(folder, about, "predict")
    model = load(folder / about["files"]["predict"]["model"])
    weights = _weights(model, about["predict"]["state"])
    for name, pair in names.items():
        if pair["input"] not in weights:
            raise InvalidModelError(f"{folder}: predict.onnx requires the weight '{pair['input']}', got none")
        _put(given.what, model, weights[pair["input"]], _fitting(given.what, name, pair, given.arrays))
    first_values.remove(model, about["predict"]["state"])
    return model


def _merged_model(model: ir.Model, given: _Given) -> ir.Model:
    draws = first_values.parse(model.metadata_props)
    weights = _weights(model, draws)
    given.check_names(weights)
    if missing := [name for name in draws if name not in given.arrays]:
        raise InvalidInputError(
            f"{given.what}: a value of '{missing[0]}' is required, which the model has none of, got none"
        )
    for name, value in weights.items():
        if name in given.arrays:
            _put(given.what, model, value, given.arrays[name])
    first_values.remove(model, draws)
    return model


def _weights(model: ir.Model, without: Collection[str]) -> dict[str, ir.Value]:
    """Values that a model has, and inputs that are weights without one."""
    opened = [value for value in model.graph.inputs if value.name in without]
    return {str(value.name): value for value in [*model.graph.initializers.values(), *opened]}


def _put(what: str, model: ir.Model, value: ir.Value, array: Array) -> None:
    """Gives a weight a value; one that has none before is an input, whose open sizes are known from then on."""
    shape = declared_shape(value) or ()
    dtype = None if value.dtype is None else value.dtype.numpy().name
    _check_form(what, str(value.name), (dtype, shape), array)
    if value.is_graph_input():
        FixedSizesPass({dim: size for dim, size in zip(shape, array.shape, strict=True) if isinstance(dim, str)})(model)
        model.graph.inputs.remove(value)
    value.const_value = ir.Tensor(np.asarray(array, order="C"), dtype=value.dtype, name=value.name)
    model.graph.register_initializer(value)


def _changed(about: Mapping[str, Any], bundle: object) -> dict[str, Mapping[str, Any]]:
    """What training changes of the model, by the framework's name, as described."""
    if "predict" not in about["files"]:
        raise InvalidModelError(f"{bundle}: a bundle with predict.onnx is required; export it with all its files")
    within = about["predict"]["state"]
    pairs = [
        x for x in about["state"] if x["output"] is not None and (x["predict"] is not None or x["input"] in within)
    ]
    named = {pair["variable"] or pair["input"]: pair for pair in pairs}
    # Where the framework has one name for several, they keep those of the step.
    return named if len(named) == len(pairs) else {pair["input"]: pair for pair in pairs}


def _fitting(what: str, name: str, pair: Mapping[str, Any], arrays: Mapping[str, Array]) -> Array:
    if name not in arrays:
        raise InvalidInputError(f"{what}: a value of '{name}' is required, got none; it is of another model")
    _check_form(what, name, (pair["dtype"], pair["shape"]), arrays[name])
    return arrays[name]


def _check_form(what: str, name: str, form: tuple[str | None, Sequence[int | str | None]], array: Array) -> None:
    dtype, shape = form
    sizes = len(shape) == array.ndim and all(x == y for x, y in zip(shape, array.shape, strict=True) if type(x) is int)
    if array.dtype.name != dtype or not sizes:
        raise InvalidInputError(
            f"{what}: '{name}' requires {dtype}{format_shape(tuple(shape))}, got "
            f"{array.dtype.name}{format_shape(array.shape)}"
        )
