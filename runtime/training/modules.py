"""Weights on their way back into PyTorch modules; PyTorch itself is not imported, but taken if it has been."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lstm_lower.errors import InvalidInputError, some

# Where `torch.compile` holds a module, which stands in the names of its weights, too.
_COMPILED = "_orig_mod"


def unwrapped(module: Any) -> Any:
    """The module within what `torch.compile`, `DataParallel` or `DistributedDataParallel` made of it.

    Args:
        module: an `nn.Module`.
    """
    nn = sys.modules["torch"].nn
    while True:
        if _COMPILED in module._modules:
            module = module._modules[_COMPILED]
        elif isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            module = module.module
        else:
            return module


def copy_into(module: Any, values: Mapping[str, np.ndarray[Any, Any]], weights: Sequence[str]) -> None:
    """Copies values into parameters and buffers of the same names; other values are left out.

    Args:
        module: an `nn.Module`, perhaps within what `unwrapped` takes off.
        values: by name.
        weights: names of values that the module must have.

    Raises:
        InvalidInputError: it is no module, lacks one of the weights, or has one of another shape or without numbers;
            nothing is changed.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(module, torch.nn.Module):
        raise InvalidInputError(
            f"to_torch requires an nn.Module that has the weights {some(weights)}, got {_said(module)}"
        )
    tensors = {_plain(name): tensor for name, tensor in unwrapped(module).state_dict().items()}
    values = {_plain(name): value for name, value in values.items()}
    missing = [name for name in weights if _plain(name) not in tensors]
    if missing:
        raise InvalidInputError(f"module requires the weights {some(weights)}, got one without '{missing[0]}'")
    held = [name for name in values if isinstance(tensors.get(name), torch.Tensor)]
    for name in held:
        if torch.nn.parameter.is_lazy(tensors[name]) or tensors[name].is_meta:
            raise InvalidInputError(
                f"module requires room for '{name}', got one without numbers; call a lazy module once with its inputs, "
                "and module.to_empty(device='cpu') where weights are on the device meta"
            )
    shared = {name: _like(values[name], tensors[name]) for name in held}
    for name, value in shared.items():
        if tuple(tensors[name].shape) != value.shape:
            raise InvalidInputError(
                f"module requires '{name}' of shape {list(value.shape)}, got {list(tensors[name].shape)}"
            )
    for name, value in shared.items():
        tensors[name].copy_(tensors[name].new_tensor(value))


def _plain(name: str) -> str:
    """A weight's name whether or not parts of its module are compiled."""
    return ".".join(part for part in name.split(".") if part != _COMPILED)


def _said(value: Any) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def _like(value: np.ndarray[Any, Any], tensor: Any) -> np.ndarray[Any, Any]:
    """Complex numbers, which are pairs [..., 2] in a step, where the module has such."""
    pairs = tensor.is_complex() and value.dtype.kind == "f" and value.shape[-1:] == (2,)
    return value[..., 0] + 1j * value[..., 1] if pairs else value
