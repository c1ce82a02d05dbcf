"""Other values for weights that are alike in all elements, behind which no difference would be seen; other rounding."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map, tree_map_only

from lstm_lower.torch.interface import numbers
from lstm_lower.torch.modes import Args, Kwargs, OperatorMode

# How far away others are, at most.
_RANGE = 0.2
# By how many units of its last place a result may be rounded otherwise.
_PLACES = 4
# Numbers -> numbers of another precision: what both make exact is the same.
_OTHER = {torch.float64: torch.float32, torch.complex128: torch.complex64, torch.complex64: torch.complex128}
_OTHER |= dict.fromkeys((torch.float32, torch.float16, torch.bfloat16), torch.float64)


class Variation:
    """Of a module, for a while, and of copies of its model."""

    def __init__(self, module: nn.Module, model: ir.Model) -> None:
        """Chooses values."""
        generator = torch.Generator().manual_seed(0)
        # Parameter and other values.
        self._values: dict[str, tuple[Tensor, Tensor]] = {}
        for name, x in module.named_parameters():
            held = name in model.graph.initializers and x.requires_grad
            if held and x.dtype in (torch.float32, torch.float64) and x.numel() and _is_uniform(x):
                apart = torch.rand(x.shape, generator=generator, dtype=x.dtype).to(x.device)
                self._values[name] = x, x.detach() + _RANGE * (apart + 1) / 2

    @contextlib.contextmanager
    def of_module(self) -> Iterator[None]:
        """Values in place: what else lies in a weight's memory changes with it, as it does by an update."""
        kept = [(x, x.detach().clone()) for x, _ in self._values.values()]
        try:
            for x, other in self._values.values():
                x.data.copy_(other)
            yield
        finally:
            for x, values in kept:
                x.data.copy_(values)

    def put_into(self, model: ir.Model) -> None:
        """The same values as initializers."""
        for name, (_, other) in self._values.items():
            if name in model.graph.initializers:
                model.graph.initializers[name].const_value = ir.tensor(numbers(other), name=name)


def _is_uniform(x: Tensor) -> bool:
    flat = x.detach().flatten()
    # Most are told by two of their elements.
    return bool(flat[0] == flat[-1]) and bool((flat == flat[0]).all())


class OtherRounding(OperatorMode):
    """Moves what operators compute in its last places.

    What is exact stays, and ties of it, but in gradients, which may cancel.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._rng = np.random.default_rng(seed)

    def on_call(self, func: Any, args: Args, kwargs: Kwargs) -> Any:
        result = func(*args, **kwargs)
        if func.is_view or func._schema.is_mutable or torch.Tag.nondeterministic_seeded in func.tags:
            return result
        others = tree_map_only(Tensor, lambda _: 0, result)
        if torch._C._current_graph_task_id() < 0:
            with contextlib.suppress(Exception):  # it has one precision
                others = func(*tree_map_only(Tensor, lambda x: x.to(_OTHER.get(x.dtype, x.dtype)), args), **kwargs)
        return tree_map(self._unless_exact, result, others)

    def _unless_exact(self, x: Any, other: Any) -> Any:
        if not isinstance(x, Tensor) or x.dtype not in _OTHER or x.layout != torch.strided or x._is_zerotensor():
            return x  # which may have no numbers in memory
        exact = x == other
        return x if bool(exact.all()) else torch.where(exact, x, self.moved(x))

    def moved(self, x: Tensor) -> Tensor:
        """Numbers that differ, each and all together, not by PyTorch's draws, which are given."""
        shares = torch.as_tensor(self._rng.uniform(-1, 1, x.shape) + self._rng.uniform(-1, 1)).to(x.device)
        return (x * (1 + shares * _PLACES * torch.finfo(x.dtype).eps)).to(x.dtype)
