"""Limits of the installed onnxruntime, and therefore of a lowered model.

It tells neither its newest opset nor its kernels but by refusing a model, so the smallest ones are tried.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

import onnx
import onnx_ir as ir
import onnxruntime as ort
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NoKernel

from lstm_lower import forks
from lstm_lower.graph import standard as std
from lstm_lower.graph.operator_versions import changes
from lstm_lower.graph.subgraphs import subgraphs_of

MIN_OPSET = std.OLDEST_VIEWED
_FLOAT = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 1])


@functools.cache
def is_version_between(since: str, until: str) -> bool:
    """Whether the installed onnxruntime is of version `since` or newer, and older than `until`; empty for no bound."""
    installed = _numbers(ort.__version__)
    return (not since or _numbers(since) <= installed) and (not until or installed < _numbers(until))


def _numbers(version: str) -> list[int]:
    """The numbers that a version is compared by: of `1.32.0+cpu` [1, 32, 0]."""
    return [int(number) for number in re.findall(r"\d+", version)[:3]]


@functools.cache
def newest_opset() -> int:
    """The newest `ai.onnx` version that both the installed onnx and onnxruntime know."""
    node = onnx.helper.make_node(std.Identity.op_type, ["x"], ["y"])
    versions = range(onnx.defs.onnx_opset_version(), MIN_OPSET, -1)
    return next((version for version in versions if _loads(node, version, [_FLOAT])), MIN_OPSET)


@functools.cache
def has_kernel(op_type: str, version: int) -> bool:
    """Whether onnxruntime runs an operator of one float32 matrix in the form that it has in a version of `ai.onnx`."""
    return _loads(onnx.helper.make_node(op_type, ["x"], ["y"]), version, [_FLOAT]) is not False


def newest_with_kernel(node: ir.Node, source: int, target: int) -> int:
    """Up to which opset onnxruntime runs a node that is moved upwards.

    A kernel is registered for one form of an operator: onnx may define a newer form before onnxruntime has it.

    Args:
        node: in the form of `target`.
        source: the opset in which it came; there onnxruntime may run the function that onnx defines for it.
        target: the opset to which it is moved.

    Returns:
        `target`, also where this cannot be told, or where onnxruntime ran none of the older forms either.
    """
    if std.Constant.matches(node) or any(True for _ in subgraphs_of(node)):
        return target
    versions = (target, *(change - 1 for change in changes(node.op_type, target, source)), source)
    return next((version for version in versions if _runs(node, version) is not False), target)


_known: dict[tuple[str, int, tuple[str, ...]], bool | None] = {}


def _runs(node: ir.Node, version: int) -> bool | None:
    """Whether onnxruntime loads a node, told once per element types of what it reads and returns."""
    values = {value.name: value for value in node.inputs if value is not None}
    if any(value.type is None for value in values.values()):
        return None
    key = (node.op_type, version, tuple(str(value and value.type) for value in (*node.inputs, *node.outputs)))
    if key not in _known:
        inputs = [ir.serde.serialize_value(ir.Value(name=name, type=value.type)) for name, value in values.items()]
        _known[key] = _loads(ir.serde.serialize_node(node), version, inputs)
    return _known[key]


def _loads(node: onnx.NodeProto, version: int, inputs: Sequence[onnx.ValueInfoProto]) -> bool | None:
    """Whether onnxruntime has a kernel for a node; `None` if it refuses a model of it for another reason."""
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    imports = [onnx.helper.make_opsetid("", version)]
    graph = onnx.helper.make_graph([node], "probe", inputs, outputs)
    ir_version = min(onnx.helper.find_min_ir_version_for(imports), 10)
    model = onnx.helper.make_model(graph, opset_imports=imports, ir_version=ir_version)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        # onnxruntime holds locks of its own meanwhile.
        with forks.uncut():
            ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except NoKernel:
        return False
    except Exception:  # noqa: BLE001 (onnxruntime's exceptions have no common base)
        return None
    return True


def raise_ir_version(model: ir.Model) -> bool:
    """Raises a model's IR version to the oldest that fits its `ai.onnx` version; whether it was older.

    Before 4, every initializer was an input too, which those that passes add are not.
    """
    opset = onnx.helper.make_opsetid("", model.opset_imports.get("", MIN_OPSET))
    needed = onnx.helper.find_min_ir_version_for([opset])
    raised = model.ir_version < needed
    model.ir_version = max(model.ir_version, needed)
    return raised
