"""`check` names the node that onnxruntime and the reference compute otherwise, and says what it does not cover."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx.reference.op_run
import onnx_ir as ir
import pytest

from lstm_lower.passes.rules.registry import RULES
from lstm_lower.records.model_files import load
from lstm_lower.records.origin import Origin
from lstm_lower.registry import key_of
from lstm_lower.runtime.proof import reference
from lstm_lower.runtime.proof.check import Report, check
from tests.support.command_line import succeed
from tests.support.models import single_node_model
from tests.support.op_inputs import valid_inputs
from tests.support.recurrent_layers import Case

THREE = """<ir_version: 8, opset_import: ["" : 18]> g (float[4] x, bool c) => (float[4] y, float[4] z) {
    a = Mul(x, x)
    [second] b = Softsign(a)
    y = Tanh(b)
    z = If(c) <then_branch = t () => (float[4] r) { r = Neg(a) }, else_branch = e () => (float[4] s) { s = Exp(a) }>
}"""
FEEDS = {"x": np.float32([0.1, -0.2, 0.3, 2]), "c": np.bool_(1)}


def take_for(monkeypatch: pytest.MonkeyPatch, op: str, function: Callable[[np.ndarray], np.ndarray]) -> None:
    """Makes the reference take an operator of one operand for a function."""
    members = {"op_domain": "", "_run": lambda _, x: (function(x),)}
    others = [known for known in reference.MENDED if known.__name__ != op]
    monkeypatch.setattr(reference, "MENDED", (*others, type(op, (onnx.reference.op_run.OpRun,), members)))


def verdicts(report: Report) -> list[str]:
    return [row.verdict for row in report.outputs]


@pytest.mark.parametrize("factor", [1.001, 1.5])
def test_a_wrong_evaluator_is_named(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """What onnxruntime makes of the original is no excuse then, however far it is off."""
    take_for(monkeypatch, "Softsign", lambda x: factor * x / (1 + np.abs(x)))
    report = check(onnx.parser.parse_model(THREE), feeds=FEEDS)
    assert verdicts(report) == ["disputed", "ok"]
    assert report.verdict == "failed"
    found = report.disagreement
    assert found is not None
    assert (found.op, found.node, found.output, found.outputs) == ("Softsign", "second", "b", ("y",))
    assert found.error == pytest.approx(1 - 1 / factor, rel=1e-3)


def test_a_wrong_rule_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    right = RULES["BlockLSTM"]
    wrong = lambda node, b: [value * 1.01 for value in right.formula(node, b)]  # noqa: E731
    monkeypatch.setitem(RULES._entries, key_of("BlockLSTM"), dataclasses.replace(right, formula=wrong))
    report = check(single_node_model("BlockLSTM", valid_inputs("BlockLSTM")))
    assert report.disagreement is not None
    assert report.disagreement.op == "BlockLSTM"


def test_no_node_is_named_where_another_model_is_compared() -> None:
    other = onnx.parser.parse_model(THREE.replace("y = Tanh(b)", "y = Atan(b)"))
    report = check(onnx.parser.parse_model(THREE), other, FEEDS)
    assert verdicts(report) == ["out of tolerance", "ok"]
    assert report.disagreement is None


def test_an_operator_with_a_body_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    take_for(monkeypatch, "Neg", lambda x: -1.5 * x)
    report = check(onnx.parser.parse_model(THREE), feeds=FEEDS)
    assert report.disagreement is not None
    assert report.disagreement.op == "If"


@pytest.mark.parametrize("lengths", [(4, 1, 3), (0, 4, 2), (0, 0, 0)])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_layers_of_sequences_of_several_lengths_pass(op: str, direction: str, lengths: tuple[int, ...]) -> None:
    case = Case(op, {"direction": direction}, ("B", "h0", "c0", "P"), lengths)
    feeds = case.feeds()
    rows = check(case.model(), feeds=feeds).outputs
    # Where no sequence has a step, all is zero.
    assert [row.verdict for row in rows] == ["ok"] * len(rows)


@pytest.mark.parametrize(
    ("origin", "said"),
    [
        (
            Origin("tensorflow", 3),
            "not the import (3 ops of TensorFlow were translated): lstm-lower check GRAPH",
        ),
        (Origin("torch"), "not the export from PyTorch"),
        (Origin("onnx"), "not the gradients and updates"),
        (None, ""),
    ],
)
def test_what_a_check_of_an_import_does_not_cover_is_said(origin: Origin | None, said: str, tmp_path: Path) -> None:
    model = load(onnx.parser.parse_model(THREE.replace("float[4] x, bool c", "float[4] x, bool[1] c")))
    if origin is not None:
        origin.write(model)
    path = tmp_path / "model.onnx"
    onnx.save(ir.to_proto(model), path)
    text = " ".join(succeed("check", path).split())
    assert ("covers: the lowering of this ONNX model" in text) == bool(said)
    assert said in text
    assert json.loads(succeed("check", path, "--json"))["origin"] == (origin and dataclasses.asdict(origin))
