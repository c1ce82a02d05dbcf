"""Contracts of a lowered model about its inputs: kept in its metadata, checked before a run.

After lowering, nothing in the graph says that the input `w` was the weight of an LSTM and must have I+H rows. The
contract of every composite node that read graph inputs is therefore written into the model's metadata, and a session
verifies its feeds against the same definition that verified the graph.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.dtypes import is_complex
from lstm_lower.errors import InvalidInputError
from lstm_lower.graph.form import node_label
from lstm_lower.graph.values import declared_shape
from lstm_lower.opdef import Arranged, Call, DType, OpDef, TensorInfo, definition

METADATA_KEY = "lstm_lower.contracts"

# Values of small integer feeds (sequence lengths) are part of the contract; larger ones are data.
_MAX_VALUE_SIZE = 65536

# The graph input that an operand was, else what was known of it; `None` for one that was left out.
Operand = str | TensorInfo | None


@dataclasses.dataclass(frozen=True)
class Contract:
    """One composite node that read graph inputs.

    Attributes:
        op: its definition.
        node: node name.
        operands: the node's operands.
        attributes: the node's attributes.
    """

    op: type[OpDef]
    node: str
    operands: Arranged[Operand]
    attributes: dict[str, Any]

    @property
    def feeds(self) -> set[str]:
        """Names of the graph inputs that the node read."""
        return {operand for operand in _each(self.operands) if isinstance(operand, str)}

    def check(self, feeds: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Verifies feeds against the op's definition.

        Raises:
            InvalidInputError: a feed's size or value does not fit.
        """

        def info(operand: Operand) -> TensorInfo | None:
            if not isinstance(operand, str):
                return operand
            return _info_of(feeds[operand]) if operand in feeds else TensorInfo(None, None)

        self.op.bind(self.node, self.operands.map(info), self.attributes, error=InvalidInputError)

    def reads_value(self, name: str, array: np.ndarray[Any, Any]) -> bool:
        """Whether the contract may depend on a feed's values, not only on its shape."""
        return name in self.feeds and _is_value(array)

    def to_json(self) -> dict[str, Any]:
        """The contract as data."""
        operands = self.operands.map(
            lambda operand: (
                [operand.dtype and operand.dtype.name, operand.shape] if isinstance(operand, TensorInfo) else operand
            )
        )
        return {
            "op": self.op.op_type,
            "domain": self.op.domain,
            "node": self.node,
            "operands": operands.named(),
            "attributes": self.attributes,
        }

    @classmethod
    def from_json(cls, data: Any) -> Contract | None:
        """The contract that data holds; `None` when it holds none of an op that this version knows."""
        match data:
            case {
                "op": str(op_type),
                "domain": str(domain),
                "node": str(node),
                "operands": dict(operands),
                "attributes": dict(attributes),
            }:
                op = definition(domain, op_type)
            case _:
                return None
        if op is None:
            return None
        variadic = {declared.name for declared in op.inputs if declared.variadic}
        arranged: Arranged[Operand] = Arranged()
        try:
            for name, part in operands.items():
                if name in variadic:
                    arranged.lists[name] = [_operand(entry) for entry in part]
                else:
                    arranged.single[name] = _operand(part)
        except (KeyError, TypeError, ValueError):
            return None
        return cls(op, node, arranged, attributes)


def _operand(data: Any) -> Operand:
    """An operand from data.

    Raises:
        KeyError, TypeError, ValueError: it is none.
    """
    if data is None or isinstance(data, str):
        return data
    dtype, shape = data
    if shape is not None and not all(dim is None or isinstance(dim, (int, str)) for dim in shape):
        raise TypeError("no shape")
    return TensorInfo(None if dtype is None else DType.__members__[dtype], None if shape is None else tuple(shape))


def _each(operands: Arranged[Operand]) -> Iterator[Operand]:
    yield from operands.single.values()
    for entries in operands.lists.values():
        yield from entries


def _is_value(array: np.ndarray[Any, Any]) -> bool:
    return array.dtype.kind in "iu" and array.size <= _MAX_VALUE_SIZE


def _info_of(array: np.ndarray[Any, Any]) -> TensorInfo:
    dtype = DType.STRING if array.dtype.kind in "OSU" else DType.from_numpy(array.dtype)
    return TensorInfo(dtype, tuple(array.shape), array if _is_value(array) else None)


def contract_of(call: Call, node: ir.Node, main: ir.Graph) -> Contract | None:
    """The contract of a verified node; `None` when it reads no graph input.

    Args:
        call: the node, bound to its definition.
        node: the node.
        main: the model's main graph, whose inputs the user feeds (a loop body's parameters are inputs, too).
    """

    def is_fed(value: ir.Value | None) -> bool:
        return value is not None and value.name is not None and value.is_graph_input() and value.graph is main

    def operand(value: ir.Value | None) -> Operand:
        if value is None or is_fed(value):
            return None if value is None else value.name
        return TensorInfo(value.dtype, declared_shape(value))

    # What was complex is fed as its parts.
    if not any(map(is_fed, node.inputs)) or any(value is not None and is_complex(value.dtype) for value in node.inputs):
        return None
    operands = Arranged.of(call.op.inputs, node.inputs, call.attributes).map(operand)
    return Contract(call.op, node_label(node), operands, call.attributes)


def write(model: ir.Model, contracts: list[Contract]) -> None:
    """Adds contracts to a model's metadata, keeping those of earlier lowerings."""
    if contracts:
        entries = [*_entries(model.metadata_props), *(contract.to_json() for contract in contracts)]
        model.metadata_props[METADATA_KEY] = json.dumps(_distinct(entries), separators=(",", ":"))


def _distinct(entries: list[Any]) -> list[Any]:
    """One contract of those that differ in the node's name only, as the cells of an unrolled network do."""
    first: dict[str, Any] = {}
    for entry in entries:
        first.setdefault(repr({**entry, "node": ""} if isinstance(entry, dict) else entry), entry)
    return list(first.values())


def read(metadata: Mapping[str, str]) -> list[Contract]:
    """Reads the contracts from a model's metadata.

    Somebody else's note under our key, or a contract of an op that this version does not know, is no reason to refuse
    the model: it is left out.
    """
    contracts = [Contract.from_json(entry) for entry in _entries(metadata)]
    return [contract for contract in contracts if contract is not None]


def _entries(metadata: Mapping[str, str]) -> list[Any]:
    try:
        entries = json.loads(metadata.get(METADATA_KEY, "[]"))
    except (ValueError, RecursionError):
        return []
    return entries if isinstance(entries, list) else []
