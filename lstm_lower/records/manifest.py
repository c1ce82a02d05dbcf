"""`training.json`: what is in a bundle, for programs in any language. docs/bundle.md describes its form."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from lstm_lower.errors import InvalidModelError, damage_told
from lstm_lower.graph.values import declared_shape
from lstm_lower.records import evaluation, recipe
from lstm_lower.records import state as training_state
from lstm_lower.records.files import is_data_of, path_within
from lstm_lower.records.model_files import data_in
from lstm_lower.records.wire import places

NAME = "training.json"
FORMAT = "lstm-lower.bundle"
VERSION = 2

# Hexadecimal digits of a SHA-256, and what stands in their place when a description's own is computed.
_UNSEALED = "0" * 64

Array = np.ndarray[Any, Any]


@dataclasses.dataclass(frozen=True)
class Making:
    """How a bundle was made.

    Attributes:
        producer: the program and its version.
        onnxruntime: the version that has loaded the models.
        tested: runtime -> its version, with which bundles of this producer are tested.
        target: what they were written for, or `None`.
        sample_axes: data input -> the axis along which samples lie.
        class_names: of the classes that it predicts, or `None`.
    """

    producer: str
    onnxruntime: str
    tested: Mapping[str, str]
    target: str | None
    sample_axes: Mapping[str, int]
    class_names: Sequence[str] | None = None


@dataclasses.dataclass(frozen=True)
class Totals:
    """Values that an evaluation carries from batch to batch, without being state of the step.

    Attributes:
        outputs: input with the value before a batch -> output with the value after it.
        first: input -> its value before the first batch.
        readers: outputs that are computed from them.
    """

    outputs: Mapping[str, str]
    first: Mapping[str, Array]
    readers: Collection[str]


# What JSON has no number for, as Python and JavaScript both read it.
_WORDS = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}

NO_TOTALS = Totals({}, {}, ())

# Files that a bundle may hold: models, and their data under names of ours, also of bundles of former versions.
_FILE = re.compile(r"(init|train|eval|predict)\.onnx(\.[0-9a-f]{16})?(\.data)?|weights\.[0-9a-f]{16}\.data")

# Fields of onnx.proto: ModelProto.graph, GraphProto.initializer, TensorProto.name and .raw_data.
_GRAPH, _INITIALIZER, _TENSOR_NAME, _RAW_DATA = 7, 5, 8, 9


_CHANGED = "it is damaged or was changed; copy all files of the bundle again, or export it again"

# What the name of a file of weights that several models share begins with.
WEIGHTS = "weights"


def file_name(file: str) -> str:
    """The name of a file of a bundle."""
    return f"{file}.onnx"


def describe(
    step: ir.Model,
    rate: float | None,
    models: Mapping[str, ir.Model],
    folder: Path,
    making: Making,
    totals: Totals = NO_TOTALS,
) -> dict[str, Any]:
    """The contents of a bundle.

    Args:
        step: the training step, with its record of state; inputs have no defaults.
        rate: the learning rate, or `None`.
        models: file -> its model, as written.
        folder: where the files lie.
        making: how they were made.
        totals: of the evaluation.
    """
    state = training_state.of(step)
    inputs = {str(value.name): value for value in step.graph.inputs}
    pairs = {pair.input: pair for pair in state.pairs}
    outputs = {str(value.name) for value in step.graph.outputs}
    gradients = {pair.input: _gradient(pair, outputs) for pair in state.pairs}
    apart = {state.loss, *(pair.output for pair in state.pairs), *gradients.values()}
    files = {file: _file(folder, file_name(file), model) for file, model in models.items()}
    located = _weights(folder, file_name("predict")) if "predict" in models else {}
    return {
        "format": FORMAT,
        "version": VERSION,
        "digest": _UNSEALED,
        "producer": making.producer,
        "onnxruntime": making.onnxruntime,
        "tested": dict(making.tested),
        "opset": next(iter(models.values())).graph.opset_imports[""],
        "target": making.target,
        "files": files,
        "hashes": {name: _hash(folder / name) for entry in files.values() for name in (entry["model"], *entry["data"])},
        "sizes": [value.name for value in models["init"].graph.inputs] if "init" in models else [],
        "loss": state.loss,
        **_recipe(step),
        "class_names": making.class_names,
        "learning_rate": None
        if state.learning_rate is None
        else {**_tensor(inputs[state.learning_rate]), "value": rate},
        "state": [
            {
                **_tensor(inputs[pair.input], "input"),
                "output": pair.output,
                "role": pair.role,
                "gradient": gradients[pair.input],
                "variable": pair.variable,
                "predict": located.get(pair.input),
            }
            for pair in state.pairs
        ],
        "data": [
            {**_tensor(x), "sample_axis": making.sample_axes.get(name)}
            for name, x in inputs.items()
            if name not in pairs and name != state.learning_rate
        ],
        "outputs": [_tensor(value) for value in step.graph.outputs if value.name not in apart],
        **{file: _part(models[file], set(pairs), totals) for file in ("eval", "predict") if file in models},
    }


def _recipe(step: ir.Model) -> dict[str, Any]:
    """How the step was made, as far as it is known."""
    held = recipe.parse(step.metadata_props)
    updates = [
        {**dataclasses.asdict(each.optimizer), "schedule": each.schedule and dataclasses.asdict(each.schedule),
         "weights": list(each.weights)}
        for each in held.updates
    ]  # fmt: skip
    return {
        "loss_function": held.loss and dataclasses.asdict(held.loss),
        "optimizer": updates or None,
        "trainer": {"accumulate": 1, "clip_norm": None, "clip_value": None, "ema": None} | dict(held.limits),
    }


def write(description: Mapping[str, Any], folder: Path) -> None:
    """Writes a description into a folder, with a hash of itself.

    Args:
        description: of a bundle.
        folder: where its models lie.
    """
    text = json.dumps({**description, "digest": _UNSEALED}, indent=1, allow_nan=False) + "\n"
    digest = hashlib.sha256(text.encode()).hexdigest()
    (folder / NAME).write_text(text.replace(_UNSEALED, digest, 1), encoding="utf-8")


def read(folder: Path) -> dict[str, Any]:
    """The description of a bundle, compared with the hash that stands in it.

    Raises:
        InvalidModelError: it is damaged, or of another version than the last.
        FileNotFoundError: there is none.
    """
    path = path_within(folder, NAME, NAME)
    content = path.read_bytes()
    with damage_told(lambda error: InvalidModelError(f"{path}: a description in JSON is required, got {error}")):
        about = json.loads(content)
        kind = about["format"], about["version"]
        digest = str(about.get("digest", ""))
    if kind != (FORMAT, VERSION):
        raise InvalidModelError(f"{path}: a bundle of version {VERSION} is required, got {kind}; export it again")
    unsealed = content.replace(f'"digest": "{digest}"'.encode(), f'"digest": "{_UNSEALED}"'.encode(), 1)
    if hashlib.sha256(unsealed).hexdigest() != digest:
        raise InvalidModelError(f"{path} requires the hash that stands in it, got another one: {_CHANGED}")
    return dict(about)


def check_files(folder: Path, about: Mapping[str, Any], file: str) -> None:
    """Compares the files of a model with their hashes.

    Raises:
        InvalidModelError: one is damaged, or of another bundle.
        FileNotFoundError: one is not there.
    """
    entry = about["files"][file]
    for name in (entry["model"], *entry["data"]):
        if _hash(path_within(folder, name, NAME)) != about["hashes"][name]:
            raise InvalidModelError(f"{folder / name} requires the hash that {NAME} names, got another one: {_CHANGED}")


def files_of(folder: Path) -> list[str]:
    """Files of the bundle that a folder holds, as far as its description is one.

    Names in it are anybody's: those of other files than a bundle's are left out, and so are those that lead elsewhere.
    """
    with contextlib.suppress(OSError, ValueError, RecursionError, AttributeError, TypeError, KeyError):
        files = json.loads(path_within(folder, NAME, NAME).read_text(encoding="utf-8"))["files"]
        names = [name for entry in files.values() for name in (entry["model"], *entry["data"])]
        return [name for name in names if isinstance(name, str) and _FILE.fullmatch(name)]
    return []


def _gradient(pair: training_state.StatePair, outputs: Collection[str]) -> str | None:
    """The output with a weight's gradient: of an Embedding, whose update reads rows one by one, their sum."""
    summed = f"grad/{pair.variable}"
    return summed if pair.gradient is None and pair.role == "weight" and summed in outputs else pair.gradient


def _hash(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _file(folder: Path, name: str, model: ir.Model) -> dict[str, Any]:
    own = {path.name for path in folder.iterdir() if is_data_of(path, name)}
    return {"model": name, "data": sorted(own | data_in(model, folder))}


def _part(model: ir.Model, state: set[str], totals: Totals) -> dict[str, Any]:
    named = evaluation.predictions(model) or []
    inputs, outputs = model.graph.inputs, model.graph.outputs
    apart = {training_state.read(model).loss, *named, *totals.outputs.values()}
    counting = {str(value.name): _tensor(value, "input") for value in inputs if value.name in totals.outputs}
    return {
        "state": [value.name for value in inputs if value.name in state],
        "data": [_tensor(value) for value in inputs if value.name not in state | counting.keys()],
        "metrics": [_tensor(value) for value in outputs if value.name not in apart],
        "predictions": [_tensor(value) for value in outputs if value.name in named],
        "totals": [
            {**entry, "output": totals.outputs[name], "first": _first(totals.first[name])}
            for name, entry in counting.items()
        ],
        "of_all_batches": [value.name for value in outputs if value.name in totals.readers],
    }


def _first(value: Array) -> Any:
    """One number where all elements are equal, else all of them in row-major order."""
    flat = [each if math.isfinite(each) else _WORDS[str(each)] for each in value.reshape(-1).tolist()]
    return flat[0] if flat and len(set(flat)) == 1 else flat


def _tensor(value: ir.Value, key: str = "name") -> dict[str, Any]:
    shape = declared_shape(value)
    dtype = value.dtype
    return {
        key: value.name,
        "dtype": None if dtype is None else _dtype(dtype),
        "shape": None if shape is None else list(shape),
    }


def _dtype(dtype: ir.DataType) -> str:
    return "string" if dtype == ir.DataType.STRING else str(dtype.numpy().name)


def _weights(folder: Path, name: str) -> dict[str, dict[str, Any]]:
    """Initializer -> where its bytes lie: file, first byte, and how many."""
    content = memoryview((folder / name).read_bytes())
    proto = onnx.ModelProto.FromString(content)
    found: dict[str, dict[str, Any]] = {
        weight: {"file": name, "offset": start, "length": end - start} for weight, start, end in _raw(content)
    }
    for tensor in proto.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            entries = {entry.key: entry.value for entry in tensor.external_data}
            offset, length = int(entries.get("offset", "0")), int(entries["length"])
            found[tensor.name] = {"file": entries["location"], "offset": offset, "length": length}
    return found


def _raw(content: memoryview) -> Iterator[tuple[str, int, int]]:
    for number, start, end in places(content, 0, len(content)):
        if number != _GRAPH:
            continue
        for inner, first, last in places(content, start, end):
            if inner == _INITIALIZER:
                fields = {field: (begin, stop) for field, begin, stop in places(content, first, last)}
                if _TENSOR_NAME in fields and _RAW_DATA in fields:
                    begin, stop = fields[_TENSOR_NAME]
                    yield bytes(content[begin:stop]).decode(), *fields[_RAW_DATA]
