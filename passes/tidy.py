"""Passes that put a whole model in order, before and after those that change what it computes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.edit import name_outputs_of_calls
from lstm_lower.graph.form import is_always_made
from lstm_lower.graph.operator_versions import form
from lstm_lower.graph.structure import verify_structure
from lstm_lower.graph.subgraphs import all_nodes, subgraphs_of, with_inner
from lstm_lower.graph.verify import verify_types
from lstm_lower.passes.model_pass import Pass
from lstm_lower.passes.opset.installed import raise_ir_version

T = TypeVar("T", ir.Value, ir.Node)


class VerifyPass(Pass):
    """The verifier as a pass.

    All that it changes is declared: wrong shapes of inner values are put right, negative sizes are left open.
    """

    preserves = True

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Verifies.

        Raises:
            InvalidModelError: the first fault found.
        """
        verify_structure(model)
        return ir.passes.PassResult(model, verify_types(model, self.context.space.facts, correcting=True))


class SortPass(Pass):
    """Sorts the nodes of every graph topologically, if that is possible."""

    preserves = True

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Sorts."""
        before = list(all_nodes(model.graph))
        # The verifier says where the cycle is.
        with contextlib.suppress(ValueError):
            model.graph.sort()
        return ir.passes.PassResult(model, modified=list(all_nodes(model.graph)) != before)


class NameOutputsPass(Pass):
    """Names outputs that nodes leave out though their operators, or the functions that they call, always make them.

    onnx's checker lets variadic outputs be left out; onnxruntime ends the process on a Split, If or Loop that does.
    """

    preserves = True

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Names."""
        modified = name_outputs_of_calls(model)
        if modified:
            # It has given out names of its own.
            self.context.changed(preserved=False)
        unnamed: list[ir.Value] = []
        for graph, imports in _bodies(model):
            left_out = [value for node in all_nodes(graph) for value in node.outputs if not value.name]
            unnamed += [value for value in left_out if is_always_made(value, imports)]
        for value in unnamed:
            value.name = self.context.space.names.fresh("unread")
        return ir.passes.PassResult(model, modified or bool(unnamed))


def _bodies(model: ir.Model) -> Iterator[tuple[ir.Graph, Mapping[str, int]]]:
    """The main graph and those of the functions, each with the versions of the operators in it."""
    yield model.graph, model.opset_imports
    for function in model.functions.values():
        yield function.graph, function.opset_imports


class StatedDefaultsPass(Pass):
    """States attributes that are left out where onnx's own inference, and so its checker, misses their defaults.

    Measured on 1.23: STFT's `onesided` is 1 and read as 0, so that the right size behind it is refused; a
    MeanVarianceNormalization without `axes` is refused.
    """

    preserves = True

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """States them."""
        modified = False
        for node in all_nodes(model.graph):
            schema = form(node.op_type, model.opset_imports[""]) if _is_misread(node) else None
            for name, attribute in ({} if schema is None else schema.attributes).items():
                if name not in node.attributes and attribute.default_value.name:
                    node.attributes.add(ir.serde.deserialize_attribute(attribute.default_value))
                    modified = True
        return ir.passes.PassResult(model, modified)


def _is_misread(node: ir.Node) -> bool:
    return std.STFT.matches(node) or std.MeanVarianceNormalization.matches(node)


class UniqueNamesPass(Pass):
    """Gives every value and node of the main graph and its subgraphs a unique name, and graphs without a name one.

    ONNX lets graphs side by side use a name twice, and a subgraph's inputs and initializers shadow names of the graphs
    around it; passes that move nodes between graphs need names that fit everywhere. Names of the main graph's values
    stay. onnx's checker refuses graphs without names, which onnxruntime takes.
    """

    preserves = True

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Renames."""
        repeated = list(_repeated(model))
        for thing in repeated:
            assert thing.name
            thing.name = self.context.space.names.fresh(thing.name)
        nameless = [graph for graph in with_inner(model.graph) if not graph.name]
        for graph in nameless:
            graph.name = "graph"
        return ir.passes.PassResult(model, modified=bool(repeated or nameless))

    def ensures(self, model: ir.Model) -> None:
        """Every name occurs once.

        Raises:
            ir.passes.PostconditionError: one occurs twice.
        """
        verify_unique_names(model)


def verify_unique_names(model: ir.Model) -> None:
    """Verifies that no two values, and no two nodes, of the main graph and the graphs within it have the same name.

    Raises:
        ir.passes.PostconditionError: two have.
    """
    for thing in _repeated(model):
        kind = "node" if isinstance(thing, ir.Node) else "value"
        raise ir.passes.PostconditionError(f"a {kind} requires a name of its own, got '{thing.name}' once more")


def _repeated(model: ir.Model) -> Iterator[ir.Value | ir.Node]:
    """Nodes and values with a name that something before them has, outer graphs before those within them."""
    values: set[str] = set()
    nodes: set[str] = set()
    level = [model.graph]
    while level:
        inner: list[ir.Graph] = []
        for graph in level:
            yield from _taken(dict.fromkeys((*graph.inputs, *graph.initializers.values())), values)
            yield from _taken(graph, nodes)
            yield from _taken((value for node in graph for value in node.outputs), values)
            inner += [subgraph for node in graph for subgraph in subgraphs_of(node)]
        level = inner


def _taken(things: Iterable[T], names: set[str]) -> list[T]:
    """Those of which the names are taken; the others take theirs."""
    found: list[T] = []
    for thing in things:
        if thing.name in names:
            found.append(thing)
        elif thing.name:
            names.add(thing.name)
    return found


class RemoveUnreadWeightsPass(Pass):
    """Removes unread initializers; defaults of graph inputs stay."""

    preserves = True

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Removes."""
        unread = unread_weights(model)
        for name in unread:
            del model.graph.initializers[name]
        return ir.passes.PassResult(model, modified=bool(unread))

    def ensures(self, model: ir.Model) -> None:
        """Every initializer is read.

        Raises:
            ir.passes.PostconditionError: one is not.
        """
        if unread := unread_weights(model):
            raise ir.passes.PostconditionError(f"initializers require readers, got none of {', '.join(unread)}")


def unread_weights(model: ir.Model) -> list[str]:
    """Initializers that nothing reads, and that are no defaults of inputs and no outputs."""
    return [
        name
        for name, value in model.graph.initializers.items()
        if not value.uses() and not value.is_graph_input() and not value.is_graph_output()
    ]


class StandardImportsPass(Pass):
    """Makes `ai.onnx` the model's only operator set, with a matching IR version."""

    preserves = True

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Removes what nothing uses."""
        imports = model.graph.opset_imports
        others = [domain for domain in imports if domain]
        for domain in others:
            del imports[domain]
        raised = raise_ir_version(model)
        return ir.passes.PassResult(model, modified=bool(others) or raised)

    def ensures(self, model: ir.Model) -> None:
        """Only `ai.onnx` is imported, and only its operators are used.

        Raises:
            ir.passes.PostconditionError: there are others.
        """
        used = {node.domain for node in all_nodes(model.graph)} | set(model.opset_imports)
        if used - {""}:
            raise ir.passes.PostconditionError(f"only ai.onnx is required, got {', '.join(sorted(used - {''}))}")
