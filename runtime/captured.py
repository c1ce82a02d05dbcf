"""Runs on buffers that stay where they are, as a provider needs that captures them: one set of buffers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnxruntime as ort

from lstm_lower.errors import InvalidInputError
from lstm_lower.runtime.buffers import Array, buffer, host_copy, input_devices, output_devices
from lstm_lower.runtime.serialized import failures_explained
from lstm_lower.runtime.values import number_dtype


class CapturedRuns:
    """The buffers of a session whose provider may capture its runs; all its sizes are known."""

    def __init__(self, session: ort.InferenceSession) -> None:
        """Makes nothing yet: a trainer has bindings of its own."""
        self._session = session
        self._binding: ort.IOBinding | None = None
        self._inputs: dict[str, ort.OrtValue] = {}
        self._outputs: dict[str, ort.OrtValue] = {}

    def put(self, feeds: Mapping[str, Array]) -> None:
        """Copies values of all inputs into their buffers.

        Raises:
            InvalidInputError: a value is none of an input, but in place of an initializer that onnxruntime has placed.
        """
        devices = input_devices(self._session)
        fixed = [name for name in feeds if name not in devices]
        if fixed:
            raise InvalidInputError(
                f"a session that captures what it runs keeps the default of '{fixed[0]}', got a value for it; leave it "
                "away, or make the model without the default"
            )
        if self._binding is None:
            self._binding = self._session.io_binding()
            for declared in self._session.get_outputs():
                sizes = np.zeros(declared.shape, number_dtype(declared))
                made = buffer(sizes, output_devices(self._session)[declared.name])
                self._outputs[declared.name] = made
                self._binding.bind_ortvalue_output(declared.name, made)
        for name, array in feeds.items():
            if name not in self._inputs:
                self._inputs[name] = buffer(array, devices[name])
                self._binding.bind_ortvalue_input(name, self._inputs[name])
            elif array.size:
                self._inputs[name].update_inplace(np.asarray(array, order="C"))

    def run(self, options: ort.RunOptions | None = None) -> None:
        """Runs on what was put into the buffers last: the first time as usual, to capture it, then as captured."""
        assert self._binding is not None
        with failures_explained() as quiet:
            self._session.run_with_iobinding(self._binding, options or quiet)

    def results(self, names: Sequence[str] | None = None) -> dict[str, Array]:
        """Copies of outputs, of all without names."""
        return {name: host_copy(self._outputs[name]) for name in (self._outputs if names is None else names)}
