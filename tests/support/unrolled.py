"""A training step of an LSTM that is written out step by step: `python -m tests.support.unrolled STEPS FILE.onnx`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

from lstm_lower.registry import DOMAIN

BATCH, INPUTS, UNITS = 4, 8, 16
RESULTS = ("i", "cs", "f", "o", "ci", "co", "h")
PEEPHOLES = ("wci", "wcf", "wco")


class _Nodes:
    """Nodes under names like those of a framework."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []

    def __call__(self, scope: str, op: str, inputs: list[str], outputs: int = 1, domain: str = "", **attrs: Any) -> Any:
        names = [f"{scope}/{op}:{index}" for index in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, name=f"{scope}/{op}", domain=domain, **attrs))
        return names[0] if outputs == 1 else names


def training_step(steps: int) -> onnx.ModelProto:
    """The step: cells one after the other, the loss of the last one's output, gradients and the new weights."""
    node = _Nodes()
    sequence = node("data", "Split", ["x"], steps, axis=0, num_outputs=steps)
    rows = [node(f"data/row_{t}", "Squeeze", [x, "first_axis"]) for t, x in enumerate(sequence)]
    cs, h = "zeros", "zeros"
    cells: list[list[str]] = []
    for t, x in enumerate(rows):
        operands = [x, cs, h, "w", *PEEPHOLES, "b"]
        results = node(f"forward/step_{t}", "LSTMBlockCell", operands, len(RESULTS), DOMAIN, cell_clip=-1.0)
        cells.append([*operands, *results])
        cs, h = results[1], results[6]
    loss = node("loss", "ReduceMean", [node("loss", "Mul", [h, h])], keepdims=0)
    cs_grad, h_grad = "zeros", h
    sums = {"w": "", "b": ""}
    turned = node("backward", "Transpose", ["w"], perm=[1, 0])
    for t in reversed(range(steps)):
        scope = f"backward/step_{t}"
        # The op takes everything but h.
        operands = [*cells[t][:-1], cs_grad, h_grad]
        cs_grad, gates, *_ = node(scope, "LSTMBlockCellGrad", operands, 5, DOMAIN, use_peephole=0)
        _, h_grad = node(scope, "Split", [node(f"{scope}/x", "MatMul", [gates, turned]), "sizes"], 2, axis=1)
        both = node(scope, "Concat", [rows[t], cells[t][2]], axis=1)
        found = {
            "w": node(f"{scope}/w", "MatMul", [node(scope, "Transpose", [both], perm=[1, 0]), gates]),
            "b": node(f"{scope}/b", "ReduceSum", [gates, "first_axis"], keepdims=0),
        }
        for name, part in found.items():
            sums[name] = node(f"{scope}/{name}", "Add", [sums[name], part]) if sums[name] else part
    for name, total in sums.items():
        change = node(f"update/{name}", "Mul", [total, "learning_rate"])
        node.nodes.append(helper.make_node("Sub", [name, change], [f"new_{name}"], name=f"update/{name}/Sub"))
    node.nodes.append(helper.make_node("Identity", [loss], ["loss"], name="loss/Identity"))
    float_ = TensorProto.FLOAT
    shapes: dict[str, list[int]] = {"w": [INPUTS + UNITS, 4 * UNITS], "b": [4 * UNITS], "learning_rate": []}
    inputs = {"x": [steps, BATCH, INPUTS], **shapes, **{name: [UNITS] for name in PEEPHOLES}}
    outputs = {"loss": [], "new_w": shapes["w"], "new_b": shapes["b"]}
    constants = [
        helper.make_tensor("zeros", float_, [BATCH, UNITS], [0.0] * BATCH * UNITS),
        helper.make_tensor("first_axis", TensorProto.INT64, [1], [0]),
        helper.make_tensor("sizes", TensorProto.INT64, [2], [INPUTS, UNITS]),
    ]
    graph = helper.make_graph(
        node.nodes,
        "unrolled",
        [helper.make_tensor_value_info(name, float_, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, float_, shape) for name, shape in outputs.items()],
        constants,
    )
    imports = [helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


if __name__ == "__main__":
    onnx.save(training_step(int(sys.argv[1])), Path(sys.argv[2]))
