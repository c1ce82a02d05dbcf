"""Parts of a step that are run by themselves, and what is handed to them where onnxruntime would hold copies.

Weights are handed over as they lie in memory, and results that begin as zeros as arrays of these.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Workspace
from lstm_lower.graph.copies import Copier
from lstm_lower.graph.edit import operands, remove_unread
from lstm_lower.reachability import reached

Array = np.ndarray[Any, Any]

# How memory is asked for that nobody else is to see: what is only read of it is none.
_PRIVATE: dict[str, Any] = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
# Bytes of weights that no step changes, and numbers in results that begin as zeros, from which on they are handed over.
_LARGE = 1 << 20
_PLAIN = (ir.DataType.FLOAT, ir.DataType.DOUBLE)


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


def new_zeros(shape: Sequence[int], dtype: Any) -> Array:
    """Zeros that take no memory but for the pages that someone writes into."""
    memory = mmap.mmap(-1, math.prod(shape) * np.dtype(dtype).itemsize, **_PRIVATE)
    return np.frombuffer(memory, dtype).reshape(shape)


def taken_out(model: ir.Model) -> dict[str, Array]:
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


def zeros_given(model: ir.Model) -> dict[str, str]:
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
