"""The results that a model should have: itself, composite ops included, evaluated in float64 or its own dtypes.

Every floating dtype of the graph is widened to float64 and the graph is run by `onnx.reference`, where each composite
op is its numpy oracle. Nothing of the lowering takes part but the raising of old opsets, so that a fault in a rule or a
pass cannot hide. Ops of which TensorFlow or onnxruntime have kernels for processors need no oracle: they are evaluated
as what their rules write, which tests compare with the kernels' results.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx.reference
import onnx.reference.op_run
import onnx_ir as ir

from lstm_lower.errors import AboutNode, InvalidModelError, UnsupportedOpError, requires
from lstm_lower.graph import standard as std
from lstm_lower.graph.bindings import bind_node, composite_nodes
from lstm_lower.graph.copies import copy_model
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.form import node_label
from lstm_lower.graph.names import Names
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.graph.verify import verify
from lstm_lower.opdef import Arranged, OpDef
from lstm_lower.passes.composites import LowerCompositesPass, unsupported_nodes
from lstm_lower.passes.inline import InlineFunctionsPass
from lstm_lower.passes.loops.forward import ForwardScansPass
from lstm_lower.passes.opset.conversion import ConvertOpsetPass
from lstm_lower.passes.shapes import InferShapesPass
from lstm_lower.passes.tidy import SortPass, VerifyPass
from lstm_lower.passes.widening import widen as widen_dtypes
from lstm_lower.records.model_files import read_all
from lstm_lower.registry import is_ours
from lstm_lower.runtime.proof.oracles import registry
from lstm_lower.runtime.proof.reference_operators import MENDED

Array = np.ndarray[Any, Any]

_FLOATING = {ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16}


def evaluate(model: ir.Model, feeds: Mapping[str, Array], *, wide: bool = True) -> dict[str, Array]:
    """Evaluates a model in float64.

    Args:
        model: with or without composite ops; it is not changed.
        feeds: input name -> array, in the model's own dtypes.
        wide: in float64; else in the model's own dtypes, to which the results of each node are rounded.

    Returns:
        Output name -> array; what is floating in the model is float64 if `wide`.

    Raises:
        InvalidModelError: the model is malformed, or `onnx.reference` cannot evaluate it.
        UnsupportedOpError: a node is neither standard nor has an oracle.
    """
    names = [str(value.name) for value in model.graph.outputs]
    results = values(model, feeds, wide=wide)
    return {name: results[name] for name in names}


def values(model: ir.Model, feeds: Mapping[str, Array], *, wide: bool = True) -> dict[str, Any]:
    """All values of the main graph, by the names that they have in `prepared`'s; arguments and errors as `evaluate`'s.

    Sequences are lists, and what is left out is `None`.
    """
    work = widen(model) if wide else prepared(model)
    given = {name: _as_array(value) for name, value in feeds.items()}
    try:
        evaluator = onnx.reference.ReferenceEvaluator(ir.to_proto(work), new_ops=[*MENDED, *_oracle_ops(work, wide)])
        with np.errstate(all="ignore"):
            fed = {k: _widen_array(array) for k, array in given.items()} if wide else given
            results: Any = evaluator.run(None, fed, intermediate=True)
    except Exception as error:
        raise InvalidModelError(f"onnx.reference cannot evaluate the model: {error}") from error
    return {
        str(name): np.asarray(result) if isinstance(result, (np.ndarray, np.generic)) else result
        for name, result in results.items()
    }


def _as_array(value: Any) -> Any:
    return [np.asarray(part) for part in value] if isinstance(value, list) else np.asarray(value)


def widen(model: ir.Model) -> ir.Model:
    """A copy of a model in which every floating dtype is float64; functions are inlined.

    Raises:
        InvalidModelError: the model is malformed.
        UnsupportedOpError: a node is neither standard nor has an oracle.
    """
    work = prepared(model)
    for node, definition in composite_nodes(work.graph):
        _round_attributes(node, definition)
    for node in all_nodes(work.graph):
        operand = node.inputs[0] if std.BitCast.matches(node) else None
        if operand is not None and operand.dtype is not None:
            # Its evaluator needs to know what is widened away.
            node.attributes["narrow"] = ir.AttrInt64("narrow", int(operand.dtype))
    widen_dtypes(work, _FLOATING, ir.DataType.DOUBLE)
    return work


def prepared(model: ir.Model) -> ir.Model:
    """A copy of a model that `onnx.reference` walks, functions inlined, in its own dtypes; errors as `widen`'s."""
    work = copy_model(model)
    read_all(work)
    SortPass()(work)
    # As `lower` does: wrong declarations of inner values are put right.
    VerifyPass()(work)
    InlineFunctionsPass()(work)
    LowerCompositesPass(chosen=lambda op: is_ours(op.__module__) and op not in registry.ORACLES)(work)
    missing = unsupported_nodes(work)
    for node, definition in composite_nodes(work.graph):
        if definition not in registry.ORACLES:
            label = node_label(node)
            missing.append(
                AboutNode(f"{definition.op_type} '{label}': no oracle is known for it", definition.op_type, label)
            )
    if missing:
        raise UnsupportedOpError("\n  ".join(["the model cannot be evaluated:", *missing]), about=missing)
    ConvertOpsetPass()(work)
    InferShapesPass()(work)
    # onnx.reference walks a Scan forward along axis 0 only.
    ForwardScansPass()(work)
    verify(work)
    # Under its empty name an output that is left out would be read as an operand that is.
    names = Names.of(work)
    for value in [value for node in all_nodes(work.graph) for value in node.outputs if not value.name]:
        value.name = names.fresh("unread")
    return work


def _round_attributes(node: ir.Node, definition: type[OpDef]) -> None:
    """Rounds attributes as the kernels do, to a dtype that widening takes away."""
    call = bind_node(node, definition, Facts(0))
    for attribute in definition.attributes:
        dtype = call.types.get(attribute.rounds_to or "")
        if dtype in _FLOATING and dtype != ir.DataType.FLOAT:
            assert dtype is not None
            rounded = float(np.asarray(call.attributes[attribute.name], dtype.numpy()))
            node.attributes[attribute.name] = ir.AttrFloat32(attribute.name, rounded)


def _widen_array(array: Any) -> Any:
    if isinstance(array, list):
        return [_widen_array(part) for part in array]
    kept = array.dtype.kind in "biuOSU" or array.dtype == np.complex128
    return array if kept else array.astype(np.float64)


def _oracle_ops(model: ir.Model, wide: bool) -> list[type[onnx.reference.op_run.OpRun]]:
    """A class for `onnx.reference` per composite op in the model."""
    used = {(node.domain, definition.op_type): definition for node, definition in composite_nodes(model.graph)}
    return [
        type(op_type, (_OracleOp,), {"op_domain": domain, "definition": definition, "wide": wide})
        for (domain, op_type), definition in used.items()
    ]


class _OracleOp(onnx.reference.op_run.OpRun):
    """A composite op in `onnx.reference`: its oracle."""

    definition: type[OpDef]
    wide: bool

    def _run(self, *inputs: Array | None, **_: Any) -> tuple[Array, ...]:
        node = self.onnx_node
        attributes = self._attributes()
        arranged = Arranged.of(self.definition.inputs, inputs, attributes).named()
        operands = {name: value for name, value in arranged.items() if value is not None}
        try:
            outputs: dict[str, Any] = {**registry.ORACLES[self.definition](**operands, **attributes)}
        except Exception as error:
            text = requires(node.op_type, node.name, "the oracle", "operands that fit", error)
            raise InvalidModelError(text) from error
        flat: list[Array] = []
        for result in outputs.values():
            flat += result if isinstance(result, list) else [result]
        given = [np.asarray(operand).dtype for operand in inputs if operand is not None]
        rounds = not self.wide and np.dtype(np.float64) not in given
        return tuple(_rounded(np.asarray(result), rounds) for result in flat[: len(node.output)])

    def _attributes(self) -> dict[str, Any]:
        """The node's attributes; what it leaves out has TensorFlow's default in the oracle too."""
        attributes = {}
        declared = {attribute.name: attribute for attribute in self.definition.attributes}
        for proto in self.onnx_node.attribute:
            if proto.name in declared:
                value = onnx.helper.get_attribute_value(proto)
                value = value.decode() if isinstance(value, bytes) else value
                attributes[proto.name] = bool(value) if declared[proto.name].type is bool else value
        return attributes


def _rounded(result: Array, rounds: bool) -> Array:
    return result.astype(np.float32) if rounds and result.dtype == np.float64 else result
