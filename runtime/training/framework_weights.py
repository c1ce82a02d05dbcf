"""A trained model under the names of the framework that it came from: its weights, and what its layers keep.

Optimizers' slots and counters belong to the training alone.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.errors import InvalidInputError, nearest, repeated, some
from lstm_lower.passes.training.evaluation import evaluation_of
from lstm_lower.records import holdings
from lstm_lower.records import names as recorded_names
from lstm_lower.records.holdings import Holdings
from lstm_lower.records.state import StatePair, TrainingState
from lstm_lower.runtime.training import checkpoint
from lstm_lower.runtime.values import as_array

# Weights on their way back into PyTorch modules; PyTorch itself is not imported, but taken if it has been.


# Where `torch.compile` holds a module, which stands in the names of its weights, too.
_COMPILED = "_orig_mod"


def unwrapped(module: Any) -> Any:
    """The module within what `torch.compile`, `DataParallel` or `DistributedDataParallel` made of it.

    Args:
        module: an `nn.Module`.
    """
    nn = sys.modules["torch"].nn
    while True:
        if _COMPILED in module._modules:
            module = module._modules[_COMPILED]
        elif isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            module = module.module
        else:
            return module


def copy_into(module: Any, values: Mapping[str, np.ndarray[Any, Any]], weights: Sequence[str]) -> None:
    """Copies values into parameters and buffers of the same names; other values are left out.

    Args:
        module: an `nn.Module`, perhaps within what `unwrapped` takes off.
        values: by name.
        weights: names of values that the module must have.

    Raises:
        InvalidInputError: it is no module, lacks one of the weights, or has one of another shape or without numbers;
            nothing is changed.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(module, torch.nn.Module):
        raise InvalidInputError(
            f"to_torch requires an nn.Module that has the weights {some(weights)}, got {_said(module)}"
        )
    tensors = {plain_name(name): tensor for name, tensor in unwrapped(module).state_dict().items()}
    values = {plain_name(name): value for name, value in values.items()}
    missing = [name for name in weights if plain_name(name) not in tensors]
    if missing:
        raise InvalidInputError(f"module requires the weights {some(weights)}, got one without '{missing[0]}'")
    held = [name for name in values if isinstance(tensors.get(name), torch.Tensor)]
    for name in held:
        if torch.nn.parameter.is_lazy(tensors[name]) or tensors[name].is_meta:
            raise InvalidInputError(
                f"module requires room for '{name}', got one without numbers; call a lazy module once with its inputs, "
                "and module.to_empty(device='cpu') where weights are on the device meta"
            )
    shared = {name: _like(values[name], tensors[name]) for name in held}
    for name, value in shared.items():
        if tuple(tensors[name].shape) != value.shape:
            raise InvalidInputError(
                f"module requires '{name}' of shape {list(value.shape)}, got {list(tensors[name].shape)}"
            )
    for name, value in shared.items():
        tensors[name].copy_(tensors[name].new_tensor(value))


def plain_name(name: str) -> str:
    """A weight's name whether or not parts of its module are compiled."""
    return ".".join(part for part in name.split(".") if part != _COMPILED)


def arrays_of(module: Any) -> dict[str, np.ndarray[Any, Any]]:
    """The state dict of a module as arrays; bfloat16, which numpy has not, in float32, as steps compute it.

    Args:
        module: an `nn.Module`, perhaps within what `unwrapped` takes off.

    Raises:
        InvalidInputError: it is no module.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(module, torch.nn.Module):
        raise InvalidInputError(f"from_torch requires an nn.Module, got {_said(module)}")
    tensors = {name: x.detach().cpu() for name, x in unwrapped(module).state_dict().items()}
    return {
        plain_name(name): (x.float() if x.dtype == torch.bfloat16 else x).numpy().copy() for name, x in tensors.items()
    }


def _said(value: Any) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def _like(value: np.ndarray[Any, Any], tensor: Any) -> np.ndarray[Any, Any]:
    """Complex numbers, which are pairs [..., 2] in a step, where the module has such."""
    pairs = tensor.is_complex() and value.dtype.kind == "f" and value.shape[-1:] == (2,)
    return value[..., 0] + 1j * value[..., 1] if pairs else value


# What the module that a step was made of holds, as it is after some steps.


Array = np.ndarray[Any, Any]


class ModuleHoldings:
    """The names of a module's state dict, with what is behind them."""

    def __init__(self, step: ir.Model) -> None:
        """Reads nothing yet.

        Args:
            step: the training step.
        """
        self._step = step
        self._loaded: dict[str, Array] = {}

    @functools.cached_property
    def _held(self) -> Holdings | None:
        return holdings.of(self._step)

    @property
    def states(self) -> list[list[str]] | None:
        """The module's names of each of its values that are state; `None` for a step that is made of no module."""
        if self._held is None:
            return None
        names: dict[str, list[str]] = {}
        for name, source in self._held.states.items():
            names.setdefault(source, []).append(name)
        return list(names.values())

    def beside(self, state: Mapping[str, Array]) -> dict[str, Array]:
        """Entries of a state dict beside the state: further names of tied weights, and what no step changes.

        Args:
            state: by input.
        """
        if self._held is None:
            return {}
        tied = {name: state[source].copy() for name, source in self._held.states.items() if name not in state}
        return tied | {name: self._constant(source) for name, source in self._held.constants.items()}

    def weights(self, state: Mapping[str, Array]) -> dict[str, Array]:
        """The module's state dict, complex numbers as such.

        Args:
            state: by input.
        """
        assert self._held is not None
        values = self.beside(state) | {name: state[source] for name, source in self._held.states.items()}
        for name in self._held.pairs:
            values[name] = values[name][..., 0] + 1j * values[name][..., 1]
        return {name: values[name] for name in (*self._held.states, *self._held.constants)}

    def state_of(self, values: Mapping[str, Any], inputs: Collection[str]) -> dict[str, Any]:
        """The values of the state among those of a state dict.

        What nothing reads is taken up; what the step holds as a constant, and tied weights, have to be as they are.

        Args:
            values: by name.
            inputs: names of the state's inputs.

        Raises:
            InvalidInputError: a constant has another value, or two names of one weight have two.
        """
        if self._held is None:
            return dict(values)
        for name, source in self._held.states.items():
            both = name in values and source in values
            if both and not _same(values[name], values[source]):
                raise InvalidInputError(
                    f"state '{name}' requires the value of '{source}', with which it is tied, got another"
                )
        unread = {}
        for name, source in self._held.constants.items():
            if name in inputs or name not in values:
                continue
            if source not in self._held.read:
                unread[source] = self._fitting(name, source, values[name])
            elif not _same(values[name], self._constant(source)):
                raise InvalidInputError(
                    f"state '{name}' requires the value that the step holds as a constant, got another; leave it out, "
                    "or make the step with frozen='state', which lets it be replaced"
                )
        self._loaded |= unread
        own = {*self._held.states, *self._held.constants} - set(inputs)
        return {name: value for name, value in values.items() if name not in own}

    def state_dict_of(self, weights: Mapping[str, Array]) -> dict[str, Array]:
        """The weights that `weights` gives, or the module's own state dict, as a part of a trainer's state dict.

        Args:
            weights: by name in the module; other names are left out.
        """
        assert self._held is not None
        own = {*self._held.states, *self._held.constants} & set(weights)
        values = {name: weights[name] for name in own}
        for name in own & set(self._held.pairs):
            values[name] = np.stack([values[name].real, values[name].imag], -1)
        tied = {source: values[name] for name, source in self._held.states.items() if name in values}
        return tied | values

    def _fitting(self, name: str, source: str, value: Any) -> Array:
        present = self._constant(source)
        array = as_array(value, present.dtype, f"state '{name}'")
        if array.shape != present.shape:
            raise InvalidInputError(f"state '{name}' requires shape {list(present.shape)}, got {list(array.shape)}")
        return array.copy()

    def _constant(self, source: str) -> Array:
        assert self._held is not None
        held = self._loaded.get(source)
        return np.array(self._held.values[source].numpy() if held is None else held)


def _same(value: Any, held: Array) -> bool:
    array = np.asarray(value)
    # Bytes, since NaN is not equal to itself.
    return array.shape == held.shape and bool(np.array_equal(array, held) or array.tobytes() == held.tobytes())


def names_of(step: ir.Model, state: TrainingState) -> dict[str, str]:
    """State inputs that make up the model -> their names in its framework.

    These are the weights, what the model's evaluation reads, and counters that layers keep beside it, such as PyTorch's
    `num_batches_tracked`. Of a step of `ll.from_keras` it is what Keras calls the weights.

    Raises:
        UnsupportedOpError: it is not certain how the step is evaluated.
    """
    if own := recorded(step):
        return {pair.input: _name(pair) for pair in state.pairs if pair.variable in own}
    read = {str(value.name) for value in evaluation_of(step).graph.inputs}
    names = {pair.input: _name(pair) for pair in state.pairs if pair.role == "weight" or pair.input in read}
    layers = {_scope(_name(pair)) for pair in state.pairs if pair.role == "slot" and pair.input in names} - {""}
    for pair in state.pairs:
        if pair.role == "counter" and _scope(_name(pair)) in layers:
            names[pair.input] = _name(pair)
    return names


def recorded(step: ir.Model) -> frozenset[str]:
    """Keras's names of the weights of the model that a step was made of; nothing for a step of other origin."""
    return recorded_names.parse(step.metadata_props, recorded_names.VARIABLES)


def _name(pair: StatePair) -> str:
    return pair.input if pair.variable is None else pair.variable


def _scope(name: str) -> str:
    """The layer that a variable belongs to, in PyTorch's or in TensorFlow's way of writing."""
    return re.sub(r"[./][^./]*$", "", name) if re.search(r"[./]", name) else ""


def by_name(names: Mapping[str, str], values: Mapping[str, Array]) -> dict[str, Array]:
    """Values under the names of the framework.

    Args:
        names: state input -> name.
        values: by state input.

    Raises:
        InvalidInputError: two values have one name.
    """
    twice = repeated(names.values())
    if twice:
        raise InvalidInputError(f"weights require names of their own, got '{twice[0]}' for several")
    return {name: values[source] for source, name in names.items()}


def load(path: str | os.PathLike[str], names: Sequence[Sequence[str]]) -> dict[str, Array]:
    """Reads values that a trainer, or PyTorch or Keras through safetensors, wrote.

    Args:
        path: the file.
        names: what it must have, under one of its names at least.

    Returns:
        All that it holds.

    Raises:
        InvalidInputError: the file is no safetensors file, or lacks a name.
        FileNotFoundError: there is no such file.
    """
    arrays, _ = checkpoint.read_arrays(path)
    missing = [several[0] for several in names if not any(name in arrays for name in several)]
    if missing:
        raise InvalidInputError(
            f"{Path(path)}: a file with '{missing[0]}' is required, got one with {some(list(arrays))}"
            f"{nearest(missing[0], arrays)}"
        )
    return arrays


def copy_into_keras(model: Any, values: Mapping[str, Array], names: Collection[str] = ()) -> None:
    """Copies values into the variables of a Keras model whose paths a step records.

    A variable that the step does not have, because nothing that it computes reads it, stays as it is.

    Args:
        model: a built model of Keras 3 or tf-keras: the one that the step was made of, one that was loaded, or one
            built anew by the same code, whose layers Keras numbers on.
        values: by Keras' path of each variable, in tf-keras its name.
        names: the paths of all variables that the model had.

    Raises:
        InvalidInputError: it is no such model, or it is not certain which variable is which; nothing is changed.
    """
    variables = _variables(model)
    sources = _matched(_numbered([_path(variable) for variable in variables]), list(dict.fromkeys([*values, *names])))
    pairs = zip(variables, sources, strict=True)
    _assign([(variable, source) for variable, source in pairs if source in values], values)


def copy_traced_into_keras(model: Any, values: Mapping[str, Array], state: TrainingState) -> None:
    """Copies values into the variables of a Keras model that a traced step trains, perhaps beside others.

    Args:
        model: a built model of Keras 3 or tf-keras, as in `copy_into_keras`.
        values: by state input.
        state: what the step changes: the model's variables, the optimizer's, metrics.

    Raises:
        InvalidInputError: it is no such model, or a variable has no name of the step, or several; nothing is changed.
    """
    variables = _variables(model)
    named = by_name({pair.input: _name(pair) for pair in state.pairs}, values)
    weights = tuple(f"/{_name(pair)}" for pair in state.pairs if pair.role == "weight")
    # Slots often have the name of their weight behind their own.
    names = [_name(pair) for pair in state.pairs if pair.role == "weight" or not _name(pair).endswith(weights)]
    # A file has TensorFlow's names, from which paths of Keras 3 differ in subclassed models.
    paths, inner = [_path(variable) for variable in variables], [_tensorflow_name(variable) for variable in variables]
    sources = _traced(paths, names) or _traced(inner, names)
    if not sources:
        called = max(inner, paths, key=lambda each: len({*each} & {*names}))
        doubts = [_doubt(path, called, names) for path in dict.fromkeys(called)]
        raise InvalidInputError(
            f"to_keras requires one name in the step for each variable, got {some([x for x in doubts if x], 12)}; "
            f"the step has {some(names, 12)}"
        )
    _assign(list(zip(variables, sources, strict=True)), named)


def optimizer_pairs(
    optimizer: Any, model: Any, values: Mapping[str, Array], state: TrainingState
) -> list[tuple[Any, Array]]:
    """Variables of a Keras optimizer, and their values in a step; the learning rate stays.

    Args:
        optimizer: of Keras 3 or tf-keras; one that is not built is built for the model's weights.
        model: it trains.
        values: by state input.
        state: what the step changes.

    Raises:
        InvalidInputError: it is no such optimizer, or the step lacks one of its variables, or has another shape.
    """
    if not getattr(optimizer, "built", True):
        # It has counters already, but none of what it keeps of each weight.
        _variables(model)
        optimizer.build(model.trainable_variables)
    listed = getattr(optimizer, "variables", ())
    variables = list(listed() if callable(listed) else listed)
    if not variables or not all(hasattr(variable, "assign") for variable in variables):
        raise InvalidInputError(
            "optimizer requires one of Keras 3 or tf-keras that is built, as "
            f"optimizer.build(model.trainable_variables) does, got {optimizer!r}"
        )
    named = by_name({pair.input: _name(pair) for pair in state.pairs}, values)
    pairs = list(zip(variables, _numbered([_path(variable) for variable in variables]), strict=True))
    missing = [name for _, name in pairs if name not in named and not name.endswith("learning_rate")]
    if missing:
        raise InvalidInputError(
            f"optimizer requires one like that of the step, which has {some(list(named), 12)}, got one with "
            f"{some(missing)}{nearest(missing[0], named)}"
        )
    kept = [(variable, name) for variable, name in pairs if name in named]
    for variable, name in kept:
        if tuple(variable.shape) != named[name].shape:
            wanted, got = list(named[name].shape), list(variable.shape)
            raise InvalidInputError(f"optimizer requires '{name}' of shape {wanted}, got {got}")
    return [(variable, named[name]) for variable, name in kept]


def _variables(model: Any) -> list[Any]:
    variables = list(getattr(model, "weights", ()))
    if not variables or not all(hasattr(variable, "name") and hasattr(variable, "assign") for variable in variables):
        raise InvalidInputError(f"to_keras requires a built model of Keras 3 or tf-keras with weights, got {model!r}")
    return variables


def _path(variable: Any) -> str:
    """The name in tf-keras where Keras 3 has a path."""
    return str(getattr(variable, "path", variable.name.removesuffix(":0")))


def _tensorflow_name(variable: Any) -> str:
    """TensorFlow's name of a variable; its path where Keras runs on another backend."""
    inner = getattr(getattr(variable, "value", None), "name", None)
    return inner.removesuffix(":0") if isinstance(inner, str) else _path(variable)


def _assign(pairs: Sequence[tuple[Any, str]], values: Mapping[str, Array]) -> None:
    for variable, source in pairs:
        if tuple(variable.shape) != values[source].shape:
            raise InvalidInputError(
                f"model requires '{source}' of shape {list(values[source].shape)}, got {list(variable.shape)}"
            )
    for variable, source in pairs:
        variable.assign(values[source])


def _traced(paths: Sequence[str], names: Sequence[str]) -> list[str]:
    """For each variable of a model its name in a step that has others, too; nothing where that is not certain.

    The same name; otherwise, as in `_matched`, one with other numbers, or with something in front of all.
    """
    if len(set(paths)) < len(paths):
        return []
    matches = [list(paths)] if set(paths) <= set(names) else _alike(paths, names)
    if len(matches) != 1 or any(_copies(name, names) - set(matches[0]) for name in matches[0]):
        return []
    return matches[0]


def _alike(paths: Sequence[str], names: Sequence[str]) -> list[list[str]]:
    """The choices of names that differ from the paths by numbers of layers, and by what is in front on one side."""
    fronts = {"", *(name[: at.end()] for name in names for at in re.finditer("/", name))}
    levels = zip(*(path.split("/")[:-1] for path in paths), strict=False)
    common = len(list(itertools.takewhile(lambda level: len(set(level)) == 1, levels)))
    choices = [*(("", dropped) for dropped in range(common + 1)), *((front, 0) for front in sorted(fronts - {""}))]
    matches: list[list[str]] = []
    for front, dropped in choices:
        here = _by_kind(paths, dropped)
        there = _by_kind([name.removeprefix(front) for name in names if name.startswith(front)])
        if any(len(there.get(kind, ())) != len(same) for kind, same in here.items()):
            continue
        pairs = {path: front + name for kind in here for path, name in zip(here[kind], there[kind], strict=True)}
        match = [pairs[path] for path in paths]
        if match not in matches:
            matches.append(match)
    return matches


def _copies(name: str, names: Collection[str]) -> set[str]:
    """Possible further variables of the same name, which are numbered in a step."""
    return {other for other in names if re.fullmatch(rf"{re.escape(name)}_\d+", other)}


def _doubt(path: str, paths: Sequence[str], names: Sequence[str]) -> str:
    """Why it is not certain which name of a step a variable has; nothing where it is."""
    if paths.count(path) > 1:
        return f"'{path}' for {paths.count(path)} variables"
    candidates = sorted({path} & set(names) | (_copies(path, names) - set(paths)))
    if path not in names:
        kind = _NUMBER.sub("", path)
        candidates += [name for name in names if f"/{_NUMBER.sub('', name)}".endswith(f"/{kind}")]
    if candidates == [path]:
        return ""
    return f"{' or '.join(map(repr, dict.fromkeys(candidates))) or 'none'} for '{path}'"


def _numbered(paths: Sequence[str]) -> list[str]:
    """Paths, numbered where several are the same, as `ll.from_keras` numbers them."""
    numbered: dict[str, None] = {}
    for path in paths:
        candidates = itertools.chain([path], (f"{path}_{number}" for number in itertools.count(1)))
        numbered[next(name for name in candidates if name not in numbered)] = None
    return list(numbered)


def _matched(paths: Sequence[str], known: Sequence[str]) -> list[str]:
    """For each path of a model the known name that it stands for.

    Where names differ, one may lack the name of the model in front, as Sequential models that were loaded do, and
    layers may have other numbers: `lstm_3` for `lstm`. Among layers of one kind the order of their numbers is that in
    which they were made.

    Raises:
        InvalidInputError: there is none, or there are others than the model has.
    """
    if set(paths) == set(known):
        return list(paths)
    for here, there in itertools.product((_by_kind(paths), _by_kind(paths, 1)), (_by_kind(known), _by_kind(known, 1))):
        if {kind: len(same) for kind, same in here.items()} == {kind: len(same) for kind, same in there.items()}:
            matches = {path: name for kind in here for path, name in zip(here[kind], there[kind], strict=True)}
            return [matches[path] for path in paths]
    raise InvalidInputError(f"model requires the variables {some(sorted(known), 12)}, got {some(sorted(paths), 12)}")


_NUMBER = re.compile(r"_(\d+)(?=/|$)")


def _by_kind(paths: Sequence[str], dropped: int = 0) -> dict[str, list[str]]:
    """Paths without numbers -> the paths, in the order of their numbers.

    Args:
        paths: the paths.
        dropped: how many names in front are left out, where all paths have the same.
    """
    if len({tuple(path.split("/")[:dropped]) for path in paths}) > 1:
        dropped = 0
    kinds: dict[str, list[str]] = {}
    for path in paths:
        kinds.setdefault(_NUMBER.sub("", "/".join(path.split("/")[dropped:])), []).append(path)
    return {kind: sorted(same, key=_numbers) for kind, same in kinds.items()}


def _numbers(path: str) -> list[int]:
    parts = [_NUMBER.search(part) for part in path.split("/")]
    return [-1 if part is None else int(part[1]) for part in parts]
