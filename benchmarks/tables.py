"""`python -m benchmarks tables`: the pages' tables and pictures, made from the figures in `results/`.

`results/MAKER/NAME.json` are figures of a machine with a processor of that maker; those of several makers are shown one
below the other. A page says where: between `<!-- table NAME -->` and `<!-- end of table -->`. A race is also drawn, as
`docs/images/bench_NAME.svg`. The README has the picture alone.
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

from benchmarks import plot
from benchmarks.block import Case
from benchmarks.processes import ROOT
from benchmarks.race import Result
from benchmarks.torch_import import COLUMNS, cells

RESULTS = ROOT / "benchmarks" / "results"
PICTURES = ROOT / "docs" / "images"
README = ROOT / "README.md"
PAGES = (README, *(ROOT / "docs" / f"{name}.md" for name in ("benchmarks", "javascript", "providers")))
FLOOR = "bare products"
NAMES = {
    "openvino": "lstm-lower on OpenVINO",
    "openvino-bfloat16": "lstm-lower on OpenVINO, bfloat16",
    "tensorflow": "TensorFlow",
    "pytorch": "PyTorch",
    "autocast": "torch.autocast",
    "textbook": "unoptimised",
    "floor": FLOOR,
    "floor-pytorch": "bare products in PyTorch",
    "floor-sequential": "bare products of sequential",
    "torch-compile": "torch.compile",
}
# Compared with the first contestant: those that somebody would use in its place, and the floor.
# Whose runs differ much: the median stands beside the minimum.
VARYING = ("TensorFlow",)
COMPARED = (FLOOR, "TensorFlow", "PyTorch", "sequential")
# Pictures are drawn of these.
DRAWN = ("backward", "backward_1", "forward", "variants", "cudnn", "web")
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
    """Milliseconds of who took part, a row per case, and how the first contestant compares with the others."""
    cases = by_case(data)
    contestants = list(dict.fromkeys(label(row) for row in data["results"] if row["minimum_s"] is not None))
    ours, others = contestants[0], [name for name in contestants[1:] if name in COMPARED]
    variants, threads = ({key[place] for key in cases} for place in (2, 3))
    rows = []
    for (_, shape, variant, count), kinds in cases.items():
        found, medians = kinds["minimum_s"], kinds["median_s"]
        first = ",\N{NO-BREAK SPACE}".join(map(str, shape))
        first += f", {variant}" if len(variants) > 1 else ""
        first += f", {count} threads" if len(threads) > 1 else ""
        cells = [
            cell
            for name in contestants
            for cell in (milliseconds(found.get(name)), milliseconds(medians.get(name)))[: 1 + (name in VARYING)]
        ]
        rows.append([first, *cells, *(number(_ratio(found.get(name), found.get(ours), name)) for name in others)])
    ratios = [f"ours / {name}" if name == FLOOR else f"{name} / ours" for name in others]
    heads = [text for name in contestants for text in (f"{name} ms", f"{name} median ms")[: 1 + (name in VARYING)]]
    return table(["T, B, I, H", *heads, *ratios], rows)


def by_case(data: Mapping[str, Any]) -> dict[tuple[Any, ...], dict[str, dict[str, float | None]]]:
    """Op, shape, variant and threads -> `minimum_s` and `median_s` -> contestant's column -> seconds."""
    cases: dict[tuple[Any, ...], dict[str, dict[str, float | None]]] = {}
    for row in data["results"]:
        key = (row["op"], tuple(row["shape"]), row["variant"], row["threads"])
        kinds = cases.setdefault(key, {"minimum_s": {}, "median_s": {}})
        for kind, found in kinds.items():
            found[label(row)] = row[kind]
    return cases


def milliseconds(seconds: float | None) -> str:
    """A time in a cell."""
    return number(None if seconds is None else 1e3 * seconds)


def _ratio(other: float | None, ours: float | None, name: str) -> float | None:
    """How many times as fast as another one we are; of the floor, how far above it."""
    if other is None or ours is None:
        return None
    return ours / other if name == FLOOR else other / ours


def memory(data: Mapping[str, Any]) -> str:
    """Memory beyond the inputs, and the time beside it."""
    rows = [
        [label(row), number(row["memory_bytes"] / 1e6), milliseconds(row["minimum_s"])]
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
        what = f"{plot.VARIANTS[row['variant']]}, {label(row)}"
        if row["minimum_s"] is None:
            rows.append([what, "–", "–", row["absence"]])
            continue
        rows.append([what, *(milliseconds(row[f"{kind}_s"]) for kind in ("minimum", "median"))])
        rows[-1].append(number(row["minimum_s"] / ours))
    return table(["step", "minimum ms", "median ms", "minimum / ours"], rows)


# Steps at which the losses of a training are told.
_TOLD = (1, 10, 30, 100, 300)


def curves(data: Mapping[str, Any]) -> str:
    """Losses of each contestant after some steps: means of the last ten, or of all up to there."""
    last = max(len(row["losses"]) for row in data["results"])
    told = [step for step in _TOLD if step <= last]
    rows = []
    reasons: dict[str, int] = {}
    for row in data["results"]:
        name = f"{plot.VARIANTS[row['variant']]}, {label({**row, 'schedule': ''})}"
        if row["absence"] is not None:
            name += f" ({reasons.setdefault(row['absence'], len(reasons) + 1)})"
        losses = [row["losses"][max(0, step - 10) : step] for step in told]
        rows.append([name, *(f"{sum(some) / len(some):.3f}" if some else "–" for some in losses)])
    return table(["training", *(f"loss at {step}" for step in told)], rows) + _footnotes(reasons)


def gradient(data: Mapping[str, Any]) -> str:
    """How long differentiation itself takes."""
    rows = [
        [f"{row['nodes']:,}", f"{row['nodes_after']:,}", f"{row['weights']:,}", f"{row['seconds']:.2f}"]
        for row in data["results"]
    ]
    return table(["nodes", "nodes after", "weights", "seconds"], rows)


def importing(data: Mapping[str, Any]) -> str:
    """How long an import takes, phase by phase, beside tf2onnx."""
    phases = ("read_s", "structure_s", "translate_s", "finish_s", "import_s", "tf2onnx_s")
    rows = [
        [f"{row['nodes']:,}", *(number(row[phase]) for phase in phases), f"{row['import_peak_mb']:.0f}"]
        for row in data["results"]
    ]
    titles = ["read", "structure", "translate", "complete, verify, check", "import", "tf2onnx", "peak memory, MB"]
    return table(["nodes", *titles], rows)


def torch_import(data: Mapping[str, Any]) -> str:
    """What `from_torch` takes beside PyTorch's export."""
    return table(COLUMNS, [cells(row) for row in data["results"]])


def providers(data: Mapping[str, Any]) -> str:
    """What each provider makes of each model, a row per provider and schedule; reasons are below the table."""
    models = list(dict.fromkeys(row["model"] for row in data["results"]))
    rows: dict[tuple[str, str], dict[str, str]] = {}
    reasons: dict[str, int] = {}
    for row in data["results"]:
        cells = rows.setdefault((row["provider"], row["schedule"]), {})
        if "why" in row:
            cells[row["model"]] = f"does not load ({reasons.setdefault(row['why'], len(reasons) + 1)})"
        else:
            wrong = "" if row["right"] else " **not right**"
            cells[row["model"]] = f"{number(row['milliseconds'])} ms, {row['error']:.1e}{wrong}"
    lines = [[*first, *(cells.get(model, "") for model in models)] for first, cells in rows.items()]
    shown = table(["provider", "schedule", *models], lines).replace("--:", "---")
    return shown + _footnotes(reasons)


def _footnotes(reasons: Mapping[str, int]) -> str:
    """Why what is marked so in a table is missing."""
    return "".join(f"\n({place}) {why}\n" for why, place in reasons.items())


def device(data: Mapping[str, Any]) -> str:
    """Milliseconds of each contestant on a GPU, a row per case, and how PyTorch compares with our fastest."""
    cases: dict[tuple[str, str, tuple[int, ...]], dict[str, float | None]] = {}
    for row in data["results"]:
        case = row["what"], row["variant"], tuple(row["shape"])
        cases.setdefault(case, {})[row["contestant"]] = row["minimum_s"]
    names = list(dict.fromkeys(row["contestant"] for row in data["results"]))
    rows = []
    for (what, variant, shape), found in cases.items():
        fastest = min(time for name, time in found.items() if time is not None and name not in NAMES)
        first = f"{what}, {plot.VARIANTS[variant]}, {', '.join(map(str, shape))}"
        rows.append([first, *(milliseconds(found.get(name)) for name in names)])
        rows[-1].append(number(_ratio(found["pytorch"], fastest, "")))
    return table(["T, B, I, H", *(f"{NAMES.get(name, name)} ms" for name in names), "PyTorch / ours"], rows)


def web(data: Mapping[str, Any]) -> str:
    """Steps in Node and in a browser, a row per contestant, and what a page loads."""
    found = data["results"]
    models = list(dict.fromkeys(row["model"] for row in found["rows"]))
    rows: dict[tuple[str, str, str], dict[str, str]] = {}
    for row in found["rows"]:
        cells = rows.setdefault((row["place"], row["name"], str(row["threads"])), {})
        times = ("minimum_ms", "median_ms", "first_ms")
        cells[row["model"]] = row["why"] if "why" in row else " / ".join(number(row[time]) for time in times)
    lines = [[*first, *(cells.get(model, "") for model in models)] for first, cells in rows.items()]
    heads = [f"{model}: step, median, first ms" for model in models]
    loaded = [
        [row["what"], *(f"{row[size] / 1e3:,.0f}" for size in ("bytes", "compressed"))] for row in found["downloads"]
    ]
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    steps, files = (
        table(["where", "contestant", "threads", *heads], lines),
        table(["loaded", "kB", "kB in gzip"], loaded),
    )
    return f"{steps}\n{files}\n{versions}.\n"


KINDS = {
    "device": device,
    "memory": memory,
    "lowering": lowering,
    "trainer": trainer,
    "torch": steps,
    "curves": curves,
    "gradient": gradient,
    "importing": importing,
    "torch_import": torch_import,
    "providers": providers,
    "web": web,
}


def caption(data: Mapping[str, Any]) -> str:
    """What was run and where, and what else must be known of figures that `pages` did not write."""
    note = f" {data['note']}" if "note" in data else ""
    versions = ", ".join(f"{name} {version}" for name, version in data["machine"]["versions"].items())
    where = f"{data['machine']['processor']}, {data['machine']['cpus']} CPUs"
    where = f"{data['machine']['gpu']} in a machine with {where}" if "gpu" in data["machine"] else where
    return f"`{data['command']}` on {'; '.join(part for part in (where, versions) if part)}.{note}\n"


def makers(name: str) -> list[Path]:
    """Files with the figures of a name, one for each maker of processors."""
    return sorted(RESULTS.glob(f"*/{name}.json"))


def load(path: Path) -> dict[str, Any]:
    """Figures, and where they come from."""
    loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return loaded


def section(name: str, page: Path) -> str:
    """What stands between the marks of a page."""
    paths = makers(name)
    if not paths:
        return f"Not measured yet: `python -m benchmarks pages {name}`.\n"
    shown = ""
    if name in DRAWN:
        data = load(paths[0])
        place = os.path.relpath(picture(name), page.parent)
        what = "times" if page == README else "the times of the table below"
        shown = f"![{what} as bars, on {data['machine']['processor']}]({place})\n\n"
        if page == README:
            return shown + caption(data)
    return shown + "\n".join(f"{KINDS.get(name, times)(data)}\n{caption(data)}" for data in map(load, paths))


def picture(name: str) -> Path:
    """Where the picture of a name is."""
    return PICTURES / f"bench_{name}.svg"


def draw(name: str) -> None:
    """Draws the figures of the first maker."""
    if name == "web":
        plot.draw_steps(load(makers(name)[0])["results"]["rows"], picture(name))
        return
    results = [
        Result(
            row["contestant"],
            Case(row["op"], tuple(row["shape"]), row["variant"]),
            row["threads"],
            row["schedule"],
            row["minimum_s"],
            row["median_s"],
        )
        for row in load(makers(name)[0])["results"]
    ]
    plot.draw(results, picture(name))


def filled(page: Path) -> str:
    """A page's text with its tables made anew."""
    return _PLACE.sub(
        lambda match: f"{match[1]}\n{section(match[2], page)}{match[3]}", page.read_text(encoding="utf-8")
    )


def write() -> None:
    """Draws the pictures and writes the tables of all pages."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name in DRAWN:
        if makers(name):
            draw(name)
    for page in PAGES:
        page.write_text(filled(page), encoding="utf-8")


def tables(
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; fail where a table is not its figures'.")
    ] = False,
) -> None:
    """Write the pages' tables, and draw their pictures, from the figures that are there."""
    if not check:
        write()
        return
    for path in PAGES:
        if path.read_text(encoding="utf-8") != filled(path):
            sys.exit(f"{path.relative_to(ROOT)}: a table is out of date, run python -m benchmarks tables")
