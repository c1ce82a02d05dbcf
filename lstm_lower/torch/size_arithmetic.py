"""Arithmetic of open sizes: divisions, which Python rounds down and ONNX towards zero, roots, what becomes a number."""

from __future__ import annotations

import builtins
import contextlib
import math
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch._export.verifier import Verifier

from lstm_lower.replacement import all_replaced, names_added, replaced
from lstm_lower.torch.pytorch_errors import frames, is_users

T = TypeVar("T")


def logarithms_allowed() -> contextlib.AbstractContextManager[None]:
    """Lets a trace hold logarithms of open sizes, of which PyTorch knows all but this."""
    types = Verifier.allowed_op_types
    return replaced(Verifier, "allowed_op_types", lambda self: (*types(self), type(torch._sym_log2)))  # type: ignore[attr-defined]


def open_arithmetic() -> contextlib.AbstractContextManager[None]:
    """Leaves open what `math` and numpy make of open sizes, and has `divmod`, which PyTorch lacks."""
    logarithm: Callable[[Any], Any] = torch._sym_log2  # type: ignore[attr-defined]
    formulas: dict[str, Callable[..., Any]] = {
        "exp": lambda x: 2.0 ** (x * math.log2(math.e)),
        "isqrt": lambda x: math.floor(x**0.5),
        "log": lambda x: logarithm(x) * math.log(2),
        "log2": logarithm,
        "sqrt": lambda x: x**0.5,
    }

    def either(function: Callable[..., Any], formula: Callable[..., Any]) -> Callable[..., Any]:
        def called(x: Any, *rest: Any) -> Any:
            # A logarithm with a base is a quotient in Python, which may be off where it is to come out even.
            is_open = isinstance(x, (torch.SymInt, torch.SymFloat)) and not (rest and formula is formulas["log"])
            return (formula if is_open else function)(x, *rest)

        return called

    # Functions of numpy call methods of their names, which Python's own functions cannot be.
    methods = {name: formulas[name] for name in ("exp", "log", "log2", "sqrt")}
    methods["rint"] = lambda x: round(x)  # noqa: PLW0108
    return all_replaced(
        *((math, name, either(getattr(math, name), formula)) for name, formula in formulas.items()),
        *((kind, *method) for kind in (torch.SymInt, torch.SymFloat) for method in methods.items()),
        (torch.SymInt, "__divmod__", lambda x, divisor: (x // divisor, x % divisor)),
    )


class _OpenNumberError(BaseException):
    """The module's code asks for a number where a size is open."""


def open_numbers(trace: Callable[[], T]) -> T:
    """What a trace returns, with `int`, `float` and `len` of what is open in the module's code left open.

    Python's own need a number, as for `int(lengths.max())`, `int(x.size(1) / 2)` and `len(x)`. Where that is why
    tracing fails or fixes a size, the names stand for ours in that file, and it is traced once more.
    """
    files: list[dict[str, Any]] = []

    def asking(number: Callable[[Any], float], is_open: Callable[[Any], bool]) -> Callable[[Any], float]:
        def either(x: Any) -> float:
            caller = sys._getframe(1)
            if is_open(x) and is_users(caller) and not any(names is caller.f_globals for names in files):
                raise _OpenNumberError
            return number(x)

        return either

    asked: list[tuple[Any, str, Callable[[Any], bool]]] = [
        (torch.Tensor, "__len__", lambda x: x.dim() > 0 and isinstance(x.shape[0], torch.SymInt)),
        (torch.SymInt, "__int__", lambda x: x.node.maybe_as_int() is None),
        (torch.SymInt, "__float__", lambda x: x.node.maybe_as_int() is None),
        *((torch.SymFloat, name, lambda x: x.node.maybe_as_float() is None) for name in ("__int__", "__float__")),
    ]
    while True:
        try:
            asks = (
                (owner, name, asking(getattr(owner, name, lambda x: float(int(x))), is_open))  # no SymInt.__float__
                for owner, name, is_open in asked
            )
            with all_replaced(*asks), names_added(files, _OPEN):
                return trace()
        except (torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode, _OpenNumberError) as error:
            failed = [frame.f_globals for frame, _ in frames(error) if "__name__" in frame.f_globals][-1:]
            if not failed or any(names is failed[0] for names in files):
                raise
            files += failed


def _length(x: Any) -> Any:
    return x.shape[0] if isinstance(x, torch.Tensor) and x.dim() > 0 else len(x)


class _Open(type):
    """`int` or `float`, which leaves open what is open."""

    def __call__(cls, x: Any = 0, *rest: Any) -> Any:
        if isinstance(x, torch.Tensor):
            x = x.item()
        if isinstance(x, (torch.SymInt, torch.SymFloat)):
            opened: Any = torch.sym_int if cls.__name__ == "int" else torch.sym_float
            return opened(x)
        return getattr(builtins, cls.__name__)(x, *rest)

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, getattr(builtins, cls.__name__))


_OPEN = {"int": _Open("int", (), {}), "float": _Open("float", (), {}), "len": _length}
