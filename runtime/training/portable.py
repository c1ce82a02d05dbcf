"""The ways on which trained weights leave a trainer, and come back."""

from __future__ import annotations

import abc
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import onnx_ir as ir

from lstm_lower.records.state import TrainingState
from lstm_lower.runtime.training import modules, weights

if TYPE_CHECKING:
    from lstm_lower.runtime.training.trainer import Trainer

Array = np.ndarray[Any, Any]


class Portable(abc.ABC):
    """Whoever has a step and its state can give the weights away.

    Attributes:
        state: which inputs are state, the loss, the learning rate.
        model: the step.
    """

    state: TrainingState
    model: ir.Model

    @abc.abstractmethod
    def state_dict(self) -> dict[str, Array]:
        """The state by input name, copied to the host."""

    @abc.abstractmethod
    def load_state_dict(self, values: Mapping[str, Any]) -> None:
        """Puts values in place of the whole state."""

    def to_torch(self, module: Any) -> None:
        """Copies weights and buffers into a PyTorch module, those that it has under the same names.

        Args:
            module: an `nn.Module`, such as the one that the step was made of.

        Raises:
            InvalidInputError: it has none of them, or one of another shape; nothing is changed.
        """
        trained = [pair.input for pair in self.state.pairs if pair.role == "weight"]
        modules.copy_into(module, self.state_dict(), trained)

    def to_keras(self, model: Any) -> None:
        """Copies weights and what layers keep into a Keras model.

        Args:
            model: the model that the step was made of, the same one loaded from a file, or built anew by the same code,
                where Keras numbers layers on.

        Raises:
            InvalidInputError: it is not certain which variable is which, or one has another shape; nothing is changed.
            UnsupportedOpError: it is not certain how the step is evaluated, and so what belongs to the model.
        """
        held = self.state_dict()
        values = {name: held[source] for source, name in weights.names_of(self.model, self.state).items()}
        weights.copy_into_keras(model, values)

    def save_weights(self, path: str | os.PathLike[str]) -> None:
        """Writes weights and what layers keep as safetensors, without the optimizer's state.

        Names are those of the framework: `module.load_state_dict(safetensors.torch.load_file(path))` reads what a step
        of `ll.from_torch` holds, paths of variables name what one of `ll.from_keras` holds.

        Raises:
            UnsupportedOpError: it is not certain how the step is evaluated, and so what belongs to the model.
            OSError: nothing can be written there.
        """
        weights.save(path, weights.names_of(self.model, self.state), self.state_dict())

    def load_weights(self, path: str | os.PathLike[str]) -> None:
        """Reads what `save_weights` or the framework wrote under these names; the optimizer's state stays.

        Raises:
            InvalidInputError: the file is damaged, or lacks a value, or one has another dtype or shape; nothing is
                changed.
            FileNotFoundError: there is no such file.
            UnsupportedOpError: as for `save_weights`.
        """
        read = weights.load(path, weights.names_of(self.model, self.state))
        self.load_state_dict({**self.state_dict(), **read})

    def export(
        self,
        path: str | os.PathLike[str],
        *,
        opset: int | None = None,
        schedule: str = "auto",
        external_data: bool | None = None,
    ) -> None:
        """Writes the trained model for inference: its own outputs of its data, weights inside, in plain ONNX.

        Args:
            path: the file; `ll.export_training` writes a folder to train on elsewhere, too.
            opset: version of `ai.onnx`, as for `ll.lower`.
            schedule: how loops run, as for `ll.lower`.
            external_data: keep weights in `<name>.data`; `None` where protobuf's 2 GB would not hold them.

        Raises:
            InvalidModelError: the step has no outputs of the model's own.
            UnsupportedOpError: it is not certain how the step is evaluated.
            OSError: nothing can be written there.
        """
        from lstm_lower.runtime.training.bundle import export_prediction

        export_prediction(cast("Trainer", self), path, opset=opset, schedule=schedule, external_data=external_data)
