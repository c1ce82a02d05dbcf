"""A step, or a part of it, in onnxruntime as its comparison with a framework runs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.errors import first_line
from lstm_lower.runtime.proof.certification import NotComparedError
from lstm_lower.runtime.proof.step_parts import new_zeros, taken_out, zeros_given
from lstm_lower.runtime.serialized import default_options, open_session
from lstm_lower.runtime.values import dtype_of

Array = np.ndarray[Any, Any]


class FailedRunError(Exception):
    """The step fails; the message is onnxruntime's."""


class StepRun:
    """A step, or a part of it, that onnxruntime runs on the processor.

    Attributes:
        outputs: names of what it returns.
    """

    def __init__(self, model: ir.Model) -> None:
        """Opens a session of a copy of a step, which is changed.

        Raises:
            NotComparedError: it takes or returns numbers of a dtype that numpy has not.
            Exception: onnxruntime's own, where it does not take it.
        """
        self._first = taken_out(model)
        self._zeros = zeros_given(model)
        options = default_options()
        # A run that fails is a result like others.
        options.log_severity_level = 4
        # Threads that wait for so few runs would take a processor.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        # What a run needs in between is given back after it, zeros as large as a weight that would be folded, too.
        options.enable_cpu_mem_arena = False
        options.add_session_config_entry("optimization.disable_specified_optimizers", "ConstantFolding")
        # It is legalized already, all that a Session does beside this.
        self._session: Any = open_session(model, options, [("CPUExecutionProvider", {})])
        declared = [*self._session.get_inputs(), *self._session.get_outputs()]
        if any(dtype_of(value) is None for value in declared):
            raise NotComparedError("it takes or returns numbers of a dtype that numpy has not")
        self.outputs = [str(value.name) for value in self._session.get_outputs()]

    def results(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """What it computes, as it lies in onnxruntime's memory.

        Args:
            feeds: inputs beside the state, of which those are taken that it has.

        Raises:
            FailedRunError: it fails.
        """
        binding = self._session.io_binding()
        begun: dict[str, Array] = {}
        for value in self._session.get_inputs():
            array = feeds.get(value.name, self._first.get(value.name))
            if value.name in self._zeros:
                array = begun[self._zeros[value.name]] = new_zeros(value.shape, dtype_of(value))
            if array is not None:
                binding.bind_cpu_input(value.name, np.asarray(array, order="C"))
        for name in self.outputs:
            if name in begun:
                place = begun[name]
                binding.bind_output(name, "cpu", 0, place.dtype, place.shape, place.ctypes.data)
            else:
                binding.bind_output(name)
        try:
            self._session.run_with_iobinding(binding)
        except Exception as error:
            raise FailedRunError(f"onnxruntime's error {first_line(error)}") from error
        return {name: x.numpy() for name, x in zip(self.outputs, binding.get_outputs(), strict=True)} | begun
