"""What goes into a module and comes out of it: flat tensors with names."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import inspect
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lstm_lower.errors import InvalidInputError, UnsupportedOpError
from lstm_lower.replacement import contents_kept
from lstm_lower.torch.hooks import ParameterHooks, handed_on


@dataclasses.dataclass(frozen=True)
class ModuleOperands:
    """A module's example inputs.

    Attributes:
        args: by position.
        kwargs: by name.
        names: of each tensor in them, in order; nested ones are `<parameter>_0`, `<parameter>_<key>`.
        tensors: the tensors, in order.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    names: list[str]
    tensors: list[Tensor]

    @classmethod
    def of(cls, module: nn.Module, example_inputs: Any) -> ModuleOperands:
        """Binds example inputs to the parameters of `forward`.

        Args:
            module: the module.
            example_inputs: a tensor, a tuple by position, or a mapping by name; a named tuple is one argument.

        Raises:
            InvalidInputError: they do not fit, or hold no tensor.
        """
        args: tuple[Any, ...] = ()
        kwargs: dict[str, Any] = {}
        if isinstance(example_inputs, Mapping):
            kwargs = dict(example_inputs)
        elif isinstance(example_inputs, (tuple, list)) and not hasattr(example_inputs, "_fields"):
            args = tuple(example_inputs)
        else:
            args = (example_inputs,)
        # A tensor that is given twice is two inputs.
        tensors = [tensor.detach() for _, tensor in named_tensors("", [args, kwargs])]
        args, kwargs = _replaced((args, kwargs), iter(tensors))
        if args and not tensors and all(isinstance(value, int) for value in args):
            sizes = ", ".join(map(str, args))
            raise InvalidInputError(
                f"example_inputs requires tensors, got the numbers {sizes}; torch.zeros({sizes}) is an example of that "
                "shape"
            )
        signature = inspect.signature(module.forward)
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            way = "; what the loss takes goes to example_targets" if len(args) > len(signature.parameters) else ""
            raise InvalidInputError(
                f"example_inputs requires what {type(module).__name__}.forward takes, {signature}, got: {error}{way}"
            ) from error
        named = []
        for name, value in bound.arguments.items():
            by_keys = bound.signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
            named += named_tensors("" if by_keys else name, value)
        if not named:
            raise InvalidInputError(
                f"example_inputs requires a tensor, several in a tuple, or a mapping of them by name, got "
                f"{brief(example_inputs)}"
            )
        for name, tensor in named:
            if tensor.is_complex():
                raise UnsupportedOpError(
                    f"example_inputs requires real numbers, got '{name}' of {tensor.dtype}; take torch.view_as_real of "
                    "it, and torch.view_as_complex in forward"
                )
        # A call's arguments are walked in the order in which they are given.
        # Names of parameters and buffers are taken.
        own = set(first_names(module).values())
        order = {id(tensor): f"input_{name}" if name in own else name for name, tensor in named}
        return cls(args, kwargs, [order[id(tensor)] for tensor in tensors], tensors)

    def filled(self, tensors: Sequence[Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments with other tensors in place of the examples."""
        args, kwargs = _replaced((self.args, self.kwargs), iter(tensors))
        return args, kwargs


def named_tensors(name: str, value: Any) -> list[tuple[str, Tensor]]:
    """The tensors of a nested value, named after where they are."""
    return [(path, leaf) for path, leaf in leaves(name, value) if isinstance(leaf, Tensor)]


def leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """What a nested value is made of, named after where it is; an empty container is one of them."""
    inside = parts(value)
    if not inside:
        yield name, value
    for key, part in inside:
        yield from leaves(f"{name}_{key}" if name else str(key), part)


def parts(value: Any) -> list[tuple[Any, Any]]:
    """What a container holds, with keys, names or places; nothing of what is none."""
    if isinstance(value, Mapping):
        return list(value.items())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return list(zip(value._fields, value, strict=True))
    return list(enumerate(value)) if isinstance(value, (tuple, list)) else []


def _replaced(value: Any, tensors: Any) -> Any:
    if isinstance(value, Tensor):
        return next(tensors)
    if isinstance(value, Mapping):
        return {key: _replaced(part, tensors) for key, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[_replaced(part, tensors) for part in value])
    if isinstance(value, (tuple, list)):
        return type(value)([_replaced(part, tensors) for part in value])
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        filled = copy.copy(value)
        for key, part in parts(value):
            object.__setattr__(filled, key, _replaced(part, tensors))
        return filled
    return value


@dataclasses.dataclass
class ResultNames:
    """What a step returns; known when it has run.

    Attributes:
        outputs: names of the loss and of what the module returns.
        states: names of buffers and of parameters that it changes, which come last.
    """

    outputs: Sequence[str] = ()
    states: Sequence[str] = ()


class Step(nn.Module):
    """A module, perhaps its loss, and its buffers after the step, with flat tensors in and out.

    Attributes:
        names: of what it returns.
        moved_weights: names of parameters with a gradient, and of complex buffers, that it changes in place.
        changed: the parameters that it changes in place, by name.
        varying: of how many inputs gradients are taken.
    """

    def __init__(
        self, module: nn.Module, operands: ModuleOperands, loss: Any = None, target_names: Sequence[str] = ()
    ) -> None:
        super().__init__()
        self.module = module
        self.loss = loss
        self.train(module.training)
        self._operands = operands
        self._hooks = ParameterHooks(module)
        own = first_names(module).values()
        # A loss that is added later, and its target, are to have their names, too.
        self._taken = {*operands.names, *target_names, "target", *own, *(f"new_{name}" for name in own)}
        if loss is not None:
            self._taken.add("loss")
        # What is made a buffer while the module runs is made anew each time.
        self._buffers_before = [name for name, _ in module.named_buffers()]
        self._moved: list[str] = []
        self.moved_weights: list[str] = []
        self.changed: dict[str, Tensor] = {}
        self.varying = 0
        # An object of its own, since what is set on a module while it is traced is reset.
        self.names = ResultNames()

    def train(self, mode: bool = True) -> Step:
        """Each module stays in the mode that it is in."""
        self.training = mode
        return self

    def follow(self, changed: Sequence[str]) -> None:
        """Makes states of parameters without a gradient that the module changes, such as averages of others."""
        own = dict(self.module.named_parameters())
        self.changed = {name: own[name] for name in changed if name in own}
        self._moved = [name for name, x in self.changed.items() if not x.requires_grad]
        self.moved_weights = [name for name in changed if name not in self._moved]

    def states(self) -> dict[str, Tensor]:
        """What may be changed from step to step beside weights that are trained."""
        parameters = dict(self.module.named_parameters()) if self._moved else {}
        return dict(self.module.named_buffers()) | {name: parameters[name] for name in self._moved}

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Runs the module on its inputs, and the loss on what follows them."""
        count = len(self._operands.names)
        args, kwargs = self._operands.filled(tensors[:count])
        with self._hooks.applied():
            result = self.module(*args, **kwargs)
        named = named_tensors("", result)
        names = _distinct([name for name, _ in named], self._taken)
        named = [(name, tensor) for name, (_, tensor) in zip(names, named, strict=True)]
        if self.loss is not None:
            named.insert(0, ("loss", checked_loss(self.loss(result, *tensors[count:]))))
        for name, tensor in named:
            if tensor.is_complex():
                raise UnsupportedOpError(
                    f"a module's results require real numbers, got '{name}' of {tensor.dtype}; return "
                    "torch.view_as_real of it, or its abs()"
                )
        # What is handed through, or returned twice, needs a value of its own to bear a name.
        taken = {id(tensor) for tensor in (*tensors, *self.module.parameters(), *self.module.buffers())}
        for place, (name, own) in enumerate(named):
            tensor = handed_on(own)
            named[place] = (name, tensor.clone() if id(tensor) in taken else tensor)
            taken.add(id(tensor))
        held = {name: x for name, x in self.states().items() if not x.is_complex()}
        states = [name for name in (*self._buffers_before, *self._moved) if name in held]
        # Runs beside the trace may return more.
        if torch.compiler.is_exporting() or not self.names.outputs:
            self.names.outputs = [name for name, _ in named]
        self.names.states = states
        return (*(tensor for _, tensor in named), *(held[name].clone() for name in states))


def _distinct(names: Sequence[str], taken: Collection[str]) -> list[str]:
    """Names of results; those that are numbers, nothing, or taken have `output` in front, once or more."""
    found: list[str] = []
    for name in names:
        own = name
        while not own or own[:1].isdigit() or own in taken or own in found:
            own = f"output_{own}" if own else "output"
        found.append(own)
    return found


def checked_loss(loss: Any) -> Tensor:
    """A loss, if it is one real number.

    Raises:
        InvalidInputError: it is none.
    """
    got = brief(loss)
    if isinstance(loss, Tensor):
        sizes: list[Any] = list(loss.shape)
        if not loss.is_complex() and all(isinstance(size, int) and size == 1 for size in sizes):
            return loss
        got = f"a {'complex ' if loss.is_complex() else ''}tensor of shape {sizes}"
    raise InvalidInputError(f"loss requires a function that returns one real number as a tensor, got {got}")


def attributes_kept(module: nn.Module) -> contextlib.AbstractContextManager[None]:
    """Undoes what a module sets on itself and its parts while it runs, flags that say what it has done already."""
    attributes = [vars(part) for part in module.modules()]
    # What they hold, such as hooks, comes after them.
    inner = (x for each in attributes for x in each.values() if type(x) in (dict, OrderedDict, list, set))
    return contents_kept(*attributes, *inner)


def weights(module: nn.Module) -> list[tuple[str, Tensor]]:
    """A module's parameters and buffers, those that are shared under all their names."""
    return [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]


def first_names(module: nn.Module) -> dict[int, str]:
    """Identity of a parameter or buffer -> its name; of several names the first one, which a model has."""
    return {id(x): name for name, x in reversed(weights(module))}


def copied_weights(module: nn.Module, *, parameters: bool = False) -> None:
    """Puts copies in the place of buffers, and perhaps of parameters; `attributes_kept` puts them back.

    What stands in several places is copied once, and remains one in all of them.
    """
    copies: dict[int, Tensor] = {}
    for part in module.modules():
        for held in (part._buffers, part._parameters) if parameters else (part._buffers,):
            for name, value in held.items():
                if value is None:
                    continue
                if id(value) not in copies:
                    copies[id(value)] = value.detach().clone().requires_grad_(value.requires_grad)
                held[name] = copies[id(value)]  # type: ignore[assignment]


def as_held(tensor: Tensor) -> Tensor:
    """A tensor as steps hold it: complex numbers as pairs, bfloat16, which numpy has not, in float32."""
    held = tensor.detach().cpu()
    held = torch.view_as_real(held.resolve_conj()) if held.is_complex() else held
    return held.float() if held.dtype == torch.bfloat16 else held


def numbers(tensor: Tensor) -> np.ndarray[Any, Any]:
    """A tensor as an array, as steps hold it."""
    return as_held(tensor).numpy()


def are_equal(a: Any, b: Any) -> bool:
    """Whether values are of one kind and the same, tensors in dtype and contents."""
    if not isinstance(a, Tensor):
        return type(a) is type(b) and bool(a == b)
    return type(a) is type(b) and a.dtype == b.dtype and torch.equal(a, b)


def as_tensors(what: str, values: Any) -> list[Tensor]:
    """Tensors of a tensor, of arrays, or of several in a list.

    Raises:
        InvalidInputError: one is none of these.
    """
    try:
        return [torch.as_tensor(value) for value in (values if isinstance(values, (tuple, list)) else [values])]
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidInputError(f"{what} requires a tensor, or several in a tuple, got {brief(values)}") from error


def brief(value: Any) -> str:
    """A value for a message, or what it is where that would be long."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {list(value.shape)}"
    if value is None or isinstance(value, (str, bytes, int, float, complex)):
        return repr(value)
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, (tuple, list, dict)):
        held = list(value.values() if isinstance(value, dict) else value)
        name = type(value).__name__
        return (
            f"a {name} of {', '.join(map(brief, held[:3]))}{', ...' if len(held) > 3 else ''}"
            if held
            else f"an empty {name}"
        )
    return f"an object of {type(value).__name__}"
