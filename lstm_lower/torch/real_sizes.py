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
from onnxscript import opset18 as op

from lstm_lower.graph import standard as std
from lstm_lower.graph.subgraphs import all_nodes

Formula = Callable[..., Any]

_WIDE = f"{__name__}.wide"


def _is_whole(x: Any) -> bool:
    return isinstance(x, int) or (isinstance(x, ir.Value) and x.dtype == ir.DataType.INT64)


def _wide(x: Any) -> Any:
    """An operand in float64."""
    if not isinstance(x, ir.Value):
        return op.Constant(value=ir.tensor(np.float64(x)))
    return x.meta[_WIDE] if _WIDE in x.meta else op.Cast(x, to=ir.DataType.DOUBLE)


def _narrow(wide: Any) -> Any:
    """In float32, as the exporter declares such numbers."""
    value = op.Cast(wide, to=ir.DataType.FLOAT)
    value.meta[_WIDE] = wide
    return value


def _real(operator: Formula) -> Formula:
    def formula(*operands: Any) -> Any:
        return _narrow(operator(*map(_wide, operands)))

    return formula


def _either(operator: Formula) -> Formula:
    """Of sizes in int64 one in int64."""

    def formula(*operands: Any) -> Any:
        return operator(*operands) if all(map(_is_whole, operands)) else _real(operator)(*operands)

    return formula


def _whole(rounded: Formula) -> Formula:
    def formula(x: Any) -> Any:
        return op.Cast(rounded(_wide(x)), to=ir.DataType.INT64)

    return formula


def _same(x: Any) -> Any:
    return x


def _log2(x: Any) -> Any:
    """Exact for powers of two, as in Python; others are too far from a whole number to be taken for one."""
    found = op.Div(op.Log(x), _wide(math.log(2)))
    nearest = op.Round(found)
    return op.Where(op.Equal(op.Pow(_wide(2.0), nearest), x), nearest, found)


# Function of Python on open sizes -> its formula, for `torch.onnx.export`.
REAL_SIZES: dict[Callable[..., Any], Formula] = {
    operator.add: _either(op.Add),
    operator.sub: _either(op.Sub),
    operator.mul: _either(op.Mul),
    operator.pow: _either(op.Pow),
    operator.neg: _either(op.Neg),
    operator.truediv: _real(op.Div),
    torch.sym_float: _real(_same),
    torch._sym_log2: _real(_log2),  # type: ignore[attr-defined]
    math.floor: _whole(op.Floor),
    math.ceil: _whole(op.Ceil),
    math.trunc: _whole(_same),
}


def read_wide(model: ir.Model) -> None:
    """Makes casts of such numbers, as to the dtype of a tensor in float64, read them before they are rounded."""
    for node in all_nodes(model.graph):
        operand = node.inputs[0] if std.Cast.matches(node) else None
        if operand is not None and _WIDE in operand.meta:
            node.replace_input_with(0, operand.meta[_WIDE])
