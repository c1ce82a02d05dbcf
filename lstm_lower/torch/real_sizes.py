"""Real numbers made of open sizes, in float64 as Python has them: the exporter rounds them to float32.

`int(0.29 * 100)` is 28; in float32 it would be 29, a tensor of another size.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from onnxscript import values

from lstm_lower.graph import standard as std
from lstm_lower.graph.subgraphs import all_nodes

_onnx = values.Opset("", 18)
_WIDE = f"{__name__}.wide"


def _is_whole(x: Any) -> bool:
    return isinstance(x, int) or (isinstance(x, ir.Value) and x.dtype == ir.DataType.INT64)


def _wide(x: Any) -> Any:
    """An operand in float64."""
    if not isinstance(x, ir.Value):
        return _onnx.Constant(value=ir.tensor(np.float64(x)))
    return x.meta[_WIDE] if _WIDE in x.meta else _onnx.Cast(x, to=ir.DataType.DOUBLE)


def _narrow(wide: Any) -> Any:
    """In float32, as the exporter declares such numbers."""
    value = _onnx.Cast(wide, to=ir.DataType.FLOAT)
    value.meta[_WIDE] = wide
    return value


def _arithmetic(name: str) -> Callable[..., Any]:
    """Of sizes in int64, unless one is a real number or the quotient is."""

    def formula(first: Any, second: Any) -> Any:
        if name != "Div" and _is_whole(first) and _is_whole(second):
            return getattr(_onnx, name)(first, second)
        return _narrow(getattr(_onnx, name)(_wide(first), _wide(second)))

    return formula


def _negative(x: Any) -> Any:
    return _onnx.Neg(x) if _is_whole(x) else _narrow(_onnx.Neg(_wide(x)))


def _rounded(name: str | None) -> Callable[[Any], Any]:
    def formula(x: Any) -> Any:
        wide = _wide(x)
        return _onnx.Cast(wide if name is None else getattr(_onnx, name)(wide), to=ir.DataType.INT64)

    return formula


# Function of Python on open sizes -> its formula, for `torch.onnx.export`.
REAL_SIZES: dict[Callable[..., Any], Callable[..., Any]] = {
    operator.add: _arithmetic("Add"),
    operator.sub: _arithmetic("Sub"),
    operator.mul: _arithmetic("Mul"),
    operator.truediv: _arithmetic("Div"),
    operator.pow: _arithmetic("Pow"),
    operator.neg: _negative,
    torch.sym_float: lambda x: _narrow(_wide(x)),
    math.floor: _rounded("Floor"),
    math.ceil: _rounded("Ceil"),
    math.trunc: _rounded(None),
}


def read_wide(model: ir.Model) -> None:
    """Makes casts of such numbers, as to the dtype of a tensor in float64, read them before they are rounded."""
    for node in all_nodes(model.graph):
        operand = node.inputs[0] if std.Cast.matches(node) else None
        if operand is not None and _WIDE in operand.meta:
            node.replace_input_with(0, operand.meta[_WIDE])
