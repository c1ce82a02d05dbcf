"""The benchmark in JavaScript: what its contestants train, and what its table says."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import plot, tables, web
from benchmarks.provider_runs import ANYWHERE, last_line
from lstm_lower.errors import InvalidInputError
from tests.anywhere import support
from tests.support.bundles import plain_loop

FIRST, SECOND, THIRD = web.CONTESTANTS[0], web.CONTESTANTS[4], web.CONTESTANTS[5]
MODEL = web.MODELS["lstm_32"]


def _run(losses: Mapping[web.Contestant, list[float]]) -> web.Run:
    def run(contestant: web.Contestant, seconds: float) -> Mapping[str, Any]:
        if contestant not in losses:
            raise InvalidInputError("page.evaluate: Error: Kernel 'A|B' not registered. Did you forget it?")
        return {"losses": losses[contestant], "first": 90.0, "times": [3.0, 1.0 + seconds, 4.0]}

    return run


def test_rows_compare_losses_first() -> None:
    rows = web.measured(MODEL, [FIRST, SECOND, THIRD], _run({FIRST: [2.0, 1.0], SECOND: [2.0, 1.00001]}), 2, 1.0)
    assert [row.get("minimum_ms") for row in rows] == [2.0, 2.0, None]
    assert rows[0] == {
        **dataclasses.asdict(FIRST), "model": MODEL.name, "error": 0.0,
        "first_ms": 90.0, "minimum_ms": 2.0, "median_ms": 3.0,
    }  # fmt: skip
    assert rows[1]["error"] == pytest.approx(1e-5)
    assert rows[2]["why"] == "Kernel 'A/B' not registered."
    # Of what has no such optimizer the first loss alone.
    assert web.measured(MODEL, [FIRST, SECOND], _run({FIRST: [2.0, 1.0], SECOND: [2.0]}), 1, 1.0)[1]["error"] == 0
    with pytest.raises(SystemExit, match=r"the losses differ by 5\.0e-01"):
        web.measured(MODEL, [FIRST, SECOND], _run({FIRST: [2.0, 1.0], SECOND: [2.0, 1.5]}), 1, 1.0)


def test_table_and_picture(tmp_path: Path) -> None:
    rows = web.measured(MODEL, [FIRST, SECOND, THIRD], _run({FIRST: [2.0], SECOND: [2.0]}), 1, 0.0)
    sizes = [{"what": "onnxruntime-web", "bytes": 14_300_000, "compressed": 3_700_000}]
    text = tables.web({"results": {"rows": rows, "downloads": sizes, "versions": {"onnxruntime-web": "1.30.0"}}})
    assert "| Node | lstm-lower, onnxruntime-node | 1 | 1.00 / 3.00 / 90.0 |" in text
    assert "| Node | TensorFlow.js, cpu | 1 | Kernel 'A/B' not registered. |" in text
    assert "| onnxruntime-web | 14,300 | 3,700 |" in text
    plot.draw_steps(rows, tmp_path / "web.svg")
    assert "refused" in (tmp_path / "web.svg").read_text(encoding="utf-8")


@pytest.mark.slow
def test_what_is_not_installed_is_told(tmp_path: Path) -> None:
    support.node()
    if importlib.util.find_spec("executorch") is not None:
        pytest.skip("ExecuTorch is installed")
    pytest.importorskip("torch")
    with web.runs(tmp_path, tmp_path) as run:
        (row,) = web.measured(MODEL, web.CONTESTANTS[-1:], run, 1, 0.0)
    assert row["why"] == "No module named 'executorch'"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lstm_32", "cnn"])
def test_bundles_train_in_node(tmp_path: Path, name: str) -> None:
    pytest.importorskip("torch")
    support.node()
    web.write(web.MODELS[name], tmp_path)
    script = str(ANYWHERE / "train_node.mjs")
    words = ["bundle onnxruntime-web", "1", str(web.COMPARED), "0"]
    found = last_line("node", script, str(support.ROOT), str(tmp_path), *words)
    with np.load(tmp_path / "data.npz") as data:
        batch = {"x": data["x"], "target": data["labels"]}
    expected = plain_loop(tmp_path / "bundle", web.COMPARED, lambda _: batch)[0]
    np.testing.assert_allclose(found["losses"], expected, rtol=1e-5)
    assert len(found["times"]) == web.COMPARED - 1
