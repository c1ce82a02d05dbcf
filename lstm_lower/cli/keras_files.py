"""`lstm-lower train` of a file of Keras': the model that it holds, its step, and the way back into such a file."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lstm_lower.errors import InvalidInputError
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
        with needed_by(f"{path}, a file of Keras',"):
            from lstm_lower.keras.files import opened
        self.model: Any = opened(path)
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
        trainer.to_keras(self.model, self.model.optimizer if self._has_own_optimizer else None)
        save = self.model.save_weights if path.name.endswith(".weights.h5") else self.model.save
        with atomic_files(path.parent) as folder:
            save(str(folder / path.name))


def check_ending(path: Path) -> None:
    """Raises an InvalidInputError for a name by which Keras would not know what to write."""
    if not path.name.endswith(_ENDINGS):
        raise InvalidInputError(
            f"--back requires a name in {', '.join(_ENDINGS)} for a model of Keras', got {path.name}"
        )
