"""`python -m benchmarks import`: time per phase and memory of importing a TensorFlow graph, a deep training step.

Needs the extra [tensorflow].
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

NODES = 5_000


@dataclasses.dataclass(frozen=True)
class ImportTimes:
    """What one import took.

    Attributes:
        nodes: nodes of the GraphDef.
        composites: nodes of the imported model that our rules lower.
        recurrent: recurrent ones among them.
        imported_nodes: nodes of the imported model.
        lowered_nodes: nodes of the lowered model.
        load_s: seconds to load TensorFlow and tf2onnx.
        plan_s: seconds to read the file, inline calls, make state explicit and check.
        fold_s: seconds in TensorFlow's own optimiser.
        convert_s: seconds in tf2onnx.
        finish_s: seconds to name, complete and verify the model.
        lower_s: seconds to lower and optimise it.
        import_peak_mb: peak memory of the process after the import, in MB.
        load_peak_mb: the same before it, with TensorFlow loaded.
        peak_mb: the same after lowering.
    """

    nodes: int
    composites: int
    recurrent: int
    imported_nodes: int
    lowered_nodes: int
    load_s: float
    plan_s: float
    fold_s: float
    convert_s: float
    finish_s: float
    lower_s: float
    load_peak_mb: float
    import_peak_mb: float
    peak_mb: float

    @property
    def import_s(self) -> float:
        """Seconds from the file to the imported model."""
        return self.plan_s + self.fold_s + self.convert_s + self.finish_s


def training_graph(nodes: int = NODES, units: int = 8) -> Any:
    """A GraphDef of about as many nodes: recurrent layers with ordinary ones around them, gradients and SGD.

    Every block is a BlockLSTM, layer normalisation, a dense layer with a gate, and a residual; blocks are added until
    the next one would be too many.
    """
    import tensorflow as tf

    from lstm_lower.tensorflow.graph import Graph

    def build(blocks: int) -> Any:
        with tf.Graph().as_default() as graph:
            x = tf.compat.v1.placeholder(tf.float32, [10, None, units], "x")
            zeros, weights = tf.zeros([units]), []

            def weight(name: str, *shape: int) -> Any:
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
            updates = [
                variable.assign_sub(0.1 * gradient)
                for variable, gradient in zip(weights, tf.gradients(loss, weights), strict=True)
            ]
            tf.group(*updates, name="train")
            found = graph.as_graph_def()
        needed = Graph(found).ancestors(["train", "loss"])
        nodes = [node for node in found.node if node.name in needed]
        del found.node[:]
        found.node.extend(nodes)
        return found

    one, two = (len(build(blocks).node) for blocks in (1, 2))
    return build(max(1, 1 + (nodes - one) // (two - one)))


def measure(nodes: int = NODES) -> ImportTimes:
    """Times one import in a process of its own, so that peak memory is its own too.

    Raises:
        InvalidInputError: TensorFlow or tf2onnx is not installed.
    """
    for module in ("tensorflow", "tf2onnx"):
        if importlib.util.find_spec(module) is None:
            raise InvalidInputError(f"importing requires {module} (pip install 'lstm-lower[tensorflow]'), got none")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.pb"
        output_of(f"import sys; from {__name__} import write; write(sys.argv[1], {nodes})", str(path))
        found = output_of(f"import sys; from {__name__} import times; times(sys.argv[1])", str(path))
        return ImportTimes(**json.loads(found))


def write(path: str, nodes: int) -> None:
    """Writes the graph to a file."""
    Path(path).write_bytes(training_graph(nodes).SerializeToString())


def times(path: str) -> None:
    """Imports and lowers a GraphDef with outputs `loss` and `train`, and prints what it took as JSON."""
    load_s, convert = _timed(_load)
    from lstm_lower.graph.bindings import composite_nodes
    from lstm_lower.passes.lower import lower
    from lstm_lower.tensorflow import finish, importer
    from lstm_lower.tensorflow.sources import open_source

    load_peak = _peak_mb()
    nodes = len(open_source(path, signature=None, specs=None).graph_def.node)
    plan_s, plan = _timed(lambda: importer.plan(path, outputs=["loss:0", "train"], weights="inputs"))
    fold_s, folded = _timed(lambda: convert.fold(plan.graph_def, plan.inputs, plan.outputs))
    convert_s, model = _timed(lambda: convert.convert(folded, plan.inputs, plan.outputs, 18))
    finish_s, model = _timed(lambda: finish.finish(model, plan, weights="inputs", shapes={}, state={}))
    import_peak = _peak_mb()
    lower_s, lowered = _timed(lambda: lower(model))
    composites = [node.op_type for node, _ in composite_nodes(ir.from_proto(model).graph)]
    found = ImportTimes(
        nodes, len(composites), sum("LSTM" in op for op in composites), len(model.graph.node), len(lowered.graph.node),
        load_s, plan_s, fold_s, convert_s, finish_s, lower_s, load_peak, import_peak, _peak_mb(),
    )  # fmt: skip
    sys.stdout.write(json.dumps(dataclasses.asdict(found)))


def _load() -> Any:
    from lstm_lower.tensorflow import convert

    return convert


def _timed(run: Callable[[], Result]) -> tuple[float, Result]:
    start = time.perf_counter()
    result = run()
    return time.perf_counter() - start, result


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def importing(
    nodes: Annotated[int, typer.Option("--nodes", min=1, help="Nodes of the graph, about.")] = NODES,
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Time the import of a TensorFlow graph, phase by phase (needs TensorFlow)."""
    with console.errors(as_json=as_json):
        times = measure(nodes)
    if not as_json:
        rows = [
            ["load TensorFlow and tf2onnx", f"{times.load_s:.2f} s"],
            ["read, inline, make state explicit, check", f"{times.plan_s:.2f} s"],
            ["TensorFlow's own optimiser", f"{times.fold_s:.2f} s"],
            ["tf2onnx", f"{times.convert_s:.2f} s"],
            ["name, complete, verify", f"{times.finish_s:.2f} s"],
            ["import, the last four", f"{times.import_s:.2f} s"],
            ["lower and optimise", f"{times.lower_s:.2f} s"],
            ["peak memory with TensorFlow loaded", f"{times.load_peak_mb:.0f} MB"],
            ["peak memory of the import", f"{times.import_peak_mb:.0f} MB"],
            ["peak memory with lowering", f"{times.peak_mb:.0f} MB"],
        ]
        counts = f"{times.composites} of {times.imported_nodes} for our rules ({times.recurrent} recurrent)"
        title = f"{times.nodes} TensorFlow nodes; imported, {counts}; {times.lowered_nodes} after lowering"
        console.table(title, "", rows=rows)
    hand_out(dataclasses.asdict(times) | {"import_s": times.import_s}, output, as_json=as_json)
