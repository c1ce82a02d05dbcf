"""An optimizer of any class as a model of one update: its own `step`, traced on what it keeps.

What a step changes is found by running it on copies: tensors and numbers of the optimizer's state and of its groups
become inputs and outputs of the model, everything else is constant. Numbers stay numbers to the optimizer's code, as
they are in PyTorch, and are open ones to the trace.
"""

from __future__ import annotations

import builtins
import collections
import contextlib
import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from lstm_lower.errors import LstmLowerError, UnsupportedOpError, first_line, some
from lstm_lower.passes.training.updates import UpdateModel, UpdateRate
from lstm_lower.replacement import names_added
from lstm_lower.torch.export import export
from lstm_lower.torch.interface import are_equal, numbers
from lstm_lower.torch.modes import Args, FunctionMode, Kwargs

# State by weight, options by group, in an optimizer's own order.
Held = tuple[list[dict[str, Any]], list[dict[str, Any]]]
Path = tuple[Any, ...]

_WAY = "what='gradients' makes a step for an update that you write yourself"


def update_model(
    optimizer: torch.optim.Optimizer, names: Sequence[str], rates: Sequence[UpdateRate]
) -> tuple[UpdateModel, Mapping[str, Path]]:
    """The update of an optimizer, traced.

    Args:
        optimizer: with its groups and state; it stays as it is.
        names: of the parameters that have a gradient, `""` for others, in the order of the groups.
        rates: the learning rate of each group.

    Returns:
        The update, and name of what it keeps -> its place: 0 and the number of a weight, or 1 and that of a group, and
        keys.

    Raises:
        UnsupportedOpError: its step fails, cannot be traced, or keeps what is no part of its state.
    """
    run = _Run(optimizer, names)
    try:
        first = run.first_state()
    except LstmLowerError:
        raise
    except Exception as error:
        got = f", which fails with {first_line(error)}"
        raise _refused(optimizer, "a step that runs without a closure", got) from error
    moving = run.moving(first)
    update = _Update(run, first, moving)
    inputs = (
        [torch.tensor(rate.learning_rate, dtype=torch.float64) for rate in rates],
        run.weights,
        run.gradients(),
        [_as_tensor(_at(first, path)) for path in moving],
    )
    try:
        model = export(update, inputs, None).model
    except UnsupportedOpError as error:
        raise _refused(optimizer, "a step that can be traced", f": {first_line(error)}") from error
    paths = {_name(path, run.used): path for path in moving}
    state = {name: numbers(_as_tensor(_at(first, path))) for name, path in paths.items()}
    counters = {name for name, array in state.items() if array.dtype.kind in "iu"}
    return UpdateModel(model, run.used, state, counters, rates), paths


def _refused(optimizer: torch.optim.Optimizer, required: str, got: str, way: str = _WAY) -> UnsupportedOpError:
    return UnsupportedOpError(f"optimizer requires {required}, got {type(optimizer).__name__}{got}; {way}")


def on_copies(optimizer: torch.optim.Optimizer, copies: Mapping[int, Tensor]) -> torch.optim.Optimizer:
    """An optimizer with the attributes and groups of another one, without state, on copies of its parameters.

    Args:
        optimizer: the other one.
        copies: identity of a parameter -> its copy. Others are left out.
    """
    own = object.__new__(type(optimizer))
    vars(own).update(vars(optimizer))
    # A scheduler puts a function that counts there.
    vars(own).pop("step", None)
    own.state, own.param_groups = collections.defaultdict(dict), []
    for group in optimizer.param_groups:
        members = [copies[id(x)] for x in group["params"] if id(x) in copies]
        own.param_groups.append({**group, "params": members})
    return own


class _Run:
    """Steps of an optimizer on copies of its parameters.

    Attributes:
        used: names of the parameters that have gradients.
        weights: their values.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, names: Sequence[str]) -> None:
        self._optimizer = optimizer
        parameters = [x for group in optimizer.param_groups for x in group["params"]]
        chosen = [(name, x) for name, x in zip(names, parameters, strict=True) if name]
        self.used = [name for name, _ in chosen]
        self._parameters = [x for _, x in chosen]
        self.weights = [x.detach().clone() for x in self._parameters]

    def gradients(self, seed: int = 0) -> list[Tensor]:
        generator = torch.Generator().manual_seed(seed)
        return [torch.randn(x.shape, generator=generator, dtype=x.dtype) for x in self.weights]

    def step(
        self,
        weights: Sequence[Tensor],
        gradients: Sequence[Tensor],
        held: Held,
        rates: Sequence[Any],
        state: Callable[[], dict[str, Any]] = dict,
    ) -> Held:
        """Does a step in place of weights; what is held afterwards."""
        own = on_copies(self._optimizer, dict(zip(map(id, self._parameters), weights, strict=True)))
        for group, options, rate in zip(own.param_groups, held[1], rates, strict=True):
            group.update({**options, "lr": rate})
        for x, dx, kept in zip(weights, gradients, held[0], strict=True):
            x.grad = dx
            own.state[x] = state()
            own.state[x].update(kept)
        before = _plain_numbers(vars(own))
        with torch.no_grad():
            type(own).step(own)
        if others := [name for name, x in _plain_numbers(vars(own)).items() if x != before.get(name)]:
            got = f", which keeps {some(others)} on itself"
            raise _refused(own, "all that it counts in its state or its groups", got)
        groups = [{key: x for key, x in group.items() if key != "params"} for group in own.param_groups]
        for options, rate in zip(groups, rates, strict=True):
            if options.pop("lr") is not rate:
                raise _refused(own, "a step that leaves its learning rate", ", which sets it")
        return [dict(own.state[x]) for x in weights], groups

    def after(self, held: Held, seed: int, state: Callable[[], dict[str, Any]] = dict) -> tuple[list[Tensor], Held]:
        """Weights and what is held after a step on copies, with gradients of a seed."""
        weights = [x.clone() for x in self.weights]
        rates = [float(group["lr"]) for group in self._optimizer.param_groups]
        return weights, self.step(weights, self.gradients(seed), copy.deepcopy(held), rates, state)

    def first_state(self) -> Held:
        """What is held now; of a state that the first step makes, as it is when it is put there.

        Raises:
            UnsupportedOpError: what a first step does does not follow from that.
        """
        options = [
            {key: x for key, x in group.items() if key not in ("params", "lr")}
            for group in self._optimizer.param_groups
        ]
        held: Held = [dict(self._optimizer.state.get(x, {})) for x in self._parameters], options
        made: list[_FirstValues] = []

        def watched() -> dict[str, Any]:
            made.append(_FirstValues())
            return made[-1]

        self.after(held, 0, watched)
        first: Held = [{**each.first, **kept} for each, kept in zip(made, held[0], strict=True)], options
        for seed in (1, 2):
            ours, theirs = (pytree.tree_leaves(self.after(each, seed)) for each in (first, held))
            if len(ours) != len(theirs) or not all(map(are_equal, ours, theirs)):
                required = "a state with which its first step is like later ones"
                way = "do the first step in PyTorch (loss.backward() and optimizer.step()), and ll.from_torch after it"
                raise _refused(self._optimizer, required, " without any", way)
        return first

    def moving(self, first: Held) -> list[Path]:
        """Where tensors are, and numbers that a step changes."""
        later = self.after(first, 1)[1]
        before, after = (dict(pytree.tree_flatten_with_path(each)[0]) for each in (first, later))
        if before.keys() != after.keys():
            raise _refused(self._optimizer, "a state whose parts stay", "")
        return [
            tuple(map(_key, path))
            for path, x in before.items()
            if isinstance(x, Tensor) or (_is_number(x) and not are_equal(x, after[path]))
        ]


class _Update(nn.Module):
    """One step of an optimizer, with flat tensors in and out."""

    def __init__(self, run: _Run, first: Held, moving: Sequence[Path]) -> None:
        super().__init__()
        self._run, self._first, self._moving = run, first, moving

    def forward(
        self, rates: list[Tensor], weights: list[Tensor], gradients: list[Tensor], held: list[Tensor]
    ) -> tuple[Tensor, ...]:
        # Containers anew, with the same leaves.
        state: Held = pytree.tree_map(lambda x: x, self._first)
        for path, x in zip(self._moving, held, strict=True):
            before = _at(self._first, path)
            _at(state, path[:-1])[path[-1]] = x.clone() if isinstance(before, Tensor) else _number(x, before)
        own, given = [x.clone() for x in weights], [x.clone() for x in gradients]
        with _comparing_numbers(type(self._run._optimizer)), _OpenScalars():
            after = self._run.step(own, given, state, [rate.item() for rate in rates])
            pairs = [(_at(after, path), x) for path, x in zip(self._moving, held, strict=True)]
            return (*own, *[y if isinstance(y, Tensor) else torch.scalar_tensor(y, dtype=x.dtype) for y, x in pairs])


class _FirstValues(dict[str, Any]):
    """A parameter's state, with its values as they are when they are put there."""

    def __init__(self) -> None:
        self.first: dict[str, Any] = {}

    def __setitem__(self, key: str, value: Any) -> None:
        self.first.setdefault(key, copy.deepcopy(value))
        super().__setitem__(key, value)

    def setdefault(self, key: str, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]


# Numbers that are open in a trace.


class _OpenScalars(FunctionMode):
    """Multiplies by what PyTorch's operators take as numbers alone, goes through lists by element, and sees `data`."""

    _SCALED: Mapping[str, Callable[..., Tensor]] = {
        "add": lambda x, y, *, alpha: x + y * alpha,
        "addcdiv": lambda x, a, b, *, value: x + a / b * value,
        "addcmul": lambda x, a, b, *, value: x + a * b * value,
        "lerp": lambda x, end, weight: x + (end - x) * weight,
        "sub": lambda x, y, *, alpha: x - y * alpha,
    }

    def on_call(self, function: Any, args: Args, kwargs: Kwargs) -> Any:
        name = getattr(function, "__name__", "")
        if function == Tensor.data.__get__:  # type: ignore[attr-defined]
            return args[0]
        if function == Tensor.data.__set__:  # type: ignore[attr-defined]
            return args[0].copy_(args[1])
        if name.startswith("_foreach_"):
            method = getattr(Tensor, name.removeprefix("_foreach_"))
            count = range(len(args[0]))
            each = [([_each(x, i) for x in args], {k: _each(x, i) for k, x in kwargs.items()}) for i in count]
            return [self.on_call(method, tuple(own), more) for own, more in each]
        formula = self._SCALED.get(name.removesuffix("_"))
        if formula is None or not any(map(_is_open, (*args[2:], *kwargs.values()))):
            return function(*args, **kwargs)
        result = formula(*args, **kwargs)
        return args[0].copy_(result) if name.endswith("_") else result


def _each(x: Any, place: int) -> Any:
    return x[place] if isinstance(x, (list, tuple)) else x


def _is_open(x: Any) -> bool:
    return isinstance(x, (torch.SymInt, torch.SymFloat))


def _comparing_numbers(kind: type[Any]) -> contextlib.AbstractContextManager[None]:
    """Lets `min` and `max` in an optimizer's code take numbers that are open."""

    def either(name: str, tensors: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            if len(args) == 2 and any(map(_is_open, args)):
                return tensors(*(torch.scalar_tensor(x, dtype=torch.float64) for x in args)).item()
            return getattr(builtins, name)(*args, **kwargs)

        return called

    steps = [inspect.unwrap(vars(each)["step"]) for each in kind.__mro__ if "step" in vars(each)]
    ours = {"min": either("min", torch.minimum), "max": either("max", torch.maximum)}
    return names_added([step.__globals__ for step in steps], ours)


def _number(x: Tensor, before: float) -> Any:
    number = x.item()
    if isinstance(before, int) and before >= 0:
        # What is counted grows.
        torch._check(number >= before)  # type: ignore[no-untyped-call]
    return number


# Values at their places.


def _key(entry: Any) -> Any:
    return entry.idx if isinstance(entry, pytree.SequenceKey) else entry.key


def _at(held: Any, path: Path) -> Any:
    for key in path:
        held = held[key]
    return held


def _name(path: Path, weights: Sequence[str]) -> str:
    side, place, *keys = path
    return "/".join(map(str, (f"group_{place}" if side else weights[place], *keys)))


def _is_number(x: Any) -> bool:
    return isinstance(x, (int, float)) and not isinstance(x, bool)


def _plain_numbers(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: x for name, x in attributes.items() if _is_number(x)}


def _as_tensor(x: Any) -> Tensor:
    if isinstance(x, Tensor):
        return x.detach().clone()
    return torch.tensor(x, dtype=torch.int64 if isinstance(x, int) else torch.float64)
