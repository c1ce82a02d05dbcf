"""Training runs as scripts of onnxruntime-training do them; which library does them is an argument.

It imports nothing of ours, so that the recorder can run it where onnxruntime-training is installed.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Arrays = dict[str, np.ndarray[Any, Any]]

STEPS = 12
RUNS = ("mse_sgd", "cross_entropy_adamw", "bce_adamw_clipped", "l1_sgd_clipped", "custom")


def perceptron(rng: np.random.Generator) -> onnx.ModelProto:
    """Two layers, of the batch size that comes."""
    shapes = {"fc1.weight": (5, 4), "fc1.bias": (5,), "fc2.weight": (3, 5), "fc2.bias": (3,)}
    weights = [numpy_helper.from_array(rng.standard_normal(x).astype(np.float32), name) for name, x in shapes.items()]
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["input", "fc1.weight", "fc1.bias"], ["sums"], transB=1),
            helper.make_node("Relu", ["sums"], ["hidden"]),
            helper.make_node("Gemm", ["hidden", "fc2.weight", "fc2.bias"], ["output"], transB=1),
        ],
        "perceptron",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["B", 4])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, ["B", 3])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)


def choice(name: str, artifacts: Any, onnxblock: Any) -> tuple[Any, Any]:
    """A run's loss and optimizer."""
    losses, optim = artifacts.LossType, onnxblock.optim

    class Custom(onnxblock.Block):  # type: ignore[misc]
        """A mean of squares and absolute values, of blocks."""

        def __init__(self) -> None:
            super().__init__()
            self.squared, self.absolute = onnxblock.loss.MSELoss(), onnxblock.loss.L1Loss(reduction="sum")
            self.add, self.half = onnxblock.blocks.Add(), onnxblock.blocks.Mul()
            self.constant = onnxblock.blocks.Constant(0.5)

        def build(self, output: str) -> Any:
            squared = self.squared(output)
            return self.half(self.add(squared, self.absolute(output)), self.constant())

    return {
        "mse_sgd": (losses.MSELoss, artifacts.OptimType.SGD),
        "cross_entropy_adamw": (losses.CrossEntropyLoss, artifacts.OptimType.AdamW),
        "bce_adamw_clipped": (
            losses.BCEWithLogitsLoss,
            optim.AdamW(weight_decay=0.1, clip_grad=optim.ClipGradNorm(0.5)),
        ),
        "l1_sgd_clipped": (losses.L1Loss, optim.SGD(clip_grad=optim.ClipGradNorm(0.05))),
        "custom": (Custom(), artifacts.OptimType.SGD),
    }[name]


def run(name: str, artifacts: Any, onnxblock: Any, api: Any) -> Arrays:
    """Trains, two steps to an update; returns losses, the last one in evaluation mode, and what there is then."""
    rng = np.random.default_rng(0)
    model = perceptron(rng)
    x = rng.standard_normal((6, 4)).astype(np.float32)
    classes, targets = rng.integers(0, 3, 6), (rng.standard_normal((6, 3)) > 0).astype(np.float32)
    loss, optimizer = choice(name, artifacts, onnxblock)
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        artifacts.generate_artifacts(
            model,
            requires_grad=["fc1.weight", "fc2.weight", "fc2.bias"],
            frozen_params=["fc1.bias"],
            loss=loss,
            optimizer=optimizer,
            artifact_directory=folder,
            additional_output_names=["output"],
        )
        state = api.CheckpointState.load_checkpoint(folder / "checkpoint")
        module = api.Module(folder / "training_model.onnx", state, folder / "eval_model.onnx")
        updates = api.Optimizer(folder / "optimizer_model.onnx", module)
        updates.set_learning_rate(0.05)
        fed = (x, classes if name.startswith("cross") else targets)
        losses = []
        for step in range(STEPS):
            module.train()
            value, _ = module(*fed)
            losses.append(value)
            if step % 2:
                updates.step()
                module.lazy_reset_grad()
        module.eval()
        value, output = module(*fed)
        kept = api.CheckpointState.save_checkpoint(state, folder / "kept", include_optimizer_state=True)
        assert kept is None
        found: Arrays = {"losses": np.array([np.asarray(x).reshape(()) for x in [*losses, value]]), "output": output}
        found |= {f"parameter/{key}": parameter.data for key, parameter in state.parameters}
        found |= {f"gradient/{key}": parameter.grad for key, parameter in state.parameters if parameter.requires_grad}
        found["vector"] = module.get_contiguous_parameters().numpy()
        found["trained"] = module.get_contiguous_parameters(trainable_only=True).numpy()
    return found
