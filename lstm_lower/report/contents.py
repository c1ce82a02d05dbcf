"""The contents of a report as JSON, which the page draws: docs/report.md describes them."""

from __future__ import annotations

import collections
import dataclasses
import inspect
import re
from collections.abc import Iterable
from typing import Any, TypedDict

import onnx_ir as ir
from onnx import defs

import lstm_lower
from lstm_lower import opdef
from lstm_lower.graph.dump import type_text
from lstm_lower.graph.values import declared_shape
from lstm_lower.passes.history import GraphState, NodeState, PassStep
from lstm_lower.passes.model_pass import Pass
from lstm_lower.passes.rules.registry import RULES
from lstm_lower.reachability import reached
from lstm_lower.records import certificate
from lstm_lower.records import state as training_state
from lstm_lower.records.state import TrainingState
from lstm_lower.registry import ONNX_DOMAINS
from lstm_lower.report.analysis import Analysis
from lstm_lower.runtime.node_times import by_loop, by_op
from lstm_lower.runtime.proof.comparison import AGREE

# What goes into a model and comes out of it, and a program that runs it with onnxruntime and numpy alone.


# Of symbolic dimensions in the program.
_SIZE = 4


class Port(TypedDict):
    """An input or output.

    Attributes:
        name: its name.
        type: its type, as `f32[T,B,4]`.
        role: what it is: `data`, `weight`, `slot`, `counter`, `learning rate`, `loss`, `gradient`, `result`.
        partner: of an input of the state the output with its next value, and the other way round; else empty.
        has_value: whether an input has an initial value.
    """

    name: str
    type: str
    role: str
    partner: str
    has_value: bool


def ports(model: ir.Model) -> tuple[list[Port], list[Port]]:
    """The inputs and outputs of a model, in order."""
    state = training_state.of(model)
    roles: dict[str, tuple[str, str]] = {pair.input: (pair.role, pair.output or "") for pair in state.pairs}
    made: dict[str, tuple[str, str]] = {pair.output: (pair.role, pair.input) for pair in state.pairs if pair.output}
    made |= {pair.gradient: ("gradient", pair.input) for pair in state.pairs if pair.gradient}
    if state.learning_rate is not None:
        roles[state.learning_rate] = ("learning rate", "")
    if state.loss is not None:
        made[state.loss] = ("loss", "")
    return (
        [_port(value, *roles.get(value.name or "", ("data", ""))) for value in model.graph.inputs],
        [_port(value, *made.get(value.name or "", ("result", ""))) for value in model.graph.outputs],
    )


def _port(value: ir.Value, role: str, partner: str) -> Port:
    has_value = value.const_value is not None
    return Port(name=value.name or "", type=type_text(value), role=role, partner=partner, has_value=has_value)


def program(model: ir.Model, file: str) -> str:
    """A program that trains the lowered model, or runs one that carries no state on; with data to be replaced.

    Args:
        model: the lowered model.
        file: what it is called.
    """
    state = training_state.of(model)
    moving = {pair.input: pair.output for pair in state.pairs if pair.output is not None}
    inputs = {value.name or "": value for value in model.graph.inputs}
    required = [name for name, value in inputs.items() if value.const_value is None]
    sizes = sorted({dim for name in required for dim in declared_shape(inputs[name]) or () if isinstance(dim, str)})
    of_state = [name for name in required if name in moving]
    data = [name for name in required if name not in moving and name != state.learning_rate]
    lines = ["import numpy as np", "import onnxruntime as ort", "", "rng = np.random.default_rng(0)"]
    lines += [f"size = {{{', '.join(f'{name!r}: {_SIZE}' for name in sizes)}}}"] if sizes else []
    lines += [f"session = ort.InferenceSession({file!r})"]
    if moving:
        lines += ["# The state before the first step; what has an initial value in the file may be omitted."]
        lines += _table("state", of_state, inputs, scale="0.1 * ")
        lines += _table("moving", [], {}, entries=[f"{name!r}: {output!r}" for name, output in moving.items()])
    lines += ["# Your data."]
    lines += _table("batch", data, inputs)
    if state.learning_rate is not None and state.learning_rate in required:
        lines += [f"batch[{state.learning_rate!r}] = {_filled(inputs[state.learning_rate], '0.01')}"]
    if not moving:
        return "\n".join([*lines, "results = session.run(None, batch)", *_shown(), ""])
    return "\n".join([*lines, *_loop(state), ""])


def _shown() -> list[str]:
    return ["for output, result in zip(session.get_outputs(), results):", "    print(output.name, np.shape(result))"]


def _loop(state: TrainingState) -> list[str]:
    if state.loss is None:
        run = "    new = session.run([*moving.values()], {**state, **batch})"
        return ["for step in range(100):", run, "    state.update(zip(moving, new))"]
    return [
        "for step in range(100):",
        f"    loss, *new = session.run([{state.loss!r}, *moving.values()], {{**state, **batch}})",
        "    state.update(zip(moving, new))",
        "    if step % 10 == 0:",
        "        print(step, loss)",
    ]


def _table(
    name: str, keys: Iterable[str], values: dict[str, ir.Value], *, scale: str = "", entries: list[str] | None = None
) -> list[str]:
    rows = [f"{key!r}: {_random(values[key], scale)}" for key in keys] if entries is None else entries
    return [f"{name} = {{", *(f"    {row}," for row in rows), "}"] if rows else [f"{name} = {{}}"]


def _random(value: ir.Value, scale: str) -> str:
    """An expression for random values of an input."""
    dtype, shape = _dtype(value), _shape(value)
    if dtype.startswith(("float", "bfloat")):
        return f"({scale}rng.standard_normal({shape})).astype({dtype!r})"
    return f"np.zeros({shape}, {dtype!r})"


def _filled(value: ir.Value, text: str) -> str:
    return f"np.full({_shape(value)}, {text}, {_dtype(value)!r})"


def _dtype(value: ir.Value) -> str:
    return "float32" if value.dtype is None else str(value.dtype.numpy())


def _shape(value: ir.Value) -> str:
    dims = [f"size[{dim!r}]" if isinstance(dim, str) else str(dim or _SIZE) for dim in declared_shape(value) or ()]
    return f"({', '.join(dims)}{',' if len(dims) == 1 else ''})"


# What operators mean, for a reader of a graph: their definitions, the names of their operands, and their formulas.


# Longer descriptions of ONNX's go on with examples.
_MOST_TEXT = 700


class Operator(TypedDict):
    """The description of an operator.

    Attributes:
        lowered: whether it is one that lowering replaces.
        text: what it does.
        formula: the rule that lowers it, as Python; empty for ONNX's own.
        inputs, outputs: names of its operands and results, the last one's repeated where it takes several.
    """

    lowered: bool
    text: str
    formula: str
    inputs: list[str]
    outputs: list[str]


def describe(operators: Iterable[tuple[str, str]], opset: int) -> dict[str, Operator]:
    """Describes operators given by domain and name, under `domain::name`, ONNX's own under their name."""
    found: dict[str, Operator] = {}
    for domain, op in sorted(set(operators)):
        described = _described(domain, op, opset)
        if described is not None:
            found[key(domain, op)] = described
    return found


def key(domain: str, op: str) -> str:
    """The name under which an operator is described."""
    return op if domain in ONNX_DOMAINS else f"{domain}::{op}"


def _described(domain: str, op: str, opset: int) -> Operator | None:
    definition = opdef.definition(domain, op)
    if definition is not None:
        rule = RULES.get(definition)
        return Operator(
            lowered=True,
            text=inspect.getdoc(definition) or "",
            formula="" if rule is None else _source(rule.formula),
            inputs=[operand.name for operand in definition.inputs],
            outputs=[operand.name for operand in definition.outputs],
        )
    if domain not in ONNX_DOMAINS or not defs.has(op, opset, ""):
        return None
    schema = defs.get_schema(op, opset, "")
    return Operator(
        lowered=False,
        text=_shortened(schema.doc),
        formula="",
        inputs=[parameter.name for parameter in schema.inputs],
        outputs=[parameter.name for parameter in schema.outputs],
    )


def _source(formula: object) -> str:
    try:
        return inspect.getsource(formula)  # type: ignore[arg-type]
    except (OSError, TypeError):
        # Another package's rule may come without a source.
        return ""


def _shortened(text: str | None) -> str:
    """The first paragraphs of ONNX's description, without its markup."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)|</?[a-z]+/?>|[`*]{1,3}", r"\1", inspect.cleandoc(text or ""))
    paragraphs = re.split(r"\n\s*\n", plain)
    taken = paragraphs[0] if paragraphs else ""
    for paragraph in paragraphs[1:]:
        if len(taken) + len(paragraph) > _MOST_TEXT:
            break
        taken += f"\n\n{paragraph}"
    return taken if len(taken) <= 2 * _MOST_TEXT else f"{taken[: 2 * _MOST_TEXT]} …"


# Colours of a report: which parts of the source are told apart, and which of its nodes belongs to which.


# More hues than these cannot be told apart.
HUES = 8


@dataclasses.dataclass(frozen=True)
class Origins:
    """The parts of a source.

    Attributes:
        parts: labels of the parts, each with the colour of its place.
        part_of: number of a source node -> the place of its part; nodes that are not in it belong to none.
    """

    parts: list[str]
    part_of: dict[int, int]


def origins(first: PassStep) -> Origins:
    """Divides the source: each node that is lowered and each loop is a part, with what is in it.

    Where these are more than there are hues, those of one operator are a part; the rarest ones are left out.

    Args:
        first: the source, the first step of a history.
    """
    nodes = {node.number: node for node in first.nodes}
    graphs = {graph.number: graph for graph in first.graphs}
    holding = {graph.owner for graph in first.graphs if graph.owner is not None}
    heads: dict[int, NodeState] = {}
    for node in first.nodes:
        head = None
        outer: NodeState | None = node
        while outer is not None:
            # The outermost loop around a node is what it is a part of.
            head = outer if outer.number in holding or opdef.definition(outer.domain, outer.op) is not None else head
            owner = graphs[outer.graph].owner
            outer = None if owner is None else nodes[owner]
        if head is not None:
            heads[node.number] = head
    units = list(dict.fromkeys(heads.values()))
    if len(units) <= HUES:
        places = {head: place for place, head in enumerate(units)}
        return Origins([f"{head.op} {head.name}" for head in units], {n: places[head] for n, head in heads.items()})
    counts = collections.Counter(head.op for head in units)
    kinds = {op: place for place, (op, _) in enumerate(counts.most_common(HUES))}
    labels = [f"{op} ({counts[op]})" for op in kinds]
    return Origins(labels, {n: kinds[head.op] for n, head in heads.items() if head.op in kinds})


VERSION = 1


def contents(analysis: Analysis, name: str, lowered_file: str) -> dict[str, Any]:
    """Everything that a page shows.

    Args:
        analysis: of the model.
        name: what the model is called.
        lowered_file: what the lowered model is called in the program to paste.
    """
    history = analysis.history
    nodes = [node for step in history.steps for node in step.nodes]
    parts = origins(history.steps[0])
    inputs, outputs = ports(analysis.lowered)
    compared = certificate.parse(analysis.source.metadata_props)
    return {
        "version": VERSION,
        "by": f"lstm-lower {lstm_lower.__version__}",
        "name": name,
        "before": dataclasses.asdict(analysis.before),
        "after": dataclasses.asdict(analysis.after),
        "parts": parts.parts,
        "part_of": {str(number): place for number, place in parts.part_of.items()},
        "steps": [_step(step) for step in history.steps],
        "values": [[value.name, value.type, value.constant] for _, value in sorted(history.values.items())],
        "operators": describe([(node.domain, node.op) for node in nodes], analysis.after.opset),
        "passes": _pass_texts({step.pass_name for step in history.steps}),
        "refusals": [[refusal.pass_name, refusal.where, refusal.reason] for refusal in analysis.trace.refusals],
        "notes": analysis.trace.notes,
        "check": _check(analysis),
        "certificate": None if compared is None else compared.described(),
        "times": _times(analysis),
        "inputs": inputs,
        "outputs": outputs,
        "program": program(analysis.lowered, lowered_file),
    }


def _step(step: PassStep) -> dict[str, Any]:
    return {
        "pass": step.pass_name,
        "round": step.round,
        "nodes": [_node(node) for node in step.nodes],
        "graphs": [_graph(graph) for graph in step.graphs],
        "gone": step.gone,
        "added": step.added,
        "count": step.count,
    }


def _node(node: NodeState) -> list[Any]:
    # A list, since a page holds thousands of them.
    attributes = dict(node.attributes)
    operator = key(node.domain, node.op)
    told = [node.number, node.graph, operator, node.name, node.inputs, node.outputs, attributes, node.sources]
    return [*told, node.scope] if node.scope else told


def _graph(graph: GraphState) -> list[Any]:
    return [graph.number, graph.owner, graph.role, graph.inputs, graph.outputs]


def _pass_texts(names: set[str]) -> dict[str, str]:
    """Name of a pass -> the first line that its class says of itself."""
    kinds = reached(Pass.__subclasses__(), lambda kind: kind.__subclasses__())
    texts = {kind.name: (inspect.getdoc(kind) or "").split("\n", 1)[0] for kind in kinds if kind.name in names}
    return dict(sorted(texts.items()))


def _times(analysis: Analysis) -> dict[str, Any] | None:
    """Times by node, operator and loop; nodes that onnxruntime made itself, by fusion, have no number."""
    if analysis.times is None:
        return None
    numbers = {node.name: node.number for step in analysis.history.steps for node in step.nodes}
    rows = sorted(analysis.times, key=lambda time: (-time.seconds, time.place, time.name))
    return {
        "nodes": [
            {
                "number": numbers.get(time.name),
                "name": time.name,
                "op": time.op,
                "place": time.place,
                "seconds": time.seconds,
                "calls": time.calls,
                "bodies": time.holds_bodies,
            }
            for time in rows
        ],
        "ops": [[time.op, time.calls, time.seconds] for time in by_op(analysis.times)],
        "loops": [[time.place, time.iterations, time.calls, time.seconds] for time in by_loop(analysis.times)],
    }


def _check(analysis: Analysis) -> dict[str, Any] | None:
    report = analysis.check
    if report is None:
        return None
    outputs = [{**dataclasses.asdict(row), "agrees": row.verdict in AGREE} for row in report.outputs]
    return {"passed": report.passed, "verdict": report.verdict, **dataclasses.asdict(report), "outputs": outputs}
