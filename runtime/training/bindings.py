"""What a step reads and writes, bound to buffers once: state, feeds, the loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime as ort

from lstm_lower.errors import InvalidInputError, InvalidModelError
from lstm_lower.runtime.buffers import HOST, Array, Device, buffer, host_copy, output_devices
from lstm_lower.runtime.serialized import failures_explained
from lstm_lower.runtime.session import Session
from lstm_lower.runtime.training.device_state import DeviceState
from lstm_lower.runtime.values import number_dtype


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
        self._made: dict[tuple[str, ...], tuple[ort.IOBinding, ort.IOBinding]] = {}

    def feed(self, name: str, array: Array) -> None:
        """Copies an array into the input's buffer; a new size gets a new buffer, bound everywhere."""
        held = self._feeds.get(name)
        if held is not None and held[0] == array.shape:
            if array.size:
                held[1].update_inplace(array if array.flags.c_contiguous else np.asarray(array, order="C"))
            return
        value = buffer(array, self._devices[name])
        self._feeds[name] = (array.shape, value)
        for bindings in self._made.values():
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
        with failures_explained(1 + 2 * [*self._made].index(fetched) + self._state.turn) as quiet:
            self._session.ort.run_with_iobinding(binding, quiet)
        return binding

    def loss(self) -> Array:
        """A copy of the loss; NaN for a model without one."""
        return host_copy(self._loss) if self._loss_name is not None else np.asarray(np.nan)

    def fetched(self, binding: ort.IOBinding, names: Sequence[str]) -> dict[str, Array]:
        """Copies of the outputs that a run has fetched."""
        made = binding.get_outputs()
        # Outputs come in the order of binding, those of the state and the loss first.
        return dict(zip(names, (host_copy(value) for value in made[len(made) - len(names) :]), strict=True))

    def of(self, fetched: tuple[str, ...]) -> tuple[ort.IOBinding, ort.IOBinding]:
        """The bindings of both turns for a choice of outputs."""
        if fetched not in self._made:
            unknown = [name for name in fetched if name not in self._session.outputs]
            if unknown:
                raise InvalidInputError(f"output '{unknown[0]}' must be one of {list(self._session.outputs)}")
            made = (self._session.ort.io_binding(), self._session.ort.io_binding())
            for turn, binding in enumerate(made):
                self._state.bind(binding, turn)
                for name, (_, value) in self._feeds.items():
                    binding.bind_ortvalue_input(name, value)
                if self._loss_name is not None:
                    binding.bind_ortvalue_output(self._loss_name, self._loss)
                if self._captured:
                    for name in fetched:
                        binding.bind_ortvalue_output(name, self._buffer_of(name))
            self._made[fetched] = made
        return self._made[fetched]

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
