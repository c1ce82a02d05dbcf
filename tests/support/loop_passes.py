"""The loop passes, each for a call of its own."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil

from lstm_lower.passes import loops
from lstm_lower.passes.loops.strip_mining import StripMining
from lstm_lower.passes.loops.views.base import LoopPass


@functools.cache
def loop_passes() -> list[type[LoopPass]]:
    """Every loop pass there is."""
    for module in pkgutil.iter_modules(loops.__path__, f"{loops.__name__}."):
        importlib.import_module(module.name)
    kinds: list[type[LoopPass]] = [LoopPass]
    for kind in kinds:
        kinds += [sub for sub in kind.__subclasses__() if sub.__module__.startswith(loops.__name__)]
    return sorted((kind for kind in kinds if not inspect.isabstract(kind)), key=lambda step: step.name)


def alone(step: type[LoopPass]) -> LoopPass:
    """A pass with the options that it needs."""
    return StripMining(kind="chunk", steps=2) if step is StripMining else step()
