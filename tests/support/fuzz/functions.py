"""Ideas: functions that are defined for some numbers only, those with slopes or bounds, and integers of few bits."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper

from tests.support.fuzz.arithmetic import operand_for
from tests.support.fuzz.ideas import idea
from tests.support.fuzz.scope import Refused, Scope, Value

# Where each is defined, and not steep: all numbers, those above a half, those from -1 to 1, those above 1.
EVERYWHERE = ["Relu", "Tanh", "Sigmoid", "Exp", "Gelu", "Softplus", "Sinh", "Cosh", "Asinh", "Erf", "Tan", "Shrink"]
POSITIVE = ["Log", "Log", "Sqrt", "Sqrt", "Reciprocal"]
WITHIN_ONE = ["Acos", "Asin", "Atanh"]
ABOVE_ONE = ["Acosh"]


@idea(3)
def defined_function(s: Scope) -> Value:
    """A function of numbers that it is defined for."""
    value = s.floats()
    op = s.random.choice(EVERYWHERE * 2 + POSITIVE * 2 + WITHIN_ONE + ABOVE_ONE)
    if op in POSITIVE:
        away = s.one("Add", s.one("Abs", value), s.constant(s.random.choice([0.5, 1]), value.dtype))
        return s.one(op, away if s.chance(0.7) else s.one("Mul", away, away))
    if op in WITHIN_ONE:
        return s.one(op, s.one("Mul", s.one("Tanh", value), s.constant(0.75, value.dtype)))
    if op in ABOVE_ONE:
        return s.one(op, s.one("Add", s.one("Mul", value, value), s.constant(1.5, value.dtype)))
    return s.one(op, value, **_settings(s, op))


def _settings(s: Scope, op: str) -> dict[str, Any]:
    if op == "Gelu" and s.chance(0.5):
        return {"approximate": "tanh"}
    if op == "Shrink":
        return {"lambd": s.random.choice([0.5, 1.0]), "bias": s.random.choice([0.0, 0.25])}
    return {}


@idea(1)
def with_numbers(s: Scope) -> Value:
    """An activation with attributes of its own."""
    op = s.random.choice(["LeakyRelu", "Elu", "Celu", "HardSigmoid", "ThresholdedRelu", "Selu"])
    fields = {"alpha": s.random.choice([0.25, 0.5, 1.5])} if s.chance(0.7) else {}
    if op == "HardSigmoid" and s.chance(0.5):
        fields["beta"] = 0.25
    if op == "Selu" and s.chance(0.5):
        fields["gamma"] = 1.25
    return s.one(op, s.floats(), **fields)


@idea(1)
def prelu(s: Scope) -> Value:
    """A slope for each channel, or for fewer of them."""
    value = s.floats()
    shape = [size if s.chance(0.6) else 1 for size in value.shape]
    return s.one("PRelu", value, s.like(value.dtype, shape[s.random.randint(0, value.rank) :]))


@idea(1.5)
def few_bits(s: Scope) -> Value:
    """Arithmetic of integers that wrap at 8, 16 or 32 bits, or of unsigned ones."""
    value = s.pick(lambda v: v.dtype.kind in "iuf")
    name = s.random.choice(["int8", "uint8", "uint8", "int16", "uint16", "int32", "uint32", "uint64"])
    whole = (
        value if value.dtype.kind in "iu" else s.one("Cast", value, to=helper.np_dtype_to_tensor_dtype(np.dtype(int)))
    )
    if name.startswith("u"):
        whole = s.one("Abs", whole) if whole.dtype.kind == "i" else whole
    narrow = s.one("Cast", whole, to=helper.np_dtype_to_tensor_dtype(np.dtype(name)))
    if s.chance(0.3):
        return narrow
    if s.chance(0.3) and s.growth.opset >= 18:
        return s.one("BitwiseNot", narrow)
    other = operand_for(s, narrow)
    return s.one(s.random.choice(["Add", "Sub", "Mul", "Div", "Min", "Max", "Equal", "Less", "Mod"]), narrow, other)


@idea(1)
def mixed_types(s: Scope) -> Value:
    """A value in another floating type, what is done there, and back."""
    if s.growth.smooth:
        raise Refused("differences are as coarse as halves")
    value = s.floats()
    other = s.random.choice([name for name in ("float16", "float32", "float64") if name != value.dtype.name])
    inner = s.one("Cast", value, to=helper.np_dtype_to_tensor_dtype(np.dtype(other)))
    for _ in range(s.random.randint(0, 2)):
        op = s.random.choice(["Add", "Mul", "Sub", "Tanh", "Neg", "Transpose", "ReduceSum"])
        operands = [inner, operand_for(s, inner)] if op in ("Add", "Mul", "Sub") else [inner]
        inner = s.one(op, *operands)
    back = helper.np_dtype_to_tensor_dtype(value.dtype)
    return s.one("Cast", inner, to=back) if s.chance(0.8) else s.one("CastLike", inner, value)


@idea(0.7)
def rounded_to_bfloat16(s: Scope) -> Value:
    """A value through bfloat16, in which nothing is computed: onnxruntime has hardly any kernel for it here."""
    import ml_dtypes

    value = s.pick(lambda v: v.dtype == np.float32)
    if s.growth.smooth or not value.sample.size:
        raise Refused("differences are as coarse as halves, or there is nothing to round")
    half = value.sample.astype(ml_dtypes.bfloat16)
    made = s.emit("Cast", [value], known=[half], to=16)[0]
    if s.chance(0.3):
        made = _hidden(s, made, s.emit("Identity", [made], known=[half])[0])
    back = s.emit("Cast", [made], known=[half.astype(np.float32)], to=1)[0]
    s.drop(made)
    return back


def _hidden(s: Scope, value: Value, instead: Value) -> Value:
    s.drop(value)
    return instead
