"""Tries every command of an installed `lstm-lower`: exit codes, what is said, and which files are there afterwards.

Usage: python .ci/try_commands.py EXTRA GRAPHS TENSORFLOW_GRAPH

Runs in an empty folder, with the Python that `lstm-lower` is installed for. EXTRA says what is installed: `none`,
`train`, `files` (of TensorFlow's), `tensorflow`, or `plugin`, which is the package of examples/plugin_op. GRAPHS is the
folder of the examples' models, TENSORFLOW_GRAPH a GraphDef.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np


class Try(NamedTuple):
    """A command: its words, what it must say, its exit code, and the files that it leaves."""

    words: str
    says: str = ""
    code: int = 0
    leaves: tuple[str, ...] = ()


def failing(words: str, says: str, code: int = 1) -> Try:
    """A command that fails and leaves nothing."""
    return Try(words, says, code)


TRAIN = "train model.onnx --data data.npz --initial weights.npz --learning-rate 0.1 --batch-size 2 -o run"
QUICK = "--seconds 0.01 --rounds 1 --threads 1"
# Help and usage ask for no extra, so that they are tried where none is installed. What commands refuse in whatever
# environment is tested in tests/cli.
HELP = [
    Try("-h", "Usage: lstm-lower"),
    Try("--version", "."),
    Try("train -h", "Usage: lstm-lower train"),
    failing("", "Usage", 2),
    failing("race", "No such command", 2),
    failing("lower", "Missing argument", 2),
    failing("lower model.onnx --fast", "No such option", 2),
]
WITHOUT_EXTRAS = [
    Try("ops", "BlockLSTMGrad"),
    Try("ops BlockLSTMGrad --json", '"seq_len_max"'),
    failing("ops BlockLSTMGard", "did you mean BlockLSTMGrad"),
    Try("inspect model.onnx", "BlockLSTMGrad"),
    Try("inspect model.onnx --json", '"lowerable": true'),
    Try("lower model.onnx -o low.onnx --check --verify-each", "wrote low.onnx", leaves=("low.onnx",)),
    Try("lower model.onnx --opset 20 --schedule unroll --json", '"opset": 20', leaves=("model.lowered.onnx",)),
    Try("lower model.onnx -o other.onnx --external-data", leaves=("other.onnx",)),  # it holds no weights
    Try("optimize low.onnx -o fast.onnx --explain", "wrote fast.onnx", leaves=("fast.onnx",)),
    Try("gradient low.onnx --of loss:0 --wrt w:0,b:0 -o grad.onnx", "grad/w:0", leaves=("grad.onnx",)),
    Try("gradient low.onnx --of loss:0 --wrt emb:0 --json", '"grad/emb:0"', leaves=("low.gradient.onnx",)),
    Try(
        "export model.onnx -o bundle --initial weights.npz --learning-rate 0.1 --files init,train,eval",
        "wrote bundle",
        leaves=tuple(f"bundle/{name}" for name in ("init.onnx", "train.onnx", "eval.onnx", "training.json")),
    ),
    Try(
        "export model.onnx -o apart --initial weights.npz --learning-rate 0.1 --files init --external-data",
        leaves=tuple(f"apart/{name}" for name in ("init.onnx", "init.onnx.HASH.data", "training.json")),
    ),
    Try(
        "export model.onnx -o site --initial weights.npz --learning-rate 0.1 --files init,train --page",
        "wrote site",
        leaves=(
            *(f"site/{name}" for name in ("index.html", "index.js", "page.css", "page.js", "worker.js")),
            *(f"site/bundle/{name}" for name in ("init.onnx", "train.onnx", "training.json")),
        ),
    ),
    failing("gradient low.onnx --of loss -o x.onnx", "of (--of) requires one of the model's outputs, loss:0"),
    failing("gradient low.onnx --of grad_b:0 --wrt w:0 -o x.onnx", "--seeds"),
    Try("report model.onnx", "check passed", leaves=("model.report.html",)),
    Try("report low.onnx -o page.html --no-run --json", '"passed": null', leaves=("page.html",)),
    Try(
        "report model.onnx -o data.html --dim batch=2 --node-data data",
        leaves=("data.html", "data/times.json", "data/errors.json", "data/model.lowered.onnx"),
    ),
    failing("report model.onnx -o x.html --no-run --dim batch=2", "--no-run requires none of"),
    Try("report low.onnx -o again.html --optimize", "check passed", leaves=("again.html",)),
    Try("diff model.onnx model.onnx", "the models are the same"),
    failing("diff model.onnx low.onnx", "BlockLSTMGrad"),
    failing("diff model.onnx low.onnx --json", '"equal": false'),
    failing("diff model.onnx missing.onnx", "missing.onnx", 2),
    Try("check model.onnx --lowered low.onnx", "passed"),
    Try("check model.onnx -i data.npz --json", '"passed": true'),
    Try("run low.onnx --dim batch=4 --seed 1 -o out.npz", "loss:0", leaves=("out.npz",)),
    Try("run model.onnx -i data.npz --repeat 2 --json", '"seconds"'),
    Try(
        f"bench model.onnx {QUICK} --schedule scan --schedule unroll --trace trace.json",
        "optimised unroll",
        leaves=("trace.json",),
    ),
    Try(
        f"bench model.onnx -i data.npz {QUICK} --form original --form optimised --schedule chunk:4 --json",
        '"passed": true',
    ),
    failing("bench model.onnx --form fast", "--form requires one of original, lowered, optimised"),
    failing(f"bench model.onnx {QUICK} --form original", "a contestant that runs"),
    failing(
        "bench model.onnx --plot times.png", "--plot requires matplotlib, got an installation without it: pip install"
    ),
    failing("bench graph.pb", "requires tensorboard, got an installation without it: pip install"),
    Try("ops LeakyIntegrator --plugin mine.py", "decay"),
    Try("lower leaky.onnx -o leaky_low.onnx --plugin mine.py", "LeakyIntegratorGrad", leaves=("leaky_low.onnx",)),
    failing("lower leaky.onnx -o x.onnx", "name it with --plugin"),
    failing("ops --plugin nothing_of_this_name", "plugin 'nothing_of_this_name' requires"),
    failing("lower missing.onnx -o x.onnx", "missing.onnx"),
    Try("lower model.onnx -o captured.onnx --target cuda-graph --dim batch=4", "0 loops", leaves=("captured.onnx",)),
    failing("lower model.onnx -o x.onnx --target cuda-graph", "no open sizes"),
    failing("lower model.onnx -o x.onnx --target abacus", "target requires one of"),
    failing("run model.onnx --dim batch", "--dim requires NAME=SIZE"),
    failing("run model.onnx -p ggml -o x.npz", "requires onnxruntime_ggml, got an installation without"),
    failing("check model.onnx --precision bfloat16", "precision 'bfloat16' requires a provider that computes in it"),
    failing("lower graph.pb -o x.onnx", "requires tensorboard, got an installation without it: pip install"),
    failing("inspect graph.pb", "requires tensorboard, got an installation without it: pip install"),
    failing(TRAIN, "train requires safetensors, got an installation without it: pip install"),
]
RUN = ("best.safetensors", "checkpoint.safetensors", "checkpoint.safetensors.previous", "epochs.jsonl", "metrics.jsonl")
WITH_TRAIN = [
    Try(
        f"{TRAIN} --epochs 2",
        "step 4 of 4",
        leaves=tuple(f"run/{name}" for name in (*RUN, ".lock", "loss.png", "loss.svg")),
    ),
    Try(f"{TRAIN} --epochs 3", "resumed at step 4 of 6"),
    Try(f"bench model.onnx {QUICK} --form optimised --schedule scan --plot times.png", "ms", leaves=("times.png",)),
    failing("bench model.onnx --plot times.pdf", "--plot requires a file that ends in .png or .svg"),
    failing(f"{TRAIN}2 --optimizer fast", "optimizer"),
    failing("train model.onnx --data data.npz -o run2", "requires an initial value"),
    failing("train model.onnx --data missing.npz -o run2", "missing.npz"),
]
WITH_FILES = [
    Try("inspect graph.pb", "BlockLSTMGrad"),
    Try(f"bench graph.pb {QUICK} --form original --form optimised --schedule scan", "which onnxruntime does not read"),
    Try("lower graph.pb -o imported.onnx", "wrote imported.onnx", leaves=("imported.onnx",)),
    Try("lower graph.pb -o pair.onnx --state w:0=new_w:0 --shapes ids:0=7,batch", "wrote", leaves=("pair.onnx",)),
    failing("lower graph.pb --outputs nothing:0 -o x.onnx", "nothing"),
    failing("lower broken.pb -o x.onnx", "broken.pb"),
]
WITH_PLUGIN = [
    Try("ops", "2 ops, as nodes of domain com.example, from leaky_integrator"),
    Try("lower leaky.onnx -o low.onnx --check", "wrote low.onnx", leaves=("low.onnx",)),
    Try("check leaky.onnx --finite-differences", "LeakyIntegratorGrad"),
    failing("ops --plugin mine.py", "requires one definition, got one of leaky_integrator and one of"),
]
GROUPS = {
    "none": HELP + WITHOUT_EXTRAS,
    "train": WITH_TRAIN,
    "files": WITH_FILES,
    "tensorflow": WITH_FILES,
    "plugin": WITH_PLUGIN,
}


def prepare(graphs: Path, tensorflow_graph: Path) -> None:
    """Copies and divides what the commands read."""
    shutil.copy(graphs / "char_lstm_train.onnx", "model.onnx")
    shutil.copy(tensorflow_graph, "graph.pb")
    shutil.copy(graphs.parent / "plugin_op" / "leaky.onnx", "leaky.onnx")
    shutil.copy(graphs.parent / "plugin_op" / "leaky_integrator.py", "mine.py")
    Path("broken.pb").write_bytes(tensorflow_graph.read_bytes()[:1000])
    with np.load(graphs / "char_lstm_train.npz") as recorded:
        np.savez("data.npz", **recorded)
        fed = ("in:ids:0", "in:labels:0", "in:learning_rate:0")
        np.savez("weights.npz", **{n: recorded[n] for n in recorded.files if n[:3] == "in:" and n not in fed})


def files() -> dict[str, int]:
    """Every file below the folder, and when it was written."""
    return {str(path): path.stat().st_mtime_ns for path in Path().rglob("*") if path.is_file()}


def attempt(trial: Try) -> str | None:
    """Runs a command; what is wrong with it."""
    before = files()
    command = [sys.executable, "-m", "lstm_lower", *trial.words.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    text, after = done.stdout + done.stderr, files()
    if done.returncode != trial.code:
        return f"exit code {done.returncode}, not {trial.code}\n{text}"
    if trial.says not in text or "Traceback" in text:
        return f"does not say {trial.says!r}\n{text}"
    if trial.code and any(after.get(path) != written for path, written in before.items()):
        return "changes a file although it fails"
    left = {re.sub(r"\.[0-9a-f]{16}\.data$", ".HASH.data", path) for path in set(after) - set(before)}
    if left != set(trial.leaves):
        return f"leaves {sorted(left)}, not {sorted(trial.leaves)}"
    return None


def main() -> None:
    """Tries the commands of a group; fails with what went wrong."""
    group, graphs, tensorflow_graph = sys.argv[1:]
    prepare(Path(graphs), Path(tensorflow_graph))
    trials = GROUPS[group]
    wrong = [f"lstm-lower {trial.words}: {fault}" for trial in trials if (fault := attempt(trial))]
    print(*wrong, f"{len(trials) - len(wrong)} of {len(trials)} commands do as they should", sep="\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
