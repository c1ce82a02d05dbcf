"""Changes in place in a trace: which calls write into tensors, and which values are others from then on.

A value is bound anew where a call writes into it, as long as nothing else that is read later lies in its memory. Views
that do are left to PyTorch, which takes changes apart by running the whole program again, slower than all else here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from lstm_lower.torch.aten.registry import TRANSLATIONS, Formula
from lstm_lower.torch.aten.storage import memory

aten = torch.ops.aten

# Operators whose schema does not say that they write into operands: into which.
_UNSAID: Mapping[Any, tuple[int, ...]] = dict.fromkeys(
    (aten.batch_norm.default, aten.native_batch_norm.default, aten.instance_norm.default), (3, 4)
)
# The operand that says whether normalization does.
_TRAINING = 5
# What bears another overload's name where it changes nothing.
_PURE = {aten.transpose_.default: aten.transpose.int}


def in_place(operator: Any) -> Formula | None:
    """The translation of what an operator writes into its first operand; `None` where it writes nothing."""
    if not isinstance(operator, torch._ops.OpOverload) or not operator._schema.is_mutable:
        return None
    name = operator._schema.name.removeprefix("aten::")
    pure = getattr(getattr(aten, name[:-1], None), operator._overloadname, None) if name.endswith("_") else None
    return TRANSLATIONS.get(_PURE.get(operator, pure))


def written(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The operands that a call writes into, lists among them."""
    if operator in _UNSAID:
        return [args[place] for place in _UNSAID[operator]] if args[_TRAINING] else []
    if not isinstance(operator, torch._ops.OpOverload) or not operator._schema.is_mutable:
        return []
    declared = operator._schema.arguments
    given = [*args, *(kwargs.get(each.name) for each in declared[len(args) :])]
    return [x for x, each in zip(given, declared, strict=True) if each.alias_info and each.alias_info.is_write]


def written_by(node: Node) -> list[Node]:
    """The operands that a call in a trace writes into."""
    return [x for x in written(node.target, node.args, node.kwargs) if isinstance(x, Node)]


class TensorNames:
    """Which nodes of a graph name the same tensor: what is returned by a change of it does."""

    def __init__(self, graph: Graph) -> None:
        self._first: dict[Node, Node] = {}
        self._all: dict[Node, list[Node]] = {}
        for node in graph.nodes:
            changed = written_by(node) if in_place(node.target) else []
            first = self._first[changed[0]] if changed else node
            self._first[node] = first
            self._all.setdefault(first, []).append(node)

    def of(self, node: Node) -> list[Node]:
        """All that name the same, itself included."""
        return self._all[self._first[node]]


def needed(graph: Graph) -> list[Node]:
    """The calls of which results, changes and sizes of a graph are made, in order."""
    kept: set[Node] = set()
    for node in reversed(graph.nodes):
        if node in kept or node.is_impure() or written_by(node) or node.meta.get("unbacked_bindings"):
            kept.update((node, *node.all_input_nodes))
    return [node for node in graph.nodes if node in kept]


def are_separate(module: GraphModule) -> bool:
    """Whether all that a program changes is read by its own names alone, and its inner graphs change nothing of it."""
    parts = (part for part in module.modules() if isinstance(part, GraphModule))
    return all(_is_separate(part.graph, within=part is not module) for part in parts)


def _is_separate(graph: Graph, *, within: bool) -> bool:
    changes = [(node, x) for node in graph.nodes for x in written_by(node)]
    if not changes:
        return True
    if any(node.target not in TRANSLATIONS and in_place(node.target) is None for node, _ in changes):
        return False
    names = TensorNames(graph)
    places = {node: place for place, node in enumerate(graph.nodes)}
    neighbours: dict[int, list[Node]] = {}
    for node in graph.nodes:
        for held in _memories(node):
            neighbours.setdefault(held, []).append(node)
    for node, x in changes:
        others = {other for held in _memories(x) for other in neighbours[held] if places[other] < places[node]}
        if within and any(other.op == "placeholder" for other in others):
            return False
        if any(places[user] > places[node] for other in others.difference(names.of(x)) for user in other.users):
            return False
    return True


def _memories(node: Node) -> Iterator[int]:
    value = node.meta.get("val")
    for x in value if isinstance(value, (tuple, list)) else [value]:
        if isinstance(x, torch.Tensor):
            yield memory(x)
