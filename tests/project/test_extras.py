"""What needs a package of an extra says so in one line, with the command that installs it."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from lstm_lower.extras import EXTRAS

ROOT = Path(__file__).resolve().parents[2]


def without(packages: tuple[str, ...], code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs Python as if packages were not installed."""
    start = f"import sys; sys.modules |= dict.fromkeys({packages!r}); "
    return subprocess.run(
        [sys.executable, "-c", start + code],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "words",
    [
        ["lower", "graph.pb"],
        ["lower", "graph.pb", "-o", "low.onnx", "--json"],
        ["inspect", "graph.pb"],
        ["inspect", "saved"],
        ["train", "model.onnx", "--data", "data.npz", "--out", "run"],
    ],
    ids=" ".join,
)
def test_commands(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "graph.pb").touch()
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved/saved_model.pb").touch()
    before = set(tmp_path.rglob("*"))
    done = without(tuple(EXTRAS), f"from lstm_lower.cli.main import app; app({words!r})", tmp_path)
    extra = "train" if words[0] == "train" else "tensorflow"
    assert done.returncode == 1
    pattern = rf"error: .+ requires \w+, got an installation without it: pip install 'lstm-lower\[{extra}\]'\n"
    assert re.fullmatch(pattern, done.stderr), done.stderr
    assert set(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("from_tensorflow", "tensorflow"),
        ("from_tensorflow", "tf2onnx"),
        ("from_keras", "keras"),
        ("from_keras", "tensorflow"),
        ("tf2onnx_ops()", "tf2onnx"),
    ],
)
def test_api(name: str, package: str, tmp_path: Path) -> None:
    """The error is one of ours, and an ImportError to programs that look for that."""
    caught = f"try: ll.{name}\nexcept ll.LstmLowerError as error: print(isinstance(error, ImportError), error)"
    printed = without((package,), f"import lstm_lower as ll\n{caught}", tmp_path).stdout
    assert printed.startswith("True ")
    assert f"requires {package}, got an installation without it: pip install 'lstm-lower[tensorflow]'" in printed


def test_checkpoints(tmp_path: Path) -> None:
    code = "from lstm_lower.runtime.training import checkpoint; checkpoint."
    for call in ("read('file')", "write('file', {}, {})"):
        error = without(("safetensors",), code + call, tmp_path).stderr.splitlines()[-1]
        assert "MissingPackageError: a checkpoint requires safetensors" in error


def test_extras_bring_what_they_should() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for package, extra in EXTRAS.items():
        brought = {re.split(r"[^\w-]", requirement)[0] for requirement in extras[extra]}
        assert package in brought or (package == "keras" and "tensorflow" in brought)
