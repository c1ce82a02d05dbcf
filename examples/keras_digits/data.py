"""Handwritten digits from scikit-learn, as sequences of rows.

Usage: python examples/keras_digits/data.py digits.npz      # what `lstm-lower train` takes
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

Set = tuple[np.ndarray, np.ndarray]


def digits() -> tuple[Set, Set]:
    """Images [N, 8, 8] in 0 .. 1 and labels, for training and for testing."""
    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    images, labels = (data.images[order] / 16).astype(np.float32), data.target[order].astype(np.int64)
    return (images[:1400], labels[:1400]), (images[1400:], labels[1400:])


def upside_down(data: Set) -> Set:
    """The same digits on their heads, which a classifier of upright digits does not know."""
    return np.ascontiguousarray(data[0][:, ::-1, ::-1]), data[1]


def batches(data: Set, epochs: int, size: int = 35) -> Iterator[Set]:
    """The same batches every time."""
    for epoch in range(epochs):
        order = np.random.default_rng(epoch).permutation(len(data[1]))
        for rows in order.reshape(-1, size):
            yield data[0][rows], data[1][rows]


def main() -> None:
    """Writes the training set under the names of the model's inputs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    (images, labels), _ = digits()
    out = parser.parse_args().out
    out.parent.mkdir(parents=True, exist_ok=True)
    np.savez(out, x=images, y=labels)


if __name__ == "__main__":
    main()
