"""onnxruntime's profile as a tree, on graphs whose calls can be counted by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import lstm_lower as ll
from lstm_lower.records.model_files import load
from lstm_lower.runtime.feeds import random_feeds
from lstm_lower.runtime.node_times import by_loop, by_op, node_times
from lstm_lower.runtime.profile import ProfiledBody, profile, read, walk
from lstm_lower.runtime.session import default_options

# Two iterations of a Loop around a Scan of three steps around an If, whose branches have one and two nodes; no node has
# a name. Rows 0 and 2 are above zero.
NESTED = """
<ir_version: 9, opset_import: ["": 18]>
nested (float[3,4] x) => (float[3,4] y, float[K,3,4] every) {
  twice = Constant<value = int64 {2}>()
  yes = Constant<value = bool {1}>()
  nothing = Constant<value = float[4] {0,0,0,0}>()
  y, every = Loop <body = step (int64 i, bool go, float[3,4] a) => (bool on, float[3,4] b, float[3,4] seen) {
      on = Identity(go)
      last, rows = Scan <num_scan_inputs = 1, body = row (float[4] from, float[4] one) => (float[4] sum, float[4] out) {
          sum = Add(from, one)
          total = ReduceSum<keepdims = 0>(one)
          zero = Constant<value = float {0}>()
          above = Greater(total, zero)
          out = If (above) <
              then_branch = then () => (float[4] p) { p = Exp(sum) },
              else_branch = other () => (float[4] q) { r = Sin(sum) q = Tanh(r) }>
      } > (nothing, a)
      b = Add(a, rows)
      seen = Exp(rows)
  } > (twice, yes, x)
}
"""


@pytest.fixture(scope="module")
def nested() -> onnx.ModelProto:
    model = onnx.parser.parse_model(NESTED)
    onnx.checker.check_model(model, full_check=True)
    return model


def feeds() -> dict[str, np.ndarray]:
    return {"x": np.array([[1] * 4, [-1] * 4, [1] * 4], np.float32)}


def inside(body: ProfiledBody) -> bool:
    """Whether every call lies inside what it is in, up to the microsecond that times are rounded to."""
    edge = body.start + body.seconds + 2e-6
    return all(
        body.start <= call.start
        and call.start + call.seconds <= edge
        and all(call.start <= inner.start and inside(inner) for inner in call.bodies)
        for call in body.calls
    )


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_ALL"])
def test_calls_of_nested_bodies(nested: onnx.ModelProto, level: str, threads: int) -> None:
    options = default_options()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    options.intra_op_num_threads = threads
    runs = profile(nested, feeds(), runs=2, session_options=options)
    assert len(runs) == 2
    assert all(map(inside, runs))
    nodes = {(node.place, node.op): node for node in node_times(runs) if node.op != "Constant"}
    loop = next(node for node in nodes.values() if node.op == "Loop")
    scan = next(node for node in nodes.values() if node.op == "Scan")
    branch = next(node for node in nodes.values() if node.op == "If")
    in_loop, in_scan = (loop.name,), (loop.name, scan.name)
    in_branch = (*in_scan, branch.name)
    # First iteration: rows 0 and 2 are above zero. What Exp, Sin and Tanh leave is added, and row 1 stays below.
    expected = {
        ((), "Loop"): 1, (in_loop, "Identity"): 2, (in_loop, "Scan"): 2, (in_loop, "Add"): 2, (in_loop, "Exp"): 2,
        (in_scan, "Add"): 6, (in_scan, "ReduceSum"): 6, (in_scan, "Greater"): 6, (in_scan, "If"): 6,
        (in_branch, "Exp"): 4, (in_branch, "Sin"): 2, (in_branch, "Tanh"): 2,
    }  # fmt: skip
    assert {key: node.calls for key, node in nodes.items()} == expected
    assert (loop.iterations, scan.iterations, branch.iterations) == (2, 6, 6)
    assert nodes[in_loop, "Exp"].written == 2 * 3 * 4 * 4
    assert {node.provider for node in nodes.values()} == {"CPUExecutionProvider"}


def test_tables_count_every_leaf_once(nested: onnx.ModelProto) -> None:
    runs = profile(nested, feeds(), runs=1)
    leaves = [call for _, call in walk(runs[0]) if not call.bodies]
    nodes = node_times(runs)
    for rows in (by_op(nodes), by_loop(nodes)):
        assert sum(row.seconds for row in rows) == pytest.approx(sum(call.seconds for call in leaves))
        assert sum(row.calls for row in rows) == len(leaves)
        assert sum(row.written for row in rows) == sum(call.written for call in leaves)
    assert [(len(row.place), row.iterations) for row in by_loop(nodes)] == [(0, 1), (1, 2), (2, 6), (3, 6)]
    seconds = [row.seconds for row in by_op(nodes)]
    assert seconds == sorted(seconds, reverse=True)


def test_a_training_step_of_two_loops() -> None:
    model = onnx.load("examples/graphs/char_lstm_train.onnx")
    lowered = ll.lower(model, schedule="scan")
    fed = random_feeds(load(model))
    loops = by_loop(node_times(profile(lowered, fed, runs=1)))
    assert [row.iterations for row in loops if row.place] == [20, 20]
    unrolled = by_loop(node_times(profile(ll.lower(model, schedule="unroll"), fed, runs=1)))
    assert [row.place for row in unrolled] == [()]


def test_only_whole_runs_are_read(nested: onnx.ModelProto, tmp_path: Path) -> None:
    options = default_options()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "profile")
    session = ort.InferenceSession(nested.SerializeToString(), options)
    for _ in range(2):
        session.run(None, feeds())
    path = Path(session.end_profiling())
    events = json.loads(path.read_text())
    assert len(read(path)) == 2
    path.write_text(json.dumps(events[:-3]))
    assert len(read(path)) == 1


@pytest.mark.parametrize("text", ["", "[1]", '{"a": 1}', '[{"cat": "Node", "name": "a_kernel_time"}]', "\x00\xff"])
def test_what_is_no_profile(text: str, tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(ll.InvalidInputError, match="a profile of onnxruntime is required"):
        read(path)
