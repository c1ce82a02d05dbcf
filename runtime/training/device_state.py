"""State that stays on its device: two buffers per value, one that a step reads and one that it writes.

onnxruntime must not be given one buffer as input and output, since nothing says that all readers of the old value
have run when the new one is written. So the two change places after each step, and nothing is copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime as ort

from lstm_lower.errors import InvalidInputError
from lstm_lower.records.state import StatePair
from lstm_lower.runtime.buffers import Device, buffer, host_copy
from lstm_lower.runtime.values import as_array

Array = np.ndarray[Any, Any]


class DeviceState:
    """The values of state pairs, each in two buffers.

    Attributes:
        pairs: the pairs.
        turn: which of the two buffers holds the values now, 0 or 1.
    """

    def __init__(self, pairs: Sequence[StatePair], values: Mapping[str, Array], devices: Mapping[str, Device]) -> None:
        self.pairs = list(pairs)
        self.turn = 0
        self._forms = {pair.input: (values[pair.input].dtype, values[pair.input].shape) for pair in pairs}
        self._buffers: dict[str, tuple[ort.OrtValue, ort.OrtValue]] = {}
        for pair in pairs:
            first = buffer(values[pair.input], devices[pair.input])
            # What no step changes needs no second buffer.
            second = first if pair.output is None else buffer(np.zeros_like(values[pair.input]), devices[pair.input])
            self._buffers[pair.input] = (first, second)

    def bind(self, binding: ort.IOBinding, turn: int, pairs: Sequence[StatePair] | None = None) -> None:
        """Binds the buffers for a step that reads the values of one turn and writes those of the other.

        Args:
            binding: of the step's session.
            turn: which buffers it reads.
            pairs: what the session reads and writes of the state; `None` for all.
        """
        for pair in self.pairs if pairs is None else pairs:
            buffers = self._buffers[pair.input]
            binding.bind_ortvalue_input(pair.input, buffers[turn])
            if pair.output is not None:
                binding.bind_ortvalue_output(pair.output, buffers[1 - turn])

    def flip(self) -> None:
        """Makes what the step wrote the current values."""
        self.turn = 1 - self.turn

    def read(self, names: Iterable[str] | None = None) -> dict[str, Array]:
        """Copies the current values to the host."""
        wanted = self._buffers if names is None else names
        return {name: host_copy(self._buffers[name][self.turn]) for name in wanted}

    def current(self) -> dict[str, ort.OrtValue]:
        """The buffers that hold the values now; the next step but one writes to them."""
        return {name: buffers[self.turn] for name, buffers in self._buffers.items()}

    def write(self, values: Mapping[str, Any]) -> None:
        """Copies values from the host in place of the current ones.

        Raises:
            InvalidInputError: a name is missing or unknown, or a value differs in dtype or shape.
        """
        unknown = [name for name in values if name not in self._buffers]
        missing = [name for name in self._buffers if name not in values]
        if unknown or missing:
            # A large model has too many names to list.
            some = ", ".join(f"'{name}'" for name in [*self._buffers][:4]) + (", …" if len(self._buffers) > 4 else "")
            what = f"'{unknown[0]}', which is none of them" if unknown else f"none of '{missing[0]}'"
            raise InvalidInputError(f"state requires the {len(self._buffers)} values {some}, got {what}")
        arrays = {name: as_array(value, self._forms[name][0], f"state '{name}'") for name, value in values.items()}
        for name, array in arrays.items():
            shape = self._forms[name][1]
            if array.shape != shape:
                raise InvalidInputError(f"state '{name}' requires shape {list(shape)}, got {list(array.shape)}")
        self.assign(arrays)

    def assign(self, arrays: Mapping[str, Array]) -> None:
        """Copies arrays of the right dtypes and shapes in place of some of the current values."""
        for name, array in arrays.items():
            if array.size:
                self._buffers[name][self.turn].update_inplace(np.asarray(array, order="C"))

    def addresses(self) -> dict[str, int]:
        """Where the current values lie; for tests and diagnosis."""
        return {name: buffers[self.turn].data_ptr() for name, buffers in self._buffers.items()}
