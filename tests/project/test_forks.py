"""Commands in forks run as Python runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import forks

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(forks.ROOT), "PYTHONWARNINGS": "error", "WORD": "one"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["-c", "import os, sys; print(os.getcwd(), os.environ['WORD'], sys.argv, sys.path[0], __name__)", "a", "b"],
        ["-c", "print(open(0).read()); raise SystemExit('three')"],
        ["-m", "platform", "terse"],
        ["written.py", "a"],
        ["-m", "lstm_lower", "lower", "none.onnx", "-o", "low.onnx"],
    ],
    ids=str,
)
def test_arguments_folder_streams_and_status(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("found = 1\n")
    (tmp_path / "written.py").write_text("import sys, beside\nprint(sys.argv, beside.found)\nsys.exit(3)\n")
    done = forks.run(arguments, tmp_path, ENVIRONMENT, seconds=60)
    plain = subprocess.run(
        [sys.executable, *arguments],
        cwd=tmp_path,
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (plain.returncode, plain.stdout, plain.stderr)


@pytest.mark.slow
def test_warnings_are_errors_and_slow_commands_end(tmp_path: Path) -> None:
    warned = forks.run(["-c", "import warnings; warnings.warn('mind')"], tmp_path, ENVIRONMENT, seconds=60)
    assert warned.returncode == 1
    assert warned.stderr.endswith("UserWarning: mind\n")
    assert forks.run(["-c", "import time; time.sleep(60)"], tmp_path, ENVIRONMENT, seconds=1).returncode < 0
