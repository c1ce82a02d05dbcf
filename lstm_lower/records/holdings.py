"""Tensors of a PyTorch module under the names of its own state dict, recorded in the step that is made of it.

Some of it is state of the step, perhaps under several names where weights are tied. The rest stays as it was:
parameters that do not require gradients, buffers that no step changes, and what nothing reads, which is nowhere else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

import onnx_ir as ir

from lstm_lower.records import attachments
from lstm_lower.records import state as training_state
from lstm_lower.records.record import Record, malformed

METADATA_KEY = attachments.MODULE_KEY


@dataclasses.dataclass(frozen=True)
class Holdings:
    """The tensors of a module.

    Attributes:
        states: name -> state input of the step.
        constants: name -> name in `values`.
        values: what no step changes.
        read: names in `values` of what the step, or what evaluates it, reads.
        pairs: names of complex numbers, which are pairs `[..., 2]` in the step.
    """

    states: Mapping[str, str]
    constants: Mapping[str, str]
    values: Mapping[str, ir.TensorProtocol]
    read: Collection[str] = ()
    pairs: Collection[str] = ()


@dataclasses.dataclass(frozen=True)
class _Names:
    """What `Holdings` has besides values."""

    states: Mapping[str, str]
    constants: Mapping[str, str]
    read: Sequence[str]
    pairs: Sequence[str]


_NAMES = Record("lstm_lower.names", _Names, None)


def write(step: ir.Model, held: Holdings) -> None:
    """Records it in a step, in place of what was recorded before."""
    graph = ir.Graph([], [], nodes=[], opset_imports=dict(step.graph.opset_imports), name="module")
    for name, tensor in held.values.items():
        value = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(tensor.shape.numpy()))
        value.const_value = tensor
        graph.register_initializer(value)
    attached = ir.Model(graph, ir_version=step.ir_version)
    _NAMES.write(attached, _Names(dict(held.states), dict(held.constants), sorted(held.read), sorted(held.pairs)))
    attachments.write(step, METADATA_KEY, attached)


def of(step: ir.Model) -> Holdings | None:
    """The record of a step; `None` for one that is made of no module.

    Raises:
        InvalidModelError: the record is malformed, or the step no longer holds what it refers to.
    """
    attached = attachments.of(step, METADATA_KEY)
    if attached is None:
        return None
    values = {name: value.const_value for name, value in attached.graph.initializers.items()}
    held = {name: tensor for name, tensor in values.items() if tensor is not None}
    inputs = {pair.input for pair in training_state.read(step).pairs}
    names = _NAMES.parse(attached.metadata_props)
    if names is None or not (set(names.states.values()) <= inputs and set(names.constants.values()) <= set(held)):
        raise malformed(METADATA_KEY, attached.metadata_props.get(_NAMES.key, ""))
    return Holdings(names.states, names.constants, held, names.read, names.pairs)
