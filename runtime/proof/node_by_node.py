"""Where the float64 reference and onnxruntime part: both compute each node alone, on the same operands.

The operands are what the reference has computed so far, rounded to the model's dtypes. Errors that grow from node to
node thus do not count: the node that is named is one that one of the two computes wrongly, or one that `lower` writes
wrongly where it is a composite op.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx import helper

from lstm_lower.errors import LstmLowerError
from lstm_lower.graph import standard as std
from lstm_lower.graph.bindings import definition_of
from lstm_lower.graph.edit import operands
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.form import node_label
from lstm_lower.graph.subgraphs import all_nodes, subgraphs_of
from lstm_lower.passes.lower import lower
from lstm_lower.passes.randomness import draws
from lstm_lower.records.model_files import load
from lstm_lower.runtime.proof import reference
from lstm_lower.runtime.proof.comparison import (
    DRAWS,
    allowed,
    coarser,
    coarsest_dtype,
    is_rounding,
    magnitude,
    moved_by_units,
    tolerance,
)

Array = np.ndarray[Any, Any]
Run = Callable[[ir.Model, Mapping[str, Any]], Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class Disagreement:
    """A node that onnxruntime computes otherwise than the reference, from the same operands.

    Attributes:
        op: the operator.
        node: the node's name.
        output: which of its outputs.
        error: largest error over the largest magnitude in float64, or what else is different.
        outputs: those of the outputs asked for that depend on the node.
    """

    op: str
    node: str
    output: str
    error: float | str
    outputs: tuple[str, ...]

    def __str__(self) -> str:
        much = f"by {self.error:.1e} of its largest magnitude" if isinstance(self.error, float) else f"in {self.error}"
        return f"{self.op} '{self.node}': {self.output} differs {much}"


def first_disagreement(
    model: ir.Model, feeds: Mapping[str, Array], outputs: Collection[str], run: Run
) -> Disagreement | None:
    """The first node that outputs depend on and that onnxruntime computes otherwise than the reference.

    Args:
        model: with or without composite ops, which are lowered each alone.
        feeds: input name -> array.
        outputs: names of outputs.
        run: runs a model without composite ops in onnxruntime.

    Returns:
        `None` where the two agree on every node but for rounding. A node with a body counts as one. Nodes that draw
        random numbers, those on sequences, and those that either cannot compute alone are left out.

    Raises:
        InvalidModelError: the model is malformed, or `onnx.reference` cannot evaluate it.
        UnsupportedOpError: a node is neither standard nor has an oracle.
    """
    work = reference.prepared(model)
    values = reference.values(model, feeds)
    facts = Facts.of(work)
    for node in _behind(work.graph, outputs):
        inner = [node, *(other for graph in subgraphs_of(node) for other in all_nodes(graph))]
        if any(draws(each, facts) for each in inner):
            continue
        alone = _alone(work, node, values)
        if alone is None:
            continue
        single, given = alone
        try:
            runnable = single if definition_of(node) is None else lower(single)
            distance = departure(single, given, run(runnable, given))
        except LstmLowerError:
            continue
        if distance is not None:
            reached = tuple(name for name in outputs if node in _behind(work.graph, {name}))
            return Disagreement(node.op_type, node_label(node), *distance, reached)
    return None


def departure(
    model: ir.Model, feeds: Mapping[str, Any], results: Mapping[str, Any], *, moved: bool = True
) -> tuple[str, float | str] | None:
    """The first output in which onnxruntime's results leave the reference by more than rounding explains.

    Args:
        model: a small model.
        feeds: input name -> value.
        results: output name -> what onnxruntime computes.
        moved: whether an error is explained, too, that operands make of it which differ in their last place. A
            function that jumps may jump between two such operands; leave it out where operands are round numbers.

    Returns:
        The output's name and its largest error over its largest magnitude, or what else is different.
    """
    coarsest = coarsest_dtype(model)
    others: list[dict[str, Any]] = []
    for name, wanted in reference.evaluate(model, feeds).items():
        for place, (a, b) in enumerate(zip(_tensors(results[name]), _tensors(wanted), strict=False)):
            if a.shape != b.shape or (b.dtype.kind in "biu" and a.dtype != b.dtype):
                return name, f"{a.dtype}{list(a.shape)} instead of {b.dtype}{list(b.shape)}"
            rtol, atol = tolerance(coarser(coarsest, ir.DataType.from_numpy(a.dtype)))
            error = _distance(a, b)
            if (error <= allowed(b, rtol, atol)).all():
                continue
            others = others or _other_evaluations(model, feeds, moved=moved)
            same = [array for other in others if (array := _tensors(other[name])[place]).shape == b.shape]
            spread = np.max([np.zeros(b.shape), *(_distance(array, b) for array in same)], axis=0)
            if b.dtype.kind in "fc":
                # Elements of a product share its summands: where some cancel, the error is that of others.
                if not is_rounding(float(error.max()), allowed(b, rtol, atol), apart=float(spread.max())):
                    return name, float(error.max() / (magnitude(b) or 1))
            elif wrong := np.count_nonzero(error > spread):
                return name, f"{wrong} of {b.size} elements"
        if len(_tensors(results[name])) != len(_tensors(wanted)):
            return name, f"{len(_tensors(results[name]))} tensors instead of {len(_tensors(wanted))}"
    return None


def _tensors(value: Any) -> list[Array]:
    """A tensor, or those of a sequence; none of what is left out."""
    parts = value if isinstance(value, list) else [] if value is None else [value]
    return [np.asarray(part) for part in parts if part is not None]


def _distance(actual: Array, wanted: Array) -> Array:
    """Absolute errors; infinite ones where only one is a number or finite in the coarser of both dtypes."""
    if wanted.dtype.kind not in "fc":
        return np.asarray(actual != wanted, np.float64)
    with np.errstate(all="ignore"):
        error = np.abs(np.asarray(actual, wanted.dtype) - wanted)
        rounded = wanted.astype(actual.dtype)
    same = (actual == rounded) | (np.isnan(actual) & np.isnan(rounded))
    return np.where(same & ~np.isfinite(rounded), 0.0, np.where(np.isnan(error), np.inf, error))


def _other_evaluations(model: ir.Model, feeds: Mapping[str, Any], *, moved: bool) -> list[dict[str, Any]]:
    """Results of a model as rounding makes them: in its own dtypes, and of operands moved in their last place."""
    evaluations = []
    if coarsest_dtype(model) in (ir.DataType.FLOAT, ir.DataType.DOUBLE):
        # numpy adds up halves in halves, kernels in float32.
        evaluations.append(reference.evaluate(model, feeds, wide=False))
    if moved:
        rng = np.random.default_rng(0)
        draws = [{name: _tensors_moved(value, rng) for name, value in feeds.items()} for _ in range(DRAWS)]
        evaluations += [reference.evaluate(model, draw) for draw in draws]
    return evaluations


def _tensors_moved(value: Any, rng: np.random.Generator) -> Any:
    return [moved_by_units(part, rng) for part in value] if isinstance(value, list) else moved_by_units(value, rng)


def _behind(graph: ir.Graph, outputs: Collection[str]) -> list[ir.Node]:
    """The nodes that outputs depend on, in order."""
    needed = {value for value in graph.outputs if value.name in outputs}
    readers = []
    for node in reversed(list(graph)):
        if needed.intersection(node.outputs):
            readers.append(node)
            needed.update(operands(node))
    return readers[::-1]


def _alone(model: ir.Model, node: ir.Node, values: Mapping[str, Any]) -> tuple[ir.Model, dict[str, Any]] | None:
    """A model of one node and its feeds; constants stay constants. `None` where something about it is not known."""
    inputs, initializers, feeds = [], [], {}
    for value in operands(node):
        array = values.get(value.name or "")
        if not isinstance(array, np.ndarray | np.generic) or value.dtype is None:
            return None
        rounded = np.asarray(array).astype(value.dtype.numpy())
        producer = value.producer()
        if value.is_initializer() or (producer is not None and std.Constant.matches(producer)):
            initializers.append(ir.to_proto(ir.tensor(rounded, name=value.name)))
        else:
            inputs.append(helper.make_tensor_value_info(str(value.name), int(value.dtype), rounded.shape))
            feeds[str(value.name)] = rounded
    outputs = [value for value in node.outputs if value.name]
    if any(value.dtype is None or isinstance(value.type, ir.SequenceType) for value in outputs):
        return None
    results = [helper.make_tensor_value_info(str(value.name), int(value.dtype or 0), None) for value in outputs]
    graph = helper.make_graph([ir.to_proto(node)], "alone", inputs, results, initializers)
    imports = [helper.make_opsetid(domain, version) for domain, version in model.opset_imports.items()]
    return load(helper.make_model(graph, opset_imports=imports, ir_version=model.ir_version)), feeds
