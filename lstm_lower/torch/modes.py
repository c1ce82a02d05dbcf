"""Modes in which PyTorch hands over its calls, of functions or of operators, to a method of ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

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


# PyTorch states no types of its methods.
_OfOperators: Any = TorchDispatchMode


class OperatorMode(_HandedOver, _OfOperators):  # type: ignore[misc]
    """Hands over calls of operators, what functions are made of."""

    __torch_dispatch__ = _HandedOver._handed_over
