"""`python -m benchmarks device`: what it would measure on a GPU, on the processor; and what it says without one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks import device
from benchmarks.__main__ import app
from benchmarks.block import Case
from benchmarks.device_runs import OurRun, Place

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.usefixtures("forked_workers")

HERE = ("--provider", "cpu", "--torch-device", "cpu", "--shape", "4,2,3,5", "--seconds", "0.01", "--threads", "1")


def test_on_the_processor(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["device", *HERE, "--variant", "gru", "-o", str(tmp_path / "figures.json")])
    assert result.exit_code == 0, result.output
    rows = json.loads((tmp_path / "figures.json").read_text())
    assert [(row["what"], row["contestant"]) for row in rows] == [
        *(("layer", name) for name in ("scan", "unroll", "pytorch", "floor-pytorch")),
        *(("training step", name) for name in ("scan", "unroll", "pytorch")),
    ]
    assert [row["error"] is None for row in rows] == ["pytorch" in row["contestant"] for row in rows]
    assert all(row["median_s"] >= row["minimum_s"] > 0 and row["absence"] is None for row in rows)
    assert [row["on_host"] for row in rows] == [[], [], *[None] * 5], "asked for, it is no fault"
    assert "layer, gru, T,B,I,H = 4,2,3,5, cpu, float32" in result.stdout
    assert "training step, gru, T,B,I,H = 4,2,3,5, cpu, float32" in result.stdout


def test_nodes_that_a_provider_leaves_to_the_processor() -> None:
    pytest.importorskip("onnxruntime_ggml")
    place = Place("ggml", "cpu", threads=1)
    run = OurRun(Case("CudnnRNN", (3, 2, 3, 4), "lstm"), "scan", place, as_graph=False)
    assert run.facts["error"] < 1e-4
    assert any(node.startswith("Scan ") for node in run.facts["on_host"])


def test_wrong_results_are_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(device.TOLERANCES, "float32", -1.0)
    result = CliRunner().invoke(app, ["device", *HERE, "--variant", "lstm"])
    assert result.exit_code == 1
    assert "device requires right results of scan (4, 2, 3, 5), got an error of" in result.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "device requires a PyTorch that computes on 'cuda', got"),
        (
            ["--torch-device", "cpu"],
            "device requires a provider of onnxruntime that computes here: provider 'cuda' requires",
        ),
        (["--precision", "half"], "--precision requires one of float32, tf32"),
        (["--variant", "rnn"], "--variant requires one of lstm, gru"),
        ([*HERE, "--precision", "tf32"], "precision requires one of ['float32']"),
    ],
)
def test_what_it_says_without_a_gpu(words: list[str], says: str) -> None:
    result = CliRunner().invoke(app, ["device", *words])
    assert result.exit_code == 1
    assert says in result.stderr.replace("\n", " ")
