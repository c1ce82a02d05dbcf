"""PyTorch's functions whose gradients, or whose changes of buffers, its exporter loses: the same of other operations.

What no gradient goes through becomes an Identity with a mark, see `std.Identity.stops`.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from lstm_lower.torch.nodes import ATEN, DOMAIN


def node(
    name: str, inputs: Sequence[Tensor | None], attributes: dict[str, Any], outputs: Sequence[tuple[Tensor, Any]]
) -> list[Tensor]:
    """A node of any domain in a trace, `<domain>::<op>`; each output has another tensor's dtype, and a shape."""
    if ATEN:
        likes, shapes = [like for like, _ in outputs], [list(shape) for _, shape in outputs]
        made: list[Tensor] = torch.ops.lstm_lower.opaque(
            list(inputs), name, [*attributes], [*attributes.values()], likes, shapes
        )
        return made
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
    if x.is_complex():
        return torch.view_as_complex(stopped(torch.view_as_real(x.resolve_conj())))
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
    return _distances(x1.unsqueeze(-2) - x2.unsqueeze(-3), p)


def _distances(differences: Tensor, p: float) -> Tensor:
    apart = differences.abs()
    if p in (1.0, float("inf")):
        return apart.sum(-1) if p == 1 else apart.amax(-1)
    powers = (apart * apart if p == 2 else apart**p).sum(-1)
    positive = powers > 0
    safe = torch.where(positive, powers, 1.0)
    return torch.where(positive, torch.sqrt(safe) if p == 2 else safe ** (1 / p), 0.0)


def _pdist(input: Tensor, p: float = 2.0) -> Tensor:  # noqa: A002
    """Distances of each pair."""
    count: Any = input.shape[0]
    pairs: Any = torch.ones(count, count).triu(1).nonzero() if isinstance(count, torch.SymInt) else None
    rows, columns = torch.triu_indices(count, count, 1) if pairs is None else pairs.unbind(1)
    return _distances(input[rows] - input[columns], p)


def _number(input: Tensor) -> Any:  # noqa: A002
    """A value as a number, which bears no gradient in PyTorch."""
    return stopped(input).item()


def _numbers(input: Tensor) -> Any:  # noqa: A002
    return stopped(input).tolist()


def rolling_product(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
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


def _statistics_stopped(function: Callable[..., Any]) -> Callable[..., Any]:
    """A normalization whose statistics, returned behind its result, bear no gradient in PyTorch."""

    def handler(*args: Any, **kwargs: Any) -> Any:
        result, *statistics = function(*args, **kwargs)
        return (result, *all_stopped(statistics))

    return handler


def _diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:  # noqa: A002
    """Elements of a matrix at equal distances: a view that may be changed in place, as the exporter's may not."""
    if input.dim() != 2 or (dim1 % 2, dim2 % 2) != (0, 1) or not input.is_contiguous():
        return NotImplemented
    sizes: list[Any] = list(input.shape)
    if offset < 0 or not all(isinstance(size, int) for size in sizes):
        return NotImplemented
    rows, columns = sizes
    count = max(0, min(rows, columns - offset))
    return input.view(-1)[offset : offset + count * (columns + 1) : columns + 1]


def _squeeze(input: Tensor, dim: int | Sequence[int] | None = None) -> Any:  # noqa: A002
    """Without axes of one element; the exporter would drop others, too.

    An open axis of which the example has one element is dropped, too, as in PyTorch; `sizes` tries others.
    """
    named = range(input.dim()) if dim is None else [dim] if isinstance(dim, int) else dim
    axes = {axis % max(1, input.dim()) for axis in named} if input.dim() else set()
    single = [axis for axis in sorted(axes, reverse=True) if _is_one(input.shape[axis])]
    is_open = any(isinstance(input.shape[axis], torch.SymInt) for axis in single)
    if not is_open and (dim is None or (isinstance(dim, int) and single)):
        return NotImplemented
    return functools.reduce(lambda x, axis: x.squeeze(axis), single, input)


def _is_one(size: Any) -> bool:
    """Whether an axis has one element, an open one in the example."""
    if isinstance(size, torch.SymInt) and size.node.has_hint() and size.node.hint == 1:
        size.node.guard_int(__file__, 0)
    return bool(size == 1)


def _fill_diagonal(input: Tensor, fill_value: float, wrap: bool = False) -> Any:  # noqa: A002
    """A matrix with another diagonal, of which the exporter would need strides."""
    if input.dim() != 2 or wrap:
        return NotImplemented
    places = [torch.arange(size) for size in input.shape]
    return input.copy_(torch.where(places[0].unsqueeze(1) == places[1], fill_value, input))


def _diagonal_scatter(
    input: Tensor,  # noqa: A002
    src: Tensor,
    offset: int = 0,
    dim1: int = 0,
    dim2: int = 1,
) -> Tensor:
    """A tensor with another diagonal, of which the exporter would change a view in place."""
    matrix = input.movedim((dim1, dim2), (-2, -1))
    rows, columns = (torch.arange(size) for size in matrix.shape[-2:])
    places = (rows - max(0, -offset)).clamp(0, src.shape[-1] - 1)
    there = (columns - offset) == rows.unsqueeze(1)
    return torch.where(there, src.index_select(-1, places).unsqueeze(-1), matrix).movedim((-2, -1), (dim1, dim2))


def _aminmax(input: Tensor, *, dim: int | None = None, keepdim: bool = False) -> Any:  # noqa: A002
    """Both extremes, also of all elements, which the exporter does not take."""
    axes = range(input.dim()) if dim is None else (dim,)
    return torch.return_types.aminmax((input.amin(list(axes), keepdim), input.amax(list(axes), keepdim)))


def _where(condition: Tensor, *values: Any, **options: Any) -> Any:
    """The same of a mask of bytes, which older code makes and the exporter does not take."""
    if condition.dtype != torch.uint8:
        return NotImplemented
    return torch.where(condition.bool(), *values, **options)


HANDLERS: dict[Any, Callable[..., Any]] = {
    torch.where: _where,
    torch.aminmax: _aminmax,
    Tensor.aminmax: _aminmax,
    **{
        function: _statistics_stopped(function)
        for function in (torch.native_layer_norm, torch.native_batch_norm, torch._native_batch_norm_legit)
    },
    Tensor.item: _number,
    Tensor.tolist: _numbers,
    Tensor.cumprod: rolling_product,
    torch.cumprod: rolling_product,
    Tensor.diagonal: _diagonal,
    Tensor.diagonal_scatter: _diagonal_scatter,
    torch.diagonal_scatter: _diagonal_scatter,
    Tensor.fill_diagonal_: _fill_diagonal,
    Tensor.squeeze: _squeeze,
    torch.squeeze: _squeeze,
    Tensor.masked_select: _masked_select,
    torch.masked_select: _masked_select,
    torch.arange: _arange,
    torch.linspace: _linspace,
    torch.cdist: _cdist,
    torch.pdist: _pdist,
    functional.pdist: _pdist,
    torch.diagonal: _diagonal,
    functional.batch_norm: _batch_norm,
    functional.gumbel_softmax: _gumbel_softmax,
    functional.instance_norm: _instance_norm,
}


# Names of numpy, which PyTorch's own functions take for theirs.
_NUMPY = {"axis": "dim", "keepdims": "keepdim", "x1": "input", "x2": "other"}


def as_declared(
    handler: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments under names that a function of ours has: not numpy's, and operands by place that it names otherwise."""
    named = dict(kwargs)
    if not named:
        return args, named
    parameters = inspect.signature(handler).parameters
    for theirs, name in _NUMPY.items():
        if theirs in named and theirs not in parameters:
            named[name] = named.pop(theirs)
    for place, name in enumerate(("input", "other")):
        if name in named and name not in parameters and len(args) == place:
            args = (*args, named.pop(name))
    return args, named


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
