"""Hooks on gradients: on those of parameters and results functions with gradients of their own; others are refused."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import handle_torch_function, has_torch_function
from torch.utils._pytree import tree_leaves, tree_map_only

from lstm_lower.errors import UnsupportedOpError
from lstm_lower.replacement import contents_kept

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
            if returned is None:
                continue
            if not isinstance(returned, Tensor) or (returned.shape, returned.dtype) != (dx.shape, dx.dtype):
                raise UnsupportedOpError(
                    f"a hook of {ctx.name} requires a result that takes the gradient's place, of the same shape and "
                    "dtype, or None, got something else"
                )
            dx = returned
        return dx, None, None


class ParameterHooks:
    """The hooks that a module's parameters have before a trace, which has other tensors in their places."""

    def __init__(self, module: nn.Module) -> None:
        """Of a module and its parts."""
        self._found = [
            (part, name, f"'{f'{path}.{name}'.removeprefix('.')}'", list(hooks.values()))
            for path, part in module.named_modules()
            for name, parameter in part._parameters.items()
            if (hooks := getattr(parameter, "_backward_hooks", None))
        ]

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Puts what goes through hooks in the places of the parameters; one that stands in several remains one."""
        made: dict[int, Any] = {}
        with contents_kept(*(part._parameters for part, *_ in self._found)):
            for part, key, name, hooks in self._found:
                parameter = part._parameters[key]
                if id(parameter) not in made:
                    made[id(parameter)] = _Hooked.apply(parameter, name, hooks)  # type: ignore[no-untyped-call]
                part._parameters[key] = made[id(parameter)]
            yield


def put_in(operands: Any, places: Mapping[int, Tensor]) -> Any:
    """Operands with others in the places of tensors of some identities."""
    if places and any(id(x) in places for x in tree_leaves(operands)):
        return tree_map_only(Tensor, lambda x: places.get(id(x), x), operands)
    return operands


class _Handle:
    """What `register_hook` returns."""

    def remove(self) -> None:
        """Hooks stay until a step ends."""
        raise UnsupportedOpError(
            "a hook on a tensor in forward requires to stay, got handle.remove() in the same forward; take the tensor "
            "behind x.clone(), which leaves the gradient of x as it is"
        )


class ResultHooks:
    """The hooks on results while a module is traced: what reads such a result reads what goes through its hooks."""

    def __init__(self) -> None:
        # Result -> itself, so that no other one gets its identity, its hooks, and the version of what stands for it.
        self._hooked: dict[int, tuple[Tensor, list[Hook], int]] = {}
        self._behind: dict[int, Tensor] = {}
        self._read: dict[int, Tensor] = {}

    def replaced(self, operands: Any) -> Any:
        """Operands behind their hooks."""
        return put_in(operands, self._behind)

    def look(self, operands: Sequence[Tensor], results: Sequence[Tensor]) -> None:
        """Takes down what a function has read; what it has changed in place is another value."""
        if any(self._behind[key]._version != version for key, (_, _, version) in self._hooked.items()):
            raise UnsupportedOpError(
                "a hook on a tensor in forward requires a tensor that stays as it is, got one that is changed in place "
                "behind it; make a new tensor of it (`y = y.relu()`)"
            )
        if results:
            self._read |= {id(x): x for x in operands}
        for x in results:
            self._read.pop(id(x), None)

    def register(self, x: Tensor, hook: Hook) -> _Handle:
        """Lets the gradient of a result, as far as it is read from now on, go through a hook."""
        if id(self._behind.get(id(x), x)) in self._read:
            raise UnsupportedOpError(
                "a hook on a tensor in forward requires that nothing has read the tensor, got one that is registered "
                "behind a use of it; call register_hook right after the tensor is made"
            )
        hooks = [*(self._hooked[id(x)][1] if id(x) in self._hooked else []), hook]
        apply: Callable[..., Tensor] = _Hooked.apply
        self._behind[id(x)] = hooked = apply(x, "a tensor in forward or loss", hooks)
        self._hooked[id(x)] = x, hooks, hooked._version
        return _Handle()


def handed_on(x: Tensor) -> Tensor:
    """What is to be returned in the place of a tensor: to return it is to read it, behind its hooks."""
    if has_torch_function((x,)):
        result: Tensor = handle_torch_function(handed_on, (x,), x)
        return result
    return x


def refuse_others(module: nn.Module) -> None:
    """Refuses hooks on gradients of modules, and those that see a gradient when it is complete."""
    held: list[tuple[tuple[str, Any], Sequence[str]]] = [
        (each, ("_backward_hooks", "_backward_pre_hooks")) for each in module.named_modules()
    ]
    held += [(each, ("_post_accumulate_grad_hooks",)) for each in module.named_parameters()]
    for (name, each), hooks in held:
        if any(getattr(each, hook, None) for hook in hooks):
            raise UnsupportedOpError(
                f"'{name.removeprefix('module.')}' requires gradients as they follow from its operations, got a hook "
                "that may change them; remove it (handle.remove()), and limit gradients by clip_norm or clip_value of "
                "ll.Trainer, or by hooks on parameters and on tensors in forward"
            )
