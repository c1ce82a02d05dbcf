"""Moves every operator of a model, in place and at every nesting level, from one version to another."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import onnx_ir as ir

from lstm_lower.errors import UnsupportedOpError, requires
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Constants, Expr, Workspace
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.form import node_label
from lstm_lower.graph.inference import Inferred
from lstm_lower.graph.operator_versions import changes, default_attributes, first_version, form, misfit
from lstm_lower.graph.structure import STANDARD_DOMAINS
from lstm_lower.graph.subgraphs import all_nodes, subgraphs_of
from lstm_lower.passes.decompositions.functions import expanded
from lstm_lower.passes.opset import (  # noqa: F401 (importing the rewrites fills the tables)
    arithmetic,
    networks,
    reductions,
    scatter,
    shaping,
    upwards,
)
from lstm_lower.passes.opset.installed import newest_with_kernel
from lstm_lower.passes.opset.registry import BEFORE, SINCE, Site


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
    """What is known of a model whose nodes are raised to forms that have views, one after the other.

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
        newer, older = form(node.op_type, change), form(node.op_type, change - 1)
        assert newer is not None
        rewrite = BEFORE.get((node.op_type, change))
        if rewrite is not None:
            results = rewrite(site)
            if results is not None:
                return results
        fault: tuple[str, str] | None = ("the operator", "it")
        # A form that was deprecated when it was superseded meant something else.
        if older is not None and not older.deprecated:
            for name in tuple(default_attributes(newer, older, node)):
                site.drop(name)
            fault = misfit(node, older)
        if fault is None:
            return None
        if rewrite is None or older is None:
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
        raise site.refusal(operand, f"a type that {node.op_type} knows in opset {self.target}", got)


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
        raise site.refusal(operand, f"a form that opset {change} knows", "an older one" if got == "it" else got)
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
