"""What tests of other runtimes share: what they need, and what they compare with."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import http.server
import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from lstm_lower.runtime.training import page
from tests.support.provider_plugins import REQUIRED

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "train_anywhere"
PACKAGE = ROOT / "runtime" / "javascript" / "dist" / "index.js"


@dataclasses.dataclass(frozen=True)
class Case:
    """A bundle, and what Python made of it.

    Attributes:
        name: what it is of.
        bundle: its folder.
        data: a .npz file.
        losses: of each step.
        classes: of each sample, by the trained model.
        size: samples per step.
    """

    name: str
    bundle: Path
    data: Path
    losses: list[float]
    classes: list[int]
    size: int

    @property
    def model_files(self) -> list[str]:
        """Files of the model that predicts."""
        entry = json.loads((self.bundle / "training.json").read_text())["files"]["predict"]
        return [entry["model"], *entry["data"]]


def in_python(
    folder: Path, arrays: Mapping[str, np.ndarray], size: int, steps: int, ending: str = "onnx"
) -> tuple[list[float], dict[str, np.ndarray]]:
    """The losses of a bundle's steps in onnxruntime, from its models in files of this ending, and the last state."""
    about = json.loads((folder / "training.json").read_text())
    init = ort.InferenceSession(folder / f"init.{ending}")
    train = ort.InferenceSession(folder / f"train.{ending}")
    state = dict(zip([value.name for value in init.get_outputs()], init.run(None, {}), strict=True))
    rate = {about["learning_rate"]["name"]: np.array(about["learning_rate"]["value"], np.float32)}
    moving = [pair for pair in about["state"] if pair["output"]]
    count = len(arrays["x"])
    losses = []
    for step in range(steps):
        rows = (step * size + np.arange(size)) % count
        feeds = {name: array[rows] for name, array in arrays.items()}
        loss, *new = train.run([about["loss"], *(pair["output"] for pair in moving)], {**state, **rate, **feeds})
        state.update(zip([pair["input"] for pair in moving], new, strict=True))
        losses.append(float(loss))
    return losses, state


def node() -> str:
    """The program `node`, with the packages that the example names."""
    found = shutil.which("node")
    if found is None:
        _missing("Node 20 or newer is required: https://nodejs.org, or apt-get install nodejs npm")
    package("onnxruntime-node")
    assert found is not None
    return found


def chromium() -> str:
    """The program Chromium."""
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        _missing("Chromium is required: apt-get install chromium")
    assert found is not None
    return found


def compiled(folder: Path, source: Path = EXAMPLE / "train.cpp") -> Path:
    """A program in C++, the example by default, in `folder`. ONNXRUNTIME names an unpacked release of onnxruntime."""
    onnxruntime, compiler = os.environ.get("ONNXRUNTIME"), shutil.which("g++")
    if onnxruntime is None or compiler is None:
        _missing("g++ is required, and ONNXRUNTIME=FOLDER with onnxruntime's include/ and lib/")
    assert onnxruntime is not None
    assert compiler is not None
    include, library = f"{onnxruntime}/include", f"{onnxruntime}/lib"
    words = [compiler, "-std=c++17", "-Wall", "-Wextra", "-Werror", source, "-o", folder / source.stem]
    words += [f"-isystem{include}", f"-L{library}", "-lonnxruntime", f"-Wl,-rpath,{library}"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return folder / source.stem


def package(name: str) -> Path:
    """The folder of an npm package."""
    folder = ROOT / "node_modules" / name
    if not folder.is_dir():
        _missing("packages are required: npm ci --ignore-scripts")
    return folder


def _missing(reason: str) -> None:
    if os.environ.get(REQUIRED):
        pytest.fail(reason)
    pytest.skip(reason)


class _Site(http.server.SimpleHTTPRequestHandler):
    """A page with its bundle, whose files come after `delay` seconds."""

    def __init__(self, *args: Any, delay: float, **kwargs: Any) -> None:
        self.delay = delay
        super().__init__(*args, **kwargs)

    def translate_path(self, path: str) -> str:
        if path.startswith("/bundle/"):
            time.sleep(self.delay)
        return super().translate_path(path)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base's name)
        pass


@contextlib.contextmanager
def served(bundle: Path, site: Path, delay: float = 0, *, webgpu: bool = False) -> Iterator[str]:
    """The address of a page with a bundle, while it is served."""
    runtime = package("onnxruntime-web")
    shutil.copytree(bundle, site / page.BUNDLE)
    page.write_page(site, page.files_of(runtime, webgpu=webgpu))
    handler = functools.partial(_Site, delay=delay, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as served:
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{served.server_port}/"
        served.shutdown()
        thread.join()
