"""`ll.scan`: a loop over the steps of sequences, of any number of them in a trace too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops.scan import scan as traced_scan
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from lstm_lower.errors import InvalidInputError


def scan(cell: Callable[[Any, Any], tuple[Any, Any]], state: Any, xs: Any, *, axis: int = 0) -> tuple[Any, Any]:
    """A loop over the steps of sequences.

    `state, y = cell(state, x)` is called for each step in turn: plainly in PyTorch, and as a loop of any length in the
    trace that `from_torch` makes of a module.

    Args:
        cell: makes the next state, of the same shapes and dtypes, and a step's result of the state and of a step.
        state: what the first step is given: a tensor, or several in tuples, lists or mappings.
        xs: sequences: a tensor, or several likewise.
        axis: along which the steps of all of them lie.

    Returns:
        The last state, and the results of all steps, stacked along `axis`.

    Raises:
        InvalidInputError: there are no sequences, they differ in length, or have no steps.
    """
    sequences, spec = tree_flatten(xs)
    if not sequences or not all(isinstance(x, Tensor) and x.dim() for x in sequences):
        raise InvalidInputError("scan requires sequences that are tensors with an axis of steps, got others in xs")
    if get_proxy_mode() is not None or not all(type(x.shape[axis]) is int for x in sequences):
        for x in sequences:
            # Of a length that values give, PyTorch would ask whether it is none.
            torch._check(x.shape[axis] > 0)  # type: ignore[no-untyped-call]
        return _traced(cell, state, xs, axis)
    steps = {x.shape[axis] for x in sequences}
    if len(steps) > 1 or 0 in steps:
        raise InvalidInputError(f"scan requires sequences of one length, 1 or more, got {sorted(steps)}")
    parts = zip(*(x.unbind(axis) for x in sequences), strict=True)
    return _looped(cell, state, [tree_unflatten(list(each), spec) for each in parts], axis)


def _looped(cell: Callable[[Any, Any], tuple[Any, Any]], state: Any, steps: list[Any], axis: int) -> tuple[Any, Any]:
    results = []
    for x in steps:
        state, result = cell(state, x)
        results.append(result)
    leaves, specs = zip(*map(tree_flatten, results), strict=True)
    return state, tree_unflatten([torch.stack(each, axis) for each in zip(*leaves, strict=True)], specs[0])


def _traced(cell: Callable[[Any, Any], tuple[Any, Any]], state: Any, xs: Any, axis: int) -> tuple[Any, Any]:
    def step(state: Any, x: Any) -> tuple[Any, Any]:
        following, result = cell(state, x)
        # PyTorch refuses results that are the same tensor.
        return following, tree_map(torch.clone, result)

    last, results = traced_scan(step, state, tree_map(lambda x: x.movedim(axis, 0), xs))
    return last, tree_map(lambda x: x.movedim(0, axis), results)


# The code of whose calls there are as many as steps, in a trace once.
LOOP = _looped.__code__
