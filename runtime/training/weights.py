"""What a trained model is, under the names of the framework that it came from: its weights, and what its layers keep.

Optimizers' slots and counters belong to the training alone.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.errors import InvalidInputError, nearest, repeated, some
from lstm_lower.passes.training.evaluation import evaluation_of
from lstm_lower.records import names as recorded_names
from lstm_lower.records.state import StatePair, TrainingState
from lstm_lower.runtime.training import checkpoint

Array = np.ndarray[Any, Any]


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
    found = {pair.input: _name(pair) for pair in state.pairs if pair.role == "weight" or pair.input in read}
    layers = {_scope(_name(pair)) for pair in state.pairs if pair.role == "slot" and pair.input in found} - {""}
    for pair in state.pairs:
        if pair.role == "counter" and _scope(_name(pair)) in layers:
            found[pair.input] = _name(pair)
    return found


def recorded(step: ir.Model) -> frozenset[str]:
    """What Keras calls the weights of the model that a step was made of; nothing for a step of other origin."""
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
    """Copies values into the variables of a Keras model.

    A variable that the step does not have, because nothing that it computes reads it, stays as it is.

    Args:
        model: a built model of Keras 3 or tf-keras: the one that the step was made of, one that was loaded, or one
            built anew by the same code, whose layers Keras numbers on.
        values: by Keras' path of each variable, in tf-keras its name.
        names: the paths of all variables that the model had, where they are recorded.

    Raises:
        InvalidInputError: it is no such model, or it is not certain which variable is which; nothing is changed.
    """
    variables = list(getattr(model, "weights", ()))
    if not variables or not all(hasattr(variable, "name") and hasattr(variable, "assign") for variable in variables):
        raise InvalidInputError(f"to_keras requires a built model of Keras 3 or tf-keras with weights, got {model!r}")
    # tf-keras has names where Keras 3 has paths.
    paths = [str(getattr(variable, "path", variable.name.removesuffix(":0"))) for variable in variables]
    known = list(dict.fromkeys([*values, *names]))
    sources = _matched(_numbered(paths), known)
    found = [(variable, source) for variable, source in zip(variables, sources, strict=True) if source in values]
    for variable, source in found:
        if tuple(variable.shape) != values[source].shape:
            raise InvalidInputError(
                f"model requires '{source}' of shape {list(values[source].shape)}, got {list(variable.shape)}"
            )
    for variable, source in found:
        variable.assign(values[source])


def _numbered(paths: Sequence[str]) -> list[str]:
    """Paths, numbered where several are the same, as `ll.from_keras` numbers them."""
    found: dict[str, None] = {}
    for path in paths:
        candidates = itertools.chain([path], (f"{path}_{number}" for number in itertools.count(1)))
        found[next(name for name in candidates if name not in found)] = None
    return list(found)


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
        if {kind: len(found) for kind, found in here.items()} == {kind: len(found) for kind, found in there.items()}:
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
    return {kind: sorted(found, key=_numbers) for kind, found in kinds.items()}


def _numbers(path: str) -> list[int]:
    parts = [_NUMBER.search(part) for part in path.split("/")]
    return [-1 if part is None else int(part[1]) for part in parts]
