"""The state of a training run: parameters, gradients, what layers and optimizers keep, and notes of one's own.

A checkpoint is a safetensors file. Its arrays are named `parameter/<name>`, `layer/<input>` and
`optimizer/<sequence>/<parameter>`; the rest is in its notes.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from typing import Any, Self

import numpy as np

from lstm_lower.errors import InvalidInputError, damage_told, nearest
from lstm_lower.runtime.training import checkpoint

FORMAT = "lstm_lower.ort_training.1"

Array = np.ndarray[Any, Any]
Property = int | float | str


class UnknownNameError(InvalidInputError, KeyError):
    """A parameter or property that a checkpoint does not have."""

    __str__ = ValueError.__str__


@dataclasses.dataclass
class OptimizerState:
    """The state of an optimizer.

    Attributes:
        step: the number of updates so far.
        learning_rate: the rate of the next one.
        slots: sequence -> parameter -> what is kept of it.
    """

    step: int = 0
    learning_rate: float = 0.001
    slots: dict[str, dict[str, Array]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class StateContents:
    """All that a state consists of, shared by those who work on it.

    Attributes:
        parameters: by name; of a nominal state an array is broadcast from one number and stands for its shape alone.
        trainable: names of those that are trained, in the order of the training model.
        gradients: parameter -> accumulated gradient.
        layers: input of the training model -> what a layer carries.
        optimizer: what an optimizer keeps, `None` without one.
        properties: notes.
        is_nominal: whether parameters have no numbers yet.
    """

    parameters: dict[str, Array]
    trainable: list[str]
    gradients: dict[str, Array] = dataclasses.field(default_factory=dict)
    layers: dict[str, Array] = dataclasses.field(default_factory=dict)
    optimizer: OptimizerState | None = None
    properties: dict[str, Property] = dataclasses.field(default_factory=dict)
    is_nominal: bool = False

    def nominal(self) -> StateContents:
        """The same without numbers."""
        empty = {name: np.broadcast_to(value.dtype.type(0), value.shape) for name, value in self.parameters.items()}
        return StateContents(empty, list(self.trainable), is_nominal=True)

    def set_parameter(self, name: str, value: Any) -> None:
        """Puts a value in a parameter's place.

        Raises:
            InvalidInputError: it differs in dtype or shape.
        """
        self.check_numbers()
        before, array = self.parameters[name], np.asarray(value)
        if array.dtype != before.dtype or array.shape != before.shape:
            raise InvalidInputError(
                f"parameter '{name}' requires {before.dtype}{list(before.shape)}, got {array.dtype}{list(array.shape)}"
            )
        self.parameters[name] = array.copy()

    def check_numbers(self) -> None:
        """Raises an error where parameters have no numbers."""
        if self.is_nominal:
            raise InvalidInputError(
                "a nominal checkpoint requires parameters before they are read or trained, got none yet; "
                "Module.copy_buffer_to_parameters(buffer, trainable_only=False) brings them"
            )


class Parameter:
    """A parameter of a model.

    Attributes:
        name: its name.
    """

    def __init__(self, held: StateContents, name: str) -> None:
        self._held = held
        self.name = name

    @property
    def data(self) -> Array:
        """A copy of its numbers; what is assigned takes their place."""
        self._held.check_numbers()
        return self._held.parameters[self.name].copy()

    @data.setter
    def data(self, value: Array) -> None:
        self._held.set_parameter(self.name, value)

    @property
    def grad(self) -> Array | None:
        """The accumulated gradient, zeros before the first step; `None` of a frozen parameter."""
        if not self.requires_grad:
            return None
        value = self._held.parameters[self.name]
        return self._held.gradients.get(self.name, np.zeros(value.shape, value.dtype)).copy()

    @property
    def requires_grad(self) -> bool:
        """Whether it is trained."""
        return self.name in self._held.trainable

    def __repr__(self) -> str:
        return f"Parameter(name={self.name}, requires_grad={self.requires_grad})"


class Parameters:
    """Parameters by name, in alphabetical order; iterating gives pairs of name and parameter."""

    def __init__(self, held: StateContents) -> None:
        self._held = held

    def __getitem__(self, name: str) -> Parameter:
        self._check(name)
        return Parameter(self._held, name)

    def __setitem__(self, name: str, value: Array) -> None:
        self._check(name)
        self._held.set_parameter(name, value)

    def __contains__(self, name: object) -> bool:
        return name in self._held.parameters

    def __iter__(self) -> Iterator[tuple[str, Parameter]]:
        for name in sorted(self._held.parameters):
            yield name, Parameter(self._held, name)

    def __len__(self) -> int:
        return len(self._held.parameters)

    def __repr__(self) -> str:
        return f"Parameters({sorted(self._held.parameters)})"

    def _check(self, name: str) -> None:
        if name not in self:
            raise UnknownNameError(
                f"a parameter requires one of the {len(self)} names of the checkpoint, got {name!r}"
                f"{nearest(str(name), self._held.parameters)}"
            )


class Properties:
    """Notes by name, each an integer, a float or a text; iterating gives pairs of name and value."""

    def __init__(self, held: StateContents) -> None:
        self._properties = held.properties

    def __getitem__(self, name: str) -> Property:
        if name not in self:
            raise UnknownNameError(f"a property requires one of {sorted(self._properties)}, got {name!r}")
        return self._properties[name]

    def __setitem__(self, name: str, value: Property) -> None:
        number = isinstance(value, (int, np.integer))
        if not (number or isinstance(value, (float, np.floating, str))):
            raise InvalidInputError(f"property {name!r} requires an int, a float or a str, got {value!r}")
        self._properties[str(name)] = int(value) if number else value if isinstance(value, str) else float(value)

    def __contains__(self, name: object) -> bool:
        return name in self._properties

    def __iter__(self) -> Iterator[tuple[str, Property]]:
        return iter(sorted(self._properties.items()))

    def __len__(self) -> int:
        return len(self._properties)

    def __repr__(self) -> str:
        return f"Properties({dict(self)})"


class CheckpointState:
    """The state of a training run, as `load_checkpoint` makes it.

    Attributes:
        parameters: the parameters by name.
        properties: notes by name.
    """

    def __init__(self, state: StateContents) -> None:
        if not isinstance(state, StateContents):
            raise InvalidInputError(
                f"CheckpointState must be made by CheckpointState.load_checkpoint(path), got {state!r}"
            )
        self.held = state
        self.parameters = Parameters(state)
        self.properties = Properties(state)

    @classmethod
    def load_checkpoint(cls, checkpoint_uri: str | os.PathLike[str]) -> Self:
        """Reads a checkpoint, complete or nominal.

        Raises:
            InvalidInputError: it is not a checkpoint, or is damaged.
            FileNotFoundError: there is no such file.
        """
        arrays, notes = checkpoint.read(checkpoint_uri)
        return cls(_parse(os.fspath(checkpoint_uri), arrays, notes))

    @classmethod
    def save_checkpoint(
        cls,
        state: CheckpointState,
        checkpoint_uri: str | os.PathLike[str],
        include_optimizer_state: bool = False,
    ) -> None:
        """Writes a checkpoint, whole or not at all; one before it stays as `<name>.previous`.

        Args:
            state: the state.
            checkpoint_uri: the file.
            include_optimizer_state: with what the optimizer keeps, so that a run goes on as if it had not ended.

        Raises:
            OSError: nothing can be written there.
        """
        state.held.check_numbers()
        state.write(checkpoint_uri, optimizer=include_optimizer_state)

    def write(self, path: str | os.PathLike[str], *, optimizer: bool = False) -> None:
        """Writes the state, nominal or complete."""
        held = self.held
        numbers = {} if held.is_nominal else held.parameters
        arrays = {f"parameter/{name}": value for name, value in numbers.items()}
        arrays |= {f"layer/{name}": value for name, value in held.layers.items()}
        notes: dict[str, Any] = {
            "format": FORMAT,
            "parameters": {name: [value.dtype.name, list(value.shape)] for name, value in held.parameters.items()},
            "trainable": held.trainable,
            "properties": held.properties,
            "nominal": held.is_nominal,
        }
        kept = held.optimizer if optimizer else None
        if kept is not None:
            notes["optimizer"] = {"step": kept.step, "learning_rate": kept.learning_rate, "slots": list(kept.slots)}
            for slot, values in kept.slots.items():
                arrays |= {f"optimizer/{slot}/{name}": value for name, value in values.items()}
        checkpoint.write(path, arrays, notes)


def _parse(path: str, arrays: Mapping[str, Array], notes: Mapping[str, Any]) -> StateContents:
    """A state as it was written.

    Raises:
        InvalidInputError: it is of another form.
    """
    if notes.get("format") != FORMAT:
        raise InvalidInputError(
            f"{path}: a checkpoint of lstm_lower.ort_training is required, got one of another kind; one of "
            "onnxruntime-training is read by onnxruntime-training alone, generate_artifacts makes a new one"
        )
    what = f"{path}: a complete checkpoint is required, got one that lacks"
    with damage_told(lambda error: InvalidInputError(f"{what} {error}")):
        declared = {
            name: np.broadcast_to(np.dtype(dtype).type(0), shape)
            for name, (dtype, shape) in notes["parameters"].items()
        }
        parts: dict[str, dict[str, Array]] = {"parameter": {}, "layer": {}, "optimizer": {}}
        for name, array in arrays.items():
            kind, _, rest = name.partition("/")
            parts[kind][rest] = array
        held = StateContents(
            parameters=declared if notes["nominal"] else {name: parts["parameter"][name] for name in declared},
            trainable=[str(name) for name in notes["trainable"]],
            layers=parts["layer"],
            properties=dict(notes["properties"]),
            is_nominal=bool(notes["nominal"]),
        )
        kept = notes.get("optimizer")
        if kept is not None:
            slots = {
                slot: {name: parts["optimizer"][f"{slot}/{name}"] for name in held.trainable} for slot in kept["slots"]
            }
            held.optimizer = OptimizerState(int(kept["step"]), float(kept["learning_rate"]), slots)
    return held
