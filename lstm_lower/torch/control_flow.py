"""`torch.cond`, `while_loop` and `scan` under a trace: what their functions read from outside becomes their operands.

PyTorch finds that out by compiling them, which sees none of our nodes. Here a function runs once beside the trace, and
tensors that it was neither given nor has made are those that it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import TreeSpec, tree_flatten, tree_leaves, tree_map, tree_unflatten

Function = Callable[..., Any]


class _Finding(TorchFunctionMode):
    """Finds tensors that were there before."""

    def __init__(self, given: Sequence[Any]) -> None:
        super().__init__()
        # Tensors are kept, so that no other one gets their identity.
        self._known = {id(x): x for x in given}
        self.found: dict[int, Tensor] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Looks at operands and results."""
        del types
        self.read(args, kwargs)
        result = func(*args, **(kwargs or {}))
        self._known |= {id(x): x for x in tree_leaves(result) if id(x) not in self.found}
        return result

    def read(self, *values: Any) -> None:
        """Takes note of tensors that are read."""
        for x in tree_leaves(values):
            if isinstance(x, Tensor) and id(x) not in self._known:
                self.found[id(x)] = x


class _Replacing(TorchFunctionMode):
    """Puts operands in the place of what they stand for."""

    def __init__(self, places: Mapping[int, Tensor]) -> None:
        super().__init__()
        self._places = places

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Calls the function of the operands."""
        del types
        args, kwargs = self.replaced((args, kwargs or {}))
        return func(*args, **kwargs)

    def replaced(self, values: Any) -> Any:
        """A nested value with operands in it."""
        return tree_map(lambda x: self._places.get(id(x), x), values)


class _Lifted:
    """Functions of the same operands that read nothing from outside.

    Attributes:
        captured: what they read.
    """

    def __init__(self, mode: TorchFunctionMode, functions: Sequence[Function], operands: Sequence[Any]) -> None:
        """Runs them once.

        Args:
            mode: under which they are traced.
            functions: the functions.
            operands: what they are given.
        """
        self._mode = mode
        self._count = len(operands)
        self._specs: list[TreeSpec] = []
        finding = _Finding(operands)
        for function in functions:
            with disable_proxy_modes_tracing(), mode, finding:
                result = function(*operands)
            finding.read(result)
            self._specs.append(tree_flatten(result)[1])
        self.captured = tuple(finding.found.values())
        self.functions = [self._lifted(function) for function in functions]

    def _lifted(self, function: Function) -> Function:
        def called(*operands: Any) -> tuple[Any, ...]:
            own, rest = operands[: self._count], operands[self._count :]
            replacing = _Replacing({id(x): y for x, y in zip(self.captured, rest, strict=True)})
            with self._mode, replacing:
                result = function(*own)
            leaves = tree_leaves(replacing.replaced(result))
            # What is handed through needs a value of its own.
            given = {id(x) for x in operands}
            return tuple(x.clone() if isinstance(x, Tensor) and id(x) in given else x for x in leaves)

        return called

    def nested(self, results: Sequence[Any], function: int = 0) -> Any:
        """Results as a function gives them."""
        return tree_unflatten(list(results), self._specs[function])


def handlers(mode: TorchFunctionMode) -> dict[Any, Function]:
    """What stands for control flow while a module is traced under a mode."""

    def cond(pred: Any, true_fn: Function, false_fn: Function, operands: Sequence[Any]) -> Any:
        if _is_traced(true_fn):
            return NotImplemented
        leaves, spec = tree_flatten(tuple(operands))
        branches = [_of_leaves(function, spec) for function in (true_fn, false_fn)]
        lifted = _Lifted(mode, branches, leaves)
        return lifted.nested(torch.ops.higher_order.cond(pred, *lifted.functions, (*leaves, *lifted.captured)))

    def while_loop(cond_fn: Function, body_fn: Function, carried_inputs: Any, additional_inputs: Any) -> Any:
        if _is_traced(body_fn):
            return NotImplemented
        leaves, spec = tree_flatten(tuple(carried_inputs))
        parts = [_of_leaves(function, spec) for function in (cond_fn, body_fn)]
        lifted = _Lifted(mode, parts, [*leaves, *additional_inputs])
        test, body = lifted.functions
        rest = (*additional_inputs, *lifted.captured)
        results = torch.ops.higher_order.while_loop(lambda *x: test(*x)[0], body, tuple(leaves), rest)
        return lifted.nested(results, 1)

    def scan(combine_fn: Function, init: Any, xs: Any, additional_inputs: Any) -> Any:
        if _is_traced(combine_fn):
            return NotImplemented
        slices = [x.select(0, 0) for x in xs]
        lifted = _Lifted(mode, [combine_fn], [*init, *slices, *additional_inputs])
        rest = (*additional_inputs, *lifted.captured)
        return torch.ops.higher_order.scan(lifted.functions[0], list(init), list(xs), rest)

    ops = torch.ops.higher_order
    return {ops.cond: cond, ops.while_loop: while_loop, ops.scan: scan}


class Plainly(TorchFunctionMode):
    """Runs control flow as Python does: PyTorch refuses functions that read weights where it does not compile them."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Calls ours where there is one, else PyTorch's."""
        del types
        plain = _PLAIN.get(func, func)
        if plain is func:
            return func(*args, **(kwargs or {}))
        with self:  # what it calls may hold more
            return plain(*args, **(kwargs or {}))


def _cond(pred: Any, true_fn: Function, false_fn: Function, operands: Sequence[Any]) -> Any:
    return (true_fn if pred else false_fn)(*operands)


def _while_loop(cond_fn: Function, body_fn: Function, carried: Any, additional: Any) -> Any:
    while cond_fn(*carried, *additional):
        carried = body_fn(*carried, *additional)
    return tuple(carried)


def _scan(combine_fn: Function, init: Sequence[Any], xs: Sequence[Any], additional: Sequence[Any]) -> Any:
    carried, made = list(init), []
    for parts in zip(*xs, strict=True):
        results = tree_leaves(combine_fn(*carried, *parts, *additional))
        carried, own = results[: len(init)], results[len(init) :]
        made.append(own)
    return (*carried, *map(torch.stack, zip(*made, strict=True)))


_PLAIN: dict[Any, Function] = {
    torch.ops.higher_order.cond: _cond,
    torch.ops.higher_order.while_loop: _while_loop,
    torch.ops.higher_order.scan: _scan,
}


def _is_traced(function: Any) -> bool:
    """Whether a function is a trace, which is handed from one of PyTorch's layers to the next."""
    return isinstance(function, torch.fx.GraphModule)


def _of_leaves(function: Function, spec: TreeSpec) -> Function:
    """A function of nested operands as one of their tensors, and of what follows them."""
    count = spec.num_leaves
    return lambda *leaves: function(*tree_unflatten(list(leaves[:count]), spec), *leaves[count:])
