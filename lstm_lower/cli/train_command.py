"""`lstm-lower train`: train a model in onnxruntime."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from lstm_lower.cli import console
from lstm_lower.cli.keras_files import KerasFile, is_keras
from lstm_lower.cli.options import ModelArgument, PrecisionOption, ProviderOption, StateSizeOption, parse_dims
from lstm_lower.cli.sources import GraphOptions, ImportOptions, opened
from lstm_lower.cli.train_options import (
    AxisOption,
    BucketOption,
    DataOption,
    Decay,
    LengthsOption,
    LossOption,
    OptimizerOption,
    PadOption,
    TrainableOption,
    WindowOption,
    callbacks_of,
    padding_of,
    parse_named,
    training_step,
)
from lstm_lower.cli.way_back import BackOption, check_back, write_back
from lstm_lower.errors import InvalidInputError, some
from lstm_lower.extras import needed_by

if TYPE_CHECKING:
    from lstm_lower.runtime.training.fitting import Fit
    from lstm_lower.runtime.training.trainer import Trainer


def train(
    model: ModelArgument,
    data: DataOption,
    out: Annotated[Path, typer.Option("--out", "-o", help="The run's folder; a run in it is continued.")],
    validation: Annotated[
        Path | None, typer.Option("--validation", help="Data to evaluate on after each epoch, as --data.")
    ] = None,
    epochs: Annotated[int, typer.Option("--epochs", min=1, help="Passes over the data, from the run's start.")] = 1,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, help="Samples per step.")] = 32,
    loss: LossOption = None,
    without_loss: Annotated[
        bool, typer.Option("--without-loss", help="Train a step that tells no loss: none is logged or watched.")
    ] = False,
    trainable: TrainableOption = None,
    optimizer: OptimizerOption = None,
    learning_rate: Annotated[float | None, typer.Option(min=0, help="Replaces the model's learning rate.")] = None,
    schedule: Annotated[
        Decay,
        typer.Option("--schedule", help="Schedule of the learning rate: constant, cosine, linear, step or plateau."),
    ] = "constant",
    warmup: Annotated[int, typer.Option(min=0, help="Steps over which the learning rate rises to its value.")] = 0,
    every: Annotated[
        int, typer.Option("--schedule-every", min=1, help="Epochs between steps, or that make a plateau.")
    ] = 10,
    factor: Annotated[
        float, typer.Option("--schedule-factor", help="Factor of the rate at a step or on a plateau.")
    ] = 0.1,
    patience: Annotated[int | None, typer.Option(min=1, help="End after so many epochs without progress.")] = None,
    min_delta: Annotated[float, typer.Option("--min-delta", min=0.0, help="Least change that is progress.")] = 0.0,
    monitor: Annotated[
        str | None, typer.Option(help="The value that chooses the best epoch [default: val_loss, or loss].")
    ] = None,
    mode: Annotated[
        Literal["min", "max"] | None, typer.Option(help="Whether a small or a large value is better.")
    ] = None,
    clip_norm: Annotated[float | None, typer.Option(help="Limit of the norm over all gradients.")] = None,
    accumulate: Annotated[int, typer.Option(min=1, help="Steps whose gradients are added up for one update.")] = 1,
    initial: Annotated[
        Path | None, typer.Option("--initial", help="A .npz file with initial values of the state.")
    ] = None,
    dim: StateSizeOption = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the order of samples.")] = 0,
    shuffle: Annotated[bool, typer.Option(help="Change the order in every epoch.")] = True,
    window: WindowOption = 1,
    pad: PadOption = None,
    lengths: LengthsOption = None,
    bucket: BucketOption = None,
    sample_axis: AxisOption = None,
    save_every: Annotated[int, typer.Option("--save-every", min=1, help="Steps between checkpoints.")] = 100,
    on_nan: Annotated[
        Literal["stop", "skip", "ignore"],
        typer.Option("--on-nan", help="After a step whose loss is not a finite number: stop, skip or ignore."),
    ] = "stop",
    trace_nan: Annotated[
        bool,
        typer.Option("--trace-nan", help="If a run stops for such a number, name the node that made the first one."),
    ] = False,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes that share each batch (docs/distributed.md).")
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="Ray cluster for the workers, HOST:PORT or auto [default: this machine].")
    ] = None,
    reduction: Annotated[
        Literal["mean", "sum"] | None,
        typer.Option(help="How a batch's losses are reduced [default: determined by the first batch]."),
    ] = None,
    *,
    graph: GraphOptions,
    back: BackOption = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write event files into OUT/events.")] = False,
    plot: Annotated[bool, typer.Option(help="Draw the loss into loss.png and loss.svg.")] = True,
    provider: ProviderOption = None,
    precision: PrecisionOption = None,
    as_json: bool,
) -> None:
    """Train a model that holds one training step, or with --loss and --optimizer any other ONNX model.

    MODEL may be a TensorFlow graph, which is imported first (a .meta file, a SavedModel, a GraphDef), or a compiled
    Keras model (.keras, .h5).

    The folder gets checkpoint.safetensors, best.safetensors, metrics.jsonl (a line per step), epochs.jsonl and a plot
    of the loss. Run the command again to go on after an interruption; Ctrl-C, SIGTERM and SIGHUP save first.
    """
    from lstm_lower.records.model_files import load
    from lstm_lower.runtime import feeds
    from lstm_lower.runtime.training import fitting
    from lstm_lower.runtime.training.data.layout import Layout
    from lstm_lower.runtime.training.data.opening import open_data
    from lstm_lower.runtime.training.data.source import Order
    from lstm_lower.runtime.training.fitting import Fit
    from lstm_lower.runtime.training.progress_bar import progress_on
    from lstm_lower.runtime.training.tensorboard import TensorBoard
    from lstm_lower.runtime.training.trainable import spread
    from lstm_lower.runtime.training.trainer import Trainer

    _require_packages(plot=plot)
    for path in filter(None, (data, validation)):
        path.stat()  # what is not there is said before anything is made
    padding = padding_of(pad, lengths, bucket)
    axes = parse_named("--sample-axis", sample_axis, int)
    graph_options = ImportOptions(**vars(graph))
    keras_file = KerasFile(model) if is_keras(model) else None
    check_back(back, of_keras=keras_file is not None)
    if keras_file is None:
        step = training_step(opened(model, graph_options), loss, optimizer, trainable)
    else:
        graph_options.refuse(model)
        if trainable is not None:
            raise InvalidInputError("--trainable requires an ONNX model, got a file of Keras'; layers say it there")
        step = load(keras_file.step(loss, optimizer))
    trainer = Trainer(
        step,
        provider,
        initial_values=None if initial is None else feeds.read_arrays(initial)[0],
        sizes=parse_dims(dim),
        optimizer=optimizer if keras_file is None else None,
        learning_rate=learning_rate,
        clip_norm=clip_norm,
        accumulate=accumulate,
        on_nan=on_nan,
        precision=precision,
    )
    if trainer.choice is not None:
        _note(f"provider: {trainer.choice}")
    if trace_nan and workers is not None:
        raise InvalidInputError("--trace-nan requires a run in one process, got --workers; run that step without it")
    trainer.trace_nan = trace_nan
    if not (trainer.has_loss or without_loss):
        raise InvalidInputError(_no_loss(trainer))
    order = Order(batch_size, shuffle, seed)
    unread: list[str] = []
    source = open_data(
        data, Layout(trainer.data_inputs, axes, trainer.casts), padding, window=window, unread=unread.append
    )
    held_out = None if validation is None else trainer.evaluator.scoring_source(validation, padding, sample_axis=axes)
    callbacks, options = callbacks_of(
        schedule, warmup, every, factor, patience, min_delta, epochs, source.batches(order)
    )
    if tensorboard:
        if (out / "events").is_symlink():
            raise InvalidInputError(f"--tensorboard requires a folder of the run, got the link {out / 'events'}")
        callbacks.append(TensorBoard(out / "events"))
    options |= {"optimizer": optimizer, "clip_norm": clip_norm, "accumulate": accumulate, "monitor": monitor}
    options |= {} if loss is None else {"loss": loss, "trainable": trainable}
    with (
        spread(trainer, workers, address=address, reduction=reduction, sample_axis=axes) as learner,
        Fit(
            learner,
            source,
            order,
            validation=held_out,
            callbacks=[*callbacks, progress_on(console.err())],
            monitor=monitor,
            mode=mode,
            folder=out,
            options=options | {"window": window, "pad": padding.values, "buckets": list(padding.buckets)},
        ) as run,
    ):
        for text in unread:
            _note(f"not read from {text}")
        ended = _go(run, epochs, save_every, None if options["schedule"] is not None else learning_rate)
        if not fitting.is_hangup(ended):  # nobody is there to read it
            _end(run, out, finished=ended is None, plot=plot, as_json=as_json)
    if back is not None and ended is None:
        if workers is not None:
            trainer.resume(out / "checkpoint.safetensors")
        if keras_file is None:
            write_back(trainer, model, graph.checkpoint, back)
        else:
            keras_file.write(trainer, back)
    if ended is not None:
        _note("interrupted and saved; the same command continues")
        raise typer.Exit(128 + ended)


def _go(run: Fit, epochs: int, save_every: int, learning_rate: float | None) -> int | None:
    """Trains, with progress, until all epochs are done or a signal ends it, which is returned."""
    from lstm_lower.runtime.training import fitting

    assert run.run is not None
    trainer, total = run.trainer, None if run.batches is None else epochs * run.batches
    if run.run.note is not None:
        _note(run.run.note)
    if run.resumed and run.history.stopped is not None:
        _note(f"nothing to do: the run in {run.run.folder} has ended early, {run.history.stopped}")
        return None
    if run.resumed and run.progress.epoch >= epochs:
        _note(f"nothing to do: the run in {run.run.folder} has done {trainer.steps} steps; more epochs would go on")
        return None
    if run.resumed:
        _note(f"resumed at step {trainer.steps}" + ("" if total is None else f" of {total}"))
        if learning_rate is not None and learning_rate != trainer.learning_rate:
            _note(f"learning rate {learning_rate} from here on, {trainer.learning_rate} before")
            trainer.learning_rate = learning_rate
    run.callbacks.append(_watch_finite())
    with fitting.collected(fitting.ENDINGS) as caught:
        return None if run.go(epochs, save_every, lambda: bool(caught)) else caught[0]


def _end(run: Fit, out: Path, *, finished: bool, plot: bool, as_json: bool) -> None:
    """Says and draws what came of it."""
    assert run.run is not None
    losses, history, steps = run.run.losses(), run.history, run.trainer.steps
    if plot:
        from lstm_lower.cli.plots import draw_losses

        draw_losses(losses, out, history.epochs, run.batches)
    if as_json:
        best = None if history.best is None else {"epoch": history.best.epoch, run.watch.monitor: history.best.value}
        result = {"steps": steps, "finished": finished, "stopped": history.stopped, "best": best, "out": str(out)}
        console.print_json({**result, "loss": losses[-1]["loss"] if losses else None, "epochs": history.epochs})
        return
    loss = f", loss {_number(losses[-1]['loss'])}" if losses else ""
    total = "" if run.batches is None else f" of {max(steps, run.epochs * run.batches)}"
    best_text = ""
    if history.best is not None and run.watch.monitor != "loss":
        best_text = f", best {run.watch.monitor} {history.best.value:.6g} in epoch {history.best.epoch}"
    stopped = "" if history.stopped is None else f", ended early: {history.stopped}"
    console.out().print(f"step {steps}{total}{loss}{best_text}{stopped}; {out}", markup=False)


def _no_loss(trainer: Trainer) -> str:
    others = f"; its scalar outputs are {some(trainer.metrics)}" if trainer.metrics else ""
    return (
        f"train requires a step that tells its loss, in its metadata or as a scalar output 'loss', got none{others}. "
        "A TensorFlow graph is imported with it by --outputs LOSS,STEP; --without-loss trains all the same"
    )


def _require_packages(*, plot: bool) -> None:
    """Says at once what a run would miss at its first checkpoint, or at its end."""
    with needed_by("train"):
        importlib.import_module("safetensors")
        importlib.import_module("filelock")
    if plot:
        with needed_by("the plot", instead=", or --no-plot"):
            importlib.import_module("matplotlib")


def _note(text: str) -> None:
    console.err().print(text, markup=False)


def _number(loss: float | None) -> str:
    return "not a number" if loss is None else f"{loss:.6g}"


def _watch_finite() -> Any:
    """Says once that the loss is no longer finite, where the run goes on all the same."""
    from lstm_lower.runtime.training.callbacks import Callback

    class WatchFinite(Callback):
        said = False

        def after_step(self, fit: Fit, values: dict[str, float]) -> None:
            loss = values.get("loss", 0.0)
            if not self.said and not math.isfinite(loss):
                self.said = True
                what = "; its update is skipped" if fit.trainer.on_nan == "skip" else ""
                _note(f"warning: the loss is {loss} at step {fit.trainer.steps}{what}")

    return WatchFinite()
