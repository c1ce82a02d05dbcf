"""Dtypes that onnxruntime computes in: operands are cast to one of them where it has no kernel for their own.

Every value of an operand is one of the dtype that it is cast to, and comes back unchanged. Measured with onnxruntime
1.31: what only moves elements has kernels for all dtypes, but for bfloat16 in some operators.
"""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph.builder import Expr

_DT = ir.DataType

# Integers for which onnxruntime lacks most operators -> what holds all their numbers, and wraps as they do when cast.
CARRIERS = {
    _DT.INT8: _DT.INT32,
    _DT.INT16: _DT.INT32,
    _DT.UINT8: _DT.INT32,
    _DT.UINT16: _DT.INT32,
    _DT.UINT32: _DT.INT64,
}

_COMPUTED = {
    **CARRIERS,
    _DT.FLOAT16: _DT.FLOAT,
    _DT.BFLOAT16: _DT.FLOAT,
    _DT.BOOL: _DT.INT32,
    # All bits are kept, though they are counted otherwise: sums come out right, an order does not.
    _DT.UINT64: _DT.INT64,
}

# Halves are computed in float32 and rounded once at the end: products and sums then accumulate in float32.
COMPUTE_DTYPES = {_DT.FLOAT16: _DT.FLOAT, _DT.BFLOAT16: _DT.FLOAT}


def computed(x: Expr) -> Expr:
    """X in a dtype with kernels for arithmetic, comparisons, choices and all else."""
    return x.cast(_COMPUTED.get(x.dtype, x.dtype))


def widened(x: Expr) -> Expr:
    """X in the dtype that sums and products accumulate in: halves in float32, the rest as it is."""
    return x.cast(COMPUTE_DTYPES.get(x.dtype, x.dtype))


def movable(x: Expr) -> Expr:
    """X in a dtype with kernels for what repeats and reverses elements."""
    return x.cast(_DT.FLOAT) if x.dtype == _DT.BFLOAT16 else x
