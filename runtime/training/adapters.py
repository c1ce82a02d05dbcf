"""Adapters: what training has changed of the model in a bundle, as a file of a few kB beside a base of any size.

An adapter holds the values of the state that steps change and `predict.onnx` reads, under the names that the framework
has for them. docs/bundle.md describes it; the packages for JavaScript and C++ write and read the same.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from lstm_lower.dims import format_shape
from lstm_lower.errors import InvalidInputError, InvalidModelError, some
from lstm_lower.graph.values import declared_shape
from lstm_lower.passes.targets.fixed_sizes import FixedSizesPass
from lstm_lower.records import manifest
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


def merge(bundle: str | os.PathLike[str], adapter: str | os.PathLike[str]) -> onnx.ModelProto:
    """The model of a bundle that predicts, with the weights of an adapter in place of those before training.

    Args:
        bundle: the folder; its files are compared with their hashes.
        adapter: what `export_adapter` or the packages for JavaScript and C++ wrote for this bundle, or any safetensors
            file with the same names, which tells nothing of where it comes from.

    Returns:
        The model, weights inside.

    Raises:
        InvalidModelError: the bundle is damaged, or has no `predict.onnx`.
        InvalidInputError: the adapter is damaged, is one of another bundle, or its arrays do not fit.
        FileNotFoundError: a file is not there.
        MissingPackageError: safetensors is not installed.
    """
    folder, what = Path(bundle), os.fspath(adapter)
    about = manifest.read(folder)
    wanted = _changed(about, bundle)
    arrays = _read(adapter, about["digest"])
    unknown = [name for name in arrays if name not in wanted]
    if unknown:
        raise InvalidInputError(f"{what}: an adapter requires {some([*wanted])}, got '{unknown[0]}'")
    manifest.check_files(folder, about, "predict")
    model = load(folder / about["files"]["predict"]["model"])
    weights = {value.name: value for value in [*model.graph.initializers.values(), *model.graph.inputs]}
    for name, pair in wanted.items():
        value = weights.get(pair["input"])
        if value is None:
            raise InvalidModelError(f"{folder}: predict.onnx requires the weight '{pair['input']}', got none")
        _put(what, model, value, _fitting(what, name, pair, arrays))
    return to_proto(model)


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


def _read(path: str | os.PathLike[str], digest: str) -> dict[str, Array]:
    arrays, metadata = checkpoint.read_arrays(path)
    if FORMAT not in metadata:
        if set(metadata) - _FOREIGN:
            raise InvalidInputError(f"{path}: an adapter is required, got a file with {sorted(metadata)}")
        return arrays
    notes = checkpoint.sealed_notes(path, metadata, FORMAT)
    if notes.get("bundle") != digest:
        raise InvalidInputError(
            f"{path}: an adapter of this bundle is required, got one of another, {str(notes.get('bundle'))[:12]}…"
        )
    return arrays
