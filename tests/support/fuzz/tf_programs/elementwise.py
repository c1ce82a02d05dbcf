"""Elementwise functions of one, two and three operands, broadcasting, casts, integers and truth values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tests.support.fuzz.tf_programs.registry import idea
from tests.support.fuzz.tf_programs.scope import FLOATS, INTEGERS, WIDE, Scope, Value

raw, math, nn = tf.raw_ops, tf.math, tf.nn
Function = Callable[..., Any]

ANYWHERE: dict[str, Function] = {
    "abs": tf.abs, "neg": tf.negative, "square": tf.square, "sin": tf.sin, "cos": tf.cos, "tanh": tf.tanh,
    "sigmoid": tf.sigmoid, "atan": tf.atan, "asinh": math.asinh, "erf": math.erf, "erfc": math.erfc,
    "expm1": math.expm1, "softplus": math.softplus, "softsign": nn.softsign, "relu": nn.relu, "relu6": nn.relu6,
    "elu": nn.elu, "selu": nn.selu, "gelu": nn.gelu, "tanh gelu": lambda x: nn.gelu(x, approximate=True),
    "leaky": lambda x: nn.leaky_relu(x, 0.3), "swish": nn.silu, "log sigmoid": math.log_sigmoid, "sinh": math.sinh,
    "cosh": math.cosh, "exp": tf.exp, "tan": tf.tan, "sign": tf.sign, "floor": tf.floor, "ceil": math.ceil,
    "round": tf.round, "rint": math.rint, "digamma": lambda x: math.digamma(tf.abs(x) + 0.5), "stop": tf.stop_gradient,
    "identity": tf.identity, "zeros": tf.zeros_like, "ones": tf.ones_like,
    "clip": lambda x: tf.clip_by_value(x, -0.7, 0.9),
    "clip norm": lambda x: tf.clip_by_norm(x, 1.5), "crelu": nn.crelu, "no nan": math.reciprocal_no_nan,
    "hard sigmoid": lambda x: nn.relu6(x + 3) / 6, "prevent": lambda x: raw.CheckNumerics(tensor=x, message="m"),
    "custom": tf.grad_pass_through(tf.round),
    "quantized": lambda x: tf.quantization.fake_quant_with_min_max_args(x, -2, 2),
    "dequantized": lambda x: tf.quantization.quantize_and_dequantize_v2(x, -2.0, 1.5, range_given=True),
    "dequantized by extent": lambda x: tf.quantization.quantize_and_dequantize_v2(x, 0.0, 0.0, num_bits=6),
}  # fmt: skip
POSITIVE: dict[str, Function] = {
    "log": tf.math.log, "sqrt": tf.sqrt, "rsqrt": math.rsqrt, "reciprocal": math.reciprocal, "log1p": math.log1p,
    "lgamma": math.lgamma, "inverse": lambda x: 1 / x, "acosh": lambda x: math.acosh(x + 1),
    "power": lambda x: x**1.7, "cube root": lambda x: x ** (1 / 3), "polygamma": lambda x: math.polygamma(x * 0 + 1, x),
    "zeta": lambda x: math.zeta(x + 1.5, x),
}  # fmt: skip
WITHIN_ONE: dict[str, Function] = {
    "asin": tf.asin, "acos": tf.acos, "atanh": math.atanh, "erfinv": math.erfinv,
    "ndtri": lambda x: math.ndtri(x * 0.5 + 0.5), "cubed": lambda x: x * x * x,
}  # fmt: skip
TWO: dict[str, Function] = {
    "add": tf.add, "subtract": tf.subtract, "multiply": tf.multiply, "maximum": tf.maximum, "minimum": tf.minimum,
    "squared difference": math.squared_difference, "divide": lambda x, y: x / (tf.abs(y) + 0.5),
    "atan2": lambda x, y: tf.atan2(x, tf.abs(y) + 0.1), "no nan": math.divide_no_nan,
    "mul no nan": math.multiply_no_nan,
    "pow": lambda x, y: tf.pow(tf.abs(x) + 0.2, y), "xlogy": lambda x, y: math.xlogy(x, tf.abs(y) + 0.2),
    "xdivy": lambda x, y: math.xdivy(x, tf.abs(y) + 0.2), "xlog1py": lambda x, y: math.xlog1py(x, tf.abs(y)),
    "floor mod": lambda x, y: math.floormod(x, tf.abs(y) + 0.5), "floor divide": lambda x, y: x // (tf.abs(y) + 0.5),
    "truncated": lambda x, y: raw.TruncateMod(x=tf.stop_gradient(x), y=tf.abs(tf.stop_gradient(y)) + 0.5),
    "div": lambda x, y: raw.Div(x=x, y=tf.abs(y) + 0.5),
    "real": lambda x, y: math.truediv(x, tf.where(y >= 0, y + 0.5, y - 0.5)),
}  # fmt: skip
WHOLE: dict[str, Function] = {
    "add": tf.add, "subtract": tf.subtract, "multiply": tf.multiply, "maximum": tf.maximum, "minimum": tf.minimum,
    "floor div": lambda x, y: x // (tf.abs(y) + 1), "mod": lambda x, y: x % (tf.abs(y) + 1),
    "truncate div": lambda x, y: raw.TruncateDiv(x=x, y=tf.abs(y) + 1), "and": tf.bitwise.bitwise_and,
    "truncate mod": lambda x, y: raw.TruncateMod(x=x, y=tf.abs(y) + 1), "or": tf.bitwise.bitwise_or,
    "xor": tf.bitwise.bitwise_xor, "left": lambda x, y: tf.bitwise.left_shift(x, tf.abs(y) % 4),
    "right": lambda x, y: tf.bitwise.right_shift(x, tf.abs(y) % 4), "negative mod": lambda x, y: x % -(tf.abs(y) + 1),
    "squared": math.squared_difference, "negative div": lambda x, y: x // -(tf.abs(y) + 1),
    "power": lambda x, y: tf.pow(x % 5, tf.abs(y) % 4),
}  # fmt: skip
COMPARED: dict[str, Function] = {
    "less": tf.less, "less equal": tf.less_equal, "greater": tf.greater, "greater equal": tf.greater_equal,
    "equal": tf.equal, "not equal": tf.not_equal,
}  # fmt: skip


def chosen(scope: Scope, table: dict[str, Function]) -> Function:
    return table[scope.draw.choice(list(table))]


def fits(first: Value, second: Value) -> bool:
    """Whether two values broadcast."""
    pairs = zip(reversed(first.shape), reversed(second.shape), strict=False)
    return all(a == b or 1 in (a, b) for a, b in pairs)


@idea(5)
def function(scope: Scope) -> None:
    x = scope.pick()
    table = scope.draw.choice([ANYWHERE, ANYWHERE, ANYWHERE, POSITIVE, WITHIN_ONE])
    used = chosen(scope, table)
    if table is POSITIVE:
        operand = tf.abs(x.tensor) + 0.3
    else:
        operand = tf.tanh(x.tensor) * 0.9 if table is WITHIN_ONE else x.tensor
    scope.add(used(operand))


@idea(4)
def arithmetic(scope: Scope) -> None:
    x = scope.pick()
    y = scope.of_type(x, lambda other: fits(x, other))
    scope.add(chosen(scope, TWO)(x.tensor, y.tensor))


@idea(1)
def with_number(scope: Scope) -> None:
    x = scope.pick("number")
    number = scope.draw.choice([2, 1, 3, -1] if x.is_integer else [0.5, -1.5, 2.0, 1.0, 0.0])
    scope.add(scope.draw.choice([tf.add, tf.multiply, lambda a, b: b - a, tf.maximum])(x.tensor, number))


@idea(2)
def whole(scope: Scope) -> None:
    x = scope.pick("integer")
    y = scope.of_type(x, lambda other: fits(x, other))
    scope.add(chosen(scope, WHOLE)(x.tensor, y.tensor))


@idea(1)
def compared(scope: Scope) -> None:
    x = scope.pick("number")
    y = scope.of_type(x, lambda other: fits(x, other))
    scope.add(chosen(scope, COMPARED)(x.tensor, y.tensor))


@idea(1)
def truth(scope: Scope) -> None:
    x = scope.pick("bool")
    y = scope.of_type(x, lambda other: fits(x, other))
    scope.add(scope.draw.choice([tf.logical_and, tf.logical_or, math.logical_xor])(x.tensor, tf.logical_not(y.tensor)))


@idea(2)
def where(scope: Scope) -> None:
    x = scope.pick("number")
    y = scope.of_type(x, lambda other: fits(x, other))
    if scope.draw.random() < 1 / 3:
        scope.add(tf.where(x.tensor > y.tensor, x.tensor, y.tensor))
        return
    condition = scope.pick("bool", lambda c: fits(c, x) and fits(c, y))
    scope.add(tf.where(condition.tensor, x.tensor, y.tensor))


@idea(1)
def old_where(scope: Scope) -> None:
    """Select, whose condition may be a vector of rows."""
    x = scope.pick("number", lambda value: value.rank > 0)
    y = scope.like(x)
    row = tf.reshape(tf.cast(x.tensor, "float32"), [tf.shape(x.tensor)[0], -1]) if x.shape[0] else None
    if row is None or not x.sample.size:
        return
    condition = tf.reduce_sum(row, 1) > 0.1
    scope.add(raw.Select(condition=condition, x=x.tensor, y=y.tensor))


@idea(2)
def cast(scope: Scope) -> None:
    x = scope.pick("any")
    to = scope.draw.choice([*FLOATS, *INTEGERS, "bool", "float32"])
    through = scope.draw.choice([None, None, None, "int32", "uint8", "int16"])
    tensor = x.tensor
    if through is not None:
        tensor = tf.cast(tf.clip_by_value(tensor, 0, 99) if x.dtype != "bool" else tensor, through)
    scope.add(tf.cast(tensor, WIDE.get(to, to) if scope.wide else to))


@idea(1)
def several(scope: Scope) -> None:
    x = scope.pick()
    others = [scope.like(x) for _ in range(scope.draw.randint(1, 3))]
    tensors = [x.tensor, *(other.tensor for other in others)]
    scope.add(scope.draw.choice([tf.add_n, math.accumulate_n])(tensors))


@idea(1)
def own_gradient(scope: Scope) -> None:
    """A function with a gradient of its own."""
    x = scope.pick()
    factor = scope.draw.choice([0.5, -1.0, 2.0])

    @tf.custom_gradient
    def own(a: Any) -> Any:
        return tf.tanh(a), lambda dy: factor * dy * (1 + a)

    scope.add(own(x.tensor))


@idea(1)
def clipped(scope: Scope) -> None:
    x = scope.pick()
    y = scope.of_type(x, lambda other: other.rank == 0 or other.shape == x.shape)
    scope.add(tf.clip_by_value(x.tensor, y.tensor - 0.5, y.tensor + 0.8))


@idea(1)
def clipped_together(scope: Scope) -> None:
    x = scope.pick()
    y = scope.of_type(x)
    scope.add(*tf.clip_by_global_norm([x.tensor, y.tensor], 1.0)[0])


@idea(0.5)
def approximately(scope: Scope) -> None:
    x = scope.pick()
    y = scope.like(x)
    scope.add(raw.ApproximateEqual(x=x.tensor, y=y.tensor, tolerance=0.3), math.is_finite(x.tensor))
