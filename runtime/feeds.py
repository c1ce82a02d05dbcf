"""Feeds for a model: read from `.npz` files, or random ones that the model accepts; and outputs written to `.npz`."""

from __future__ import annotations

import contextlib
import math
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.dims import Dim, is_name
from lstm_lower.errors import InvalidInputError, InvalidModelError, LstmLowerError, damage_told, some
from lstm_lower.graph import standard as std
from lstm_lower.graph.bindings import bind_node, definition_of
from lstm_lower.graph.copies import copy_model
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.structure import verify_structure
from lstm_lower.graph.values import declared_shape
from lstm_lower.opdef import Call
from lstm_lower.passes.malformed import malformed_models_explained
from lstm_lower.passes.opset.conversion import ConvertOpsetPass
from lstm_lower.passes.shapes import InferShapesPass
from lstm_lower.passes.targets.fixed_sizes import name_open_sizes, open_sizes
from lstm_lower.passes.tidy import SortPass
from lstm_lower.records import state as training_state
from lstm_lower.records.files import atomic_path, other_kind, protect
from lstm_lower.records.state import StatePair
from lstm_lower.runtime.feeds_cudnn import with_forward_outputs

# Which integers a graph accepts at an input: derived from how it uses them.


SizeOf = Callable[[Dim], int]
Range = tuple[int, int]


def integer_range(value: ir.Value, size_of: SizeOf, facts: Facts) -> Range | None:
    """The half-open range `[low, high)` in which an integer input makes sense; `None` when the graph does not say.

    Args:
        value: a graph input, or a value that holds a graph input's elements.
        size_of: the size of a dimension, also of a symbolic one.
        facts: what is known of the model's values.
    """
    uses = [_range_of_use(node, index, size_of, facts) for node, index in value.uses()]
    ranges = [range_ for range_ in uses if range_ is not None]
    if not ranges:
        return None
    low, high = max(low for low, _ in ranges), min(high for _, high in ranges)
    return (low, max(high, low + 1))


def _range_of_use(node: ir.Node, index: int, size_of: SizeOf, facts: Facts) -> Range | None:
    definition = definition_of(node)
    if definition is not None:
        return _range_of_operand(bind_node(node, definition, facts), node, index, size_of)
    view = facts.view(node)
    match view:
        case std.Gather() | std.GatherElements() if index == 1 and view.axis is not None:
            return _below(_dim(view.data, view.axis, facts), size_of)
        case std.OneHot() if index == 0:
            depth = view.constant(1)
            return None if depth is None else (0, int(depth.reshape(-1)[0]))
        case std.Moving() | std.Identity() | std.Cast() if index == 0:
            return integer_range(view.output, size_of, facts)
        case std.Where() if index > 0:
            # As where numbers that are refused, or ignored, are replaced by others.
            return integer_range(view.output, size_of, facts)
    return None


def _range_of_operand(call: Call, node: ir.Node, index: int, size_of: SizeOf) -> Range | None:
    """The range of a composite op's operand, as its definition declares it."""
    declared = call.op.input_slots(len(node.inputs), call.attributes)[index].operand
    if declared.counts is not None:
        steps = call.sizes.get(declared.counts)
        return None if steps is None else (1, size_of(steps) + 1)
    if declared.indexes is None:
        return None
    bound = call.operands.get(declared.indexes)
    if bound is not None:
        return None if bound.value is None else (0, int(bound.value))
    return _below(call.sizes.get(declared.indexes), size_of)


def _below(dim: Dim, size_of: SizeOf) -> Range | None:
    return None if dim is None else (0, size_of(dim))


def _dim(value: ir.Value | None, axis: int, facts: Facts) -> Dim | None:
    """One dimension; `None` when it, or even the rank, is unknown."""
    shape = facts.shape(value)
    return None if shape is None or not -len(shape) <= axis < len(shape) else shape[axis]


Array = np.ndarray[Any, Any]

# Of a symbolic dimension that no `--dim` names.
DEFAULT_SIZE = 4

# A size that was not intended could take all memory; while they are drawn, values take 8 bytes each.
MOST_RANDOM = 2**28

# What optimizers and averages keep beside weights begins here: most are squares, which cannot be below zero.
SMALLEST_SLOT, LARGEST_SLOT = 1e-3, 2e-3

# A recorded file holds feeds and results of one run under these prefixes.
FEED_PREFIX, RESULT_PREFIX = "in:", "out:"


def required_inputs(model: ir.Model) -> list[ir.Value]:
    """The graph inputs that have no default value."""
    return [value for value in model.graph.inputs if value.const_value is None]


def symbols(model: ir.Model) -> list[str]:
    """Names of the symbolic dimensions of the graph's inputs, in order."""
    named = [dim for value in required_inputs(model) for dim in declared_shape(value) or () if isinstance(dim, str)]
    return list(dict.fromkeys(named))


def random_feeds(model: ir.Model, sizes: Mapping[str, int] | None = None, seed: int = 0) -> dict[str, Array]:
    """Random feeds for a model.

    Floating inputs are uniform in [-0.5, 0.5). Integer inputs that the graph uses as indices, class numbers or
    sequence lengths stay inside their range; others are 0 or 1. What a cuDNN backward op takes as its forward op's
    output is one. State that has no first value gets one by `random_state`.

    Args:
        model: the model.
        sizes: sizes of open dimensions by name or place (`x.2`); others are `DEFAULT_SIZE`.
        seed: of the generator; each input's values depend on it and on the input's position only.

    Raises:
        InvalidInputError: `sizes` names no dimension of an input, or an input is too large.
        InvalidModelError: an input's dtype or rank is not known, or shapes contradict each other.
    """
    with malformed_models_explained(model):
        return _random_feeds(model, dict(sizes or {}), seed)


def drawn_sizes(model: ir.Model, sizes: Mapping[str, int]) -> dict[str, int]:
    """The sizes by name that random feeds have where a model leaves them open and names them.

    Args:
        model: the model.
        sizes: as `random_feeds` takes them.
    """
    return {name: _size(name, sizes) for name in symbols(model) if is_name(name)}


@contextlib.contextmanager
def drawn_sizes_explained(
    model: ir.Model,
    sizes: Mapping[str, int],
    *,
    drawn: bool = True,
    error: type[LstmLowerError] = InvalidInputError,
) -> Iterator[None]:
    """Where random feeds do not fit a model, says which sizes they had, which may be defaults.

    Args:
        model: the model.
        sizes: sizes of symbolic dimensions, as `random_feeds` takes them.
        drawn: whether the feeds are random ones; nothing is added otherwise.
        error: what is raised inside by feeds that do not fit.

    Raises:
        LstmLowerError: the error raised inside, with the sizes.
    """
    try:
        yield
    except error as raised:
        ways = _other_sizes(model, sizes) if drawn else []
        if not ways:
            raise
        raise error("; ".join([str(raised), *ways])) from raised


def _other_sizes(model: ir.Model, sizes: Mapping[str, int]) -> list[str]:
    """The sizes of random feeds, which may be defaults, and how others are given."""
    others = []
    if chosen := drawn_sizes(model, sizes):
        listed = ", ".join(f"{name}={size}" for name, size in chosen.items())
        others.append(f"the random feeds are of {listed}; others by --dim NAME=SIZE, in Python by `sizes`")
    required = required_inputs(model)
    places = {name: places[0] for name, places in open_sizes(model).items() if places[0][0] in required}
    if unnamed := {name: x for name, (x, axis) in places.items() if (declared_shape(x) or ())[axis] is None}:
        listed = some([f"{name}={_size(name, sizes)}" for name in unnamed])
        ways = "others by --dim or -i FILE.npz, in Python by `sizes` or `feeds`"
        others.append(f"the random feeds have sizes without names, {listed}; {ways}")
    return others


def _random_feeds(model: ir.Model, sizes: Mapping[str, int], seed: int) -> dict[str, Array]:
    model = copy_model(model)
    SortPass()(model)
    verify_structure(model)
    ConvertOpsetPass()(model)
    InferShapesPass()(model)
    known = [name for name, places in open_sizes(model).items() if any(x.const_value is None for x, _ in places)]
    for name in sizes:
        if name not in known:
            raise InvalidInputError(f"sizes (--dim) require names of open sizes of inputs, {known}, got '{name}'")
    name_open_sizes(model, sizes)
    state = {pair.input: pair for pair in training_state.read(model).pairs}
    feeds, facts = {}, Facts.of(model)
    for index, value in enumerate(required_inputs(model)):
        shape = declared_shape(value)
        if value.dtype in (None, ir.DataType.UNDEFINED) or shape is None:
            raise InvalidModelError(f"input '{value.name}' requires a known dtype and rank for random values")
        assert value.name is not None
        concrete = tuple(_size(dim, sizes) for dim in shape)
        try:
            rng = np.random.default_rng([seed, index])
            if value.name in state and value.dtype is not None:
                feeds[value.name] = random_state(state[value.name], concrete, value.dtype, rng)
            else:
                feeds[value.name] = _random(value, concrete, sizes, facts, rng)
        except InvalidModelError:
            raise
        except (MemoryError, ValueError) as error:
            got = f"{list(concrete)}, which do not fit into memory: {error}"
            raise InvalidInputError(f"input '{value.name}' requires sizes for random values, got {got}") from error
    return with_forward_outputs(model, feeds)


def _size(dim: Dim, sizes: Mapping[str, int]) -> int:
    return dim if isinstance(dim, int) else sizes.get(str(dim), DEFAULT_SIZE)


def _random(
    value: ir.Value, shape: tuple[int, ...], sizes: Mapping[str, int], facts: Facts, rng: np.random.Generator
) -> Array:
    assert value.dtype is not None
    if math.prod(shape) > MOST_RANDOM:
        raise MemoryError(f"more than {MOST_RANDOM} elements, which a .npz file may hold")
    dtype = value.dtype.numpy()
    if value.dtype.is_floating_point():
        return np.asarray(rng.uniform(-0.5, 0.5, shape)).astype(dtype)
    if value.dtype == ir.DataType.BOOL:
        return np.asarray(rng.random(shape) < 0.5)
    if value.dtype.is_integer():
        low, high = integer_range(value, lambda dim: _size(dim, sizes), facts) or (0, 2)
        return np.asarray(rng.integers(low, high, shape)).astype(dtype)
    raise InvalidModelError(f"input '{value.name}' requires numbers for random values, got {value.dtype.name}")


def random_state(pair: StatePair, shape: tuple[int, ...], dtype: ir.DataType, rng: np.random.Generator) -> Array:
    """A random first value of a model's state.

    Weights are of the usual size, what an optimizer keeps is positive and small, powers of decay rates are 0.9,
    integers 0.
    """
    if not dtype.is_floating_point():
        return np.zeros(shape, dtype.numpy())
    if not shape:
        return np.asarray(0.9, dtype.numpy())
    if pair.role == "slot":
        drawn = rng.uniform(SMALLEST_SLOT, LARGEST_SLOT, shape)
    else:
        drawn = rng.standard_normal(shape) / np.sqrt(max(1, int(np.prod(shape[:-1]))))
    return drawn.astype(dtype.numpy())


class ArrayFile(Mapping[str, Array]):
    """The arrays of a `.npz` file, each of which is read when it is asked for.

    Attributes:
        path: where it is.
    """

    def __init__(self, path: Path, entries: Mapping[str, str]) -> None:
        """Takes what `read_arrays` found: what arrays are called here, and in the file."""
        self.path, self._entries = path, entries

    def __getitem__(self, name: str) -> Array:
        """Reads an array.

        Raises:
            InvalidInputError: it is damaged, or of objects.
        """
        entry = self._entries[name]
        with (
            damage_told(lambda error: no_arrays(self.path, error)),
            np.load(self.path, allow_pickle=False) as file,
        ):
            array = file[entry]
        if not isinstance(array, np.ndarray):
            raise InvalidInputError(f"{self.path}: a .npz file of arrays is required, got another entry, '{entry}'")
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def no_arrays(path: Path, error: object) -> InvalidInputError:
    """The error of a file in which numpy finds no arrays."""
    return InvalidInputError(f"{path}: a .npz file of arrays is required, got one that fails to load: {error}")


def read_arrays(path: str | os.PathLike[str]) -> tuple[ArrayFile, ArrayFile]:
    """Opens a `.npz` file of feeds.

    Returns:
        Feeds by input name, and recorded results by output name: the entries `in:<name>` and `out:<name>`, or, where
        no entry has such a prefix, all entries as feeds. Arrays are read when they are asked for: what is no input of
        a model costs nothing.

    Raises:
        InvalidInputError: the file is no `.npz` file.
        FileNotFoundError: there is no such file.
    """
    path = Path(path)
    kind = other_kind(path)
    if kind is not None:
        raise InvalidInputError(f"{path}: a .npz file of arrays is required, got a {kind}")
    protect(path)
    with path.open("rb") as stream:
        if not zipfile.is_zipfile(stream):
            raise InvalidInputError(
                f"{path}: a .npz file as numpy.savez writes it is required, got something else or a damaged one"
            )
        stream.seek(0)
        with damage_told(lambda error: no_arrays(path, error)), np.load(stream, allow_pickle=False) as file:
            names = list(file.files)
    marked = all(name.startswith((FEED_PREFIX, RESULT_PREFIX)) for name in names)
    if not marked:
        return ArrayFile(path, {name: name for name in names}), ArrayFile(path, {})
    feeds, results = (
        ArrayFile(path, {name.removeprefix(prefix): name for name in names if name.startswith(prefix)})
        for prefix in (FEED_PREFIX, RESULT_PREFIX)
    )
    return feeds, results


def write_arrays(path: str | os.PathLike[str], arrays: Mapping[str, Array]) -> None:
    """Writes a `.npz` file, whole or not at all; names may be any, also those that `numpy.savez` takes for its own.

    Raises:
        InvalidInputError: a value is not a tensor of numbers or strings.
        OSError: nothing can be written there.
    """
    plain = {name: _without_objects(name, array) for name, array in arrays.items()}
    with atomic_path(Path(path)) as temporary, zipfile.ZipFile(temporary, "w", allowZip64=True) as archive:
        for name, array in plain.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)


def _without_objects(name: str, value: Any) -> Array:
    """A value as a file may hold it; onnxruntime's strings are objects, which it must not hold."""
    array = np.asanyarray(value) if isinstance(value, (np.ndarray, np.generic)) else None
    if array is not None and array.dtype.kind == "O" and all(isinstance(text, str) for text in array.flat):
        array = array.astype(np.str_)
    if array is None or array.dtype.hasobject:
        raise InvalidInputError(f"'{name}' requires a tensor of numbers or strings, got {type(value).__name__}")
    return array
