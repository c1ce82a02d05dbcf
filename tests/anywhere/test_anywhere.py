"""A bundle trains alike in Python, in Node, in C++ and in a browser, and the trained model says the same everywhere."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import lstm_lower as ll
from lstm_lower.runtime.training import checkpoint
from tests.anywhere.conformance import digits
from tests.anywhere.support import EXAMPLE, ROOT, Case, chromium, in_python, node, served
from tests.support import bundles, documentation


def _run(*command: object, folder: Path) -> Any:
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def _check(case: Case, found: Any, model: Path) -> None:
    np.testing.assert_allclose(found["losses"], case.losses, rtol=1e-5, atol=1e-5)
    assert case.losses[-1] < 0.8 * case.losses[0]
    assert found["classes"] == case.classes
    onnx.checker.check_model(model, full_check=True)
    with np.load(case.data) as file:
        x = file["x"]
    (result,) = ort.InferenceSession(model).run(None, {"x": x})
    assert result.argmax(-1).tolist() == case.classes


def test_node(case: Case, tmp_path: Path) -> None:
    words = (node(), EXAMPLE / "train.mjs", case.bundle, case.data, len(case.losses), case.size)
    _check(case, _run(*words, folder=tmp_path), tmp_path / "predict.onnx")


def test_the_conformance_set_by_the_package(case: Case, tmp_path: Path) -> None:
    """As docs/other-languages.md describes it, from its files alone."""
    told = _run(node(), Path(__file__).parent / "conformance.mjs", case.bundle.parent, folder=tmp_path)
    assert told["worst"] < 1e-5
    assert told["classes"]


@pytest.mark.slow
def test_the_format_of_reduced_builds(case: Case, tmp_path: Path) -> None:
    """onnxruntime's own tool takes a bundle, and its files train as the bundle's do."""
    folder = tmp_path / "bundle"
    shutil.copytree(case.bundle, folder)
    tool = "onnxruntime.tools.convert_onnx_models_to_ort"
    words = [sys.executable, "-m", tool, str(folder), "--optimization_style", "Fixed"]
    subprocess.run(words, capture_output=True, timeout=300, check=True)
    with np.load(case.data) as arrays:
        losses, _ = in_python(folder, arrays, case.size, len(case.losses), ending="ort")
    assert losses == case.losses
    assert "Scan" in (folder / "required_operators.config").read_text()


def _saved(arrays: Any, folder: Path) -> Path:
    """The arrays as C++ reads them: a file NAME.npy for each."""
    folder.mkdir()
    for name in arrays:
        np.save(folder / f"{name}.npy", arrays[name])
    return folder


def test_cpp(case: Case, program: Path, tmp_path: Path) -> None:
    words = (program, case.bundle, case.bundle.parent / "data", len(case.losses), case.size)
    _check(case, _run(*words, folder=tmp_path), tmp_path / "predict.onnx")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"target": None}, "target.npy"),
        ({"target": np.ones(4, np.float32)}, "input 'target' requires dtype int64, got float32"),
        ({"target": np.ones(3, np.int64)}, "as many samples of every input are required"),
        ({"x": np.ones((4, 5), np.float32)}, "input 'x' requires shape [B, 6], got [3, 5] (axis 1)"),
        ({"x": np.ones((6, 4), np.float32).T}, "an array in C's order"),
        ({"x": np.full((4, 6), np.nan, np.float32)}, "step 1: the loss must be finite, got nan"),
        ({"target": np.full(4, 3)}, "out of data bounds"),
    ],
)
def test_data_that_do_not_fit_in_cpp(tmp_path: Path, program: Path, changed: dict[str, Any], message: str) -> None:
    ll.export_training(bundles.classifier(), tmp_path / "bundle")
    arrays = {"x": np.ones((4, 6), np.float32), "target": np.ones(4, np.int64), **changed}
    data = _saved({name: array for name, array in arrays.items() if array is not None}, tmp_path / "data")
    words = [str(program), "bundle", str(data), "2", "3"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 1
    assert message in done.stderr
    assert not (tmp_path / "predict.onnx").exists()


@pytest.mark.slow
def test_documented_loop(tmp_path: Path) -> None:
    (block,) = documentation.blocks(ROOT / "docs" / "bundle.md", documentation.JAVASCRIPT)
    program = node()
    ll.export_training(ROOT / "examples/keras_digits/digits_train.onnx", tmp_path / "bundle")
    (tmp_path / "node_modules").symlink_to(ROOT / "node_modules")
    (tmp_path / "loop.mjs").write_text(block.text)
    done = subprocess.run([program, "loop.mjs"], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=True)
    losses = [float(line.split()[1]) for line in done.stdout.splitlines()]
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.slow
def test_documented_package(tmp_path: Path) -> None:
    """The blocks of its page are one program."""
    program = node()
    ll.export_training(ROOT / "examples/keras_digits/digits_train.onnx", tmp_path / "bundle")
    (tmp_path / "out").mkdir()
    _, arrays = digits()
    np.savez(tmp_path / "out" / "digits.npz", **arrays)
    (tmp_path / "node_modules").symlink_to(ROOT / "node_modules")
    text = "".join(
        block.text for block in documentation.blocks(ROOT / "docs" / "javascript.md", documentation.JAVASCRIPT)
    )
    (tmp_path / "page.mjs").write_text(text)
    done = subprocess.run([program, "page.mjs"], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[0]) < 2.3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({}, "a batch requires an array 'target' int64[B], got ['x']"),
        ({"target": np.ones(4, np.float32)}, "an array of int64 is required, got float32, whose numbers would change"),
        ({"target": np.ones(4, np.int32)}, None),
        (
            {"target": np.ones(3, np.int64)},
            "as many samples in every array are required, got 4 and 3",
        ),
        (
            {"target": np.ones(4, np.int64), "x": np.ones((4, 5))},
            "a batch 'x' requires float32[B, 6], got [3, 5] (axis 1)",
        ),
        ({"target": np.ones(4, np.complex64)}, "an array of numbers in C's order is required"),
        ({"target": np.ones(4, np.int64), "x": np.full((4, 6), np.nan)}, "step 1: the loss must be finite, got nan"),
    ],
)
def test_data_that_do_not_fit(tmp_path: Path, changed: dict[str, Any], message: str | None) -> None:
    ll.export_training(bundles.classifier(), tmp_path / "bundle")
    np.savez(tmp_path / "data.npz", **{"x": np.ones((4, 6)), **changed})
    words = [node(), str(EXAMPLE / "train.mjs"), "bundle", "data.npz", "2", "3"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode == 0) is (message is None), done.stderr
    assert message is None or message in done.stderr


_LOOP = """
import { readFileSync } from "node:fs";
import * as ort from "onnxruntime-node";
const about = JSON.parse(readFileSync("bundle/training.json"));
const options = { logSeverityLevel: 4 };
const init = await ort.InferenceSession.create("bundle/init.onnx");
const train = await ort.InferenceSession.create("bundle/train.onnx", options);
const rate = { [about.learning_rate.name]: new ort.Tensor("float32", [0.01], []) };
const state = { ...await init.run({}), ...rate, x: new ort.Tensor("float32", new Float32Array(24), [4, 6]) };
for (const labels of [[0n, 1n, 2n, 0n], [0n, 1n, 2n], [0n], [0n, 1n, 2n, -1n], [0n, 1n, 2n, 3n]]) {
  const target = new ort.Tensor("int64", BigInt64Array.from(labels), [labels.length]);
  try { await train.run({ ...state, target }); console.log("trained"); } catch (error) { console.log(error.message); }
}
"""


def test_what_does_not_fit_fails_in_the_graph(tmp_path: Path) -> None:
    """In a loop that checks nothing itself: fewer labels than rows, and labels that are no class."""
    ll.export_training(bundles.classifier(), tmp_path / "bundle")
    program = node()
    (tmp_path / "node_modules").symlink_to(ROOT / "node_modules")
    (tmp_path / "loop.mjs").write_text(_LOOP)
    done = subprocess.run([program, "loop.mjs"], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=True)
    right, *wrong = done.stdout.splitlines()
    assert right == "trained"
    by = [said.partition("running ")[2].split()[0] for said in wrong]
    # The loss looks a label's score up, and its gradient puts one there: either may come first.
    assert by[:2] == ["Split", "Split"]
    assert set(by[2:]) <= {"GatherElements", "ScatterElements"}


@pytest.fixture
def server(case: Case, tmp_path: Path) -> Iterator[str]:
    # One page gets its data before its bundle, as from a slow server.
    with served(case.bundle, tmp_path / "site", 0.5 if case.name == "torch_lstm" else 0) as url:
        yield url


def _driven(case: Case, url: str, folder: Path, **options: Any) -> Any:
    """What the page says after it has trained on the case's data."""
    options = {
        "packages": str(ROOT), "chromium": chromium(), "url": url, "data": str(case.data), "steps": len(case.losses),
        "size": case.size, "names": case.model_files, "folder": str(folder), **options,
    }  # fmt: skip
    return _run(node(), Path(__file__).parent / "drive.mjs", json.dumps(options), folder=folder)


def test_browser(case: Case, server: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    wanted = case.name == "keras_digits" and request.config.getoption("--update-pictures")
    images = ROOT / "docs" / "images"
    pictures = [("light", 860, 720, str(images / "train_in_browser.png"))] if wanted else []
    told = _driven(case, server, tmp_path, pictures=pictures)
    assert told["wrong"] == told["foreign"] == told["sent"] == []
    assert not told["wide"], "the page scrolls to the side"
    assert "classes right" in told["said"]
    _check(case, told, tmp_path / "predict.onnx")


@pytest.mark.slow
def test_what_a_browser_keeps(tmp_path: Path) -> None:
    """Checkpoints in IndexedDB and in the origin's file system go on bit for bit; errors cross the worker's border."""
    ll.export_training(bundles.classifier(), tmp_path / "bundle")
    resumed = ll.Trainer(bundles.classifier())
    for step in range(3):
        resumed.step(bundles.batch(step))
    with served(tmp_path / "bundle", tmp_path / "site") as url:
        resumed.save(tmp_path / "site" / "python.safetensors")
        words = (node(), Path(__file__).parent / "browser.mjs", ROOT, chromium(), url)
        told = _run(*words, folder=tmp_path)
    (tmp_path / "chromium.safetensors").write_bytes(bytes(told["python"]))
    (before, _), (after, held) = (
        checkpoint.read(path) for path in (tmp_path / "site" / "python.safetensors", tmp_path / "chromium.safetensors")
    )
    assert held["steps"] == 3
    assert {name: array.tobytes() for name, array in after.items()} == {
        name: array.tobytes() for name, array in before.items()
    }
    trainer = ll.Trainer(bundles.classifier())
    feeds = {"x": np.sin(np.arange(24)).astype(np.float32).reshape(4, 6), "target": np.array([0, 1, 2, 1])}
    np.testing.assert_allclose(told["losses"], [trainer.step(feeds).loss for _ in range(6)], rtol=1e-5)
    assert told["kept"] == {"indexedDB": True, "opfs": True}
    assert (told["reason"], told["aborted"]) == ("AbortError", 1)
    assert told["mean"]
    assert told["together"], "two steps at once were one"
    beginnings = [
        ("InvalidInputError", "input 'target' requires a value, got nothing (missing: ['target'])"),
        ("InvalidInputError", "onnxruntime failed on these feeds"),
        ("NotFiniteError", "step 7: the loss must be finite, got nan"),
        ("InvalidInputError", "nowhere: a checkpoint is required, got nothing there"),
        ("InvalidModelError", f"{url}nowhere/training.json: a file of a bundle is required, got 404"),
        ("InvalidInputError", "onnxruntime requires the address of its module"),
        ("InvalidInputError", "a trainer requires its worker, got one that has ended"),
        ("InvalidInputError", "a trainer requires its worker, got one that has ended"),
        ("InvalidInputError", "a trainer requires a worker of its own, got one that another trainer has"),
    ]
    for (kind, message), (expected, start) in zip(told["messages"], beginnings, strict=True):
        assert kind == expected
        assert message.startswith(start)
    assert told["ended"]
    assert all("a checkpoint of one run is required" in message for message in told["ended"])


@pytest.mark.slow
def test_browser_with_webgpu(case: Case, tmp_path: Path) -> None:
    """On Chromium's driver that computes on the processor; what needs float64 is refused."""
    step = ROOT / "examples/keras_digits/digits_train.onnx"
    if case.name != "keras_digits":
        pytest.skip("PyTorch's Adam has scalars of float64, which onnxruntime-web's WebGPU does not have")
    ll.export_training(step, tmp_path / "bundle", target="webgpu-web")
    short = dataclasses.replace(case, bundle=tmp_path / "bundle", losses=case.losses[:10])
    with served(short.bundle, tmp_path / "site", webgpu=True) as url:
        found = _driven(short, f"{url}?provider=webgpu", tmp_path, webgpu=True)
    assert found["wrong"] == found["foreign"] == found["sent"] == []
    np.testing.assert_allclose(found["losses"], short.losses, rtol=1e-5)
