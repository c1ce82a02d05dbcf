"""Hooks on gradients: on those of parameters a function with a gradient of its own; others are refused."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lstm_lower.errors import UnsupportedOpError
from lstm_lower.replacement import replaced

Hook = Callable[[Tensor], "Tensor | None"]


class _Hooked(torch.autograd.Function):
    """A parameter, whose gradient goes through its hooks in the order of their registration."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, name: str, hooks: Sequence[Hook]) -> Tensor:
        ctx.name, ctx.hooks = name, hooks
        return x

    @staticmethod
    def backward(ctx: Any, dx: Tensor) -> Any:
        for hook in ctx.hooks:
            returned = hook(dx)
            if not isinstance(returned, Tensor) or (returned.shape, returned.dtype) != (dx.shape, dx.dtype):
                got = "something else" if returned is not None else "None; a hook that only looks at it can be removed"
                raise UnsupportedOpError(
                    f"a hook of '{ctx.name}' requires a result that takes the gradient's place, of the same shape and "
                    f"dtype, got {got}"
                )
            dx = returned
        return dx, None, None


class ParameterHooks:
    """The hooks that a module's parameters have before a trace, which has other tensors in their places."""

    def __init__(self, module: nn.Module) -> None:
        """Of a module and its parts."""
        self._found = [
            (part, name, f"{path}.{name}".removeprefix("."), list(hooks.values()))
            for path, part in module.named_modules()
            for name, parameter in part._parameters.items()
            if (hooks := getattr(parameter, "_backward_hooks", None))
        ]

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Puts what goes through hooks in the places of the parameters; one that stands in several remains one."""
        made: dict[int, Tensor] = {}
        before = [(part, name, part._parameters[name]) for part, name, _, _ in self._found]
        try:
            for (part, key, parameter), (_, _, name, hooks) in zip(before, self._found, strict=True):
                if id(parameter) not in made:
                    apply: Callable[..., Tensor] = _Hooked.apply
                    made[id(parameter)] = apply(parameter, name, hooks)
                part._parameters[key] = made[id(parameter)]
            yield
        finally:
            for part, key, parameter in before:
                part._parameters[key] = parameter


def _refused(where: str) -> UnsupportedOpError:
    return UnsupportedOpError(
        f"{where} requires gradients as they follow from its operations, got a hook that may change them; remove it "
        "(handle.remove()), and limit gradients by clip_norm or clip_value of ll.Trainer, or by hooks on parameters"
    )


@contextlib.contextmanager
def others_refused(module: nn.Module) -> Iterator[None]:
    """Refuses hooks on gradients of modules and of results, and those that see a gradient when it is complete."""
    held: list[tuple[tuple[str, Any], Sequence[str]]] = [
        (each, ("_backward_hooks", "_backward_pre_hooks")) for each in module.named_modules()
    ]
    held += [(each, ("_post_accumulate_grad_hooks",)) for each in module.named_parameters()]
    for (name, each), hooks in held:
        if any(getattr(each, hook, None) for hook in hooks):
            raise _refused(f"'{name.removeprefix('module.')}'")

    def refuse(*_args: Any, **_options: Any) -> Any:
        raise _refused("a tensor in forward or loss")

    with replaced(Tensor, "register_hook", refuse):
        yield
