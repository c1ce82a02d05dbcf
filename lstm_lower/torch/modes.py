"""Modes in which PyTorch hands over its calls, of functions or of operators, to a method of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only_

Args = tuple[Any, ...]
Kwargs = Mapping[str, Any]


class _HandedOver:
    def on_call(self, func: Any, args: Args, kwargs: Kwargs) -> Any:
        """What a call of a function returns; calls within it go to PyTorch."""
        raise NotImplementedError

    def _handed_over(self, func: Any, types: Any, args: Args = (), kwargs: Kwargs | None = None) -> Any:
        del types
        return self.on_call(func, args, kwargs or {})


class FunctionMode(_HandedOver, TorchFunctionMode):
    """Hands over calls of PyTorch's functions, as code writes them."""

    __torch_function__ = _HandedOver._handed_over


class VaryingMode(FunctionMode):
    """Knows what has a gradient in PyTorch, which a trace does not tell."""

    def __init__(self) -> None:
        super().__init__()
        self._varying: dict[int, Tensor] = {}
        # The mode that stands between the function that runs now and the outside, of control flow.
        self.outer: Any = None

    def varies(self, x: Any) -> bool:
        """Whether something is a tensor with a gradient."""
        return isinstance(x, Tensor) and (x.requires_grad or id(x) in self._varying)

    def vary(self, values: Iterable[Any]) -> None:
        """Takes down what has one, of numbers that may."""
        self._varying |= {id(x): x for x in values if isinstance(x, Tensor) and is_differentiable(x)}


def is_differentiable(x: Tensor) -> bool:
    """Whether a tensor is of numbers of which gradients are taken."""
    return x.is_floating_point() or x.is_complex()


# PyTorch states no types of its methods.
_OfOperators: Any = TorchDispatchMode


class OperatorMode(_HandedOver, _OfOperators):  # type: ignore[misc]
    """Hands over calls of operators, what functions are made of."""

    __torch_dispatch__ = _HandedOver._handed_over


class Watching(OperatorMode):
    """Shows each tensor that an operator returns to a function."""

    def __init__(self, look: Callable[[Tensor], None]) -> None:
        super().__init__()
        self._look = look

    def on_call(self, func: Any, args: Args, kwargs: Kwargs) -> Any:
        return tree_map_only_(Tensor, self._look, func(*args, **kwargs))
