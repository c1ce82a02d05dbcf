"""`lstm-lower export`: a training step as a folder that every onnxruntime trains."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from lstm_lower.cli import console
from lstm_lower.cli.options import ModelArgument, OpsetOption, ScheduleOption, StateSizeOption, TargetOption, parse_dims
from lstm_lower.cli.sources import ImportOptions, names_of, open_model
from lstm_lower.cli.train_options import LossOption, OptimizerOption, TrainableOption, training_step
from lstm_lower.errors import InvalidInputError

if TYPE_CHECKING:
    import onnx_ir as ir

    from lstm_lower.runtime.training.trainer import Trainer


def export(
    model: ModelArgument,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The folder [default: <MODEL>.bundle].")] = None,
    files: Annotated[
        str, typer.Option("--files", metavar="NAMES", help="Which models to write, separated by commas.")
    ] = "init,train,eval,predict",
    trained: Annotated[
        Path | None,
        typer.Option("--trained", metavar="FILE", help="A checkpoint of `lstm-lower train`, whose state is exported."),
    ] = None,
    initial: Annotated[Path | None, typer.Option("--initial", help="A .npz file with values of the state.")] = None,
    dim: StateSizeOption = None,
    loss: LossOption = None,
    trainable: TrainableOption = None,
    optimizer: OptimizerOption = None,
    learning_rate: Annotated[float | None, typer.Option(min=0, help="Replaces the model's learning rate.")] = None,
    clip_norm: Annotated[float | None, typer.Option(help="Limit of the norm over all gradients.")] = None,
    accumulate: Annotated[int, typer.Option(min=1, help="Steps whose gradients are added up for one update.")] = 1,
    opset: OpsetOption = None,
    schedule: ScheduleOption = "auto",
    target: TargetOption = None,
    external_data: Annotated[
        bool | None,
        typer.Option(
            help="Keep weights in files of their own, <file>.<hash>.data, or in each model [default: in one file, "
            "weights.<hash>.data, what several models hold and no step changes]."
        ),
    ] = None,
    class_names: Annotated[
        str | None, typer.Option("--class-names", metavar="NAMES", help="Names of the classes, separated by commas.")
    ] = None,
    operators: Annotated[
        bool,
        typer.Option(
            "--ops", help="Also write which operators and types a build of onnxruntime needs for all the models."
        ),
    ] = False,
    page: Annotated[
        bool,
        typer.Option(
            "--page", help="Write a page that trains the bundle in a browser, and the bundle into its folder bundle/."
        ),
    ] = False,
    onnxruntime_web: Annotated[
        Path | None,
        typer.Option(
            "--onnxruntime-web",
            metavar="FOLDER",
            help="The npm package, from which the page gets a copy [default: the page takes it from jsdelivr.net].",
        ),
    ] = None,
    *,
    graph: ImportOptions,
    as_json: bool,
) -> None:
    """Write a training step as plain ONNX files that every onnxruntime trains, in any language.

    MODEL is an ONNX file that holds a training step, with --loss and --optimizer any other ONNX file, or a file of
    TensorFlow's. The folder gets init.onnx (the first
    state), train.onnx (state and data in, new state and loss out), eval.onnx, predict.onnx (weights inside) and
    training.json, which describes them. Files are written only after onnx's checker has accepted all of them and
    onnxruntime has loaded them.
    """
    folder = output if output is not None else model.parent / f"{model.stem}.{'site' if page else 'bundle'}"
    from lstm_lower.runtime.training import page as pages
    from lstm_lower.runtime.training.bundle import export_training
    from lstm_lower.runtime.training.operator_list import NAME

    if onnxruntime_web is not None and not page:
        raise InvalidInputError("--onnxruntime-web requires --page, got none")
    beside = pages.files_of(onnxruntime_web, webgpu=target == "webgpu-web") if page else {}
    bundle = folder / pages.BUNDLE if page else folder
    start = time.perf_counter()
    step: Any = training_step(open_model(model, graph, opset), loss, optimizer, trainable)
    options: dict[str, Any] = {"optimizer": optimizer, "learning_rate": learning_rate, "clip_norm": clip_norm}
    options["accumulate"] = accumulate
    if trained is not None or initial is not None or dim:
        step = _trainer(step, trained, initial, {**options, "sizes": parse_dims(dim)})
    elif accumulate > 1 or any(options[name] is not None for name in ("optimizer", "learning_rate", "clip_norm")):
        step = _edited(step, **options)
    wanted: Any = names_of(files)
    forms: dict[str, Any] = {"opset": opset, "schedule": schedule, "target": target}
    forms["class_names"] = None if class_names is None else names_of(class_names)
    export_training(step, bundle, files=wanted, **forms, external_data=external_data, operators=operators)
    if page:
        pages.write_page(folder, beside)
    listed = [(bundle / NAME).relative_to(folder).as_posix()] if operators else []
    _print(folder, bundle, [*listed, *beside], time.perf_counter() - start, as_json=as_json)


def _edited(
    step: Any, optimizer: str | None, learning_rate: float | None, clip_norm: float | None, accumulate: int
) -> ir.Model:
    """The step with options, its state as it is."""
    from lstm_lower.passes.driver import run_passes
    from lstm_lower.passes.tidy import SortPass
    from lstm_lower.passes.training.options import TrainingOptionsPass
    from lstm_lower.records import state

    edited = run_passes(step, [SortPass(), TrainingOptionsPass(optimizer, clip_norm, accumulate=accumulate)])
    if learning_rate is not None:
        state.set_learning_rate(edited, learning_rate)
    return edited


def _trainer(step: Any, trained: Path | None, initial: Path | None, options: dict[str, Any]) -> Trainer:
    """The step with options, and with the state that files hold."""
    from lstm_lower.runtime import feeds
    from lstm_lower.runtime.training import checkpoint
    from lstm_lower.runtime.training.trainer import Trainer

    values: Mapping[str, Any] | None = None if initial is None else feeds.read_arrays(initial)[0]
    if trained is not None:
        arrays, held = checkpoint.read(trained)
        values = arrays if values is None else values
        _, rate, _ = checkpoint.progress(trained, held)
        if options["learning_rate"] is None and math.isfinite(rate):
            options["learning_rate"] = rate
    trainer = Trainer(step, initial_values=values, **options)
    if trained is not None:
        trainer.resume(trained)
    return trainer


def _print(folder: Path, bundle: Path, beside: Sequence[str], seconds: float, *, as_json: bool) -> None:
    from lstm_lower.records import manifest

    about = json.loads((bundle / manifest.NAME).read_text(encoding="utf-8"))
    models = dict.fromkeys(x for entry in about["files"].values() for x in (entry["model"], *entry["data"]))
    inner = [(bundle / name).relative_to(folder).as_posix() for name in (*models, manifest.NAME)]
    names = [*inner, *beside]
    if as_json:
        console.print_json({"output": str(folder), "seconds": seconds, "files": names})
        return
    data = ", ".join(f"{entry['name']} {console.shape_text(entry['shape'])}" for entry in about["data"])
    console.out().print(escape(f"{len(about['state'])} values of state; data: {data}; {seconds:.2f} s"))
    for name in names:
        console.out().print(escape(f"  {name} ({console.bytes_text((folder / name).stat().st_size)})"))
    served = f"; python -m http.server --directory {folder} serves the page" if bundle != folder else ""
    console.out().print(escape(f"wrote {folder}{served}"))
