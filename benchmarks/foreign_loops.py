"""The loop optimiser on loops that other projects wrote: nodes in their bodies, time, and equality of results.

Models come from the packages of the extra `bench`, those that are installed, or from files. Before and after run in
turns, so that what else the machine does meets both.

Usage: python benchmarks/foreign_loops.py [--shape 50,32,128,128]... [--model NAME]... [--threads 1] [--rounds 20]
       [--schedule auto] [--json] [--export DIR] [--from DIR]
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

SIZES = ["50,32,128,128"]
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


def measure(original: onnx.ModelProto, name: str, shape: str, options: argparse.Namespace) -> Figures:
    """Optimises a model, and runs it before and after in turns."""
    import onnxruntime as ort

    import lstm_lower as ll

    start = time.perf_counter()
    optimised = ll.optimize(original, options.schedule)
    optimize_s = time.perf_counter() - start
    settings = ort.SessionOptions()
    settings.intra_op_num_threads = options.threads
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
    for _ in range(options.rounds):
        for session, taken in zip(sessions, times, strict=True):
            start = time.perf_counter()
            session.run(None, feeds)
            taken.append(1e3 * (time.perf_counter() - start))
    before, after = bodies(original), bodies(optimised)
    errors = error_against_float64(original, feeds, results) if options.float64 else [None, None]
    products = ("MatMul", "Gemm")
    return Figures(
        name,
        shape,
        options.threads,
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
    from foreign_models import EXPORTERS

    if any(importlib.util.find_spec(package) is None for package in EXPORTERS[name][0]):
        return None
    path = folder / f"{name}.onnx"
    code = (
        "import sys, onnx; sys.path.insert(0, sys.argv[1]); from foreign_models import EXPORTERS; "
        "model = EXPORTERS[sys.argv[2]][1](tuple(map(int, sys.argv[3].split(',')))); "
        "model.ClearField('metadata_props'); onnx.save(model, sys.argv[4])"
    )
    here = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", code, here, name, shape, str(path)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{name} cannot be exported:\n{done.stderr}")
    return path


def models(options: argparse.Namespace, shape: str, folder: Path) -> dict[str, Path]:
    """The model files to measure."""
    from foreign_models import EXPORTERS

    if options.source is not None:
        found = sorted(options.source.glob("*.onnx"))
        return {path.stem: path for path in found if not options.model or path.stem in options.model}
    exported = {name: export(name, shape, folder) for name in options.model or EXPORTERS}
    for name, path in exported.items():
        if path is None:
            print(f"{name} is left out: {' or '.join(EXPORTERS[name][0])} is not installed", file=sys.stderr)
    return {name: path for name, path in exported.items() if path is not None}


def table(rows: list[Figures]) -> str:
    """The figures for people."""
    times = f"{'before ms':>18}{'after ms':>18}{'ratio':>7}"
    lines = [f"{'model':24}{'T,B,I,H':>16}{'body':>12}{'products':>10}{times}{'difference':>12}{'from float64':>20}"]
    for row in rows:
        errors = "" if row.error_before is None else f"{row.error_before:.0e} -> {row.error_after:.0e}"
        lines.append(
            f"{row.model:24}{row.shape:>16}{f'{row.nodes_before} -> {row.nodes_after}':>12}"
            f"{f'{row.products_before} -> {row.products_after}':>10}"
            f"{row.before_ms[0]:>9.2f} ({row.before_ms[1]:.2f}){row.after_ms[0]:>9.2f} ({row.after_ms[1]:.2f})"
            f"{row.ratio:>7.2f}{row.difference:>12.0e}{errors:>20}"
        )
    lines.append(
        "body, products: in all loop bodies, before -> after; times: median (minimum); ratio: median of rounds"
    )
    return "\n".join(lines)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", action="append", metavar="T,B,I,H", help=f"may be repeated; {SIZES[0]} without it")
    parser.add_argument("--model", action="append", help="may be repeated; all models without it")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--schedule", default="auto")
    parser.add_argument("--float64", action="store_true", help="also compare with the original in float64; slow")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--export", type=Path, metavar="DIR", help="only export the models")
    parser.add_argument("--from", dest="source", type=Path, metavar="DIR", help="measure the models of a folder")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    sys.path.insert(0, str(Path(__file__).parent))
    rows: list[Figures] = []
    for shape in options.shape or (["as filed"] if options.source else SIZES):
        if options.export is not None:
            options.export.mkdir(parents=True, exist_ok=True)
            models(options, shape, options.export)
            continue
        with tempfile.TemporaryDirectory() as folder:
            for name, path in models(options, shape, Path(folder)).items():
                rows.append(measure(onnx.load(path), name, shape, options))
    if options.export is None:
        print(json.dumps([dataclasses.asdict(row) for row in rows], indent=2) if options.json else table(rows))


if __name__ == "__main__":
    main()
