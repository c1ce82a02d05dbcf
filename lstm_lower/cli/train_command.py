"""`lstm-lower train`: train a model in onnxruntime."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from lstm_lower.cli import console
from lstm_lower.cli.options import ModelArgument, ProviderOption


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
    plot: Annotated[bool, typer.Option(help="Draw the loss into loss.png and loss.svg.")] = True,
    provider: ProviderOption = None,
) -> None:
    """Train a model that holds one training step.

    The folder gets checkpoint.safetensors, metrics.jsonl (a line per step) and a plot of the loss. Run the command
    again to go on after an interruption; Ctrl-C saves first.
    """
    with console.errors():
        from lstm_lower.runtime import feeds
        from lstm_lower.runtime.trainer import Trainer
        from lstm_lower.runtime.training_run import Plan, Run, Samples

        arrays, _ = feeds.read_arrays(data)
        trainer = Trainer(
            model,
            provider,
            initial_values=None if initial is None else feeds.read_arrays(initial)[0],
            optimizer=optimizer,
            learning_rate=learning_rate,
            clip_norm=clip_norm,
            accumulate=accumulate,
        )
        run = Run(trainer, Samples(trainer, arrays), out, Plan(batch_size, seed, shuffle))
        total = epochs * run.steps_per_epoch
        if run.resumed:
            console.err().print(f"resumed at step {trainer.steps} of {total}")
        with _stop_on_signal() as stopped, _progress(total, trainer.steps) as report:
            finished = run.go(epochs, save_every, lambda: bool(stopped), report)
        if plot:
            from lstm_lower.cli.loss_plot import draw

            draw(run.losses(), out)
        last = run.losses()[-1:]
        loss = f", loss {last[0]['loss']:.6g}" if last else ""
        console.out().print(f"step {trainer.steps} of {total}{loss}; {out}")
        if not finished:
            console.err().print("interrupted and saved; the same command goes on")
            raise typer.Exit(130)


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
def _progress(total: int, done: int) -> Iterator[Any]:
    """A progress bar with loss, speed and the time that is left."""
    from rich import progress

    columns = (
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TextColumn("loss {task.fields[loss]:.4f}  {task.fields[speed]:.1f} steps/s"),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=console.err(), disable=not console.err().is_terminal) as bar:
        task = bar.add_task("train", total=total, completed=done, loss=float("nan"), speed=0.0)

        def report(loss: float) -> None:
            bar.update(task, advance=1, loss=loss, speed=bar.tasks[task].speed or 0.0)

        yield report
