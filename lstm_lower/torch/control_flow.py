"""Control flow of PyTorch under a trace: what its functions read from outside becomes their operands.

PyTorch finds that out by compiling them, which sees none of our nodes. Here a function runs once beside the trace, and
tensors that it was neither given nor has made are those that it reads.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._guards import detect_fake_mode
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing
from torch.utils._pytree import TreeSpec, tree_flatten, tree_leaves, tree_map_only, tree_unflatten

from lstm_lower.replacement import replaced
from lstm_lower.torch.aten.storage import memory
from lstm_lower.torch.aten.tracing import TRACED_WITHIN, known, of_sizes, sizes
from lstm_lower.torch.hooks import handed_on, put_in
from lstm_lower.torch.modes import Args, FunctionMode, Kwargs, VaryingMode

Function = Callable[..., Any]


class _Finding(FunctionMode):
    """Finds tensors and sizes that were there before."""

    def __init__(self, given: Sequence[Any]) -> None:
        super().__init__()
        # Tensors are kept, so that no other one gets their identity.
        self._known = known(given)
        self.found: dict[Any, Any] = {}

    def read(self, values: Any) -> Any:
        """Takes down what of the outside is read."""
        for x in tree_leaves(values):
            outside = {id(x): x} if isinstance(x, Tensor) else sizes(x)
            self.found |= {key: each for key, each in outside.items() if key not in self._known}
        return values

    def on_call(self, func: Any, args: Args, kwargs: Kwargs) -> Any:
        result = TRACED_WITHIN.get(func, func)(*self.read(args), **self.read(kwargs))
        self._known |= {key: x for key, x in known(tree_leaves(result)).items() if key not in self.found}
        return result


class _Replacing(FunctionMode):
    """Puts operands in the place of what they stand for."""

    def __init__(self, places: Mapping[int, Tensor]) -> None:
        super().__init__()
        self._places = places

    def read(self, values: Any) -> Any:
        """What stands for values within."""
        return tree_map_only(torch.SymFloat, of_sizes, put_in(values, self._places))

    def on_call(self, func: Any, args: Args, kwargs: Kwargs) -> Any:
        return TRACED_WITHIN.get(func, func)(*self.read(args), **self.read(kwargs))


class _Lifted:
    """Functions of the same operands that read nothing from outside.

    Attributes:
        leaves: the tensors among what they are given, each once.
        rest: what they are given behind it, and what they read.
        functions: those of all of that.
    """

    def __init__(
        self,
        mode: VaryingMode,
        functions: Sequence[Function],
        operands: Sequence[Any],
        further: Sequence[Any] = (),
    ) -> None:
        """Runs them once.

        Args:
            mode: under which they are traced.
            functions: the functions.
            operands: what they are given, nested.
            further: what they are given behind it.
        """
        leaves, spec = tree_flatten(tuple(operands))
        self.leaves = _distinct(leaves)
        given = [*self.leaves, *further]
        self._mode, self._count = mode, len(given)
        self._specs: list[TreeSpec] = []
        flat = [_of_leaves(function, spec) for function in functions]
        finding = _Finding(given)
        untraced, within = disable_proxy_modes_tracing, functools.partial(replaced, mode, "outer", finding)
        for function in flat:
            with untraced(), _without_new_sizes(given), mode, finding, within():
                result = tree_map_only(Tensor, handed_on, function(*given))
            self._specs.append(tree_flatten(result)[1])
        self._captured = tuple(finding.found.values())
        read = mode.outer.read(self._captured) if mode.outer else self._captured
        self.rest = tuple(_distinct([*given, *read])[len(self.leaves) :])
        # What is carried varies where anything does.
        self._varies = any(map(mode.varies, (*given, *self._captured)))
        self.functions = [self._lifted(function) for function in flat]

    def _lifted(self, function: Function) -> Function:
        def called(*operands: Any) -> tuple[Any, ...]:
            own, rest = operands[: self._count], operands[self._count :]
            self._mode.vary(operands if self._varies else ())
            replacing = _Replacing({id(x): y for x, y in zip(self._captured, rest, strict=True)})
            with self._mode, replacing, replaced(self._mode, "outer", replacing):
                leaves = tree_leaves(tree_map_only(Tensor, handed_on, function(*own)))
            # PyTorch refuses what is handed through, and what lies otherwise in memory than what it takes the place of.
            return tuple(_alike(x) if isinstance(x, Tensor) else x for x in leaves)

        return called

    def nested(self, results: Sequence[Any], function: int = 0) -> Any:
        """Results as a function gives them."""
        self._mode.vary(results if self._varies else ())
        return tree_unflatten(list(results), self._specs[function])


# PyTorch refuses results of branches, and of steps and what they begin with, that lie otherwise in memory.
_alike = functools.partial(torch.clone, memory_format=torch.contiguous_format)


def _without_new_sizes(operands: Sequence[Any]) -> contextlib.AbstractContextManager[Any]:
    """Forgets sizes that depend on values, as of what a mask selects, which PyTorch looks for in the trace."""
    fake = detect_fake_mode(operands)
    symbols = None if fake is None else fake.shape_env
    return contextlib.nullcontext() if symbols is None else symbols.ignore_fresh_unbacked_symbols()


def handlers(mode: VaryingMode) -> dict[Any, Function]:
    """What stands for control flow while a module is traced under a mode."""
    ops = torch.ops.higher_order

    def cond(pred: Any, true_fn: Function, false_fn: Function, operands: Sequence[Any]) -> Any:
        lifted = _Lifted(mode, (true_fn, false_fn), operands)
        return lifted.nested(ops.cond(pred, *lifted.functions, (*lifted.leaves, *lifted.rest)))

    def while_loop(cond_fn: Function, body_fn: Function, carried_inputs: Any, additional_inputs: Any) -> Any:
        with mode:
            carried_inputs = tree_map_only(Tensor, _alike, carried_inputs)
        lifted = _Lifted(mode, (cond_fn, body_fn), carried_inputs, additional_inputs)
        test, body = lifted.functions
        results = ops.while_loop(lambda *x: test(*x)[0], body, tuple(lifted.leaves), lifted.rest)
        return lifted.nested(results, 1)

    def scan(combine_fn: Function, init: Any, xs: Any, additional_inputs: Any) -> Any:
        with mode:
            # Copies and parts have a gradient where the whole has.
            together = _distinct([*map(_alike, init), *xs])
            init, xs = together[: len(init)], together[len(init) :]
            parts = [x.select(0, 0) for x in xs]
        lifted = _Lifted(mode, [combine_fn], [*init, *parts], additional_inputs)
        return lifted.nested(ops.scan(lifted.functions[0], init, xs, lifted.rest))

    def mapped(f: Function, xs: Sequence[Tensor], args: Sequence[Any], **_: Any) -> Any:
        # A scan carries something.
        results = scan(lambda none, *parts: (none.clone(), f(*parts)), [torch.zeros(())], xs, tuple(args))
        return results[1]

    made: dict[Any, Function] = {ops.cond: cond, ops.while_loop: while_loop, ops.scan: scan, ops.map_impl: mapped}
    return {op: _unless_traced(handler) for op, handler in made.items()}


def _unless_traced(handler: Function) -> Function:
    """A trace is handed on from one of PyTorch's layers to the next as it is."""

    def called(*args: Any, **kwargs: Any) -> Any:
        traced = any(isinstance(x, torch.fx.GraphModule) for x in (*args, *kwargs.values()))
        return NotImplemented if traced else handler(*args, **kwargs)

    return called


class Plainly(FunctionMode):
    """Runs control flow as Python does: PyTorch refuses functions that read weights where it does not compile them.

    What PyTorch would end the process for is an error.
    """

    def on_call(self, func: Any, args: Args, kwargs: Kwargs) -> Any:
        """Calls ours where there is one, else PyTorch's."""
        if func in _UNCHECKED:
            _UNCHECKED[func](*args)
        plain = _PLAIN.get(func, func)
        if plain is func:
            return func(*args, **kwargs)
        with self:  # what it calls may hold more
            return plain(*args, **kwargs)


def _while_loop(cond_fn: Function, body_fn: Function, carried: Any, additional: Any) -> Any:
    spec = tree_flatten(tuple(carried))[1]
    leaves = list(carried)
    while cond_fn(*leaves, *additional):
        leaves, spec = tree_flatten(body_fn(*leaves, *additional))
    return tree_unflatten(leaves, spec)


def _scan(combine_fn: Function, init: Sequence[Any], xs: Sequence[Any], additional: Sequence[Any]) -> Any:
    carried, made, spec = list(init), [], None
    for parts in zip(*xs, strict=True):
        results, spec = tree_flatten(combine_fn(*carried, *parts, *additional))
        carried, own = results[: len(init)], results[len(init) :]
        made.append(own)
    assert spec is not None  # PyTorch refuses to go over nothing
    return tree_unflatten([*carried, *map(torch.stack, zip(*made, strict=True))], spec)


def _check_packed(x: Tensor, lengths: Tensor, batch_first: bool) -> None:
    """PyTorch does not check that what it packs is as long as it is told, and ends the process."""
    if int(lengths.max()) > x.shape[int(batch_first)]:
        raise ValueError("pack_padded_sequence of sequences that are longer than what holds them")


def _check_states(data: Tensor, sizes: Any, states: Any, *rest: Any) -> None:
    """PyTorch does not check that there are as many states as packed sequences and layers, and ends the process."""
    del data
    if not isinstance(sizes, Tensor) or sizes.is_floating_point():
        return  # States in their place: nothing is packed.
    _, _, layers, _, _, both_ways = rest
    wanted = (layers * (1 + both_ways), int(sizes[0]))
    for state in (states,) if isinstance(states, Tensor) else states:
        if state.shape[:2] != wanted:
            raise ValueError(f"packed sequences require states of shape {wanted}, got {tuple(state.shape[:2])}")


# What PyTorch ends the process for -> what finds it first.
_UNCHECKED: dict[Any, Callable[..., None]] = {
    torch._VF._pack_padded_sequence: _check_packed,
    **dict.fromkeys((torch._VF.lstm, torch._VF.gru, torch._VF.rnn_tanh, torch._VF.rnn_relu), _check_states),
}


def batches_first() -> contextlib.AbstractContextManager[None]:
    """Lets `vmap` batch along first axes alone, as a trace of any other one holds tensors of the trace itself."""
    module: Any = torch._functorch.apis
    vmap: Any = torch._functorch.vmap
    before = module.vmap_impl

    def moved(
        func: Function, in_dims: Any, out_dims: Any, randomness: str, chunk_size: int | None, *args: Any, **options: Any
    ) -> Any:
        _, axes, leaves, spec = vmap._process_batched_inputs(in_dims, args, func)
        args = tree_unflatten([x.movedim(axis, 0) if axis else x for axis, x in zip(axes, leaves, strict=True)], spec)
        in_dims = tree_unflatten([None if axis is None else 0 for axis in axes], spec)
        results, spec = tree_flatten(before(func, in_dims, 0, randomness, chunk_size, *args, **options))
        axes = vmap._broadcast_to_and_flatten(out_dims, spec) or out_dims  # (1,) of one tensor
        return tree_unflatten([x.movedim(0, axis) for x, axis in zip(results, axes, strict=True)], spec)

    return replaced(module, "vmap_impl", moved)


def any_length() -> contextlib.AbstractContextManager[None]:
    """Associative scans in order, of any length: PyTorch's halve it again and again, which fixes it."""
    # The package has a function of the module's name.
    module: Any = importlib.import_module("torch._higher_order_ops.associative_scan")

    def in_order(operator: Any, leaves: Sequence[Tensor], dim: int = 0, additional_inputs: Any = ()) -> Any:
        # The operator is of many at once, by vmap, of which no body of a scan can be traced.
        single = inspect.getclosurevars(operator.keywords["combine_fn"]).nonlocals["func"]
        flat = functools.partial(operator.func, **operator.keywords | {"combine_fn": single})

        def combined(*parts: Tensor) -> tuple[list[Tensor], list[Tensor]]:
            made = tree_leaves(flat(*parts))
            return made, [x.clone() for x in made]

        parts = [x.movedim(dim, 0) for x in leaves]
        length: Any = parts[0].shape[0]
        first = [x.select(0, 0) for x in parts]
        # onnxruntime has no Scan of no steps: of a single element there is one, whose result is dropped.
        added = torch.sym_max(2 - length, 0)  # type: ignore[no-untyped-call]
        rest = [torch.cat([x[1:], x[:added]]) for x in parts]
        _, made = torch.ops.higher_order.scan(combined, first, rest, tuple(additional_inputs))
        joined = (torch.cat([x.unsqueeze(0), y[: length - 1]]) for x, y in zip(first, made, strict=True))
        return [x.movedim(0, dim) for x in joined]

    return replaced(module, "generic_associative_scan", in_order)


_PLAIN: dict[Any, Function] = {
    torch.ops.higher_order.cond: lambda pred, true_fn, false_fn, operands: (true_fn if pred else false_fn)(*operands),
    torch.ops.higher_order.while_loop: _while_loop,
    torch.ops.higher_order.scan: _scan,
    # PyTorch 2.14 says beside it which arguments are changed.
    torch.ops.higher_order.map_impl: lambda f, xs, args, **_: _scan(f, (), xs, args),
}


def _distinct(values: Sequence[Any]) -> list[Any]:
    """Operands of which none is a view of another, nor occurs twice: PyTorch refuses the first, or names both alike."""
    found: list[Any] = []
    taken: set[int] = set()
    for x in values:
        held = memory(x) if isinstance(x, Tensor) else 0
        found.append(x.clone() if held in taken else x)
        taken |= {held} - {0}
    return found


def _of_leaves(function: Function, spec: TreeSpec) -> Function:
    """A function of nested operands as one of their tensors, and of what follows them."""
    count = spec.num_leaves
    return lambda *leaves: function(*tree_unflatten(list(leaves[:count]), spec), *leaves[count:])
