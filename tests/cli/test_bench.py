"""`lstm-lower bench`: who takes part, what is proven, and what is told of it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.support.command_line import TRAIN, fail, run, succeed

pytestmark = pytest.mark.usefixtures("forked_workers")

QUICK = ("--seconds", "0.01", "--rounds", "1", "--threads", "1")
# y is x in exact arithmetic; float32 has no digit of it left.
CANCELLING = """
cancelling (float[N] x) => (float[N] y, float[N] z) {
  big = Constant<value = float {1e9}>()
  sum = Add(x, big)
  y = Sub(sum, big)
  z = Exp(x)
}
"""
COUNTING = """
counting (float[3,4] x) => (float[4] last, float[3,4] sums) {
  zero = Constant<value = float[4] {0,0,0,0}>()
  last, sums = Scan <num_scan_inputs = 1, body = row (float[4] a, float[4] b) => (float[4] c, float[4] d) {
      e = Tanh(b)
      c = Add(a, e)
      d = Identity(c)
  }> (zero, x)
}
"""


def write(folder: Path, text: str) -> Path:
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 18]> {text}')
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def slices(events: list[dict[str, Any]]) -> dict[int, list[tuple[float, float, str]]]:
    found: dict[int, list[tuple[float, float, str]]] = {}
    for event in events:
        if event["ph"] == "X":
            end = round(event["ts"] + event["dur"], 1)
            found.setdefault(event["pid"], []).append((event["ts"], end, event["name"]))
    return found


@pytest.mark.slow
def test_a_training_step(tmp_path: Path) -> None:
    trace, picture = tmp_path / "trace.json", tmp_path / "times.svg"
    words = ["--schedule", "scan", "--schedule", "unroll", "--schedule", "auto", "--trace", trace, "--plot", picture]
    data = json.loads(succeed("bench", TRAIN, *QUICK, *words, "--json"))
    rows = {row["name"]: row for row in data["contestants"]}
    assert list(rows) == ["original", "lowered", "optimised scan", "optimised unroll", "optimised auto"]
    assert "BlockLSTM" in rows["original"]["absence"]
    assert rows["optimised auto"]["absence"] == "the same graph as optimised scan"
    timed = [rows[name] for name in ("lowered", "optimised scan", "optimised unroll")]
    assert all(0 < row["minimum_seconds"] <= row["median_seconds"] for row in timed)
    assert all(0 < row["error"] < 1e-5 and row["fault"] is None for row in timed)
    assert rows["lowered"]["ratio"] == 1
    assert data["fastest"] in rows
    assert data["sizes"] == {"batch": 4}
    assert data["proof"] == "the model evaluated in float64"
    assert [loop["iterations"] for loop in rows["optimised scan"]["loops"]] == [1, 20, 20]
    assert [loop["iterations"] for loop in rows["optimised unroll"]["loops"]] == [1]
    assert all(row["arena_bytes"] > 0 for row in timed)
    assert sum(node["seconds"] for node in rows["lowered"]["nodes"] if not node["holds_bodies"]) == pytest.approx(
        sum(op["seconds"] for op in rows["lowered"]["ops"])
    )
    assert picture.read_text().count("optimised") >= 2
    processes = slices(json.loads(trace.read_text()))
    assert len(processes) == 3
    for found in processes.values():
        assert_nested(found)
    depths = [sum(name.startswith("iteration") for *_, name in found) for found in processes.values()]
    assert depths == [40, 40, 0]


def assert_nested(found: list[tuple[float, float, str]]) -> None:
    """Slices of one thread either lie inside each other or apart."""
    open_slices: list[float] = []
    for start, end, name in found:
        while open_slices and open_slices[-1] <= start and not (open_slices[-1] == start == end):
            open_slices.pop()
        assert not open_slices or end <= open_slices[-1] or open_slices[-1] == start, name
        open_slices.append(end)


def test_an_ordinary_model_and_its_original(tmp_path: Path) -> None:
    path = write(tmp_path, COUNTING)
    printed = succeed("bench", path, *QUICK, "--schedule", "unroll", "--top", "1")
    lines = printed.splitlines()
    assert lines[1].split()[:1] == ["original"]
    assert lines[2].split()[:2] == ["optimised", "unroll"]
    assert "lowered: the same graph as original" in printed
    assert "Where the time of" in printed
    assert max(map(len, lines)) <= 100
    shown = succeed("bench", path, *QUICK, "--form", "original", "--of", "original", "--top", "1")
    assert re.search(r"\d others? ", shown)
    assert "Where the time of original goes" in shown
    assert "main graph" in shown


@pytest.mark.slow
def test_each_provider_gets_models_lowered_for_it() -> None:
    pytest.importorskip("onnxruntime_ggml")
    words = ["-p", "cpu", "-p", "ggml", "--schedule", "unroll", "--schedule", "scan", "--fix-sizes"]
    words += ["--form", "optimised"]
    data = json.loads(succeed("bench", TRAIN, *QUICK, *words, "--json"))
    rows = {row["name"]: row for row in data["contestants"]}
    assert list(rows) == [
        f"optimised {schedule}, {name}" for schedule in ("unroll", "scan") for name in ("cpu", "ggml")
    ]
    assert "'ggml' requires a schedule of ['unroll']" in rows.pop("optimised scan, ggml")["absence"]
    assert all(row["fault"] is None and row["minimum_seconds"] > 0 for row in rows.values())


def test_a_provider_that_is_not_there_leaves_the_others() -> None:
    words = ["bench", TRAIN, *QUICK, "--form", "lowered", "--json", "-p"]
    data = json.loads(succeed(*words, "cpu", "-p", "directml"))
    present, absent = data["contestants"]
    assert present["name"] == "lowered, cpu"
    assert present["minimum_seconds"] > 0
    assert absent["name"] == "directml"
    assert "provider 'directml' requires" in absent["absence"]
    assert "provider 'directml' requires" in fail(*words[:-2], "-p", "directml")
    assert "provider 'coreml' requires" in fail(*words[:-2], "-p", "directml", "-p", "coreml")


def test_wrong_results_are_told_and_not_timed(tmp_path: Path) -> None:
    path = write(tmp_path, CANCELLING)
    result = run("bench", path, *QUICK, "--form", "original")
    assert result.exit_code == 1
    assert "wrong: original: output 'y': error" in result.stdout
    assert "Where the time" not in result.stdout
    data = json.loads(run("bench", path, *QUICK, "--form", "original", "--json").stdout)
    (row,) = data["contestants"]
    assert not data["passed"]
    assert "minimum_seconds" not in row
    assert row["error"] > 0.1
    assert "first contestant" in succeed("bench", path, *QUICK, "--form", "original", "--no-proof")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--form", "fast"], "--form requires one of original, lowered, optimised, got 'fast'"),
        (["--schedule", "fast"], "schedule requires auto"),
        (["-p", "abacus"], "provider 'abacus' requires"),
        (["--plot", "times.pdf"], "--plot requires a file that ends in .png or .svg"),
        (["--dim", "batch"], "--dim requires NAME=SIZE"),
        (["--threads", "100000"], "--threads requires 1 to "),
        (["--trace", "nowhere/trace.json"], "there is no folder"),
        (["--checkpoint", "nowhere"], "--checkpoint requires a TensorFlow graph"),
    ],
)
def test_what_is_refused_before_anything_runs(words: list[str], says: str) -> None:
    assert says in fail("bench", TRAIN, *words)


def test_feeds_that_do_not_fit(tmp_path: Path) -> None:
    path = write(tmp_path, COUNTING)
    np.savez(tmp_path / "feeds.npz", x=np.zeros((2, 4), np.float32))
    said = fail("bench", path, *QUICK, "-i", tmp_path / "feeds.npz", "--form", "optimised", "--schedule", "scan")
    assert "input 'x' requires shape [3, 4]" in said
    np.savez(tmp_path / "feeds.npz", y=np.zeros(4, np.float32))
    assert "feed 'y' must be one of" in fail("bench", path, *QUICK, "-i", tmp_path / "feeds.npz", "--form", "optimised")
