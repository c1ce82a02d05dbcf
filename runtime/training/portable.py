"""How trained weights leave a trainer, and come back."""

from __future__ import annotations

import abc
import functools
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import onnx_ir as ir

from lstm_lower.errors import InvalidInputError, some
from lstm_lower.records.state import TrainingState
from lstm_lower.runtime.training import checkpoint, modules, weights
from lstm_lower.runtime.training.holdings import ModuleHoldings

if TYPE_CHECKING:
    from lstm_lower.runtime.training.trainer import Trainer

Array = np.ndarray[Any, Any]


class Portable(abc.ABC):
    """Gives away and takes back the weights of a step and its state.

    Attributes:
        state: which inputs are state, the loss, the learning rate.
        model: the step.
    """

    state: TrainingState
    model: ir.Model

    @abc.abstractmethod
    def held_state(self) -> dict[str, Array]:
        """The state by input name, copied to the host."""

    @abc.abstractmethod
    def put_state(self, values: Mapping[str, Any]) -> None:
        """Puts values in place of the whole state."""

    @functools.cached_property
    def _module(self) -> ModuleHoldings:
        return ModuleHoldings(self.model)

    def state_dict(self) -> dict[str, Array]:
        """The state by input name, copied to the host: later steps do not change it.

        Of a step that `ll.from_torch` made these are all parameters and buffers of the module's own state dict, tied
        ones under each of their names and constants too, and the optimizer's state.
        """
        held = self.held_state()
        return self._module.beside(held) | held

    def load_state_dict(self, values: Mapping[str, Any]) -> None:
        """Puts values in place of the whole state.

        Args:
            values: by name, as `state_dict` has them; what is no state of the step may be left out.

        Raises:
            InvalidInputError: a name of the state is missing or one is unknown, a value differs in dtype or shape, or
                from the constant that the step has instead of a state; nothing is changed.
        """
        names = [pair.input for pair in self.state.pairs]
        found = self._module.state_of(values, set(names))
        if missing := [name for name in names if name not in found]:
            raise InvalidInputError(
                f"state requires the {len(names)} values {some(names)}, got none of '{missing[0]}'; "
                "load_state_dict(trainer.state_dict() | values) leaves what is missing as it is"
            )
        self.put_state(found)

    def weights(self) -> dict[str, Array]:
        """Weights and what layers keep, by the names of the framework, without the optimizer's state.

        Of a step that `ll.from_torch` made this is what the module's own `state_dict` has, and a strict
        `load_state_dict` takes: `{name: torch.from_numpy(value) for name, value in trainer.weights().items()}`.

        Raises:
            InvalidInputError: two of them have one name.
            UnsupportedOpError: it is not certain how the step is evaluated, and so what belongs to the model.
        """
        held = self.held_state()
        if self._module.states is not None:
            return self._module.weights(held)
        return weights.by_name(weights.names_of(self.model, self.state), held)

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

        A weight that neither training nor evaluation reads is not in the step, and stays as it is in the model.

        Args:
            model: the model that the step was made of, the same one loaded from a file, or built anew by the same code,
                where Keras numbers layers on.

        Raises:
            InvalidInputError: it is not certain which variable is which, or one has another shape; nothing is changed.
            UnsupportedOpError: it is not certain how the step is evaluated, and so what belongs to the model.
        """
        weights.copy_into_keras(model, self.weights(), weights.recorded(self.model))

    def save_weights(self, path: str | os.PathLike[str]) -> None:
        """Writes weights and what layers keep as safetensors, without the optimizer's state.

        Names are those of the framework: `module.load_state_dict(safetensors.torch.load_file(path))` reads what a step
        of `ll.from_torch` holds, paths of variables name what one of `ll.from_keras` holds.

        Raises:
            UnsupportedOpError: it is not certain how the step is evaluated, and so what belongs to the model.
            OSError: nothing can be written there.
        """
        checkpoint.write_arrays(path, self.weights())

    def load_weights(self, path: str | os.PathLike[str]) -> None:
        """Reads what `save_weights` or the framework wrote under these names; the optimizer's state stays.

        Raises:
            InvalidInputError: the file is damaged, or lacks a value, or one has another dtype or shape, or differs from
                what the step holds as a constant; nothing is changed.
            FileNotFoundError: there is no such file.
            UnsupportedOpError: as for `save_weights`.
        """
        if self._module.states is not None:
            read = self._module.state_dict_of(weights.load(path, self._module.states))
        else:
            names = weights.names_of(self.model, self.state)
            arrays = weights.load(path, [[name] for name in names.values()])
            read = {source: arrays[name] for source, name in names.items()}
        self.load_state_dict({**self.held_state(), **read})

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
