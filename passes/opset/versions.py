"""The opset of a model: which versions are possible, and moving a model to one."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
from onnx import version_converter

from lstm_lower import opdef, schemas
from lstm_lower.errors import InvalidInputError, InvalidModelError, UnsupportedOpError, requires
from lstm_lower.graph import standard as std
from lstm_lower.graph.edit import fix_initializers
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.form import node_label
from lstm_lower.graph.standard.base import constant_of
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.graph.verify import verify_types
from lstm_lower.passes.base import Context, Pass
from lstm_lower.passes.inline import InlineFunctionsPass
from lstm_lower.passes.opset.batched_scans import over_batches, shield
from lstm_lower.passes.opset.convert import convert_operators
from lstm_lower.passes.opset.flattened_axes import flatten
from lstm_lower.passes.opset.installed import MIN_OPSET, newest_opset, raise_ir_version
from lstm_lower.passes.shapes import InferShapesPass, without_large_initializers

# The opset in which Scan came, with an axis for the batch.
SCANS_OF_BATCHES = 8

# Upsample became Resize, and Resize got attributes for how it samples.
RESIZE, SIZES_OF_RESIZE = 10, 11

# The bounds of a Clip became operands, and so did what a Pad pads with: where they stand.
NUMBERS_AS_OPERANDS = 11
_NUMBERS = {std.Clip: (1, 2), std.Pad: (2,)}


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

    From 13 on, operators are rewritten in place, at every nesting level, in both directions. A model older than 13
    first goes through onnx's version converter, which loses the metadata of graph and nodes.

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
            _convert_by_onnx(model, own)
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


def _convert_by_onnx(model: ir.Model, own: int) -> None:
    """Moves an old model to 13.

    Raises:
        InvalidModelError: the converter refuses it.
        UnsupportedOpError: a Scan of opset 8 has sequences of several lengths.
    """
    if own == SCANS_OF_BATCHES:
        shield(model)
    flatten(model)
    with without_large_initializers(model) as proto:
        try:
            converted = ir.from_proto(version_converter.convert_version(proto, MIN_OPSET))
        except (RuntimeError, version_converter.ConvertError) as error:
            text = f"opset {own} cannot be converted to {MIN_OPSET}: {str(error).splitlines()[0]}"
            raise InvalidModelError(text) from error
    if own == SCANS_OF_BATCHES:
        over_batches(converted)
    if own < SIZES_OF_RESIZE:
        _keep_sampling(converted, upsamples=own < RESIZE)
    if own < NUMBERS_AS_OPERANDS:
        _type_numbers(converted)
    _restore_initializers(converted.graph, model.graph)
    converted.graph.metadata_props.update(model.graph.metadata_props)
    model.graph = converted.graph


def _type_numbers(model: ir.Model) -> None:
    """Gives numbers that were attributes the type of the data: the converter makes float32 of them all."""
    facts = Facts.of(model)
    for node in all_nodes(model.graph):
        places = next((places for op, places in _NUMBERS.items() if op.matches(node)), ())
        dtype = facts.dtype(node.inputs[0]) if places else None
        for number in (node.inputs[place] for place in places if place < len(node.inputs)):
            array, maker = constant_of(number), None if number is None else number.producer()
            if number is None or array is None or maker is None or dtype in (None, ir.DataType.FLOAT):
                continue
            with np.errstate(over="ignore"):
                maker.attributes["value"] = ir.AttrTensor("value", ir.tensor(array.astype(dtype.numpy())))
            number.type = ir.TensorType(dtype)


def _keep_sampling(model: ir.Model, *, upsamples: bool) -> None:
    """Says how old nodes sample, which have no attribute for it: the converter leaves them to newer ones' defaults.

    The nearest place is that below, as the operator Upsample has it; onnxruntime takes that above where a Resize of
    opset 10 makes an axis smaller.

    Raises:
        UnsupportedOpError: it is not known what a Resize of nearest places makes smaller, or it makes others larger.
    """
    for node in all_nodes(model.graph):
        if not std.Resize.matches(node):
            continue
        node.attributes["coordinate_transformation_mode"] = ir.AttrString(
            "coordinate_transformation_mode", "asymmetric"
        )
        scales = None if upsamples else constant_of(node.inputs[2])
        if upsamples or (scales is not None and (scales >= 1).all()):
            nearest = "floor"
        elif scales is not None and (scales <= 1).all():
            nearest = "ceil"
        elif "mode" in node.attributes and node.attributes["mode"].as_string() != "nearest":
            continue
        else:
            got = "others or unknown ones"
            raise UnsupportedOpError(
                requires(node.op_type, node_label(node), "scales", "all at least 1 or all at most 1 (opset 10)", got)
            )
        node.attributes["nearest_mode"] = ir.AttrString("nearest_mode", nearest)


def _restore_initializers(graph: ir.Graph, original: ir.Graph) -> None:
    """Turns the inputs that stood for large initializers back into these."""
    inputs = {value.name for value in original.inputs}
    for value in list(graph.inputs):
        source = original.initializers.get(value.name or "")
        if source is None or value.name in graph.initializers:
            continue
        if value.name not in inputs:
            graph.inputs.remove(value)
        value.const_value = source.const_value
        graph.register_initializer(value)


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
