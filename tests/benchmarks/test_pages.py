"""The benchmark pages: tables are what the figures say, and one command makes figures, pictures and tables."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import plot
from benchmarks.block import Case
from benchmarks.race import Result
from lstm_lower.errors import InvalidInputError
from tests.support import documentation
from tests.support.documentation import ROOT

RESULTS = Path("benchmarks/results")


def tables(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return benchmarks(folder, "tables", *arguments)


def benchmarks(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a command of a copy of the benchmarks."""
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return documentation.place_to_run(tmp_path)


def test_tables_are_up_to_date() -> None:
    done = tables(ROOT, "--check")
    assert done.returncode == 0, done.stderr


def test_other_figures_are_noticed_and_written(folder: Path) -> None:
    figures = folder / RESULTS / "backward.json"
    data = json.loads(figures.read_text())
    data["results"][0]["minimum_s"] = 12.345
    figures.write_text(json.dumps(data))
    done = tables(folder, "--check")
    assert done.returncode == 1
    assert "README.md: a table is out of date" in done.stderr
    assert tables(folder).returncode == 0
    for page in ("README.md", "docs/benchmarks.md"):
        assert "| 12345 |" in (folder / page).read_text()
    assert tables(folder, "--check").returncode == 0


def test_every_figure_has_its_table_and_every_picture_its_place() -> None:
    page = (ROOT / "docs/benchmarks.md").read_text()
    shown = set(re.findall(r"<!-- table (\w+) -->", page))
    assert {path.stem for path in (ROOT / RESULTS).glob("*.json")} <= shown
    for picture in (ROOT / "docs/images").glob("bench_*.svg"):
        assert f"](images/{picture.name})" in page
    assert set(re.findall(r"<!-- table (\w+) -->", (ROOT / "README.md").read_text())) <= shown
    known = benchmarks(ROOT, "pages", "sideways").stderr
    assert shown == set(re.search(r"one of (.*), got sideways", known)[1].split(", "))


def test_measuring_writes_figures_pictures_and_tables(folder: Path) -> None:
    picture = folder / "docs/images/bench_backward.svg"
    before = {path: path.read_bytes() for path in (picture, folder / "README.md")}
    done = benchmarks(folder, "pages", "--quick", "backward")
    assert done.returncode == 0, done.stderr
    data = json.loads((folder / RESULTS / "backward.json").read_text())
    assert data["command"] == "python -m benchmarks race --threads 2"
    assert {row["contestant"] for row in data["results"]} == {"lstm-lower", "floor"}
    assert "onnxruntime" in data["machine"]["versions"]
    assert all(path.read_bytes() != content for path, content in before.items())
    assert "| 4, 2, 3, 4 |" in (folder / "README.md").read_text()
    assert tables(folder, "--check").returncode == 0


def test_an_unknown_name_is_refused(folder: Path) -> None:
    done = benchmarks(folder, "pages", "sideways")
    assert done.returncode == 2
    assert "got sideways" in done.stderr


def test_a_picture_says_once_what_all_cases_share() -> None:
    cases = [(Case("BlockLSTMGrad", (10, 1, 32, 32), variant), 2) for variant in ("plain", "half")]
    assert plot._labels(cases) == ("BlockLSTMGrad, T,B,I,H = 10,1,32,32, 2 threads", ["plain", "half"])
    shapes = [(Case("BlockLSTM", (10, 1, size, 32)), threads) for size, threads in ((8, 1), (16, 2))]
    assert plot._labels(shapes) == ("BlockLSTM, plain", ["10,1,8,32\n1 thread", "10,1,16,32\n2 threads"])
    assert plot._labels(cases[:1])[1] == ["BlockLSTMGrad"]


def test_equal_figures_give_equal_pictures(tmp_path: Path) -> None:
    case = Case("BlockLSTMGrad", (10, 1, 32, 32))
    found = {"lstm-lower": 1.5, "floor": 1.0, "tensorflow": 4.0, "pytorch": None}
    results = [Result(name, case, 2, "", value, value) for name, value in found.items()]
    for name in ("one.svg", "other.svg"):
        plot.draw(results, tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "other.svg").read_bytes()
    with pytest.raises(InvalidInputError, match="--plot requires the floor among the contestants"):
        plot.draw(results[2:], tmp_path / "none.svg")
