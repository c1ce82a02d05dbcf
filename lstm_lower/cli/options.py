"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lstm_lower import arguments
from lstm_lower.errors import InvalidInputError

ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="A model.")]
OpsetOption = Annotated[
    int | None, typer.Option("--opset", help="ai.onnx version of the result [default: the model's own, at least 13].")
]
ScheduleOption = Annotated[str, typer.Option("--schedule", help="How loops run: auto, scan, unroll or chunk:K.")]
RepairOption = Annotated[
    bool,
    typer.Option("--repair-v2-gradient", help="Lower a BlockLSTMGrad that a BlockLSTMV2 feeds as BlockLSTMGradV2."),
]
InputsOption = Annotated[
    Path | None, typer.Option("--inputs", "--data", "-i", help="Feeds in a .npz file [default: random ones].")
]
DimOption = Annotated[
    list[str] | None,
    typer.Option("--dim", metavar="NAME=SIZE", help="Open size of random feeds, by its name or place (x.2)."),
]
TargetOption = Annotated[
    str | None,
    typer.Option(
        "--target",
        help="Runtime that the result is for: cuda, cuda-graph, openvino, ggml, webgpu, webgpu-web, tensorrt, rocm, "
        "directml or coreml [default: processors; runs on any].",
    ),
]
SizeOption = Annotated[
    list[str] | None, typer.Option("--dim", metavar="NAME=SIZE", help="Fix an open size, by its name or place (x.2).")
]
StateSizeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--dim",
        metavar="NAME=SIZE",
        help="Open size of the state, such as classes=5 for a head whose class count is open.",
    ),
]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Seed of random feeds.")]
ProviderOption = Annotated[
    list[str] | None,
    typer.Option(
        "--provider",
        "-p",
        help="Execution provider, such as cpu, cuda, openvino, ggml, webgpu; may be repeated. For run and train also "
        "fastest, which measures those that are installed.",
    ),
]
PrecisionOption = Annotated[
    str | None,
    typer.Option("--precision", help="Precision of the provider's arithmetic, such as bfloat16 [default: float32]."),
]


def parse_dims(dims: list[str] | None) -> dict[str, int]:
    """Reads `--dim NAME=SIZE` options.

    Raises:
        InvalidInputError: one of them is malformed.
    """
    sizes: dict[str, int] = {}
    for text in dims or []:
        name, _, digits = text.rpartition("=")
        size = arguments.size(digits)
        if not name or size is None:
            raise InvalidInputError(f"--dim requires NAME=SIZE, got {text!r}")
        if sizes.setdefault(name, size) != size:
            raise InvalidInputError(f"--dim requires one size of '{name}', got {sizes[name]} and {size}")
    return sizes
