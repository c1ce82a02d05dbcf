"""What is done with one seed of a campaign of kind `torch`."""

from __future__ import annotations

import re
import time
from typing import Any

from tests.support.fuzz.torch_modules import ends
from tests.support.fuzz.torch_modules.judging import Invalid, fault
from tests.support.fuzz.torch_modules.program import Program
from tests.support.fuzz.worker import Stage

# What docs/torch.md refuses by name.
EXPECTED = ("which varies with none of",)
# For making a module small.
SECONDS = 60.0


def torch(seed: int, settings: dict[str, Any], known: list[str], stage: Stage) -> dict[str, Any]:
    """The module of a seed, its steps in PyTorch and in onnxruntime."""
    stage("original")
    try:
        program = ends.program(seed)
        kind, detail = fault(program, stage)
    except (ends.Refused, Invalid):
        return {"verdict": "invalid"}
    if not kind:
        return {"verdict": "passed"}
    if any(re.search(words, detail) for words in EXPECTED):
        return {"verdict": "refused", "counts": {kind: 1}}
    small = program
    if kind not in known:
        stage(f"original, being reduced after {kind}")
        small = reduced(program, kind)
    files = {".py": small.source(), ".full.py": program.source(), ".txt": detail}
    files = {name: text.encode().hex() for name, text in files.items()}
    return {"verdict": "failed", "findings": [{"case": "torch", "kind": kind, "detail": detail, "files": files}]}


def reduced(program: Program, kind: str, seconds: float = SECONDS) -> Program:
    """The smallest module found that has a fault of the same kind."""
    end = time.monotonic() + seconds
    best, progress = program, True
    while progress:
        progress = False
        for candidate in best.smaller():
            if time.monotonic() > end:
                return best
            if len(candidate.source()) >= len(best.source()):
                continue
            try:
                found, _ = fault(candidate)
            except Exception:  # noqa: BLE001 (not valid, then)
                continue
            if found == kind:
                best, progress = candidate, True
                break
    return best
