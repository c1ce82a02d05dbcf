"""Options of `lstm-lower train` about data and about what happens beside the steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from lstm_lower.cli.sources import names_of
from lstm_lower.errors import InvalidInputError

if TYPE_CHECKING:
    import onnx_ir as ir

    from lstm_lower.runtime.training.callbacks import Callback
    from lstm_lower.runtime.training.data.table import Padding

T = TypeVar("T")

Decay = Literal["constant", "cosine", "linear", "step", "plateau"]

LossOption = Annotated[
    str | None,
    typer.Option(
        "--loss",
        metavar="NAME",
        help="For a model without gradients: an output that is its loss, or a loss of its first output, such as mse or "
        "cross_entropy, which takes an input `target`.",
    ),
]
TrainableOption = Annotated[
    str | None,
    typer.Option(
        "--trainable",
        metavar="NAMES",
        help="With --loss: weights to train, names or patterns (encoder.*) separated by commas [default: all].",
    ),
]
OptimizerOption = Annotated[
    str | None, typer.Option(help="For a model without updates: sgd, momentum, adam, adamw or rmsprop.")
]
DataOption = Annotated[
    Path,
    typer.Option(
        "--data",
        help="A .npz file with an array per data input, a folder of such files or of a .npy file per input, or Parquet "
        "or Arrow files with a column per input.",
    ),
]
WindowOption = Annotated[int, typer.Option("--window", min=1, help="Shards whose samples are mixed.")]
PadOption = Annotated[
    list[str] | None, typer.Option("--pad", metavar="INPUT=VALUE", help="Pad this input's sequences with the value.")
]
LengthsOption = Annotated[
    list[str] | None,
    typer.Option("--lengths", metavar="INPUT=INPUT", help="Input that gets the lengths of another's sequences."),
]
BucketOption = Annotated[
    list[int] | None, typer.Option("--bucket", help="A length to which sequences are padded; may be repeated.")
]
AxisOption = Annotated[
    list[str] | None, typer.Option("--sample-axis", metavar="INPUT=AXIS", help="Axis of an input's samples.")
]


def training_step(
    model: Path | ir.Model, loss: str | None, optimizer: str | None, trainable: str | None
) -> Path | ir.Model:
    """The model itself, or with `--loss` the training step that `from_onnx` makes of it.

    Raises:
        InvalidModelError, InvalidInputError, UnsupportedOpError: as `from_onnx`; or one of
            the options needs another.
    """
    if loss is None:
        if trainable is not None:
            raise InvalidInputError("--trainable requires --loss, got none")
        return model
    if optimizer is None:
        raise InvalidInputError("--loss requires --optimizer, such as --optimizer adam, got none")
    from lstm_lower.onnx.importer import from_onnx
    from lstm_lower.records.model_files import load

    return from_onnx(load(model) if isinstance(model, Path) else model, loss, trainable=names_of(trainable))


def parse_named(option: str, texts: Sequence[str] | None, convert: Callable[[str], T]) -> dict[str, T]:
    """Reads options of the form NAME=VALUE.

    Raises:
        InvalidInputError: one of them is malformed.
    """
    values = {}
    for text in texts or []:
        name, equals, value = text.rpartition("=")
        malformed = InvalidInputError(f"{option} requires INPUT=VALUE, got {text!r}")
        if not equals or not name:
            raise malformed
        try:
            values[name] = convert(value)
        except ValueError as error:
            raise malformed from error
    return values


def padding_of(pad: Sequence[str] | None, lengths: Sequence[str] | None, buckets: Sequence[int] | None) -> Padding:
    """The treatment of sequences with different lengths that the options ask for."""
    from lstm_lower.runtime.training.data.table import Padding

    return Padding(
        parse_named("--pad", pad, float), parse_named("--lengths", lengths, str), tuple(sorted(buckets or ()))
    )


def callbacks_of(
    schedule: Decay,
    warmup: int,
    every: int,
    factor: float,
    patience: int | None,
    min_delta: float,
    epochs: int,
    batches: int | None,
) -> tuple[list[Callback], dict[str, Any]]:
    """Callbacks for the options, and what of these must stay the same in a run that goes on.

    Raises:
        InvalidInputError: a schedule needs the number of steps, which is not known.
    """
    from lstm_lower.runtime.training import rates
    from lstm_lower.runtime.training.callbacks import EarlyStopping, LearningRate, ReduceOnPlateau

    callbacks: list[Callback] = []
    decays: dict[str, Any] | None = None
    if schedule == "plateau":
        if warmup:
            raise InvalidInputError("--warmup requires another --schedule than plateau, got both")
        callbacks.append(ReduceOnPlateau(factor=factor, patience=every, min_delta=min_delta))
        decays = {"kind": schedule, "every": every, "factor": factor}
    elif schedule != "constant" or warmup:
        if batches is None and schedule != "constant":
            raise InvalidInputError(
                f"--schedule {schedule} requires a known number of steps per epoch, got data in buckets; "
                "--schedule plateau needs none"
            )
        total = epochs * (batches or 0)
        rate = {
            "constant": lambda: rates.constant(warmup=warmup),
            "cosine": lambda: rates.cosine(total, warmup=warmup),
            "linear": lambda: rates.linear(total, warmup=warmup),
            "step": lambda: rates.steps(every * (batches or 0), factor=factor, warmup=warmup),
        }[schedule]()
        callbacks.append(LearningRate(rate))
        ends = {"steps": total} if schedule in ("cosine", "linear") else {}
        parameters = {"every": every, "factor": factor} if schedule == "step" else ends
        decays = {"kind": schedule, "warmup": warmup, **parameters}
    if patience is not None:
        callbacks.append(EarlyStopping(patience, min_delta=min_delta, restore_best=False))
    return callbacks, {"schedule": decays, "patience": patience, "min_delta": min_delta}
