"""Processes that find this very checkout, wherever they are started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def environment(**more: str) -> dict[str, str]:
    """Variables of a child process: this process's, and the checkout before everything that is installed."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, **more}


def output_of(code: str, *arguments: str, **variables: str) -> str:
    """What a process of its own prints that runs some Python, with more variables of its environment.

    Raises:
        SystemExit: it failed; the message is what it wrote on standard error.
    """
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment(**variables))
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout
