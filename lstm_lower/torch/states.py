"""What a module's state dict holds: which of it is state of a step, and the rest as it is."""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir
from onnx_ir.tensor_adapters import TorchTensor
from torch import nn

from lstm_lower.passes.training.step import needed
from lstm_lower.records import state as training_state
from lstm_lower.records.holdings import Holdings
from lstm_lower.torch.interface import as_held, first_names, weights


def read_in(model: ir.Model) -> set[str]:
    """Names of initializers that outputs are made of."""
    found = needed(model.graph.outputs)
    return {name for name, value in model.graph.initializers.items() if value in found}


def held_in(module: nn.Module, names: Collection[str]) -> set[str]:
    """Those among names that are floating parameters and buffers of a module's state dict."""
    held = {id(value) for value in module.state_dict(keep_vars=True).values() if value.is_floating_point()}
    return {name for name, value in weights(module) if id(value) in held} & set(names)


def held_by(module: nn.Module, step: ir.Model, read: set[str]) -> Holdings:
    """What a module holds.

    Hooks may give parameters other names, which is followed; what they compute is no parameter and is left out.

    Args:
        module: the module.
        step: the step that it was made of.
        read: names of what the step, or what evaluates it, reads.
    """
    inputs = {pair.input for pair in training_state.read(step).pairs}
    first = first_names(module)
    states, constants, values = {}, {}, {}
    kept = module.state_dict(keep_vars=True)
    for name, value in kept.items():
        own = first.get(id(value))
        if own in inputs:
            states[name] = own
        elif own is not None:
            constants[name], values[own] = own, value
    return Holdings(
        states,
        constants,
        # A step keeps the values of now, whatever becomes of the module.
        {name: TorchTensor(as_held(value).contiguous().clone(), name=name) for name, value in values.items()},
        read & set(values),
        {name for name in (*states, *constants) if kept[name].is_complex()},
    )
