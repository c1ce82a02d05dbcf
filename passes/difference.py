"""Differences between two models: interface, nodes, weights, metadata.

Names of inner values and of nodes do not count as long as what is computed is the same. Nodes are matched graph by
graph: those that compute the same from the same inputs, those of one name, those that do the same to what is matched.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.graph.copies import copy_model
from lstm_lower.graph.dump import type_text
from lstm_lower.graph.form import node_label
from lstm_lower.graph.structure import verify_structure
from lstm_lower.graph.subgraphs import all_graphs, all_nodes
from lstm_lower.passes.digests import Digests, is_constant
from lstm_lower.passes.matching import Matching, NodeChange, NodeReference, match


@dataclasses.dataclass(frozen=True)
class NamedChange:
    """Something that has a name in both models, or in one.

    Attributes:
        name: the name.
        before: what it is in the first model; `None` where it is not there.
        after: likewise in the second.
    """

    name: str
    before: str | None
    after: str | None


@dataclasses.dataclass(frozen=True)
class Difference:
    """How a second model differs from a first.

    Attributes:
        inputs: inputs that have other types or defaults, or are in one model only.
        outputs: outputs that have other types, are made of other values, or are in one model only.
        opsets: domains of other versions.
        operators: operators that occur more or less often, at any level.
        removed: nodes of the first model that the second lacks.
        added: nodes of the second model that the first lacks.
        changed: nodes of both that read or are something else.
        weights: initializers with other values or types, or in one model only.
        metadata: entries that differ.
    """

    inputs: list[NamedChange]
    outputs: list[NamedChange]
    opsets: list[NamedChange]
    operators: list[NamedChange]
    removed: list[NodeReference]
    added: list[NodeReference]
    changed: list[NodeChange]
    weights: list[NamedChange]
    metadata: list[NamedChange]

    @property
    def is_empty(self) -> bool:
        """Whether the models are the same."""
        return not any(getattr(self, field.name) for field in dataclasses.fields(self))


def difference(first: ir.Model, second: ir.Model) -> Difference:
    """Compares two models, which are not changed.

    Raises:
        InvalidModelError: one of them is malformed.
    """
    a, b = _sorted(first), _sorted(second)
    digests = Digests(a), Digests(b)
    matching = Matching(*digests)
    for before, after in _roots(a, b):
        match(matching, before, after)
    for name in sorted(a.functions.keys() ^ b.functions.keys()):
        graph = (a.functions.get(name) or b.functions[name]).graph
        references = [
            NodeReference.of(node, f"function {name[0]}.{name[1]}") for node in graph if not is_constant(node)
        ]
        (matching.removed if name in a.functions else matching.added).extend(references)
    return Difference(
        inputs=_inputs(a, b),
        outputs=_outputs(a, b, matching),
        opsets=_changes(_texts(a.opset_imports), _texts(b.opset_imports)),
        operators=_changes(_counts(a), _counts(b)),
        removed=matching.removed,
        added=matching.added,
        changed=matching.changed,
        weights=_weights(a, b),
        metadata=_changes(dict(a.metadata_props), dict(b.metadata_props)),
    )


def _sorted(model: ir.Model) -> ir.Model:
    copy = copy_model(model)
    for graph in (copy.graph, *(function.graph for function in copy.functions.values())):
        # Where there is no order, the verifier says why.
        with contextlib.suppress(ValueError):
            graph.sort()
    verify_structure(copy)
    return copy


def _roots(a: ir.Model, b: ir.Model) -> list[tuple[ir.Graph, ir.Graph]]:
    shared = [name for name in a.functions if name in b.functions]
    return [(a.graph, b.graph), *((a.functions[name].graph, b.functions[name].graph) for name in shared)]


def _changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[NamedChange]:
    names = dict.fromkeys(itertools.chain(before, after))
    changes = [NamedChange(name, before.get(name), after.get(name)) for name in names]
    return [change for change in changes if change.before != change.after]


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {name or "ai.onnx": str(value) for name, value in values.items()}


def _inputs(a: ir.Model, b: ir.Model) -> list[NamedChange]:
    before, after = (
        {
            value.name or "": type_text(value) + (" with an initial value" if value.const_value is not None else "")
            for value in model.graph.inputs
        }
        for model in (a, b)
    )
    return [*_changes(before, after), *_order(before, after)]


def _order(before: Mapping[str, object], after: Mapping[str, object]) -> list[NamedChange]:
    """The order of the same names, where it is another one."""
    same = before.keys() == after.keys() and list(before) != list(after)
    return [NamedChange("(order)", ", ".join(before), ", ".join(after))] if same else []


def _outputs(a: ir.Model, b: ir.Model, matching: Matching) -> list[NamedChange]:
    before, after = ({value.name or "": value for value in model.graph.outputs} for model in (a, b))
    changes = _changes(*({name: type_text(value) for name, value in each.items()} for each in (before, after)))
    told = {change.name for change in changes}
    for name, value in before.items():
        if name not in told and not matching.same(value, after[name]):
            changes.append(NamedChange(name, _source(value), _source(after[name])))
    return [*changes, *_order(before, after)]


def _source(value: ir.Value) -> str:
    node = value.producer()
    return f"the value '{value.name}'" if node is None else f"made by {node.op_type} '{node_label(node)}'"


def _counts(model: ir.Model) -> dict[str, str]:
    roots = [model.graph, *(function.graph for function in model.functions.values())]
    return _texts(collections.Counter(node.op_type for graph in roots for node in all_nodes(graph)))


def _weights(a: ir.Model, b: ir.Model) -> list[NamedChange]:
    before, after = _initializers(a), _initializers(b)
    changes = []
    for name in dict.fromkeys(itertools.chain(before, after)):
        old, new = before.get(name), after.get(name)
        if old is None or new is None:
            changes.append(NamedChange(name, None if old is None else _type(old), None if new is None else _type(new)))
        elif _type(old) != _type(new):
            changes.append(NamedChange(name, _type(old), _type(new)))
        elif (found := _distance(old, new)) is not None:
            changes.append(NamedChange(name, _type(old), found))
    return changes


def _initializers(model: ir.Model) -> dict[str, ir.TensorProtocol]:
    return {
        value.name or "": value.const_value
        for graph in all_graphs(model)
        for value in graph.initializers.values()
        if value.const_value is not None
    }


def _type(tensor: ir.TensorProtocol) -> str:
    return f"{tensor.dtype.short_name()}[{','.join(map(str, tensor.shape.numpy()))}]"


def _distance(old: ir.TensorProtocol, new: ir.TensorProtocol) -> str | None:
    """How far values are from each other; `None` where they are the same, bit for bit."""
    x, y = old.numpy(), new.numpy()
    if x.dtype == object:
        return None if np.array_equal(x, y) else "other texts"
    if x.tobytes() == y.tobytes():
        return None
    count = int(np.count_nonzero(x != y)) if x.dtype.kind != "V" else x.size
    if not old.dtype.is_floating_point():
        return f"{count} other values"
    wide, other = x.astype(np.float64), y.astype(np.float64)
    finite = np.isfinite(wide) & np.isfinite(other)
    largest = float(np.abs(wide[finite] - other[finite]).max(initial=0))
    return f"{count} other values, the largest difference {largest:.3g}"
