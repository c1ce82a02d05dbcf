"""`python -m benchmarks lowering`: how long lowering itself takes, and how much memory: a large graph of cells."""

from __future__ import annotations

import dataclasses
import resource
import time
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from benchmarks.options import JsonOption, OutputOption, hand_out
from benchmarks.processes import output_of
from lstm_lower.cli import console
from lstm_lower.opdef import DOMAIN
from lstm_lower.passes.lower import lower

NODES = 20_000
COMPOSITES = 2_000


@dataclasses.dataclass(frozen=True)
class CompileTimes:
    """What lowering one graph took.

    Attributes:
        nodes: nodes of the graph before.
        composites: composite nodes among them.
        nodes_after: nodes of the lowered graph.
        lower_s: seconds to lower it without the optimiser, onnx_ir model in and out.
        lower_and_optimize_s: seconds to lower and optimise it, the same way.
        protobuf_s: seconds to lower and optimise it, protobuf in and out.
        peak_mb: peak memory of a process that does the last once, in MB.
    """

    nodes: int
    composites: int
    nodes_after: int
    lower_s: float
    lower_and_optimize_s: float
    protobuf_s: float
    peak_mb: float


def unrolled_network(nodes: int = NODES, composites: int = COMPOSITES, units: int = 8) -> ir.Model:
    """An unrolled LSTM with its gradient: half of the composites are cells, half their gradients.

    Ordinary nodes fill the rest: the products around the cells' gradients and elementwise work behind.
    """
    steps = composites // 2
    weights = {
        "w": np.full((2 * units, 4 * units), 0.1, np.float32),
        "b": np.zeros(4 * units, np.float32),
        "peephole": np.zeros(units, np.float32),
        "w_transposed": np.full((4 * units, 2 * units), 0.1, np.float32),
        "start": np.array([units]),
        "end": np.array([2 * units]),
        "axis": np.array([1]),
    }
    initializers = {
        name: ir.Value(name=name, const_value=ir.Tensor(array, name=name)) for name, array in weights.items()
    }
    for name, value in initializers.items():
        value.type, value.shape = (
            ir.TensorType(ir.DataType.from_numpy(weights[name].dtype)),
            ir.Shape(weights[name].shape),
        )
    shape = ir.Shape(["B", units])
    x, cs, h, dcs, dh = (
        ir.Value(name=name, type=ir.TensorType(ir.DataType.FLOAT), shape=shape)
        for name in ("x", "cs", "h", "dcs", "dh")
    )
    inputs = [x, cs, h, dcs, dh]
    parameters = [initializers[name] for name in ("w", "peephole", "peephole", "peephole", "b")]
    body: list[ir.Node] = []

    def add(op_type: str, operands: list[ir.Value], outputs: int = 1, domain: str = "") -> list[ir.Value]:
        name = f"{op_type}_{len(body)}"
        attributes = [ir.AttrInt64("use_peephole", 0)] if domain else []
        values = [ir.Value(name=f"{name}:{index}") for index in range(outputs)]
        body.append(ir.Node(domain, op_type, operands, attributes, outputs=values, name=name))
        return values

    saved = []
    for _ in range(steps):
        outputs = add("LSTMBlockCell", [x, cs, h, *parameters], 7, DOMAIN)
        saved.append((cs, h, outputs))
        cs, h = outputs[1], outputs[6]
    for cs_prev, h_prev, outputs in reversed(saved):
        operands = [x, cs_prev, h_prev, *parameters, *outputs[:6], dcs, dh]
        dcs, gates, *_ = add("LSTMBlockCellGrad", operands, 5, DOMAIN)
        (product,) = add("MatMul", [gates, initializers["w_transposed"]])
        (dh,) = add("Slice", [product, initializers["start"], initializers["end"], initializers["axis"]])
    while len(body) < nodes:
        (dh,) = add("Add" if len(body) % 2 else "Mul", [dh, inputs[2]])
    for value in (dcs, dh):
        value.type, value.shape = ir.TensorType(ir.DataType.FLOAT), shape
    graph = ir.Graph(
        inputs,
        [dcs, dh],
        nodes=body,
        initializers=list(initializers.values()),
        name="unrolled",
        opset_imports={"": 18, DOMAIN: 1},
    )
    return ir.Model(graph, ir_version=8)


def measure(repeats: int = 3) -> CompileTimes:
    """Times lowering in processes of its own, so that peak memory is its own too; the best of some repeats."""
    after, lower_s, both_s, protobuf_s = _in_a_process(f"seconds_of_each({repeats})")
    (peak,) = _in_a_process("peak_mb_of_one()")
    return CompileTimes(NODES, COMPOSITES, int(after), lower_s, both_s, protobuf_s, peak)


def _in_a_process(call: str) -> list[float]:
    return [float(word) for word in output_of(f"from {__name__} import *; print(*{call})").split()]


def seconds_of_each(repeats: int) -> tuple[int, float, float, float]:
    """Nodes of the lowered model, and the best time of each way to lower it."""
    model = unrolled_network()
    proto = ir.to_proto(model)
    runs: list[Callable[[], object]] = [
        lambda: lower(model, optimize=False),
        lambda: lower(model),
        lambda: lower(proto),
    ]
    best = [min(_seconds(run) for _ in range(repeats)) for run in runs]
    return len(lower(model).graph), best[0], best[1], best[2]


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def peak_mb_of_one() -> tuple[float]:
    """Peak memory of a process that lowers once."""
    lower(ir.to_proto(unrolled_network()))
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,)


def lowering(output: OutputOption = None, as_json: JsonOption = False) -> None:
    """Time lowering itself, on 20,000 nodes with 2,000 recurrent ops."""
    times = measure()
    if not as_json:
        rows = [
            ["lower, onnx_ir in and out", f"{times.lower_s:.2f} s"],
            ["lower and optimise, onnx_ir in and out", f"{times.lower_and_optimize_s:.2f} s"],
            ["lower and optimise, protobuf in and out", f"{times.protobuf_s:.2f} s"],
            ["peak memory of the last", f"{times.peak_mb:.0f} MB"],
        ]
        title = f"{times.nodes} nodes, {times.composites} recurrent: {times.nodes_after} nodes after"
        console.table(title, "", rows=rows)
    hand_out(dataclasses.asdict(times), output, as_json=as_json)
