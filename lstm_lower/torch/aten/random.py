"""Random numbers, of uniform and normal ones, which are what ONNX draws."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import onnx_ir as ir
import torch
from torch import Tensor

from lstm_lower.errors import UnsupportedOpError
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr, detached
from lstm_lower.passes.formulas.special_functions import log1p_of
from lstm_lower.torch.aten.registry import AtenCall, Size, translates
from lstm_lower.torch.aten.tracing import traces

aten = torch.ops.aten

# Whole numbers without a bound are below this in float32, and all exact.
WHOLE = 2**24 + 1

FLOAT, INT64 = ir.DataType.FLOAT, ir.DataType.INT64


def uniform(sizes: Expr, dtype: ir.DataType, b: Builder) -> Expr:
    """Numbers from 0 to 1."""
    return b.op(std.RandomUniformLike, _empty(sizes, b), dtype=int(_drawn(dtype)), low=0.0, high=1.0).cast(dtype)


def normal(sizes: Expr, dtype: ir.DataType, b: Builder) -> Expr:
    """Numbers of mean 0 and deviation 1."""
    return b.op(std.RandomNormalLike, _empty(sizes, b), dtype=int(_drawn(dtype)), mean=0.0, scale=1.0).cast(dtype)


def _empty(sizes: Expr, b: Builder) -> Expr:
    return b.fill(0, sizes, FLOAT)


def _drawn(dtype: ir.DataType) -> ir.DataType:
    """What numbers of a dtype are drawn in."""
    return dtype if dtype in (FLOAT, ir.DataType.DOUBLE) else FLOAT


def _uniform_of(n: AtenCall) -> Expr:
    return uniform(n.vector(n.shape), n.dtype, n.b)


def _normal_of(n: AtenCall) -> Expr:
    return normal(n.vector(n.shape), n.dtype, n.b)


@translates(aten.rand.default, aten.rand_like.default)
def _rand(n: AtenCall, *_: Any, **__: Any) -> Expr:
    return _uniform_of(n)


@translates(aten.randn.default, aten.randn_like.default)
def _randn(n: AtenCall, *_: Any, **__: Any) -> Expr:
    return _normal_of(n)


@translates(aten.uniform.default)
def _uniform(n: AtenCall, x: Expr, low: float = 0.0, high: float = 1.0, **_: Any) -> Expr:
    drawn = _uniform_of(n)
    return drawn if (low, high) == (0, 1) else drawn * (high - low) + low


@translates(aten.normal_functional.default)
def _normal_like(n: AtenCall, x: Expr, mean: float = 0.0, deviation: float = 1.0, **_: Any) -> Expr:
    return _around(n, mean, deviation)


@translates(aten.normal.Tensor_Tensor, aten.normal.Tensor_float, aten.normal.float_Tensor, aten.normal.float_float)
def _normal(n: AtenCall, mean: Any, deviation: Any = 1.0, *_: Any, **__: Any) -> Expr:
    return _around(n, mean, deviation)


def _around(n: AtenCall, mean: Any, deviation: Any) -> Expr:
    """Numbers around means; neither these nor the deviations have a gradient in PyTorch."""
    mean, deviation = (detached(x) if isinstance(x, Expr) else x for x in (mean, deviation))
    drawn = _normal_of(n)
    if not (isinstance(deviation, (int, float)) and deviation == 1):
        drawn = drawn * deviation
    return drawn if isinstance(mean, (int, float)) and mean == 0 else drawn + mean


@translates(aten.bernoulli.default)
def _bernoulli(n: AtenCall, x: Expr, **_: Any) -> Expr:
    return uniform(x.sizes(), x.dtype, n.b) < detached(x)


@translates(aten.bernoulli.p)
def _bernoulli_of_share(n: AtenCall, x: Expr, p: float, **_: Any) -> Expr:
    return uniform(n.vector(n.shape), FLOAT, n.b) < p


@translates(aten.bernoulli.Tensor)
def _bernoulli_of_shares(n: AtenCall, x: Expr, p: Expr, **_: Any) -> Expr:
    return uniform(n.vector(n.shape), p.dtype, n.b) < detached(p)


@translates(aten.randint.default)
def _whole(n: AtenCall, high: Size, *_: Any, **__: Any) -> Expr:
    return _whole_numbers(n, 0, high)


@translates(aten.randint.low)
def _whole_from(n: AtenCall, low: Size, high: Size, *_: Any, **__: Any) -> Expr:
    return _whole_numbers(n, low, high)


@translates(aten.randint_like.default)
def _whole_like(n: AtenCall, x: Expr, high: Size, **_: Any) -> Expr:
    return _whole_numbers(n, 0, high)


@translates(aten.randint_like.low_dtype)
def _whole_like_from(n: AtenCall, x: Expr, low: Size, high: Size, **_: Any) -> Expr:
    return _whole_numbers(n, low, high)


@traces(Tensor.random_)
def _whole_in_place(x: Tensor, *bounds: Any, **options: Any) -> Tensor:
    """By position or by PyTorch's names, of which one is no name in Python, nor in its traces."""
    bounds = (0, *bounds) if len(bounds) == 1 and "to" not in options else bounds
    low = bounds[0] if bounds else options.get("from", 0)
    high = bounds[1] if len(bounds) > 1 else options.get("to")
    if high is None and x.dtype != torch.float32:
        raise UnsupportedOpError(
            f"random_ requires bounds, got none for {str(x.dtype).removeprefix('torch.')}; x.random_(0, 2**24) "
            "draws whole numbers"
        )
    high = WHOLE if high is None else high
    return x.copy_(torch.randint(low, high, x.shape))


def _whole_numbers(n: AtenCall, low: Any, high: Any) -> Expr:
    """Numbers from one bound to the one before another: rounded down before the lower bound is added."""
    wide = ir.DataType.DOUBLE
    span = high - low if not isinstance(low, Expr) else (0 - low) + high
    span = span.cast(wide) if isinstance(span, Expr) else span
    numbers = uniform(n.vector(n.shape), FLOAT, n.b).cast(wide) * span
    return numbers.floor().cast(INT64) + n.scalar(low, INT64)


@translates(aten.randperm.default)
def _permutation(n: AtenCall, size: Size, **_: Any) -> Expr:
    sizes = n.vector([size])
    numbers = uniform(sizes, FLOAT, n.b)
    return n.b.ops(std.TopK, numbers, sizes, outputs=2, axis=0, largest=0)[1]


@translates(aten.multinomial.default)
def _multinomial(n: AtenCall, x: Expr, count: int, replacement: bool = False, **_: Any) -> Expr:
    """Places by their shares; without replacement none is drawn twice (Efraimidis and Spirakis, 2006)."""
    b, axis = n.b, len(x.shape or ()) - 1
    shares = detached(x)
    if replacement or count == 1:
        rows = shares if axis else shares.unsqueeze(0)
        drawn = b.op(std.Multinomial, rows.cast(FLOAT).log(), dtype=int(INT64), sample_size=count)
        return drawn if axis else drawn.squeeze(0)
    keys = shares / -uniform(x.sizes(), x.dtype, b).log()
    return b.ops(std.TopK, keys, n.vector([count]), outputs=2, axis=axis)[1]


# By PyTorch's own formulas.


@translates(aten.exponential.default)
def _exponential(n: AtenCall, x: Expr, rate: float = 1.0, **_: Any) -> Expr:
    drawn, least = _uniform_of(n), torch.finfo(n.results[0].dtype).eps / 2
    return n.b.where(drawn >= 1 - least, -least, drawn.log()) * (-1 / rate)


@translates(aten.geometric.default)
def _geometric(n: AtenCall, x: Expr, p: float, **_: Any) -> Expr:
    return (log1p_of(-_uniform_of(n)) / math.log1p(-p)).floor() + 1


@translates(aten.cauchy.default)
def _cauchy(n: AtenCall, x: Expr, median: float = 0, width: float = 1, **_: Any) -> Expr:
    angle = (_uniform_of(n) - 0.5) * math.pi
    return n.b.op(std.Sin, angle) / n.b.op(std.Cos, angle) * width + median


@translates(aten.log_normal.default)
def _log_normal(n: AtenCall, x: Expr, mean: float = 1, deviation: float = 2, **_: Any) -> Expr:
    return (_normal_of(n) * deviation + mean).exp()


_FED = "draw the numbers outside of forward, and hand them to it as an input"
_REFUSED: dict[Any, tuple[str, str]] = {
    aten._sample_dirichlet.default: (
        "Dirichlet or Beta",
        "Kumaraswamy of torch.distributions is much like Beta, and the softmax of normal numbers like Dirichlet",
    ),
    aten._standard_gamma.default: ("Gamma", "LogNormal and Weibull of torch.distributions are much like Gamma"),
    aten.binomial.default: ("binomial", _FED),
    aten.poisson.default: ("poisson", _FED),
}


def _refusing(name: str, way: str) -> Callable[..., Expr]:
    def refused(n: AtenCall, *_: Any, **__: Any) -> Expr:
        raise UnsupportedOpError(
            f"{name} requires a formula of uniform or normal numbers, which are what ONNX draws, got none; {way}"
        )

    return refused


for _overload, _said in _REFUSED.items():
    translates(_overload)(_refusing(*_said))
