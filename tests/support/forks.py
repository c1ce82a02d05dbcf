"""Runs Python's commands in forks of a process that has imported what most of them import.

A fork is a process of its own, with its own arguments, folder and environment. Imports are half of what a command on a
small model takes, and pages have a hundred commands.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import types
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

from tests.support import waiting

ROOT = Path(__file__).parents[2]
IMPORTED = (
    "lstm_lower.cli.main",
    "lstm_lower.passes.model_pass",
    "lstm_lower.records.model_files",
    "networkx",
    "numpy",
    "onnx.reference",
    "onnx_ir.passes.common",
    "typer.core",
)
# Together they take as long as all of the above: for whole pages of commands, some of which draw or read digits.
IMPORTED_BY_PAGES = (*IMPORTED, "matplotlib.pyplot", "sklearn.datasets")

# Programs that make models with frameworks. TensorFlow and Keras start no thread until they compute.
IMPORTED_BY_PROGRAMS = ("keras", "tensorflow", "lstm_lower.keras", "lstm_lower.tensorflow", "onnx.reference")

# What processes that measure import.
MEASURING = ("lstm_lower.passes.model_pass", "lstm_lower.records.model_files", "onnx.reference")


def forking(*further: str) -> types.SimpleNamespace:
    """A stand-in for `multiprocessing` whose processes are forks of one that has imported what they need."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*MEASURING, *further])
    return types.SimpleNamespace(get_context=lambda _: context)


def run(
    arguments: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    seconds: int,
    imported: tuple[str, ...] = IMPORTED,
) -> subprocess.CompletedProcess[str]:
    """Runs `python <arguments>` in a folder; a command that takes longer is ended by a signal.

    Args:
        arguments: `-m module ...`, `-c program ...` or `file ...`.
        folder: where to run it.
        environment: all variables; what Python reads as it starts must be the same in every call.
        seconds: how long it may take.
        imported: what the process has imported that the command is a fork of.
    """
    server = _server(tuple((name, environment.get(name)) for name in ("PYTHONPATH", "PYTHONWARNINGS")), imported)
    assert server.stdin is not None
    assert server.stdout is not None
    with tempfile.TemporaryDirectory() as holder:
        out, err = Path(holder, "out"), Path(holder, "err")
        request = {
            "arguments": list(arguments),
            "folder": str(folder),
            "environment": dict(environment),
            "seconds": seconds,
            "streams": [os.devnull, str(out), str(err)],
        }
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        code = int(server.stdout.readline())
        return subprocess.CompletedProcess(list(arguments), code, out.read_text("utf-8"), err.read_text("utf-8"))


@functools.cache
def _server(variables: tuple[tuple[str, str | None], ...], imported: tuple[str, ...]) -> subprocess.Popen[str]:
    environment = {**os.environ, **{name: value for name, value in variables if value is not None}}
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.support.forks", *imported],
        cwd=ROOT,
        env=environment,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )

    def close() -> None:
        for stream in (server.stdin, server.stdout):
            assert stream is not None
            stream.close()
        server.wait()

    atexit.register(close)
    return server


def _serve(imported: Sequence[str]) -> None:
    """Forks for each line of standard input, and answers with the exit status; in a fork, returns at its end."""
    for name in imported:
        importlib.import_module(name)
    measuring = importlib.import_module("lstm_lower.runtime.measuring.worker")
    measuring.multiprocessing = forking()  # type: ignore[attr-defined]
    forkserver.ensure_running()
    # It starts threads, which a fork has not.
    assert "onnxruntime" not in sys.modules
    # A fork that ends would copy all that it looks through for garbage.
    gc.freeze()
    # Not buffered, since forks would have the rest of the buffer.
    with os.fdopen(os.dup(0), "rb", buffering=0) as requests:
        while line := requests.readline():
            child = os.fork()
            if child == 0:
                break
            _, status = os.waitpid(child, 0)
            print(os.waitstatus_to_exitcode(status), flush=True)  # noqa: T201
    if line:
        _become(json.loads(line))


def _become(request: Mapping[str, Any]) -> None:
    """Runs a command, as Python does where it starts with it."""
    for number, path in enumerate(request["streams"]):
        opened = os.open(path, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT)
        os.dup2(opened, number)
        os.close(opened)
    signal.alarm(request["seconds"])
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    # It runs, and is no child of a fork, which would look for it.
    forkserver._forkserver.ensure_running = lambda: None  # type: ignore[attr-defined,method-assign]
    waiting.without_spinning()
    first, *rest = request["arguments"]
    if first == "-m":
        sys.argv, sys.path[0] = rest, request["folder"]
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.argv, sys.path[0] = ["-c", *rest[1:]], ""
        sys.modules["__main__"] = program = types.ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), program.__dict__)
    else:
        sys.argv, sys.path[0] = [first, *rest], str(Path(first).absolute().parent)
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    _serve(sys.argv[1:])
