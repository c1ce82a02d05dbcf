"""Other values for weights that are the same in all elements: behind a gate of zero no difference would be seen."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import onnx_ir as ir
import torch
from torch import Tensor, nn

from lstm_lower.torch.interface import numbers

# How far away others are, at most.
_RANGE = 0.2


class Variation:
    """Of a module, for a while, and of copies of its model."""

    def __init__(self, module: nn.Module, model: ir.Model) -> None:
        """Chooses values."""
        generator = torch.Generator().manual_seed(0)
        # Parameter, its values, others.
        self._values: dict[str, tuple[Tensor, Tensor, Tensor]] = {}
        for name, x in module.named_parameters(remove_duplicate=False):
            held = model.graph.initializers.get(name)
            if held is None or held.shape is None or list(held.shape) != list(x.shape) or not x.requires_grad:
                continue
            if x.dtype in (torch.float32, torch.float64) and x.numel() and _is_uniform(x):
                kept = x.detach().clone()
                apart = torch.rand(x.shape, generator=generator, dtype=x.dtype).to(x.device)
                self._values[name] = x, kept, kept + _RANGE * (apart + 1) / 2

    @contextlib.contextmanager
    def of_module(self) -> Iterator[None]:
        """Values in place, as lists and other modules hold the same tensors."""
        try:
            for x, _, other in self._values.values():
                x.data.copy_(other)
            yield
        finally:
            for x, kept, _ in self._values.values():
                x.data.copy_(kept)

    def put_into(self, model: ir.Model) -> None:
        """The same values as initializers."""
        for name, (_, _, other) in self._values.items():
            if name in model.graph.initializers:
                model.graph.initializers[name].const_value = ir.tensor(numbers(other), name=name)


def _is_uniform(x: Tensor) -> bool:
    flat = x.detach().flatten()
    # Most are told by two of their elements.
    return bool(flat[0] == flat[-1]) and bool((flat == flat[0]).all())
