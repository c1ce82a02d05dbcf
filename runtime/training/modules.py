"""Weights on their way back into PyTorch modules; PyTorch itself is not imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lstm_lower.errors import InvalidInputError, some


def copy_into(module: Any, values: Mapping[str, np.ndarray[Any, Any]], weights: Sequence[str]) -> None:
    """Copies values into parameters and buffers of the same names; other values are left out.

    Args:
        module: an `nn.Module`.
        values: by name.
        weights: names of values that the module must have.

    Raises:
        InvalidInputError: it lacks one of the weights, or has one of another shape; nothing is changed.
    """
    tensors = module.state_dict()
    missing = [name for name in weights if name not in tensors]
    if missing:
        raise InvalidInputError(f"module requires the weights {some(weights)}, got one without '{missing[0]}'")
    shared = {name: _like(value, tensors[name]) for name, value in values.items() if name in tensors}
    values = {**values, **shared}
    for name in shared:
        if tuple(tensors[name].shape) != values[name].shape:
            raise InvalidInputError(
                f"module requires '{name}' of shape {list(values[name].shape)}, got {list(tensors[name].shape)}"
            )
    for name in shared:
        tensors[name].copy_(tensors[name].new_tensor(values[name]))


def _like(value: np.ndarray[Any, Any], tensor: Any) -> np.ndarray[Any, Any]:
    """Complex numbers, which are pairs [..., 2] in a step, where the module has such."""
    pairs = tensor.is_complex() and value.dtype.kind == "f" and value.shape[-1:] == (2,)
    return value[..., 0] + 1j * value[..., 1] if pairs else value
