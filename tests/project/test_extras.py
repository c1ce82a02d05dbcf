"""What needs a package of an extra says so in one line, with the command that installs it."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from lstm_lower.extras import EXTRAS
from tests.project.test_dependencies import FILES, ROOT, imports
from tests.support import forks

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def without(packages: tuple[str, ...], code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs Python as if packages were not installed."""
    start = f"import sys; assert not {set(EXTRAS)!r} & sys.modules.keys(); sys.modules |= dict.fromkeys({packages!r}); "
    environment = {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", "PATH": "", "COLUMNS": "200"}
    return forks.run(["-c", start + code], folder, environment, seconds=60)


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
    extra = "train" if words[0] == "train" else "tensorflow-files"
    assert done.returncode == 1
    pattern = rf"error: .+ requires \w+, got an installation without it: pip install 'lstm-lower\[{extra}\]' "
    pattern += rf"\(in a checkout: '\.\[{extra}\]'\)\n"
    assert re.fullmatch(pattern, done.stderr), done.stderr
    assert set(tmp_path.rglob("*")) == before


def test_a_file_that_is_not_there_needs_no_package(tmp_path: Path) -> None:
    done = without(tuple(EXTRAS), "from lstm_lower.cli.main import app; app(['lower', 'none.pb'])", tmp_path)
    assert done.returncode == 1
    assert "none.pb" in done.stderr
    assert "requires" not in done.stderr


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("from_tensorflow('graph.pb')", "tensorboard"),
        ("from_tensorflow(type('Function', (), {'get_concrete_function': 1}))", "tensorflow"),
        ("from_keras", "keras"),
        ("from_keras", "tensorflow"),
        ("tf2onnx_ops()", "tf2onnx"),
        ("Session('model.onnx', ['openvino'])", "onnxruntime_ep_openvino"),
        ("Session('model.onnx', ['ggml'])", "onnxruntime_ggml"),
    ],
)
def test_api(name: str, package: str, tmp_path: Path) -> None:
    """The error is one of ours, and an ImportError to programs that look for that; it names what is missing."""
    caught = f"try: ll.{name}\nexcept ll.LstmLowerError as error: print(isinstance(error, ImportError), error)"
    (tmp_path / "graph.pb").touch()
    printed = without((package,), f"import lstm_lower as ll\n{caught}", tmp_path).stdout
    assert printed.startswith("True "), printed
    extra = EXTRAS[package]
    named = re.search(rf"requires (\w+), got .+ without it: pip install 'lstm-lower\[{extra}\]'", printed)
    assert named
    assert named[1] == package or importlib.util.find_spec(named[1]) is None


def test_checkpoints(tmp_path: Path) -> None:
    code = "from lstm_lower.runtime.training import checkpoint; checkpoint."
    for call in ("read('file')", "write('file', {}, {})"):
        error = without(("safetensors",), code + call, tmp_path).stderr.splitlines()[-1]
        assert "MissingPackageError: a checkpoint requires safetensors" in error


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w-]", requirement)[0] for requirement in requirements}


def test_extras_bring_what_they_should() -> None:
    for package, extra in EXTRAS.items():
        assert package.replace("_", "-") in names(PROJECT["optional-dependencies"][extra])


def test_every_imported_library_is_declared() -> None:
    imported = {
        name.partition(".")[0]
        for file, path in FILES.items()
        for name in imports(path)
        if not file.startswith("benchmarks/")
    }
    # tf-keras is imported where a model of it came in; h5py comes with Keras; PyTorch's sizes are sympy's expressions.
    libraries = imported - sys.stdlib_module_names - {"lstm_lower", "tf_keras", "h5py", "sympy"}
    brought = {"protobuf" if name == "google" else name.replace("_", "-") for name in libraries - set(EXTRAS)}
    assert brought == names(PROJECT["dependencies"])


def test_every_requirement_is_bounded() -> None:
    """Below by what the tests were seen to pass with, above by the next release that may break what it likes."""
    for requirements in (PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()):
        for requirement in requirements:
            assert requirement.startswith("lstm-lower[") or (">=" in requirement and ",<" in requirement), requirement
