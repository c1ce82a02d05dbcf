"""What a report tells, and the page that it stands in."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import lstm_lower as ll
from lstm_lower.errors import InvalidInputError, shown
from lstm_lower.passes.history import PassStep
from lstm_lower.records.model_files import load
from lstm_lower.report.analysis import Feeds, analyse, measured
from lstm_lower.report.contents import HUES, contents, describe, origins, program
from lstm_lower.report.page import SCRIPTS, page
from lstm_lower.runtime.proof.comparison import AS_NEAR, OUT_OF_TOLERANCE

ROOT = Path(__file__).parents[2]
CHARACTERS = ROOT / "examples" / "graphs" / "char_lstm_train.onnx"


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    return contents(analyse(load(CHARACTERS)), "characters.onnx", "lowered.onnx")


def data_of(text: str) -> str:
    found = re.search('<script type="application/json" id="contents">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.mark.slow
def test_page_holds_the_contents(told: dict[str, Any]) -> None:
    assert json.loads(data_of(page(told))) == json.loads(json.dumps(told))


def test_page_is_the_same_every_time(told: dict[str, Any]) -> None:
    again = contents(analyse(load(CHARACTERS)), "characters.onnx", "lowered.onnx")
    assert page(again) == page(told)


def test_contents_end_no_script(told: dict[str, Any]) -> None:
    hostile = "</script><!--<script>&'\"\u2028"
    text = page({**told, "name": hostile, "notes": [hostile, float("nan")]})
    assert json.loads(data_of(text))["notes"] == [shown(hostile), "nan"]
    assert not set("<>&") & set(data_of(text))
    assert "<title>&lt;/script&gt;" in text


def test_policy_allows_the_scripts_of_the_page_alone(told: dict[str, Any]) -> None:
    text = page(told)
    policy = re.search('Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    scripts = re.findall("<script>(.*?)</script>", text, re.DOTALL)
    assert len(scripts) == len(SCRIPTS)
    for script in scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy[1]
    assert policy[1].startswith("default-src 'none'; ")
    assert "unsafe" not in policy[1]
    assert "sourceMappingURL" not in text


def test_every_file_of_the_page_is_in_it() -> None:
    folder = resources.files("lstm_lower.report").joinpath("page")
    names = {path.name for path in folder.iterdir() if path.is_file()}
    assert names == {*(name for name in SCRIPTS if "/" not in name), "report.html", "report.css"}


def test_vendored_files_are_what_is_recorded() -> None:
    folder = resources.files("lstm_lower.report").joinpath("page", "vendor")
    record = json.loads(folder.joinpath("vendored.json").read_text())
    assert {path.name for path in folder.iterdir()} == {*record["files"], "vendored.json"}
    for name, entry in record["files"].items():
        assert hashlib.sha256(folder.joinpath(name).read_bytes()).hexdigest() == entry["sha256"], "run .ci/vendor"
    assert record["licence"] == "MIT"
    assert f'"{record["version"]}"' in folder.joinpath("dagre.min.js").read_text()


def test_ports_tell_the_state(told: dict[str, Any]) -> None:
    inputs = {port["name"]: port for port in told["inputs"]}
    outputs = {port["name"]: port for port in told["outputs"]}
    assert inputs["w:0"]["role"] == "weight"
    assert outputs[inputs["w:0"]["partner"]]["partner"] == "w:0"
    assert inputs["learning_rate:0"]["role"] == "learning rate"
    assert inputs["ids:0"] == {
        "name": "ids:0",
        "type": "i32[20,batch]",
        "role": "data",
        "partner": "",
        "has_value": False,
    }
    assert outputs["loss:0"]["role"] == "loss"
    assert outputs["grad_w:0"]["role"] == "gradient"


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (CHARACTERS, "loss"),
        (ROOT / "examples" / "keras_digits" / "digits_train.onnx", "loss"),
        (ROOT / "examples" / "graphs" / "input_saliency.onnx", "output.name"),
    ],
)
def test_program_runs(source: Path, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lowered = ll.lower(source)
    onnx.save(lowered, tmp_path / "lowered.onnx")
    monkeypatch.chdir(tmp_path)
    text = program(load(lowered), "lowered.onnx")
    assert says in text
    names: dict[str, Any] = {}
    exec(compile(text.replace("range(100)", "range(3)"), "program", "exec"), names)  # what a reader pastes
    assert isinstance(names["session"], ort.InferenceSession)
    if "loss" in names:
        assert np.isfinite(names["loss"])
        assert set(names["state"]) == set(names["moving"])


def test_loops_of_others_are_optimised_by_name() -> None:
    source = load(ROOT / "tests" / "data" / "foreign" / "jax2onnx_lstm.onnx")
    assert [step.pass_name for step in analyse(source).history.steps] == [""]
    optimised = analyse(source, only_optimize=True)
    assert "loop-to-scan" in [step.pass_name for step in optimised.history.steps]
    assert measured(optimised, Feeds()).check.passed
    with pytest.raises(InvalidInputError, match="requires no opset"):
        analyse(source, 18, only_optimize=True)


def test_operators_are_described() -> None:
    found = describe([("tf", "BlockLSTMGrad"), ("", "MatMul"), ("com.example", "Nothing")], 18)
    assert list(found) == ["MatMul", "tf::BlockLSTMGrad"]
    assert found["tf::BlockLSTMGrad"]["lowered"]
    assert found["tf::BlockLSTMGrad"]["text"].startswith("Gradient of BlockLSTM over a sequence")
    assert "def block_lstm_grad" in found["tf::BlockLSTMGrad"]["formula"]
    assert found["tf::BlockLSTMGrad"]["inputs"][:2] == ["seq_len_max", "x"]
    assert "matrix product" in found["MatMul"]["text"].lower()
    assert found["MatMul"]["inputs"] == ["A", "B"]


def test_parts_of_the_source(told: dict[str, Any]) -> None:
    assert [part.split()[0] for part in told["parts"]] == [
        "BlockLSTM", "SparseSoftmaxCrossEntropyWithLogits", "BlockLSTMGrad", "UnsortedSegmentSum", "BiasAddGrad"
    ]  # fmt: skip
    assert sorted(told["part_of"].values()) == list(range(5))


def test_many_parts_are_one_of_each_operator() -> None:
    analysis = analyse(load(CHARACTERS))
    first = analysis.history.steps[0]
    (cell,) = [node for node in first.nodes if node.op == "BlockLSTM"]
    copies = [dataclasses.replace(cell, number=1000 + number, name=f"cell {number}") for number in range(2 * HUES)]
    many = origins(PassStep("", 0, (*first.nodes, *copies), first.graphs, (), 0, 0))
    assert many.parts[0] == f"BlockLSTM ({2 * HUES + 1})"
    assert len(many.parts) == 5
    assert {many.part_of[copy.number] for copy in copies} == {0}


def test_check_and_times_are_told() -> None:
    analysis = measured(analyse(load(CHARACTERS)), Feeds(sizes={"batch": 2}))
    told = contents(analysis, "characters.onnx", "lowered.onnx")
    assert told["check"]["passed"] is True
    assert told["certificate"] is None
    assert all(row["agrees"] for row in told["check"]["outputs"])
    assert analysis.check is not None
    first, second, *_ = analysis.check.outputs
    rows = [dataclasses.replace(first, verdict=AS_NEAR), dataclasses.replace(second, verdict=OUT_OF_TOLERANCE)]
    near = dataclasses.replace(analysis, check=dataclasses.replace(analysis.check, outputs=rows))
    assert [row["agrees"] for row in contents(near, "a", "b")["check"]["outputs"]] == [True, False]
    assert {row["name"] for row in told["check"]["outputs"]} == {port["name"] for port in told["outputs"]}
    gone = {number for step in told["steps"] for number in step["gone"]}
    known = [time for time in told["times"]["nodes"] if time["number"] is not None]
    assert len(known) > 100
    assert not gone & {time["number"] for time in known}
    assert [place for place, *_ in told["times"]["loops"]].count(()) == 1
    assert sorted(iterations for _, iterations, *_ in told["times"]["loops"]) == [1, 20, 20]
