"""Pictures of reports, taken in Chromium, and how long their pages take.

    python -m tests.report_pictures unrolled            5,000 nodes (tests/support/unrolled.py)
    python -m tests.report_pictures deepspeech PATH.meta

The second is of DeepSpeech's training step, a graph as it was found, which is not in the repository. Pictures go to
docs/images; those of the character model are taken by `pytest tests/report --update-pictures`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx

import lstm_lower as ll
from lstm_lower.records import state as training_state
from tests.anywhere.support import ROOT
from tests.real_steps import deepspeech, start_values
from tests.report.browser import browse
from tests.support import unrolled

# Written out, so many steps are more than 5,000 nodes after lowering.
STEPS = 108

# One step of the backward pass, among the others.
SHOW_STEP = """(() => {
  const node = [...right.state.nodes.values()].find((each) => each.name.startsWith("backward/step_60/"));
  go(right, node.number);
  const cell = [...left.state.nodes.values()].find((each) => each.name === "backward/step_60/LSTMBlockCellGrad");
  go(left, cell.number);
})()"""

# A fused gradient on the left, on the right its loop, open.
SHOW_LOOP = """(() => {
  const gradient = [...left.state.nodes.values()].find((each) => each.operator.endsWith("::BlockLSTMGrad"));
  go(left, gradient.number);
  const loops = [...right.tree.leaves.values()].filter((item) => item.bodies.length);
  const loop = loops.findLast((item) => item.node.sources.includes(gradient.number));
  right.reveal(loop.node.number);
  if (!loop.open) right.toggle(loop);
  right.fit();
  right.zoom(1.2);
  right.center(loop);
})()"""


def report_of(model: Path, folder: Path, *words: str) -> Path:
    """Writes the report of a model, by the command line."""
    target = folder / "report.html"
    subprocess.run([sys.executable, "-m", "lstm_lower", "report", str(model), "-o", str(target), *words], check=True)
    return target


def of_unrolled(folder: Path) -> Path:
    """The report of an LSTM's step that is written out."""
    onnx.save(unrolled.training_step(STEPS), folder / "unrolled.onnx")
    return report_of(folder / "unrolled.onnx", folder, "--no-run")


def of_deepspeech(folder: Path, path: Path) -> Path:
    """The report of DeepSpeech's step, with weights of the usual size and no dropout."""
    rng = np.random.default_rng(1)
    feeds, outputs = deepspeech(rng)
    feeds = {name: x.astype(np.float32) if x.dtype == np.float64 else x for name, x in feeds.items()}
    model = ll.from_tensorflow(path, list(feeds), outputs)
    pairs = training_state.parse({entry.key: entry.value for entry in model.metadata_props}).pairs
    types = {value.name: value.type.tensor_type for value in model.graph.input}
    declared = {
        pair.variable or "": (
            tuple(dim.dim_value for dim in types[pair.input].shape.dim),
            onnx.helper.tensor_dtype_to_np_dtype(types[pair.input].elem_type),
        )
        for pair in pairs
    }
    values = start_values(declared, rng)
    np.savez(folder / "data.npz", **feeds, **{pair.input: values[pair.variable or ""] for pair in pairs})
    names = ["--inputs", ",".join(feeds), "--outputs", ",".join(outputs)]
    return report_of(path, folder, *names, "--data", str(folder / "data.npz"))


def main(kind: str, *paths: str) -> None:
    """Takes a picture, and prints what it took."""
    with tempfile.TemporaryDirectory() as name:
        if kind == "unrolled":
            report, show = of_unrolled(Path(name)), SHOW_STEP
        else:
            report, show = of_deepspeech(Path(name), Path(*paths)), SHOW_LOOP
        picture = ROOT / "docs" / "images" / f"report_{kind}.png"
        seen = browse("picture.mjs", report, show=show, picture=str(picture))
    assert seen["said"] == seen["requests"] == []
    sys.stdout.write(
        f"{seen['ready']:.0f} ms until the page shows {seen['first']} boxes, {seen['opening']:.0f} ms to open all "
        f"{seen['everything']}, {seen['closing']:.0f} ms to close them\n"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
