"""How long lowering itself takes, and how much memory: a large graph of unrolled cells."""

from __future__ import annotations

import dataclasses
import resource
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from lstm_lower.opdef import DOMAINS
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
        outputs = add("LSTMBlockCell", [x, cs, h, *parameters], 7, DOMAINS[0])
        saved.append((cs, h, outputs))
        cs, h = outputs[1], outputs[6]
    for cs_prev, h_prev, outputs in reversed(saved):
        operands = [x, cs_prev, h_prev, *parameters, *outputs[:6], dcs, dh]
        dcs, gates, *_ = add("LSTMBlockCellGrad", operands, 5, DOMAINS[0])
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
        opset_imports={"": 18, DOMAINS[0]: 1},
    )
    return ir.Model(graph, ir_version=8)


def measure(repeats: int = 3) -> CompileTimes:
    """Times lowering in processes of its own, so that peak memory is its own too; the best of some repeats."""
    after, lower_s, both_s, protobuf_s = _in_a_process(f"_times({repeats})")
    (peak,) = _in_a_process("_peak_memory()")
    return CompileTimes(NODES, COMPOSITES, int(after), lower_s, both_s, protobuf_s, peak)


def _in_a_process(call: str) -> list[float]:
    code = f"import {__name__} as bench; print(*bench.{call})"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)  # noqa: S603
    return [float(word) for word in done.stdout.split()]


def _times(repeats: int) -> tuple[int, float, float, float]:
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


def _peak_memory() -> tuple[float]:
    lower(ir.to_proto(unrolled_network()))
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,)
