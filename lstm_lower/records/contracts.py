"""What a lowered model still promises about its inputs: kept in its metadata, checked before a run.

After lowering, nothing in the graph says that the input `w` was the weight of an LSTM and must have I+H rows. The
contract of every composite node that read graph inputs is therefore written into the model's metadata, and a session
verifies its feeds against the same definition that verified the graph.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower import opdef, ops  # noqa: F401 (ops fills the registry)
from lstm_lower.errors import InvalidInputError

METADATA_KEY = "lstm_lower.contracts"

# Values of small integer feeds (sequence lengths) are part of the contract; larger ones are data.
_MAX_VALUE_SIZE = 65536


@dataclasses.dataclass(frozen=True)
class Contract:
    """One composite node that read graph inputs.

    Attributes:
        op: op type.
        node: node name.
        inputs: operand name -> graph input name.
        others: operand name -> dtype and shape, for operands that were no graph inputs.
        attributes: the node's attributes.
    """

    op: str
    node: str
    inputs: dict[str, str]
    others: dict[str, tuple[str | None, list[int | str | None] | None]]
    attributes: dict[str, Any]

    def check(self, feeds: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Verifies feeds against the op's definition.

        Raises:
            InvalidInputError: a feed's size or value does not fit.
        """
        operands = {}
        for declared in self.inputs | self.others:
            if declared in self.inputs and self.inputs[declared] in feeds:
                operands[declared] = _info_of(feeds[self.inputs[declared]])
            else:
                dtype, shape = self.others.get(declared, (None, None))
                operands[declared] = opdef.TensorInfo(
                    None if dtype is None else ir.DataType[dtype], None if shape is None else tuple(shape)
                )
        definition = opdef.REGISTRY[self.op]
        ordered = {
            name: operands[name]
            for name in definition.operand_names(len(operands), self.attributes)
            if name in operands
        }
        definition.bind(self.node, ordered, self.attributes, error=InvalidInputError)

    def reads_value(self, name: str, array: np.ndarray[Any, Any]) -> bool:
        """Whether the contract may depend on a feed's values, not only on its shape."""
        return name in self.inputs.values() and _is_value(array)


def _is_value(array: np.ndarray[Any, Any]) -> bool:
    return array.dtype.kind in "iu" and array.size <= _MAX_VALUE_SIZE


def _info_of(array: np.ndarray[Any, Any]) -> opdef.TensorInfo:
    dtype = ir.DataType.from_numpy(array.dtype)
    return opdef.TensorInfo(dtype, tuple(array.shape), array if _is_value(array) else None)


def contract_of(call: opdef.Call, node: ir.Node, main: ir.Graph) -> Contract | None:
    """The contract of a verified node; `None` when it reads no graph input.

    Args:
        call: the node, bound to its definition.
        node: the node.
        main: the model's main graph, whose inputs the user feeds (a loop body's parameters are inputs, too).
    """
    names = call.op.operand_names(len(node.inputs), call.attributes)
    inputs = {
        name: value.name
        for name, value in zip(names, node.inputs, strict=False)
        if value is not None and value.name is not None and value.is_graph_input() and value.graph is main
    }
    if not inputs:
        return None
    others: dict[str, tuple[str | None, list[int | str | None] | None]] = {}
    for name, info in call.operands.items():
        if name not in inputs:
            shape = None if info.shape is None else [dim if isinstance(dim, int | str) else None for dim in info.shape]
            others[name] = (None if info.dtype is None else info.dtype.name, shape)
    return Contract(call.op.op_type, call.node or "", inputs, others, call.attributes)


def write(model: ir.Model, contracts: list[Contract]) -> None:
    """Adds contracts to a model's metadata, keeping those of earlier lowerings."""
    if contracts:
        kept = json.loads(model.metadata_props.get(METADATA_KEY, "[]"))
        kept += [vars(contract) for contract in _distinct(contracts)]
        model.metadata_props[METADATA_KEY] = json.dumps(kept, separators=(",", ":"))


def _distinct(contracts: list[Contract]) -> list[Contract]:
    """One contract of those that differ in the node's name only, as the cells of an unrolled network do."""
    first: dict[str, Contract] = {}
    for contract in contracts:
        first.setdefault(repr(dataclasses.replace(contract, node="")), contract)
    return list(first.values())


def read(metadata: Mapping[str, str]) -> list[Contract]:
    """Reads the contracts from a model's metadata; entries of ops that this version does not know are left out."""
    try:
        entries = json.loads(metadata.get(METADATA_KEY, "[]"))
        contracts = [Contract(**entry) for entry in entries]
    except (ValueError, TypeError):
        # Somebody else's note under our key is no reason to refuse the model.
        return []
    return [contract for contract in contracts if contract.op in opdef.REGISTRY]
