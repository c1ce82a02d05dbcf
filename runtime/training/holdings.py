"""What the module that a step was made of holds, as it is after some steps."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.errors import InvalidInputError
from lstm_lower.records import holdings
from lstm_lower.records.holdings import Holdings
from lstm_lower.runtime.values import as_array

Array = np.ndarray[Any, Any]


class ModuleHoldings:
    """The names of a module's state dict, with what is behind them."""

    def __init__(self, step: ir.Model) -> None:
        """Reads nothing yet.

        Args:
            step: the training step.
        """
        self._step = step
        self._loaded: dict[str, Array] = {}

    @functools.cached_property
    def _held(self) -> Holdings | None:
        return holdings.of(self._step)

    @property
    def states(self) -> list[list[str]] | None:
        """The module's names of each of its values that are state; `None` for a step that is made of no module."""
        if self._held is None:
            return None
        found: dict[str, list[str]] = {}
        for name, source in self._held.states.items():
            found.setdefault(source, []).append(name)
        return list(found.values())

    def beside(self, state: Mapping[str, Array]) -> dict[str, Array]:
        """What a state dict holds beside the state: further names of tied weights, and what no step changes.

        Args:
            state: by input.
        """
        if self._held is None:
            return {}
        found = {name: state[source].copy() for name, source in self._held.states.items() if name not in state}
        return found | {name: self._constant(source) for name, source in self._held.constants.items()}

    def weights(self, state: Mapping[str, Array]) -> dict[str, Array]:
        """The module's state dict, complex numbers as such.

        Args:
            state: by input.
        """
        assert self._held is not None
        found = self.beside(state) | {name: state[source] for name, source in self._held.states.items()}
        for name in self._held.pairs:
            found[name] = found[name][..., 0] + 1j * found[name][..., 1]
        return {name: found[name] for name in (*self._held.states, *self._held.constants)}

    def state_of(self, values: Mapping[str, Any], inputs: Collection[str]) -> dict[str, Any]:
        """The values of the state among those of a state dict.

        What nothing reads is taken up; what the step holds as a constant, and tied weights, have to be as they are.

        Args:
            values: by name.
            inputs: names of the state's inputs.

        Raises:
            InvalidInputError: a constant has another value, or two names of one weight have two.
        """
        if self._held is None:
            return dict(values)
        for name, source in self._held.states.items():
            both = name in values and source in values
            if both and not _same(values[name], values[source]):
                raise InvalidInputError(
                    f"state '{name}' requires the value of '{source}', with which it is tied, got another"
                )
        unread = {}
        for name, source in self._held.constants.items():
            if name in inputs or name not in values:
                continue
            if source not in self._held.read:
                unread[source] = self._fitting(name, source, values[name])
            elif not _same(values[name], self._constant(source)):
                raise InvalidInputError(
                    f"state '{name}' requires the value that the step holds as a constant, got another; leave it out, "
                    "or export the module with it anew"
                )
        self._loaded |= unread
        own = {*self._held.states, *self._held.constants} - set(inputs)
        return {name: value for name, value in values.items() if name not in own}

    def state_dict_of(self, weights: Mapping[str, Array]) -> dict[str, Array]:
        """What `weights` gives, or the module's own state dict, as a part of a trainer's state dict.

        Args:
            weights: by name in the module; other names are left out.
        """
        assert self._held is not None
        own = {*self._held.states, *self._held.constants} & set(weights)
        found = {name: weights[name] for name in own}
        for name in own & set(self._held.pairs):
            found[name] = np.stack([found[name].real, found[name].imag], -1)
        tied = {source: found[name] for name, source in self._held.states.items() if name in found}
        return tied | found

    def _fitting(self, name: str, source: str, value: Any) -> Array:
        present = self._constant(source)
        array = as_array(value, present.dtype, f"state '{name}'")
        if array.shape != present.shape:
            raise InvalidInputError(f"state '{name}' requires shape {list(present.shape)}, got {list(array.shape)}")
        return array.copy()

    def _constant(self, source: str) -> Array:
        assert self._held is not None
        held = self._loaded.get(source)
        return np.array(self._held.values[source].numpy() if held is None else held)


def _same(value: Any, held: Array) -> bool:
    array = np.asarray(value)
    # Bytes, since NaN is not equal to itself.
    return array.shape == held.shape and bool(np.array_equal(array, held) or array.tobytes() == held.tobytes())
