"""Functions that pick elements by their order: gradients go to those that are picked, also where others equal them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from lstm_lower.torch.functions import node, stopped
from lstm_lower.torch.nodes import DOMAIN


def _extreme(find: Callable[..., Tensor], kind: Any) -> Callable[..., Any]:
    """The largest elements along an axis with their places; the exporter's share among equal ones."""

    def picked(input: Tensor, dim: Any = None, keepdim: bool = False, **options: Any) -> Any:  # noqa: A002
        if not isinstance(dim, int) or options or not input.is_floating_point() or not input.dim():
            return NotImplemented
        places = find(input, dim, keepdim=True)
        values = input.gather(dim, places)
        return kind([x if keepdim else x.squeeze(dim) for x in (values, places)])

    return picked


def _furthest(function: Callable[..., Tensor]) -> Callable[..., Any]:
    """Of a whole tensor, for which the exporter wants to hear of axes."""

    def found(input: Tensor, dim: Any = (), keepdim: bool = False) -> Any:  # noqa: A002
        return function(input, list(range(input.dim())), keepdim) if dim == () and input.dim() else NotImplemented

    return found


def _ranked(input: Tensor, rank: Any, dim: int, keepdim: bool, kind: Any) -> Any:  # noqa: A002
    """The element of a rank (counted from 0) along an axis, with its place."""
    order = input.sort(dim)[1]
    places = order.narrow(dim, rank, 1)
    values = input.gather(dim, places)
    return kind([x if keepdim else x.squeeze(dim) for x in (values, places)])


def _kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:  # noqa: A002
    return _ranked(input, k - 1, dim, keepdim, torch.return_types.kthvalue) if input.dim() else NotImplemented


def _median(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:  # noqa: A002
    """The lower one of two; no number where one is none. Of a whole tensor, equal elements share."""
    if not input.dim():
        return NotImplemented
    if dim is not None:
        values, places = _ranked(input, (input.shape[dim] - 1) // 2, dim, keepdim, torch.return_types.median)
        if input.is_floating_point():
            values = torch.where(input.isnan().any(dim, keepdim=keepdim), torch.nan, values)
        return torch.return_types.median((values, places))
    flat = input.flatten()
    found = stopped(_median(flat, 0).values)
    if not input.is_floating_point():
        return found
    equal = flat == found
    shared = torch.where(equal, flat, 0.0).sum() / equal.sum()
    return torch.where(found.isnan(), torch.nan, shared)


def _nanmedian(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:  # noqa: A002
    """The median of those that are numbers."""
    if dim is None or not input.dim():
        return _nanmedian(input.flatten(), 0).values if dim is None else NotImplemented
    missing = input.isnan()
    order = torch.where(missing, torch.inf, input).sort(dim)[1]
    middle = ((~missing).to(torch.int64).sum(dim, keepdim=True) - 1).clamp(min=0) // 2
    places = order.gather(dim, middle)
    values = input.gather(dim, places)
    return torch.return_types.nanmedian((values, places) if keepdim else (values.squeeze(dim), places.squeeze(dim)))


def _mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> Any:  # noqa: A002
    """The value that is there most often, of several the smallest, with its last place."""
    if not input.dim():
        return NotImplemented
    ordered, order = input.sort(dim)
    size, last = input.shape[dim], ordered.dim() - 1
    along = ordered.movedim(dim, -1)
    numbers = torch.arange(size).expand(along.shape)
    before = torch.cat([along[..., :1], along[..., :-1]], -1)
    # How far along each element is in its row of equal ones.
    starts = torch.where(along == before, 0, numbers)
    first = _cumulative(torch.return_types.cummax, "cummax")(starts, last).values
    places = order.gather(dim, (numbers - first).argmax(-1, keepdim=True).movedim(-1, dim))
    values = input.gather(dim, places)
    return torch.return_types.mode((values, places) if keepdim else (values.squeeze(dim), places.squeeze(dim)))


def _cumulative(kind: Any, name: str) -> Callable[..., Any]:
    """The largest of all elements before, with the last place of it."""

    def running(input: Tensor, dim: int) -> Any:  # noqa: A002
        if not input.dim():
            return NotImplemented
        attributes = {"axis": dim % input.dim(), "largest": int(name == "cummax")}
        like = torch.zeros((), dtype=torch.int64)
        places = node(f"{DOMAIN}::RunningPlace", [input], attributes, [(like, input.shape)])[0]
        return kind([input.gather(dim, places), places])

    return running


def _logcumsumexp(input: Tensor, dim: int) -> Any:  # noqa: A002
    """The logarithm of the sum of all exponentials before; the exporter's overflows."""
    if not input.dim():
        return NotImplemented
    return node(f"{DOMAIN}::RunningLogSumExp", [input], {"axis": dim % input.dim()}, [(input, input.shape)])[0]


def _searchsorted(
    sorted_sequence: Tensor,
    input: Any,  # noqa: A002
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Any:
    """How many of the numbers in order are smaller than each value, or not larger."""
    ordered = sorted_sequence if sorter is None else sorted_sequence.gather(-1, sorter)
    values = input if isinstance(input, Tensor) else torch.tensor(input, dtype=ordered.dtype)
    beside = values.unsqueeze(-1)
    behind = ordered.unsqueeze(-2) if ordered.dim() > 1 else ordered
    before = behind <= beside if right or side == "right" else behind < beside
    return before.to(torch.int64).sum(-1).to(torch.int32 if out_int32 else torch.int64)


def _bucketize(input: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Any:  # noqa: A002
    return _searchsorted(boundaries, input, out_int32=out_int32, right=right)


def _adaptive_max(dims: int, *, places: bool) -> Callable[..., Any]:
    """The largest elements of windows of which there is a given number, and where they are; equal ones: the first."""

    def pool(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:  # noqa: A002
        counts = list(output_size) if isinstance(output_size, (tuple, list)) else [output_size]
        counts = counts * dims if len(counts) == 1 else counts
        sizes: list[Any] = list(input.shape[-dims:])
        values = input
        numbers = [torch.arange(size).reshape([-1] + [1] * (dims - 1 - axis)) for axis, size in enumerate(sizes)]
        where = numbers[0]
        for size, more in itertools.islice(zip(sizes, numbers, strict=True), 1, None):
            where = where * size + more
        where = where.expand(input.shape)
        for axis in reversed(range(-dims, 0)):
            if counts[axis] is None:
                continue
            windows = torch.arange(counts[axis])
            size, count = sizes[axis], counts[axis]
            first, last = windows * size // count, ((windows + 1) * size + count - 1) // count - 1
            # No window is longer; where one is shorter its last element is looked at again.
            members = first.unsqueeze(1) + torch.arange((size + count - 1) // count + 1)
            members = torch.minimum(members, last.unsqueeze(1))
            lined, known = (
                torch.unflatten(x.movedim(axis, -1)[..., members.flatten()], -1, (count, -1)) for x in (values, where)
            )
            best = lined.argmax(-1, keepdim=True)
            values, where = (x.gather(-1, best).squeeze(-1).movedim(-1, axis) for x in (lined, known))
        return (values, where) if places or return_indices else values

    return pool


def _by_name(name: str, made: Any) -> dict[Any, Callable[..., Any]]:
    return {getattr(torch, name): made, getattr(Tensor, name): made}


ORDERS: dict[Any, Callable[..., Any]] = {
    **_by_name("max", _extreme(torch.argmax, torch.return_types.max)),
    **_by_name("min", _extreme(torch.argmin, torch.return_types.min)),
    **_by_name("amax", _furthest(torch.amax)),
    **_by_name("amin", _furthest(torch.amin)),
    **_by_name("kthvalue", _kthvalue),
    **_by_name("median", _median),
    **_by_name("nanmedian", _nanmedian),
    **_by_name("mode", _mode),
    **_by_name("cummax", _cumulative(torch.return_types.cummax, "cummax")),
    **_by_name("cummin", _cumulative(torch.return_types.cummin, "cummin")),
    torch.bucketize: _bucketize,
    torch.searchsorted: _searchsorted,
    **_by_name("logcumsumexp", _logcumsumexp),
    **{
        getattr(functional, f"adaptive_max_pool{dims}d{end}"): _adaptive_max(dims, places=bool(end))
        for dims in (1, 2, 3)
        for end in ("", "_with_indices")
    },
}
