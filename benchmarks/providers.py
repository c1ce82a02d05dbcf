"""`python -m benchmarks providers`: which provider runs what, how right and how fast, for docs/providers.md."""

from __future__ import annotations

import dataclasses
import functools
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnx
import onnx_ir as ir
import typer

import lstm_lower as ll
from benchmarks import block
from benchmarks.options import JsonOption, OutputOption, hand_out
from benchmarks.provider_runs import ROOT, Run, in_browser, in_capture, in_node, in_openvino, in_session
from lstm_lower.records import state as training_state
from lstm_lower.records.model_files import load
from lstm_lower.runtime.feeds import random_feeds
from lstm_lower.runtime.proof import reference
from lstm_lower.runtime.proof.comparison import errors

Array = np.ndarray[Any, Any]
EXAMPLES = ROOT / "examples"
BATCH = 16


@dataclasses.dataclass(frozen=True)
class Subject:
    """A model with composite ops, and what it computes in float64.

    Attributes:
        name: for the table.
        source: the model, in which every input has to be fed.
        feeds: of all inputs.
        sizes: what these make of its open sizes; loops can be unrolled where they are known.
    """

    name: str
    source: ir.Model
    feeds: dict[str, Array]
    sizes: dict[str, int] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def expected(self) -> dict[str, Array]:
        """Outputs in float64."""
        return reference.evaluate(self.source, self.feeds)

    def lowered(self, target: str | None, schedule: str) -> onnx.ModelProto:
        """For a target, under a schedule."""
        sizes = self.sizes if schedule == "unroll" else None
        return ir.to_proto(ll.lower(self.source, schedule=schedule, target=target, sizes=sizes))


@dataclasses.dataclass(frozen=True)
class Row:
    """A provider.

    Attributes:
        name: for the table.
        run: runs a model there.
        target: what models are lowered for.
        schedules: how loops run.
    """

    name: str
    run: Run
    target: str | None = None
    schedules: tuple[str, ...] = ("auto",)


ROWS = (
    Row("CPU", functools.partial(in_session, "cpu"), None, ("auto", "unroll")),
    Row("OpenVINO, plug-in", functools.partial(in_session, "openvino"), "openvino", ("scan", "unroll")),
    Row(
        "OpenVINO, plug-in, bfloat16 by name",
        functools.partial(in_session, "openvino", precision="bfloat16"),
        "openvino",
        ("unroll",),
    ),
    Row("OpenVINO's runtime, directly", functools.partial(in_openvino, "f32"), "openvino", ("scan", "unroll")),
    Row("OpenVINO's runtime, bfloat16 by name", functools.partial(in_openvino, "bf16"), "openvino", ("unroll",)),
    Row("ggml", functools.partial(in_session, "ggml"), "ggml", ("unroll",)),
    Row("WebGPU, plug-in", functools.partial(in_session, "webgpu"), "webgpu", ("unroll",)),
    Row("CUDA", functools.partial(in_session, "cuda"), None, ("auto", "unroll")),
    Row("CUDA, as a CUDA graph", in_capture, "cuda-graph", ("unroll",)),
    Row("Node", in_node, None, ("auto", "unroll")),
    Row("browser (Chromium, WASM)", functools.partial(in_browser, "wasm"), None, ("auto", "unroll")),
    Row("browser (Chromium, WebGPU)", functools.partial(in_browser, "webgpu"), "webgpu-web", ("unroll",)),
)


def block_backward(shape: tuple[int, int, int, int]) -> Subject:
    """The gradient of a BlockLSTM."""
    case = block.Case("BlockLSTMGrad", shape)
    operands = block.arrays(case)
    sizes = ", ".join(map(str, shape))
    return Subject(f"BlockLSTMGrad ({sizes})", ir.from_proto(block.model(case, operands)), block.feeds(case, operands))


def bundle(name: str, step: Any) -> Subject:
    """The training step of a bundle, at the state that it begins with, on random data."""
    with tempfile.TemporaryDirectory() as folder:
        ll.export_training(step, folder, files=("init", "train"))
        about = json.loads((Path(folder) / "training.json").read_text(encoding="utf-8"))
        first = ll.Session(Path(folder) / "init.onnx").run({})
    source = load(step) if isinstance(step, Path) else ir.from_proto(step)
    training_state.detach_initial_values(source)
    sizes = {size: BATCH for entry in about["data"] for size in entry["shape"] if isinstance(size, str)}
    feeds = {**random_feeds(source, sizes), **first}
    if (rate := about["learning_rate"]) is not None:
        feeds[rate["name"]] = np.asarray(0.01 if rate["value"] is None else rate["value"], np.float32)
    return Subject(name, source, feeds, sizes)


def characters() -> onnx.ModelProto:
    """The README's model, with the recorded weights as its first state."""
    model = onnx.load(EXAMPLES / "graphs" / "char_lstm_train.onnx")
    trainer = ll.Trainer(model, initial_values=_recorded(), learning_rate=0.5)
    work = ir.to_proto(trainer.model)
    work.graph.initializer.extend(
        onnx.numpy_helper.from_array(value, name) for name, value in trainer.state_dict().items()
    )
    return work


def _recorded() -> dict[str, Array]:
    with np.load(EXAMPLES / "graphs" / "char_lstm_train.npz") as recorded:
        fed = ("in:ids:0", "in:labels:0", "in:learning_rate:0")
        return {n[3:]: recorded[n] for n in recorded.files if n[:3] == "in:" and n not in fed}


def subjects(shape: tuple[int, int, int, int]) -> list[Callable[[], Subject]]:
    """What is run."""
    forecaster = EXAMPLES / "torch_forecaster" / "forecaster.onnx"
    return [
        lambda: block_backward(shape),
        lambda: bundle("bundle of keras_digits", EXAMPLES / "keras_digits" / "digits_train.onnx"),
        lambda: bundle("bundle of torch_forecaster", ll.from_onnx(forecaster, "mse", "adam")),
        lambda: bundle("bundle of char_lstm_train", characters()),
    ]


def measured(subject: Subject, row: Row, schedule: str, rounds: int) -> dict[str, Any]:
    """One line of the table."""
    line = {"model": subject.name, "provider": row.name, "schedule": schedule}
    try:
        found = row.run(subject.lowered(row.target, schedule), subject.feeds, rounds)
    except (ll.LstmLowerError, RuntimeError) as error:
        why = " ".join(part.strip() for part in str(error).splitlines()[:2])
        return {**line, "loads": False, "why": why.replace("|", "/")}
    worst = max(errors(array, subject.expected[name])[1] for name, array in found.outputs.items())
    return {**line, "loads": True, "right": worst <= 1e-5, "error": worst, "milliseconds": found.milliseconds}


def providers(
    shape: Annotated[str, typer.Option("--shape", help="T,B,I,H of the block LSTM.")] = "50,32,128,128",
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Runs; the fastest one counts.")] = 10,
    only: Annotated[
        list[str] | None, typer.Option("--provider", help="Name of a row, or its beginning; all without it.")
    ] = None,
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a block LSTM's gradient and the bundles of three examples by every provider, and compare with float64."""
    from benchmarks.options import parse_shape

    rows = [row for row in ROWS if not only or any(row.name.lower().startswith(name.lower()) for name in only)]
    if not rows:
        raise typer.BadParameter(f"--provider requires the beginning of one of {[row.name for row in ROWS]}")
    lines = []
    for make in subjects(parse_shape(shape)):
        subject = make()
        for row in rows:
            for schedule in row.schedules:
                lines.append(measured(subject, row, schedule, rounds))
                if not as_json:
                    print(*(f"{value:.3g}" if isinstance(value, float) else value for value in lines[-1].values()))
    hand_out(lines, output, as_json=as_json)
