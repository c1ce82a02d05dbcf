"""Draws docs/images/architecture.svg: what a graph goes through from its source to a runtime.

Usage: python docs/pictures/architecture.py [--out docs/images]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from lstm_lower.pictures import BOX, BOX_BLUE, BOX_GREEN, BOX_ORANGE, GREY, INK, picture

if TYPE_CHECKING:
    from lstm_lower.pictures import Axes

IMAGES = Path(__file__).resolve().parents[1] / "images"

# Name -> column, row from the top, text, colour.
BOXES = {
    "keras": (0, 0, "Keras model", BOX),
    "files": (0, 1, "TensorFlow's files,\nread without it", BOX),
    "tf2onnx": (0, 2.1, "tf2onnx's files,\nonnxruntime-training's", BOX),
    "module": (0, 3, "PyTorch module", BOX),
    "onnx": (0, 4, "any ONNX model", BOX),
    "graph": (1, 0, "TensorFlow graph", BOX_BLUE),
    "regions": (1, 1, "regions of ops:\nloops and branches\nhold regions", BOX_BLUE),
    "gradients": (1, 4, "loss, gradients, state\nll.gradient, ll.from_onnx", BOX_BLUE),
    "definitions": (2, 0, "op definitions:\nalso ll.raw_ops,\nlstm-lower ops", BOX_ORANGE),
    "composite": (2, 1.4, "ONNX model with\nrecurrent ops and\ngradients as nodes", BOX_GREEN),
    "options": (2, 4, "training options:\nclipping, accumulation,\noptimizer", BOX_ORANGE),
    "verify": (3, 0, "verify: every node\nagainst its definition", BOX_BLUE),
    "rules": (3, 1, "rules: each op becomes\nits formula, a\nsequence a Scan", BOX_BLUE),
    "loops": (3, 1.95, "passes on loops", BOX_BLUE),
    "opset": (3, 2.85, "the opset asked for", BOX_BLUE),
    "standard": (3, 4, "ONNX model,\nai.onnx alone", BOX_GREEN),
    "check": (4, 1.4, "lstm-lower check:\nevery output\nagainst float64", BOX),
    "session": (4, 2.3, "ll.Session, any\nonnxruntime", BOX),
    "trainer": (4, 3.15, "ll.Trainer: state\nstays on the device", BOX),
    "bundle": (4, 4, "ll.export_training:\nfiles for every runtime", BOX),
}
ARROWS = (
    ("keras", "graph"),
    ("files", "regions"),
    ("graph", "regions"),
    ("regions", "composite"),
    ("tf2onnx", "composite"),
    ("module", "gradients"),
    ("onnx", "gradients"),
    ("gradients", "composite"),
    ("options", "composite"),
    ("composite", "verify"),
    ("definitions", "verify"),
    ("verify", "rules"),
    ("rules", "loops"),
    ("loops", "opset"),
    ("opset", "standard"),
    ("standard", "check"),
    ("standard", "session"),
    ("standard", "trainer"),
    ("standard", "bundle"),
)
HEADS = ("source", "import", "what is lowered", "lowering", "use")


def draw(axes: Axes) -> None:
    """Draws boxes in columns, and arrows between their edges."""
    axes.set_xlim(-0.5, len(HEADS) - 0.5)
    axes.set_ylim(4.5, -0.8)
    axes.set_axis_off()
    for column, head in enumerate(HEADS):
        axes.text(column, -0.65, head, ha="center", va="center", fontsize=9, color=GREY)
    boxes = {}
    for name, (column, row, text, colour) in BOXES.items():
        box = {"boxstyle": "round,pad=0.5", "facecolor": colour, "edgecolor": GREY}
        boxes[name] = axes.text(column, row, text, ha="center", va="center", fontsize=8, color=INK, bbox=box)
    axes.figure.draw_without_rendering()  # boxes have sizes from here on
    for start, end in ARROWS:
        arrow = {
            "arrowstyle": "-|>,head_width=0.18",
            "color": GREY,
            "linewidth": 0.9,
            "patchA": boxes[start].get_bbox_patch(),
            "patchB": boxes[end].get_bbox_patch(),
            "shrinkA": 0,
            "shrinkB": 0,
        }
        axes.annotate("", BOXES[end][:2], BOXES[start][:2], zorder=0, arrowprops=arrow)


def main() -> None:
    """Writes the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=IMAGES)
    with picture(parser.parse_args().out / "architecture.svg", height=4.6) as figure:
        draw(figure.subplots())


if __name__ == "__main__":
    main()
