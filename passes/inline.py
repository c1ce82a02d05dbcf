"""Inlining: a model's functions are put where they are called; attributes and types are known there."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping

import onnx_ir as ir

from lstm_lower import budget
from lstm_lower.errors import InvalidModelError, LstmLowerError, UnsupportedOpError
from lstm_lower.graph import standard as std
from lstm_lower.graph.copies import Copier, copy_model
from lstm_lower.graph.form import form_of, node_label
from lstm_lower.graph.names import Names
from lstm_lower.graph.structure import function_label, verify_calls
from lstm_lower.graph.subgraphs import all_nodes, subgraphs_of, with_inner
from lstm_lower.graph.verify import verify
from lstm_lower.passes.model_pass import Pass

Functions = Mapping[ir.OperatorIdentifier, ir.Function]


class InlineFunctionsPass(Pass):
    """Inlines the model's functions, in time linear in the result's size.

    Precondition: the model is well formed, apart from what its functions call.

    Postcondition: the model has no functions, and no node calls one.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Inlines.

        Raises:
            InvalidModelError: functions call each other in a circle, or a node does not fit what its caller gives it.
            OverBudgetError: the result would have more nodes than the budget allows.
            UnsupportedOpError: a function is written in other forms of operators than the model, or takes a graph as
                an attribute.
        """
        if not model.functions:
            return ir.passes.PassResult(model, modified=False)
        verify_calls(model)
        _check_size(model)
        inlining = _Inlining(model)
        inlining.run(model.graph)
        model.functions.clear()
        # Attributes that stood for a caller's are known only now.
        verify(model)
        return ir.passes.PassResult(model, modified=True)

    def ensures(self, model: ir.Model) -> None:
        """There are no functions.

        Raises:
            ir.passes.PostconditionError: there are.
        """
        if model.functions:
            raise ir.passes.PostconditionError(f"no functions are required, got {len(model.functions)}")


# A function that is called as often in one graph may be the step of a loop.
LEAST_CALLS = 4


class InlineLoopsPass(Pass):
    """Inlines functions where one of them holds a loop, or is called like the steps of one: loops are optimised there.

    Precondition: the model is well formed.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Inlines all functions or none; a model that cannot be written without them keeps them."""
        if not model.functions or not _has_loops(model):
            return ir.passes.PassResult(model, modified=False)
        try:
            InlineFunctionsPass()(copy_model(model))
        except LstmLowerError:
            return ir.passes.PassResult(model, modified=False)
        return InlineFunctionsPass().share(self.context)(model)


def _has_loops(model: ir.Model) -> bool:
    roots = [model.graph, *(function.graph for function in model.functions.values())]
    inner = (node for function in model.functions.values() for node in all_nodes(function))
    if any(std.Scan.matches(node) or std.Loop.matches(node) for node in inner):
        return True
    calls = (_calls(graph, model.functions) for root in roots for graph in with_inner(root))
    return any(max(counts.values(), default=0) >= LEAST_CALLS for counts in calls)


def _check_size(model: ir.Model) -> None:
    """Counts the nodes of the result before any is made."""
    # Not at once: it takes a tenth of a second to import, and few models have functions.
    import networkx as nx

    calls: nx.DiGraph[ir.OperatorIdentifier] = nx.DiGraph()
    called = {name: _calls(all_nodes(function), model.functions) for name, function in model.functions.items()}
    calls.add_nodes_from(called)
    calls.add_edges_from((caller, callee) for caller, counts in called.items() for callee in counts)
    sizes: dict[ir.OperatorIdentifier, int] = {}
    for name in reversed(list(nx.topological_sort(calls))):
        own = sum(1 for _ in all_nodes(model.functions[name]))
        sizes[name] = own + sum(count * (sizes[callee] - 1) for callee, count in called[name].items())
    made = {name: count * sizes[name] for name, count in _calls(all_nodes(model.graph), model.functions).items()}
    worst = max(made, key=made.__getitem__, default=None)
    if worst is not None:
        what = f"a model whose functions are written out ({function_label(worst)} makes {made[worst]:,} nodes)"
        budget.check(what, "nodes", sum(made.values()))


def _calls(nodes: Iterable[ir.Node], functions: Functions) -> collections.Counter[ir.OperatorIdentifier]:
    """How often each function is called."""
    return collections.Counter(name for node in nodes if (name := node.op_identifier()) in functions)


class _Inlining:
    """The inlining of one model: what is shared between calls."""

    def __init__(self, model: ir.Model) -> None:
        self.functions = model.functions
        self.imports = model.opset_imports
        self.names = Names.of(model)
        self.fitting: set[ir.OperatorIdentifier] = set()

    def run(self, graph: ir.Graph) -> None:
        """Inlines every call in a graph and the graphs within it."""
        pending = list(reversed(graph))
        while pending:
            node = pending.pop()
            if node.op_identifier() in self.functions:
                pending += reversed(self._inline(node))
            else:
                pending += [inner for subgraph in subgraphs_of(node) for inner in reversed(subgraph)]

    def _inline(self, call: ir.Node) -> list[ir.Node]:
        """Puts a function's nodes in the place of a call."""
        function = self.functions[call.op_identifier()]
        self._check(function)
        attributes = {name: attribute for name, attribute in function.attributes.items() if attribute.value is not None}
        attributes |= call.attributes
        for name, attribute in attributes.items():
            if attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
                raise UnsupportedOpError(
                    f"{call.op_type} '{node_label(call)}': a function's attribute requires a value that is no graph, "
                    f"got one for {name}; write the graph into the function's body"
                )
        inputs = [*call.inputs, *(None for _ in function.inputs[len(call.inputs) :])]
        copier = Copier(
            dict(zip(function.inputs, inputs, strict=True)),
            attributes=attributes,
            name=self.names.another,
            metadata=call.metadata_props,
        )
        nodes = copier.nodes(function)
        graph = call.graph
        assert graph is not None
        graph.insert_before(call, nodes)
        for old, original in zip(call.outputs, function.outputs, strict=False):
            nodes += self._hand_over(call, old, copier.values[original], set(inputs))
        graph.remove(call, safe=True)
        return nodes

    def _hand_over(
        self, call: ir.Node, old: ir.Value, new: ir.Value | None, given: set[ir.Value | None]
    ) -> list[ir.Node]:
        """Lets readers of a call's output read the function's, under the output's name; returns nodes made for it."""
        if not old.uses() and not old.is_graph_output():
            return []
        if new is None:
            raise InvalidModelError(
                f"{call.op_type} '{node_label(call)}': output '{old.name}' requires an input to pass on, got none"
            )
        made: list[ir.Node] = []
        if old.is_graph_output() and (new in given or new.is_graph_output()):
            # A graph's output needs a value of its own.
            made = [ir.Node("", std.Identity.op_type, [new], name=self.names.fresh(f"{node_label(call)}/Identity"))]
            assert call.graph is not None
            call.graph.insert_before(call, made)
            new = made[0].outputs[0]
        renamed = new not in given and not new.is_graph_output()
        name, old.name = old.name, None
        old.replace_all_uses_with(new, replace_graph_outputs=True)
        if renamed:
            new.name = name
            new.type = new.type if old.type is None else old.type
            new.shape = new.shape if old.shape is None else old.shape
        return made

    def _check(self, function: ir.Function) -> None:
        """A function's operators must mean in the model what they mean in it."""
        if function.identifier() in self.fitting:
            return
        for domain, version in function.opset_imports.items():
            own = self.imports.setdefault(domain, version)
            if own == version:
                continue
            for node in all_nodes(function):
                if node.domain == domain and form_of(node.op_type, domain, own) != form_of(
                    node.op_type, domain, version
                ):
                    raise UnsupportedOpError(
                        f"function {function_label(function)}: {node.op_type} '{node_label(node)}' requires "
                        f"{domain or 'ai.onnx'} {version}, got a model of {own}, where it is another operator"
                    )
        self.fitting.add(function.identifier())
