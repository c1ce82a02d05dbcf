"""Training steps in ExecuTorch, of a folder of `benchmarks.web`: `python -m benchmarks.executorch_step FOLDER SECONDS`.

Prints the first loss and milliseconds as JSON. Its library has SGD alone, so that later losses are others.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from executorch.exir import to_edge
from executorch.extension.training import _load_for_executorch_for_training_from_buffer, get_sgd_optimizer
from torch import Tensor, nn
from torch.export.experimental import _export_forward_backward

from benchmarks.web import module_of


class Step(nn.Module):
    """A module with its loss, which comes first; other results must have no gradient."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The loss, and the classes that are thought right."""
        scores = self.module(x)
        return nn.functional.cross_entropy(scores, labels), scores.detach().argmax(1)


def program_of(module: nn.Module, data: tuple[Tensor, Tensor]) -> bytes:
    """Forward and backward as ExecuTorch's file."""
    exported = _export_forward_backward(torch.export.export(Step(module), data, strict=True))
    return bytes(to_edge(exported).to_executorch().buffer)


def measure(program: bytes, data: tuple[Tensor, Tensor], seconds: float) -> dict[str, Any]:
    """Steps for some seconds after the first one, which includes loading."""
    began = time.perf_counter()
    loaded = _load_for_executorch_for_training_from_buffer(program)
    loss = float(loaded.forward_backward("forward", data)[0].detach())
    # It knows its weights only now.
    optimizer = get_sgd_optimizer(loaded.named_parameters(), 0.01)
    optimizer.step(loaded.named_gradients())
    first = time.perf_counter() - began
    times: list[float] = []
    while not times or (sum(times) < seconds and len(times) < 1000):
        start = time.perf_counter()
        loaded.forward_backward("forward", data)
        optimizer.step(loaded.named_gradients())
        times.append(time.perf_counter() - start)
    return {"losses": [loss], "first": 1e3 * first, "times": [1e3 * each for each in times]}


if __name__ == "__main__":
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    arrays = np.load(folder / "data.npz")
    batch = torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["labels"])
    module, _ = module_of(json.loads((folder / "model.json").read_text(encoding="utf-8")))
    print(json.dumps(measure(program_of(module, batch), batch, float(sys.argv[2]))))
