"""Elements by their places: index tensors of any integer dtype, of open sizes, smaller than what they are beside."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from lstm_lower.torch.aten.masks import by_places
from lstm_lower.torch.front_indices import CLASSES
from lstm_lower.torch.functions import broadcast, stopped

_NARROW = (torch.int8, torch.int16, torch.int32)


def _wide_indices(value: Any) -> Any:
    """Indices in int64: the exporter writes others as they are, which ONNX's operators do not take."""
    if isinstance(value, Tensor):
        return value.to(torch.int64) if value.dtype in _NARROW else value
    if type(value) not in (tuple, list):
        return value
    parts = [_wide_indices(part) for part in value]
    return value if all(part is own for part, own in zip(parts, value, strict=True)) else type(value)(parts)


def exported_index(input: Tensor, index: Any) -> Any:  # noqa: A002
    """An index of a tensor that the exporter takes; the same object where it takes the one given."""
    return _wide_indices(by_places(input, index))


def _set(target: Tensor, index: Any, value: Any) -> Any:
    exported = exported_index(target, index)
    return NotImplemented if exported is index else target.__setitem__(exported, value)


def _widened(function: Callable[..., Any], *places: int) -> Callable[..., Any]:
    """The function, called with indices in int64; `places` are those of operands by position."""

    def called(*args: Any, **kwargs: Any) -> Any:
        own = [_wide_indices(x) if place in places else x for place, x in enumerate(args)]
        named = {name: _wide_indices(x) if name in ("index", "indices") else x for name, x in kwargs.items()}
        if all(x is old for x, old in zip([*own, *named.values()], [*args, *kwargs.values()], strict=True)):
            return NotImplemented
        return function(*own, **named)

    return called


def beside(index: Tensor, src: Any, axis: int | None = None) -> Any:
    """The part of what is scattered that there are indices of; ONNX requires as many as there are indices."""
    if not isinstance(src, Tensor) or not src.dim() or src.dim() != index.dim():
        return src
    for place, (size, own) in enumerate(zip(index.shape, src.shape, strict=True)):
        # As formulas: a comparison of numbers would fix them.
        if place != axis and str(size) != str(own):
            src = src.narrow(place, 0, size)
    return src


def _scatter(function: Callable[..., Any]) -> Callable[..., Any]:
    def scattered(input: Tensor, dim: int, index: Tensor, *rest: Any, **options: Any) -> Any:  # noqa: A002
        rest = tuple(beside(index, x) for x in rest)
        known = {name: beside(index, x) if name == "src" else x for name, x in options.items()}
        return function(input, dim, index, *rest, **known)

    return scattered


def _scatter_reduce(
    input: Tensor,  # noqa: A002
    dim: int,
    index: Tensor,
    src: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> Tensor:
    """Means of what meets at a place; the exporter writes a scatter in which the last one stays."""
    src = beside(index, src)
    if reduce != "mean":
        result = input.scatter_reduce(dim, index, src, reduce, include_self=include_self)
        if include_self or reduce not in ("amax", "amin") or not src.is_floating_point():
            return result
        return _shared_with_self(input, dim, index, src, result)
    rounding = None if src.is_floating_point() else "floor"
    counts = torch.zeros_like(input).scatter_add(dim, index, torch.ones_like(src))
    if include_self:
        return torch.div(input.scatter_add(dim, index, src), counts + 1, rounding_mode=rounding)
    sums = torch.zeros_like(input).scatter_add(dim, index, src)
    return torch.where(counts > 0, torch.div(sums, counts.clamp(min=1), rounding_mode=rounding), input)


def _shared_with_self(input: Tensor, dim: int, index: Tensor, src: Tensor, result: Tensor) -> Tensor:  # noqa: A002
    """The largest elements, whose gradient PyTorch shares out to what was there before, too, if that is as large."""
    largest = (src == result.gather(dim, index)).to(result.dtype)
    counts = torch.zeros_like(result).scatter_add(dim, index, largest)
    shared = (input == result) & (counts > 0) & result.isfinite()
    held = stopped(result)
    return torch.where(shared, held + (result - held) * (counts / (counts + 1)), result)


def _scatter_reduce_in_place(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:  # noqa: A002
    return input.copy_(_scatter_reduce(input, *args, **kwargs))


def _take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:  # noqa: A002
    """Elements along an axis, the other axes repeated as either operand has them; numbers go round the axis."""
    if dim is None:
        return input.flatten().index_select(0, indices.flatten())
    axis = dim % input.dim()
    shapes: list[list[Any]] = [list(input.shape), list(indices.shape)]
    along = [shape.pop(axis) for shape in shapes]
    common: list[Any] = list(broadcast(*shapes))
    operands = [x.expand(*common[:axis], size, *common[axis:]) for x, size in zip((input, indices), along, strict=True)]
    size: Any = torch.scalar_tensor(input.shape[axis], dtype=torch.int64)
    return operands[0].gather(axis, operands[1].to(torch.int64) % size)


def _triangle(whole: Callable[..., Tensor], half: Callable[..., Tensor]) -> Callable[..., Any]:
    """Rows and columns of the elements on one side of a diagonal, of an open size; PyTorch's own fix it."""

    def places(row: Any, col: Any, offset: int = 0, **options: Any) -> Any:
        if not any(isinstance(size, torch.SymInt) for size in (row, col)):
            return whole(row, col, offset, **options)
        inside: Any = half(torch.ones(row, col), offset)
        return inside.nonzero().T.to(options.get("dtype") or torch.int64)

    return places


_upper = _triangle(torch.triu_indices, torch.triu)


def _combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Any:  # noqa: A002
    size: Any = input.shape[0]
    if r == 2:
        places = _upper(size, size, 0 if with_replacement else 1)
        return input[places].T
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    return input[torch.tensor(list(choose(range(int(size)), r)))]


def _isin(
    elements: Any,
    test_elements: Any,
    *,
    assume_unique: bool = False,  # noqa: ARG001
    invert: bool = False,
) -> Any:
    """Whether elements are among others, each beside each; the exporter has no formula for a search."""
    if not isinstance(elements, Tensor):
        return NotImplemented
    others = torch.as_tensor(test_elements).flatten()
    found = (elements.unsqueeze(-1) == others).any(-1)
    return ~found if invert else found


def _put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:  # noqa: A002
    flat = input.flatten().index_put((index.flatten(),), source.flatten(), accumulate=accumulate)
    return flat.reshape(input.shape)


def _index_reduce(
    input: Tensor,  # noqa: A002
    dim: int,
    index: Tensor,
    source: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> Tensor:
    """As a scatter, whose indices each element has."""
    shape = [-1 if axis == dim % input.dim() else 1 for axis in range(input.dim())]
    places = index.to(torch.int64).reshape(shape).expand(source.shape)
    return _scatter_reduce(input, dim, places, source, reduce, include_self=include_self)


def _tensor(
    data: Any,
    *,
    dtype: torch.dtype | None = None,
    **options: Any,  # noqa: ARG001
) -> Any:
    """Of open sizes, which PyTorch would fix."""
    listed = isinstance(data, (tuple, list))
    if not any(isinstance(x, torch.SymInt) for x in (data if listed else [data])):
        return NotImplemented
    made: Callable[..., Tensor] = torch.scalar_tensor
    if not listed:
        return made(data, dtype=dtype or torch.int64)
    if any(isinstance(x, float) for x in data):
        dtype = dtype or torch.get_default_dtype()
    return torch.stack([made(x, dtype=dtype or torch.int64) for x in data])


def _gradient(input: Tensor, *, spacing: Any = 1, dim: Any = None, edge_order: int = 1) -> Any:  # noqa: A002
    """Differences of neighbours: central ones, of the two at the ends; PyTorch's own needs sizes as numbers."""
    if not isinstance(spacing, (int, float)) or edge_order != 1:
        return NotImplemented
    chosen: Sequence[int] = [dim] if isinstance(dim, int) else range(input.dim()) if dim is None else dim

    def along(axis: int) -> Tensor:
        size: Any = input.shape[axis]
        ends = [input.narrow(axis, place + 1, 1) - input.narrow(axis, place, 1) for place in (0, size - 2)]
        middle = (input.narrow(axis, 2, size - 2) - input.narrow(axis, 0, size - 2)) / 2
        return torch.cat([ends[0], middle, ends[1]], axis) / spacing

    return tuple(along(axis) for axis in chosen)


def _sort(function: Callable[..., Any]) -> Callable[..., Any]:
    """ONNX's TopK keeps the order of equal elements, about which the exporter takes no word."""

    def ordered(input: Tensor, *rest: Any, **options: Any) -> Any:  # noqa: A002
        return NotImplemented if options.pop("stable", None) is None else function(input, *rest, **options)

    return ordered


def _roll(input: Tensor, shifts: Any, dims: Any = ()) -> Any:  # noqa: A002
    """By an open number of places; the exporter takes numbers only."""
    steps, axes = ([*x] if isinstance(x, (tuple, list)) else [x] for x in (shifts, dims))
    if not any(isinstance(step, torch.SymInt) for step in steps):
        return NotImplemented
    if not axes:
        return _roll(input.flatten(), steps, 0).reshape(input.shape)
    result = input
    for step, axis in zip(steps, axes, strict=True):
        size: Any = result.shape[axis]
        first = (size - step) % size
        result = torch.cat([result.narrow(axis, first, size - first), result.narrow(axis, 0, first)], axis)
    return result


def _shift(way: int) -> Callable[..., Any]:
    """A spectrum with the frequency 0 in its middle, or back."""

    def shifted(input: Tensor, dim: Any = None) -> Any:  # noqa: A002
        axes = [dim] if isinstance(dim, int) else range(input.dim()) if dim is None else dim
        result = input
        for axis in axes:
            step = way * (input.shape[axis] // 2)
            rolled = _roll(result, step, axis)
            result = torch.roll(result, step, axis) if rolled is NotImplemented else rolled
        return result

    return shifted


def _both(name: str, made: Callable[[Callable[..., Any]], Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """For a function, its method and the method that works in place."""
    functions = (getattr(holder, form, None) for holder in (torch, Tensor) for form in (name, f"{name}_"))
    return {function: made(function) for function in functions if function is not None}


INDICES: dict[Any, Callable[..., Any]] = {
    torch.combinations: _combinations,
    **dict(
        itertools.chain.from_iterable(
            _both(name, lambda function, places=places: _widened(function, *places)).items()  # type: ignore[misc]
            for name, places in {
                "index_add": (2,),
                "index_copy": (2,),
                "index_fill": (2,),
                "index_put": (1,),
                "index_select": (2,),
            }.items()
        )
    ),
    **_both("scatter", _scatter),
    **_both("scatter_add", _scatter),
    Tensor.index_reduce: _index_reduce,
    Tensor.put: _put,
    torch.index_reduce: _index_reduce,
    torch.isin: _isin,
    torch.put: _put,
    torch.tensor: _tensor,
    torch.tril_indices: _triangle(torch.tril_indices, torch.tril),
    torch.triu_indices: _upper,
    **_both("sort", _sort),
    **_both("argsort", _sort),
    **_both("roll", lambda _: _roll),
    torch.fft.fftshift: _shift(1),
    torch.fft.ifftshift: _shift(-1),
    Tensor.__setitem__: _set,
    Tensor.take_along_dim: _take_along_dim,
    Tensor.scatter_reduce: _scatter_reduce,
    Tensor.scatter_reduce_: _scatter_reduce_in_place,
    **CLASSES,
    torch.gradient: _gradient,
    torch.scatter_reduce: _scatter_reduce,
    torch.take_along_dim: _take_along_dim,
}
