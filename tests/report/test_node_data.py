"""Node data for Model Explorer: its form, and the ids that its ONNX adapter gives graphs and nodes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from lstm_lower.errors import InvalidInputError
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.records.model_files import load
from lstm_lower.report.analysis import Analysis, Feeds, analyse, measured
from lstm_lower.report.node_data import errors, times

CHARACTERS = Path(__file__).parents[2] / "examples" / "graphs" / "char_lstm_train.onnx"


# Without names of nodes, and of the graph.
BRANCHES = """<ir_version: 8, opset_import: ["" : 18]>
agraph (float[4] x, int64 n, bool c) => (float[4] y, float[4] z) {
  y = Loop (n, c, x) <body = b (int64 i, bool d, float[4] h) => (bool e, float[4] k) {
    e = Identity (d)
    k = If (d) <then_branch = t () => (float[4] s) { s = Neg (h) }, else_branch = f () => (float[4] q) { q = Abs (h) }>
  }>
  z = If (c) <then_branch = t () => (float[4] r) {
    p = Neg (x)
    r = Loop (n, c, p) <body = b (int64 i, bool d, float[4] v) => (bool a, float[4] w) { a = Identity(d) w = Sin(v) }>
  }, else_branch = f () => (float[4] q) { q = Abs (x) }>
}"""


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    return measured(analyse(load(CHARACTERS)), Feeds(sizes={"batch": 2}))


@pytest.mark.slow
def test_times(analysis: Analysis) -> None:
    found = times(analysis)
    loops = [node for node in analysis.lowered.graph if "body" in node.attributes]
    assert list(found) == ["tf2onnx", *(f"{loop.name}/body" for loop in loops)]
    for loop in loops:
        body = {node.name for node in loop.attributes["body"].as_graph()}
        assert set(found[f"{loop.name}/body"]["results"]) <= body
        assert len(found[f"{loop.name}/body"]["results"]) > 5
    main = {node.name for node in analysis.lowered.graph}
    assert set(found["tf2onnx"]["results"]) <= main
    assert len(found["tf2onnx"]["results"]) > 0.5 * len(main)
    assert all(result["value"] >= 0 for data in found.values() for result in data["results"].values())
    assert [colour["stop"] for colour in found["tf2onnx"]["gradient"]] == [0, 1]


def test_errors(analysis: Analysis) -> None:
    (data,) = errors(analysis).values()
    outputs = {f"[value] {value.name}" for value in analysis.lowered.graph.outputs}
    assert analysis.check is not None
    worst = max(max(row.relative.values()) for row in analysis.check.outputs)
    names = {node.name for node in all_nodes(analysis.lowered.graph)}
    assert outputs <= set(data["results"]) <= outputs | names
    assert max(result["value"] for result in data["results"].values()) == pytest.approx(worst, rel=0.01)


def test_names_and_branches() -> None:
    """Ids as model-explorer-onnx 0.4.2 makes them, which were seen in Model Explorer 0.1.34."""
    model = onnx.parser.parse_model(BRANCHES)
    model.graph.ClearField("name")
    found = times(
        measured(analyse(load(model)), Feeds({"x": np.ones(4, np.float32), "n": np.array(2), "c": np.bool_(1)}))
    )
    assert {graph: set(data["results"]) for graph, data in found.items()} == {
        "graph": {"y", "z", "z/then_branch/p", "z/then_branch/r"},
        "y/body": {"e", "k", "k/then_branch/s"},
        "z/then_branch/r/body": {"a", "w"},
    }


@pytest.mark.slow
def test_a_model_that_was_not_run() -> None:
    unrun = analyse(load(CHARACTERS))
    for make in (times, errors):
        with pytest.raises(InvalidInputError, match="a model that was not run"):
            make(unrun)
