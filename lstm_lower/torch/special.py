"""Functions of single elements that the exporter has no formula for, or one that is wrong at kinks and far out."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from lstm_lower.torch.functions import node, stopped
from lstm_lower.torch.nodes import DOMAIN


def _one(name: str) -> Callable[[Tensor], Any]:
    def function(x: Tensor) -> Any:
        return node(f"{DOMAIN}::{name}", [x], {}, [(x, x.shape)])[0] if x.is_floating_point() else NotImplemented

    return function


def _multigammaln(input: Tensor, p: int) -> Any:  # noqa: A002
    """Log of the gamma function of matrices of p rows."""
    halves = input.unsqueeze(-1) - torch.arange(p, dtype=input.dtype) / 2
    return _one("Lgamma")(halves).sum(-1) + torch.tensor(p * (p - 1) / 4 * math.log(math.pi), dtype=input.dtype)


def _polygamma(n: int, input: Tensor) -> Any:  # noqa: A002
    """The derivative of digamma of an order."""
    if n < 1 or not input.is_floating_point():
        return _one("Digamma")(input) if n == 0 else NotImplemented
    return node(f"{DOMAIN}::Polygamma", [input], {"order": n}, [(input, input.shape)])[0]


def _in_float64(name: str) -> Callable[..., Any]:
    """Where the runtime has no kernel for what the exporter writes."""

    def function(x: Tensor) -> Any:
        return _one(name)(x) if x.dtype == torch.float64 else NotImplemented

    return function


def _gelu(input: Tensor, *, approximate: str = "none") -> Any:  # noqa: A002
    return _in_float64("GaussianGate")(input) if approximate == "none" else NotImplemented


def _logaddexp(input: Tensor, other: Tensor) -> Tensor:  # noqa: A002
    """Of the larger one and of how much smaller the other is; the exporter's overflows."""
    most = torch.maximum(input, other)
    held = stopped(torch.where(most.abs() < math.inf, most, 0.0))
    return held + torch.log(torch.exp(input - held) + torch.exp(other - held))


def _logsigmoid(input: Tensor) -> Tensor:  # noqa: A002
    """The exporter takes the logarithm of what may be 0."""
    return -functional.softplus(-input, threshold=math.inf)


def _sinc(input: Tensor) -> Tensor:  # noqa: A002
    """Sine of pi x by pi x, with a slope at 0."""
    empty = input == 0
    angle = torch.where(empty, 1.0, input) * torch.tensor(math.pi, dtype=input.dtype)
    return torch.where(empty, 1.0, torch.sin(angle) / angle)


def _hypot(input: Tensor, other: Tensor) -> Tensor:  # noqa: A002
    """The length of two legs; their squares may be too large for the dtype."""
    most = stopped(torch.maximum(input.abs(), other.abs()))
    scale = torch.where((most > 0) & (most < math.inf), most, 1.0)
    a, b = input / scale, other / scale
    return scale * torch.sqrt(a * a + b * b)


def _fmax(input: Tensor, other: Tensor) -> Tensor:  # noqa: A002
    """The larger one, or that which is a number."""
    return torch.where((input >= other) | other.isnan(), input, other)


def _fmin(input: Tensor, other: Tensor) -> Tensor:  # noqa: A002
    return torch.where((input <= other) | other.isnan(), input, other)


def _signbit(input: Tensor) -> Any:  # noqa: A002
    """Whether the sign is a minus, of a zero too."""
    return (input < 0) | (1 / input < 0) if input.is_floating_point() else input < 0


def _copysign(input: Tensor, other: Any) -> Any:  # noqa: A002
    if not input.is_floating_point():
        return NotImplemented
    minus = _signbit(other) if isinstance(other, Tensor) else math.copysign(1, other) < 0
    return torch.where(minus, -input.abs(), input.abs()) if isinstance(minus, Tensor) else input.abs() * (1 - 2 * minus)


def angle_of(y: Any, x: Any) -> Any:
    """The angle from the nearest axis, added to that of the axis; no slope at the origin, and signs of zeros count.

    The exporter divides by what may be 0, and takes the wrong half turn where the first is 0.
    """
    if x.dtype != y.dtype or not x.is_floating_point():
        return NotImplemented
    tall, empty = y.abs() > x.abs(), (y == 0) & (x == 0)
    over, under = torch.where(tall, x, y), torch.where(tall, y, x)
    turned = torch.atan(torch.where(empty, 0.0, over) / torch.where(empty, 1.0, under))
    half = _copysign(torch.full_like(y, math.pi), y)
    return torch.where(tall, half / 2 - turned, torch.where(_signbit(x), half, torch.zeros_like(half)) + turned)


def _xlogy(input: Any, other: Any) -> Any:  # noqa: A002
    """The product has a slope where the first factor is 0, which the exporter leaves out."""
    if not isinstance(input, Tensor) or not isinstance(other, Tensor) or not input.is_floating_point():
        return NotImplemented
    empty = (input == 0) & (other <= 0)
    return torch.where(empty, 0.0, input * torch.log(torch.where(empty, 1.0, other)))


class _Bounded(torch.autograd.Function):
    """No gradient at the bounds, where that of clamp belongs to the operand.

    A choice between elements would take runtimes twenty times as long as Clip.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, low: float, high: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.bounds = low, high
        return x.clamp(low, high)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, None]:
        (x,), (low, high) = ctx.saved_tensors, ctx.bounds
        return torch.where((x <= low) | (x >= high), 0.0, dy), None, None


def _hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:  # noqa: A002
    if torch._C._functorch.is_batchedtensor(input):
        # Of single samples there are no gradients of ours.
        result = torch.where(input <= min_val, min_val, torch.where(input >= max_val, max_val, input))
    else:
        result = _Bounded.apply(input, min_val, max_val)  # type: ignore[no-untyped-call]
    return input.copy_(result) if inplace else result


def _relu6(input: Tensor, inplace: bool = False) -> Tensor:  # noqa: A002
    return _hardtanh(input, 0.0, 6.0, inplace)


def _rrelu(
    input: Tensor,  # noqa: A002
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    """Slopes below zero that are drawn, or their mean (Xu et al., 2015)."""
    slopes: Any = (lower + upper) / 2
    if training:
        slopes = lower + torch.rand_like(input) * (upper - lower)
    result = torch.where(input > 0, input, input * slopes)
    return input.copy_(result) if inplace else result


def _clamp(input: Tensor, min: Any = None, max: Any = None) -> Any:  # noqa: A002
    """Elements at bounds belong to the operand; of bounds that are whole numbers the exporter makes Max and Min."""
    if input.is_floating_point():
        min, max = (_bound(number, input) for number in (min, max))  # noqa: A001
    if not isinstance(min, Tensor) and not isinstance(max, Tensor):
        return torch.clamp(input, min=min, max=max)
    x = input if min is None else torch.where(input < min, min, input)
    return x if max is None else torch.where(x > max, max, x)


def _clamp_max(input: Tensor, max: Any) -> Any:  # noqa: A002
    return _clamp(input, None, max)


def _bound(number: Any, like: Tensor) -> Any:
    made: Callable[..., Tensor] = torch.scalar_tensor
    if isinstance(number, torch.SymInt):
        return made(number, dtype=like.dtype)
    return float(number) if isinstance(number, int) else number


def _clamp_in_place(input: Tensor, *bounds: Any, **options: Any) -> Tensor:  # noqa: A002
    return input.copy_(_clamp(input, *bounds, **options))


_BY_NAME: dict[str, Callable[..., Any]] = {
    "arctan2": angle_of,
    "atan2": angle_of,
    "clamp": _clamp,
    "clamp_": _clamp_in_place,
    "clamp_max": _clamp_max,
    "clamp_min": _clamp,
    "clip": _clamp,
    "clip_": _clamp_in_place,
    "copysign": _copysign,
    "digamma": _one("Digamma"),
    "erf": _in_float64("ErrorFunction"),
    "erfc": _one("Erfc"),
    "erfinv": _one("Erfinv"),
    "expm1": _one("Expm1"),
    "fmax": _fmax,
    "fmin": _fmin,
    "hypot": _hypot,
    "lgamma": _one("Lgamma"),
    "log1p": _one("Log1p"),
    "logaddexp": _logaddexp,
    "mvlgamma": _multigammaln,
    "signbit": _signbit,
    "sinc": _sinc,
    "xlogy": _xlogy,
}

SPECIAL: dict[Any, Callable[..., Any]] = {
    **{getattr(holder, name): f for holder in (torch, Tensor) for name, f in _BY_NAME.items() if hasattr(holder, name)},
    Tensor.polygamma: lambda x, n: _polygamma(n, x),
    functional.gelu: _gelu,
    functional.hardtanh: _hardtanh,
    functional.logsigmoid: _logsigmoid,
    functional.relu6: _relu6,
    functional.rrelu: _rrelu,
    torch.special.digamma: _one("Digamma"),
    torch.special.erf: _in_float64("ErrorFunction"),
    torch.special.erfc: _one("Erfc"),
    torch.special.erfcx: _one("Erfcx"),
    torch.special.erfinv: _one("Erfinv"),
    torch.special.expm1: _one("Expm1"),
    torch.special.gammaln: _one("Lgamma"),
    torch.special.log_ndtr: _one("LogNdtr"),
    torch.special.ndtr: _one("Ndtr"),
    torch.special.ndtri: _one("Ndtri"),
    torch.special.sinc: _sinc,
    torch.special.log1p: _one("Log1p"),
    torch.special.multigammaln: _multigammaln,
    torch.polygamma: _polygamma,
    torch.special.polygamma: _polygamma,
    torch.special.psi: _one("Digamma"),
    torch.special.xlogy: _xlogy,
}
