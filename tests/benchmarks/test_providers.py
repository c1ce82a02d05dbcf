"""The matrix of providers: its lines, its table, and what it says of a provider that is not there."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import provider_runs, tables
from benchmarks.providers import ROWS, Row, block_backward, measured, subjects
from lstm_lower.errors import InvalidInputError

SHAPE = (4, 2, 3, 5)


def row(name: str) -> Row:
    return next(row for row in ROWS if row.name == name)


def test_the_processor_is_right_on_all() -> None:
    for make in subjects(SHAPE):
        line = measured(make(), row("CPU"), "auto", 1)
        assert line["right"], line
        assert 0 < line["error"] < 1e-5


def test_wrong_results_are_said() -> None:
    def wrong(*given: object) -> provider_runs.Measured:
        found = row("CPU").run(*given)
        return provider_runs.Measured({name: array + np.float32(1e-3) for name, array in found.outputs.items()}, 1.0)

    line = measured(block_backward(SHAPE), Row("wrong", wrong), "auto", 1)
    assert not line["right"]
    assert "e-03 **not right** |" in tables.providers({"results": [line]})


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_runs.shutil, "which", lambda _: None)
    for name, said in (("Node", "npm ci"), ("browser (Chromium, WASM)", "apt-get install chromium")):
        line = measured(block_backward(SHAPE), row(name), "auto", 1)
        assert not line["loads"]
        assert said in line["why"]
        text = tables.providers({"results": [line]})
        assert "| does not load (1) |" in text
        assert f"(1) {line['why']}" in text


def test_a_reason_is_said_once() -> None:
    line = {"model": "m", "provider": "p", "loads": False, "why": "no device"}
    text = tables.providers({"results": [{**line, "schedule": schedule} for schedule in ("scan", "unroll")]})
    assert text.splitlines()[2:] == [
        "| p | scan | does not load (1) |",
        "| p | unroll | does not load (1) |",
        "",
        "(1) no device",
    ]


def test_what_javascript_says_wrong_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_runs, "ROOT", provider_runs.ROOT / "nowhere")
    with pytest.raises(InvalidInputError, match="npm ci --ignore-scripts"):
        provider_runs.in_node(block_backward(SHAPE).lowered(None, "auto"), {}, 1)
