"""Draws which pixels speak for and against a class, from a classifier that somebody shipped as an .onnx file.

Usage: python examples/onnx_saliency/saliency.py [--out DIR]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import lstm_lower as ll
from lstm_lower.pictures import picture

HERE = Path(__file__).parent


def main() -> None:
    """Differentiates the scores by the image, runs it on ten images, and draws what comes out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out") / HERE.name)
    out = parser.parse_args().out
    with np.load(HERE / "digits.npz") as data:
        images = data["images"]

    # The scores are no scalar: which of them to differentiate is an input, `seed/scores`.
    gradient = ll.gradient(HERE / "digits.onnx", of="scores", wrt=["image"], seeds=True)
    session = ll.Session(ll.lower(gradient))
    scores = session.run({"image": images, "seed/scores": np.zeros((10, 10), np.float32)})["scores"]
    # The class that wins, against the one that comes second: what tells them apart.
    second, first = np.argsort(scores, axis=1)[:, -2:].T
    seed = np.eye(10, dtype=np.float32)[first] - np.eye(10, dtype=np.float32)[second]
    saliency = session.run({"image": images, "seed/scores": seed})["grad/image"]

    # Against central differences of the file itself, along a random direction.
    plain, direction = ll.Session(HERE / "digits.onnx"), np.random.default_rng(0).normal(size=images.shape)
    ahead, behind = (
        plain.run({"image": (images + sign * 1e-3 * direction).astype(np.float32)})["scores"] for sign in (1, -1)
    )
    difference = ((ahead - behind) * seed).sum(1) / 2e-3
    worst = np.abs((saliency * direction).sum((1, 2, 3)) - difference).max() / np.abs(difference).max()
    print(f"classes {first.tolist()}, next {second.tolist()}")
    print("gradient and differences agree" if worst < 0.01 else f"gradient and differences differ by {worst:.3f}")

    out.mkdir(parents=True, exist_ok=True)
    with picture(out / "saliency.svg", height=2.2) as figure:
        columns = figure.subplots(2, 10).T
        for axes, image, heat, winner, other in zip(columns, images[:, 0], saliency[:, 0], first, second, strict=True):
            axes[0].imshow(image, cmap="Greys")
            limit = np.abs(heat).max()
            axes[1].imshow(heat, cmap="RdBu_r", vmin=-limit, vmax=limit)
            axes[0].set_title(f"{winner}, not {other}", fontsize=9, loc="center")
            for each in axes:
                each.set_axis_off()


if __name__ == "__main__":
    main()
