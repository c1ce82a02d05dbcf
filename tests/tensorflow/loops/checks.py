"""Training steps of imported graphs, compared with those that TensorFlow recorded."""

from __future__ import annotations

import dataclasses
import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import numpy as np
import onnx
import pytest

import lstm_lower as ll

ROOT = Path(__file__).parents[3]
TOLERANCE = 1e-5

needs_tensorflow = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("tensorflow", "tf_keras")),
    reason="the graphs are made by TensorFlow with tf-keras",
)


def meta_of(folder: Path, name: str) -> Path:
    """The `.meta` file of a graph."""
    return folder / f"{name.replace('/', '-')}.meta"


class Maker:
    """A process that makes graphs when they are asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        command = [sys.executable, "-m", "tests.tensorflow.loops.make", str(folder)]
        self._log = (folder / "log.txt").open("w", encoding="utf-8")
        self._process = subprocess.Popen(
            command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)
        self._process.stdout.close()
        self._log.close()

    def graph(self, name: str) -> Path:
        """The `.meta` file of a graph."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{name}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        log = (self.folder / "log.txt").read_text(encoding="utf-8")[-2000:]
        assert answer == "\n", f"{name} could not be made: {answer}{log if not answer else ''}"
        return meta_of(self.folder, name)


@dataclasses.dataclass(frozen=True)
class Way:
    """How a graph is imported and run.

    Attributes:
        weights: as for `from_tensorflow`.
        given: whether the checkpoint is named, and does not lie beside the graph.
        optimize: as for `lower`.
        opset: as for `from_tensorflow`.
    """

    weights: Any = "inputs"
    given: bool = False
    optimize: bool = True
    opset: int | None = None


WAYS = (Way(), Way(None, optimize=False), Way(given=True), Way(opset=13, optimize=False), Way(optimize=False))


def imported(meta: Path, way: Way = WAYS[0]) -> onnx.ModelProto:
    """The training step of a graph."""
    source, options = meta, {}
    if way.given:
        source = meta.parent / "elsewhere" / meta.name
        source.parent.mkdir(exist_ok=True)
        source.write_bytes(meta.read_bytes())
        options["checkpoint"] = meta.with_suffix("")
    return ll.from_tensorflow(source, outputs=["loss:0", "train"], weights=way.weights, opset=way.opset, **options)


def tolerance_of(name: str) -> float:
    """The tolerance of a form."""
    return 2e-3 if "float16" in name else TOLERANCE


def check(meta: Path, way: Way = WAYS[0], tolerance: float = TOLERANCE) -> onnx.ModelProto:
    """Compares losses and variables after each step; returns the lowered model."""
    lowered = ll.lower(imported(meta, way), optimize=way.optimize)
    assert {*domains(lowered.graph)} == {""}
    onnx.checker.check_model(lowered, full_check=True)
    if way.weights is None:
        _check_first(meta, lowered, tolerance)
        return lowered
    trainer = ll.Trainer(lowered)
    with np.load(meta.with_suffix(".npz")) as recorded:
        losses = sorted(name for name in recorded.files if name.startswith("loss"))
        for step, name in enumerate(losses):
            fed = {key.partition("/")[2]: recorded[key] for key in recorded.files if key.startswith(f"in{step}/")}
            loss = trainer.step({key: value for key, value in fed.items() if key in trainer.inputs}).loss
            np.testing.assert_allclose(loss, recorded[name], rtol=0, atol=tolerance, err_msg=name)
            found = trainer.state_dict()
            for key in recorded.files:
                if key.startswith(f"var{step}/"):
                    variable = key.partition("/")[2]
                    np.testing.assert_allclose(found[variable], recorded[key], rtol=0, atol=tolerance, err_msg=key)
    return lowered


def _check_first(meta: Path, lowered: onnx.ModelProto, tolerance: float) -> None:
    """Compares the first step of a model that holds its weights."""
    session = ll.Session(lowered)
    inputs = {value.name for value in lowered.graph.input}
    with np.load(meta.with_suffix(".npz")) as recorded:
        fed = {key.partition("/")[2]: recorded[key] for key in recorded.files if key.startswith("in0/")}
        found = session.run({key: value for key, value in fed.items() if key in inputs})
        np.testing.assert_allclose(found["loss:0"], recorded["loss0"], rtol=0, atol=tolerance)
        changed = [name for name in found if name.endswith("/new:0")]
        assert changed
        for name in changed:
            wanted = recorded[f"var0/{name.removesuffix('/new:0')}:0"]
            np.testing.assert_allclose(found[name], wanted, rtol=0, atol=tolerance, err_msg=name)


def loops(model: onnx.ModelProto) -> dict[str, int]:
    """How many Loops and Scans a lowered model has at its top level."""
    return {kind: sum(node.op_type == kind for node in model.graph.node) for kind in ("Loop", "Scan")}


def domains(graph: onnx.GraphProto) -> list[str]:
    found = []
    for node in graph.node:
        found.append(node.domain.replace("ai.onnx", ""))
        for attribute in node.attribute:
            found += domains(attribute.g) if attribute.type == onnx.AttributeProto.GRAPH else []
    return found
