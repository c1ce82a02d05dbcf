"""`python -m benchmarks web`: training steps of bundles in Node and a browser, next to TensorFlow.js and ExecuTorch."""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import importlib.metadata
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import lstm_lower as ll
from benchmarks.options import JsonOption, OutputOption, hand_out
from benchmarks.provider_runs import ANYWHERE, ROOT, last_line, served
from lstm_lower.errors import InvalidInputError

Array = np.ndarray[Any, Any]

BATCH, CLASSES = 32, 10
# Losses that are compared before anything is timed.
COMPARED = 4
TOLERANCE = 1e-4
TENSORFLOW_JS = "4.22.0"
_PACKAGES = ("@tensorflow/tfjs", "@tensorflow/tfjs-backend-wasm")


@dataclasses.dataclass(frozen=True)
class Model:
    """What is trained.

    Attributes:
        name: for the table.
        sizes: `kind`, `lstm` or `cnn`, and what its layers are made of.
    """

    name: str
    sizes: Mapping[str, Any]


MODELS = {
    "lstm_32": Model("LSTM, 32 units", {"kind": "lstm", "steps": 48, "inputs": 8, "units": 32}),
    "lstm_128": Model("LSTM, 128 units", {"kind": "lstm", "steps": 48, "inputs": 8, "units": 128}),
    "cnn": Model("CNN, 28x28", {"kind": "cnn", "side": 28, "units": 16}),
}


@dataclasses.dataclass(frozen=True)
class Contestant:
    """Who trains it, and where.

    Attributes:
        place: `Node`, `Chromium` or `Python`.
        name: for the table.
        program: for the scripts: `bundle` and onnxruntime's package, or `tensorflow` and a backend; of Python's a
            module.
        threads: that compute.
    """

    place: str
    name: str
    program: str
    threads: int


_NATIVE, _WEB = "lstm-lower, onnxruntime-node", "lstm-lower, onnxruntime-web"
_WASM, _JAVASCRIPT = "TensorFlow.js, wasm", "TensorFlow.js, cpu"
# TensorFlow.js has threads in browsers alone.
CONTESTANTS = (
    *(Contestant("Node", _NATIVE, "bundle onnxruntime-node", threads) for threads in (1, 2)),
    *(Contestant("Node", _WEB, "bundle onnxruntime-web", threads) for threads in (1, 2)),
    Contestant("Node", _WASM, "tensorflow wasm", 1),
    Contestant("Node", _JAVASCRIPT, "tensorflow cpu", 1),
    *(Contestant("Chromium", _WEB, "bundle onnxruntime-web", threads) for threads in (1, 2)),
    *(Contestant("Chromium", _WASM, "tensorflow wasm", threads) for threads in (1, 2)),
    Contestant("Chromium", _JAVASCRIPT, "tensorflow cpu", 1),
    Contestant("Python", "ExecuTorch", "benchmarks.executorch_step", 1),
)


def write(model: Model, folder: Path) -> None:
    """Writes a bundle, data, and the same weights in the order and the layout of TensorFlow.js' layers."""
    import torch

    module, weights = module_of(model.sizes)
    random = np.random.default_rng(0)
    shape = (1, 28, 28) if model.sizes["kind"] == "cnn" else (model.sizes["steps"], model.sizes["inputs"])
    x = random.standard_normal((BATCH, *shape), np.float32)
    labels = random.integers(0, CLASSES, BATCH)
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=0.01, eps=1e-7)
    ll.export_training(ll.from_torch(module, torch.from_numpy(x), "cross_entropy", optimizer), folder / "bundle")
    arrays = [np.ascontiguousarray(weight.detach().numpy()) for weight in weights]
    named: dict[str, Any] = {f"weight_{number}": array for number, array in enumerate(arrays)}
    np.savez(folder / "data.npz", x=x, labels=labels, **named)
    (folder / "model.json").write_text(json.dumps({**model.sizes, "classes": CLASSES}), encoding="utf-8")


def module_of(sizes: Mapping[str, Any]) -> tuple[Any, list[Any]]:
    """A module of PyTorch's, and its weights in the order and the layout of TensorFlow.js' layers."""
    import torch

    torch.manual_seed(0)
    return (_lstm if sizes["kind"] == "lstm" else _cnn)(sizes)


def _lstm(sizes: Mapping[str, Any]) -> tuple[Any, list[Any]]:
    """A classifier of sequences; PyTorch's second bias, which TensorFlow's layer lacks, is zero and stays so."""
    from torch import nn

    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(sizes["inputs"], sizes["units"], batch_first=True)
            self.head = nn.Linear(sizes["units"], CLASSES)

        def forward(self, x: Any) -> Any:
            return self.head(self.lstm(x)[0][:, -1])

    module = Classifier()
    kernel, recurrent, bias, second = module.lstm.parameters()
    nn.init.zeros_(second).requires_grad = False
    return module, [kernel.T, recurrent.T, bias, module.head.weight.T, module.head.bias]


def _cnn(sizes: Mapping[str, Any]) -> tuple[Any, list[Any]]:
    """A classifier of pictures."""
    import torch
    from torch import nn

    units = sizes["units"]

    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv2d(1, units, 3), nn.Conv2d(units, 2 * units, 3)
            self.head = nn.Linear(2 * units, CLASSES)

        def forward(self, x: Any) -> Any:
            pooled = nn.functional.max_pool2d(torch.relu(self.first(x)), 2)
            return self.head(torch.relu(self.second(pooled)).mean((2, 3)))

    module = Classifier()
    kernels = [[layer.weight.permute(2, 3, 1, 0), layer.bias] for layer in (module.first, module.second)]
    return module, [*kernels[0], *kernels[1], module.head.weight.T, module.head.bias]


def installed(packages: Path) -> Path:
    """A folder with TensorFlow.js, which is installed there if it is not."""
    if not all((packages / "node_modules" / name).is_dir() for name in _PACKAGES):
        packages.mkdir(parents=True, exist_ok=True)
        (packages / "package.json").write_text("{}\n", encoding="utf-8")
        exact = [f"{name}@{TENSORFLOW_JS}" for name in _PACKAGES]
        command = [
            "npm",
            "install",
            f"--prefix={packages}",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            "--save-exact",
            *exact,
        ]
        subprocess.run(command, cwd=packages, check=True)
    return packages


Run = Callable[[Contestant, float], Mapping[str, Any]]


@contextlib.contextmanager
def runs(folder: Path, packages: Path) -> Iterator[Run]:
    """What trains the model of a folder with a contestant, in a process of its own."""
    more = {"/run/": folder, "/tensorflow/": packages / "node_modules" / "@tensorflow"}
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with served(more) as origin:

        def run(contestant: Contestant, seconds: float) -> Mapping[str, Any]:
            words = [contestant.program, str(contestant.threads), str(COMPARED), str(seconds)]
            if contestant.place == "Python":
                printed: Mapping[str, Any] = last_line(sys.executable, "-m", contestant.program, str(folder), words[-1])
                return printed
            if contestant.place == "Node":
                return _said("train_node.mjs", str(packages), str(folder), *words)
            if chromium is None:
                raise InvalidInputError("a browser requires Chromium: apt-get install chromium")
            return _said("train_browser.mjs", str(ROOT), chromium, origin, *words)

        yield run


def _said(script: str, *words: str) -> Mapping[str, Any]:
    """What a script of `anywhere/` prints."""
    printed: Mapping[str, Any] = last_line("node", str(ANYWHERE / script), *words)
    return printed


def measured(model: Model, contestants: Sequence[Contestant], run: Run, rounds: int, seconds: float) -> list[Any]:
    """A row per contestant, which take turns; losses are compared with the first one's."""
    found: dict[Contestant, list[Mapping[str, Any]]] = {contestant: [] for contestant in contestants}
    refused: dict[Contestant, str] = {}
    for _ in range(rounds):
        for contestant in contestants:
            if contestant not in refused:
                try:
                    found[contestant].append(run(contestant, seconds))
                except InvalidInputError as error:
                    refused[contestant] = re.sub(r".*Error: | Did you .*", "", str(error)).replace("|", "/")
    return [
        {**dataclasses.asdict(contestant), "model": model.name, "why": refused[contestant]}
        if contestant in refused
        else {
            **dataclasses.asdict(contestant),
            "model": model.name,
            **_summary(found[contestant], found[contestants[0]]),
        }
        for contestant in contestants
    ]


def _summary(found: Sequence[Mapping[str, Any]], expected: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    times = [time for each in found for time in each["times"]]
    # Of one that has no such optimizer the first loss alone.
    wanted = np.array(expected[0]["losses"][: len(found[0]["losses"])])
    error = float(np.max(np.abs(np.subtract(found[0]["losses"], wanted)) / np.abs(wanted)))
    if not error <= TOLERANCE:
        raise SystemExit(f"the losses differ by {error:.1e}, more than {TOLERANCE}: {found[0]['losses']}")
    first = min(each["first"] for each in found)
    return {"error": error, "first_ms": first, "minimum_ms": min(times), "median_ms": statistics.median(times)}


def downloads(bundles: Mapping[str, Path], packages: Path) -> list[dict[str, Any]]:
    """What a page loads, in bytes, and compressed as a server sends it."""
    ours, theirs = ROOT / "node_modules" / "onnxruntime-web" / "dist", packages / "node_modules" / "@tensorflow"
    wasm = [ours / f"ort-wasm-simd-threaded.{ending}" for ending in ("wasm", "mjs")]
    backend = theirs / "tfjs-backend-wasm" / "dist"
    minimal = theirs / "tfjs" / "dist" / "tf.min.js"
    files = {
        "lstm-lower-train": [ROOT / "runtime" / "javascript" / "dist" / "index.js"],
        "onnxruntime-web": [*wasm, ours / "ort.wasm.min.mjs"],
        **{f"bundle: {name}": sorted(folder.iterdir()) for name, folder in bundles.items()},
        "TensorFlow.js": [minimal],
        "TensorFlow.js' wasm": [backend / "tf-backend-wasm.min.js", backend / "tfjs-backend-wasm-simd.wasm"],
    }
    contents = {name: [path.read_bytes() for path in paths] for name, paths in files.items()}
    return [
        {"what": name, "bytes": sum(map(len, parts)), "compressed": sum(len(gzip.compress(part)) for part in parts)}
        for name, parts in contents.items()
    ]


def versions(packages: Path) -> dict[str, str]:
    """Of what took part."""
    folders = {"onnxruntime-node": ROOT, "onnxruntime-web": ROOT, "@tensorflow/tfjs": packages}
    held = {name: folder / "node_modules" / name / "package.json" for name, folder in folders.items()}
    packed = {name: json.loads(path.read_text(encoding="utf-8"))["version"] for name, path in held.items()}
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        packed["executorch"] = importlib.metadata.version("executorch")
    return packed


def web(
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Turns of each contestant.")] = 2,
    seconds: Annotated[float, typer.Option("--seconds", min=0, help="Time for a turn, after the first steps.")] = 2.0,
    models: Annotated[
        list[str] | None, typer.Option("--model", help=f"Of {', '.join(MODELS)}; all without it.")
    ] = None,
    packages: Annotated[
        Path, typer.Option("--packages", help="A folder with TensorFlow.js, which is installed there if it is not.")
    ] = ROOT / "node_modules" / ".cache" / "tensorflow-js",
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train bundles in Node and in Chromium, next to TensorFlow.js from the same weights; losses are compared first."""
    if unknown := sorted(set(models or []) - set(MODELS)):
        raise typer.BadParameter(f"--model requires one of {', '.join(MODELS)}, got {unknown[0]}")
    packages = installed(packages.resolve())
    rows, folders = [], {}
    with tempfile.TemporaryDirectory() as work:
        for name in models or MODELS:
            folder = Path(work) / name
            folder.mkdir()
            write(MODELS[name], folder)
            folders[MODELS[name].name] = folder / "bundle"
            with runs(folder, packages) as run:
                found = measured(MODELS[name], CONTESTANTS, run, rounds, seconds)
            rows += found
            if not as_json:
                for row in found:
                    time = f"{row['minimum_ms']:.3g} ms" if "minimum_ms" in row else row["why"]
                    print(row["model"], row["place"], row["name"], f"{row['threads']} threads", time, sep=", ")
        sizes = downloads(folders, packages)
    hand_out({"versions": versions(packages), "rows": rows, "downloads": sizes}, output, as_json=as_json)
