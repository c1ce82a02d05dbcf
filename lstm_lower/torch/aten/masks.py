"""Masks that PyTorch takes and its traces do not: beside indices, in lists, and of bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lstm_lower.torch.aten.recurrent import sequences_of
from lstm_lower.torch.aten.tracing import traces


@traces(Tensor.__getitem__)
def _item(x: Tensor, index: Any) -> Any:
    # The first of batch sizes is the number of sequences, of which layers make their first states.
    if isinstance(index, int) and index == 0 and (count := sequences_of(x)) is not None:
        return count
    places = by_places(x, index)
    return NotImplemented if places is index else x[places]


@traces(Tensor.__setitem__)
def _set(x: Tensor, index: Any, value: Any) -> Any:
    places = by_places(x, index)
    return NotImplemented if places is index else x.__setitem__(places, value)


def _putting(function: Callable[..., Any]) -> Callable[..., Any]:
    def put(input: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> Any:
        own = tuple(indices)
        places = by_places(input, own)
        return NotImplemented if places is own else function(input, places, values, accumulate)

    return put


for _function in (torch.index_put, Tensor.index_put, torch.index_put_, Tensor.index_put_):
    traces(_function)(_putting(_function))


@traces(torch.where)
def _where(condition: Tensor, *values: Any, **options: Any) -> Any:
    # Which older code makes.
    return torch.where(condition.bool(), *values, **options) if condition.dtype == torch.uint8 else NotImplemented


def by_places(x: Tensor, index: Any) -> Any:
    """An index of a tensor in which masks in lists, and masks beside index tensors, are the places of what they hold.

    PyTorch's trace knows no size for a mask beside other indices.

    Returns:
        The index, which is the same object where nothing is to be done.
    """
    # A list is one index, but for one of more than numbers.
    is_tuple = isinstance(index, tuple) or (isinstance(index, list) and not all(isinstance(x, int) for x in index))
    parts = tuple(index) if is_tuple else (index,)
    several = sum(isinstance(part, (list, Tensor)) for part in parts) > 1
    found: list[Any] = []
    counts: list[Any] = []
    axis = 0
    for number, part in enumerate(parts):
        if _is_mask(part):
            found += [places.tolist() for places in np.nonzero(part)]
            _check_sizes(x, axis, np.shape(part))
        elif several and isinstance(part, Tensor) and part.dtype == torch.bool and part.dim():
            found += part.nonzero(as_tuple=True)
            counts.append(found[-1].shape[0])
            _check_sizes(x, axis, part.shape)
        else:
            found.append(part)
        axis = x.dim() - sum(map(_axes, parts[number + 1 :])) if part is Ellipsis else axis + _axes(part)
    if all(part is own for part, own in zip(found, parts, strict=False)):
        return index
    # What is indexed together is as long, or one element.
    lengths = [*counts, *(x.shape[-1] for x in parts if isinstance(x, Tensor) and x.dtype != torch.bool and x.dim())]
    lengths += [len(part) for part in found if isinstance(part, list)]
    for count in counts:
        for length in lengths:
            if length is not count and not (isinstance(length, int) and length == 1):
                torch._check(count == length)  # type: ignore[no-untyped-call]
    return tuple(found)


def _check_sizes(x: Tensor, axis: int, sizes: Sequence[Any]) -> None:
    for number, size in enumerate(sizes):
        torch._check(x.shape[axis + number] == size)  # type: ignore[no-untyped-call]


def _axes(part: Any) -> int:
    """How many axes an index takes."""
    if part is None or isinstance(part, bool):
        return 0
    if isinstance(part, Tensor) and part.dtype in (torch.bool, torch.uint8):
        return part.dim()
    return np.ndim(part) if _is_mask(part) else 1


def _is_mask(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(x, bool) or _is_mask(x) for x in value)
