"""`lstm-lower check --against tensorflow`: a graph's runs here next to TensorFlow's."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.markup import escape

from lstm_lower.cli import console
from lstm_lower.cli.sources import ImportOptions, chosen, names_of, open_model
from lstm_lower.errors import InvalidInputError, some
from lstm_lower.records.kinds import is_tensorflow

if TYPE_CHECKING:
    from lstm_lower.runtime.proof.steps import StepRow
    from lstm_lower.tensorflow.sources import Source

Array = np.ndarray[Any, Any]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """What came of it.

    Attributes:
        rows: a row for each output and each variable that a run changes.
        steps: number of runs.
        draws: draws of random numbers, which are the same fixed numbers for both.
        float64: why TensorFlow could not run the graph in float64; `None` where it did.
        rtol: tolerated error relative to the largest magnitude.
        atol: tolerated absolute error on top.
    """

    rows: list[StepRow]
    steps: int
    draws: list[str]
    float64: str | None
    rtol: float
    atol: float

    @property
    def passed(self) -> bool:
        """Whether something could be compared, and all of that agrees."""
        return self.verdict == "passed"

    @property
    def verdict(self) -> str:
        """`passed`; `not decided`, where nothing is wrong, but something cannot be told; or `failed`."""
        from lstm_lower.runtime.proof.comparison import overall

        return overall({row.verdict for row in self.rows} - {"random"})


def compare_with_tensorflow(
    path: Path,
    options: ImportOptions,
    given: Mapping[str, Array],
    sizes: Mapping[str, int],
    *,
    seed: int,
    steps: int,
    tolerances: tuple[float | None, float | None],
    schedule: str,
    provider: list[str] | None,
    precision: str | None,
) -> Comparison:
    """Imports a graph, lowers it, and runs it here and in TensorFlow on the same feeds and weights.

    Raises:
        InvalidInputError: the file is not a TensorFlow graph, names or feeds do not fit, or TensorFlow cannot run it.
        InvalidModelError, UnsupportedOpError: as `from_tensorflow`'s and `lower`'s.
    """
    if not is_tensorflow(path):
        raise InvalidInputError(f"--against tensorflow requires a TensorFlow graph, got {path}")
    from lstm_lower.passes.lower import lower
    from lstm_lower.records import state
    from lstm_lower.runtime.feeds import random_feeds
    from lstm_lower.runtime.proof import steps as proof
    from lstm_lower.runtime.proof.comparison import OUT_OF_TOLERANCE, coarsest_dtype, tolerance
    from lstm_lower.runtime.session import Session
    from lstm_lower.tensorflow import original as tensorflow
    from lstm_lower.tensorflow.widening import all_nodes

    options = chosen(path, options, list(given))
    model = open_model(path, options, fixed_source(path, options)[0])
    carried = {pair.input for pair in state.read(model).pairs}
    feeds = {name: array for name, array in random_feeds(model, sizes, seed).items() if name not in carried}
    unknown = given.keys() - feeds.keys()
    if unknown:
        raise InvalidInputError(f"--inputs requires inputs of the graph, got {some(sorted(unknown))}")
    feeds |= given
    start = proof.start_values(model, seed)
    source, fixed = fixed_source(path, options)
    graph = tensorflow.original(source, feeds, names_of(options.outputs))
    kept = {node.name for node in all_nodes(graph.graph_def)}
    for variable in source.variables.values():
        if variable.name in graph.variables and variable.name not in start:
            assert variable.value is not None, variable.name
            start[variable.name] = variable.value
    theirs = tensorflow.run(graph, feeds, start, steps)
    wide, moved, fault = None, None, None
    try:
        wide = tensorflow.run(tensorflow.widened(graph), feeds, start, steps)
    except tensorflow.RefusedError as error:
        fault = error.reason
        moved = tensorflow.run(graph, feeds, {name: _moved(array) for name, array in start.items()}, steps)
    others = tensorflow.reseeded(graph)
    session = Session(lower(model, schedule=schedule), provider, precision=precision)
    known = tolerance(coarsest_dtype(model))
    rtol, atol = (default if asked is None else asked for asked, default in zip(tolerances, known, strict=True))
    ours = proof.run(session, model, feeds, start, steps)
    drawn = None if others is None else tensorflow.run(others, feeds, start, steps)
    rows = proof.compare(ours, theirs, wide=wide, moved=moved, drawn=drawn, rtol=rtol, atol=atol)
    if wide is not None and any(row.verdict == OUT_OF_TOLERANCE for row in rows):
        moved = tensorflow.run(graph, feeds, {name: _moved(array) for name, array in start.items()}, steps)
        rows = proof.compare(ours, theirs, wide=wide, moved=moved, drawn=drawn, rtol=rtol, atol=atol)
    return Comparison(rows, steps, [name for name in fixed if name in kept], fault, rtol, atol)


def fixed_source(path: Path, options: ImportOptions) -> tuple[Source, list[str]]:
    """The graph with fixed numbers for random ones, and the names of those draws.

    Raises:
        InvalidInputError, InvalidModelError: as `from_tensorflow`'s.
    """
    from lstm_lower.tensorflow.fixed_draws import fix_draws
    from lstm_lower.tensorflow.opening import open_source

    source = open_source(path, signature=options.signature, checkpoint=options.checkpoint)
    return source, fix_draws(source.graph_def)


def _moved(array: Array) -> Array:
    """The same by one unit in the last place."""
    return np.nextafter(array, np.full_like(array, np.inf)) if array.dtype.kind == "f" else array


def print_comparison(found: Comparison) -> None:
    """Prints a row per output and variable, and the verdict."""
    columns = ["", "shape", "from TensorFlow", "TensorFlow's own error", "from float64"]
    rows = [
        [
            row.name,
            console.shape_text(row.shape),
            *map(console.error_text, (row.relative, row.own, row.float64)),
            row.verdict,
        ]
        for row in sorted(found.rows, key=lambda row: (row.kind, -(row.relative or 0)))
    ]
    console.table(*columns, "verdict", rows=rows, right=columns[1:])
    if found.float64 is not None:
        console.out().print(
            "\nTensorFlow's own error: between weights that differ by a unit in the last place, since it does not run "
            f"the graph in float64 ({escape(found.float64)})"
        )
    if found.draws:
        console.out().print(f"\nthe same fixed numbers instead of random ones for both: {escape(some(found.draws))}")
    verdict = console.verdict_text(found.verdict)
    tolerance = f"tolerance {found.rtol:.2g} of the largest magnitude plus {found.atol:.2g}"
    console.out().print(f"\n{verdict}: {found.steps} runs next to TensorFlow, {tolerance}")
