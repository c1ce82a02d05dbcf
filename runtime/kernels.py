"""Which node onnxruntime has no kernel for, and of which element type that is."""

from __future__ import annotations

import re

import onnx_ir as ir
import onnxruntime as ort

from lstm_lower.graph.subgraphs import all_nodes

# These compute on the processor, or nowhere here.
_NO_DEVICES = {"CPUExecutionProvider", "AzureExecutionProvider"}


def lacking(error: BaseException, model: ir.Model) -> str | None:
    """The node that an error of onnxruntime says there is no kernel for, such as `Conv 'conv_1' of float64`.

    Args:
        error: what opening a session raised.
        model: the model that was to be opened.

    Returns:
        The node's operator, name and floating element type; `None` where the error is about something else.
    """
    missing = re.search(r"Could not find an implementation for (\w+)\(\d+\) node with name '([^']*)'", str(error))
    # Older versions of some operators have no bfloat16 at all.
    narrow = re.search(
        r"Type 'tensor\(bfloat16\)' of .* of operator \((\w+)\) in node \((.*?)\) is invalid", str(error)
    )
    found = missing or narrow
    if found is None:
        return None
    op, name = found.groups()
    nodes = [node for node in all_nodes(model.graph) if node.op_type == op and (node.name or "") == name]
    values = [value for node in nodes for value in (*node.inputs, *node.outputs) if value is not None]
    dtypes = [value.dtype for value in values if value.dtype is not None]
    # Integers are often indices or sizes.
    floats = [dtype for dtype in dtypes if dtype.is_floating_point()]
    said = [str(dtype.numpy()) for dtype in (*floats, *dtypes)]
    return f"{op} '{name}'" + (f" of {said[0]}" if said else "")


def only_processor() -> bool:
    """Whether onnxruntime as it is installed computes on the processor alone."""
    return set(ort.get_available_providers()) <= _NO_DEVICES
