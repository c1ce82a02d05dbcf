"""Loops in Python, which a trace has written out: which axes of inputs they go along."""

from __future__ import annotations

from collections.abc import Collection

from lstm_lower.torch.axes import BY_ITSELF
from lstm_lower.torch.export import Exported
from lstm_lower.torch.trials import RefusedError, Trials

Places = Collection[tuple[str, int]]


def along(exported: Exported, steps: Collection[int]) -> list[tuple[str, int, int]]:
    """Inputs, axes and sizes: those that a loop of as many steps has fixed.

    Nobody else needs these sizes: the module runs where there are more, of one axis, of the same axis of all inputs, or
    of all axes of this size.
    """
    traced = exported.traced
    if traced.wanted != "auto":
        return []
    shapes = {name: list(x.shape) for name, x in zip(traced.names, traced.tensors, strict=True)}
    fixed = [(name, axis) for name, axes in exported.fixed.items() for axis, why in axes.items() if why == BY_ITSELF]
    found = []
    for name, axis in fixed:
        size = shapes[name][axis]
        equal = [(other, place) for other, place in fixed if shapes[other][place] == size]
        groups = ([(name, axis)], [each for each in equal if each[1] == axis], equal)
        if size in steps and any(_runs_with_more(exported, group) for group in groups):
            found.append((name, axis, size))
    return found


def _runs_with_more(exported: Exported, places: Places) -> bool:
    traced = exported.traced
    trials = Trials(traced.step, traced.tensors)
    inputs = [
        trials.resized(number, [size + ((name, axis) in places) for axis, size in enumerate(x.shape)])
        for number, (name, x) in enumerate(zip(traced.names, traced.tensors, strict=True))
    ]
    try:
        trials.results(inputs)
    except RefusedError:
        return False
    return True
