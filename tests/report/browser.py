"""What drives Chromium: the scripts beside this file."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.anywhere.support import ROOT, chromium, node


def browse(script: str, report: Path, **options: Any) -> dict[str, Any]:
    """What a script saw of a report."""
    given = {"packages": str(ROOT), "chromium": chromium(), "file": str(report), **options}
    words = [node(), str(Path(__file__).parent / script), json.dumps(given)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return seen
