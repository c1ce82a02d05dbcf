"""PyTorch's functions whose gradients, or whose changes of buffers, its exporter loses: the same of other operations.

What no gradient goes through becomes an Identity with a mark, see `std.Identity.stops`.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.utils.checkpoint
from torch import Tensor
from torch.nn import functional

from lstm_lower.errors import UnsupportedOpError
from lstm_lower.replacement import replaced
from lstm_lower.torch.nodes import DOMAIN


def node(
    name: str, inputs: Sequence[Tensor | None], attributes: dict[str, Any], outputs: Sequence[tuple[Tensor, Any]]
) -> list[Tensor]:
    """A node of any domain in a trace, `<domain>::<op>`; each output has another tensor's dtype, and a shape."""
    return list(
        torch.onnx.ops.symbolic_multi_out(
            name,
            list(inputs),
            attributes,
            dtypes=[like.dtype for like, _ in outputs],
            shapes=[list(shape) for _, shape in outputs],
            version=1,
        )
    )


def stopped(x: Tensor) -> Tensor:
    """The same values, through which no gradient goes."""
    if not x.is_floating_point():
        return x
    return node(f"{DOMAIN}::Stop", [x], {}, [(x, x.shape)])[0]


def broadcast(*shapes: Sequence[Any]) -> Sequence[Any]:
    """The shape that tensors of these shapes have together."""
    joined: Callable[..., Sequence[Any]] = torch.broadcast_shapes
    return joined(*shapes)


def all_stopped(value: Any) -> Any:
    """The same of every tensor in a function's result."""
    if isinstance(value, Tensor):
        return stopped(value)
    if isinstance(value, (tuple, list)) and not hasattr(value, "_fields"):
        return type(value)([all_stopped(part) for part in value])
    return value


def _batch_norm(
    input: Tensor,  # noqa: A002
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float | Tensor = 0.1,
    eps: float = 1e-5,
) -> Any:
    """Normalization by a batch's own statistics (Ioffe and Szegedy, 2015); the exporter takes the running ones."""
    if not training:
        return NotImplemented
    x = input
    axes = [axis for axis in range(x.dim()) if axis != 1]
    mean = x.mean(axes, keepdim=True)
    centered = x - mean
    variance = (centered * centered).mean(axes, keepdim=True)
    out = centered / torch.sqrt(variance + eps)
    shape = [1, -1] + [1] * (x.dim() - 2)
    out = out if weight is None else out * weight.reshape(shape)
    out = out if bias is None else out + bias.reshape(shape)
    elements = x.numel() // x.shape[1]
    _keep(running_mean, mean.flatten(), momentum)
    # As in PyTorch, the running variance is an unbiased one.
    _keep(running_var, variance.flatten() * (elements / (elements - 1)), momentum)
    return out


def _instance_norm(
    input: Tensor,  # noqa: A002
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """Normalization of each instance; the exporter leaves out what becomes of the running statistics."""
    if not use_input_stats or running_mean is None:
        return NotImplemented
    axes = list(range(2, input.dim()))
    _keep(running_mean, input.mean([0, *axes]), momentum)
    _keep(running_var, input.var(axes, correction=1).mean(0), momentum)
    return functional.instance_norm(input, None, None, weight, bias, True, momentum, eps)  # noqa: FBT003


def _keep(running: Tensor | None, new: Tensor, share: float | Tensor) -> None:
    """Lets a running statistic follow a new one, in place, which the trace records as a change of the buffer."""
    if running is not None:
        running.copy_(running * (1 - share) + new * share)


def _cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str | None = None) -> Tensor:  # noqa: ARG001
    """Distances of all pairs; no slope where there is none, as in PyTorch."""
    apart = (x1.unsqueeze(-2) - x2.unsqueeze(-3)).abs()
    if p in (1.0, float("inf")):
        return apart.sum(-1) if p == 1 else apart.amax(-1)
    powers = (apart * apart if p == 2 else apart**p).sum(-1)
    positive = powers > 0
    safe = torch.where(positive, powers, 1.0)
    return torch.where(positive, torch.sqrt(safe) if p == 2 else safe ** (1 / p), 0.0)


def _cumprod(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """Products of all before, one behind the other; ONNX has an operator from opset 26 on."""
    x = x if dtype is None else x.to(dtype)
    return node(f"{DOMAIN}::RollingProduct", [x], {"axis": dim % x.dim()}, [(x, x.shape)])[0]


def _arange(*bounds: Any, dtype: torch.dtype | None = None, **options: Any) -> Any:
    """Numbers in a floating dtype, of which the exporter writes bounds of two dtypes where they are given so."""
    if dtype is None and any(isinstance(bound, float) for bound in bounds):
        dtype = torch.get_default_dtype()
    if dtype is None or not dtype.is_floating_point:
        return NotImplemented
    if not any(isinstance(bound, torch.SymInt) for bound in bounds):
        return torch.arange(*map(float, bounds), dtype=dtype, **options)
    whole = [int(bound) if isinstance(bound, float) and bound.is_integer() else bound for bound in bounds]
    if any(isinstance(bound, (float, torch.SymFloat)) for bound in whole):
        return NotImplemented
    return torch.arange(*whole, **options).to(dtype)


def _linspace(
    start: Any,
    end: Any,
    steps: Any,
    *,
    dtype: torch.dtype | None = None,
    **options: Any,  # noqa: ARG001
) -> Any:
    """Numbers at equal distances, of which a trace keeps as many as the example has; from both ends, as in PyTorch."""
    if not isinstance(steps, torch.SymInt) or isinstance(start, Tensor) or isinstance(end, Tensor):
        return NotImplemented
    made: Callable[..., Tensor] = torch.scalar_tensor
    kind = dtype or torch.get_default_dtype()
    first, last, count = (made(x, dtype=kind) for x in (start, end, steps))
    counted: Callable[..., Tensor] = torch.arange
    numbers = counted(steps).to(kind)
    apart = (last - first) / (count - 1).clamp(min=1)
    return torch.where(numbers < torch.floor(count / 2), first + apart * numbers, last - apart * (count - 1 - numbers))


def _max_pool1d(
    input: Tensor,  # noqa: A002
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """As a pooling of images, whose length a trace leaves open."""
    one = [x[0] if isinstance(x, (tuple, list)) else x for x in (kernel_size, stride or kernel_size, padding, dilation)]
    windows = [(beside, x) for beside, x in zip((1, 1, 0, 1), one, strict=True)]
    pool: Callable[..., Any] = functional.max_pool2d
    found = pool(input.unsqueeze(-2), *windows, ceil_mode=ceil_mode, return_indices=return_indices)
    return tuple(x.squeeze(-2) for x in found) if return_indices else found.squeeze(-2)


def _gumbel_softmax(
    logits: Tensor,
    tau: float = 1,
    hard: bool = False,
    eps: float = 1e-10,  # noqa: ARG001
    dim: int = -1,
) -> Tensor:
    """Draws of ones; what is detached within the function would not be seen."""
    drawn = -torch.log(-torch.log(torch.rand_like(logits)))
    soft = torch.softmax((logits + drawn) / tau, dim)
    if not hard:
        return soft
    return torch.zeros_like(soft).scatter(dim, soft.argmax(dim, keepdim=True), 1.0) - stopped(soft) + soft


def _masked_select(input: Tensor, mask: Tensor) -> Tensor:  # noqa: A002
    """Elements where a mask, repeated as the operand is, holds; the exporter knows masks as indices alone."""
    shape = broadcast(input.shape, mask.shape)
    return input.expand(shape)[mask.expand(shape)]


def _fill_diagonal(input: Tensor, fill_value: float, wrap: bool = False) -> Any:  # noqa: A002
    """A matrix with another diagonal, of which the exporter would need strides."""
    if input.dim() != 2 or wrap:
        return NotImplemented
    places = [torch.arange(size) for size in input.shape]
    return input.copy_(torch.where(places[0].unsqueeze(1) == places[1], fill_value, input))


def _scatter_reduce(
    input: Tensor,  # noqa: A002
    dim: int,
    index: Tensor,
    src: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> Any:
    """Means of what meets at a place; the exporter writes a scatter in which the last one stays."""
    if reduce != "mean":
        return NotImplemented
    rounding = None if src.is_floating_point() else "floor"
    counts = torch.zeros_like(input).scatter_add(dim, index, torch.ones_like(src))
    if include_self:
        return torch.div(input.scatter_add(dim, index, src), counts + 1, rounding_mode=rounding)
    sums = torch.zeros_like(input).scatter_add(dim, index, src)
    return torch.where(counts > 0, torch.div(sums, counts.clamp(min=1), rounding_mode=rounding), input)


def _scatter_reduce_in_place(input: Tensor, *args: Any, **kwargs: Any) -> Any:  # noqa: A002
    result = _scatter_reduce(input, *args, **kwargs)
    return result if result is NotImplemented else input.copy_(result)


def _adaptive_mean(dims: int) -> Callable[..., Any]:
    """Means of windows of which there is a given number; PyTorch decomposes these for the example's sizes alone."""

    def pool(input: Tensor, output_size: Any) -> Any:  # noqa: A002
        counts = list(output_size) if isinstance(output_size, (tuple, list)) else [output_size] * dims
        counts = counts * dims if len(counts) == 1 else counts
        sizes: list[Any] = list(input.shape[-dims:])
        if all(isinstance(size, int) or (isinstance(n, int) and n == 1) for n, size in zip(counts, sizes, strict=True)):
            return NotImplemented
        x = input
        for axis, count, size in zip(range(-dims, 0), counts, sizes, strict=True):
            if count is None:
                continue
            places, windows = torch.arange(size), torch.arange(count).unsqueeze(1)
            first, end = windows * size // count, ((windows + 1) * size + count - 1) // count
            inside = ((places >= first) & (places < end)).to(x.dtype) / (end - first).to(x.dtype)
            x = torch.matmul(x.movedim(axis, -1), inside.transpose(0, 1)).movedim(-1, axis)
        return x

    return pool


def _avg_pool(plain: Callable[..., Tensor], dims: int) -> Callable[..., Any]:
    """Sums of windows over a given number, which the exporter leaves out."""

    def pool(
        input: Tensor,  # noqa: A002
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,  # noqa: ARG001
        divisor_override: int | None = None,
    ) -> Any:
        if divisor_override is None:
            return NotImplemented
        if ceil_mode:
            raise UnsupportedOpError(
                "avg_pool requires ceil_mode or divisor_override to be left out, got both; pad before instead"
            )
        sizes = kernel_size if isinstance(kernel_size, (tuple, list)) else [kernel_size]
        elements = math.prod(sizes) ** (dims if len(sizes) == 1 else 1)
        means = plain(input, kernel_size, stride, padding, False, True)  # noqa: FBT003
        return means * (elements / divisor_override)

    return pool


def _interpolate(
    input: Tensor,  # noqa: A002
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,  # noqa: ARG001
    recompute_scale_factor: bool | None = None,  # noqa: ARG001
    antialias: bool = False,  # noqa: ARG001
) -> Any:
    """By areas that is the means of windows, which PyTorch would call unseen."""
    if mode != "area":
        return NotImplemented
    dims = input.dim() - 2
    if size is None:
        factors = scale_factor if isinstance(scale_factor, (tuple, list)) else [scale_factor] * dims
        size = [math.floor(n * factor) for n, factor in zip(input.shape[2:], factors, strict=True)]
    return _adaptive_mean(dims)(input, size)


HANDLERS: dict[Any, Callable[..., Any]] = {
    Tensor.cumprod: _cumprod,
    torch.cumprod: _cumprod,
    Tensor.fill_diagonal_: _fill_diagonal,
    Tensor.masked_select: _masked_select,
    torch.masked_select: _masked_select,
    Tensor.scatter_reduce: _scatter_reduce,
    Tensor.scatter_reduce_: _scatter_reduce_in_place,
    torch.scatter_reduce: _scatter_reduce,
    torch.arange: _arange,
    torch.linspace: _linspace,
    torch.max_pool1d: _max_pool1d,
    torch.cdist: _cdist,
    Tensor.detach: stopped,
    torch.detach: stopped,
    Tensor.data.__get__: stopped,  # type: ignore[attr-defined]
    functional.adaptive_avg_pool1d: _adaptive_mean(1),
    functional.adaptive_avg_pool2d: _adaptive_mean(2),
    functional.adaptive_avg_pool3d: _adaptive_mean(3),
    functional.avg_pool2d: _avg_pool(functional.avg_pool2d, 2),
    functional.avg_pool3d: _avg_pool(functional.avg_pool3d, 3),
    functional.batch_norm: _batch_norm,
    functional.gumbel_softmax: _gumbel_softmax,
    functional.instance_norm: _instance_norm,
    functional.interpolate: _interpolate,
    functional.max_pool1d: _max_pool1d,
}


@contextlib.contextmanager
def own_gradients_refused() -> Iterator[None]:
    """Refuses functions with gradients of their own, of which a trace holds the result alone."""
    kind = torch.autograd.Function
    before = vars(kind)["apply"]

    def refuse(cls: type[Any], *args: Any, **kwargs: Any) -> Any:
        if cls is torch.utils.checkpoint.CheckpointFunction:
            # What is computed once more is the same, and nothing that must be kept from gradients.
            function, _, *operands = args
            return function(*operands)
        if cls.__module__.startswith("torch."):
            return before.__get__(None, cls)(*args, **kwargs)
        raise UnsupportedOpError(
            f"{cls.__name__} requires a gradient that follows from its operations, got a torch.autograd.Function with "
            "one of its own; write it in operations of tensors, with detach() where nothing shall flow"
        )

    def refuse_gradients(*_args: Any, **_options: Any) -> Any:
        raise UnsupportedOpError(
            "torch.autograd.grad must be called outside of forward and loss, got a call inside; write the "
            "derivative in operations of tensors, or let ll.gradient differentiate a gradient once more"
        )

    with replaced(kind, "apply", classmethod(refuse)), replaced(torch.autograd, "grad", refuse_gradients):
        yield


@contextlib.contextmanager
def masks_unread() -> Iterator[None]:
    """Lets transformers take a mask as it is: they look at its values only to choose between kernels."""
    module = torch.nn.modules.transformer
    before = module._detect_is_causal_mask
    try:
        module._detect_is_causal_mask = lambda mask, is_causal=None, size=None: bool(is_causal)  # noqa: ARG005
        yield
    finally:
        module._detect_is_causal_mask = before
