"""Tensors that lie in one memory."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

import torch
from torch import Tensor

from lstm_lower.errors import UnsupportedOpError, some


class Detached:
    """Tensors with gradients of which others without were taken, which lie in the same memory."""

    def __init__(self) -> None:
        # Memory -> identity -> the tensor, its value, and the version that this is of.
        self._taken: dict[int, dict[int, tuple[Tensor, Tensor, int]]] = {}

    def __bool__(self) -> bool:
        return bool(self._taken)

    def take(self, x: Tensor) -> None:
        """Takes down what a tensor is now."""
        self._taken.setdefault(memory(x), {})[id(x)] = x, x.clone(), x._version

    def written(self, target: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Those that have been written into in the memory of another, and what they were before."""
        held = self._taken.get(memory(target), {}).values()
        return [(x, before) for x, before, version in held if x._version != version]


def memory(x: Tensor) -> int:
    """What is one for all tensors that change together."""
    while torch._C._functorch.is_functorch_wrapped_tensor(x):
        # Of `vmap`.
        x = torch._C._functorch.get_unwrapped(x)
    return x.untyped_storage()._cdata if x.layout is torch.strided else id(x)


def part(x: Tensor, lying: Sequence[tuple[str, Tensor, Tensor]]) -> Tensor:
    """What stands for a tensor in the memory of what a module holds.

    Args:
        x: the tensor.
        lying: names of what lies there, these, and what stands for them.

    Raises:
        UnsupportedOpError: it is no part of one of them.
    """
    for _, whole, traced in lying:
        first = x.storage_offset() - whole.storage_offset()
        if x.dtype == whole.dtype and whole.is_contiguous() and first >= 0 and _end(x) <= _end(whole):
            traced = traced if x.grad_fn is not None else traced.detach()
            same = x.shape == whole.shape and x.stride() == whole.stride()
            return traced if same else traced.as_strided(x.shape, x.stride(), first)
    raise UnsupportedOpError(
        f"a tensor in the memory of weights and buffers requires to be a part of one that lies in order, got {x.dtype} "
        f"of shape {list(x.shape)} in that of {some([name for name, *_ in lying])}; write it in forward as an "
        "expression of these (self.weight.detach())"
    )


def check_apart(held: Iterable[tuple[str, Tensor]], changed: Container[str]) -> None:
    """Refuses what lies in one memory with what a step changes, of which it would know nothing.

    Args:
        held: names and tensors, each once.
        changed: names of those that a step changes.

    Raises:
        UnsupportedOpError: two overlap.
    """
    # Memory -> what lies in it furthest, of those from its beginning on; recurrent layers may lie there side by side.
    before: dict[int, tuple[str, Tensor]] = {}
    for name, x in sorted(held, key=lambda each: each[1].storage_offset()):
        other, y = before.setdefault(memory(x), (name, x))
        if x is not y and x.storage_offset() < _end(y) and (name in changed or other in changed):
            raise UnsupportedOpError(
                f"a step requires weights and buffers that lie apart, got '{other}' and '{name}' in one memory, where "
                "a change of one changes the other; hold one tensor under both names, or a clone"
            )
        if _end(x) > _end(y):
            before[memory(x)] = name, x


def _end(x: Tensor) -> int:
    """The place behind the last element."""
    reach: int = sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
    return int(x.storage_offset()) + (reach + 1 if x.numel() else 0)
