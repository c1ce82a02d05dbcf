"""Recurrent graphs of public repositories, each next to TensorFlow: `lstm-lower check --against tensorflow` on all.

    python -m tests.public_graphs           prints the table, tests/data/public_graphs.json
    python -m tests.public_graphs CLONES    compares graphs that it does not have yet, and adds them

CLONES holds git clones, bare ones too, in folders `OWNER+NAME`. The graphs themselves are not in this repository: the
table has where each one is, and what came of it.
"""

from __future__ import annotations

import collections
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

TABLE = Path(__file__).parent / "data" / "public_graphs.json"

# Seconds for one comparison, bytes of a file, and graphs of one repository: checkpoints of many epochs hold the same.
LIMIT, LARGEST, MOST = 150, 60_000_000, 4
_RECURRENT = re.compile(rb"rnn|RNN|lstm|LSTM|gru_cell|GRU|recurrent|TensorArrayV3|/while")

# What is fed to scalars, by their names: no dropout, whichever way it is asked for, and small steps.
_RATE, _KEEP = re.compile(r"learn|(^|[/_])lr"), re.compile(r"keep|drop|prob|rate")
_LENGTH = re.compile(r"len|size|steps|max")
_SIZE = 4

# What TensorFlow says of a size that the graph fixes elsewhere.
_FIXED = re.compile(
    r"shape\[0\] = \[(\d+),1\]|\[(\d+),\d+\] vs\. shape|\[(\d+),\d+\] vs\. \[4|shape \[4,\d+\] and \[(\d+),"
    r"|Incompatible shapes: \[(\d+)[,\]]"
)


def graphs(clone: Path, folder: Path) -> Iterator[tuple[str, str, Path]]:
    """The recurrent graphs of a clone, with their checkpoints: commit, path, and where it was extracted."""

    def git(*words: str) -> bytes:
        place = clone / ".git" if (clone / ".git").exists() else clone
        return subprocess.run(["git", f"--git-dir={place}", *words], capture_output=True, check=True).stdout

    commit = git("rev-parse", "HEAD").decode().strip()
    listed = [
        line.split("\t", 1) for line in git("ls-tree", "-r", "-l", "HEAD").decode("utf-8", "replace").splitlines()
    ]
    sizes = {path: int(about.split()[3]) for about, path in listed if about.split()[3].isdigit()}
    seen: set[int] = set()
    for path in [path for path in sizes if path.endswith((".meta", ".pb")) and sizes[path] < LARGEST]:
        content = git("show", f"HEAD:{path}")
        if len(seen) == MOST or len(content) in seen or not _RECURRENT.search(content):
            continue
        seen.add(len(content))
        beside = (
            f"{path.removesuffix('.meta')}."
            if path.endswith(".meta")
            else f"{path.removesuffix('saved_model.pb')}variables/"
        )
        values = [name for name in sizes if name.startswith(beside) and name != path]
        if any(sizes[name] > LARGEST for name in values):
            values = []
        for name in [path, *values]:
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(git("show", f"HEAD:{name}"))
        found = folder / path
        yield commit, path, found.parent if found.name == "saved_model.pb" else found


def _run(*words: str) -> tuple[dict[str, Any], str]:
    """What a command prints as JSON, in a process of its own, and what else it says."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "lstm_lower", *words, "--json"],
            capture_output=True,
            check=False,
            text=True,
            timeout=LIMIT,
        )
    except subprocess.TimeoutExpired:
        return {}, "time limit"
    try:
        return json.loads(done.stdout), done.stderr
    except ValueError:
        return {}, f"exit code {done.returncode}"


def _feeds(inputs: dict[str, str], keep: float, batch: int) -> dict[str, np.ndarray[Any, Any]]:
    """Guesses for what random numbers do not fit: rates, switches and lengths."""
    found = {}
    for name, text in inputs.items():
        dtype, _, sizes = text.removesuffix("]").partition("[")
        shape = [batch if size == "?" else int(size) for size in sizes.split(", ") if size] if "[" in text else None
        lower = name.lower()
        if dtype.startswith("float") and shape == []:
            found[name] = np.asarray(1e-3 if _RATE.search(lower) else keep if _KEEP.search(lower) else 0.5, dtype)
        elif dtype == "bool" and shape == []:
            found[name] = np.asarray("train" in lower)
        elif dtype.startswith("int") and shape is not None and len(shape) < 2 and _LENGTH.search(lower):
            found[name] = np.full(shape, _SIZE, dtype)
    return found


def compared(path: Path) -> dict[str, Any]:
    """What comes of one graph."""
    inspected, said = _run("inspect", str(path))
    if "inputs" not in inspected:
        return {"refused": _reason(inspected, said, path)}
    row: dict[str, Any] = {"tensorflow": inspected["tensorflow"], "trains": bool(inspected["train_ops"])}
    inputs, batch, shapes = inspected["inputs"], _SIZE, list[str]()
    for keep in (1.0, 1.0, 0.0):
        feeds = _feeds(inputs, keep, batch)
        with tempfile.TemporaryDirectory() as folder:
            np.savez(f"{folder}/feeds.npz", **feeds)
            given = ["-i", f"{folder}/feeds.npz"] if feeds else []
            found, said = _run("check", str(path), "--against", "tensorflow", *given, *shapes)
        fixed = _FIXED.search(json.dumps(found))
        if "rows" in found:
            row.pop("refused", None)
            row |= _figures(found)
            if found["passed"]:
                break
        else:
            row["refused"] = _reason(found, said, path)
            if fixed is None or batch != _SIZE:
                break
            batch = int(next(group for group in fixed.groups() if group))
            for name, text in inputs.items():
                if "[?" in text:
                    sizes = [str(batch), *text.partition("[")[2].rstrip("]").split(", ")[1:]]
                    shapes += ["--shapes", f"{name}={','.join(str(_SIZE) if size == '?' else size for size in sizes)}"]
    return row


def _figures(found: dict[str, Any]) -> dict[str, Any]:
    numbers = {key: [row[key] for row in found["rows"] if isinstance(row[key], float)] for key in ("relative", "own")}
    worst = {key: float(f"{max(values):.2g}") if values else None for key, values in numbers.items()}
    verdicts = dict(collections.Counter(row["verdict"] for row in found["rows"]))
    return {
        "agrees": found["passed"],
        "worst": worst["relative"],
        "tensorflows_own": worst["own"],
        "verdicts": verdicts,
    }


def _reason(found: dict[str, Any], said: str, path: Path) -> str:
    text = found.get("error", {}).get("message") or said
    return str(text).strip().replace(f"{path}", path.name).split("\n")[0][-240:]


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
    known = {(row["repository"], row["path"]) for row in rows}
    for row in rows:
        show(row["repository"], row["path"], row)
    for clone in sorted(clones.iterdir()) if clones is not None else ():
        repository = clone.name.replace("+", "/")
        with tempfile.TemporaryDirectory() as folder:
            for commit, path, file in graphs(clone, Path(folder)):
                if (repository, path) not in known:
                    row = {"repository": repository, "commit": commit, "path": path, **compared(file)}
                    show(repository, path, row)
                    rows.append(row)
                    TABLE.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    sys.stdout.write(f"{sum(bool(row.get('agrees')) for row in rows)} of {len(rows)} agree\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
