"""Trains a forecaster of the office's load in PyTorch and exports it as anyone would: no gradient, no optimizer.

The only script here that needs PyTorch; what it writes is in the repository.

Usage: python examples/torch_forecaster/export.py [--out DIR] [--steps 400]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnx
import torch
from series import DAY, load, windows
from torch import nn


class Forecaster(nn.Module):
    """The day that follows a series."""

    def __init__(self, units: int = 24) -> None:
        super().__init__()
        self.lstm = nn.LSTM(1, units, batch_first=True)
        self.head = nn.Linear(units, DAY)

    def forward(self, past: torch.Tensor) -> torch.Tensor:
        """Loads [B, T, 1] -> loads of the next day [B, 24]."""
        return self.head(self.lstm(past)[0][:, -1])


def main() -> None:
    """Trains and exports."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out") / "torch_forecaster")
    parser.add_argument("--steps", type=int, default=400)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    module = Forecaster()
    optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
    past, following = (torch.from_numpy(array) for array in windows(load("office", 60, seed=0)))
    random = np.random.default_rng(0)
    for step in range(options.steps):
        rows = random.integers(0, len(past), 32)
        loss = nn.functional.mse_loss(module(past[rows]), following[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 99:
            print(f"step {step + 1}: loss {loss.item():.4f}")
    program = torch.onnx.export(
        module.eval(), (past[:2],), dynamo=True, verbose=False,
        input_names=["past"], output_names=["forecast"],
        dynamic_shapes=({0: torch.export.Dim("batch"), 1: torch.export.Dim("hours")},),
    )  # fmt: skip
    model = program.model_proto
    # Where in PyTorch's source each node comes from is of no use here.
    for node in model.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    onnx.save(model, options.out / "forecaster.onnx")


if __name__ == "__main__":
    main()
