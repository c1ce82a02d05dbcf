"""Functions of PyTorch that a trace takes otherwise: its own kernels for traces lack them, or fix sizes.

A function becomes other ones, or an operator of ours, which `operator` declares and `registry.translates` translates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

F = TypeVar("F", bound=Callable[..., Any])

# Function of PyTorch -> what is called in its place with the same operands; `NotImplemented` leaves it to PyTorch.
TRACED: dict[Any, Callable[..., Any]] = {}

_LIBRARY: Any = torch.library.Library("lstm_lower", "FRAGMENT")  # type: ignore[no-untyped-call]


def traces(*functions: Any) -> Callable[[F], F]:
    """Registers what is called in place of functions of PyTorch while a module is traced."""

    def register(function: F) -> F:
        TRACED.update(dict.fromkeys(functions, function))
        return function

    return register


def operator(schema: str) -> Callable[[Callable[..., Any]], Any]:
    """Declares an operator of ours by its schema and by a function that makes empty results of the right sizes.

    Returns:
        The overload, to be called in traces and to be translated.
    """

    def declare(empty: Callable[..., Any]) -> Any:
        name = schema.partition("(")[0]
        _LIBRARY.define(schema)
        # Functions that a trace runs beside itself, to see what they read, call it with tensors of numbers.
        _LIBRARY.impl(name, empty, "CompositeExplicitAutograd")
        torch.library.register_fake(f"lstm_lower::{name}", empty, lib=_LIBRARY)
        return getattr(torch.ops.lstm_lower, name).default

    return declare


@operator("opaque(Tensor?[] inputs, str name, str[] keys, int[] values, Tensor[] likes, SymInt[][] shapes) -> Tensor[]")
def OPAQUE(  # noqa: N802
    inputs: Sequence[Tensor | None],
    name: str,
    keys: Sequence[str],
    values: Sequence[int],
    likes: Sequence[Tensor],
    shapes: Sequence[Sequence[Any]],
) -> list[Tensor]:
    """A node `<domain>::<op>` with attributes, whose results have other tensors' dtypes, and shapes."""
    return [like.new_empty(list(shape)) for like, shape in zip(likes, shapes, strict=True)]


class Tracing(TorchFunctionMode):
    """Calls ours in place of PyTorch's functions, within the block in which a module is traced."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Calls ours where there is one, else PyTorch's."""
        del types
        own = TRACED.get(func)
        result = NotImplemented if own is None else own(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {})) if result is NotImplemented else result
