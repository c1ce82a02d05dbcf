"""`python -m benchmarks tables`: tables and pictures' places in the pages, from the figures in `results/`.

A page says where: everything between `<!-- table NAME -->` and `<!-- end of table -->` is made of `results/NAME.json`;
a picture `docs/images/bench_NAME.svg`, where there is one, stands above the table.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.processes import ROOT

RESULTS = ROOT / "benchmarks" / "results"
PICTURES = ROOT / "docs" / "images"
PAGES = (ROOT / "README.md", ROOT / "docs" / "benchmarks.md")
FLOOR = "floor"
NAMES = {
    "tensorflow": "TensorFlow",
    "pytorch": "PyTorch",
    "floor-pytorch": "floor in PyTorch",
    "floor-sequential": "its floor",
    "torch-compile": "torch.compile",
}
# Compared with the first contestant: those that somebody would use in its place, and the floor.
COMPARED = (FLOOR, "TensorFlow", "PyTorch", "sequential")
_PLACE = re.compile(r"(<!-- table (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)

Row = Mapping[str, Any]


def number(value: float | None) -> str:
    """Three digits that count; a dash for what was not measured."""
    if value is None or not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    return f"{value:.0f}" if value >= 99.5 else f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown; the first column is text, the others are numbers."""
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def label(row: Row) -> str:
    """A contestant's column."""
    contestant: str = row["contestant"]
    name = NAMES.get(contestant, contestant)
    return f"{name}, {row['schedule']}" if row["schedule"] not in ("", "auto") else name


def times(data: Mapping[str, Any]) -> str:
    """Milliseconds of all contestants, a row per case, and how the first one compares with the others."""
    cases: dict[tuple[Any, ...], dict[str, float | None]] = {}
    for row in data["results"]:
        key = (row["op"], tuple(row["shape"]), row["variant"], row["threads"])
        cases.setdefault(key, {})[label(row)] = row["minimum_s"]
    contestants = list(dict.fromkeys(label(row) for row in data["results"]))
    ours, others = contestants[0], [name for name in contestants[1:] if name in COMPARED]
    variants, threads = ({key[place] for key in cases} for place in (2, 3))
    rows = []
    for (_, shape, variant, count), found in cases.items():
        first = ", ".join(map(str, shape))
        first += f", {variant}" if len(variants) > 1 else ""
        first += f", {count} threads" if len(threads) > 1 else ""
        cells = [number(None if (s := found.get(name)) is None else 1e3 * s) for name in contestants]
        rows.append([first, *cells, *(number(_ratio(found.get(name), found.get(ours), name)) for name in others)])
    ratios = [f"ours / {name}" if name == FLOOR else f"{name} / ours" for name in others]
    return table(["T, B, I, H", *(f"{name} ms" for name in contestants), *ratios], rows)


def _ratio(other: float | None, ours: float | None, name: str) -> float | None:
    """How many times as fast as another one we are; of the floor, how far above it."""
    if other is None or ours is None:
        return None
    return ours / other if name == FLOOR else other / ours


def memory(data: Mapping[str, Any]) -> str:
    """Memory beyond the inputs, and the time beside it."""
    rows = [
        [label(row), number(row["memory_bytes"] / 1e6), number(None if (s := row["minimum_s"]) is None else 1e3 * s)]
        for row in data["results"]
        if row["memory_bytes"] is not None
    ]
    return table(["contestant", "memory MB", "time ms"], rows)


def lowering(data: Mapping[str, Any]) -> str:
    """How long lowering itself takes."""
    found = data["results"]
    rows = [
        ["lower", f"{found['lower_s']:.2f} s"],
        ["lower and optimise", f"{found['lower_and_optimize_s']:.2f} s"],
        ["the same with protobuf in and out", f"{found['protobuf_s']:.2f} s"],
        ["peak memory of the last", f"{found['peak_mb']:.0f} MB"],
    ]
    nodes = f"{found['nodes']:,} nodes, {found['composites']:,} recurrent, {found['nodes_after']:,} nodes after"
    return table([nodes, ""], rows)


def trainer(data: Mapping[str, Any]) -> str:
    """A trainer's step over the bare call of the same graph."""
    rows = [[str(row["batch"]), f"{row['ratio']:.3f}"] for row in data["results"]]
    return table(["batch", "trainer step / bare run"], rows)


def steps(data: Mapping[str, Any]) -> str:
    """Each contestant's training step, and how many times as long as ours it takes; or why there is none."""
    rows = []
    for row in data["results"]:
        ours = next(first for first in data["results"] if first["variant"] == row["variant"])["minimum_s"]
        what = f"{row['variant'].upper()}, {label(row)}"
        if row["minimum_s"] is None:
            rows.append([what, "–", "–", row["absence"]])
            continue
        rows.append([what, *(number(1e3 * row[f"{kind}_s"]) for kind in ("minimum", "median"))])
        rows[-1].append(number(row["minimum_s"] / ours))
    return table(["step", "minimum ms", "median ms", "minimum / ours"], rows)


def gradient(data: Mapping[str, Any]) -> str:
    """How long differentiation itself takes."""
    rows = [
        [f"{row['nodes']:,}", f"{row['nodes_after']:,}", f"{row['weights']:,}", f"{row['seconds']:.2f}"]
        for row in data["results"]
    ]
    return table(["nodes", "nodes after", "weights", "seconds"], rows)


KINDS = {"memory": memory, "lowering": lowering, "trainer": trainer, "torch": steps, "gradient": gradient}


def caption(data: Mapping[str, Any]) -> str:
    """What was run and where, and what else must be known of figures that `pages` did not write."""
    note = f" {data['note']}" if "note" in data else ""
    versions = ", ".join(f"{name} {version}" for name, version in data["machine"]["versions"].items())
    return f"`{data['command']}` on {data['machine']['processor']}, {data['machine']['cpus']} CPUs; {versions}.{note}\n"


def section(name: str, page: Path) -> str:
    """What stands between the marks of a page."""
    figures, picture = RESULTS / f"{name}.json", PICTURES / f"bench_{name}.svg"
    if not figures.is_file():
        return f"Not measured yet: `python -m benchmarks pages {name}`.\n"
    data = json.loads(figures.read_text(encoding="utf-8"))
    shown = ""
    if picture.is_file():
        place = os.path.relpath(picture, page.parent)
        shown = f"![time over the bare matrix products: {name.replace('_', ' ')}]({place})\n\n"
    return f"{shown}{KINDS.get(name, times)(data)}\n{caption(data)}"


def filled(page: Path) -> str:
    """A page's text with its tables made anew."""
    return _PLACE.sub(
        lambda match: f"{match[1]}\n{section(match[2], page)}{match[3]}", page.read_text(encoding="utf-8")
    )


def write() -> None:
    """Writes the tables of all pages."""
    for page in PAGES:
        page.write_text(filled(page), encoding="utf-8")


def tables(
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; fail where a table is not its figures'.")
    ] = False,
) -> None:
    """Write the pages' tables from the figures that are there."""
    if not check:
        write()
        return
    for path in PAGES:
        if path.read_text(encoding="utf-8") != filled(path):
            sys.exit(f"{path.relative_to(ROOT)}: a table is out of date, run python -m benchmarks tables")
