"""Measures what the pages show: figures into `results/`, pictures into `docs/images/`, tables into the pages.

Contestants take turns, so that their ratios hold on a machine that is not quite idle; the figures themselves need one
that is. All of it takes about half an hour on two CPUs.

Usage: python benchmarks/run.py [--quick] [--seconds 5] [NAME ...]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import tables
import trainer_overhead

ROOT = Path(__file__).resolve().parent.parent
# What `lstm-lower bench` is called with. All shapes are its own unless said.
RACES = {
    "backward": "--threads 2",
    "backward_1": "--threads 1",
    "forward": "--op BlockLSTM --threads 2",
    "variants": "--shape 100,32,256,256 --variant plain --variant peephole --variant v2 --variant half --variant short "
    "--variant dynamic --variant vanishing --against floor --against tensorflow --threads 2",
    "memory": "--shape 300,64,512,512 --against tensorflow --schedule auto --schedule scan --memory --threads 2",
    "cudnn": "--op CudnnRNN --variant lstm --variant gru --variant lstm-2x2 --variant gru-2x2 --shape 50,32,128,128 "
    "--shape 100,32,256,256 --shape 100,1,256,256 --against floor --against pytorch --threads 2",
    "cudnn_alone": "--op CudnnRNNBackprop --variant lstm --variant gru --shape 100,1,256,256 --threads 2",
}
# Pictures are drawn relative to the bare products.
DRAWN = ("backward", "backward_1", "forward", "variants", "cudnn")
QUICK_SHAPE = "4,2,3,4"


def machine(packages: Sequence[str]) -> dict[str, Any]:
    """Where the figures come from."""
    processor = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
        processor = next((line.partition(": ")[2] for line in lines if line.startswith("model name")), processor)
    versions = {}
    for package in packages:
        name = next((name for name in (package, f"{package}-cpu") if _is_installed(name)), None)
        if name is not None:
            versions[package] = metadata.version(name).partition("+")[0]
    return {"processor": processor, "cpus": os.cpu_count(), "versions": versions}


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def bench(arguments: Sequence[str], picture: Path | None) -> Any:
    """Runs `lstm-lower bench` and returns its figures."""
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder) / "figures.json"
        command = [sys.executable, "-m", "lstm_lower", "bench", *arguments, "--output", str(figures)]
        if picture is not None:
            command += ["--plot", str(picture)]
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        if subprocess.run(command, check=False, env={**os.environ, "PYTHONPATH": path}).returncode:
            sys.exit(f"failed: lstm-lower bench {' '.join(arguments)}")
        return json.loads(figures.read_text(encoding="utf-8"))


def quicker(arguments: Sequence[str]) -> list[str]:
    """The same options with the smallest shape, for a moment, against one other contestant."""
    kept = []
    rival = "sequential" if "CudnnRNNBackprop" in arguments else "floor"
    for option, value in zip(arguments, [*arguments[1:], "--"], strict=True):
        if option.startswith("--") and option not in ("--shape", "--against", "--seconds"):
            kept += [option] if value.startswith("--") else [option, value]
    return [*kept, "--shape", QUICK_SHAPE, "--against", rival, "--seconds", "0.1"]


def measure(name: str, *, quick: bool, seconds: float) -> dict[str, Any]:
    """One set of figures, and where they come from; `seconds` for each contestant."""
    if name == "lowering":
        from lstm_lower.runtime.bench_compile import measure as lower_times

        found = lower_times().__dict__
        return {"command": "lstm-lower bench --lowering", "machine": machine(["onnx", "onnx-ir"]), "results": found}
    if name == "trainer":
        rounds, steps = (2, 2) if quick else (15, 40)
        results = [{"batch": b, "ratio": trainer_overhead.overhead(rounds, steps, b)} for b in trainer_overhead.BATCHES]
        where = machine(["onnxruntime"])
        return {"command": "python benchmarks/trainer_overhead.py", "machine": where, "results": results}
    arguments = [*RACES[name].split(), "--seconds", str(seconds)]
    picture = tables.PICTURES / f"bench_{name}.svg" if name in DRAWN else None
    results = bench(quicker(arguments) if quick else arguments, picture)
    where = machine(["onnxruntime", "tensorflow", "torch"])
    return {"command": f"lstm-lower bench {RACES[name]}", "machine": where, "results": results}


def main() -> None:
    """Measures what is asked for and writes the pages' tables."""
    known = [*RACES, "lowering", "trainer"]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(known)}; all of them without one")
    parser.add_argument(
        "--quick", action="store_true", help="smallest sizes, to see that it works; figures mean nothing"
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="time for each contestant of a race")
    options = parser.parse_args()
    if unknown := sorted(set(options.names) - set(known)):
        parser.error(f"a name requires to be one of {', '.join(known)}, got {unknown[0]}")
    load = os.getloadavg()[0]
    if load > 0.3 and not options.quick:
        print(f"the load average is {load:.2f}: other work on this machine distorts the figures", file=sys.stderr)
    tables.PICTURES.mkdir(parents=True, exist_ok=True)
    tables.RESULTS.mkdir(parents=True, exist_ok=True)
    for name in options.names or known:
        print(f"== {name}", flush=True)
        text = json.dumps(measure(name, quick=options.quick, seconds=options.seconds), indent=1)
        (tables.RESULTS / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    tables.write()


if __name__ == "__main__":
    main()
