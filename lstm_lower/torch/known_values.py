"""Values that a trace holds for sure: of tensors made of numbers alone, and of the module's buffers.

A trace knows shapes, not values, and refuses branches over them. What is computed of nothing that is fed is computed
once beside the trace, by the same functions, so that such a branch (`if times[0] > times[1]` of a `linspace`, `if not
self.initialized`) goes where it goes in PyTorch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only

from lstm_lower.torch.aten.storage import memory, part
from lstm_lower.torch.hooks import put_in

# Functions that make something of values that is no tensor.
_READERS: set[Any] = {
    Tensor.__bool__,
    Tensor.__contains__,
    Tensor.__float__,
    Tensor.__index__,
    Tensor.__int__,
    Tensor.allclose,
    Tensor.equal,
    Tensor.is_nonzero,
    Tensor.item,
    Tensor.tolist,
    torch.allclose,
    torch.equal,
    torch.is_nonzero,
}

# Number of elements of a tensor beyond which its values are not followed.
_LIMIT = 1 << 14


@dataclasses.dataclass(frozen=True)
class _Value:
    """What is known of a tensor.

    Attributes:
        traced: the tensor, which is kept so that no other one gets its identity.
        numbers: its values.
        version: how often it had been changed in place.
        buffers: names of the buffers that the values come from.
    """

    traced: Tensor
    numbers: Tensor
    version: int
    buffers: frozenset[str]


@dataclasses.dataclass(frozen=True)
class KnownCall:
    """A call of a function whose operands are known.

    Attributes:
        function: the function.
        args: operands by position, with their values.
        kwargs: those by name.
        buffers: names of the buffers that these come from.
    """

    function: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    buffers: frozenset[str]

    def __call__(self) -> Any:
        """The result; random numbers, which differ from run to run, are none, and are not used up."""
        with _disable_current_modes(), torch.no_grad():
            before = torch.get_rng_state()
            result = self.function(*self.args, **self.kwargs)
            if torch.equal(before, torch.get_rng_state()):
                return result
            torch.set_rng_state(before)
        return None


class KnownValues:
    """The values that are known while a module is traced.

    Attributes:
        read: names of buffers over whose values the module's code branches.
    """

    def __init__(self) -> None:
        self.read: set[str] = set()
        self._values: dict[int, _Value] = {}

    def hold(self, name: str, buffer: Tensor, traced: Tensor) -> None:
        """Takes down that a tensor of the trace is a buffer."""
        if buffer.numel() <= _LIMIT and buffer.layout is torch.strided:
            with _disable_current_modes():
                numbers = buffer.detach().cpu().clone()
            self._values[id(traced)] = _Value(traced, numbers, traced._version, frozenset([name]))

    def call(self, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> KnownCall | None:
        """A call with values in place of tensors, if all of them are known."""
        leaves = tree_leaves((args, kwargs))
        tensors = [x for x in leaves if isinstance(x, Tensor)]
        if isinstance(function, torch._ops.OperatorBase):
            # What PyTorch calls while it traces, and control flow, whose functions read more than they are given.
            return None
        if any(isinstance(x, (torch.SymInt, torch.SymFloat, torch.SymBool)) for x in leaves):
            return None
        values = {id(x): self._of(x) for x in tensors}
        known = [value for value in values.values() if value is not None]
        if len(known) < len(values) or "empty" in getattr(function, "__name__", "empty"):
            return None
        of: Callable[[Any], Any] = {id(value.traced): value.numbers for value in known}.__getitem__
        args, kwargs = tree_map_only(Tensor, lambda x: of(id(x)), (args, kwargs))
        return KnownCall(function, args, kwargs, frozenset().union(*(value.buffers for value in known)))

    def is_read(self, call: KnownCall) -> bool:
        """Whether a call is for what stands in its operands."""
        if call.function in _READERS:
            self.read |= call.buffers
            return True
        return False

    def keep(self, call: KnownCall, result: Any) -> None:
        """Takes down what a traced call returns."""
        traced = tree_leaves(result)
        if not traced or not all(isinstance(x, Tensor) and _is_small(x) for x in traced):
            return
        values = tree_leaves(call())
        if len(values) == len(traced) and all(map(_alike, traced, values)):
            for x, numbers in zip(traced, values, strict=True):
                self._values[id(x)] = _Value(x, numbers, x._version, call.buffers)

    def _of(self, x: Tensor) -> _Value | None:
        value = self._values.get(id(x))
        return value if value is not None and value.version == x._version else None


def _is_small(x: Tensor) -> bool:
    sizes: list[Any] = list(x.shape)
    return x.layout is torch.strided and all(isinstance(size, int) for size in sizes) and x.numel() <= _LIMIT


def _alike(a: Tensor, b: Any) -> bool:
    return isinstance(b, Tensor) and a.shape == b.shape and a.dtype == b.dtype


class Held:
    """What a module holds, and what stands in its place while it is traced.

    Code also reaches weights by other ways than as attributes of modules: in lists and dicts of their own, and by
    tensors that lie in their memory.
    """

    def __init__(self, module: nn.Module) -> None:
        # Of each place: its dict and key, the tensor's name, and the tensor.
        self._places: list[tuple[dict[str, Any], str, str, Tensor]] = [
            (held, key, f"{path}.{key}" if path else key, value)
            for path, part in module.named_modules()
            for held in (part._parameters, part._buffers)
            for key, value in held.items()
            if value is not None
        ]
        self._parameters = {id(parameter) for parameter in module.parameters()}
        self._traced: dict[int, Tensor] = {}
        # Memory -> name of what lies in it, the tensor, and what stands in its place.
        self._lying: dict[int, list[tuple[str, Tensor, Tensor]]] = {}

    def replaced(self, known: KnownValues, operands: Any) -> Any:
        """Operands in which what is traced stands in the place of what the module holds otherwise."""
        self._look(known)
        others = [x for x in tree_leaves(operands) if isinstance(x, Tensor) and id(x) not in self._traced]
        parts = {id(x): part(x, lying) for x in others if (lying := self._lying.get(memory(x)))}
        return put_in(operands, self._traced | parts if parts else self._traced)

    def _look(self, known: KnownValues) -> None:
        """Finds what stands in the place of what, when that begins."""
        if self._traced or not self._places:
            return
        held, key, _, value = self._places[0]
        if held.get(key) is value:
            return
        for held, key, name, value in self._places:
            traced = held.get(key)
            if isinstance(traced, Tensor) and traced is not value:
                name = name.removeprefix("module.")
                self._traced[id(value)] = traced
                self._lying.setdefault(memory(value), []).append((name, value, traced))
                if id(value) not in self._parameters:
                    known.hold(name, value, traced)
