"""Models that travel in another one's metadata, and refer to large constants that both have.

How they are written is private to this module: JSON that holds a compressed protobuf, with a digest of each constant
referred to, which is an input of the protobuf.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from lstm_lower.errors import InvalidModelError, damage_told
from lstm_lower.graph.copies import copy_model
from lstm_lower.records.model_files import as_proto, load, read_all
from lstm_lower.records.record import Record, malformed

EVALUATION_KEY = "lstm_lower.evaluation"
MODULE_KEY = "lstm_lower.module"
_KEYS = (EVALUATION_KEY, MODULE_KEY)
_VERSION = 1

# Smaller constants are stored; a reference would take as much room.
_SMALL = 1 << 10

# A protobuf is no larger; more is no record of ours.
_LIMIT = 1 << 31

# Metadata key -> initializer of the step -> what it holds.
References = Mapping[str, Mapping[str, ir.TensorProtocol]]


@dataclasses.dataclass(frozen=True)
class _Attached:
    """A model as it is written.

    Attributes:
        constants: initializer of the step -> digest of what it holds.
        model: the model, constants that are referred to among its inputs, as a compressed protobuf in base64.
    """

    constants: Mapping[str, str]
    model: str

    @classmethod
    def of(cls, model: ir.Model, constants: Mapping[str, str]) -> _Attached:
        content = as_proto(model).SerializeToString()
        return cls(constants, base64.b64encode(zlib.compress(content, 9)).decode("ascii"))

    def unpacked(self, key: str) -> ir.Model:
        """The model as it was packed.

        Raises:
            InvalidModelError: it was not packed by `of`.
        """
        packed = zlib.decompressobj()
        with damage_told(lambda _: malformed(key, self.model)):
            content = packed.decompress(base64.b64decode(self.model, validate=True), _LIMIT)
            model: onnx.ModelProto = onnx.ModelProto.FromString(content)
        if not packed.eof:
            raise malformed(key, self.model)
        return load(model)


_RECORDS = {key: Record(key, _Attached, None, version=_VERSION) for key in _KEYS}


def write(model: ir.Model, key: str, attached: ir.Model) -> None:
    """Puts a model into another one's metadata, in place of what was there.

    Args:
        model: the one that carries it.
        key: one of this module's.
        attached: the model; it is not changed.
    """
    kept = copy_model(attached)
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
    _RECORDS[key].write(model, _Attached.of(kept, constants))


def of(model: ir.Model, key: str) -> ir.Model | None:
    """The model under a key, with the constants that it refers to; `None` where there is none.

    Raises:
        InvalidModelError: it is malformed, or the model that carries it no longer holds what it refers to.
    """
    record = _RECORDS[key].parse(model.metadata_props)
    if record is None:
        return None
    attached = record.unpacked(key)
    inputs = {value.name: value for value in attached.graph.inputs}
    for name, digest in record.constants.items():
        tensor = _constant(model, name)
        if tensor is None or name not in inputs or _digest(tensor) != digest:
            raise InvalidModelError(
                f"metadata '{key}' requires the constant '{name}' of the model that it was written for, got a "
                "model without it; use the step as it was exported, or change it with ll.lower and ll.optimize, which "
                "keep what is recorded"
            )
        value = inputs[name]
        attached.graph.inputs.remove(value)
        value.const_value = tensor
        attached.graph.register_initializer(value)
    return attached


def drop(model: ir.Model) -> None:
    """Removes all models from another one's metadata."""
    for key in _KEYS:
        model.metadata_props.pop(key, None)


def references(model: ir.Model) -> References:
    """The constants of a model that its records refer to; none of records that are malformed."""
    by_name: dict[str, dict[str, ir.TensorProtocol]] = {}
    for key in _KEYS:
        try:
            record = _RECORDS[key].parse(model.metadata_props)
        except InvalidModelError:
            continue
        held = {name: _constant(model, name) for name in (record.constants if record is not None else ())}
        by_name[key] = {name: tensor for name, tensor in held.items() if tensor is not None}
    return by_name


def restore(model: ir.Model, constants: References) -> None:
    """Puts constants into the records that passes have taken out of the model or changed.

    Args:
        model: the model.
        constants: `references` of the model before the passes ran.
    """
    for key, held in constants.items():
        lost = {name: tensor for name, tensor in held.items() if not _same(_constant(model, name), tensor)}
        record = _RECORDS[key].parse(model.metadata_props) if lost else None
        if record is None:
            continue
        kept = record.unpacked(key)
        for value in [value for value in kept.graph.inputs if value.name in lost]:
            assert value.name is not None
            kept.graph.inputs.remove(value)
            value.const_value = ir.tensor(lost[value.name].numpy(), dtype=lost[value.name].dtype, name=value.name)
            kept.graph.register_initializer(value)
        rest = {name: digest for name, digest in record.constants.items() if name not in lost}
        _RECORDS[key].write(model, _Attached.of(kept, rest))


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
