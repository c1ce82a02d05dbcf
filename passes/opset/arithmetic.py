"""Operators that got more element types or attributes of arithmetic: through a wider type, or by their formula."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import END, Expr
from lstm_lower.passes.opset.registry import Site, before

_D = ir.DataType
_HALVES = (_D.FLOAT16, _D.BFLOAT16)


@before(14, std.Add, std.Sub, std.Mul, std.Div)
def small_integers(site: Site) -> Sequence[Expr] | None:
    """8 and 16 bits: int32 holds every result, and Cast keeps the low bits, as the small type would."""
    dtype = site.known_dtype()
    if dtype not in (_D.INT8, _D.INT16, _D.UINT8, _D.UINT16):
        return None
    # The product of two uint16 needs 32 bits of its own.
    wide = _D.INT64 if dtype == _D.UINT16 else _D.INT32
    result = site.builder.op(site.operator, site.input(0).cast(wide), site.input(1).cast(wide))
    return [result.cast(site.dtype())]


@before(14, std.Relu)
def relu_of_integers(site: Site) -> Sequence[Expr] | None:
    """The larger of the number and 0."""
    dtype = site.known_dtype()
    return [site.input(0).maximum(0)] if dtype is not None and dtype.is_integer() else None


@before(14, std.CumSum)
def cumulative_sum(site: Site) -> Sequence[Expr] | None:
    """Half precision: summed in float32."""
    if site.known_dtype() not in _HALVES:
        return None
    total = site.builder.op(std.CumSum, site.input(0).cast(_D.FLOAT), site.input(1), **site.attributes())
    return [total.cast(site.dtype())]


@before(26, std.CumProd)
def cumulative_product(site: Site) -> Sequence[Expr]:
    """A loop that carries the product."""
    axis, rank, b = site.constant(1), site.rank(), site.builder
    if axis is None:
        raise site.refusal(
            "axis", f"a constant below opset 26 (the model is moved to {site.target})", "a computed value"
        )
    place = int(axis.reshape(-1)[0]) % rank
    order = [place, *[other for other in range(rank) if other != place]]
    x = site.input(0).transpose(*order)
    start = b.fill(1, x.sizes().slice(1, rank, axis=0), site.dtype())
    exclusive, reverse = bool(site.attribute("exclusive", 0)), bool(site.attribute("reverse", 0))
    # One step more than there are elements: onnxruntime's Scan wants at least one.
    last = [start.unsqueeze(0)]
    x = b.concat([*last, x] if reverse else [x, *last], axis=0)

    def step(states: list[Expr], inputs: list[Expr]) -> tuple[list[Expr], list[Expr]]:
        product = states[0] * inputs[0]
        return [product], [states[0] if exclusive else product]

    _, products = b.scan(step, states=[start], inputs=[x], reverse=reverse)
    kept = products[0].slice(1, END, axis=0) if reverse else products[0].slice(0, -1, axis=0)
    return [kept.transpose(*np.argsort(order).tolist())]


@before(20, std.IsInf)
def is_infinite(site: Site) -> Sequence[Expr] | None:
    """Half precision: float32 holds the same values."""
    if site.known_dtype() not in _HALVES:
        return None
    return [site.builder.op(std.IsInf, site.input(0).cast(_D.FLOAT), **site.attributes())]


@before(20, std.ConstantOfShape)
def bfloat16_constant(site: Site) -> Sequence[Expr] | None:
    """bfloat16: a float32 constant of the same value, cast."""
    value = site.attribute("value", None)
    if value is None or value.dtype != _D.BFLOAT16:
        return None
    number = ir.tensor(value.numpy().astype(np.float32))
    return [site.builder.op(std.ConstantOfShape, site.input(0), value=number).cast(_D.BFLOAT16)]


@before(18, std.BitwiseNot)
def bitwise_not(site: Site) -> Sequence[Expr]:
    """In two's complement -1 - x; without a sign, the largest number - x."""
    dtype = site.dtype()
    ones = -1 if dtype.is_signed() else int(np.iinfo(dtype.numpy()).max)
    return [ones - site.input(0)]


@before(28, std.Mod)
def mod_of_floats(site: Site) -> None:
    """Floor division of floating point numbers is of 28."""
    if site.attribute("fmod", 0) == 0 and site.dtype().is_floating_point():
        raise site.too_new("fmod 0 of floating point numbers", 28)


@before(19, std.Cast, std.CastLike)
@before(24, std.Cast, std.CastLike)
def cast_rounding(site: Site) -> None:
    """Saturation and rounding speak of 8-bit floats only."""
    like = site.operator is std.CastLike
    target = site.dtype(1) if like else _D(site.attribute("to"))
    if target != _D.FLOAT8E8M0:
        site.drop("round_mode")
    if not target.name.startswith("FLOAT8"):
        site.drop("saturate")


@before(15, std.CastLike)
def cast_like(site: Site) -> Sequence[Expr]:
    """A cast to the second input's type."""
    return [site.builder.op(std.Cast, site.input(0), to=int(site.dtype(1)))]
