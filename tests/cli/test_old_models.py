"""Models older than opset 13, whose Slice, Split and ReduceSum have their sizes as attributes, in every command."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.support.command_line import fail, succeed

pytestmark = pytest.mark.usefixtures("forked_workers")

INPUT, HIDDEN = 3, 2


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A GRU of opset 9 whose initial state fits a batch of 1 only, behind nodes in forms that are gone."""
    rng = np.random.default_rng(0)
    shapes = {"W": (1, 3 * HIDDEN, INPUT), "R": (1, 3 * HIDDEN, HIDDEN), "h0": (1, 1, HIDDEN)}
    weights = [numpy_helper.from_array(rng.normal(size=s).astype("f"), name) for name, s in shapes.items()]
    nodes = [
        helper.make_node("Slice", ["x"], ["late"], axes=[1], starts=[1], ends=[2**31 - 1]),
        helper.make_node("Split", ["late"], ["a", "b"], axis=2, split=[INPUT, 1]),
        helper.make_node("Transpose", ["a"], ["sequence"], perm=[1, 0, 2]),
        helper.make_node("GRU", ["sequence", "W", "R", "", "", "h0"], ["h", ""], hidden_size=HIDDEN),
        helper.make_node("Squeeze", ["h"], ["states"], axes=[1]),
        helper.make_node("ReduceSum", ["states"], ["y"], axes=[0], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "old",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "frames", INPUT + 1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", HIDDEN])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 9)], ir_version=6)
    onnx.checker.check_model(model)
    path = tmp_path / "old.onnx"
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("command", ["run", "check", "report", "bench"])
def test_a_command_that_runs_it(command: str, old: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    more = {"report": ["-o", tmp_path / "page.html"], "bench": ["--seconds", "0.01", "--rounds", "1"]}.get(command, [])
    succeed(command, old, "--dim", "batch=1", *more)
    assert capfd.readouterr().err == ""
    # The sizes that nobody chose are named; onnxruntime writes no line of its own.
    message = fail(command, old, "--dim", "frames=5", *more)
    assert "the random feeds are of batch=4, frames=5; others by --dim NAME=SIZE" in message
    assert capfd.readouterr().err == ""


def test_inspect_names_its_recurrent_nodes(old: Path) -> None:
    assert "ONNX's own nodes (1 GRU) run as they are; `lstm-lower gradient` differentiates them" in succeed(
        "inspect", old
    )


def test_recurrent_nodes_are_written_in_simpler_ones_for_a_target(old: Path) -> None:
    fixed = ("--target", "ggml", "--dim", "batch=1", "--dim", "frames=3")
    out = old.with_name("lowered.onnx")
    assert "ONNX's own nodes (1 GRU) are written in simpler ones" in succeed("lower", old, *fixed, "-o", out)
