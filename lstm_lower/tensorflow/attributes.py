"""Attributes of nodes, in Python's terms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from lstm_lower.checkpoints.values import onnx_dtype
from lstm_lower.dtypes import dtype_name, is_complex
from lstm_lower.errors import UnsupportedOpError
from lstm_lower.graph.builder import Expr
from lstm_lower.opdef import OpDef
from lstm_lower.tensorflow.regions import Op

# Attributes of ordinary ops that choose a kernel, not a result.
_IGNORED = frozenset({"use_cudnn_on_gpu", "validate_indices", "container", "shared_name", "grappler_fusion"})


def check_real(op: Op, found: type[OpDef], operands: Sequence[Expr]) -> None:
    """Refuses complex numbers where a definition is of real ones only.

    Raises:
        UnsupportedOpError: an operand is complex.
    """
    got = next((x.dtype for x in operands if is_complex(x.dtype)), None)
    if got is not None and not any(is_complex(dtype) for allowed in found.types.values() for dtype in allowed):
        raise UnsupportedOpError(
            f"{op}: the node requires real numbers, got {dtype_name(got)}; write it with tf.math.real and imag of its "
            "operand"
        )


def attributes_of(op: Op, found: type[OpDef]) -> dict[str, Any]:
    """The attributes of a node that its definition has, and those that it must not have for its error to name them."""
    declared = {attribute.name for attribute in found.attributes}
    attributes = {}
    for name, value in op.attr.items():
        kind = value.WhichOneof("value")
        if name not in declared and (kind in ("type", None) or name.startswith("_") or name in _IGNORED):
            continue
        if name not in declared and kind == "list" and value.list.type:
            continue
        read = attribute_value(value)
        if read is not None:
            attributes[name] = read
    return attributes


def attribute_value(value: Any) -> Any:
    """An attribute in Python's terms: dtypes as ONNX's numbers, shapes as lists with -1 for open sizes."""
    kind = value.WhichOneof("value")
    match kind:
        case "s":
            return value.s.decode("utf-8", "replace")
        case "i" | "f" | "b":
            return getattr(value, kind)
        case "type":
            found = onnx_dtype(value.type)
            return None if found is None else int(found)
        case "shape":
            return [dim.size for dim in value.shape.dim]
        case "list":
            for part in ("i", "f", "b"):
                if getattr(value.list, part):
                    return list(getattr(value.list, part))
            if value.list.s:
                return [text.decode("utf-8", "replace") for text in value.list.s]
            return []
    return None


def dtype_attribute(op: Op, *names: str) -> ir.DataType:
    """The dtype that an attribute says.

    Raises:
        UnsupportedOpError: ONNX has none such.
    """
    number = next((op.attr[name].type for name in names if name in op.attr), 0)
    dtype = onnx_dtype(number)
    if dtype is None:
        raise UnsupportedOpError(f"{op}: requires a dtype that ONNX has, got TensorFlow's number {number}")
    return dtype
