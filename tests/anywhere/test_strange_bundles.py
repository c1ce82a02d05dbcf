"""Bundles whose description is anybody's: the loops write no file that it names elsewhere, and copy no byte beyond."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lstm_lower as ll
from tests.anywhere.support import EXAMPLE, PACKAGE, node
from tests.support import bundles


def _file(name: object) -> Callable[[Any], None]:
    def change(about: Any) -> None:
        about["files"]["predict"]["model"] = name

    return change


def _data(name: object) -> Callable[[Any], None]:
    def change(about: Any) -> None:
        about["files"]["predict"]["data"] = [name]

    return change


def _place(key: str, value: object) -> Callable[[Any], None]:
    def change(about: Any) -> None:
        next(pair for pair in about["state"] if pair["predict"])["predict"][key] = value

    return change


def _linked(about: Any) -> None:
    about["files"]["predict"]["data"] = ["linked.data"]


STRANGE = {
    "absolute": _file("/tmp/lstm-lower-nowhere.onnx"),
    "up": _file("../bundle/predict.onnx"),
    "backslash": _file("..\\predict.onnx"),
    "program": _data("train.mjs"),
    "hidden": _data(".data"),
    "terminal": _data("\x1b[2J\u009b.data"),
    "no text": _data(3),
    "linked": _linked,
    "length": _place("length", 10**7),
    "short": _place("length", 4),
    "no length": _place("length", -1),
    "offset": _place("offset", 10**7),
    "negative": _place("offset", -8),
    "fraction": _place("offset", 0.5),
    "huge": _place("offset", 2**64 - 8),
    "file": _place("file", "init.onnx"),
    "prototype": _place("file", "__proto__"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle, and data for it in both forms."""
    made = tmp_path_factory.mktemp("strange")
    ll.export_training(bundles.classifier(), made / "bundle")
    arrays = {"x": np.ones((4, 6), np.float32), "target": np.ones(4, np.int64)}
    np.savez(made / "data.npz", **arrays)
    (made / "data").mkdir()
    for name, array in arrays.items():
        np.save(made / "data" / f"{name}.npy", array)
    (made / "bundle" / "linked.data").symlink_to(made / "data.npz")
    return made


def _refused(folder: Path, tmp_path: Path, words: list[str], change: Callable[[Any], None]) -> None:
    about = _described(folder)
    change(about)
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    for path in (folder / "bundle").iterdir():
        (bundle / path.name).symlink_to(path) if path.is_symlink() else (bundle / path.name).hardlink_to(path)
    (bundle / "training.json").unlink()
    (bundle / "training.json").write_text(json.dumps(about))
    started = tmp_path / "started"
    started.mkdir()
    done = subprocess.run(words, cwd=started, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error: ")
    assert done.stderr.replace("\n", "").isprintable()
    assert not list(started.iterdir())


@pytest.mark.parametrize("name", STRANGE)
def test_cpp(folder: Path, tmp_path: Path, program: Path, name: str) -> None:
    words = [str(program), str(tmp_path / "bundle"), str(folder / "data"), "1", "3"]
    _refused(folder, tmp_path, words, STRANGE[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["init.onnx", "train.onnx", "predict.onnx", "training.json", "weights"])
def test_a_flipped_bit_is_refused_in_cpp(folder: Path, tmp_path: Path, program: Path, name: str) -> None:
    """Every file that the program reads."""
    bundle = tmp_path / "bundle"
    ll.export_training(bundles.frozen(), bundle)
    if name == "weights":
        (name,) = (path.name for path in bundle.glob("weights.*.data"))
    content = (bundle / name).read_bytes()
    for number in range(8):
        place = (2 * number + 1) * len(content) // 16
        (bundle / name).write_bytes(content[:place] + bytes([content[place] ^ 1 << number]) + content[place + 1 :])
        words = [str(program), str(bundle), str(folder / "data"), "1", "3"]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1].startswith("error: ")
        assert not (tmp_path / "predict.onnx").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["up", "length", "linked", "terminal"])
def test_node(folder: Path, tmp_path: Path, name: str) -> None:
    words = [node(), str(EXAMPLE / "train.mjs"), str(tmp_path / "bundle"), str(folder / "data.npz"), "1", "3"]
    _refused(folder, tmp_path, words, STRANGE[name])


SCRIPT = """
import { readFileSync } from "node:fs";
import { load, readNpy } from "PACKAGE";
const { bundle, cases } = JSON.parse(readFileSync(0, "utf8"));
const names = ["init", "train", "eval", "predict"].map((name) => `${name}.onnx`);
const files = Object.fromEntries(names.map((name) => [name, readFileSync(`${bundle}/${name}`)]));
const refused = [];
for (const [name, about] of Object.entries(cases))
  try {
    const description = new TextEncoder().encode(JSON.stringify(about));
    await (await load({ ...files, "training.json": description })).trained();
  } catch (error) {
    if (error.name !== "InvalidModelError") throw error;
    refused.push(name);
  }
const [numbers, sizes] = ["\\x20\\x00{'descr': '<f4', 'shape': (9,)}    ", "\\x10\\x00{'descr': '<f4'}   "];
for (const text of [numbers, sizes].map((header) => `\\x93NUMPY\\x01\\x00${header}`))
  try {
    readNpy(Uint8Array.from(text, (letter) => letter.charCodeAt(0)));
  } catch (error) {
    refused.push(error.name);
  }
console.log(JSON.stringify(refused));
"""


def _described(folder: Path) -> Any:
    """A description without hashes, as anybody may write one."""
    return {**json.loads((folder / "bundle" / "training.json").read_text()), "version": 1}


def test_javascript(folder: Path, tmp_path: Path) -> None:
    """By the package, all cases in one process."""
    cases = {"as it is": _described(folder)}
    for name, change in STRANGE.items():
        if name != "linked":  # which only a file shows
            cases[name] = _described(folder)
            change(cases[name])
    (tmp_path / "script.mjs").write_text(SCRIPT.replace("PACKAGE", PACKAGE.as_uri()))
    given = json.dumps({"bundle": str(folder / "bundle"), "cases": cases})
    words = [node(), str(tmp_path / "script.mjs")]
    done = subprocess.run(words, input=given, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    expected = [*(name for name in cases if name != "as it is"), "InvalidInputError", "InvalidInputError"]
    assert json.loads(done.stdout) == expected
