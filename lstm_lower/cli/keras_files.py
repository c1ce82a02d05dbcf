"""`lstm-lower train` of a file of Keras': the model that it holds, its step, and the way back into such a file."""

from __future__ import annotations

import importlib
import json
import warnings
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lstm_lower.errors import InvalidInputError, LstmLowerWarning
from lstm_lower.extras import needed_by
from lstm_lower.records.files import atomic_files, protect

if TYPE_CHECKING:
    import onnx

    from lstm_lower.runtime.training.trainer import Trainer

_HDF5 = b"\x89HDF\r\n\x1a\n"
_ENDINGS = (".keras", ".weights.h5", ".h5")


def is_keras(path: Path) -> bool:
    """Whether a file holds a model, or values, of Keras', by its content."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        if file.read(len(_HDF5)) == _HDF5:
            return True
    return zipfile.is_zipfile(path) and "config.json" in zipfile.ZipFile(path).namelist()


class KerasFile:
    """A model in a file of Keras'.

    Attributes:
        model: the model, of Keras 3 or tf-keras, whichever wrote the file.
    """

    def __init__(self, path: Path) -> None:
        """Loads it.

        Raises:
            InvalidInputError: the file holds no whole model, or Keras cannot load it.
            MissingPackageError: the framework that wrote it is not installed.
        """
        protect(path)
        version = _version(path)
        self._framework = "keras" if int(version.partition(".")[0]) >= 3 else "tf_keras"
        with needed_by(f"{path}, which Keras {version} wrote,"):
            models = importlib.import_module(self._framework).models
        try:
            self.model: Any = _loaded(models.load_model, path)
        except Exception as error:
            reason = str(error).partition("\n")[0]
            raise InvalidInputError(
                f"{path}: a model that {self._framework} loads is required, got one for which it says: {reason}"
            ) from error
        self._has_own_optimizer = False

    def step(self, loss: str | None, optimizer: str | None) -> onnx.ModelProto:
        """Makes the training step; loss and optimizer that are not given are those that the model was compiled with.

        Raises:
            InvalidInputError: there are none.
            UnsupportedOpError: a layer cannot be exported.
        """
        from lstm_lower.keras import from_keras

        self._has_own_optimizer = optimizer is None
        step: onnx.ModelProto = from_keras(self.model, loss, optimizer)
        return step

    def write(self, trainer: Trainer, path: Path) -> None:
        """Writes the trained model, or its weights alone, as the path's ending says.

        Raises:
            OSError: nothing can be written there.
        """
        optimizer = self.model.optimizer if self._has_own_optimizer else None
        if optimizer is not None and not getattr(optimizer, "built", True):
            optimizer.build(self.model.trainable_variables)
        trainer.to_keras(self.model, optimizer)
        save = self.model.save_weights if path.name.endswith(".weights.h5") else self.model.save
        with atomic_files(path.parent) as folder:
            save(str(folder / path.name))


def _loaded(load: Any, path: Path) -> Any:
    try:
        return load(str(path))
    except Exception as error:  # noqa: BLE001 (what Keras says depends on the file)
        # Keras 3 cannot read how most HDF5 files call a loss; the model is enough.
        model = load(str(path), compile=False)
        reason = str(error).partition("\n")[0]
        warnings.warn(
            f"{path}: Keras loads the model without what it is compiled with ({reason}): --loss and --optimizer say it",
            LstmLowerWarning,
            stacklevel=3,
        )
        return model


def check_ending(path: Path) -> None:
    """Raises an InvalidInputError for a name by which Keras would not know what to write."""
    if not path.name.endswith(_ENDINGS):
        raise InvalidInputError(
            f"--back requires a name in {', '.join(_ENDINGS)} for a model of Keras', got {path.name}"
        )


def _version(path: Path) -> str:
    """The version of Keras that wrote a file."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            if "metadata.json" in archive.namelist():
                return str(json.loads(archive.read("metadata.json")).get("keras_version", "3"))
        return "3"
    with needed_by(f"{path}, an HDF5 file,"):
        h5py: Any = importlib.import_module("h5py")
    with h5py.File(path, "r") as file:
        config = file.attrs.get("model_config")
        if config is None:
            raise InvalidInputError(f"{path}: a file of a whole model is required, got weights alone")
        if '"function_type": "lambda"' in (config.decode() if isinstance(config, bytes) else str(config)):
            raise InvalidInputError(f"{path}: a model without Python code is required, got one with a Lambda layer")
        version = file.attrs.get("keras_version", "2")
        return version.decode() if isinstance(version, bytes) else str(version)
