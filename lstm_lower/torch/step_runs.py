"""A step in onnxruntime as its comparison with PyTorch runs it: without updates of weights, and these alone.

What onnxruntime would hold copies of is handed over instead: weights as they lie in the module, and arrays for results.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.errors import UnsupportedOpError
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Workspace
from lstm_lower.graph.copies import Copier
from lstm_lower.graph.edit import operands, remove_unread
from lstm_lower.reachability import reached
from lstm_lower.runtime.kernels import lacking, only_processor
from lstm_lower.runtime.proof.certification import NotComparedError
from lstm_lower.runtime.serialized import default_options, open_session
from lstm_lower.runtime.values import dtype_of
from lstm_lower.torch.pytorch_errors import first_line

Array = np.ndarray[Any, Any]

# How memory is asked for that nobody else is to see: what is only read of it is none.
_PRIVATE: dict[str, Any] = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
# Bytes of weights that no step changes, and numbers in results that begin as zeros, from which on they are handed over.
_LARGE = 1 << 20
_PLAIN = (ir.DataType.FLOAT, ir.DataType.DOUBLE)


class FailedRunError(Exception):
    """The step fails; the message is onnxruntime's."""


def part_of(model: ir.Model, outputs: Collection[str | None], given: Collection[str | None] = ()) -> ir.Model:
    """A copy of what a step computes some of its outputs by; others of its outputs are given to it."""
    graph = model.graph
    fed = [value for value in graph.outputs if value.name in given and value.producer() is not None]
    copies = {
        value: ir.Value(name=value.name, type=value.type, shape=value.shape, const_value=value.const_value)
        for value in (*graph.inputs, *graph.initializers.values(), *fed)
    }
    wanted = [value for value in graph.outputs if value.name in outputs]

    def made_of(value: ir.Value) -> Collection[ir.Value]:
        node = None if value in copies else value.producer()
        return () if node is None else operands(node)

    read = set(reached(wanted, made_of))
    made = read - copies.keys()
    copier = Copier(copies)
    nodes = copier.nodes(node for node in graph if not made.isdisjoint(node.outputs))
    part = ir.Graph(
        [copies[value] for value in (*graph.inputs, *fed) if value in read],
        [copy for value in wanted if (copy := copier.values[value]) is not None],
        nodes=nodes,
        initializers=[copies[value] for value in graph.initializers.values() if value in read],
        opset_imports=dict(graph.opset_imports),
        name=graph.name,
    )
    return ir.Model(part, ir_version=model.ir_version)


def is_gradient(name: str | None) -> bool:
    """Whether an output of a step is a gradient."""
    return (name or "").startswith("grad/")


class StepRun:
    """A step, or a part of it, that onnxruntime runs on the processor.

    Attributes:
        outputs: names of what it returns.
    """

    def __init__(self, model: ir.Model, name: str) -> None:
        """Opens a session.

        Args:
            model: a copy, which is changed.
            name: what the module is called in messages.

        Raises:
            NotComparedError: it computes with numbers of a dtype that numpy has not.
            UnsupportedOpError: onnxruntime does not take it.
        """
        self._first = _taken_out(model)
        self._zeros = _zeros_given(model)
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
                array = begun[self._zeros[value.name]] = _zeros(value.shape, dtype_of(value))
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


def _zeros(shape: Sequence[int], dtype: Any) -> Array:
    """Zeros that take no memory but for the pages that someone writes into."""
    memory = mmap.mmap(-1, math.prod(shape) * np.dtype(dtype).itemsize, **_PRIVATE)
    return np.frombuffer(memory, dtype).reshape(shape)


def _taken_out(model: ir.Model) -> dict[str, Array]:
    """First values of inputs, and large weights, which are fed: onnxruntime would hold copies of initializers."""
    graph = model.graph
    plain: dict[str, Array] = {
        name: value.const_value.numpy()
        for name, value in graph.initializers.items()
        if value.const_value is not None and value.const_value.dtype in _PLAIN
    }
    for name, array in plain.items():
        if array.nbytes >= _LARGE and not graph.initializers[name].is_graph_input():
            graph.inputs.append(graph.initializers[name])
    first = {str(value.name): plain[value.name] for value in graph.inputs if value.name in plain}
    for name in first:
        graph.initializers.pop(name).const_value = None
    return first


def _zeros_given(model: ir.Model) -> dict[str, str]:
    """Lets large results for which rows are added to zeros, gradients of tables, begin as inputs; input -> result.

    Zeros that nobody writes into take neither memory nor time, and a kernel copies none that lie where its result does.
    """
    facts, found = Workspace.of(model).facts, {}
    for value in model.graph.outputs:
        view, shape = facts.maker(value), value.shape
        if value.dtype not in _PLAIN or shape is None or not shape.is_static() or math.prod(shape.numpy()) < _LARGE:
            continue
        if isinstance(view, std.Scatter) and facts.uniform(view.data) == 0:
            zeros = ir.Value(name=f"{value.name}/zeros", type=value.type, shape=value.shape)
            view.node.replace_input_with(0, zeros)
            model.graph.inputs.append(zeros)
            found[str(zeros.name)] = str(value.name)
    remove_unread(model.graph)
    return found


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
