"""Parts of an axis of an open size, of which PyTorch makes as many as the example's size gives, and parts joined."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from lstm_lower.errors import UnsupportedOpError


def _chunk(input: Tensor, chunks: int, dim: int = 0) -> Any:  # noqa: A002
    """Parts of equal sizes but for the last; there are fewer where they do not come out."""
    whole: Any = input.shape[dim]
    if isinstance(whole, int):
        return NotImplemented
    size = (whole + chunks - 1) // chunks
    found = len(input.chunk(chunks, dim))
    if found != chunks:
        raise UnsupportedOpError(
            f"chunk requires an example whose axis {dim} gives as many parts as are asked for, got {found} of "
            f"{chunks}; take a longer example, or leave that axis out of dynamic_shapes"
        )
    last = size * (chunks - 1)
    return (
        *(input.narrow(dim, size * number, size) for number in range(chunks - 1)),
        input.narrow(dim, last, whole - last),
    )


def _split(input: Tensor, split_size_or_sections: Any, dim: int = 0) -> Any:  # noqa: A002
    """How many parts of a given size there are depends on the whole, whose size is fixed by that.

    It is not where the whole is a multiple of the given size, whatever that is: batches joined, and taken apart.
    """
    size: Any = split_size_or_sections
    if isinstance(size, (list, tuple)):
        return NotImplemented
    whole: Any = input.shape[dim]
    if isinstance(size, torch.SymInt):
        count, rest = _known(whole // size), _known(whole % size)
        if count is not None and rest == 0:
            return tuple(input.narrow(dim, size * number, size) for number in range(count))
        size = int(size)
    whole = int(whole)
    if isinstance(input.shape[dim], int):
        return torch.split(input, size, dim)
    # A size that others give, too, as steps of two do: the exporter would split it into as many parts as there are.
    starts = range(0, whole, size)
    return tuple(input.narrow(dim, start, min(size, whole - start)) for start in starts)


def _unbind(input: Tensor, dim: int = 0) -> Any:  # noqa: A002
    """As many as there are, which is fixed by that."""
    count = int(input.shape[dim])
    if isinstance(input.shape[dim], int):
        return NotImplemented
    return tuple(input.select(dim, number) for number in range(count))


def _known(size: Any) -> int | None:
    """A size that is the same whatever is fed."""
    known: int | None = size.node.maybe_as_int() if isinstance(size, torch.SymInt) else size
    return known


def _tensor_split(input: Tensor, indices_or_sections: Any, dim: int = 0) -> Any:  # noqa: A002
    """Parts of which the first are longer by one where the size is no multiple."""
    whole: Any = input.shape[dim]
    if not isinstance(indices_or_sections, int) or isinstance(whole, int):
        return NotImplemented
    count, parts, start = indices_or_sections, [], 0
    for number in range(count):
        size = (whole + count - 1 - number) // count
        parts.append(input.narrow(dim, start, size))
        start = start + size
    return tuple(parts)


def _is_nothing(shape: Sequence[Any]) -> bool:
    # An open size is not looked at.
    return len(shape) == 1 and isinstance(shape[0], int) and shape[0] == 0


def _joined(tensors: Sequence[Tensor], *args: Any, **options: Any) -> Any:
    """Tensors side by side, without empty ones of a single axis, which PyTorch passes over whatever the others' are."""
    kept = [x for x in tensors if not _is_nothing(x.shape)]
    if not kept or len(kept) == len(tensors):
        return NotImplemented
    dtype = functools.reduce(torch.promote_types, [x.dtype for x in tensors])
    return torch.cat([x.to(dtype) for x in kept], *args, **options)


def _slice(input: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Tensor:  # noqa: A002
    return input.movedim(dim, 0)[start:end:step].movedim(0, dim)


PARTS: dict[Any, Callable[..., Any]] = {
    torch.cat: _joined,
    torch.chunk: _chunk,
    torch.concat: _joined,
    torch.concatenate: _joined,
    torch.functional.split: _split,
    torch.select_copy: torch.select,
    torch.slice_copy: _slice,
    torch.split: _split,
    torch.split_copy: _split,
    torch.tensor_split: _tensor_split,
    torch.unbind: _unbind,
    Tensor.chunk: _chunk,
    Tensor.split: _split,
    Tensor.tensor_split: _tensor_split,
    Tensor.unbind: _unbind,
}
