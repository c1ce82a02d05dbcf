"""A step in onnxruntime as its comparison with PyTorch runs it: without updates of weights, and these alone.

What onnxruntime would hold copies of is handed over instead: weights as they lie in the module, and arrays for results.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.errors import UnsupportedOpError
from lstm_lower.graph.copies import copy_model
from lstm_lower.graph.edit import remove_unread
from lstm_lower.runtime.kernels import lacking, only_processor
from lstm_lower.runtime.proof.certification import NotComparedError
from lstm_lower.runtime.serialized import default_options, open_session
from lstm_lower.runtime.values import dtype_of
from lstm_lower.torch.pytorch_errors import first_line

Array = np.ndarray[Any, Any]

# Bytes from which on weights that no step changes are handed over, too.
_LARGE = 1 << 20


class FailedRunError(Exception):
    """The step fails; the message is onnxruntime's."""


def with_outputs(model: ir.Model, names: Collection[str | None]) -> ir.Model:
    """A copy of a model that has some of its outputs, and what is computed for these."""
    copy = copy_model(model)
    _keep(copy, [value for value in copy.graph.outputs if value.name in names])
    return copy


def of_gradients(model: ir.Model, names: Collection[str | None]) -> ir.Model:
    """A copy of a step that has some of its outputs, and takes gradients in place of computing them."""
    copy = copy_model(model)
    gradients = [value for value in copy.graph.outputs if is_gradient(value.name) and value.producer() is not None]
    outputs = [value for value in copy.graph.outputs if value.name in names]
    copy.graph.outputs.clear()
    for value in gradients:
        fed = ir.Value(name=value.name, type=value.type, shape=value.shape)
        value.name = f"{value.name}/computed"
        ir.convenience.replace_all_uses_with(value, fed)
        copy.graph.inputs.append(fed)
    _keep(copy, outputs)
    return copy


def is_gradient(name: str | None) -> bool:
    """Whether an output of a step is a gradient."""
    return (name or "").startswith("grad/")


def _keep(model: ir.Model, outputs: Collection[ir.Value]) -> None:
    graph = model.graph
    graph.outputs.clear()
    graph.outputs.extend(outputs)
    remove_unread(graph)
    for name, value in list(graph.initializers.items()):
        if not value.uses() and value not in outputs and not value.is_graph_input():
            del graph.initializers[name]


class StepRun:
    """A step, or a part of it, that onnxruntime runs on the processor.

    Attributes:
        outputs: names of what it returns.
    """

    def __init__(self, model: ir.Model, name: str, states: Collection[str]) -> None:
        """Opens a session.

        Args:
            model: a copy, which is changed.
            name: what the module is called in messages.
            states: outputs that are new states.

        Raises:
            NotComparedError: it computes with numbers of a dtype that numpy has not.
            UnsupportedOpError: onnxruntime does not take it.
        """
        self._first = _taken_out(model)
        self._states = states
        options = default_options()
        # A run that fails is a result like others.
        options.log_severity_level = 4
        # Threads that wait for so few runs would take a processor.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        # What a run needs in between is given back after it, zeros as large as a weight that would be folded, too.
        options.enable_cpu_mem_arena = False
        options.add_session_config_entry("optimization.disable_specified_optimizers", "ConstantFolding")
        try:
            # It is legalized already, all that a Session does beside this.
            self._session: Any = open_session(model, options, [("CPUExecutionProvider", {})])
        except Exception as error:
            raise _refused(error, model, name) from error
        declared = [*self._session.get_inputs(), *self._session.get_outputs()]
        if any(dtype_of(value) is None for value in declared):
            raise NotComparedError("it takes or returns numbers of a dtype that numpy has not")
        self.outputs = [str(value.name) for value in self._session.get_outputs()]
        self._results: dict[str, Array] = {}

    def results(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """What it computes; gradients and new states lie in the same arrays in each run.

        Args:
            feeds: inputs beside the state, of which those are taken that it has.

        Raises:
            FailedRunError: it fails.
        """
        binding = self._session.io_binding()
        for value in self._session.get_inputs():
            array = feeds.get(value.name, self._first.get(value.name))
            if array is not None:
                binding.bind_cpu_input(value.name, np.ascontiguousarray(array))
        for value in self._session.get_outputs():
            held = self._held(value)
            if held is None:
                binding.bind_output(value.name)
            else:
                binding.bind_output(value.name, "cpu", 0, held.dtype, held.shape, held.ctypes.data)
        try:
            self._session.run_with_iobinding(binding)
        except Exception as error:
            raise FailedRunError(f"onnxruntime's error {first_line(error)}") from error
        computed = zip(self.outputs, binding.get_outputs(), strict=True)
        return {name: self._results[name] if name in self._results else x.numpy() for name, x in computed}

    def _held(self, value: Any) -> Array | None:
        """An array for a gradient or new state, of which onnxruntime would return a copy."""
        large = is_gradient(value.name) or value.name in self._states
        if large and all(isinstance(size, int) for size in value.shape):
            if value.name not in self._results:
                self._results[value.name] = np.empty(value.shape, dtype_of(value))
            return self._results[value.name]
        return None

    def let_go(self) -> None:
        """Forgets the arrays of results, which live as long as others hold them."""
        self._results.clear()


def _taken_out(model: ir.Model) -> dict[str, Array]:
    """First values of inputs, and large weights, which are fed: onnxruntime would hold copies of initializers."""
    graph = model.graph
    plain: dict[str, Array] = {
        name: value.const_value.numpy()
        for name, value in graph.initializers.items()
        if value.const_value is not None and value.const_value.dtype in (ir.DataType.FLOAT, ir.DataType.DOUBLE)
    }
    for name, array in plain.items():
        if array.nbytes >= _LARGE and not graph.initializers[name].is_graph_input():
            graph.inputs.append(graph.initializers[name])
    first = {str(value.name): plain[value.name] for value in graph.inputs if value.name in plain}
    for name in first:
        graph.initializers.pop(name).const_value = None
    return first


def _refused(refused: Exception, model: ir.Model, name: str) -> Exception:
    """The error for a step that onnxruntime does not take; kernels may be those of other devices."""
    node = lacking(refused, model)
    if node is not None and not only_processor():
        return NotComparedError(f"onnxruntime fails with {first_line(refused)}")
    if node is None:
        return UnsupportedOpError(
            f"{name} requires operations whose formulas onnxruntime accepts, got: "
            f"{first_line(refused)}; write them with other PyTorch operations"
        )
    return UnsupportedOpError(
        f"{name} requires operations that onnxruntime computes on the processor, got {node}, for which it has no "
        "kernel; use module.float() and examples in float32 (trainer.to_torch copies weights back into a module of "
        "any dtype)"
    )
