"""A report: a model's lowering with its whole history, the check of its results, and what each op means."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.errors import InvalidInputError
from lstm_lower.graph.copies import copy_model
from lstm_lower.graph.form import node_label
from lstm_lower.graph.names import Names
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.passes.driver import run_passes
from lstm_lower.passes.history import PassHistory
from lstm_lower.passes.lower import lowering_passes
from lstm_lower.passes.opset.conversion import ConvertOpsetPass
from lstm_lower.passes.pipeline import optimizing_passes
from lstm_lower.passes.shapes import InferShapesPass
from lstm_lower.passes.summary import Summary, summarize
from lstm_lower.passes.trace import Trace
from lstm_lower.runtime.feeds import drawn_sizes_explained, random_feeds
from lstm_lower.runtime.node_times import NodeTime, node_times
from lstm_lower.runtime.profile import profile
from lstm_lower.runtime.proof.check import Report, check
from lstm_lower.runtime.providers import Provider

Array = np.ndarray[Any, Any]

# Of the median of each node's times.
_RUNS = 5


@dataclasses.dataclass(frozen=True)
class Feeds:
    """A runtime that a model runs on.

    Attributes:
        arrays: input name -> array; `None` for random ones.
        recorded: output name -> what the original kernels made of them.
        sizes: sizes of symbolic dimensions of random feeds.
        seed: of random feeds.
        providers: execution providers to run on.
    """

    arrays: Mapping[str, Array] | None = None
    recorded: Mapping[str, Array] = dataclasses.field(default_factory=dict)
    sizes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    seed: int = 0
    providers: Sequence[Provider] | None = None


@dataclasses.dataclass(frozen=True)
class Analysis:
    """A model's lowering.

    Attributes:
        source: the model.
        lowered: what it was lowered to.
        before, after: what the two hold.
        history: the graph's states, pass by pass.
        trace: what the optimiser refused, and its notes.
        seconds: the time that lowering took.
        check: errors of the lowered model's outputs; `None` where it was not run.
        times: of the lowered model's nodes in onnxruntime; `None` likewise.
    """

    source: ir.Model
    lowered: ir.Model
    before: Summary
    after: Summary
    history: PassHistory
    trace: Trace
    seconds: float
    check: Report | None
    times: list[NodeTime] | None


def analyse(
    source: ir.Model, opset: int | None = None, schedule: str = "auto", *, only_optimize: bool = False
) -> Analysis:
    """Lowers or optimises a model and records how; nothing is run.

    Args:
        source: the model, which is not changed.
        opset: as in `lower`.
        schedule: as in `lower`.
        only_optimize: do what `optimize` does, which lowers nothing, and keeps the opset.

    Raises:
        InvalidModelError, UnsupportedOpError: the model is malformed, or cannot be lowered.
        InvalidInputError: opset or schedule do not fit.
    """
    if only_optimize and opset is not None:
        raise InvalidInputError(f"optimising requires no opset, which it keeps, got {opset}")
    history = PassHistory()
    trace = Trace(watch=history.record)
    steps = optimizing_passes(schedule, trace=trace) if only_optimize else lowering_passes(opset, schedule, trace=trace)
    # From here on functions are inlined, and names are unique. Types that the file does not declare are shown, too.
    converting = next(index for index, step in enumerate(steps) if isinstance(step, ConvertOpsetPass))
    steps[converting:converting] = [InferShapesPass(), history.begin()]
    start = time.perf_counter()
    lowered = run_passes(source, steps, lambda step, result: history.record(step.name, 1, result.model))
    seconds = time.perf_counter() - start
    inferred = copy_model(source)
    InferShapesPass()(inferred)
    return Analysis(source, lowered, summarize(inferred), summarize(lowered), history, trace, seconds, None, None)


def measured(analysis: Analysis, feeds: Feeds) -> Analysis:
    """Adds what running the lowered model tells: its errors against float64, and its times.

    Nodes without names get some, by which onnxruntime tells of their times.

    Raises:
        InvalidModelError, InvalidInputError, UnsupportedOpError: as `check` and `profile`.
    """
    source, lowered = analysis.source, analysis.lowered
    _name_nodes(lowered)
    arrays = random_feeds(source, feeds.sizes, feeds.seed) if feeds.arrays is None else feeds.arrays
    with drawn_sizes_explained(source, feeds.sizes, drawn=feeds.arrays is None):
        report = check(source, lowered, arrays, recorded=feeds.recorded, providers=feeds.providers)
        times = node_times(profile(lowered, arrays, runs=_RUNS, providers=feeds.providers))
    return dataclasses.replace(analysis, check=report, times=times)


def _name_nodes(model: ir.Model) -> None:
    """Names nodes without names after their first outputs."""
    nodes = list(all_nodes(model.graph))
    names = Names(node.name for node in nodes if node.name)
    for node in nodes:
        if not node.name:
            node.name = names.fresh(node_label(node))
