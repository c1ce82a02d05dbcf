"""Ideas: arithmetic, element by element, and along axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper

from tests.support.fuzz.ideas import idea
from tests.support.fuzz.scope import Scope, Value

# fmt: off
UNARY = [
    "Abs", "Neg", "Sigmoid", "Tanh", "Relu", "Exp", "Sqrt", "Floor", "Ceil", "Round", "Sign", "Erf", "Softplus",
    "Softsign", "LeakyRelu", "Elu", "Selu", "HardSigmoid", "HardSwish", "Reciprocal", "Sin", "Cos", "Atan",
    "Identity", "Gelu", "Mish", "Celu", "ThresholdedRelu", "Swish",
]
# fmt: on
REDUCE = ["Sum", "Sum", "Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSumExp"]
CASTS = ["float32", "float64", "float16", "int64", "int32", "int8", "uint8", "bool"]


def operand_for(s: Scope, value: Value) -> Value:
    """Something that broadcasts with a value: of its shape, of fewer axes, or with axes of 1."""
    kind = s.random.choice(["same", "same", "any", "part", "part", "uniform"])
    if kind == "any":
        return s.pick(lambda other: other.dtype == value.dtype and _broadcasts(value.shape, other.shape))
    shape = list(value.shape)
    if kind != "same":
        shape = shape[s.random.randint(0, len(shape)) :]
        shape = [1 if s.chance(0.3) else size for size in shape]
    if kind == "uniform":
        return s.constant(s.growth.array(shape, value.dtype, s.random.choice(["zeros", "ones"])))
    return s.like(value.dtype, shape)


def _broadcasts(left: tuple[int, ...], right: tuple[int, ...]) -> bool:
    try:
        np.broadcast_shapes(left, right)
    except ValueError:
        return False
    return True


@idea(8)
def binary(s: Scope) -> Value:
    value = s.floats() if s.chance(0.85) else s.pick(lambda v: v.dtype.kind in "iu")
    other = operand_for(s, value)
    op = s.random.choice(["Add", "Add", "Mul", "Mul", "Sub", "Sub", "Div", "Min", "Max"])
    pair = (value, other) if s.chance(0.6) else (other, value)
    return s.one(op, *pair)


@idea(3)
def unary(s: Scope) -> Value:
    return s.one(s.random.choice(UNARY + ["Sigmoid", "Tanh", "Neg", "Identity"] * 3), s.floats())


@idea(1)
def powers(s: Scope) -> Value:
    value = s.floats()
    if s.chance(0.5):
        return s.one("Pow", value, s.constant(s.random.choice([0, 1, 2, 3]), s.random.choice([value.dtype, "int64"])))
    return s.one("Mod", value, s.constant(s.random.choice([1, 2, -3]), value.dtype), fmod=1)


@idea(1)
def integers(s: Scope) -> Value:
    value = s.pick(lambda v: v.dtype.kind in "iu")
    other = operand_for(s, value)
    match s.random.choice(["Mod", "And", "Shift", "Sign", "Div"]):
        case "Mod":
            return s.one("Mod", value, s.constant(s.random.choice([1, 2, -3, 5]), value.dtype))
        case "And" if s.growth.opset >= 18:
            return s.one(s.random.choice(["BitwiseAnd", "BitwiseOr", "BitwiseXor"]), value, other)
        case "Shift":
            words = s.one("Cast", s.one("Abs", value), to=onnx.TensorProto.UINT8)
            direction = s.random.choice(["LEFT", "RIGHT"])
            return s.one("BitShift", words, s.constant(s.random.choice([0, 1, 2]), "uint8"), direction=direction)
        case "Div":
            return s.one("Div", value, s.constant(s.random.choice([1, 2, 3]), value.dtype))
        case _:
            return s.one(s.random.choice(["Sign", "Abs", "Neg"]), value)


@idea(2)
def compare(s: Scope) -> Value:
    value = s.pick(lambda v: v.dtype.kind in "fi")
    op = s.random.choice(["Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Equal"])
    return s.one(op, value, operand_for(s, value))


@idea(1)
def logic(s: Scope) -> Value:
    value = s.pick(lambda v: v.dtype == bool)
    if s.chance(0.3):
        return s.one("Not", value)
    return s.one(s.random.choice(["And", "Or", "Xor", "Equal"]), value, operand_for(s, value))


@idea(1)
def tests_of_values(s: Scope) -> Value:
    return s.one(s.random.choice(["IsNaN", "IsInf"]), s.floats())


@idea(2)
def where(s: Scope) -> Value:
    value = s.pick(lambda v: v.dtype != bool)
    condition = operand_for(s, Value("", np.zeros(value.shape, bool)))
    return s.one("Where", condition, *s.random.sample([value, operand_for(s, value)], 2))


@idea(2)
def cast(s: Scope) -> Value:
    value = s.pick()
    target = s.random.choice([*CASTS, *[s.growth.dtype.name] * 4])
    if s.chance(0.2) and s.growth.opset >= 15:
        return s.one("CastLike", value, s.pick(lambda v: v.dtype.name == target))
    fields: dict[str, Any] = {"saturate": s.random.randint(0, 1)} if s.growth.opset >= 19 and s.chance(0.2) else {}
    return s.one("Cast", value, to=helper.np_dtype_to_tensor_dtype(np.dtype(target)), **fields)


@idea(1)
def clip(s: Scope) -> Value:
    value = s.pick(lambda v: v.dtype.kind in "fi")
    bounds = [s.constant(bound, value.dtype) if s.chance(0.7) else None for bound in (-1, 1)]
    return s.one("Clip", value, *bounds)


@idea(2)
def variadic(s: Scope) -> Value:
    value = s.floats()
    count = s.random.randint(0, 3)
    return s.one(s.random.choice(["Sum", "Mean", "Min", "Max"]), value, *(operand_for(s, value) for _ in range(count)))


@idea(1)
def dropout(s: Scope) -> list[Value]:
    value = s.floats()
    ratio = s.constant(0.5, "float32") if s.chance(0.7) else None
    training = s.constant(0, bool) if ratio is not None and s.chance(0.5) else None
    masked = s.growth.opset >= 12 and s.chance(0.5)
    return s.emit("Dropout", [value, ratio, training], 1 + masked)


@idea(2)
def nothing_changes(s: Scope) -> Value:
    """Forms that simplify to one of their operands, or to zeros or ones of a shape."""
    value = s.floats()
    like = s.one("ConstantOfShape", s.one("Shape", value))
    zeros = s.one("CastLike", like, value) if s.growth.opset >= 15 else s.one("Sub", value, value)
    match s.random.randrange(6):
        case 0:
            return s.one("Add", *s.random.sample([value, zeros], 2))
        case 1:
            return s.one("Mul", *s.random.sample([value, zeros], 2))
        case 2:
            return s.one("Neg", s.one("Neg", value))
        case 3:
            return s.one("Mul", value, s.one("Exp", zeros))
        case 4:
            return s.one("Sub", zeros, value)
        case _:
            return s.one("Div", value, s.one("Cos", zeros))


def signed_axes(s: Scope, rank: int, *, least: int = 0) -> list[int]:
    """Distinct axes in any order, some of them counted from the end."""
    chosen = s.random.sample(range(rank), s.random.randint(min(least, rank), rank))
    return [axis - rank if s.chance(0.3) else axis for axis in chosen]


@idea(5)
def reduce(s: Scope) -> Value:
    value = s.pick(lambda v: v.dtype.kind in "fi")
    # onnxruntime's mean of nothing is 0, which is mended.
    kind = s.random.choice(REDUCE if value.sample.size else [kind for kind in REDUCE if kind != "Mean"])
    fields: dict[str, Any] = {} if s.chance(0.3) else {"keepdims": s.random.randint(0, 1)}
    as_input = s.growth.opset >= (13 if kind == "Sum" else 18)
    if as_input and s.chance(0.25):
        fields["noop_with_empty_axes"] = s.random.randint(0, 1)
    axes = signed_axes(s, value.rank, least=0 if s.chance(0.1) else 1)
    if not value.sample.size:  # onnxruntime overlooks negative axes of what is empty
        axes = [axis % value.rank for axis in axes]
    s.growth.never_empty |= kind == "Mean" or any(axis < 0 for axis in axes)
    if s.chance(0.2):
        return s.one(f"Reduce{kind}", value, **fields)
    if as_input:
        return s.one(f"Reduce{kind}", value, s.ints(axes), **fields)
    return s.one(f"Reduce{kind}", value, axes=axes, **fields)


@idea(1)
def arg_extreme(s: Scope) -> Value:
    value = s.pick(lambda v: v.is_float and v.rank > 0 and v.sample.size > 0)  # the same, of positive ones too
    fields: dict[str, Any] = {} if s.chance(0.3) else {"axis": s.random.randrange(-value.rank, value.rank)}
    if s.chance(0.5):
        fields["keepdims"] = s.random.randint(0, 1)
    if s.chance(0.3):
        fields["select_last_index"] = s.random.randint(0, 1)
    return s.one(s.random.choice(["ArgMax", "ArgMin"]), value, **fields)


@idea(2)
def along_an_axis(s: Scope) -> Value:
    value = s.floats(least_rank=1)
    axis = s.random.randrange(-value.rank, value.rank)
    match s.random.choice(
        ["Softmax", "Softmax", "LogSoftmax", "Hardmax", "CumSum", "CumSum", "CumProd", "LpNormalization"]
    ):
        case "CumSum" | "CumProd" as op:
            if op == "CumProd" and s.growth.opset < 26:
                op = "CumSum"
            where = s.constant(axis, s.random.choice(["int64", "int32"]))
            return s.one(op, value, where, exclusive=s.random.randint(0, 1), reverse=s.random.randint(0, 1))
        case "LpNormalization":
            return s.one("LpNormalization", value, axis=axis, p=s.random.randint(1, 2))
        case op:
            return s.one(op, value, **({} if s.chance(0.2) else {"axis": axis}))


@idea(1)
def top_k(s: Scope) -> list[Value]:
    value = s.floats(least_rank=1)
    axis = s.random.randrange(-value.rank, value.rank)
    count = s.random.randint(0, value.shape[axis])
    fields = {"axis": axis, "largest": s.random.randint(0, 1), "sorted": 1}
    return s.emit("TopK", [value, s.ints([count])], 2, **fields)
