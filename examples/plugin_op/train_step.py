"""One training step with ops of a package of its own: written, lowered, checked and run.

python examples/plugin_op/train_step.py
"""

from __future__ import annotations

from pathlib import Path

import leaky_integrator  # noqa: F401 (its ops; a package that is installed needs no import)
import numpy as np
import onnx
from onnx import TensorProto, helper

import lstm_lower as ll
from lstm_lower.runtime.proof.check import check

DOMAIN = "com.example"


def model() -> onnx.ModelProto:
    """The mean of y*y/2, and its gradient in the weights."""
    nodes = [
        helper.make_node("LeakyIntegrator", ["x", "w"], ["y"], "forward", domain=DOMAIN, decay=0.8),
        helper.make_node("Mul", ["y", "y"], ["squares"]),
        helper.make_node("ReduceMean", ["squares"], ["mean"], keepdims=0),
        helper.make_node("Mul", ["mean", "half"], ["loss"]),
        helper.make_node("Size", ["y"], ["count"]),
        helper.make_node("Cast", ["count"], ["size"], to=TensorProto.FLOAT),
        helper.make_node("Div", ["y", "size"], ["y_grad"]),
        helper.make_node("LeakyIntegratorGrad", ["x", "w", "y_grad"], ["", "w_grad"], "grad", domain=DOMAIN, decay=0.8),
    ]
    values = {"x": ["T", "B", 3], "w": [3, 4], "loss": [], "w_grad": [3, 4]}
    infos = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in values.items()}
    half = helper.make_tensor("half", TensorProto.FLOAT, [], [0.5])
    graph = helper.make_graph(nodes, "step", [infos["x"], infos["w"]], [infos["loss"], infos["w_grad"]], [half])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def main() -> None:
    step = model()
    Path("out").mkdir(exist_ok=True)
    onnx.save(step, "out/leaky.onnx")
    report = check(step, sizes={"T": 7, "B": 2}, finite_differences=True)
    print("against float64:", {row.name: row.verdict for row in report.outputs})
    print("against central differences:", {row.operand: row.verdict for row in report.gradients})

    session = ll.Session(ll.lower(step))
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(7, 2, 3)).astype(np.float32), rng.normal(size=(3, 4)).astype(np.float32)
    for _ in range(3):
        outputs = session.run({"x": x, "w": w})
        print(f"loss {outputs['loss']:.4f}")
        w -= outputs["w_grad"]
    y = ll.raw_ops.LeakyIntegrator(x=x, w=w, decay=0.8)
    print(f"loss {np.mean(y * y) / 2:.4f}, eagerly")


if __name__ == "__main__":
    main()
