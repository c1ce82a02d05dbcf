"""A graph that holds one training step many times, for workers or devices, cut to one of them.

Workers each have a step that updates the same variables, as A3C's; towers each have gradients, of which one step takes
the mean. Both are found by walking two of them side by side: they are the same up to their names, to the data that
comes in and to the variables that only workers read. What is left computes what TensorFlow does where all are fed
alike.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from lstm_lower.checkpoints import messages
from lstm_lower.errors import LstmLowerWarning, some, warn
from lstm_lower.tensorflow.files import steps
from lstm_lower.tensorflow.files.functions import OpTable
from lstm_lower.tensorflow.files.pipelines import is_placeholder, is_source
from lstm_lower.tensorflow.files.views import PASSING, View, data_inputs
from lstm_lower.tensorflow.graph import split_name
from lstm_lower.tensorflow.regions import SILENT
from lstm_lower.tensorflow.sources import GraphSource
from lstm_lower.tensorflow.state import is_write

# Ops that put the gradients of towers together.
_JOINS = ("AccumulateNV2", "AddN", "AddV2", "Add", "Concat", "ConcatV2", "Pack")
# Attributes that name what is the same, or decide nothing but where it runs or which random numbers it draws.
_NAMES = (
    "container",
    "debug_name",
    "frame_name",
    "seed",
    "seed2",
    "shared_name",
    "source",
    "stack_name",
    "tensor_array_name",
)


class TowersWarning(LstmLowerWarning):
    """A graph holds one step many times, and is cut to one of them."""


@dataclasses.dataclass(frozen=True)
class CutGraph:
    """What a graph is cut to.

    Attributes:
        source: the graph, in which the others are gone.
        text: what was kept, what is gone, and which variables are read in place of copies.
    """

    source: GraphSource
    text: str


def cut_to_one(source: GraphSource) -> GraphSource:
    """The graph with one worker or tower, with a warning that says so; as it is where it has no more than one."""
    cut = cut_of(source)
    if cut is None:
        return source
    warn(f"{source.label}: {cut.text}", TowersWarning)
    return cut.source


def cut_of(source: GraphSource) -> CutGraph | None:
    """What a graph is cut to; `None` where it holds no step twice, and no copies of what its step updates."""
    if source.outputs is not None:
        return None
    table = OpTable(source.graph_def.library.function, source.op_defs)
    view = View(source.graph_def, table, source.variables)
    train_ops = steps.recorded_train_ops(view, source.train_ops) or steps.find_train_ops(view)
    if not train_ops or not steps.has_updates(view):
        return None
    twins, needed = Twins(view, table), steps.needed(view, train_ops[:1])[0]
    workers = [twins.add_step(train_ops[0], other) for other in train_ops[1:]]
    for name, node in view.nodes.items():
        if name in needed:
            twins.add_towers(node)
    twins.spread()
    copies = _copies(view, steps.needed(view, [name for name in train_ops if name not in twins.kept_of])[0])
    if not twins.kept_of and not copies:
        return None
    what = "workers" if any(workers) else "towers"
    return CutGraph(_reduced(source, twins.kept_of, copies), _text(what, view, twins.kept_of, copies))


class Twins:
    """Nodes that do the same for another worker or tower.

    Attributes:
        kept_of: node that goes -> node that does the same for the one that stays.
    """

    def __init__(self, view: View, table: OpTable) -> None:
        self.kept_of: dict[str, str] = {}
        self._kept: set[str] = set()
        self._view = view
        self._functions = _Functions(table.functions)
        self._readers: dict[str, list[str]] = collections.defaultdict(list)
        for node in view.nodes.values():
            for spelled in node.input:
                self._readers[split_name(spelled)[0]].append(node.name)

    def add_step(self, kept: str, other: str) -> bool:
        """Takes a step as another worker's, if it updates the same variables."""
        pairs = self._pairs(f"^{kept}", f"^{other}")
        writes = [node for name in pairs or () if is_write((node := self._view.nodes[name]).op)]
        if pairs is None or not writes or any(self._view.origin(node.input[0]) in pairs for node in writes):
            return False
        self._add(pairs)
        return True

    def _add(self, pairs: Mapping[str, str]) -> None:
        self.kept_of |= pairs
        self._kept.update(pairs.values())

    def add_towers(self, join: Any) -> None:
        """Takes gradients that an op puts together as other towers', if each comes from a call of its own."""
        if join.op not in _JOINS or steps.gradient_scope(join.name) is not None:
            return
        operands = list(data_inputs(join))
        operands = operands[:-1] if join.op == "ConcatV2" else operands[1:] if join.op == "Concat" else operands
        found: dict[str, str] = {}
        for operand in operands[1:]:
            pairs = self._pairs(operands[0], operand)
            if pairs is None or not self._is_tower(pairs):
                return
            found |= pairs
        self._add(found)

    def _is_tower(self, pairs: Mapping[str, str]) -> bool:
        """Whether nodes are gradients of a call of their own, of the same variables and other data."""
        nodes = [self._view.nodes[name] for name in pairs]
        if any(self._view.is_variable(node) for node in nodes):
            return False
        own, kept = self._scopes(pairs), self._scopes(pairs.values())
        return bool(own and kept and not own & kept) and (bool(self.kept_of) or any(map(_is_data, nodes)))

    def _scopes(self, names: Iterable[str]) -> set[str]:
        return {scope for name in names if (scope := steps.gradient_scope(name)) is not None}

    def spread(self) -> None:
        """Takes what reads twins in the same way as twins, too, such as losses."""
        pending = list(self.kept_of)
        while pending:
            twin = pending.pop()
            for reader in self._readers[twin]:
                if reader in self.kept_of or reader in self._kept:
                    continue
                for kept in self._readers[self.kept_of[twin]]:
                    pairs = None if kept == reader else self._pairs(kept, reader)
                    if (
                        pairs
                        and reader in pairs
                        and not any(self._view.is_variable(self._view.nodes[x]) for x in pairs)
                    ):
                        pending += pairs
                        self._add(pairs)
                        break

    def _pairs(self, kept: str, other: str) -> dict[str, str] | None:
        """New twins that make one tensor like another; `None` where they differ in more than names and data."""
        view, found = self._view, dict[str, str]()
        pending = [(kept, other)]
        while pending:
            one, two = pending.pop()
            (stays, number), (goes, number_too) = view.made_by(one), view.made_by(two)
            if stays is None or goes is None or number != number_too or one.startswith("^") != two.startswith("^"):
                return None
            if stays is goes:
                continue
            known = found.get(goes.name, self.kept_of.get(goes.name))
            if known is None:
                if not self._alike(stays, goes):
                    return None
                found[goes.name] = stays.name
                # What only checks or reports names itself.
                pending += [] if goes.op in SILENT else zip(stays.input, goes.input, strict=True)
            elif known != stays.name:
                return None
        # Of two that are part of each other neither is another's.
        overlap = found.keys() & self._kept or found.keys() & set(found.values())
        return None if overlap else found

    def _alike(self, one: Any, two: Any) -> bool:
        if one.op != two.op or len(one.input) != len(two.input):
            return False
        return self._functions.attributes(one) == self._functions.attributes(two)


class _Functions:
    """What functions and attributes say, names aside."""

    def __init__(self, functions: Mapping[str, Any]) -> None:
        self._functions = functions
        self._texts: dict[str, object] = {}

    def attributes(self, node: Any) -> dict[str, object]:
        """Attributes of a node that decide what it computes."""
        names = [name for name in node.attr if not name.startswith("_") and name not in _NAMES]
        return {name: self._value(node.attr[name]) for name in names}

    def _value(self, value: Any) -> object:
        if value.HasField("func"):
            return self._text(value.func.name)
        if value.list.func:
            return [self._text(function.name) for function in value.list.func]
        return value.SerializeToString(deterministic=True)

    def _text(self, name: str) -> object:
        """A function's body with numbers for its names; its name where the library lacks it, or it calls itself."""
        if name not in self._texts:
            self._texts[name] = name
            if name in self._functions:
                self._texts[name] = self._body(self._functions[name])
        return self._texts[name]

    def _body(self, function: Any) -> object:
        arguments, nodes = function.signature.input_arg, function.node_def
        places = {argument.name: number for number, argument in enumerate(arguments)}
        places |= {node.name: len(arguments) + number for number, node in enumerate(nodes)}

        def placed(spelled: str) -> tuple[int | None, str]:
            first, _, rest = spelled.removeprefix("^").partition(":")
            return places.get(first), f"{spelled[:1] == '^'} {rest}"

        returned = [placed(function.ret[result.name]) for result in function.signature.output_arg]
        return [*((node.op, list(map(placed, node.input)), self.attributes(node)) for node in nodes), returned]


def _is_data(node: Any) -> bool:
    return is_placeholder(node) or is_source(node.op)


def _copies(view: View, needed: set[str]) -> dict[str, str]:
    """Variables that a step reads in place of those that it updates, of which the graph makes copies -> the latter.

    What a step both reads and updates is no such thing: a target network is a copy, too.
    """
    updated, read = set[str](), set[str]()
    for node in (view.nodes[name] for name in needed):
        variables = [view.origin(spelled) for spelled in data_inputs(node)]
        if is_write(node.op) and variables:
            updated.add(variables.pop(0))
        if node.op not in PASSING:
            read.update(variables)
    assigned: dict[str, set[str]] = collections.defaultdict(set)
    for node in view.nodes.values():
        if node.op in ("Assign", "AssignVariableOp"):
            target, value = (view.origin(spelled) for spelled in list(data_inputs(node))[:2])
            if value in view.nodes and view.is_variable(view.nodes[value]):
                assigned[target].add(value)
    taken_over = {name: next(iter(sources)) for name, sources in assigned.items() if len(sources) == 1}
    return {
        name: source
        for name, source in taken_over.items()
        if name in read - updated and source in updated - read and view.shape(name) == view.shape(source)
    }


def _reduced(source: GraphSource, kept_of: Mapping[str, str], copies: Mapping[str, str]) -> GraphSource:
    """The graph without twins, in which variables are read in place of their copies."""
    graph = messages.GraphDef()
    graph.CopyFrom(source.graph_def)
    nodes = [node for node in graph.node if node.name not in kept_of]
    for node in nodes:
        # A write to a copy stays one.
        own = is_write(node.op) and split_name(node.input[0])[0] in copies
        instead = kept_of if own else {**kept_of, **copies}
        for place, spelled in enumerate(node.input):
            mark, name = spelled[: spelled.startswith("^")], split_name(spelled)[0]
            if name in instead:
                node.input[place] = f"{mark}{instead[name]}{spelled[len(mark) + len(name) :]}"
    del graph.node[:]
    graph.node.extend(nodes)

    def left(names: Sequence[str]) -> list[str]:
        whole = (name.partition(":") for name in names)
        return list(dict.fromkeys(f"{kept_of.get(name, name)}{colon}{number}" for name, colon, number in whole))

    return dataclasses.replace(
        source,
        graph_def=graph,
        variables={node: variable for node, variable in source.variables.items() if node not in kept_of},
        train_ops=left(source.train_ops),
        losses=left(source.losses),
    )


def _text(what: str, view: View, kept_of: Mapping[str, str], copies: Mapping[str, str]) -> str:
    # What a graph's author has named tells best who it is of.
    told = {other: kept for other, kept in kept_of.items() if _is_data(view.nodes[kept])}
    pairs, texts = list(_differences(told or kept_of)), []
    if pairs:
        kept = collections.Counter(kept for kept, _ in pairs).most_common(1)[0][0]
        gone = list(dict.fromkeys(other for mine, other in pairs if mine == kept))
        texts.append(f"cut to {kept}, one of {len(gone) + 1} {what}; gone: {some(gone)}")
    if copies:
        named = some(list(copies.values()))
        texts.append(f"the step reads the variables that it updates, not its copies of them: {named}")
    return "; ".join(texts)


def _differences(kept_of: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Where names of twins begin to differ, up to the end of that part of the path."""
    for other, kept in kept_of.items():
        mine, others = kept.split("/"), other.split("/")
        differing = [number for number, (x, y) in enumerate(zip(mine, others, strict=False)) if x != y]
        if differing:
            end = differing[0] + 1
            yield "/".join(mine[:end]), "/".join(others[:end])
