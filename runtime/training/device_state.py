"""State that stays on its device: two buffers per value, one that a step reads and one that it writes.

onnxruntime must not be given one buffer as input and output, since nothing says that all readers of the old value
have run when the new one is written. So the two change places after each step, and nothing is copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime as ort

from lstm_lower.errors import InvalidInputError, InvalidModelError
from lstm_lower.records.state import StatePair
from lstm_lower.runtime.buffers import HOST, Array, Device, buffer, host_copy, output_devices
from lstm_lower.runtime.serialized import failures_explained
from lstm_lower.runtime.session import Session
from lstm_lower.runtime.values import as_array, number_dtype


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

    def write(self, values: Mapping[str, Any], *, strict: bool = True) -> None:
        """Copies values from the host in place of the current ones.

        Args:
            values: by input.
            strict: whether all must be there.

        Raises:
            InvalidInputError: a name is missing or unknown, or a value differs in dtype or shape.
        """
        unknown = [name for name in values if name not in self._buffers]
        missing = [name for name in self._buffers if strict and name not in values]
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


# What a step reads and writes, bound to buffers once: state, feeds, the loss.


class Bindings:
    """Bindings of a session for both turns of the state, for each choice of outputs.

    A provider that captures a run repeats it on the same buffers, so it captures one run for each binding. Outputs then
    stay on the device, too: what copies them to the host after a run is not repeated.
    """

    def __init__(
        self,
        session: Session,
        state: DeviceState,
        loss: str | None,
        devices: Mapping[str, Device],
        *,
        captured: bool = False,
    ) -> None:
        """Makes the loss's buffer.

        Args:
            session: of the step.
            state: the buffers of the state.
            loss: name of the loss, if there is one.
            devices: where the session wants its inputs.
            captured: whether its provider captures runs; all sizes are known then.

        Raises:
            InvalidModelError: the loss is not a scalar.
        """
        self._session, self._state, self._loss_name, self._devices = session, state, loss, devices
        self._captured = captured
        self._outputs = output_devices(session.ort) if captured else {}
        self._loss = buffer(np.zeros((), _scalar_dtype(session, loss)), self._outputs.get(loss or "", HOST))
        self._feeds: dict[str, tuple[tuple[int, ...], ort.OrtValue]] = {}
        self._bindings: dict[tuple[str, ...], tuple[ort.IOBinding, ort.IOBinding]] = {}

    def feed(self, name: str, array: Array) -> None:
        """Copies an array into the input's buffer; a new size gets a new buffer, bound everywhere."""
        held = self._feeds.get(name)
        if held is not None and held[0] == array.shape:
            if array.size:
                held[1].update_inplace(array if array.flags.c_contiguous else np.asarray(array, order="C"))
            return
        value = buffer(array, self._devices[name])
        self._feeds[name] = (array.shape, value)
        for bindings in self._bindings.values():
            for binding in bindings:
                binding.bind_ortvalue_input(name, value)

    def run(self, fetched: tuple[str, ...]) -> ort.IOBinding:
        """Runs the session on the values of the current turn.

        Args:
            fetched: outputs to return, beside the state and the loss.

        Raises:
            InvalidInputError: an output is not one of the model's, or onnxruntime fails.
        """
        binding = self.of(fetched)[self._state.turn]
        if not self._captured:
            # A bound output without a buffer keeps the one of its last run, which may be of another size.
            for name in fetched:
                binding.bind_output(name, HOST.kind, HOST.number)
        with failures_explained(1 + 2 * [*self._bindings].index(fetched) + self._state.turn) as quiet:
            self._session.ort.run_with_iobinding(binding, quiet)
        return binding

    def loss(self) -> Array:
        """A copy of the loss; NaN for a model without one."""
        return host_copy(self._loss) if self._loss_name is not None else np.asarray(np.nan)

    def fetched(self, binding: ort.IOBinding, names: Sequence[str]) -> dict[str, Array]:
        """Copies of the outputs that a run has fetched."""
        outputs = binding.get_outputs()
        # Outputs come in the order of binding, those of the state and the loss first.
        return dict(zip(names, (host_copy(value) for value in outputs[len(outputs) - len(names) :]), strict=True))

    def of(self, fetched: tuple[str, ...]) -> tuple[ort.IOBinding, ort.IOBinding]:
        """The bindings of both turns for a choice of outputs."""
        if fetched not in self._bindings:
            unknown = [name for name in fetched if name not in self._session.outputs]
            if unknown:
                raise InvalidInputError(f"output '{unknown[0]}' must be one of {list(self._session.outputs)}")
            pair = (self._session.ort.io_binding(), self._session.ort.io_binding())
            for turn, binding in enumerate(pair):
                self._state.bind(binding, turn)
                for name, (_, value) in self._feeds.items():
                    binding.bind_ortvalue_input(name, value)
                if self._loss_name is not None:
                    binding.bind_ortvalue_output(self._loss_name, self._loss)
                if self._captured:
                    for name in fetched:
                        binding.bind_ortvalue_output(name, self._buffer_of(name))
            self._bindings[fetched] = pair
        return self._bindings[fetched]

    def _buffer_of(self, output: str) -> ort.OrtValue:
        """A buffer for an output of known sizes, where the session makes it."""
        declared = next(value for value in self._session.ort.get_outputs() if value.name == output)
        return buffer(np.zeros(declared.shape, number_dtype(declared)), self._outputs[output])


def _scalar_dtype(session: Session, loss: str | None) -> Any:
    for value in session.ort.get_outputs():
        if value.name == loss:
            if list(value.shape):
                raise InvalidModelError(f"loss '{loss}' requires a scalar, got shape {value.shape}")
            return number_dtype(value)
    return np.dtype("float32")
