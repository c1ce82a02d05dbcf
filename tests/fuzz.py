"""Random programs, gradients, training steps, damage, onnx's node tests, PyTorch modules, TensorFlow programs.

`reference` puts the float64 reference of `lstm-lower check` to the proof: next to onnxruntime on onnx's node tests and
on forms of every operator, opset by opset. It says how many agree, and what onnxruntime is known to compute otherwise.
`rows` says which rows of `passes/targets/cpu.py` the installed onnxruntime still needs.

    python -m tests.fuzz programs --seed 0 --seconds 600 --jobs 2 --out failures
    python -m tests.fuzz gradients --seed 0 --seconds 600
    python -m tests.fuzz training --seed 0 --seconds 600
    python -m tests.fuzz damage --seed 0 --seconds 600
    python -m tests.fuzz files --seed 0 --seconds 600
    python -m tests.fuzz nodes
    python -m tests.fuzz reference --seed 0 --seconds 600
    python -m tests.fuzz rows
    python -m tests.fuzz torch --seed 0 --seconds 600
    python -m tests.fuzz tensorflow --seed 0 --seconds 600

Prints what failed, made small, and exits with 1 if anything did. A seed always gives the same program. The test suite
runs a small part of each.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnxruntime as ort

from tests.support.fuzz import evaluators, rows
from tests.support.fuzz.campaign import Campaign, Options
from tests.support.fuzz.node_tests import names


def main() -> int:
    """Runs a campaign; 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = ["programs", "gradients", "training", "damage", "files", "nodes", "reference", "rows"]
    kinds += ["torch", "tensorflow"]
    parser.add_argument("kind", choices=kinds)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, help="so many seeds at most")
    parser.add_argument("--seconds", type=float, default=60.0, help="time limit (nodes: none unless given)")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path, help="folder for failing models")
    parser.add_argument("--match", default="", help="nodes, reference, rows: only names that hold this")
    given = parser.parse_args()
    if given.kind == "rows":
        return _rows(given.match)
    items: Iterator[Any] = itertools.count(given.seed)
    if given.kind == "nodes":
        items = iter([name for name in names() if given.match in name])
        if "--seconds" not in " ".join(sys.argv):
            given.seconds = float("inf")
    if given.kind == "reference":
        items = evaluators.items(given.seed, given.match)
    if given.count is not None:
        items = itertools.islice(items, given.count)
    # Most of what a damaged model does beyond this is a loop of 2**40 steps, in onnxruntime.
    limit = {"damage": 25.0, "files": 25.0, "torch": 240.0, "tensorflow": 300.0}.get(given.kind, 90.0)
    return 1 if Campaign(Options(given.kind, given.seconds, given.jobs, given.out, limit), items).run() else 0


def _rows(match: str) -> int:
    """Prints which rows are needed; 1 if one serves this version in vain, or one that is needed does not."""
    wrong = 0
    for line, is_right in rows.lines(match):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
        wrong += not is_right
    sys.stdout.write(f"onnxruntime {ort.__version__}: {wrong} of the rows' ranges are wrong\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
