"""Where a model runs: onnxruntime's providers, OpenVINO's own runtime, Node and a browser."""

from __future__ import annotations

import dataclasses
import functools
import http.server
import json
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import lstm_lower as ll
from lstm_lower.errors import InvalidInputError
from lstm_lower.runtime.session import CapturedRuns

Array = np.ndarray[Any, Any]
ROOT = Path(__file__).parents[1]
ANYWHERE = ROOT / "benchmarks" / "anywhere"
# A browser begins slowly, and its processor is the same.
PATIENCE = 300


@dataclasses.dataclass(frozen=True)
class Measured:
    """What came of a run.

    Attributes:
        outputs: by name.
        milliseconds: of the fastest run.
    """

    outputs: dict[str, Array]
    milliseconds: float


Run = Callable[[onnx.ModelProto, Mapping[str, Array], int], Measured]


def in_session(
    provider: str, model: onnx.ModelProto, feeds: Mapping[str, Array], rounds: int, precision: str | None = None
) -> Measured:
    """By a provider of onnxruntime, through `ll.Session`."""
    session = ll.Session(model, [provider], precision=precision)
    outputs = session.run(feeds)
    arrays = session.check_feeds(feeds)
    return Measured(outputs, _fastest(lambda: session.ort.run(None, arrays), rounds))


def in_capture(model: onnx.ModelProto, feeds: Mapping[str, Array], rounds: int) -> Measured:
    """By the CUDA provider as a captured graph, with everything on the device."""
    session = ll.Session(model, ["cuda-graph"])
    # Captured on other numbers: what a captured run keeps of them is found out.
    session.run({name: np.zeros_like(array) for name, array in feeds.items()})
    outputs = session.run(feeds)
    runs = CapturedRuns(session.ort)
    runs.put(session.check_feeds(feeds))
    return Measured(outputs, _fastest(runs.run, rounds))


def in_openvino(hint: str, model: onnx.ModelProto, feeds: Mapping[str, Array], rounds: int) -> Measured:
    """By OpenVINO's own runtime, which the plug-in is made of, without onnxruntime, in the precision of a hint."""
    try:
        import openvino
    except ModuleNotFoundError as error:
        raise InvalidInputError("OpenVINO's runtime requires openvino: pip install openvino") from error
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(model, path)
        core = openvino.Core()
        compiled = core.compile_model(core.read_model(path), "CPU", {"INFERENCE_PRECISION_HINT": hint})
    names = [value.name for value in model.graph.output]
    # It knows one of the two types that numpy has for an int64.
    given = {name: array.astype(np.dtype(array.dtype.str)) for name, array in feeds.items()}
    made = compiled(given)
    outputs = {name: np.array(made[compiled.output(index)]) for index, name in enumerate(names)}
    return Measured(outputs, _fastest(lambda: compiled(given), rounds))


def in_node(model: onnx.ModelProto, feeds: Mapping[str, Array], rounds: int) -> Measured:
    """By onnxruntime-node."""
    with tempfile.TemporaryDirectory() as folder:
        paths = _written(Path(folder), model, feeds)
        return _told("node", str(ANYWHERE / "node.mjs"), str(ROOT), *map(str, paths), str(rounds))


def in_browser(provider: str, model: onnx.ModelProto, feeds: Mapping[str, Array], rounds: int) -> Measured:
    """By a provider of onnxruntime-web, `wasm` or `webgpu`, in Chromium, on a page that this process serves."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise InvalidInputError("a browser requires Chromium: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder:
        _written(Path(folder), model, feeds)
        handler = functools.partial(_Files, run=Path(folder), directory=str(ROOT))
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as served:
            thread = threading.Thread(target=served.serve_forever)
            thread.start()
            try:
                origin = f"http://127.0.0.1:{served.server_port}"
                script = str(ANYWHERE / "browser.mjs")
                return _told("node", script, str(ROOT), chromium, origin, str(rounds), provider)
            finally:
                served.shutdown()
                thread.join()


class _Files(http.server.SimpleHTTPRequestHandler):
    """The checkout, and what is to be run under `/run/`."""

    def __init__(self, *args: Any, run: Path, **kwargs: Any) -> None:
        self.run = run
        super().__init__(*args, **kwargs)

    def translate_path(self, path: str) -> str:
        return str(self.run / path.removeprefix("/run/")) if path.startswith("/run/") else super().translate_path(path)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base's name)
        pass


def _written(folder: Path, model: onnx.ModelProto, feeds: Mapping[str, Array]) -> tuple[Path, Path]:
    model_path, feeds_path = folder / "model.onnx", folder / "feeds.npz"
    onnx.save(model, model_path)
    np.savez(feeds_path, **feeds)  # type: ignore[arg-type]  # names are whatever the model's inputs are called
    return model_path, feeds_path


def _told(*command: str) -> Measured:
    """Runs a program that prints what it measured."""
    if not (ROOT / "node_modules").is_dir() or shutil.which("node") is None:
        raise InvalidInputError("JavaScript requires Node and packages: npm ci --ignore-scripts")
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["it ended in silence"]
        # Node prints where it failed before the error, and its version last.
        raise InvalidInputError(next((line.strip() for line in lines if "Error: " in line), lines[-1]))
    found = json.loads(done.stdout.splitlines()[-1])
    outputs = {
        value["name"]: np.array([float(x) for x in value["values"]]).reshape(value["shape"])
        for value in found["outputs"]
    }
    return Measured(outputs, min(found["times"]))


def _fastest(run: Callable[[], object], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times) * 1e3
