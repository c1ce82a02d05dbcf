"""`python -m benchmarks pages`: figures into `results/MAKER/`, pictures into `docs/images/`, tables into the pages.

Contestants take turns, so that their ratios hold on a machine that is not quite idle; the figures themselves need one
that is. All of it takes about half an hour on two CPUs.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks import tables
from benchmarks.processes import environment
from lstm_lower.runtime.processor import processor

# What makes the figures of a name. All shapes of a race are its own unless said.
COMMANDS = {
    "backward": "race --threads 2",
    "backward_1": "race --threads 1",
    "forward": "race --op BlockLSTM --threads 2",
    "variants": "race --shape 100,32,256,256 --variant plain --variant peephole --variant v2 --variant half "
    "--variant short --variant dynamic --variant vanishing --against floor --against tensorflow --threads 2",
    "memory": "race --shape 300,64,512,512 --against tensorflow "
    "--schedule auto --schedule chunk:1 --schedule scan --memory --threads 2",
    "cudnn": "race --op CudnnRNN --variant lstm --variant gru --variant lstm-2x2 --variant gru-2x2 "
    "--shape 50,32,128,128 --shape 100,32,256,256 --shape 100,1,256,256 --against floor --against pytorch --threads 2",
    "cudnn_alone": "race --op CudnnRNNBackprop --variant lstm --variant gru --shape 100,1,256,256 --threads 2",
    "dynamic_rnn": "dynamic-rnn --threads 2",
    "torch": "torch --threads 2",
    "curves": "curves",
    "gradient": "gradient",
    "importing": "import",
    "torch_import": "import-torch",
    "lowering": "lowering",
    "trainer": "trainer",
    "device": "device --shape 50,32,128,128 --shape 100,32,256,256 --shape 100,64,512,512",
    "providers": "providers",
    "web": "web",
}
# What took part; the other names' contestants without one here.
PACKAGES = {
    "lowering": ("onnx", "onnx-ir"),
    "gradient": ("onnx", "onnx-ir"),
    "importing": ("onnx", "onnx-ir", "tensorflow", "tf2onnx"),
    "torch": ("onnxruntime", "onnxruntime-ep-openvino", "torch", "onnx-ad", "onnxsim"),
    "curves": ("onnxruntime", "onnxruntime-ep-openvino", "torch"),
    "torch_import": ("onnxruntime", "torch"),
    "trainer": ("onnxruntime",),
    "device": ("onnxruntime-gpu", "torch"),
    "providers": ("onnxruntime", "onnxruntime-ep-openvino", "openvino", "onnxruntime-ggml", "onnxruntime-ep-webgpu"),
    "web": ("torch",),
}
CONTESTANTS = ("onnxruntime", "onnxruntime-ep-openvino", "tensorflow", "torch")
QUICK_SHAPE = "4,2,3,4"
# What makes other commands quicker.
QUICKER = {
    "dynamic-rnn": ("--shape", QUICK_SHAPE, "--variant", "GRUCell-v1"),
    "trainer": ("--rounds", "2", "--steps", "2"),
    "gradient": ("--nodes", "40", "--runs", "1"),
    "import": ("--nodes", "200", "--runs", "1", "--no-tf2onnx"),
    "import-torch": ("--model", "lstm", "--runs", "1"),
    "torch": ("--shape", QUICK_SHAPE, "--against", "floor"),
    "curves": ("--shape", QUICK_SHAPE, "--steps", "2"),
    "device": ("--shape", QUICK_SHAPE, "--provider", "cpu", "--torch-device", "cpu"),
    "providers": ("--shape", QUICK_SHAPE, "--rounds", "1", "--provider", "cpu"),
    "web": ("--model", "lstm_32", "--rounds", "1", "--seconds", "0"),
}
# Commands in which contestants take turns for some seconds each.
RACES = ("race", "dynamic-rnn", "torch", "device")
# What needs a GPU, and what needs Node, Chromium and the network.
ON_A_GPU, IN_JAVASCRIPT = ("device",), ("web",)


def machine(packages: Sequence[str]) -> dict[str, Any]:
    """Where the figures come from."""
    versions = {}
    for package in packages:
        name = next((name for name in (package, f"{package}-cpu") if _is_installed(name)), None)
        if name is not None:
            versions[package] = metadata.version(name).partition("+")[0]
    return {"processor": processor(), "cpus": os.cpu_count(), **({"gpu": gpu()} if gpu() else {}), "versions": versions}


@functools.cache
def gpu() -> str | None:
    """The name of the first NVIDIA GPU of the machine, if there is one."""
    asked = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    if shutil.which(asked[0]) is None:
        return None
    found = subprocess.run(asked, check=False, capture_output=True, text=True).stdout.splitlines()
    return found[0].strip() if found else None


def _has_what_it_takes(name: str) -> bool:
    """Whether the machine has what some figures need."""
    if name in ON_A_GPU:
        return gpu() is not None
    return name not in IN_JAVASCRIPT or None not in (shutil.which("npm"), shutil.which("chromium"))


def maker(where: Mapping[str, Any]) -> str:
    """The folder of a machine's figures: those of another maker's processors, or GPUs, stay beside them."""
    found = re.match("[a-z]+", str(where.get("gpu") or where["processor"]).lower())
    return found[0] if found else "unknown"


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def quicker(words: Sequence[str]) -> list[str]:
    """The same command with the smallest sizes; a race for a moment, against one other contestant."""
    if words[0] != "race":
        return [*words, *QUICKER.get(words[0], ())]
    kept = []
    for option, value in zip(words, [*words[1:], "--"], strict=True):
        if option.startswith("--") and option not in ("--shape", "--against"):
            kept += [option] if value.startswith("--") else [option, value]
    rival = "sequential" if "CudnnRNNBackprop" in words else "floor"
    return ["race", *kept, "--shape", QUICK_SHAPE, "--against", rival]


def measure(name: str, *, quick: bool, seconds: float) -> dict[str, Any]:
    """One set of figures, and where they come from; `seconds` for each contestant of a race."""
    words = COMMANDS[name].split()
    if quick:
        words, seconds = quicker(words), 0.1
    if words[0] in RACES:
        words += ["--seconds", str(seconds)]
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder) / "figures.json"
        command = [sys.executable, "-m", "benchmarks", *words, "--output", str(figures)]
        if subprocess.run(command, check=False, env=environment()).returncode:
            sys.exit(f"failed: python -m benchmarks {' '.join(words)}")
        results = json.loads(figures.read_text(encoding="utf-8"))
    where = machine(PACKAGES.get(name, CONTESTANTS))
    return {"command": f"python -m benchmarks {COMMANDS[name]}", "machine": where, "results": results}


def pages(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help=f"{', '.join(COMMANDS)}; all that the machine has without one.",
            show_default=False,
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Smallest sizes, to see that it works; figures mean nothing.")
    ] = False,
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, help="Time for each contestant of a race.")] = 5.0,
) -> None:
    """Measure what the pages show, draw it, and write the pages' tables."""
    if unknown := sorted(set(names or []) - set(COMMANDS)):
        raise typer.BadParameter(f"a name must be one of {', '.join(COMMANDS)}, got {unknown[0]}")
    load = os.getloadavg()[0]
    if load > 0.3 and not quick:
        print(f"the load average is {load:.2f}: other work on this machine distorts the figures", file=sys.stderr)
    for name in names or [name for name in COMMANDS if _has_what_it_takes(name)]:
        print(f"== {name}", flush=True)
        data = measure(name, quick=quick, seconds=seconds)
        folder = tables.RESULTS / maker(data["machine"])
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    tables.write()
