"""Everything that the README and the documentation tell a reader to run is run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
# Making environments and running the tests is what the continuous check does; a test must not.
_ELSEWHERE = ("pip ", "python -m pytest", "python -m build")


def blocks(language: str) -> list[tuple[str, list[str]]]:
    """Page and texts of all fenced blocks of a language."""
    found = []
    for page in PAGES:
        texts = [text for kind, text in _FENCE.findall(page.read_text(encoding="utf-8")) if kind == language]
        if texts:
            found.append((page.name, texts))
    return found


def run(command: list[str], folder: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A place to run in where the repository's examples are found and nothing of it is written to."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return tmp_path


@pytest.mark.parametrize(("page", "texts"), blocks("python"), ids=lambda value: value if isinstance(value, str) else "")
def test_python(page: str, texts: list[str], folder: Path) -> None:
    """The blocks of one page in order: a later one may use a file that an earlier one wrote."""
    for text in texts:
        if "tensorflow" in text:
            pytest.importorskip("tensorflow")
        run([sys.executable, "-c", text], folder)


@pytest.mark.parametrize(("page", "texts"), blocks("bash"), ids=lambda value: value if isinstance(value, str) else "")
def test_commands(page: str, texts: list[str], folder: Path) -> None:
    for text in texts:
        for line in text.replace("\\\n", " ").splitlines():
            for command in line.partition(" #")[0].split("&&"):
                words = shlex.split(command)
                if not words or command.strip().startswith(_ELSEWHERE):
                    continue
                if words[0] == "lstm-lower":
                    words = [sys.executable, "-m", "lstm_lower", *words[1:]]
                elif words[0] == "python":
                    words[0] = sys.executable
                run(words, folder)
