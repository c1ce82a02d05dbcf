"""The benchmark pages: tables are what the figures say, and one command makes figures, pictures and tables."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from benchmarks import plot
from benchmarks.block import Case
from benchmarks.pages import machine, maker
from benchmarks.race import Result
from benchmarks.tables import DRAWN
from lstm_lower.errors import InvalidInputError
from tests.support import documentation, forks
from tests.support.documentation import ROOT

RESULTS = Path("benchmarks/results")


def tables(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return benchmarks(folder, "tables", *arguments)


def benchmarks(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a command of a copy of the benchmarks."""
    environment = {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", "PATH": "", "COLUMNS": "200"}
    return forks.run(["-m", "benchmarks", *arguments], folder, environment, seconds=300)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return documentation.place_to_run(tmp_path)


def test_tables_are_up_to_date() -> None:
    done = tables(ROOT, "--check")
    assert done.returncode == 0, done.stderr


def test_other_figures_are_noticed_and_written(folder: Path) -> None:
    figures = folder / RESULTS / "amd" / "backward.json"
    data = json.loads(figures.read_text())
    data["results"][0]["minimum_s"] = 12.345
    figures.write_text(json.dumps(data))
    done = tables(folder, "--check")
    assert done.returncode == 1
    assert "docs/benchmarks.md: a table is out of date" in done.stderr
    # Each picture takes a second to draw.
    for other in set(DRAWN) - {"backward"}:
        (folder / RESULTS / "amd" / f"{other}.json").unlink(missing_ok=True)
    picture = folder / "docs/images/bench_backward.svg"
    before = picture.read_bytes()
    assert tables(folder).returncode == 0
    assert picture.read_bytes() != before
    assert "| 12345 |" in (folder / "docs/benchmarks.md").read_text()
    assert tables(folder, "--check").returncode == 0


def test_every_figure_has_its_table_and_every_picture_its_place() -> None:
    page = "".join((ROOT / "docs" / name).read_text() for name in ("benchmarks.md", "javascript.md", "providers.md"))
    shown = set(re.findall(r"<!-- table (\w+) -->", page))
    assert {path.stem for path in (ROOT / RESULTS).glob("*/*.json")} <= shown
    for picture in (ROOT / "docs/images").glob("bench_*.svg"):
        assert f"](images/{picture.name})" in page
    assert set(re.findall(r"<!-- table (\w+) -->", (ROOT / "README.md").read_text())) <= shown
    known = benchmarks(ROOT, "pages", "sideways").stderr
    assert shown == set(re.search(r"one of (.*), got sideways", known)[1].split(", "))


def test_measuring_keeps_the_figures_of_other_makers(folder: Path) -> None:
    for old in (folder / RESULTS).glob("*/*.json"):
        if old.name != "backward.json":
            old.unlink()
    (folder / RESULTS / "amd").rename(folder / RESULTS / "a_first_maker")
    before = (folder / "docs/benchmarks.md").read_text()
    done = benchmarks(folder, "pages", "--quick", "backward")
    assert done.returncode == 0, done.stderr
    here = maker(machine(()))
    data = json.loads((folder / RESULTS / here / "backward.json").read_text())
    assert data["command"] == "python -m benchmarks race --threads 2"
    assert {row["contestant"] for row in data["results"]} == {"lstm-lower", "floor"}
    assert "onnxruntime" in data["machine"]["versions"]
    page = (folder / "docs/benchmarks.md").read_text()
    assert page != before
    assert "| 4, 2, 3, 4 |" in page.replace("\N{NO-BREAK SPACE}", " ")
    assert "| 500, 16, 256, 256 |" in page.replace("\N{NO-BREAK SPACE}", " ")
    assert tables(folder, "--check").returncode == 0


@pytest.mark.parametrize(
    ("processor", "folder_name"),
    [("AMD EPYC", "amd"), ("Intel(R) Xeon(R) Processor", "intel"), ("", "unknown")],
)
def test_folders_are_named_after_makers(processor: str, folder_name: str) -> None:
    assert maker({"processor": processor}) == folder_name


def test_an_unknown_name_is_refused(folder: Path) -> None:
    done = benchmarks(folder, "pages", "sideways")
    assert done.returncode == 2
    assert "got sideways" in done.stderr


def test_a_picture_says_once_what_all_cases_share() -> None:
    variants = [(Case("BlockLSTMGrad", (10, 1, 32, 32), variant), 2) for variant in ("plain", "half")]
    assert plot._common(variants) == (
        "Gradient of an LSTM, 2 threads, 1 sequence of 10 steps, 32 inputs and units: milliseconds, lower is better"
    )
    assert [plot._title(case, variants) for case, _ in variants] == ["plain", "float16"]
    shapes = [(Case("BlockLSTM", (10, 8, size, 32)), 1) for size in (8, 16)]
    assert plot._common(shapes) == "Forward pass of an LSTM, 1 thread: milliseconds, lower is better"
    assert plot._title(shapes[0][0], shapes) == "8 sequences of 10 steps, 8 inputs, 32 units"


def test_equal_figures_give_equal_pictures(tmp_path: Path) -> None:
    case = Case("BlockLSTMGrad", (10, 1, 32, 32))
    found = {"lstm-lower": 1.5, "floor": 1.0, "tensorflow": 4.0, "pytorch": None}
    results = [Result(name, case, 2, "", value, value) for name, value in found.items()]
    for name in ("one.svg", "other.svg"):
        plot.draw(results, tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "other.svg").read_bytes()
    with pytest.raises(InvalidInputError, match="--plot requires a contestant that was timed, got none"):
        plot.draw(results[3:], tmp_path / "none.svg")
