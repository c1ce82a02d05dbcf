"""`lstm-lower train`: train a model in onnxruntime."""

from __future__ import annotations

import contextlib
import importlib
import math
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from lstm_lower.cli import console
from lstm_lower.cli.options import ModelArgument, PluginOption, ProviderOption
from lstm_lower.extras import needed_by

if TYPE_CHECKING:
    from lstm_lower.runtime.training.run import Run
    from lstm_lower.runtime.training.trainer import Trainer

# Called with epoch and loss after every step.
Report = Callable[[int, float], None]


def train(
    model: ModelArgument,
    data: Annotated[Path, typer.Option("--data", help="A .npz file with an array per data input.", show_default=False)],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The run's folder; a run there goes on.", show_default=False)
    ],
    epochs: Annotated[int, typer.Option("--epochs", min=1, help="Passes over the data, from the run's start.")] = 1,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, help="Samples per step.")] = 32,
    optimizer: Annotated[
        str | None, typer.Option(help="For a model without updates: sgd, momentum, adam, adamw or rmsprop.")
    ] = None,
    learning_rate: Annotated[float | None, typer.Option(help="In place of the model's own.")] = None,
    clip_norm: Annotated[float | None, typer.Option(help="Limit of the norm of all gradients together.")] = None,
    accumulate: Annotated[int, typer.Option(min=1, help="Steps whose gradients make one update.")] = 1,
    initial: Annotated[
        Path | None, typer.Option("--initial", help="A .npz file with initial values of the state.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the order of samples.")] = 0,
    shuffle: Annotated[bool, typer.Option(help="Change the order in every epoch.")] = True,
    save_every: Annotated[int, typer.Option("--save-every", min=1, help="Steps between checkpoints.")] = 100,
    on_nan: Annotated[
        Literal["stop", "skip", "ignore"],
        typer.Option("--on-nan", help="What becomes of a step whose loss is no finite number: stop, skip or ignore."),
    ] = "stop",
    plot: Annotated[bool, typer.Option(help="Draw the loss into loss.png and loss.svg.")] = True,
    provider: ProviderOption = None,
    plugin: PluginOption = None,
) -> None:
    """Train a model that holds one training step.

    The folder gets checkpoint.safetensors, metrics.jsonl (a line per step) and a plot of the loss. Run the command
    again to go on after an interruption; Ctrl-C saves first.
    """
    with console.errors(plugins=plugin):
        from lstm_lower.runtime import feeds
        from lstm_lower.runtime.training.run import Plan, Run, Samples
        from lstm_lower.runtime.training.trainer import Trainer

        _require_packages(plot=plot)
        arrays, _ = feeds.read_arrays(data)
        trainer = Trainer(
            model,
            provider,
            initial_values=None if initial is None else feeds.read_arrays(initial)[0],
            optimizer=optimizer,
            learning_rate=learning_rate,
            clip_norm=clip_norm,
            accumulate=accumulate,
            on_nan=on_nan,
        )
        samples = Samples(trainer, arrays)
        options = {"optimizer": optimizer, "clip_norm": clip_norm, "accumulate": accumulate}
        with Run(trainer, samples, out, Plan(batch_size, seed, shuffle, options)) as run:
            unread = sorted(set(arrays) - set(trainer.inputs))
            if unread:
                _note(f"not read from {data}: {', '.join(unread)}")
            finished = _go(run, epochs, save_every, learning_rate)
            losses = run.losses()
            if plot:
                from lstm_lower.cli.loss_plot import draw

                draw(losses, out)
        loss = f", loss {_number(losses[-1]['loss'])}" if losses else ""
        total = max(trainer.steps, epochs * run.steps_per_epoch)
        console.out().print(f"step {trainer.steps} of {total}{loss}; {out}")
        if not finished:
            _note("interrupted and saved; the same command goes on")
            raise typer.Exit(130)


def _go(run: Run, epochs: int, save_every: int, learning_rate: float | None) -> bool:
    """Trains, with progress, until all epochs are done or somebody interrupts; whether all are done."""
    trainer, total = run.trainer, epochs * run.steps_per_epoch
    if run.resumed and trainer.steps >= total:
        _note(f"nothing to do: the run in {run.folder} has done {trainer.steps} steps; more epochs would go on")
        return True
    if run.resumed:
        _note(f"resumed at step {trainer.steps} of {total}")
        if learning_rate is not None and learning_rate != trainer.learning_rate:
            _note(f"learning rate {learning_rate} from here on, {trainer.learning_rate} before")
            trainer.learning_rate = learning_rate
    with _stop_on_signal() as stopped, _progress(total, trainer.steps, epochs) as report:
        return run.go(epochs, save_every, lambda: bool(stopped), _watched(trainer, report))


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


def _watched(trainer: Trainer, report: Report) -> Report:
    """Says once that the loss is no longer finite, where the run goes on all the same."""
    said = False

    def watch(epoch: int, loss: float) -> None:
        nonlocal said
        if not said and not math.isfinite(loss) and trainer.state.loss is not None:
            said = True
            what = "; its update is left out" if trainer.on_nan == "skip" else ""
            _note(f"warning: the loss is {loss} at step {trainer.steps}{what}")
        report(epoch, loss)

    return watch


@contextlib.contextmanager
def _stop_on_signal() -> Iterator[list[int]]:
    """Collects the first Ctrl-C or termination, so that the step can end; the next one ends the program."""
    caught: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def stop(number: int, _: Any) -> None:
        caught.append(number)
        signal.signal(number, before[signal.Signals(number)])

    for number in before:
        signal.signal(number, stop)
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _progress(total: int, done: int, epochs: int) -> Iterator[Report]:
    """A progress bar with loss, speed and the time that is left; where there is no terminal, a line per epoch."""
    if not console.err().is_terminal:
        yield _lines(total, done, epochs)
        return
    from rich import progress

    columns = (
        progress.TextColumn("epoch {task.fields[epoch]} of {task.fields[epochs]}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TextColumn("loss {task.fields[loss]:.4g}  {task.fields[speed]:.1f} steps/s"),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=console.err()) as bar:
        fields: dict[str, Any] = {
            "epoch": epochs * done // max(1, total) + 1,
            "epochs": epochs,
            "loss": math.nan,
            "speed": 0.0,
        }
        task = bar.add_task("train", total=total, completed=done, **fields)

        def report(epoch: int, loss: float) -> None:
            bar.update(task, advance=1, epoch=epoch + 1, loss=loss, speed=bar.tasks[task].speed or 0.0)

        yield report


def _lines(total: int, done: int, epochs: int) -> Report:
    """Writes a line at the end of every epoch: the mean of its losses, and the speed."""
    per_epoch = total // epochs
    losses: list[float] = []
    step, since = done, time.monotonic()

    def report(epoch: int, loss: float) -> None:
        nonlocal step, since
        step += 1
        losses.append(loss)
        if step % per_epoch == 0:
            now = time.monotonic()
            speed = len(losses) / max(now - since, 1e-9)
            mean = sum(losses) / len(losses)
            _note(f"epoch {epoch + 1} of {epochs}: step {step} of {total}, mean loss {mean:.4g}, {speed:.1f} steps/s")
            losses.clear()
            since = now

    return report
