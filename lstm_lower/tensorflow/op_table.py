"""Writes `docs/tensorflow-ops.md`: `python -m lstm_lower.tensorflow.op_table docs/tensorflow-ops.md`."""

from __future__ import annotations

import sys
from pathlib import Path

from lstm_lower.op_reference import FAMILIES
from lstm_lower.opdef import DOMAIN, our_definitions
from lstm_lower.tensorflow import (
    model,  # noqa: F401 (its imports register what is done with all ops)
    translator,
)
from lstm_lower.tensorflow.regions import SILENT
from lstm_lower.tensorflow.structure import BRANCHES, CALLS, CHOICES, FRAMES, LOOPS, RAISED

# What is raised before anything is translated.
_RAISED = {
    "Loops of TensorFlow 2": LOOPS,
    "Loops of TensorFlow 1": FRAMES,
    "Branches": (*BRANCHES, *CHOICES),
    "Calls of functions, which are inlined": CALLS,
    "Ignored, with everything that only they read": SILENT,
}

_HEADER = """# TensorFlow's ops

Every op that `from_tensorflow` takes: {count} of them. Written by
`python -m lstm_lower.tensorflow.op_table docs/tensorflow-ops.md`; do not edit.
[TensorFlow graphs](tensorflow.md) says how control flow, lists and variables are imported.

An op with a definition is described in [the op reference](ops.md): its formula, dtypes and attributes. Recurrent ops
and cuDNN's stay nodes until `lower`; the others become ONNX's operators at once.

| | ops |
|---|---|
"""


def table() -> str:
    """The text of `docs/tensorflow-ops.md`."""
    families: dict[str, set[str]] = {}
    for op in our_definitions():
        if op.domain == DOMAIN:
            families.setdefault(op.family, set()).add(op.op_type)
    order = {family: place for place, family in enumerate(FAMILIES)}
    rows: dict[str, set[str]] = {}
    for family in sorted(families, key=lambda name: (order.get(name, len(order)), name)):
        rows.setdefault(FAMILIES.get(family, family.capitalize()), set()).update(families[family])
    defined = set().union(*rows.values())
    for title, ops in _RAISED.items():
        rows.setdefault(title, set()).update(ops)
    for title, handled in sorted(translator.HANDLED.items()):
        undefined = set(handled) - defined - RAISED
        if undefined:
            rows.setdefault(title, set()).update(undefined)
    lines = [f"| {title} | {', '.join(sorted(ops))} |" for title, ops in rows.items()]
    return _HEADER.format(count=len(set().union(*rows.values()))) + "\n".join([*lines, ""])


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(table(), encoding="utf-8")
