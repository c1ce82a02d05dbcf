"""`lstm-lower run` on what is not a plain tensor, and on more than memory holds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx.parser

from tests.support.command_line import fail, succeed

SEQUENCE = "agraph (float[N] x) => (seq(float[N]) s, float[N] y) { s = SequenceConstruct (x, x) y = Neg (x) }"
STRINGS = "agraph (string[N] x) => (string[N] y) { y = Identity (x) }"


def write(folder: Path, text: str) -> Path:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}')
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    return folder / "m.onnx"


def test_a_sequence_is_shown_and_not_written(tmp_path: Path) -> None:
    path = write(tmp_path, SEQUENCE)
    rows = json.loads(succeed("run", path, "--json"))["outputs"]
    assert [(row["name"], row["dtype"], row["shape"]) for row in rows] == [("s", "list", None), ("y", "float32", [4])]
    assert "list" in succeed("run", path)
    assert "'s' requires a tensor of numbers or strings" in fail("run", path, "-o", tmp_path / "out.npz")
    assert not (tmp_path / "out.npz").exists()


def test_strings(tmp_path: Path) -> None:
    path = write(tmp_path, STRINGS)
    np.savez(tmp_path / "in.npz", x=np.array(["a", "bc"]))
    succeed("run", path, "-i", tmp_path / "in.npz", "-o", tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as file:
        assert file["y"].tolist() == ["a", "bc"]


def test_sizes_beyond_memory(tmp_path: Path) -> None:
    path = write(tmp_path, "agraph (float[N] x) => (float[N] y) { y = Neg (x) }")
    assert "do not fit into memory" in fail("run", path, "--dim", f"N={2**45}")
