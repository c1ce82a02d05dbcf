"""The loop passes and the others that keep a model's results, each for a call of its own."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil

from lstm_lower.passes import loops
from lstm_lower.passes.branches import ConstantBranchPass
from lstm_lower.passes.composites import LowerCompositesPass
from lstm_lower.passes.gradient_preparation import CountedLoopsPass, LiftWeightsPass
from lstm_lower.passes.gradients.ranks import DemandedRanksPass
from lstm_lower.passes.gradients.sequences_to_tensors import SequencesToTensorsPass
from lstm_lower.passes.inline import InlineFunctionsPass
from lstm_lower.passes.loops.forward import ForwardScansPass
from lstm_lower.passes.loops.rerolling import LoopRerolling
from lstm_lower.passes.loops.strip_mining import StripMining
from lstm_lower.passes.loops.views.loop_pass import LoopPass
from lstm_lower.passes.model_pass import Pass
from lstm_lower.passes.opset.conversion import ConvertOpsetPass
from lstm_lower.passes.pipeline import OptimizePass
from lstm_lower.passes.shapes import InferShapesPass
from lstm_lower.passes.targets.legalize import LegalizePass
from lstm_lower.passes.tidy import (
    NameOutputsPass,
    RemoveUnreadWeightsPass,
    SortPass,
    StatedDefaultsPass,
    UniqueNamesPass,
    VerifyPass,
)


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


def keeping_passes() -> dict[str, Pass]:
    """By name, every pass that leaves a model's results what they are."""
    others = [
        ConstantBranchPass(),
        ConvertOpsetPass(),
        CountedLoopsPass(),
        DemandedRanksPass(),
        ForwardScansPass(),
        InferShapesPass(),
        InlineFunctionsPass(),
        LegalizePass(),
        LiftWeightsPass(),
        LoopRerolling(),
        LowerCompositesPass(),
        NameOutputsPass(),
        OptimizePass(),
        RemoveUnreadWeightsPass(),
        SequencesToTensorsPass(),
        SortPass(),
        StatedDefaultsPass(),
        UniqueNamesPass(),
        VerifyPass(),
    ]
    return {step.name: step for step in [*others, *map(alone, loop_passes())]}
