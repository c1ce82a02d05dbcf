"""Lowering: every composite node becomes primitive ONNX operators by its rule.

Equal nodes lower to equal nodes: a rule runs once for them, and what it emitted is repeated. An unrolled network holds
thousands of cells that differ in nothing but their operands.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Mapping

import onnx_ir as ir

from lstm_lower import dims, opdef
from lstm_lower.dtypes import is_integer
from lstm_lower.errors import AboutNode, LstmLowerError, UnsupportedOpError, requires
from lstm_lower.graph import standard as std
from lstm_lower.graph.bindings import bind_node, composite_nodes
from lstm_lower.graph.builder import Builder, Workspace
from lstm_lower.graph.edit import redirect
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.form import node_label
from lstm_lower.graph.structure import STANDARD_DOMAINS
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.graph.values import UnknownEntry, declared_shape
from lstm_lower.opdef import Call
from lstm_lower.ops.ort_elementwise import MICROSOFT
from lstm_lower.passes.model_pass import Pass
from lstm_lower.passes.rewriting import Results, Rewriting, values_of
from lstm_lower.passes.rules.registry import RULES, Node
from lstm_lower.passes.shapes import state
from lstm_lower.records import contracts, origin
from lstm_lower.registry import is_ours

# Told of the first such node.
_MADE_BY_ONNXRUNTIME = (
    " (onnxruntime's quantizer or optimizer writes such nodes: lower the model from before that, or optimize it, which "
    "leaves them as they are)"
)


class LowerCompositesPass(Pass):
    """Replaces composite nodes by what their rules emit, in subgraphs and functions too.

    Attributes:
        standard_rnn: whether forward ops whose training outputs are unused may become the standard LSTM, GRU and RNN
            operators.
        chosen: the ops that are lowered; all that have a rule when `None`.
    """

    preserves = True

    def __init__(self, *, standard_rnn: bool = True, chosen: Callable[[type[opdef.OpDef]], bool] | None = None) -> None:
        super().__init__()
        self.standard_rnn = standard_rnn
        self.chosen = chosen

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Lowers.

        Raises:
            InvalidModelError: a composite node does not fit its definition.
            UnsupportedOpError: a rule cannot lower its node; all such nodes are named.
        """
        # More follows from what a rule emits than from what is declared of its node.
        self.context.space.facts.look_again()
        lowering = _Lowering(model, self.context.space, self.chosen, standard_rnn=self.standard_rnn)
        modified = False
        for container, opset in _graphs(model):
            lowering.version = dataclasses.replace(self.context.space, opset=opset)
            modified |= lowering.graph(container)
        if lowering.reasons:
            raise UnsupportedOpError("\n".join(map(str, lowering.reasons)), about=lowering.reasons)
        contracts.write(model, lowering.contracts)
        self._state_outputs(model)
        return ir.passes.PassResult(model, modified=modified)

    def _state_outputs(self, model: ir.Model) -> None:
        """States of the model's outputs what is known now that all is lowered."""
        open_outputs = [value for value in model.graph.outputs if value.type is None or value.shape is None]
        if open_outputs:
            self.context.space.facts.look_again()
        for value in open_outputs:
            state(value, self.context.space.facts)

    def ensures(self, model: ir.Model) -> None:
        """None of the chosen nodes is left, at any nesting level.

        Raises:
            ir.passes.PostconditionError: one is.
        """
        for container, _ in _graphs(model):
            for node, definition in composite_nodes(container):
                if self.chosen is not None and not self.chosen(definition):
                    continue
                raise ir.passes.PostconditionError(f"{node.op_type} '{node_label(node)}' requires lowering, got none")


def is_to_lower(model: ir.Model, *, stock: bool = True) -> bool:
    """Whether `lower` has anything to do: there are composite nodes, or a source has imported the model.

    Args:
        model: the model.
        stock: whether nodes count that onnxruntime has kernels for, too.
    """
    graphs = [model.graph, *(function.graph for function in model.functions.values())]
    found = (definition for graph in graphs for _, definition in composite_nodes(graph))
    return origin.METADATA_KEY in model.metadata_props or any(stock or not definition.stock for definition in found)


def unsupported_nodes(model: ir.Model) -> list[AboutNode]:
    """One line for every node that is neither standard nor lowerable."""
    reasons: list[AboutNode] = []
    for container, _ in _graphs(model):
        for node in all_nodes(container):
            if node.domain in STANDARD_DOMAINS or node.op_identifier() in model.functions:
                continue
            if (node.domain, node.op_type) in RULES:
                continue
            known = "no lowering is known for it"
            if node.domain == MICROSOFT and not any(_MADE_BY_ONNXRUNTIME in reason for reason in reasons):
                known += _MADE_BY_ONNXRUNTIME
            if node.domain not in (domains := opdef.domains()):
                known = f"domain '{node.domain}' is neither ai.onnx nor one of {', '.join(domains)}; "
                known += "import the module that defines its ops, or name it with --plugin"
            label = node_label(node)
            reasons.append(AboutNode(f"{node.op_type} '{label}': {known}", node.op_type, label))
    return reasons


def _graphs(model: ir.Model) -> list[tuple[ir.Graph, int]]:
    """The main graph and the functions' graphs, each with its `ai.onnx` version."""
    found = [(model.graph, model.opset_imports.get("", 1))]
    for function in model.functions.values():
        found.append((function.graph, function.opset_imports.get("", found[0][1])))
    return found


class _Lowering(Rewriting):
    """The lowering of one model: what is shared between its nodes.

    Attributes:
        version: the workspace, of the version of the graph at hand.
        contracts: what the nodes ask of a session's feeds.
        reasons: why nodes could not be lowered.
    """

    def __init__(
        self,
        model: ir.Model,
        space: Workspace,
        chosen: Callable[[type[opdef.OpDef]], bool] | None,
        *,
        standard_rnn: bool,
    ) -> None:
        self.chosen = chosen
        self.standard_rnn = standard_rnn
        self.version = space
        self.main = model.graph
        self.contracts: list[contracts.Contract] = []
        self.reasons: list[UnsupportedOpError] = []
        self._templates: dict[Hashable, Template] = {}

    @property
    def space(self) -> Workspace:
        """The shared state of all that works on the model."""
        return self.version

    def where(self, node: ir.Node) -> bool:
        """Whether a node is a composite one."""
        definition = opdef.definition(node.domain, node.op_type)
        if definition is None or definition not in RULES:
            return False
        return self.chosen is None or self.chosen(definition)

    def formula(self, node: ir.Node, builder: Builder) -> Results | None:
        """The results of a node's rule, in its outputs' dtypes."""
        definition = opdef.definition(node.domain, node.op_type)
        assert definition is not None
        try:
            return self._lowered(node, definition, builder)
        except UnsupportedOpError as error:
            self.reasons.append(error)
            return None
        except LstmLowerError:
            raise
        except Exception as error:
            if is_ours(RULES.module(definition)):
                raise
            got = f"{type(error).__name__}: {error}"
            raise _rule_fault(node, definition, "to return the op's outputs", got) from error

    def _lowered(self, node: ir.Node, definition: type[opdef.OpDef], builder: Builder) -> Results:
        call, rule = bind_node(node, definition, self.space.facts), RULES[definition]
        # Templates share constants with their graph.
        key = (node.graph, signature(node, call, self.space.facts)) if rule.repeatable else None
        if key in self._templates:
            results = self._templates[key].repeat(node, builder)
        else:
            made = rule.formula(Node(node, call, builder, standard_rnn=self.standard_rnn), builder)
            results = _results(builder, node, call, made)
            builder.discard_unread(keep=results)
            if key is not None:
                self._templates[key] = Template.record(node, builder, results)
        contract = contracts.contract_of(call, node, self.main)
        if contract is not None:
            self.contracts.append(contract)
        return results

    def replace(self, old: ir.Value, new: ir.Value) -> None:
        """Puts a value in the place of a node's output, under its name."""
        name, old.name = old.name, None
        if old.is_graph_output():
            old.replace_all_uses_with(new, replace_graph_outputs=True)
        redirect(old, new)
        new.name = name


def _rule_fault(node: ir.Node, op: type[opdef.OpDef], what: str, got: str) -> UnsupportedOpError:
    return UnsupportedOpError(
        requires(op.op_type, node_label(node), f"the lowering rule of {RULES.module(op)}", what, got)
    )


def _results(builder: Builder, node: ir.Node, call: opdef.Call, results: Results) -> list[ir.Value | None]:
    """Values for the place of the node's outputs, in their dtypes; nothing for those that nothing reads."""
    slots = call.op.output_slots(len(node.outputs), call.attributes)
    values = [*values_of(results), *[None] * len(slots)]
    taken: list[ir.Value | None] = []
    for old, slot, info, value in zip(node.outputs, slots, call.outputs, values, strict=False):
        if not old.uses() and not old.is_graph_output():
            taken.append(None)
            continue
        if value is None:
            raise _rule_fault(node, call.op, f"to return {slot}", "none")
        result = builder.wrap(value) if info.dtype is None else builder.wrap(value).cast(info.dtype)
        # The new value takes over the old one's name, so it must be the rule's own and serve one output only.
        if result.value.producer() not in builder.emitted or result.value in taken:
            result = builder.op(std.Identity, result)
        # Identities that were known of the old value are of a time when its operands were not lowered.
        for shape in (declared_shape(old), info.shape):
            made = builder.facts.shape(result.value)
            if not dims.agree(made, shape):
                what, got = f"to return {slot} of shape {dims.format_shape(shape or ())}", dims.format_shape(made or ())
                raise _rule_fault(node, call.op, what, got)
            if shape is not None:
                builder.set_shape(result, shape)
        taken.append(result.value)
    return taken


# What takes the place of a node's outputs, in order.
Outputs = list[ir.Value | None]

# Sizes follow from no more numbers than there are axes.
_FEW = 16


def signature(node: ir.Node, call: Call, facts: Facts) -> Hashable:
    """All that a repeatable rule can depend on: the call, equal operands, their known entries, and outputs in use.

    The call tells integers that are known as a whole; entries are those of which some are sizes known by name, and
    the few of other dtypes from which sizes may follow, such as a Range's bounds.
    """
    first: dict[ir.Value | None, int] = {}
    operands = tuple(first.setdefault(value, index) for index, value in enumerate(node.inputs))
    entries = tuple(_entries(value, facts) for value in first)
    used = tuple(bool(value.uses()) or value.is_graph_output() for value in node.outputs)
    return call, operands, entries, used


def _entries(value: ir.Value | None, facts: Facts) -> Hashable:
    """The known entries of an operand."""
    dtype = facts.dtype(value)
    if is_integer(dtype):
        entries = facts.entries(value)
        return (
            None
            if entries is None
            else tuple([None if isinstance(entry, UnknownEntry) else entry for entry in entries])
        )
    array = facts.constant(value) if facts.elements(value) <= _FEW else None
    return None if array is None else (array.shape, array.tobytes())


# What a step reads: the value at a place of the template, or a shared constant, which stands for itself.
_Reference = int | ir.Value | None


@dataclasses.dataclass(frozen=True)
class _Step:
    op_type: str
    attributes: tuple[ir.Attr, ...]
    inputs: tuple[_Reference, ...]
    outputs: tuple[ir.Value, ...]
    marks: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class Template:
    """The nodes that a rule emitted for one composite node.

    A value's place counts the composite node's own operands first, and then the outputs of all steps.

    Attributes:
        steps: the nodes, operands by place.
        results: the place of what stands for each of a composite node's outputs.
    """

    steps: tuple[_Step, ...]
    results: tuple[int | None, ...]

    @classmethod
    def record(cls, node: ir.Node, builder: Builder, results: Outputs) -> Template:
        """Makes a template of what a rule has emitted for a node."""
        places: dict[ir.Value, int] = {}
        for index, value in enumerate(node.inputs):
            if value is not None:
                places.setdefault(value, index)
        steps, count = [], len(node.inputs)
        for made in builder.emitted:
            inputs = tuple(None if value is None else places.get(value, value) for value in made.inputs)
            marks = dict(made.metadata_props)
            steps.append(_Step(made.op_type, tuple(made.attributes.values()), inputs, tuple(made.outputs), marks))
            for value in made.outputs:
                places[value] = count
                count += 1
                if value.shape is not None:
                    # The same object will serve all repetitions.
                    value.shape.freeze()
        return cls(tuple(steps), tuple(None if value is None else places[value] for value in results))

    def repeat(self, node: ir.Node, builder: Builder) -> Outputs:
        """Emits the template's nodes for another composite node of the same signature."""
        names, facts, scope = builder.names, builder.facts, builder.scope
        values = list(node.inputs)
        made: list[ir.Node] = []
        for step in self.steps:
            inputs = [values[place] if isinstance(place, int) else place for place in step.inputs]
            name = names.fresh(f"{scope}/{step.op_type}")
            outputs = [
                ir.Value(name=names.part(name, index, len(step.outputs)), type=recorded.type, shape=recorded.shape)
                for index, recorded in enumerate(step.outputs)
            ]
            for value, recorded in zip(outputs, step.outputs, strict=True):
                facts.alike(value, recorded)
            values += outputs
            marks = dict(step.marks)
            made.append(
                ir.Node("", step.op_type, inputs, step.attributes, outputs=outputs, name=name, metadata_props=marks)
            )
        builder.place(*made)
        return [None if place is None else values[place] for place in self.results]
