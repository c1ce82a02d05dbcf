"""Drawing benchmark results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from lstm_lower.errors import InvalidInputError
from lstm_lower.runtime.bench import Result

COLOURS = {
    "lstm-lower": "#1b6ca8",
    "textbook": "#9db8cc",
    "floor": "#444444",
    "tensorflow": "#e58606",
    "pytorch": "#b5382f",
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
        raise InvalidInputError("--plot requires matplotlib, got an installation without it") from error
    mpl.use("agg")
    import matplotlib.pyplot as plt

    floors = {(r.case, r.threads): r.minimum for r in results if r.contestant == "floor" and r.minimum}
    cases = [key for key in dict.fromkeys((r.case, r.threads) for r in results) if key in floors]
    if not cases:
        raise InvalidInputError("--plot requires the floor among the contestants, got none")
    labels = list(dict.fromkeys((r.contestant, r.schedule) for r in results if r.contestant != "floor"))
    figure, axes = plt.subplots(figsize=(1.6 + 1.5 * len(cases), 3.6), layout="constrained")
    width = 0.8 / len(labels)
    for position, (name, schedule) in enumerate(labels):
        heights = [_ratio(results, case, name, schedule, floors[case]) for case in cases]
        places = [index + (position - (len(labels) - 1) / 2) * width for index in range(len(cases))]
        several = sum(other == name for other, _ in labels) > 1
        label = f"{name} ({schedule})" if several else name
        bars = axes.bar(places, heights, width * 0.92, label=label, color=COLOURS.get(name))
        axes.bar_label(bars, [f"{h:.1f}" if math.isfinite(h) else "" for h in heights], fontsize=7, padding=1)
    axes.axhline(1.0, color=COLOURS["floor"], linewidth=0.8)
    axes.set_xticks(range(len(cases)), [_label(case, threads) for case, threads in cases], fontsize=8)
    axes.set_ylabel("time / bare matrix products")
    axes.set_yscale("log")
    axes.set_yticks([1, 2, 5, 10, 20], ["1", "2", "5", "10", "20"])
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, ncols=len(labels), loc="upper center", bbox_to_anchor=(0.5, 1.16))
    figure.savefig(path, dpi=160)
    plt.close(figure)


def _ratio(results: Sequence[Result], case: object, name: str, schedule: str, floor: float) -> float:
    for result in results:
        if ((result.case, result.threads) == case and result.contestant == name) and result.schedule == schedule:
            return result.minimum / floor if result.minimum else math.nan
    return math.nan


def _label(case: object, threads: int) -> str:
    from lstm_lower.runtime.bench_cases import Case

    assert isinstance(case, Case)
    return f"{','.join(map(str, case.shape))}\n{case.variant}, {threads} threads"
