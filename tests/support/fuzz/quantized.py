"""Ideas: quantized numbers and what is computed with them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.support.fuzz.ideas import idea
from tests.support.fuzz.scope import Refused, Scope, Value


def _filled(s: Scope, *ranks: int) -> Value:
    if s.growth.smooth:
        raise Refused("differences are as coarse as what is quantized")
    return s.pick(lambda v: v.dtype == np.float32 and v.sample.size > 0 and (v.rank in ranks or not ranks))


@idea(1)
def there_and_back(s: Scope) -> Value:
    """Quantized, for the whole tensor or along an axis, and turned back into numbers."""
    value = _filled(s)
    dtype = s.random.choice(["uint8", "int8"])
    axis = s.random.randrange(-value.rank, value.rank) if value.rank and s.chance(0.5) else None
    shape = () if axis is None else (value.shape[axis],)
    fields = {} if axis is None else {"axis": axis}
    scale = s.constant(np.full(shape, s.random.choice([0.25, 0.5])), np.float32)
    zero = s.constant(s.growth.numbers.integers(0, 4, shape), dtype) if s.chance(0.7) else None
    quantized = s.one("QuantizeLinear", value, scale, zero, **fields)
    if s.chance(0.2):
        return quantized
    if s.chance(0.3):
        quantized = s.one(s.random.choice(["Transpose", "Flatten"]), quantized) if axis is None else quantized
    zero = None if quantized.dtype == np.int8 and zero is None else zero
    return s.one("DequantizeLinear", quantized, scale, zero, **fields)


@idea(0.7)
def dynamically(s: Scope) -> list[Value]:
    """Quantized by the numbers' own range."""
    made = s.emit("DynamicQuantizeLinear", [_filled(s)], 3)
    return [s.one("DequantizeLinear", *made)] if s.chance(0.6) else made


@idea(0.7)
def integer_products(s: Scope) -> Value:
    """A product of quantized matrices, or a convolution, as integers or quantized again."""
    numbers = s.growth.numbers
    kind = s.random.choice(["matmul", "matmul", "again", "conv"])
    left_type = s.random.choice(["uint8", "int8"]) if kind == "matmul" else "uint8"
    if kind == "conv":
        data = s.constant(numbers.integers(0, 9, (1, 2, 3, 3)), "uint8")
        weight = s.constant(numbers.integers(0, 9, (s.random.randint(1, 2), 2, 2, 2)), "uint8")
        zeros = [s.constant(1, "uint8"), s.constant(2, "uint8")][: s.random.randint(0, 2)]
        fields: dict[str, Any] = {"pads": [1, 1, 1, 1]} if s.chance(0.5) else {}
        return s.one("ConvInteger", data, weight, *zeros, **fields)
    rows, inner, columns = (s.random.randint(1, 3) for _ in range(3))
    left = s.constant(numbers.integers(0, 9, (rows, inner)), left_type)
    right = s.constant(numbers.integers(0, 9, (inner, columns)), s.random.choice(["uint8", "int8"]))
    if kind == "matmul":
        if left_type == "int8" and right.dtype == np.uint8:
            raise Refused("onnxruntime has no kernel")
        zeros = [s.constant(1, left.dtype), s.constant(2, right.dtype)][: s.random.randint(0, 2)]
        return s.one("MatMulInteger", left, right, *zeros)
    scale = s.constant(0.5, np.float32)
    zero, other = s.constant(1, left.dtype), s.constant(0, right.dtype)
    return s.one("QLinearMatMul", left, scale, zero, right, scale, other, scale, s.constant(3, left.dtype))
