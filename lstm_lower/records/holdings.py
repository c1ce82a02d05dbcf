"""Tensors of a PyTorch module under the names of its own state dict, recorded in the step that is made of it.

Some of it is state of the step, perhaps under several names where weights are tied. The rest stays as it was:
parameters that do not require gradients, buffers that no step changes, and what nothing reads, which is nowhere else.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Mapping

import onnx_ir as ir

from lstm_lower.errors import damage_told
from lstm_lower.records import attachments
from lstm_lower.records import state as training_state

METADATA_KEY = attachments.MODULE_KEY
_NAMES_KEY = "lstm_lower.names"


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


def write(step: ir.Model, held: Holdings) -> None:
    """Records it in a step, in place of what was recorded before."""
    graph = ir.Graph([], [], nodes=[], opset_imports=dict(step.graph.opset_imports), name="module")
    for name, tensor in held.values.items():
        value = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(tensor.shape.numpy()))
        value.const_value = tensor
        graph.register_initializer(value)
    entries = {
        "states": dict(held.states),
        "constants": dict(held.constants),
        "read": sorted(held.read),
        "pairs": sorted(held.pairs),
    }
    names = json.dumps(entries, separators=(",", ":"))
    attached = ir.Model(graph, ir_version=step.ir_version, metadata_props={_NAMES_KEY: names})
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
    text = attached.metadata_props.get(_NAMES_KEY, "")
    inputs = {pair.input for pair in training_state.read(step).pairs}
    with damage_told(lambda _: attachments.malformed(METADATA_KEY, text[:80])):
        entries = json.loads(text)
        holdings = Holdings(entries["states"], entries["constants"], held, entries["read"], entries["pairs"])
        sound = set(holdings.states.values()) <= inputs and set(holdings.constants.values()) <= set(held)
    if not sound:
        raise attachments.malformed(METADATA_KEY, text[:80])
    return holdings
