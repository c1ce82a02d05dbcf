"""Trains a small convolutional classifier of digits in PyTorch, and writes it and some test images.

The only script here that needs PyTorch and scikit-learn; what it writes is in the repository.

Usage: python examples/onnx_saliency/export.py [--out DIR] [--epochs 8]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnx
import torch
from sklearn.datasets import load_digits
from torch import nn


def main() -> None:
    """Trains and exports."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out") / "onnx_saliency")
    parser.add_argument("--epochs", type=int, default=8)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = load_digits()
    images, labels = (data.images[:, None] / 16).astype(np.float32), data.target.astype(np.int64)
    x, y = torch.from_numpy(images), torch.from_numpy(labels)
    train, test = slice(0, 1400), slice(1400, None)
    module = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(16 * 4 * 4, 10),
    )  # fmt: skip
    optimizer = torch.optim.Adam(module.parameters(), lr=0.003)
    for _ in range(options.epochs):
        for rows in torch.randperm(1400).split(50):
            loss = nn.functional.cross_entropy(module(x[train][rows]), y[train][rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    found = module(x[test]).argmax(1)
    print(f"test accuracy {(found == y[test]).float().mean().item():.4f}")
    batch = torch.export.Dim("batch")
    program = torch.onnx.export(
        module.eval(), (x[:2],), dynamo=True, verbose=False,
        input_names=["image"], output_names=["scores"], dynamic_shapes=({0: batch},),
    )  # fmt: skip
    model = program.model_proto
    # Where in PyTorch's source each node comes from is of no use here.
    for node in model.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    onnx.save(model, options.out / "digits.onnx")
    # One test image of each digit.
    chosen = [1400 + int(np.flatnonzero(labels[1400:] == digit)[0]) for digit in range(10)]
    np.savez(options.out / "digits.npz", images=images[chosen], labels=labels[chosen])


if __name__ == "__main__":
    main()
