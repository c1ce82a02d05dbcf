"""Proves a lowered model: onnxruntime's results against the composite model evaluated in float64.

Three things are compared per output: what the lowered model gives in onnxruntime with its optimiser off, what it gives
with the optimiser as users run it, and what `reference.evaluate` says. The error is the largest absolute difference;
relative means relative to the output's largest magnitude. Where an output is out of tolerance, the
original's own error is measured: float32 itself may be that coarse, which is no fault of the lowering.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort

from lstm_lower.errors import InvalidInputError, InvalidModelError, LstmLowerError, requires, some
from lstm_lower.graph.bindings import bind_node, composite_nodes
from lstm_lower.graph.copies import copy_model
from lstm_lower.graph.facts import Facts
from lstm_lower.passes.composites import is_to_lower
from lstm_lower.passes.lower import lower
from lstm_lower.passes.malformed import malformed_models_explained
from lstm_lower.passes.randomness import random_outputs
from lstm_lower.passes.training_graphs import TrainingGraphPass
from lstm_lower.records import origin
from lstm_lower.records.model_files import load
from lstm_lower.records.origin import Origin
from lstm_lower.runtime import feeds as feeds_module
from lstm_lower.runtime import providers as provider_names
from lstm_lower.runtime.proof import reference
from lstm_lower.runtime.proof.comparison import (
    AS_NEAR,
    DECIDING,
    DISPUTED,
    DRAWS,
    NOT_DECIDED,
    NOTHING_FINITE,
    OUT_OF_TOLERANCE,
    PASSED,
    allowed,
    coarsest_dtype,
    errors,
    is_rounding,
    moved_by_units,
    overall,
    shape_or_dtype_fault,
    tolerance,
)
from lstm_lower.runtime.proof.node_by_node import Disagreement, first_disagreement
from lstm_lower.runtime.proof.oracles import finite_differences
from lstm_lower.runtime.providers import Provider
from lstm_lower.runtime.session import Session, default_options

Array = np.ndarray[Any, Any]
Model = str | os.PathLike[str] | onnx.ModelProto | ir.Model

LEVELS = {
    "disabled": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "default": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}


@dataclasses.dataclass(frozen=True)
class OutputRow:
    """The errors of one output.

    Attributes:
        name: output name.
        dtype: its dtype.
        shape: its shape in this run.
        absolute: largest absolute error by optimisation level.
        relative: the same over the output's largest magnitude.
        recorded: relative error of the recorded result, where there is one: that of the original kernels.
        original: relative error of the original model in its own dtypes, see `_original_results`; measured where the
            lowered one is out of tolerance.
        verdict: `ok`; `as near as the original`, where an error beyond the tolerance is no larger than four times
            that; `not decided`, where one of the two is larger than a hundredth, too; `disputed` instead of either,
            where it comes from a node that onnxruntime computes otherwise than the reference from the same operands;
            or what is wrong; `random` where the graph draws random numbers, which nothing can compare.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    absolute: dict[str, float]
    relative: dict[str, float]
    recorded: float | None
    original: float | None
    verdict: str


@dataclasses.dataclass(frozen=True)
class GradientRow:
    """How far a backward op's oracle is from central differences of its forward op's oracle, for one operand."""

    op: str
    operand: str
    shape: tuple[int, ...]
    absolute: float
    relative: float
    verdict: str


@dataclasses.dataclass(frozen=True)
class Report:
    """The result of a check.

    Attributes:
        outputs: a row per output.
        gradients: a row per operand of every backward op that has a forward op; empty unless asked for.
        rtol: tolerated error relative to an output's largest magnitude.
        atol: tolerated absolute error on top.
        disagreement: where an output is out of tolerance: the first node that onnxruntime computes otherwise than the
            reference, if there is one.
        origin: where an import has made the model, which this proof does not cover: what its ops became is the model.
    """

    outputs: list[OutputRow]
    gradients: list[GradientRow]
    rtol: float
    atol: float
    disagreement: Disagreement | None = None
    origin: Origin | None = None

    @property
    def passed(self) -> bool:
        """Whether every output that can be compared is within tolerance, and there is one."""
        return self.verdict == PASSED

    @property
    def verdict(self) -> str:
        """`passed`; `not decided`, where nothing is wrong, but something cannot be told on these feeds; or `failed`."""
        compared = [row.verdict for row in self.outputs if row.verdict != "random"]
        return overall([*compared, *(row.verdict for row in self.gradients)] if compared else [])


def check(
    model: Model,
    lowered: Model | None = None,
    feeds: Mapping[str, Array] | None = None,
    *,
    recorded: Mapping[str, Array] | None = None,
    sizes: Mapping[str, int] | None = None,
    seed: int = 0,
    rtol: float | None = None,
    atol: float | None = None,
    opset: int | None = None,
    schedule: str = "auto",
    providers: Sequence[Provider] | Provider | None = None,
    precision: str | None = None,
    finite_differences: bool = False,
) -> Report:
    """Checks a lowered model against the model that it was lowered from.

    Args:
        model: the model with composite ops.
        lowered: the lowered model; made here when `None`.
        feeds: input name -> array; random ones when `None`.
        recorded: output name -> result of the original kernels on these feeds, compared too.
        sizes: sizes of symbolic dimensions of random feeds.
        seed: of random feeds.
        rtol: tolerated error relative to an output's largest magnitude; `None` takes that of the coarsest floating
            dtype in the model, and tolerates the original's own error in onnxruntime where that is larger.
        atol: tolerated absolute error on top, likewise.
        opset: of the lowered model, when it is made here.
        schedule: likewise.
        providers: execution providers to run the lowered model with.
        precision: the dtype in which they compute floats, see `Session`.
        finite_differences: whether to compare the backward ops' oracles with central differences.

    Raises:
        InvalidModelError: either model is malformed, or the two have different outputs.
        InvalidInputError: the feeds do not fit.
        UnsupportedOpError: the model holds ops that cannot be lowered or evaluated.
    """
    source = copy_model(model) if isinstance(model, ir.Model) else load(model)
    TrainingGraphPass()(source)
    aim = provider_names.target_of(provider_names.resolve(providers, precision))
    target = lower(source, opset, schedule, target=aim) if lowered is None else lowered
    if lowered is not None:
        _check_interface(source, lowered)
    at_random = feeds is None
    if feeds is None:
        feeds = feeds_module.random_feeds(source, sizes, seed)
    with feeds_module.drawn_sizes_explained(source, sizes or {}, drawn=at_random):
        results = {level: _run(target, feeds, providers, precision, value) for level, value in LEVELS.items()}
    # What onnxruntime has run before, onnx.reference cannot only where sizes are too small for it.
    fitting = feeds_module.drawn_sizes_explained(source, sizes or {}, drawn=at_random, error=InvalidModelError)
    with malformed_models_explained(source), fitting:
        expected = reference.evaluate(source, feeds)
    default_rtol, default_atol = tolerance(coarsest_dtype(source))
    strict = rtol is not None or atol is not None
    rtol, atol = default_rtol if rtol is None else rtol, default_atol if atol is None else atol
    drawn = random_outputs(source)
    rows = []
    for value in source.graph.outputs:
        name = value.name or ""
        actual = {level: results[level][name] for level in LEVELS}
        if not all(isinstance(result, np.ndarray) for result in (*actual.values(), expected[name])):
            rows.append(OutputRow(name, str(value.type), (), {}, {}, None, None, "not a tensor"))
            continue
        known = (recorded or {}).get(name)
        rows.append(_row(name, value.dtype, expected[name], actual, known, rtol, atol, name in drawn))
    if not strict and any(row.verdict == OUT_OF_TOLERANCE for row in rows):
        originals = _original_results(source, feeds, seed)
        rows = [_next_to_original(row, expected[row.name], originals, rtol, atol) for row in rows]
    suspicious = [row.name for row in rows if row.verdict in (OUT_OF_TOLERANCE, AS_NEAR, NOT_DECIDED)]
    found = first_disagreement(source, feeds, suspicious, _run_plainly) if suspicious else None
    if found is not None:
        disputed = [row.name for row in rows if row.name in found.outputs and row.verdict in (AS_NEAR, NOT_DECIDED)]
        rows = [dataclasses.replace(row, verdict=DISPUTED) if row.name in disputed else row for row in rows]
    return Report(rows, gradient_rows(source) if finite_differences else [], rtol, atol, found, origin.read(source))


def _run_plainly(model: ir.Model, feeds: Mapping[str, Array]) -> dict[str, Array]:
    return _run(model, feeds, None, None, LEVELS["disabled"])


def _check_interface(source: ir.Model, lowered: Model) -> None:
    """Says of a lowered model that it is another model's, before feeds do not fit it."""
    found = lowered if isinstance(lowered, ir.Model) else load(lowered)
    for kind, wanted, known in (
        ("input", feeds_module.required_inputs(source), found.graph.inputs),
        ("output", source.graph.outputs, found.graph.outputs),
    ):
        names = [str(value.name) for value in known]
        for value in wanted:
            if value.name not in names:
                raise InvalidInputError(f"the lowered model requires {kind} '{value.name}', got {some(names)}")


def _run(
    model: Model,
    feeds: Mapping[str, Array],
    providers: Sequence[Provider] | Provider | None,
    precision: str | None,
    level: Any,
) -> dict[str, Array]:
    options = default_options()
    options.graph_optimization_level = level
    return Session(model, providers, options, precision=precision).run(feeds)


def _row(
    name: str,
    dtype: ir.DataType | None,
    expected: Array,
    actual: Mapping[str, Array],
    recorded: Array | None,
    rtol: float,
    atol: float,
    drawn: bool,
) -> OutputRow:
    absolute: dict[str, float] = {}
    relative: dict[str, float] = {}
    verdict = "random" if drawn else "ok"
    for level, array in actual.items():
        fault = shape_or_dtype_fault(array, expected, dtype)
        if fault is not None:
            verdict = fault
            continue
        absolute[level], relative[level] = errors(array, expected)
        if verdict == "ok" and not absolute[level] <= allowed(expected, rtol, atol):
            verdict = OUT_OF_TOLERANCE if _says_something(expected) else NOTHING_FINITE
    own = None
    if recorded is not None and recorded.shape == expected.shape:
        difference, own = errors(recorded, expected)
        if verdict == "ok" and not difference <= allowed(expected, rtol, atol):
            verdict = "recorded result differs"
    elif recorded is not None:
        verdict = f"recorded result has shape {list(recorded.shape)}"
    return OutputRow(name, str(actual["default"].dtype), expected.shape, absolute, relative, own, None, verdict)


def _original_results(source: ir.Model, feeds: Mapping[str, Array], seed: int) -> list[dict[str, Array]]:
    """Results of the original in its own dtypes, of many that are as good; nothing where it cannot be run.

    That is what onnxruntime computes by it, at each level; where onnxruntime does not know all ops, what numpy computes
    op by op, on these feeds and on others that differ from them in the last place alone. A lowered model adds up in
    other orders, so that its results may lie on the other side of the truth, and farther.
    """
    plain = copy_model(source)
    # A session lowers what a source of ours has made, whether that holds composite ops or not.
    plain.metadata_props.pop(origin.METADATA_KEY, None)
    try:
        if is_to_lower(plain, stock=False):
            return _evaluated(plain, feeds, seed)
        return [_run(plain, feeds, None, None, level) for level in LEVELS.values()]
    except LstmLowerError:
        return []


def _next_to_original(
    row: OutputRow,
    expected: Array,
    originals: Sequence[Mapping[str, Array]],
    rtol: float,
    atol: float,
) -> OutputRow:
    """A row out of tolerance, next to the original's own error."""
    arrays = [results[row.name] for results in originals if row.name in results]
    if row.verdict != OUT_OF_TOLERANCE or not arrays or any(result.shape != expected.shape for result in arrays):
        return row
    absolute, relative = map(max, zip(*(errors(result, expected) for result in arrays), strict=True))
    explained = is_rounding(max(row.absolute.values()), allowed(expected, rtol, atol), apart=absolute)
    near = AS_NEAR if max(relative, *row.relative.values()) <= DECIDING else NOT_DECIDED
    return dataclasses.replace(row, original=relative, verdict=near if explained else row.verdict)


def _evaluated(source: ir.Model, feeds: Mapping[str, Array], seed: int) -> list[dict[str, Array]]:
    if coarsest_dtype(source) not in (ir.DataType.FLOAT, ir.DataType.DOUBLE):
        return []  # kernels add up halves in float32, numpy in halves
    weights = {str(x.name): x.const_value.numpy() for x in source.graph.inputs if x.const_value is not None}
    given, rng = {**weights, **feeds}, np.random.default_rng(seed)
    draws = [given, *({name: moved_by_units(array, rng) for name, array in given.items()} for _ in range(DRAWS))]
    return [reference.evaluate(source, draw, wide=False) for draw in draws]


def _says_something(expected: Array) -> bool:
    return expected.dtype.kind not in "fc" or bool(np.isfinite(expected).any())


def gradient_rows(model: ir.Model) -> list[GradientRow]:
    """Compares the oracle of every backward op in a model, with the node's attributes, with central differences."""
    rows: list[GradientRow] = []
    seen = set()
    graphs = [model.graph, *(function.graph for function in model.functions.values())]
    for node, definition in (found for graph in graphs for found in composite_nodes(graph)):
        attributes = bind_node(node, definition, Facts(0)).attributes
        key = (definition, repr(sorted(attributes.items())))
        if definition not in finite_differences.PAIRINGS or key in seen:
            continue
        seen.add(key)
        try:
            found = finite_differences.check_backward(definition, attributes)
        except Exception as error:
            text = requires(definition.op_type, node.name, "the oracle", "to be a gradient of its forward op", error)
            raise InvalidInputError(text) from error
        for row in found:
            verdict = "ok" if row.relative <= finite_differences.TOLERANCE else OUT_OF_TOLERANCE
            rows.append(GradientRow(definition.op_type, row.operand, row.shape, row.absolute, row.relative, verdict))
    return rows
