"""The opset of a model: which versions are possible, and moving a model to one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import onnx
import onnx_ir as ir

from lstm_lower import opdef, schemas
from lstm_lower.errors import InvalidInputError, InvalidModelError, UnsupportedOpError, requires
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Constants, Expr, Workspace
from lstm_lower.graph.edit import fix_initializers
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.form import node_label
from lstm_lower.graph.inference import Inferred
from lstm_lower.graph.names import Names
from lstm_lower.graph.operator_versions import changes, first_version, form, misfit
from lstm_lower.graph.structure import STANDARD_DOMAINS
from lstm_lower.graph.subgraphs import all_nodes, subgraphs_of, with_inner
from lstm_lower.graph.verify import verify_types
from lstm_lower.passes.decompositions.functions import expanded
from lstm_lower.passes.inline import InlineFunctionsPass
from lstm_lower.passes.model_pass import Context, Pass
from lstm_lower.passes.opset import attribute_changes, downwards, upwards  # noqa: F401 (importing fills the tables)
from lstm_lower.passes.opset.installed import MIN_OPSET, newest_opset, newest_with_kernel, raise_ir_version
from lstm_lower.passes.opset.rewrites import BEFORE, SINCE, Site, step_down
from lstm_lower.passes.shapes import InferShapesPass, without_large_initializers

# Scan as it was in opset 8: of a whole batch, axis 0 of every operand, with time on axis 1.
# Since opset 9 a Scan has no batch. The old one is a Scan over the batch, of one that is as the newer ones are.


# Since opset 9 scanned outputs may go backwards, too.
_RENAMED = {"directions": "scan_input_directions"}


def over_batches(model: ir.Model) -> None:
    """Writes every Scan of a model of opset 8 as one over the batch, in the form of opset 9.

    Raises:
        UnsupportedOpError: a Scan has sequences of several lengths.
    """
    names = Names.of(model)
    for node in list(_scans(model)):
        lengths, *operands = node.inputs
        if lengths is not None:
            raise UnsupportedOpError(
                requires(
                    node.op_type,
                    node_label(node),
                    "sequence_lens",
                    "no operand, all sequences of one length (pad them, or export the model with opset 9 or newer)",
                    f"'{lengths.name}'",
                )
            )
        node.resize_inputs(len(operands))
        for position, value in enumerate(operands):
            node.replace_input_with(position, value)
        parameters = [
            ir.Value(name=names.fresh("element"), type=None if value is None else value.type) for value in operands
        ]
        results = [ir.Value(name=names.fresh("element"), type=value.type) for value in node.outputs]
        attributes = [
            ir.Attr(_RENAMED.get(name, name), attribute.type, attribute.value)
            for name, attribute in node.attributes.items()
        ]
        node.attributes.clear()
        inner = ir.Node("", std.Scan.op_type, parameters, attributes, outputs=results, name=names.fresh("sequence"))
        body = ir.Graph(parameters, results, nodes=[inner], name=names.fresh("batch"))
        for attribute in (ir.AttrGraph("body", body), ir.AttrInt64("num_scan_inputs", len(operands))):
            node.attributes[attribute.name] = attribute


def _scans(model: ir.Model) -> Iterator[ir.Node]:
    for graph in list(with_inner(model.graph)):
        for node in graph:
            if node.op_type == std.Scan.op_type and node.domain in STANDARD_DOMAINS:
                yield node


# Moves every operator of a model, in place and at every nesting level, from one version to another.


def convert_operators(model: ir.Model, source: int, target: int) -> None:
    """Writes the standard operators of a model's main graph in the forms that they have in another version.

    Raises:
        UnsupportedOpError: names every node that has no equivalent in the version; the model is then half converted.
    """
    space = Workspace.of(model)
    if source < std.OLDEST_VIEWED:
        space = dataclasses.replace(space, facts=_FactsInOrder(model))
    conversion = _Conversion(space, target)
    conversion.graph(model.graph, source, target)
    _remove_unused(conversion.touched)
    if conversion.reasons:
        count = f"{len(conversion.reasons)} node{'s' if len(conversion.reasons) > 1 else ''}"
        text = f"{count} cannot be converted from opset {source} to {target}:"
        raise UnsupportedOpError("\n  ".join([text, *conversion.reasons]))


class _FactsInOrder(Facts):
    """Facts about a model whose nodes are raised to forms that have views, one after the other.

    Attributes:
        to_come: the nodes of ONNX in older forms, of whose results only what is declared is known.
    """

    def __init__(self, model: ir.Model) -> None:
        super().__init__(std.OLDEST_VIEWED)
        self.enter(*model.graph)
        self.to_come = {node for node in all_nodes(model.graph) if node.domain in STANDARD_DOMAINS}

    def view(self, node: ir.Node | None) -> std.Standard | None:
        """The view of a node that has been raised."""
        return None if node in self.to_come else super().view(node)

    def _inferred(self, node: ir.Node) -> Inferred:
        return [] if node in self.to_come else super()._inferred(node)


class _Conversion:
    """The conversion of one model: what is shared between its nodes."""

    def __init__(self, space: Workspace, target: int) -> None:
        self.space = space
        self.target = target
        self.reasons: list[str] = []
        self.origin = ""
        self.touched: dict[ir.Value, None] = {}

    def graph(self, graph: ir.Graph, source: int, target: int) -> None:
        """Converts a graph whose nodes are of one version."""
        constants = Constants(graph)
        for node in tuple(graph):
            self._node(node, source, target, constants)

    def _node(self, node: ir.Node, source: int, target: int, constants: Constants) -> None:
        if node.domain in STANDARD_DOMAINS:
            node.domain = ""
            label = node_label(node)
            try:
                emitted, version = self._convert(node, source, target, constants)
            except UnsupportedOpError as error:
                self.reasons.append(f"{error}{self.origin}")
                return
            if isinstance(self.space.facts, _FactsInOrder):
                self.space.facts.to_come.discard(node)
            outer = self.origin
            if node.graph is None:
                # What took the node's place is at fault for it; a user knows the node only.
                self.origin = outer or f", as part of {node.op_type} '{label}'"
            for new in emitted:
                self._node(new, version, target, constants)
            self.origin = outer
        # A node that was replaced has left its graph; what took its place has been converted with its subgraphs.
        if node.graph is not None:
            for subgraph in subgraphs_of(node):
                self.graph(subgraph, source, target)

    def _convert(self, node: ir.Node, source: int, target: int, constants: Constants) -> tuple[list[ir.Node], int]:
        """Takes a node through the versions at which its operator changed, until other nodes take its place.

        Returns:
            The nodes that came in beside it or instead of it, and the version that these are of.
        """
        first = first_version(node)
        if source < first <= target:
            # There is one form that it can be meant to have: that of its first version.
            source = first
        if form(node.op_type, source) is None:
            what = f"an operator of opset {source}"
            raise UnsupportedOpError(requires(node.op_type, node_label(node), "the node", what, "an unknown one"))
        emitted: list[ir.Node] = []
        down = source > target
        for change in changes(node.op_type, source, target):
            self.touched.update(dict.fromkeys(value for value in node.inputs if value is not None))
            space = dataclasses.replace(self.space, opset=change - 1 if down else max(change, std.OLDEST_VIEWED))
            builder = Builder.before(node, space, constants)
            site = Site(node, builder, self.target)
            results = self._before(site, source, change) if down else _since(site, change)
            assert node.graph is not None
            for new in builder.emitted:
                new.metadata_props.update(node.metadata_props)
            if results is not None:
                _replace(node, builder, results)
                return [*emitted, *builder.emitted], builder.opset
            # Helpers of an operator that stays: simple ones, which look the same in all versions on the way.
            emitted += builder.emitted
        newest = target if down else newest_with_kernel(node, max(source, std.OLDEST_VIEWED), target)
        if newest < target:
            builder = Builder.before(node, dataclasses.replace(self.space, opset=newest), constants)
            results = expanded(node, newest, builder)
            if results is not None:
                _replace(node, builder, results)
                return [*emitted, *builder.emitted], newest
            what = f"opset {newest} or older (onnxruntime runs no newer form of it)"
            raise UnsupportedOpError(requires(node.op_type, node_label(node), "the node", what, target))
        return emitted, target

    def _before(self, site: Site, source: int, change: int) -> Sequence[Expr | None] | None:
        """Writes a node in the form before a change, or tells what it becomes."""
        node = site.node
        older = form(node.op_type, change - 1)
        results = step_down(site, change)
        if results is not None:
            return results
        fault = ("the operator", "it") if older is None or older.deprecated else misfit(node, older)
        if fault is None:
            return None
        if (node.op_type, change) not in BEFORE or older is None:
            # Subgraphs become part of the function's body, and are to be of its version.
            for subgraph in subgraphs_of(node):
                self.graph(subgraph, source, change)
            results = expanded(node, change, site.builder)
            if results is not None:
                site.builder.space = dataclasses.replace(self.space, opset=change)
                return results
        operand, got = fault
        if got == "it":
            raise site.too_new(operand, change)
        raise site.unsupported(operand, f"a type that {node.op_type} knows in opset {self.target}", got)


def _since(site: Site, change: int) -> Sequence[Expr | None] | None:
    """Writes a node in the form that its operator got with a change, or tells what it becomes."""
    node = site.node
    # A mark for runtimes that wrote over their operands.
    site.drop("consumed_inputs")
    rewrite = SINCE.get((node.op_type, change))
    results = None if rewrite is None else rewrite(site)
    schema = form(node.op_type, change)
    assert schema is not None
    fault = None if results is not None else misfit(node, schema)
    if fault is not None:
        operand, got = fault
        raise site.unsupported(operand, f"a form that opset {change} knows", "an older one" if got == "it" else got)
    return results


def _remove_unused(values: Iterable[ir.Value]) -> None:
    """Removes constants, such as axes that became an attribute, which nothing reads any more."""
    for value in values:
        node = value.producer()
        if value.uses() or value.is_graph_output() or value.is_graph_input():
            continue
        if value.is_initializer() and value.graph is not None and value.name is not None:
            del value.graph.initializers[value.name]
        elif std.Constant.matches(node) and node.graph is not None:
            node.graph.remove(node, safe=True)


def _replace(node: ir.Node, builder: Builder, results: Sequence[Expr | None]) -> None:
    """Puts the results in the place of the node's outputs, under their names, and removes the node."""
    graph = node.graph
    assert graph is not None
    taken: set[ir.Value] = set()
    for old, result in zip(node.outputs, results, strict=True):
        if result is None or not (old.uses() or old.is_graph_output()):
            continue
        new = result.value
        own = new.producer() in builder.emitted and new not in taken
        if not own and old.is_graph_output():
            new, own = builder.op(std.Identity, new), True
        old.replace_all_uses_with(new, replace_graph_outputs=True)
        if own:
            taken.add(new)
            name, old.name = old.name, None
            new.name = name
            new.type = new.type if old.type is None else old.type
            new.shape = new.shape if old.shape is None else old.shape
            new.doc_string = old.doc_string
            new.metadata_props.update(old.metadata_props)
    graph.remove(node, safe=True)


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
        newest = onnx.defs.onnx_opset_version()
        if own > newest:
            raise InvalidModelError(f"the model requires an opset up to {newest}, the newest of onnx here, got {own}")
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
        ranked = all(value.type.tensor_type.HasField("shape") for value in _tensors(proto.graph))
        try:
            if ranked:
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
