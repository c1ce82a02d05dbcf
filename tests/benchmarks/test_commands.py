"""The commands that time: what they print and write, and what they refuse."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks import contestants, curves, dynamic_rnn, race_command, tables, torch_step
from benchmarks.__main__ import app
from benchmarks.block import Case
from benchmarks.processes import output_of
from benchmarks.race import Result
from tests.support.provider_plugins import runs_here

pytestmark = pytest.mark.usefixtures("forked_workers")

FOREIGN = Path(__file__).parents[1] / "data" / "foreign"


def test_race_times_the_floor(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    options = ["--shape", "3,2,4,4", "--against", "floor", "--seconds", "0.1", "--threads", "1", "--memory"]
    result = CliRunner().invoke(app, ["race", *options, "-o", str(figures), "--json"])
    assert result.exit_code == 0, result.output
    rows = json.loads(figures.read_text())
    assert [row["contestant"] for row in rows] == ["lstm-lower", "floor"]
    assert all(row["median_s"] >= row["minimum_s"] > 0 for row in rows)


@pytest.mark.parametrize(
    ("option", "value"), [("--shape", "3,2,4"), ("--variant", "fast"), ("--against", "abacus"), ("--op", "LSTM")]
)
def test_race_refuses_what_it_does_not_know(option: str, value: str) -> None:
    result = CliRunner().invoke(app, ["race", option, value])
    assert result.exit_code == 1
    assert f"{option} requires" in result.stderr


def test_trainer_and_foreign_write_their_figures(tmp_path: Path) -> None:
    for words in (["trainer", "--rounds", "1", "--steps", "1"], ["foreign", "--from", str(FOREIGN), "--rounds", "1"]):
        result = CliRunner().invoke(app, [*words, "-o", str(tmp_path / "figures.json"), "--json"])
        assert result.exit_code == 0, result.output
        rows = json.loads((tmp_path / "figures.json").read_text())
        assert rows == json.loads(result.stdout)
        assert all(row["ratio"] > 0 for row in rows)


@pytest.mark.slow
def test_import_says_what_each_phase_took() -> None:
    pytest.importorskip("tensorflow")
    result = CliRunner().invoke(app, ["import", "--nodes", "500", "--runs", "1", "--no-tf2onnx", "--json"])
    assert result.exit_code == 0, result.output
    (figures,) = json.loads(result.stdout)
    assert 300 < figures["nodes"] <= 500
    assert figures["recurrent"] == 4, "two layers and their gradients"
    assert figures["composites"] == figures["recurrent"], "ordinary ops are converted at once"
    assert min(figures["lowered_nodes"], figures["imported_nodes"]) > figures["composites"]
    phases = [figures[f"{phase}_s"] for phase in ("read", "structure", "translate", "finish")]
    assert all(seconds > 0 for seconds in phases)
    assert figures["import_s"] == pytest.approx(sum(phases))
    assert 0 < figures["load_peak_mb"] <= figures["import_peak_mb"] <= figures["peak_mb"]


@pytest.mark.slow
def test_import_torch_says_what_from_torch_took() -> None:
    pytest.importorskip("torch")
    result = CliRunner().invoke(app, ["import-torch", "--model", "lstm", "--runs", "1", "--json"])
    assert result.exit_code == 0, result.output
    (figures,) = json.loads(result.stdout)
    assert figures["weights"] * 4 == pytest.approx(figures["state_mb"] * 2**20)
    assert figures["ratio"] == pytest.approx(figures["import_s"] / figures["export_s"])
    assert all(figures[name] > 0 for name in ("export_s", "import_s", "bundle_s", "import_mb"))
    assert figures["bundle_mb"] >= 0


def test_import_torch_refuses_what_it_does_not_know() -> None:
    pytest.importorskip("torch")
    result = CliRunner().invoke(app, ["import-torch", "--model", "abacus"])
    assert result.exit_code == 1
    assert "--model requires one of resnet, transformer, lstm, bert, got abacus" in result.stderr


@pytest.mark.slow
def test_dynamic_rnn_steps_alike_in_both(tmp_path: Path) -> None:
    """TensorFlow in a process of its own, as in the race: what graphs are made of is chosen when it starts."""
    pytest.importorskip("tensorflow")
    prefix, shape, variants = str(tmp_path / "step"), (3, 2, 4, 5), ("LSTMBlockCell-v2", "GRUCell-v1")
    code = (
        "import sys; from benchmarks import dynamic_rnn; from benchmarks.block import Case; "
        f"cases = [Case('dynamic_rnn', {shape}, variant) for variant in {variants}]; "
        "steps = [dynamic_rnn.in_tensorflow(case, 1) for case in cases]; "
        "print([[float(step()) for _ in range(3)] for step in steps]); "
        f"dynamic_rnn.write(sys.argv[1], cases[1].variant, *map(str, {shape}))"
    )
    theirs = json.loads(output_of(code, prefix).splitlines()[-1])
    step, facts = dynamic_rnn.from_files(prefix, Case("dynamic_rnn", shape, variants[1]), 1, "auto")
    assert [step() for _ in range(3)] == pytest.approx(theirs[1], rel=1e-5)
    assert all(first > second > third for first, second, third in theirs), "every variant trains"
    assert facts["lower_s"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("variant", torch_step.VARIANTS)
def test_torch_steps_alike_in_all(variant: str) -> None:
    """What is timed is the same step: losses fall, and alike."""
    pytest.importorskip("torch")
    case = Case("torch", (5, 3, 4, 8), variant)
    ours, facts = torch_step.in_ours(case, 1, "auto")
    steps = [ours, torch_step.in_pytorch(case)]
    if importlib.util.find_spec("onnx_ad"):
        steps.append(torch_step.in_onnx_ad(case, 1))
    if runs_here("openvino"):
        steps.append(contestants.openvino(case, 1, "auto")[0])
    losses = [[float(step()) for _ in range(3)] for step in steps]
    for found in losses:
        assert found == pytest.approx(losses[1], rel=1e-5)
        assert found[0] > found[-1]
    assert facts["lower_s"] > 0


def test_a_refusal_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    result = Result("onnxsim", Case("torch", (5, 3, 4, 6), "lstm"), 1, "", None, None, absence="no gradient of it")
    monkeypatch.setattr(race_command, "run_race", lambda *_, **__: [dataclasses.replace(result, minimum=1.0), result])
    printed = CliRunner().invoke(app, ["torch", "--variant", "lstm", "--against", "onnxsim"]).output
    assert "no gradient of it" in printed
    rows = [{"contestant": "onnxsim", "variant": "lstm", "schedule": "", "minimum_s": None, "absence": "none of it"}]
    assert "| LSTM, onnxsim | – | – | none of it |" in tables.steps({"results": rows})


def test_gradient_says_what_it_took() -> None:
    result = CliRunner().invoke(app, ["gradient", "--nodes", "40", "--runs", "1", "--json"])
    (row,) = json.loads(result.stdout)
    assert (row["nodes"], row["weights"]) == (41, 20)
    assert row["nodes_after"] > 41
    assert row["seconds"] > 0


def test_losses_of_a_training_are_those_of_pytorch() -> None:
    """Also of the unrolled step of fixed sizes that is for OpenVINO."""
    pytest.importorskip("torch")
    case = Case("torch", (4, 2, 3, 8), "lstm")
    expected = curves.in_pytorch(case, 3)
    assert curves.ours(case, 3) == pytest.approx(expected, rel=1e-4)
    assert curves.ours(case, 3, providers=["cpu"]) == pytest.approx(expected, rel=1e-4)
    assert curves.in_pytorch(case, 3, bfloat16=True) == pytest.approx(expected, rel=0.02)


def test_a_table_of_losses() -> None:
    rows = [
        {"variant": "lstm", "contestant": "pytorch", "losses": [4.0, 2.0, 3.0], "absence": None},
        {"variant": "lstm", "contestant": "openvino-bfloat16", "losses": [], "absence": "no device"},
    ]
    lines = tables.curves({"results": rows}).splitlines()
    assert lines[0] == "| training | loss at 1 |"
    assert lines[2:4] == ["| LSTM, PyTorch | 4.000 |", "| LSTM, lstm-lower on OpenVINO, bfloat16 (1) | – |"]
    assert lines[4:] == ["", "(1) no device"]
