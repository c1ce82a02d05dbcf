"""Draws which elements of a sequence a classifier's decision depends on.

Usage: python examples/saliency/saliency.py [--out DIR]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import lstm_lower as ll
from lstm_lower.pictures import picture

HERE = Path(__file__).parent
MODEL = HERE.parent / "graphs" / "input_saliency.onnx"


def main() -> None:
    """Runs the gradient and draws it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out"))
    out = parser.parse_args().out

    with np.load(MODEL.with_suffix(".npz")) as recorded:
        x = recorded["in:x:0"]
    session = ll.Session(ll.lower(MODEL))
    results = session.run({"x:0": x})
    saliency = results["saliency:0"][:, 0]

    out.mkdir(parents=True, exist_ok=True)
    with picture(out / "saliency.svg", height=3) as figure:
        titles = ("input", "gradient of the winning score")
        for axes, title, values in zip(figure.subplots(1, 2), titles, (x[:, 0], saliency), strict=True):
            limit = np.abs(values).max()
            shown = axes.imshow(values.T, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto")
            axes.set(title=title, xlabel="step", ylabel="feature")
            axes.grid(visible=False)
            figure.colorbar(shown, ax=axes)
    # The classifier reads the first nine steps only: the others cannot matter.
    print("largest gradient per step:", *np.abs(saliency).max(axis=1).round(4))


if __name__ == "__main__":
    main()
