"""What the pages tell a reader to run: the fenced blocks, the commands in them, and which of them a test cannot run."""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.support import forks

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").glob("*.md")),
    EXAMPLES / "README.md",
    *sorted(EXAMPLES.glob("*/README.md")),
]
COMMANDS = "bash"
PYTHON = "python"
# tests/anywhere runs it.
JAVASCRIPT = "js"
# Languages that nobody runs. A block in any other language, or in none, is a fault.
SHOWN = ("text", "toml", "json", "rust", "csharp", "java", "kotlin", "swift")

# The beginning of a command that is not run -> why. Whatever installs something changes the environment of the tests;
# `.ci/run` does it in environments of its own.
NOT_RUN = {
    "pip install": "changes the environment that the tests run in",
    "apt-get ": "changes the machine that the tests run on",
    "npm ": "fetches or builds packages; tests/anywhere says where they are missed",
    "node ": "needs such packages; tests/anywhere runs the same",
    "g++ ": "needs onnxruntime's headers; tests/anywhere compiles the same program",
    "out/train ": "is that program; tests/anywhere runs it",
    "export ONNXRUNTIME": "tells the tests, of which this is one",
    "python -m http.server": "serves until it is stopped; tests/anywhere serves the page",
    "python -m venv": "makes an environment",
    "source ": "enters an environment",
    "python -m pytest": "runs the tests, of which this is one",
    "pytest": "runs the tests, of which this is one",
    "LSTM_LOWER_EXAMPLES": "runs the tests, of which this is one",
    "ruff ": "a step of .ci/run",
    "python -m benchmarks device": "tests/benchmarks/test_device.py runs it, with fewer contestants",
    "python -m benchmarks distributed": "takes a minute; tests/runtime/parallel/test_workers.py runs it on one worker",
    "python -m benchmarks pages web": "downloads TensorFlow.js; tests/benchmarks/test_web.py trains without it",
    "python tests/kill_workers.py": "takes minutes; tests/runtime/parallel/test_workers.py kills two workers",
    "python tests/several_hosts.py": "makes network namespaces, as root; tests/runtime/parallel compares workers",
    "python -m tests.anywhere.conformance": "needs PyTorch and scikit-learn; tests/anywhere writes each case",
    "python -m tests.fuzz": "runs for as long as it is told; tests/project/test_fuzz.py runs its parts",
    "python -m sphinx": "a step of .ci/run",
    ".ci/typecheck": "a step of .ci/run",
    ".ci/run": "runs the tests, of which this is one",
}

# A command that takes minutes -> the same command with smaller sizes, which is run in its place.
QUICKER = {
    "lstm-lower bench examples/graphs/char_lstm_train.onnx --threads 2 --seconds 0.5": (
        "lstm-lower bench examples/graphs/char_lstm_train.onnx --threads 2 --seconds 0.01 --schedule scan "
        "--plot times.svg --trace trace.json"
    ),
    "lstm-lower bench examples/graphs/char_lstm_train.onnx --seconds 0.2 --schedule scan --plot times.svg --trace "
    "trace.json": (
        "lstm-lower bench examples/graphs/char_lstm_train.onnx --threads 2 --seconds 0.01 --schedule scan "
        "--plot times.svg --trace trace.json"
    ),
    # tests/rules/test_wrong_rules.py asks it of every rule.
    "python -m tests.support.wrong_rules": "python -m tests.support.wrong_rules Softsign",
    "python -m benchmarks pages providers": "python -m benchmarks pages --quick providers",
    "python -m benchmarks pages": "python -m benchmarks pages --quick trainer",
    "python -m benchmarks pages backward memory": "python -m benchmarks pages --quick trainer",
    "python -m benchmarks foreign --shape 50,32,128,128 --shape 100,8,256,256 --shape 100,1,256,256 --float64": (
        "python -m benchmarks foreign --shape 4,2,3,4 --rounds 3 --float64"
    ),
    "python -m benchmarks race --shape 20,8,64,64 --threads 1 --seconds 1 --plot my.svg -o my.json": (
        "python -m benchmarks race --shape 4,2,3,4 --threads 1 --seconds 0.1 --against floor --plot my.svg -o my.json"
    ),
}

# Seconds after which a command hangs; a busy machine takes ten times as long as an idle one.
_PATIENCE = 1200

_FENCE = re.compile(r"^( *)```(\w*)([^\n]*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`((?:lstm-lower|python) [^`]+)`")


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        page: its file.
        line: of the fence.
        language: what stands behind the fence.
        text: without the indentation of the fence.
        role: what stands behind the language: `continued` for Python that goes on from the block before, `printed` for
            what the block before prints.
    """

    page: Path
    line: int
    language: str
    text: str
    role: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path, language: str | None = None) -> list[Block]:
    """The fenced blocks of a page, of one language or of all."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _FENCE.finditer(text):
        indent, kind, role, inner = match.groups()
        if language in (None, kind):
            lines = [line.removeprefix(indent) for line in inner.splitlines(keepends=True)]
            found.append(Block(page, text.count("\n", 0, match.start()) + 1, kind, "".join(lines), role.strip()))
    return found


def programs(page: Path) -> list[list[tuple[Block, Block | None]]]:
    """The Python programs of a page: blocks that belong together, each with the block that shows what it prints."""
    found: list[list[tuple[Block, Block | None]]] = []
    for block in blocks(page):
        if block.language == PYTHON:
            if block.role != "continued":
                found.append([])
            found[-1].append((block, None))
        elif block.role == "printed":
            found[-1][-1] = (found[-1][-1][0], block)
    return found


def run_programs(chosen: Sequence[Sequence[tuple[Block, Block | None]]], folder: Path) -> None:
    """Runs programs in order, a later one may use files of an earlier one, and compares what they print with the page.

    They share a process, so that packages are imported once, but no names.
    """
    separator = "-- next block --"
    texts = [f"\nprint({separator!r})\n".join(block.text for block, _ in program) for program in chosen]
    everything = f"for text in {texts!r}:\n    exec(text, {{'__name__': '__main__'}})\n    print({separator!r})\n"
    imported = forks.IMPORTED_BY_PROGRAMS if "import tensorflow" in everything or "import keras" in everything else None
    printed = run([sys.executable, "-c", everything], folder, imported=imported).split(f"{separator}\n")[:-1]
    pairs = [pair for program in chosen for pair in program]
    for (block, shown), got in zip(pairs, printed, strict=True):
        assert shown is None or got == shown.text, f"{block.place} prints\n{got}"


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def inline_commands(page: Path) -> list[str]:
    """Commands that stand in the prose."""
    return [" ".join(match.split()) for match in _INLINE.findall(prose(page))]


def commands(block: Block) -> list[str]:
    """The commands of a block, one by one, comments left out."""
    lines = block.text.replace("\\\n", " ").splitlines()
    parts = [part.strip() for line in lines for part in re.sub(r"(^|\s)#.*", "", line).split("&&")]
    return [part for part in parts if part]


def why_not(command: str) -> str | None:
    """Why a command is not run; `None` for one that is."""
    return next((reason for start, reason in NOT_RUN.items() if command.startswith(start)), None)


def words(command: str) -> list[str]:
    """What to start for a command."""
    parts = shlex.split(QUICKER.get(command, command))
    if parts[0] == "lstm-lower":
        return [sys.executable, "-m", "lstm_lower", *parts[1:]]
    if parts[0] == "python":
        return [sys.executable, *parts[1:]]
    raise AssertionError(f"nobody knows how to run `{command}`: name it in NOT_RUN, or teach `words`")


def run(
    command: Sequence[str], folder: Path, *, warnings: str = "error", imported: tuple[str, ...] | None = None
) -> str:
    """Runs a page's command in a folder and returns what it printed."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": warnings,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "COLUMNS": "200",
        # What `providers="fastest"` keeps: for all pages one, and not the user's.
        "XDG_CACHE_HOME": str(Path(tempfile.gettempdir(), "lstm-lower-pages")),
    }
    if command[0] == sys.executable and warnings == "error":
        done = forks.run(
            command[1:], folder, environment, seconds=_PATIENCE, imported=imported or forks.IMPORTED_BY_PAGES
        )
    else:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
    assert done.returncode == 0, f"{list(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def place_to_run(folder: Path) -> Path:
    """Copies what commands name by a path of the repository, so that nothing of the repository is written to."""
    for name in ("examples", "benchmarks", "docs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
    shutil.copy(ROOT / "README.md", folder)
    return folder
