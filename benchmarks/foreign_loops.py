"""`python -m benchmarks foreign`: the loop optimiser on loops that other projects wrote.

Models come from the packages of the extra `bench`, those that are installed, or from files. Before and after run in
turns, so that what else the machine does meets both.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnx
import onnx_ir as ir
import typer

from benchmarks.foreign_models import EXPORTERS
from benchmarks.options import JsonOption, OutputOption, hand_out, parse_shape
from benchmarks.processes import output_of
from lstm_lower.cli import console
from lstm_lower.cli.options import ScheduleOption

SIZES = "50,32,128,128"
LOOPS = ("Scan", "Loop")
Feeds = dict[str, np.ndarray[Any, Any]]


@dataclasses.dataclass(frozen=True)
class Figures:
    """What the optimiser made of one model.

    Attributes:
        model: its name.
        shape: T,B,I,H.
        threads: of onnxruntime.
        nodes_before: nodes of all loop bodies, constants aside.
        nodes_after: the same, optimised.
        products_before: products among them.
        products_after: the same, optimised.
        optimize_s: seconds that optimising took.
        before_ms: median and minimum of a run, in milliseconds.
        after_ms: the same, optimised.
        ratio: median over the rounds of the time before by the time after.
        difference: largest difference of a result, by that result's largest value.
        error_before: the same against the original in float64, `None` where not computed.
        error_after: the same, optimised.
    """

    model: str
    shape: str
    threads: int
    nodes_before: int
    nodes_after: int
    products_before: int
    products_after: int
    optimize_s: float
    before_ms: tuple[float, float]
    after_ms: tuple[float, float]
    ratio: float
    difference: float
    error_before: float | None = None
    error_after: float | None = None


def bodies(model: onnx.ModelProto) -> list[list[str]]:
    """The operators of every loop's body, constants aside."""
    found: list[list[str]] = []

    def walk(graph: onnx.GraphProto) -> None:
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    if node.op_type in LOOPS:
                        found.append([inner.op_type for inner in attribute.g.node if inner.op_type != "Constant"])
                    walk(attribute.g)

    walk(model.graph)
    return found


def feeds_of(model: onnx.ModelProto) -> Feeds:
    """Random values for a model's inputs; a size that is open is 1."""
    random = np.random.default_rng(0)
    found = {}
    for value in model.graph.input:
        shape = [dim.dim_value or 1 for dim in value.type.tensor_type.shape.dim]
        scale = 1.0 / np.sqrt(shape[-1]) if len(shape) > 1 else 0.1
        found[value.name] = (random.standard_normal(shape) * scale).astype(np.float32)
    return found


def in_float64(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with float64 in the place of float32."""
    work = ir.from_proto(model)
    double = ir.TensorType(ir.DataType.DOUBLE)

    def wide(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
        return ir.tensor(tensor.numpy().astype(np.float64)) if tensor.dtype == ir.DataType.FLOAT else tensor

    for graph in work.graphs():
        for value in graph.initializers.values():
            assert value.const_value is not None
            value.const_value = wide(value.const_value)
        for value in [*graph.inputs, *graph.initializers.values(), *(x for node in graph for x in node.outputs)]:
            if value.dtype == ir.DataType.FLOAT:
                value.type = double
        for node in graph:
            for name, attribute in list(node.attributes.items()):
                if attribute.type == ir.AttributeType.TENSOR:
                    node.attributes[name] = ir.AttrTensor(name, wide(attribute.as_tensor()))
            if node.op_type == "Cast" and node.attributes["to"].as_int() == ir.DataType.FLOAT:
                node.attributes["to"] = ir.AttrInt64("to", int(ir.DataType.DOUBLE))
    return ir.to_proto(work)


def difference(results: list[Any], expected: list[Any]) -> float:
    """The largest difference of any result, by that result's largest value."""
    return max(
        float(np.abs(ours - theirs).max(initial=0.0) / max(np.abs(theirs).max(initial=0.0), 1e-30))
        for ours, theirs in zip(results, expected, strict=True)
    )


def error_against_float64(original: onnx.ModelProto, feeds: Feeds, results: list[list[Any]]) -> list[float]:
    """Differences from the original model in float64, run without any of the runtime's optimisations."""
    import onnxruntime as ort

    settings = ort.SessionOptions()
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.log_severity_level = 3
    session = ort.InferenceSession(
        in_float64(original).SerializeToString(), settings, providers=["CPUExecutionProvider"]
    )
    exact = session.run(None, {name: value.astype(np.float64) for name, value in feeds.items()})
    return [difference(result, exact) for result in results]


def measure(path: Path, shape: str, *, schedule: str, threads: int, rounds: int, float64: bool) -> Figures:
    """Optimises a model of a file, and runs it before and after in turns."""
    import onnxruntime as ort

    import lstm_lower as ll

    original = onnx.load(path)
    start = time.perf_counter()
    optimised = ll.optimize(original, schedule)
    optimize_s = time.perf_counter() - start
    settings = ort.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.inter_op_num_threads = 1
    settings.log_severity_level = 3
    # Idle threads of one session would take the processor from the other.
    settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
    sessions = [
        ort.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
        for model in (original, optimised)
    ]
    feeds = feeds_of(original)
    results = [session.run(None, feeds) for session in sessions]
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for session, taken in zip(sessions, times, strict=True):
            start = time.perf_counter()
            session.run(None, feeds)
            taken.append(1e3 * (time.perf_counter() - start))
    before, after = bodies(original), bodies(optimised)
    errors = error_against_float64(original, feeds, results) if float64 else [None, None]
    products = ("MatMul", "Gemm")
    return Figures(
        path.stem,
        shape,
        threads,
        sum(map(len, before)),
        sum(map(len, after)),
        sum(op in products for body in before for op in body),
        sum(op in products for body in after for op in body),
        optimize_s,
        (statistics.median(times[0]), min(times[0])),
        (statistics.median(times[1]), min(times[1])),
        statistics.median(a / b for a, b in zip(*times, strict=True)),
        difference(results[1], results[0]),
        *errors,
    )


def export(name: str, shape: str, folder: Path) -> Path | None:
    """Exports a model in a process of its own; `None` where one of its packages is not installed."""
    if any(importlib.util.find_spec(package) is None for package in EXPORTERS[name][0]):
        print(f"{name} is left out: {' or '.join(EXPORTERS[name][0])} is not installed", file=sys.stderr)
        return None
    path = folder / f"{name}.onnx"
    code = (
        "import sys, onnx; from benchmarks.foreign_models import EXPORTERS; "
        "model = EXPORTERS[sys.argv[1]][1](tuple(map(int, sys.argv[2].split(',')))); "
        "model.ClearField('metadata_props'); onnx.save(model, sys.argv[3])"
    )
    output_of(code, name, shape, str(path))
    return path


def print_table(rows: list[Figures]) -> None:
    """The figures for people; times are medians, minima in brackets, and the ratio is the median of the rounds'."""
    cells = [
        [
            row.model,
            row.shape,
            f"{row.nodes_before} -> {row.nodes_after}",
            f"{row.products_before} -> {row.products_after}",
            f"{row.before_ms[0]:.2f} ({row.before_ms[1]:.2f})",
            f"{row.after_ms[0]:.2f} ({row.after_ms[1]:.2f})",
            f"{row.ratio:.2f}",
            f"{row.difference:.0e}",
            "" if row.error_before is None else f"{row.error_before:.0e} -> {row.error_after:.0e}",
        ]
        for row in rows
    ]
    head = ["model", "T,B,I,H", "body", "products", "before ms", "after ms", "ratio", "difference", "from float64"]
    console.table(*head, rows=cells, right=head[1:])


def foreign(
    shape: Annotated[
        list[str] | None, typer.Option("--shape", metavar="T,B,I,H", help=f"May be repeated; {SIZES} without it.")
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option("--model", help=f"{', '.join(EXPORTERS)}, or files of --from; may be repeated, all without it."),
    ] = None,
    threads: Annotated[int, typer.Option("--threads", min=1, help="Threads of onnxruntime.")] = 1,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Turns of before and after.")] = 20,
    schedule: ScheduleOption = "auto",
    float64: Annotated[
        bool, typer.Option("--float64", help="Also compare with the original in float64; slow.")
    ] = False,
    export_to: Annotated[
        Path | None, typer.Option("--export", metavar="DIR", help="Only export the models.", show_default=False)
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--from", metavar="DIR", help="Measure the models of a folder.", show_default=False)
    ] = None,
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Time models of other projects before and after the loop optimiser, in turns."""
    os.environ["OMP_NUM_THREADS"] = str(threads)
    with console.errors(as_json=as_json), tempfile.TemporaryDirectory() as scratch:
        files: list[tuple[str, Path]] = []
        if source is not None:
            found = sorted(source.glob("*.onnx"))
            files = [("as filed", path) for path in found if not model or path.stem in model]
        for number, text in enumerate([] if source is not None else shape or [SIZES]):
            parse_shape(text)
            folder = export_to or Path(scratch) / str(number)
            folder.mkdir(parents=True, exist_ok=True)
            files += [(text, path) for name in model or EXPORTERS if (path := export(name, text, folder)) is not None]
        if export_to is not None:
            return
        rows = [
            measure(path, text, schedule=schedule, threads=threads, rounds=rounds, float64=float64)
            for text, path in files
        ]
        if not as_json:
            print_table(rows)
        hand_out([dataclasses.asdict(row) for row in rows], output, as_json=as_json)
