"""Training steps with TensorFlow 1's recurrent models: three steps as TensorFlow takes them."""

from __future__ import annotations

import collections
import shutil
from pathlib import Path

import onnx
import pytest

import lstm_lower as ll
from tests.tensorflow.loops.checks import WAYS, Maker, Way, check, imported, loops, meta_of, needs_tensorflow
from tests.tensorflow.loops.grid import IN_BOTH_KINDS, KINDS, MADE_ON_THE_SPOT, PART

pytest.importorskip("tensorboard")

NUMBERED = [pytest.param(number, name, id=name) for number, name in enumerate(PART)]


def check_steps(meta: Path, number: int, name: str) -> None:
    lowered = check(meta, WAYS[number % len(WAYS)])
    if "/decoder/" in name:
        # How many steps there are follows from the data.
        assert loops(lowered)["Loop"]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "name"), [part for part in NUMBERED if part.id not in MADE_ON_THE_SPOT])
def test_three_steps_recorded(recorded: Path, number: int, name: str) -> None:
    check_steps(meta_of(recorded, name), number, name)


@pytest.mark.slow
@needs_tensorflow
@pytest.mark.parametrize(("number", "name"), [part for part in NUMBERED if part.id in MADE_ON_THE_SPOT])
def test_three_steps(maker: Maker, number: int, name: str) -> None:
    check_steps(maker.graph(name), number, name)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS[1:])
def test_three_steps_in_every_way(recorded: Path, way: Way) -> None:
    check(meta_of(recorded, "v1/arrays/whole/adam"), way)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["v1/nested/whole/sgd", "v2/arrays/lengths/sgd"])
def test_graphs_that_declare_no_shapes(recorded: Path, name: str, tmp_path: Path) -> None:
    """What TensorFlow writes beside each node may be gone from a graph."""
    from tensorboard.compat.proto.meta_graph_pb2 import MetaGraphDef

    meta = meta_of(recorded, name)
    for path in recorded.glob(f"{meta.stem}.*"):
        shutil.copy(path, tmp_path)
    graph = MetaGraphDef.FromString(meta.read_bytes())
    functions = graph.graph_def.library.function
    for node in (*graph.graph_def.node, *(node for function in functions for node in function.node_def)):
        node.attr.pop("_output_shapes", None)
    for function in functions:
        function.ClearField("arg_attr")
    (tmp_path / meta.name).write_bytes(graph.SerializeToString())
    check(tmp_path / meta.name)


def bodies(model: onnx.ModelProto) -> list[dict[str, int]]:
    """How many nodes of each operator the bodies of the loops have."""
    scans = [node for node in model.graph.node if node.op_type == "Scan"]
    graphs = [attribute.g for node in scans for attribute in node.attribute if attribute.name == "body"]
    found = [collections.Counter(node.op_type for node in graph.node) for graph in graphs]
    return sorted(found, key=lambda counted: sorted(counted.items()))


@pytest.mark.parametrize("name", IN_BOTH_KINDS)
def test_both_kinds_end_alike(recorded: Path, name: str) -> None:
    """Neither frames nor TensorArrays leave anything in the loops, or around them, that functions and lists do not."""
    frames, functions = (ll.lower(imported(meta_of(recorded, f"{kind}/{name}"))) for kind in KINDS)
    assert bodies(frames) == bodies(functions)
    assert len(bodies(frames)) == loops(frames)["Scan"] == 2 * (1 + name.startswith("bidirectional"))
    assert len(frames.graph.node) <= len(functions.graph.node)
    assert not any(node.op_type.startswith("Scatter") for node in frames.graph.node)


@pytest.mark.parametrize(("name", "left"), [("gathered_embedding", 0), ("broadcast", 0), ("nested_open", 1)])
def test_frames_that_append(recorded: Path, name: str, left: int) -> None:
    """Gradients with indices are put one behind another, and loops in loops share a stack: no forward loop grows."""
    lowered = ll.lower(imported(meta_of(recorded, f"v1/{name}")))
    assert loops(lowered) == {"Loop": left, "Scan": 2 - left}
