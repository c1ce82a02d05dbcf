"""Drawing benchmark results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from benchmarks.block import Case
from benchmarks.race import Result
from lstm_lower.errors import InvalidInputError

COLOURS = {
    "lstm-lower": "#1b6ca8",
    "textbook": "#9db8cc",
    "floor": "#444444",
    "tensorflow": "#e58606",
    "pytorch": "#b5382f",
    "floor-pytorch": "#b9b9b9",
}
_NAMES = {
    "tensorflow": "TensorFlow",
    "pytorch": "PyTorch",
    "floor-pytorch": "bare products in PyTorch",
}


def draw(results: Sequence[Result], path: Path) -> None:
    """Draws time relative to the bare matrix products, a group of bars per case.

    Args:
        results: of races that the floor took part in.
        path: a .png or .svg file.

    Raises:
        InvalidInputError: matplotlib is not installed, or no result has a floor to compare with.
    """
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise InvalidInputError(
            "--plot requires matplotlib (pip install matplotlib), got an installation without it"
        ) from error
    mpl.use("agg")
    import matplotlib.pyplot as plt

    floors = {(r.case, r.threads): r.minimum for r in results if r.contestant == "floor" and r.minimum}
    cases = [key for key in dict.fromkeys((r.case, r.threads) for r in results) if key in floors]
    if not cases:
        raise InvalidInputError("--plot requires the floor among the contestants, got none")
    labels = list(dict.fromkeys((r.contestant, r.schedule) for r in results if r.contestant != "floor"))
    figure, axes = plt.subplots(figsize=(2.6 + 1.4 * len(cases), 3.4), layout="constrained")
    width = 0.8 / len(labels)
    for position, (name, schedule) in enumerate(labels):
        heights = [_ratio(results, case, name, schedule, floors[case]) for case in cases]
        places = [index + (position - (len(labels) - 1) / 2) * width for index in range(len(cases))]
        several = sum(other == name for other, _ in labels) > 1
        label = _NAMES.get(name, name) + (f", {schedule}" if several else "")
        # A logarithmic axis has no zero to stand on; the bare products are where a bar begins.
        rises = [height - 1 for height in heights]
        bars = axes.bar(places, rises, width * 0.92, bottom=1, label=label, color=COLOURS.get(name))
        texts = [f"{h:.2f}" if h < 2 else f"{h:.1f}" if math.isfinite(h) else "" for h in heights]
        axes.bar_label(bars, texts, fontsize=7, padding=1)
    axes.axhline(1.0, color=COLOURS["floor"], linewidth=0.8)
    said, titles = _labels(cases)
    axes.set_xticks(range(len(cases)), titles, fontsize=8)
    axes.set_ylabel("time / bare matrix products")
    axes.set_yscale("log")
    axes.set_yticks([0.5, 1, 2, 5, 10, 20], ["0.5", "1", "2", "5", "10", "20"])
    axes.minorticks_off()
    axes.margins(y=0.1)
    axes.spines[["top", "right"]].set_visible(False)
    if "T,B,I,H" not in said:
        axes.set_xlabel("T,B,I,H", fontsize=8)
    axes.set_title(said, fontsize=9, loc="left")
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    # Without the date and with identifiers that do not change, equal figures give equal files.
    with mpl.rc_context({"svg.hashsalt": "lstm-lower"}):
        figure.savefig(path, dpi=160, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)


def _ratio(results: Sequence[Result], case: object, name: str, schedule: str, floor: float) -> float:
    for result in results:
        if ((result.case, result.threads) == case and result.contestant == name) and result.schedule == schedule:
            return result.minimum / floor if result.minimum else math.nan
    return math.nan


def _labels(cases: Sequence[tuple[Case, int]]) -> tuple[str, list[str]]:
    """What all cases have in common, for the title, and what is left for each."""
    facts = [
        {
            "op": case.op,
            "shape": f"T,B,I,H = {','.join(map(str, case.shape))}",
            "variant": case.variant,
            "threads": f"{threads} thread{'s' if threads > 1 else ''}",
        }
        for case, threads in cases
    ]
    common = [key for key in facts[0] if len({fact[key] for fact in facts}) == 1]
    title = ", ".join(facts[0][key] for key in common)
    left = [[value.removeprefix("T,B,I,H = ") for key, value in fact.items() if key not in common] for fact in facts]
    return title, ["\n".join(texts) or facts[0]["op"] for texts in left]
