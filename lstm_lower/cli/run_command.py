"""`lstm-lower run`: run a model in onnxruntime."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from lstm_lower.cli import console
from lstm_lower.cli.options import (
    DimOption,
    InputsOption,
    ModelArgument,
    PrecisionOption,
    ProviderOption,
    SeedOption,
    parse_dims,
)
from lstm_lower.cli.sources import names_of
from lstm_lower.errors import InvalidInputError, some
from lstm_lower.records.files import check_place

if TYPE_CHECKING:
    import numpy as np

    from lstm_lower.runtime.session import Session

    Array = np.ndarray[Any, Any]

# Outputs of up to this many elements are printed whole.
_SHOWN_ELEMENTS = 4


def run(
    model: ModelArgument,
    inputs: InputsOption = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the outputs to a .npz file.")] = None,
    dim: DimOption = None,
    seed: SeedOption = 0,
    keep: Annotated[
        str | None,
        typer.Option(
            "--keep",
            metavar="NAMES",
            help="Arrays of --inputs that are written beside the outputs, such as targets, separated by commas.",
        ),
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option("--batch-size", min=1, help="Samples of a run, along the first axis.")
    ] = None,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="Runs; the fastest one's time is printed.")] = 1,
    provider: ProviderOption = None,
    precision: PrecisionOption = None,
    *,
    as_json: bool,
) -> None:
    """Run a model on feeds from a .npz file, or on random ones.

    A model that still holds recurrent ops is lowered first. If the .npz file also contains recorded results (entries
    in:<input> and out:<output>), the largest difference from them is printed, relative to the output's largest
    magnitude.
    """
    from lstm_lower.records.model_files import load
    from lstm_lower.runtime import feeds
    from lstm_lower.runtime.session import Session

    loaded = load(model)
    check_place(output)
    sizes = parse_dims(dim)
    given, recorded = feeds.read_arrays(inputs) if inputs is not None else (feeds.random_feeds(loaded, sizes, seed), {})
    kept = _kept(given, names_of(keep) or [])
    session = Session(loaded, provider, precision=precision)
    fed = {name: array for name, array in given.items() if name not in kept or name in session.inputs}
    if session.choice is not None:
        console.err().print(f"provider: {session.choice}", markup=False)
    results: dict[str, Array] = {}
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        with feeds.drawn_sizes_explained(loaded, sizes, drawn=inputs is None):
            results = session.run(fed) if batch_size is None else _in_batches(session, fed, batch_size)
        times.append(time.perf_counter() - start)
    if output is not None:
        feeds.write_arrays(output, results | kept)
    rows = [_row(name, array, recorded.get(name)) for name, array in results.items()]
    if as_json:
        console.print_json({"seconds": min(times), "outputs": rows})
        return
    columns = ["output", "dtype", "shape", "min", "mean", "max", *(["rel. to recorded"] if recorded else [])]
    cells = [
        [row["name"], row["dtype"], console.shape_text(row["shape"])]
        + [_number(row[key]) for key in ("min", "mean", "max", *(["relative_to_recorded"] if recorded else []))]
        for row in rows
    ]
    console.table(*columns, rows=cells, right=columns[3:])
    runs = f", fastest of {repeat}" if repeat > 1 else ""
    console.out().print(f"\n{min(times) * 1e3:.3f} ms{runs}")
    if output is not None:
        console.out().print(escape(f"wrote {output} ({console.bytes_text(output.stat().st_size)})"))


def _kept(given: Mapping[str, Array], names: Sequence[str]) -> dict[str, Array]:
    if unknown := [name for name in names if name not in given]:
        raise InvalidInputError(f"--keep requires names of arrays in --inputs, {some([*given])}, got '{unknown[0]}'")
    return {name: given[name] for name in names}


def _in_batches(session: Session, feeds: Mapping[str, Array], size: int) -> dict[str, Array]:
    """Outputs for all samples, which lie along the first axis of every feed and of every output."""
    import numpy as np

    counts = {array.shape[:1] for array in feeds.values()}
    if len(counts) != 1 or counts == {()} or counts == {(0,)}:
        shapes = {name: list(array.shape) for name, array in feeds.items()}
        raise InvalidInputError(
            f"--batch-size requires as many samples along the first axis of every feed, got {shapes}"
        )
    ((count,),) = counts
    runs = []
    for first in range(0, count, size):
        results = session.run({name: array[first : first + size] for name, array in feeds.items()})
        for name, array in results.items():
            if np.shape(array)[:1] != (min(size, count - first),):
                raise InvalidInputError(
                    f"--batch-size requires outputs with samples along the first axis, got '{name}' of shape "
                    f"{list(np.shape(array))}"
                )
        runs.append(results)
    return {name: np.concatenate([results[name] for results in runs]) for name in runs[0]}


def _row(name: str, array: Array, recorded: Array | None) -> dict[str, Any]:
    # A sequence is a list; what an optional output leaves out is None.
    tensor = hasattr(array, "dtype")
    row: dict[str, Any] = {
        "name": name,
        "dtype": str(array.dtype) if tensor else type(array).__name__,
        "shape": list(array.shape) if tensor else None,
    }
    if not tensor or array.dtype.kind not in "biuf" or not array.size:
        return {**row, "min": None, "mean": None, "max": None, "relative_to_recorded": None}
    row |= {"min": float(array.min()), "mean": float(array.mean(dtype="float64")), "max": float(array.max())}
    if array.size <= _SHOWN_ELEMENTS:
        row["values"] = array.tolist()
    from lstm_lower.runtime.proof.comparison import errors

    row["relative_to_recorded"] = None if recorded is None else errors(array, recorded)[1]
    return row


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"
