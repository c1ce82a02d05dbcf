"""One graph of a public repository next to TensorFlow, as `lstm-lower check --against tensorflow` compares it.

python -m tests.public_comparison GRAPH     prints a row of `tests/data/public_graphs.json`
"""

from __future__ import annotations

import collections
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from lstm_lower.cli.check_command import compare_file
from lstm_lower.cli.sources import ImportOptions
from lstm_lower.errors import LstmLowerError, LstmLowerWarning
from lstm_lower.tensorflow.against_tensorflow import Comparison, Lowering
from lstm_lower.tensorflow.anatomy import anatomy
from lstm_lower.tensorflow.files.graph_files import read_file
from lstm_lower.tensorflow.original import TensorFlowRefusedError


def compared(path: Path) -> dict[str, Any]:
    """What comes of one graph."""
    row: dict[str, Any] = {}
    try:
        found = anatomy(read_file(path, None))
        row |= {"tensorflow": found.tensorflow, "trains": bool(found.train_ops)}
        comparison = compare_file(
            path, ImportOptions(), {}, {}, seed=0, steps=3, tolerances=(None, None), lowering=Lowering()
        )
    except LstmLowerError as error:
        return row | {"refused": _reason(error, path)}
    return row | _figures(comparison)


def _figures(found: Comparison) -> dict[str, Any]:
    worst = {}
    for key in ("relative", "own"):
        numbers = [number for number in (getattr(row, key) for row in found.rows) if number is not None]
        worst[key] = float(f"{max(numbers):.2g}") if numbers and np.isfinite(max(numbers)) else None
    return {
        "agrees": found.passed,
        "worst": worst["relative"],
        "tensorflows_own": worst["own"],
        "verdicts": dict(collections.Counter(row.verdict for row in found.rows)),
    }


def _reason(error: LstmLowerError, path: Path) -> str:
    if isinstance(error, TensorFlowRefusedError):
        return f"TensorFlow: {error.reason}"
    text = str(error).replace(f"{path}: ", "").replace(f"{path}", path.name)
    return text.strip().split("\n")[0][:240]


if __name__ == "__main__":
    warnings.simplefilter("ignore", LstmLowerWarning)
    json.dump(compared(Path(sys.argv[1])), sys.stdout)
