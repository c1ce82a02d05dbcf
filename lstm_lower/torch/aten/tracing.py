"""Functions of PyTorch that a trace takes otherwise: its own kernels for traces lack them, or fix sizes.

A function becomes other ones, or an operator of ours, which `operator` declares and `registry.translates` translates.
"""

from __future__ import annotations

import inspect
import operator as python
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

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


def operator(schema: str) -> Callable[[F], F]:
    """Declares an operator of ours by its schema and by a function that makes empty results of the right sizes.

    Returns:
        The overload, to be called in traces and to be translated.
    """

    def declare(empty: F) -> F:
        name = schema.partition("(")[0]
        _LIBRARY.define(schema)
        # Functions that a trace runs beside itself, to see what they read, call it with tensors of numbers.
        _LIBRARY.impl(name, empty, "CompositeExplicitAutograd")
        torch.library.register_fake(f"lstm_lower::{name}", empty, lib=_LIBRARY)
        overload: F = getattr(torch.ops.lstm_lower, name).default
        return overload

    return declare


@traces(Tensor.data.__get__)  # type: ignore[attr-defined]
def _data(input: Tensor) -> Tensor:
    """No call that a trace holds."""
    return input.detach()


def _numbers(x: Any) -> list[Any]:
    """The numbers without a value, of a tensor's shape, of a slice, or a number itself."""
    held = x.shape if isinstance(x, Tensor) else (x.start, x.stop, x.step) if isinstance(x, slice) else (x,)
    return [each.node for each in held if isinstance(each, (torch.SymInt, torch.SymFloat, torch.SymBool))]


def sizes(x: Any) -> dict[Any, Any]:
    """The sizes that a number or a slice is made of, by their symbols."""
    return {
        symbol: node.shape_env.create_symintnode(symbol, hint=None)
        for node in _numbers(x)
        for symbol in sorted(node.expr.free_symbols, key=str)
    }


class _Made(PythonReferenceAnalysis):
    """Makes numbers of sizes as Python does, where PyTorch's own formulas make symbols."""

    truediv = int_truediv = staticmethod(python.truediv)
    pow = pow_by_natural = staticmethod(python.pow)


def of_sizes(x: torch.SymFloat) -> Any:
    """A number made anew of sizes, for a trace that has these alone."""
    return sympy_interp(_Made, sizes(x), x.node.expr)


def _of_numbers(data: Any, dtype: torch.dtype | None = None, **options: Any) -> Tensor:
    """`torch.tensor` by operators: PyTorch loses constants that a function of control flow makes."""
    leaves = tree_leaves(data)
    kinds = (bool, int, float, torch.SymInt, torch.SymFloat)
    if not leaves or options.get("requires_grad") or not all(isinstance(x, kinds) for x in leaves):
        return torch.tensor(data, dtype=dtype, **options)
    if dtype is None and all(isinstance(x, bool) for x in leaves):
        dtype = torch.bool
    if dtype is None:
        real = any(isinstance(x, (float, torch.SymFloat)) for x in leaves)
        dtype = torch.get_default_dtype() if real else torch.int64
    if isinstance(data, (list, tuple)):
        return torch.stack([_of_numbers(x, dtype) for x in data])
    return torch.full((), data, dtype=dtype)


# What is called in place of functions of PyTorch within those of control flow.
TRACED_WITHIN: dict[Any, Callable[..., Any]] = {torch.tensor: _of_numbers}


def known(values: Iterable[Any]) -> dict[Any, Any]:
    """What a trace has where it has values: these by their identity, and their sizes by formulas."""
    return {key: x for x in values for key in (id(x), *(node.expr for node in _numbers(x)))}


# Names of numpy, which PyTorch's own functions take for theirs.
_NUMPY = {"axis": "dim", "keepdims": "keepdim", "x1": "input", "x2": "other"}


def traced_otherwise(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Calls ours in place of a function of PyTorch's where there is one, else PyTorch's."""
    own = TRACED.get(function)
    if own is not None:
        ours, named = _as_declared(own, args, kwargs)
        result = own(*ours, **named)
        if result is not NotImplemented:
            return result
    return function(*args, **kwargs)


def _as_declared(
    own: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments under names that a function of ours has: not numpy's, and operands by place that it names otherwise."""
    named = dict(kwargs)
    if not named:
        return args, named
    parameters = inspect.signature(own).parameters
    for theirs, name in _NUMPY.items():
        if theirs in named and theirs not in parameters:
            named[name] = named.pop(theirs)
    for place, name in enumerate(("input", "other")):
        if name in named and name not in parameters and len(args) == place:
            args = (*args, named.pop(name))
    return args, named
