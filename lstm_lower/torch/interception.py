"""What stands in the place of PyTorch's functions while a module is traced."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from lstm_lower.torch import control_flow
from lstm_lower.torch.aten.storage import Detached, memory
from lstm_lower.torch.aten.tracing import traced_otherwise
from lstm_lower.torch.hooks import ResultHooks
from lstm_lower.torch.interface import Step
from lstm_lower.torch.known_values import Held, KnownValues
from lstm_lower.torch.modes import Args, Kwargs, VaryingMode, is_differentiable
from lstm_lower.torch.own_gradients import Functions

# Functions whose results have no gradients.
_DETACHING: set[Any] = {Tensor.detach, torch.detach, Tensor.data.__get__}  # type: ignore[attr-defined]


class Interception(VaryingMode):
    """Puts ours in place of PyTorch's functions while a module runs.

    Attributes:
        known: values that do not depend on what is fed.
    """

    def __init__(self, module: Step, functions: Functions) -> None:
        super().__init__()
        self.known = KnownValues()
        self._module = module
        self._held = Held(module)
        self._hooks = ResultHooks()
        # What was made of no other tensor's values, while nothing but such calls and those without gradients takes it.
        self._blank: dict[int, Tensor] = {}
        self._detached = Detached()
        # What was made where no gradients are recorded, while that lasts.
        self._stopped: dict[int, Tensor] = {}
        self._handlers: dict[Any, Callable[..., Any]] = {
            Tensor.register_hook: self._hooks.register,
            Tensor.requires_grad.__get__: self.varies,  # type: ignore[attr-defined]
            Tensor.data.__set__: self._set,  # type: ignore[attr-defined]
            torch._C._set_grad_enabled: functions.switch,
            **control_flow.handlers(self),
        }

    def on_call(self, func: Any, args: Args, kwargs: Kwargs) -> Any:
        """Calls ours where there is one, else PyTorch's."""
        if _traced_by_itself():
            return func(*args, **kwargs)
        args, kwargs = self._held.replaced(self.known, (args, kwargs))
        if func is not Tensor.register_hook:
            args, kwargs = self._hooks.replaced((args, kwargs))
        call = self.known.call(func, args, kwargs)
        if call is not None and self.known.is_read(call):
            return call()
        result = (self._result if torch.is_grad_enabled() else self._without_gradient)(func, args, kwargs)
        if call is not None:
            self.known.keep(call, result)
        operands, results = _tensors((args, kwargs)), _tensors(result)
        if _is_filled(func) or not operands:
            self._blank |= {id(x): x for x in results}
        self._keep_gradients(func, kwargs.get("out", args[0] if args else None))
        if not _is_filled(func):
            self._hooks.look(operands, results)
            if torch.is_grad_enabled():
                self._stopped.clear()
                for x in operands:
                    self._blank.pop(id(x), None)
                if func not in _DETACHING and any(map(self.varies, operands)):
                    self.vary(results)
        return result

    def _result(self, func: Any, args: Args, kwargs: Kwargs) -> Any:
        handler = self._handlers.get(func)
        result = NotImplemented if handler is None else handler(*args, **kwargs)
        return traced_otherwise(func, args, kwargs) if result is NotImplemented else result

    def _keep_gradients(self, func: Any, target: Any) -> None:
        """Keeps those of what a call has written into past autograd, through a tensor without one."""
        if isinstance(target, Tensor) and (func in _DETACHING or self._detached):
            varies = self.varies(target)
            if func in _DETACHING and varies and not (target.is_leaf and target.requires_grad):
                self._detached.take(target)
            for x, before in self._detached.written(target):
                if not varies:
                    self._set_values(x, x.detach(), before)
                self._detached.take(x)

    def _without_gradient(self, func: Any, args: Args, kwargs: Kwargs) -> Any:
        """A call under `torch.no_grad`, which a trace in simple operators forgets: its result is detached.

        A tensor that is changed in place keeps the gradient that it has: what it is changed by has none.
        """
        operands = [*filter(is_differentiable, _tensors((args, kwargs)))]
        if _is_filled(func) or all(self._has_no_gradient(x) for x in operands):
            # Views among these remain views, and what is filled is no view.
            return self._made_stopped(self._result(func, args, kwargs))
        target = kwargs.get("out", args[0] if args else None)
        before = target.clone() if any(x is target for x in operands) else None
        result = self._result(func, args, kwargs)
        if before is None or not (result is target or func is Tensor.__setitem__):
            return self._made_stopped(tree_map_only(Tensor, Tensor.detach, result))
        self._set_values(target, target.detach(), before)
        return result

    def _set_values(self, x: Tensor, values: Tensor, before: Tensor) -> None:
        """Gives a tensor other values; it keeps the gradient that it has had."""
        x.copy_(values if self._has_no_gradient(x) else values + (before - before.detach()))

    def _made_stopped(self, result: Any) -> Any:
        self._stopped |= {id(x): x for x in _tensors(result)}
        return result

    def _has_no_gradient(self, x: Tensor) -> bool:
        """Whether a tensor was made without one, or is a state of the module or a view of one."""
        if id(x) in self._stopped or id(x) in self._blank:
            return True
        return not x.requires_grad and any(memory(x) == memory(state) for state in self._module.states().values())

    def _set(self, input: Tensor, value: Tensor) -> Any:  # noqa: A002
        """Other values for a tensor, which a trace would not see."""
        if (input.is_leaf and input.requires_grad) or input.shape != value.shape:
            return NotImplemented
        self._set_values(input, value.detach(), input.clone())
        return None


def _is_filled(function: Any) -> bool:
    """Whether a function takes of its operand a shape and a dtype alone, as `zeros_like` and `new_ones` do."""
    name = str(getattr(function, "__name__", ""))
    return name.endswith("_like") or name.startswith("new_")


def _tensors(value: Any) -> list[Tensor]:
    return [x for x in tree_leaves(value) if isinstance(x, Tensor)]


def _traced_by_itself() -> bool:
    """Whether what traces calls a function for its own ends, of tensors that no node of ours could stand for."""
    caller = sys._getframe(2)
    while caller.f_code.co_name in ("on_call", "_handed_over", "__torch_function__") and caller.f_back is not None:
        # This mode, or another one that passes a call on.
        caller = caller.f_back
    return str(caller.f_globals.get("__name__")).startswith(("torch.fx.", "torch._subclasses.", "torch._functorch."))
