"""Files of Keras models: which framework wrote one, and the model that it loads."""

from __future__ import annotations

import importlib
import json
import os
import zipfile
from pathlib import Path
from typing import Any

from lstm_lower.errors import InvalidInputError, warn
from lstm_lower.extras import MissingPackageError
from lstm_lower.keras.arguments import first_line

_FIRST_OF_THREE = 3


def opened(path: str | os.PathLike[str]) -> Any:
    """The model of a file: of Keras 3 where Keras 3 wrote it, else of tf-keras.

    Args:
        path: a `.keras` archive, a HDF5 file of a whole model, or the folder of a SavedModel that tf-keras wrote.

    Raises:
        InvalidInputError: there is none, it holds no model, or the framework cannot load it.
        MissingPackageError: the framework that wrote it is not installed.
    """
    path = Path(path)
    if not path.exists():
        raise InvalidInputError(f"{path}: a file of a Keras model is required, got no such file")
    version, configs = _described(path)
    if any(_holds_code(config) for config in configs):
        raise InvalidInputError(
            f"{path}: a model without Python code is required, got one with a Lambda layer, whose code loading would "
            "run; if you trust it, load it yourself and give from_keras the model"
        )
    framework, distribution = ("keras", "keras") if version >= _FIRST_OF_THREE else ("tf_keras", "tf-keras")
    load = _package(path, f"which Keras {version} wrote", framework, distribution).models.load_model
    try:
        return _loaded(load, path)
    except Exception as error:
        raise InvalidInputError(
            f"{path}: a model that {framework} loads is required, got one that Keras {version} wrote, for which it "
            f"fails with: {first_line(error)}; classes of your own must be registered "
            f"({framework}.saving.register_keras_serializable)"
        ) from error


def _package(path: Path, what: str, name: str, distribution: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise MissingPackageError(
            f"{path}, {what}, requires {name}, got an installation without it: pip install {distribution}"
        ) from error


def _loaded(load: Any, path: Path) -> Any:
    try:
        return load(str(path))
    except Exception as error:  # noqa: BLE001 (what Keras says depends on the file)
        # What is compiled may be named in a way that Keras cannot read, or be somebody's own; the model is enough.
        model = load(str(path), compile=False)
        warn(
            f"{path}: Keras loads the model without what it was compiled with ({first_line(error)}): loss and "
            "optimizer have to be given"
        )
        return model


def _described(path: Path) -> tuple[int, list[Any]]:
    """The version of Keras that wrote a file, and the configurations in it."""
    try:
        if (path / "saved_model.pb").is_file():
            return 2, _of_saved_model(path)
        if path.is_file() and zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                if {"metadata.json", "config.json"} <= {*archive.namelist()}:
                    metadata = json.loads(archive.read("metadata.json"))
                    return _version(metadata["keras_version"]), [json.loads(archive.read("config.json"))]
        if path.is_file() and (described := _of_hdf5(path)) is not None:
            return described
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise InvalidInputError(
            f"{path}: a file of a Keras model is required, got one that is damaged: {error}"
        ) from error
    raise InvalidInputError(f"{path}: a file of a Keras model is required (.keras, .h5), got another one")


def _of_saved_model(path: Path) -> list[Any]:
    if not (metadata := path / "keras_metadata.pb").is_file():
        raise InvalidInputError(
            f"{path}: a SavedModel that tf-keras wrote is required, got one without keras_metadata.pb; "
            "ll.from_tensorflow takes any"
        )
    _package(path, "which Keras 2 wrote", "tf_keras", "tf-keras")
    from tf_keras.protobuf import saved_metadata_pb2

    nodes = saved_metadata_pb2.SavedMetadata.FromString(metadata.read_bytes()).nodes
    return [json.loads(node.metadata) for node in nodes if node.metadata]


def _of_hdf5(path: Path) -> tuple[int, list[Any]] | None:
    h5py = _package(path, "a HDF5 file", "h5py", "h5py")
    if not h5py.is_hdf5(path):
        return None
    with h5py.File(path, "r") as file:
        if "model_config" not in file.attrs:
            raise InvalidInputError(
                f"{path}: a file of a whole model is required, got weights alone: build the model, "
                "model.load_weights, and give from_keras the model"
            )
        return _version(file.attrs.get("keras_version", "2")), [json.loads(file.attrs["model_config"])]


def _version(written: Any) -> int:
    text = written.decode() if isinstance(written, bytes) else str(written)
    return int(text.partition(".")[0])


def _holds_code(config: Any) -> bool:
    """Whether a configuration has functions as marshalled code, which Keras' older loaders run."""
    if isinstance(config, list):
        return any(map(_holds_code, config))
    if not isinstance(config, dict):
        return False
    marked = config.get("class_name") == "__lambda__"
    marked = marked or any(key.endswith("_type") and value == "lambda" for key, value in config.items())
    return marked or any(map(_holds_code, config.values()))
