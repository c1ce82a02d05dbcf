"""Drawing benchmark results: a panel per case, a bar per contestant, a line where the matrix products alone are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.block import Case
from benchmarks.race import Result
from lstm_lower.errors import InvalidInputError
from lstm_lower.pictures import BLUE, GREEN, GREY, INK, ORANGE, PALE, PAPER, RED, picture

if TYPE_CHECKING:
    from lstm_lower.pictures import Axes

COLUMNS = 2
_COLOURS = {"lstm-lower": BLUE, "textbook": PALE, "tensorflow": ORANGE, "pytorch": RED}
_NAMES = {
    "textbook": "unoptimised",
    "tensorflow": "TensorFlow",
    "pytorch": "PyTorch",
    "torch-compile": "torch.compile",
    "autocast": "torch.autocast",
    "openvino-bfloat16": "on OpenVINO, bfloat16",
}
_OPS = {
    "BlockLSTM": "Forward pass of an LSTM",
    "BlockLSTMGrad": "Gradient of an LSTM",
    "CudnnRNN": "Forward pass and gradient",
    "CudnnRNNBackprop": "Gradient",
}
VARIANTS = {
    "plain": "",
    "peephole": "with peepholes",
    "v2": "version 2 of the op",
    "half": "float16",
    "short": "9/10 of the steps",
    "dynamic": "open sizes",
    "vanishing": "gradient at the last step only",
    "lstm": "LSTM",
    "gru": "GRU",
    "lstm-2x2": "LSTM, 2 layers, 2 directions",
    "gru-2x2": "GRU, 2 layers, 2 directions",
    "mlp": "MLP",
    "cnn": "CNN",
    "transformer": "Transformer",
}


def draw(results: Sequence[Result], path: Path) -> None:
    """Draws milliseconds: bars end at the fastest run, a thin line goes on to the median.

    Args:
        results: of races.
        path: a .png or .svg file.

    Raises:
        InvalidInputError: nothing was timed.
        MissingPackageError: matplotlib is not installed.
    """
    timed = [result for result in results if result.minimum]
    cases = list(dict.fromkeys((result.case, result.threads) for result in timed))
    if not cases:
        raise InvalidInputError("--plot requires a contestant that was timed, got none")
    labels = list(dict.fromkeys((r.contestant, r.schedule) for r in timed if not r.contestant.startswith("floor")))
    lines = -(-(len(cases) + 1) // COLUMNS)
    rows = 1 + max(_title(case, cases).count("\n") for case, _ in cases)
    with picture(path, height=0.5 + lines * (0.53 + 0.17 * rows + 0.21 * len(labels))) as figure:
        panels = list(figure.subplots(lines, COLUMNS, squeeze=False).flat)
        for axes, (case, threads) in zip(panels, cases, strict=False):
            found = [result for result in timed if (result.case, result.threads) == (case, threads)]
            _panel(axes, found, labels, _title(case, cases))
        first, *others = panels[len(cases) :]
        _legend(first, any(result.contestant == "floor" for result in timed))
        for axes in others:
            axes.set_axis_off()
        figure.suptitle(_common(cases), x=0.01, ha="left", fontsize=11, color=INK)


def draw_steps(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draws milliseconds of training steps in JavaScript, a panel per model, on logarithmic scales.

    Args:
        rows: figures of `benchmarks.web`.
        path: a .png or .svg file.

    Raises:
        MissingPackageError: matplotlib is not installed.
    """
    models = list(dict.fromkeys(row["model"] for row in rows))
    labels = list(dict.fromkeys(map(_step_label, rows)))
    with picture(path, height=1.0 + 0.21 * len(labels)) as figure:
        panels = figure.subplots(1, len(models), squeeze=False, sharey=True)[0]
        for axes, model in zip(panels, models, strict=True):
            _steps(axes, {_step_label(row): row for row in rows if row["model"] == model}, labels)
            axes.set_title(model, fontsize=9, color=INK)
        title = "A training step of 32 samples: milliseconds, lower is better, logarithmic scale"
        figure.suptitle(title, x=0.01, ha="left", fontsize=11, color=INK)


def _step_label(row: Mapping[str, Any]) -> str:
    return f"{row['place']}: {row['name']}, {row['threads']} thread{'s' if row['threads'] > 1 else ''}"


def _steps(axes: Axes, rows: Mapping[str, Mapping[str, Any]], labels: Sequence[str]) -> None:
    times = [row["minimum_ms"] for row in rows.values() if "minimum_ms" in row]
    axes.set_xscale("log")
    axes.set_xlim(min(times) / 2, 4 * max(times))
    for place, label in enumerate(labels):
        row = rows.get(label, {})
        if "minimum_ms" in row:
            axes.barh(place, row["minimum_ms"], height=0.7, color=BLUE if "lstm-lower" in label else ORANGE)
        text = _digits(row["minimum_ms"]) if "minimum_ms" in row else "refused"
        at = (row.get("minimum_ms", min(times) / 2), place)
        axes.annotate(text, at, (4, 0), textcoords="offset points", va="center", fontsize=9)
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.grid(visible=False)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_visible(False)
    axes.spines["bottom"].set_visible(False)


def _panel(axes: Axes, found: Sequence[Result], labels: Sequence[tuple[str, str]], title: str) -> None:
    """One case."""
    times = {(result.contestant, result.schedule): result for result in found}
    floor = next((result.minimum for result in found if result.contestant == "floor"), None)
    several = len({name for name, _ in labels}) < len(labels)
    names = []
    for place, (contestant, schedule) in enumerate(labels):
        name = _NAMES.get(contestant, contestant) + (f", {schedule}" if several and schedule else "")
        names.append(name)
        result = times.get((contestant, schedule))
        if result is None or result.minimum is None:
            continue
        least, middle = 1e3 * result.minimum, 1e3 * (result.median or result.minimum)
        axes.barh(place, least, height=0.7, color=_COLOURS.get(contestant, GREEN))
        axes.plot([least, middle], [place, place], color=INK, linewidth=1)
        # A label hides the line of the products where it would cross it.
        box = {"facecolor": PAPER, "edgecolor": "none", "pad": 0.5}
        at = (middle, place)
        axes.annotate(_digits(least), at, (4, 0), textcoords="offset points", va="center", fontsize=9, bbox=box)
    if floor is not None:
        axes.axvline(1e3 * floor, color=INK, linewidth=1, linestyle=(0, (3, 2)), zorder=1.5)
    axes.set_yticks(range(len(labels)), names)
    axes.set_title(title, fontsize=9, color=INK)
    axes.invert_yaxis()
    axes.grid(visible=False)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_visible(False)
    axes.spines["bottom"].set_visible(False)
    axes.set_xlim(0, 1.16 * axes.get_xlim()[1])


def _legend(axes: Axes, floor: bool) -> None:
    """How to read the panels, in the place of one."""
    lines = ["Bar: fastest run. Thin line: up to the median."]
    if floor:
        lines += ["Dashed: the bare matrix products in onnxruntime.", "Others compute them in libraries of their own."]
    axes.text(0, 0.95, "\n".join(lines), va="top", fontsize=9, color=GREY, linespacing=1.5, transform=axes.transAxes)
    axes.set_axis_off()


def _digits(milliseconds: float) -> str:
    """Three digits that count."""
    return f"{milliseconds:.{max(0, 2 - math.floor(math.log10(milliseconds)))}f}"


def _title(case: Case, cases: Sequence[tuple[Case, int]]) -> str:
    """What distinguishes a case from the others, in words."""
    parts = [VARIANTS.get(case.variant, case.variant)] if len({other.variant for other, _ in cases}) > 1 else []
    if len({other.shape for other, _ in cases}) > 1:
        parts.append(shape_in_words(case.shape))
    return "\n".join(part for part in parts if part) or "plain"


def shape_in_words(shape: Sequence[int]) -> str:
    """T, B, I, H as somebody says them who has data."""
    steps, batch, inputs, units = shape
    sequences = "1 sequence" if batch == 1 else f"{batch} sequences"
    size = f"{inputs} inputs and units" if inputs == units else f"{inputs} inputs, {units} units"
    return f"{sequences} of {steps} steps, {size}"


def _common(cases: Sequence[tuple[Case, int]]) -> str:
    """What all cases share, and what is drawn."""
    ops = dict.fromkeys(_OPS.get(case.op, case.op) for case, _ in cases)
    threads = dict.fromkeys(f"{count} thread{'s' if count > 1 else ''}" for _, count in cases)
    words = [" and ".join(ops), " and ".join(threads)]
    first = cases[0][0]
    if len(cases) > 1 and len({case.variant for case, _ in cases}) == 1 and VARIANTS.get(first.variant):
        words.insert(0, VARIANTS[first.variant])
    if len(cases) > 1 and len({case.shape for case, _ in cases}) == 1:
        words.append(shape_in_words(first.shape))
    return f"{', '.join(words)}: milliseconds, lower is better"
