"""Recurrent graphs of public repositories, each next to TensorFlow: `lstm-lower check --against tensorflow` on all.

    python -m tests.public_graphs           prints the table, tests/data/public_graphs.json
    python -m tests.public_graphs CLONES    compares graphs that do not agree yet, or are not in it, and adds them

CLONES holds git clones, bare ones too, in folders `OWNER+NAME`. The graphs themselves are not in this repository: the
table has where each one is, and what came of it. Checkpoints of one training hold the same model, which counts once.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from lstm_lower.checkpoints import messages

TABLE = Path(__file__).parent / "data" / "public_graphs.json"

# Seconds for one comparison, bytes of a file, and graphs of one repository.
LIMIT, LARGEST, MOST = 600, 60_000_000, 4
_RECURRENT = re.compile(rb"rnn|RNN|lstm|LSTM|gru_cell|GRU|recurrent")

_VARIABLES = ("Variable", "VariableV2", "VarHandleOp")

# What stands in a clone for a file that is kept elsewhere.
_POINTER = b"version https://git-lfs"


def graphs(clone: Path, folder: Path) -> Iterator[tuple[dict[str, str], Path]]:
    """The recurrent graphs of a clone: what a row says of the file, and where it lies now, its checkpoint beside it."""

    def git(*words: str) -> bytes:
        place = clone / ".git" if (clone / ".git").exists() else clone
        return subprocess.run(["git", f"--git-dir={place}", *words], capture_output=True, check=True).stdout

    commit = git("rev-parse", "HEAD").decode().strip()
    listed = [
        line.split("\t", 1) for line in git("ls-tree", "-r", "-l", "HEAD").decode("utf-8", "replace").splitlines()
    ]
    sizes = {path: int(about.split()[3]) for about, path in listed if about.split()[3].isdigit()}
    blobs = {path: about.split()[2] for about, path in listed}
    seen: set[int] = set()
    for path in [path for path in sizes if path.endswith((".meta", ".pb")) and sizes[path] < LARGEST]:
        content = git("show", f"HEAD:{path}")
        if len(seen) == MOST or not _RECURRENT.search(content):
            continue
        model = _model(path, content)
        if model is None or model in seen:
            continue
        seen.add(model)
        beside = (
            f"{path.removesuffix('.meta')}."
            if path.endswith(".meta")
            else f"{path.removesuffix('saved_model.pb')}variables/"
        )
        values = [name for name in sizes if name.startswith(beside) and name != path]
        if any(sizes[name] > LARGEST or git("show", f"HEAD:{name}").startswith(_POINTER) for name in values):
            values = []
        for name in [path, *values]:
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(git("show", f"HEAD:{name}"))
        found = folder / path
        row = {"repository": clone.name.replace("+", "/"), "commit": commit, "path": path, "blob": blobs[path]}
        yield row, found.parent if found.name == "saved_model.pb" else found


def _model(path: str, content: bytes) -> int | None:
    """A number that graphs of one model share, whose weights have the same sizes; `None` for what is no graph."""
    try:
        if path.endswith(".meta"):
            graph = messages.MetaGraphDef.FromString(content).graph_def
        elif path.endswith("saved_model.pb"):
            graph = messages.SavedModel.FromString(content).meta_graphs[0].graph_def
        else:
            graph = messages.GraphDef.FromString(content)
    except (DecodeError, IndexError):
        return None
    weights = [node.attr["shape"].shape for node in graph.node if node.op in _VARIABLES]
    weights = weights or [node.attr["value"].tensor.tensor_shape for node in graph.node if node.op == "Const"]
    sizes = sorted([size.size for size in shape.dim] for shape in weights if len(shape.dim) > 1)
    return hash(str(sizes)) if graph.node else None


def compared(path: Path) -> dict[str, Any]:
    """What comes of one graph, in a process of its own."""
    command = [sys.executable, "-m", "tests.public_comparison", str(path)]
    try:
        done = subprocess.run(command, capture_output=True, check=False, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return {"refused": "time limit"}
    row: dict[str, Any] = json.loads(done.stdout) if done.stdout else {"refused": f"exit code {done.returncode}"}
    return row


def show(repository: str, path: str, row: dict[str, Any]) -> None:
    """Prints a row."""
    if "agrees" in row:
        text = f"{'agrees' if row['agrees'] else 'differs'} {row['worst']} ({row['tensorflows_own']}) {row['verdicts']}"
    else:
        text = row["refused"]
    sys.stdout.write(f"{repository} {path}: {text}\n")
    sys.stdout.flush()


def main(clones: Path | None) -> None:
    """Compares what is not in the table yet, and prints all."""
    rows = json.loads(TABLE.read_text()) if TABLE.exists() else []
    for row in rows:
        show(row["repository"], row["path"], row)
    for clone in sorted(clones.iterdir()) if clones is not None else ():
        with tempfile.TemporaryDirectory() as folder:
            for row, file in graphs(clone, Path(folder)):
                same = [old for old in rows if _same(old, row)]
                if any(old.get("agrees") and old["tensorflows_own"] is not None for old in same):
                    continue
                row |= compared(file)
                show(row["repository"], row["path"], row)
                rows = [old for old in rows if old not in same] + [row]
                TABLE.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    sys.stdout.write(f"{sum(bool(row.get('agrees')) for row in rows)} of {len(rows)} agree\n")


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two rows are of the same file, which forks and copies have, too."""
    names = ("repository", "path")
    return all(one[key] == other[key] for key in names) or one.get("blob") == other["blob"]


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
