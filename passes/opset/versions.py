"""The opset of a model: which versions are possible, and moving a model to one."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from lstm_lower import opdef, schemas
from lstm_lower.errors import InvalidInputError, InvalidModelError
from lstm_lower.graph.edit import fix_initializers
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.verify import verify_types
from lstm_lower.passes.base import Context, Pass
from lstm_lower.passes.inline import InlineFunctionsPass
from lstm_lower.passes.opset.batched_scans import over_batches
from lstm_lower.passes.opset.convert import convert_operators
from lstm_lower.passes.opset.installed import MIN_OPSET, newest_opset, raise_ir_version
from lstm_lower.passes.shapes import InferShapesPass, without_large_initializers

# The opset in which Scan came, with an axis for the batch.
SCANS_OF_BATCHES = 8


def check_opset(opset: int | None) -> None:
    """Checks a requested version.

    Raises:
        InvalidInputError: it is outside 13 .. the newest.
    """
    number: object = opset
    if number is not None and not (isinstance(number, int) and MIN_OPSET <= number <= newest_opset()):
        raise InvalidInputError(f"opset requires {MIN_OPSET} to {newest_opset()}, got {opset!r}")


class ConvertOpsetPass(Pass):
    """Moves the model to an `ai.onnx` version; composite nodes stay as they are.

    Operators are rewritten in place, at every nesting level, in both directions; a model older than 13 first becomes
    one of 13, which is the oldest that is written.

    Attributes:
        opset: the version; `None` keeps the model's own, raised to `at_least`.
        at_least: the oldest version that stays.
    """

    def __init__(self, opset: int | None = None, at_least: int = MIN_OPSET) -> None:
        super().__init__()
        self.opset, self.at_least = opset, at_least

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Converts.

        Raises:
            UnsupportedOpError: nodes have no equivalent in the version; every one is named.
            InvalidModelError: the model does not pass onnx's checker after it, or is newer than the installed onnx.
        """
        fixed = fix_initializers(model)
        converted = self._convert(model) or fixed
        # A model may also say less than its opset needs from the first.
        return ir.passes.PassResult(model, raise_ir_version(model) or converted)

    def _convert(self, model: ir.Model) -> bool:
        imports = model.graph.opset_imports
        if "ai.onnx" in imports:
            imports[""] = imports.pop("ai.onnx")
        own = imports.get("")
        if own is None:
            imports[""] = self.at_least if self.opset is None else self.opset
            verify_types(model, Facts.of(model), correcting=True)
            return True
        target = max(own, self.at_least) if self.opset is None else self.opset
        if own == target:
            return False
        known = onnx.defs.onnx_opset_version()
        if own > known:
            raise InvalidModelError(f"the model requires an opset up to {known}, the newest of onnx here, got {own}")
        if model.functions:
            InlineFunctionsPass().share(Context(model))(model)
        if own < MIN_OPSET:
            if own == SCANS_OF_BATCHES:
                over_batches(model)
            # In two steps, since views, and what is known by them, begin with 13.
            convert_operators(model, own, MIN_OPSET)
            model.graph.opset_imports[""] = MIN_OPSET
            verify_types(model, Facts.of(model), correcting=True)
        InferShapesPass().share(Context(model))(model)
        convert_operators(model, max(own, MIN_OPSET), target)
        model.graph.opset_imports[""] = target
        _check(model, own, target)
        return True

    def ensures(self, model: ir.Model) -> None:
        """The model is of the version asked for, or of none older than `at_least`.

        Raises:
            ir.passes.PostconditionError: it is not.
        """
        version = model.opset_imports.get("", 0)
        if version != self.opset and (self.opset is not None or version < self.at_least):
            raise ir.passes.PostconditionError(f"opset {self.opset or self.at_least} is required, got {version}")


def _check(model: ir.Model, own: int, target: int) -> None:
    schemas.register()
    with without_large_initializers(model) as proto:
        needed = onnx.helper.find_min_ir_version_for([onnx.helper.make_opsetid("", target)])
        proto.ir_version = max(proto.ir_version, needed)
        _drop_notes(proto.graph)
        known = all(value.type.tensor_type.HasField("shape") for value in _tensors(proto.graph))
        try:
            if known:
                onnx.checker.check_model(proto, full_check=True)
            else:
                # The checker refuses inputs and outputs of unknown rank, which the model may well have had before.
                onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True)
        except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, RuntimeError) as error:
            text = f"the model, converted from opset {own} to {target}, requires valid nodes, got: {error}"
            raise InvalidModelError(text) from error


def _tensors(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    return [value for value in (*graph.input, *graph.output) if value.type.HasField("tensor_type")]


def _drop_notes(graph: onnx.GraphProto) -> None:
    """Removes TensorFlow's own notes on composite nodes, attributes that start with `_`, which no schema knows."""
    for node in graph.node:
        if opdef.definition(node.domain, node.op_type) is not None:
            kept = [attribute for attribute in node.attribute if not attribute.name.startswith("_")]
            del node.attribute[:]
            node.attribute.extend(kept)
        for attribute in node.attribute:
            for subgraph in (attribute.g, *attribute.graphs):
                _drop_notes(subgraph)
