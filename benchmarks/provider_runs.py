"""Where a model runs: onnxruntime's providers, OpenVINO's own runtime, Node and a browser."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import http.server
import json
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
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
        with served({"/run/": Path(folder)}) as origin:
            script = str(ANYWHERE / "browser.mjs")
            return _told("node", script, str(ROOT), chromium, origin, str(rounds), provider)


@contextlib.contextmanager
def served(folders: Mapping[str, Path]) -> Iterator[str]:
    """The origin of a server of the checkout, and of further folders under beginnings of paths."""
    handler = functools.partial(_Files, folders=folders, directory=str(ROOT))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class _Files(http.server.SimpleHTTPRequestHandler):
    """The checkout and further folders, for pages that are isolated from other origins, as threads require."""

    def __init__(self, *args: Any, folders: Mapping[str, Path], **kwargs: Any) -> None:
        self.folders = folders
        super().__init__(*args, **kwargs)

    def translate_path(self, path: str) -> str:
        for beginning, folder in self.folders.items():
            if path.startswith(beginning):
                return str(folder / path.removeprefix(beginning))
        return super().translate_path(path)

    def end_headers(self) -> None:
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base's name)
        pass


def _written(folder: Path, model: onnx.ModelProto, feeds: Mapping[str, Array]) -> tuple[Path, Path]:
    model_path, feeds_path = folder / "model.onnx", folder / "feeds.npz"
    onnx.save(model, model_path)
    np.savez(feeds_path, **feeds)  # type: ignore[arg-type]  # names are whatever the model's inputs are called
    return model_path, feeds_path


def _told(*command: str) -> Measured:
    """Runs a program that prints what `measure` returns."""
    found = last_line(*command)
    outputs = {
        value["name"]: np.array([float(x) for x in value["values"]]).reshape(value["shape"])
        for value in found["outputs"]
    }
    return Measured(outputs, min(found["times"]))


def last_line(*command: str) -> Any:
    """The JSON in the last line that a program prints.

    Raises:
        InvalidInputError: it failed; the message is its error.
    """
    if not (ROOT / "node_modules").is_dir() or shutil.which("node") is None:
        raise InvalidInputError("JavaScript requires Node and packages: npm ci --ignore-scripts")
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["it ended in silence"]
        # Node prints where it failed before the error, and its version last.
        raise InvalidInputError(next((line.strip() for line in lines if "Error: " in line), lines[-1]))
    return json.loads(done.stdout.splitlines()[-1])


def _fastest(run: Callable[[], object], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times) * 1e3
