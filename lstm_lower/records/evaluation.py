"""What evaluates a training step: a graph of its own, which travels in the step's metadata.

A step's own graph runs dropout, normalizes by the statistics of one batch and moves running ones. What evaluates is
made where the source is still known, and kept under the key `lstm_lower.evaluation`. Of a recorded evaluation,

- inputs have the step's names and are all required: data and targets, and of the state what it reads;
- outputs are the loss, metrics and the model's own outputs; `predictions` says which ones are the latter;
- nothing is random, and no state changes.

Weights are not in it, but for constants of its own; large ones that the step has as well are referred to. How it is
written is private to this module: JSON that holds a compressed protobuf, with a digest of each constant referred to.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError

from lstm_lower.errors import InvalidModelError
from lstm_lower.graph.copies import copy_model
from lstm_lower.records import state as training_state
from lstm_lower.records.model_files import as_proto, load, read_all

METADATA_KEY = "lstm_lower.evaluation"
VERSION = 1

# Names of the outputs that are the model's own, in the metadata of the evaluation itself.
PREDICTIONS_KEY = "lstm_lower.predictions"

# Smaller constants are stored; a reference would take as much room.
_SMALL = 1 << 10

# A protobuf is no larger; more is no record of ours.
_LIMIT = 1 << 31


@dataclasses.dataclass(frozen=True)
class _Record:
    """A record as it is written.

    Attributes:
        packed: the evaluation, constants that are referred to among its inputs, as a compressed protobuf in base64.
        constants: initializer of the step -> digest of what it holds.
    """

    packed: str
    constants: Mapping[str, str]

    @classmethod
    def of(cls, model: ir.Model, constants: Mapping[str, str]) -> _Record:
        content = as_proto(model).SerializeToString()
        return cls(base64.b64encode(zlib.compress(content, 9)).decode("ascii"), constants)

    def text(self) -> str:
        entries = {"version": VERSION, "constants": dict(self.constants), "model": self.packed}
        return json.dumps(entries, separators=(",", ":"))

    def model(self) -> onnx.ModelProto:
        """The evaluation as it was packed.

        Raises:
            InvalidModelError: it was not packed by `of`.
        """
        packed = zlib.decompressobj()
        try:
            content = packed.decompress(base64.b64decode(self.packed, validate=True), _LIMIT)
            model: onnx.ModelProto = onnx.ModelProto.FromString(content)
        except (ValueError, zlib.error, DecodeError) as error:
            raise _malformed(self.packed[:80]) from error
        if not packed.eof:
            raise _malformed(self.packed[:80])
        return model


def write(model: ir.Model, evaluation: ir.Model, predictions: Sequence[str]) -> None:
    """Records what evaluates a step, in place of what the step recorded before.

    Args:
        model: the step.
        evaluation: a model whose inputs are inputs of the step; defaults are left out. It is not changed.
        predictions: which of its outputs are the model's own.

    Raises:
        InvalidModelError: an input is none of the step, or an output to be a prediction is none.
    """
    _check_inputs(model, evaluation)
    outputs = [value.name for value in evaluation.graph.outputs]
    if unknown := [name for name in predictions if name not in outputs]:
        raise InvalidModelError(f"prediction '{unknown[0]}' must be one of the outputs {outputs}")
    kept = copy_model(evaluation)
    training_state.detach_initial_values(kept)
    kept.metadata_props[PREDICTIONS_KEY] = json.dumps(list(predictions))
    constants = {}
    for name, value in list(kept.graph.initializers.items()):
        held = model.graph.initializers.get(name)
        if held is None or held.const_value is None or held.is_graph_input() or value.is_graph_output():
            continue
        if held.const_value.nbytes < _SMALL or not _equal(value.const_value, held.const_value):
            continue
        constants[name] = _digest(held.const_value)
        value.type, value.shape = ir.TensorType(held.const_value.dtype), ir.Shape(held.const_value.shape.numpy())
        value.const_value = None
        del kept.graph.initializers[name]
        kept.graph.inputs.append(value)
    read_all(kept)
    model.metadata_props[METADATA_KEY] = _Record.of(kept, constants).text()


def of(model: ir.Model) -> ir.Model | None:
    """What evaluates a step as the step records it, or `None` without a record.

    Raises:
        InvalidModelError: the record is malformed, or the step no longer holds what it refers to.
    """
    record = _parse(model.metadata_props)
    if record is None:
        return None
    evaluation = load(record.model())
    inputs = {value.name: value for value in evaluation.graph.inputs}
    for name, digest in record.constants.items():
        tensor = _constant(model, name)
        if tensor is None or name not in inputs or _digest(tensor) != digest:
            raise InvalidModelError(
                f"metadata '{METADATA_KEY}' requires the constant '{name}' of the model that it was written for, got a "
                "model without it; evaluate the step as it was exported, or change it with ll.lower and ll.optimize, "
                "which keep what evaluates it"
            )
        value = inputs[name]
        evaluation.graph.inputs.remove(value)
        value.const_value = tensor
        evaluation.graph.register_initializer(value)
    _check_inputs(model, evaluation)
    return evaluation


def predictions(evaluation: ir.Model) -> list[str] | None:
    """Names of the outputs that are the model's own; `None` where they were not recorded.

    Raises:
        InvalidModelError: the record is malformed.
    """
    text = evaluation.metadata_props.get(PREDICTIONS_KEY)
    if text is None:
        return None
    outputs = [value.name for value in evaluation.graph.outputs]
    try:
        names = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _malformed(text[:80]) from error
    if not isinstance(names, list) or any(name not in outputs for name in names):
        raise _malformed(text[:80])
    return [str(name) for name in names]


def references(model: ir.Model) -> dict[str, ir.TensorProtocol]:
    """The constants of a step that its record refers to; none without a record, or with one that is malformed."""
    try:
        record = _parse(model.metadata_props)
    except InvalidModelError:
        return {}
    found = {name: _constant(model, name) for name in (record.constants if record is not None else ())}
    return {name: tensor for name, tensor in found.items() if tensor is not None}


def restore(model: ir.Model, constants: Mapping[str, ir.TensorProtocol]) -> None:
    """Puts constants into the record that passes have taken out of the step or changed.

    Args:
        model: the step.
        constants: `references` of the step before the passes ran.
    """
    lost = {name: tensor for name, tensor in constants.items() if not _same(_constant(model, name), tensor)}
    record = _parse(model.metadata_props) if lost else None
    if record is None:
        return
    kept = load(record.model())
    for value in [value for value in kept.graph.inputs if value.name in lost]:
        assert value.name is not None
        kept.graph.inputs.remove(value)
        value.const_value = ir.tensor(lost[value.name].numpy(), dtype=lost[value.name].dtype, name=value.name)
        kept.graph.register_initializer(value)
    rest = {name: digest for name, digest in record.constants.items() if name not in lost}
    model.metadata_props[METADATA_KEY] = _Record.of(kept, rest).text()


def _parse(metadata_props: Mapping[str, str]) -> _Record | None:
    text = metadata_props.get(METADATA_KEY)
    if text is None:
        return None
    try:
        entries = json.loads(text)
        version, constants, packed = entries["version"], entries["constants"], entries.get("model")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise _malformed(text[:80]) from error
    if version != VERSION:
        raise InvalidModelError(f"metadata '{METADATA_KEY}' requires version {VERSION}, got {version!r}")
    if not isinstance(packed, str) or not isinstance(constants, dict):
        raise _malformed(text[:80])
    return _Record(packed, {str(name): str(digest) for name, digest in constants.items()})


def _malformed(got: str) -> InvalidModelError:
    return InvalidModelError(f"metadata '{METADATA_KEY}' requires the form that lstm-lower writes, got {got!r}")


def _check_inputs(model: ir.Model, evaluation: ir.Model) -> None:
    known = {value.name: value.dtype for value in model.graph.inputs}
    for value in evaluation.graph.inputs:
        if value.name not in known or known[value.name] != value.dtype:
            raise InvalidModelError(
                f"an evaluation requires inputs of its training step, got '{value.name}' of dtype {value.dtype}, which "
                f"is none of {list(known)}"
            )


def _constant(model: ir.Model, name: str) -> ir.TensorProtocol | None:
    value = model.graph.initializers.get(name)
    return None if value is None or value.is_graph_input() else value.const_value


def _same(now: ir.TensorProtocol | None, before: ir.TensorProtocol) -> bool:
    return now is before or (now is not None and _equal(now, before))


def _equal(a: ir.TensorProtocol | None, b: ir.TensorProtocol) -> bool:
    if a is None or a.dtype != b.dtype or tuple(a.shape.numpy()) != tuple(b.shape.numpy()):
        return False
    # Bytes, since NaN is not equal to itself.
    return a is b or bool(np.array_equal(_bytes(a), _bytes(b)))


def _digest(tensor: ir.TensorProtocol) -> str:
    header = f"{tensor.dtype.name}{list(tensor.shape.numpy())}"
    return hashlib.sha256(header.encode() + _bytes(tensor).tobytes()).hexdigest()


def _bytes(tensor: ir.TensorProtocol) -> np.ndarray[Any, Any]:
    return np.frombuffer(tensor.tobytes(), np.uint8)
