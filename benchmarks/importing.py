"""`python -m benchmarks import`: time per phase and memory of importing a TensorFlow graph, a deep training step.

Needs TensorFlow, which makes the graph; the import itself does not. Where tf2onnx is installed, its conversion of the
same step without state is timed too.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import onnx_ir as ir
import typer

from benchmarks.options import JsonOption, OutputOption, hand_out
from benchmarks.processes import output_of
from lstm_lower.cli import console
from lstm_lower.errors import InvalidInputError

Result = TypeVar("Result")

SIZES = (1_000, 5_000, 20_000)

# tf2onnx's time grows with the square of the number of nodes.
_MOST_FOR_TF2ONNX = 5_000


@dataclasses.dataclass(frozen=True)
class ImportTimes:
    """What one import took.

    Attributes:
        nodes: nodes of the GraphDef.
        composites: nodes of the imported model that our rules lower.
        recurrent: recurrent ones among them.
        imported_nodes: nodes of the imported model.
        lowered_nodes: nodes of the lowered model.
        load_s: seconds to load the package.
        read_s: seconds to read the file.
        structure_s: seconds to find what the outputs need, its loops and branches, and an order.
        translate_s: seconds to make ONNX of it.
        finish_s: seconds to complete, verify and check the model.
        lower_s: seconds to lower and optimise it.
        load_peak_mb: peak memory of the process before the import, in MB.
        import_peak_mb: the same after it.
        peak_mb: the same after lowering.
        tf2onnx_s: seconds that tf2onnx takes for the loss and its gradients; `None` where it is not installed, and
            for more nodes than it takes in minutes.
    """

    nodes: int
    composites: int
    recurrent: int
    imported_nodes: int
    lowered_nodes: int
    load_s: float
    read_s: float
    structure_s: float
    translate_s: float
    finish_s: float
    lower_s: float
    load_peak_mb: float
    import_peak_mb: float
    peak_mb: float
    tf2onnx_s: float | None = None

    @property
    def import_s(self) -> float:
        """Seconds from the file to the imported model."""
        return self.read_s + self.structure_s + self.translate_s + self.finish_s


def training_graph(nodes: int, units: int = 8, *, stateful: bool = True) -> Any:
    """A GraphDef of about as many nodes: recurrent layers with ordinary ones around them, gradients and SGD.

    Every block is a BlockLSTM, layer normalisation, a dense layer with a gate, and a residual; blocks are added until
    the next one would be too many. Without state weights are placeholders, and `train` are their gradients.
    """
    import tensorflow as tf

    def build(blocks: int) -> Any:
        with tf.Graph().as_default() as graph:
            x = tf.compat.v1.placeholder(tf.float32, [10, None, units], "x")
            zeros, weights = tf.zeros([units]), []

            def weight(name: str, *shape: int) -> Any:
                if not stateful:
                    weights.append(tf.compat.v1.placeholder(tf.float32, shape, name))
                    return weights[-1]
                weights.append(tf.compat.v1.Variable(tf.zeros(shape), name=name, use_resource=True))
                return weights[-1].read_value()

            h, state = x, tf.zeros([tf.shape(x)[1], units])
            for number in range(blocks):
                with tf.name_scope(f"block{number}"):
                    w, b = weight("w", 2 * units, 4 * units), weight("b", 4 * units)
                    sequence = tf.raw_ops.BlockLSTM(
                        seq_len_max=10, x=h, cs_prev=state, h_prev=state, w=w, wci=zeros, wcf=zeros, wco=zeros, b=b
                    ).h
                    mean, variance = tf.nn.moments(sequence, [-1], keepdims=True)
                    normal = (sequence - mean) * tf.math.rsqrt(variance + 1e-3) * weight("gamma", units)
                    gate = tf.sigmoid(tf.tensordot(normal, weight("gate", units, units), 1))
                    h = h + gate * tf.nn.relu(
                        tf.tensordot(normal, weight("dense", units, units), 1) + weight("bias", units)
                    )
            loss = tf.reduce_mean(tf.square(h[-1] - 0.5), name="loss")
            gradients = tf.gradients(loss, weights)
            if not stateful:
                tf.identity_n(gradients, name="train")
            else:
                tf.group(
                    *(variable.assign_sub(0.1 * x) for variable, x in zip(weights, gradients, strict=True)),
                    name="train",
                )
            return _needed(graph.as_graph_def(), ["train", "loss"])

    one, two = (len(build(blocks).node) for blocks in (1, 2))
    return build(max(1, 1 + (nodes - one) // (two - one)))


def _needed(graph_def: Any, roots: list[str]) -> Any:
    """The graph without what no root needs."""
    nodes = {node.name: node for node in graph_def.node}
    found, pending = set[str](), list(roots)
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += [spelled.removeprefix("^").partition(":")[0] for spelled in nodes[name].input]
    kept = [node for node in graph_def.node if node.name in found]
    del graph_def.node[:]
    graph_def.node.extend(kept)
    return graph_def


def measure(nodes: int, runs: int, *, compare: bool) -> ImportTimes:
    """Times imports, each in a process of its own, so that peak memory is its own too, and tf2onnx if it is to compare.

    The fastest import counts; tf2onnx, which takes much longer, runs once.

    Raises:
        InvalidInputError: TensorFlow is not installed.
    """
    if importlib.util.find_spec("tensorflow") is None:
        raise InvalidInputError("importing requires tensorflow (pip install 'lstm-lower[tensorflow]'), got none")
    with tempfile.TemporaryDirectory() as folder:
        path, stateless = (str(Path(folder) / name) for name in ("graph.pb", "stateless.pb"))
        start = f"import sys; from {__name__} import "
        compare = compare and importlib.util.find_spec("tf2onnx") is not None and nodes <= _MOST_FOR_TF2ONNX
        output_of(f"{start}write; write({nodes}, *sys.argv[1:])", path, *([stateless] if compare else []))
        all_times = [
            ImportTimes(**json.loads(output_of(f"{start}times; times(sys.argv[1])", path))) for _ in range(runs)
        ]
        found = min(all_times, key=lambda times: times.import_s)
        if not compare:
            return found
        seconds = float(output_of(f"{start}tf2onnx_time; tf2onnx_time(sys.argv[1])", stateless).split()[-1])
        return dataclasses.replace(found, tf2onnx_s=seconds)


def write(nodes: int, path: str, stateless: str | None = None) -> None:
    """Writes the graph to a file, and the one without state to another."""
    Path(path).write_bytes(training_graph(nodes).SerializeToString())
    if stateless is not None:
        Path(stateless).write_bytes(training_graph(nodes, stateful=False).SerializeToString())


def times(path: str) -> None:
    """Imports and lowers a GraphDef with outputs `loss` and `train`, and prints what it took as JSON."""
    load_s, (lower, importer, phases) = _timed(_load)
    load_peak = _peak_mb()
    took: dict[str, float] = {}
    model = phases(importer, path, took)
    import_peak = _peak_mb()
    took["lower_s"], lowered = _timed(lambda: lower(model))

    from lstm_lower.graph.bindings import composite_nodes

    composites = [node.op_type for node, _ in composite_nodes(ir.from_proto(model).graph)]
    found = ImportTimes(
        int(took.pop("nodes")), len(composites), sum("LSTM" in op for op in composites), len(model.graph.node),
        len(lowered.graph.node), load_s, load_peak_mb=load_peak, import_peak_mb=import_peak, peak_mb=_peak_mb(), **took,
    )  # fmt: skip
    sys.stdout.write(json.dumps(dataclasses.asdict(found)))


def _load() -> Any:
    from lstm_lower.passes.lower import lower
    from lstm_lower.tensorflow import conversion
    from lstm_lower.tensorflow.opening import open_source

    return lower, (open_source, conversion), _phases


def _phases(importer: tuple[Any, Any], path: str, took: dict[str, float]) -> Any:
    """What `from_tensorflow` does, phase by phase."""
    open_source, conversion = importer

    def read() -> Any:
        source = open_source(path)
        table = conversion.OpTable(source.graph_def.library.function, source.op_defs)
        return source, conversion.Resolver(source, conversion.nodes_by_name(source.graph_def.node), table)

    def structured() -> Any:
        interface = resolver.resolve(None, ["loss:0", "train"])
        builder = conversion.ModelBuilder(source, resolver, interface, {}, 18, lambda _: (None, None))
        raising = conversion.Raising(source.graph_def, resolver.nodes, resolver.table, conversion.writes)
        return builder, raising, raising.main(interface.outputs.values(), interface.targets, builder.cut)

    took["read_s"], (source, resolver) = _timed(read)
    took["nodes"] = len(source.graph_def.node)
    took["structure_s"], (builder, raising, region) = _timed(structured)
    took["translate_s"], made = _timed(lambda: builder.build(region, raising.aliases))
    options = {"weights": "inputs", "state": {}, "demanded": False}
    took["finish_s"], model = _timed(lambda: conversion.finish.finish(made, **options))
    return model


def tf2onnx_time(path: str) -> None:
    """Prints the seconds that tf2onnx takes."""
    import tensorflow as tf
    from tf2onnx.convert import from_graph_def

    from lstm_lower.tensorflow import tf2onnx_ops

    graph_def = tf.compat.v1.GraphDef.FromString(Path(path).read_bytes())
    inputs = [f"{node.name}:0" for node in graph_def.node if node.op == "Placeholder"]
    (train,) = (node for node in graph_def.node if node.name == "train")
    outputs = ["loss:0", *(f"train:{number}" for number in range(len(train.input)))]
    seconds, _ = _timed(
        lambda: from_graph_def(graph_def, input_names=inputs, output_names=outputs, opset=18, **tf2onnx_ops())
    )
    print(f"\n{seconds}")


def _timed(run: Callable[[], Result]) -> tuple[float, Result]:
    start = time.perf_counter()
    result = run()
    return time.perf_counter() - start, result


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def importing(
    nodes: Annotated[list[int] | None, typer.Option("--nodes", min=1, help="Nodes, about; may be repeated.")] = None,
    runs: Annotated[int, typer.Option("--runs", min=1, help="Of which the fastest counts.")] = 3,
    compare: Annotated[bool, typer.Option("--tf2onnx/--no-tf2onnx", help="Time tf2onnx too, if it is there.")] = True,
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Time the import of TensorFlow graphs of 1,000, 5,000 and 20,000 nodes, phase by phase (needs TensorFlow)."""
    with console.errors(as_json=as_json):
        found = [measure(count, runs, compare=compare) for count in nodes or SIZES]
        for times in [] if as_json else found:
            _print(times)
        figures = [dataclasses.asdict(times) | {"import_s": times.import_s} for times in found]
        hand_out(figures, output, as_json=as_json)


def _print(times: ImportTimes) -> None:
    rows = [
        ["load the package", f"{times.load_s:.2f} s"],
        ["read", f"{times.read_s:.2f} s"],
        ["structure", f"{times.structure_s:.2f} s"],
        ["translate", f"{times.translate_s:.2f} s"],
        ["complete, verify, check", f"{times.finish_s:.2f} s"],
        ["import, the last four", f"{times.import_s:.2f} s"],
        ["lower and optimise", f"{times.lower_s:.2f} s"],
        ["peak memory of the package", f"{times.load_peak_mb:.0f} MB"],
        ["peak memory of the import", f"{times.import_peak_mb:.0f} MB"],
        ["peak memory with lowering", f"{times.peak_mb:.0f} MB"],
        ["tf2onnx, for comparison", "not tried" if times.tf2onnx_s is None else f"{times.tf2onnx_s:.2f} s"],
    ]
    counts = f"{times.composites} of {times.imported_nodes} for our rules ({times.recurrent} recurrent)"
    title = f"{times.nodes} TensorFlow nodes; imported, {counts}; {times.lowered_nodes} after lowering"
    console.table(title, "", rows=rows)
