"""`lstm-lower check --against tensorflow`: a graph's runs here next to TensorFlow's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.markup import escape

from lstm_lower.cli import console
from lstm_lower.cli.sources import ImportOptions, chosen, import_arguments
from lstm_lower.errors import InvalidInputError, some
from lstm_lower.records.kinds import is_tensorflow

if TYPE_CHECKING:
    from lstm_lower.tensorflow.against_tensorflow import Comparison, Lowering

Array = np.ndarray[Any, Any]


def compare_file(
    path: Path,
    options: ImportOptions,
    given: Mapping[str, Array],
    sizes: Mapping[str, int],
    *,
    seed: int,
    steps: int,
    tolerances: tuple[float | None, float | None],
    lowering: Lowering,
) -> Comparison:
    """Compares the graph in a file, imported as the other commands import it.

    Raises:
        InvalidInputError: the file is not a TensorFlow graph, names or feeds do not fit, or TensorFlow cannot run it.
        InvalidModelError, UnsupportedOpError: as `from_tensorflow`'s and `lower`'s.
    """
    if not is_tensorflow(path):
        raise InvalidInputError(f"--against tensorflow requires a TensorFlow graph, got {path}")
    from lstm_lower.tensorflow.against_tensorflow import Import, compare_with_tensorflow
    from lstm_lower.tensorflow.opening import open_source

    options = chosen(path, options, list(given))
    imported = Import(
        lambda: open_source(path, signature=options.signature, checkpoint=options.checkpoint),
        **import_arguments(options),
    )
    return compare_with_tensorflow(
        imported, given, sizes, seed=seed, steps=steps, tolerances=tolerances, lowering=lowering
    )


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
            "\nTensorFlow's own error: between numbers that differ by a unit in the last place, since it does not run "
            f"the graph in float64 ({escape(found.float64)})"
        )
    if found.draws:
        console.out().print(f"\nthe same fixed numbers instead of random ones for both: {escape(some(found.draws))}")
    if found.races:
        told = "of which none waits for the other; --outputs with one training step may tell more"
        console.out().print(f"\nnot decided: updates race for {escape(some(found.races))}, {told}")
    first = [row.name for row in found.rows if row.steps < found.steps]
    if first:
        told = "from there on TensorFlow's own results are no numbers, or depend on the last place of the weights"
        console.out().print(f"\nafter the first run alone: {escape(some(first))}; {told}")
    fed = [f"{name} {console.shape_text(tuple(shape))}" for name, shape in found.feeds.items()]
    console.out().print(f"\nfed: {escape(some(fed, 12))}" if fed else "\nnothing is fed")
    verdict = console.verdict_text(found.verdict)
    tolerance = f"tolerance {found.rtol:.2g} of the largest magnitude plus {found.atol:.2g}"
    console.out().print(f"\n{verdict}: {found.steps} runs next to TensorFlow, {tolerance}")
