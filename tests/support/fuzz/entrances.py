"""Every way a model comes in, and what may come out: a result, or an error of ours. Nothing is left behind."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import json
import random
import re
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

import lstm_lower as ll
from lstm_lower.passes.lower import lowering_passes
from tests.support.fuzz.worker import MOST_BYTES, Stage, peak

# Seconds of processor time that a model of some kilobytes may take.
MOST_SECONDS = 20.0


class Skipped(Exception):  # noqa: N818 (nothing went wrong)
    """The damaged bytes cannot come in this way."""


@dataclasses.dataclass
class Incoming:
    """A damaged model on its way in.

    Attributes:
        data: its bytes.
        path: a file of these bytes.
        draw: for options.
    """

    data: bytes
    path: Path
    draw: random.Random

    def proto(self) -> onnx.ModelProto:
        model = onnx.ModelProto()
        try:
            model.ParseFromString(self.data)
        except Exception as error:
            raise Skipped from error
        return model

    def ir(self) -> ir.Model:
        try:
            return ir.from_proto(self.proto())
        except Exception as error:
            raise Skipped from error

    def schedule(self) -> str:
        return self.draw.choice(["auto", "scan", "unroll", "chunk:1", "chunk:2"])


Entrance = Callable[[Incoming], object]


def invoke(*words: str) -> int:
    """Runs a command in this process; its exit code."""
    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            _commands().main(list(words), prog_name="lstm-lower")
        except SystemExit as end:
            code = end.code or 0
    if code not in (0, 1, 2):
        raise RuntimeError(f"exit code {code}")
    if "Traceback" in out.getvalue() + err.getvalue():
        raise RuntimeError("the command prints a traceback")
    if code and not err.getvalue() + out.getvalue():
        raise RuntimeError("the command fails and does not say why")
    if code == 0 and "--json" in words:
        json.loads(out.getvalue())
    return int(str(code))


@functools.cache
def _commands() -> Any:
    """The command line, which takes longer to build than many a model to refuse."""
    from typer.main import get_command

    from lstm_lower.cli.main import app

    return get_command(app)


def _command(*words: str) -> Entrance:
    """A command, run in this process; it must not leave a result where it fails, nor touch an existing one."""

    def run(given: Incoming) -> None:
        output = given.path.with_name("result")
        existing = given.draw.random() < 0.5 and "-o" in words
        if existing:
            output.write_text("kept")
        arguments = [word.format(model=given.path, output=output, schedule=given.schedule()) for word in words]
        code = invoke(*arguments)
        if code and output.exists() != existing:
            raise RuntimeError("an output stays behind after a failure")
        if code and existing and (output.is_dir() or output.read_text() != "kept"):
            raise RuntimeError("an existing output was changed by a failure")

    return run


def _pipeline(*, single: bool) -> Entrance:
    """The passes of `lower`, all or one of them, in a pipeline of onnx_ir's own."""

    def run(given: Incoming) -> None:
        model = given.ir()
        passes = lowering_passes(schedule=given.schedule(), verify_each=given.draw.random() < 0.5)
        try:
            ir.passes.Sequential(*([given.draw.choice(passes)] if single else passes))(model)
        except ir.passes.PassError as error:
            raise error.__cause__ or error from None

    return run


def _gradient(given: Incoming, model: onnx.ModelProto | ir.Model) -> object:
    """Gradients of one of the outputs, by all weights or by an input."""
    graph = model.graph
    sides = (graph.outputs, graph.inputs) if isinstance(graph, ir.Graph) else (graph.output, graph.input)
    outputs, inputs = ([value.name or "" for value in side] for side in sides)
    of = given.draw.choice([*outputs, "y"])
    wrt = given.draw.choice([None, *([name] for name in inputs)])
    return ll.gradient(model, of, wrt, seeds=given.draw.random() < 0.8)


ENTRANCES: dict[str, Entrance] = {
    "lower a protobuf": lambda given: ll.lower(given.proto(), schedule=given.schedule()),
    "lower to an opset": lambda given: ll.lower(given.proto(), given.draw.choice([13, 15, 17, 18, 21, 23])),
    "lower a path": lambda given: ll.lower(given.path),
    "lower an ir.Model": lambda given: ll.lower(given.ir()),
    "optimize a protobuf": lambda given: ll.optimize(given.proto(), given.schedule()),
    "optimize a path": lambda given: ll.optimize(str(given.path)),
    "optimize an ir.Model": lambda given: ll.optimize(given.ir(), given.schedule()),
    "lower a protobuf, verify each": lambda given: ll.lower(given.proto(), verify_each=True),
    "optimize a protobuf, verify each": lambda given: ll.optimize(given.proto(), given.schedule(), verify_each=True),
    "all passes": _pipeline(single=False),
    "one pass": _pipeline(single=True),
    "Session of bytes": lambda given: ll.Session(given.data),
    "Session of a path": lambda given: ll.Session(given.path),
    "Session of a protobuf": lambda given: ll.Session(given.proto()),
    "Session of an ir.Model": lambda given: ll.Session(given.ir()),
    "Trainer of a path": lambda given: ll.Trainer(given.path, optimizer=given.draw.choice([None, "sgd", "adam"])),
    "Trainer of a protobuf": lambda given: ll.Trainer(given.proto(), clip_norm=given.draw.choice([None, 1.0])),
    "Trainer of an ir.Model": lambda given: ll.Trainer(given.ir(), accumulate=given.draw.choice([1, 2])),
    "gradient of a protobuf": lambda given: _gradient(given, given.proto()),
    "gradient of an ir.Model": lambda given: _gradient(given, given.ir()),
    "from_onnx of a path": lambda given: ll.from_onnx(given.path, given.draw.choice(["mse", "l1", "loss"]), "sgd"),
    "command gradient": _command("gradient", "{model}", "-o", "{output}", "--of", "y", "--seeds"),
    "command report": _command("report", "{model}", "-o", "{output}"),
    "command diff": _command("diff", "{model}", "{model}"),
    "command export": _command("export", "{model}", "-o", "{output}", "--loss", "mse", "--optimizer", "sgd"),
    "command lower": _command("lower", "{model}", "-o", "{output}", "--schedule", "{schedule}"),
    "command lower --json": _command("lower", "{model}", "-o", "{output}", "--json"),
    "command lower --verify-each": _command("lower", "{model}", "-o", "{output}", "--verify-each"),
    "command lower --external-data": _command("lower", "{model}", "-o", "{output}", "--external-data"),
    "command optimize": _command("optimize", "{model}", "-o", "{output}", "--schedule", "{schedule}"),
    "command optimize --explain": _command("optimize", "{model}", "-o", "{output}", "--explain"),
    "command optimize --verify-each": _command("optimize", "{model}", "-o", "{output}", "--verify-each"),
    "command optimize --dump-passes": _command("optimize", "{model}", "-o", "{output}", "--dump-passes", "{output}.d"),
    "command inspect": _command("inspect", "{model}"),
    "command inspect --json": _command("inspect", "{model}", "--json"),
    "command check": _command("check", "{model}"),
    "command check --json": _command("check", "{model}", "--json"),
    "command run": _command("run", "{model}"),
    "command train": _command("train", "{model}", "--data", "{model}.npz", "-o", "{output}", "--optimizer", "sgd"),
}
# These run the model, which takes as long as its numbers say.
RUNNING = ("command check", "command check --json", "command run", "command train")


def faults(
    data: bytes, seed: int, stage: Stage, entrances: Mapping[str, Entrance] | None = None
) -> Iterator[tuple[str, str, str]]:
    """Sends bytes through some entrances.

    Args:
        data: a damaged model, serialized.
        seed: chooses entrances and their options.
        stage: told what comes next.
        entrances: which; `None` for four drawn from the seed.

    Yields:
        Entrance, kind and detail of every fault.
    """
    drawn = random.Random(seed).sample(sorted(ENTRANCES), 4)
    for name, enter in (entrances or {name: ENTRANCES[name] for name in drawn}).items():
        stage(name)
        with tempfile.TemporaryDirectory() as folder, _temporary_files_in(Path(folder) / "temporary") as scratch:
            path = Path(folder) / "model.onnx"
            path.write_bytes(data)
            np.savez(f"{path}.npz", x=np.zeros((2, 2), np.float32))
            start, memory = time.process_time(), peak()
            try:
                enter(Incoming(data, path, random.Random(seed)))
            except (ll.LstmLowerError, Skipped):
                pass
            except Exception as error:  # noqa: BLE001 (what must not happen)
                if not (isinstance(error, OSError) and "path" in name):
                    yield name, f"{type(error).__name__} {_place(error)}", _words(error)
            if name not in RUNNING and time.process_time() - start > MOST_SECONDS:
                yield name, "slow", f"{time.process_time() - start:.0f} s of processor time"
            if name not in RUNNING and peak() - memory > MOST_BYTES:
                yield name, "memory", f"{(peak() - memory) >> 20} MB more"
            if path.read_bytes() != data:
                yield name, "model file changed", ""
            left = [entry.name for entry in Path(scratch).iterdir()]
            allowed = ("model.onnx", "result", "temporary")
            left += [entry.name for entry in Path(folder).iterdir() if not entry.name.startswith(allowed)]
            if left:
                yield name, "files left behind", str(left[:5])


@contextlib.contextmanager
def _temporary_files_in(folder: Path) -> Iterator[Path]:
    """Lets temporary files be made where one sees them."""
    folder.mkdir()
    before = tempfile.tempdir
    tempfile.tempdir = str(folder)
    try:
        yield folder
    finally:
        tempfile.tempdir = before


def _words(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)[-1]
    text = re.sub(r"\s+", " ", str(error))[:400]
    return f"{text} ({frames.filename.rpartition('/')[2]}:{frames.lineno} {frames.name})"


def _place(error: BaseException) -> str:
    """The innermost function of ours that the error passed through."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if any(f"/{folder}/" in frame.filename for folder in ("passes", "lstm_lower", "runtime"))
        and "site-packages" not in frame.filename
    ]
    return f"{frames[-1].filename.rpartition('/')[2]}:{frames[-1].name}" if frames else ""
