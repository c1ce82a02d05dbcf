"""Loops divided into blocks: sizes of 0, and blocks longer than any loop."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import lstm_lower as ll
from lstm_lower.passes.trace import Trace
from tests.support.loop_checks import run

EMPTY = """
loops (float[{T},B,3] xs, float[B,2] first) => (float[B,2] last, ys, zs)
{{
  last, ys, zs = Scan <num_scan_inputs = 1, scan_output_axes = [0, 2], scan_output_directions = [0, 1],
    body = step (float[B,2] s, float[B,3] x) => (float[B,2] s2, float[2,B,3] y, float[B,2] z)
    {{ k = Constant <value = float[2,1,1] {{1.0, 2.0}}> () y = Mul(k, x) s2 = Tanh(s) z = Identity(s) }}> (first, xs)
}}"""


@pytest.mark.parametrize("opset", [13, 21])
@pytest.mark.parametrize("batch", [0, 1, 2])
@pytest.mark.parametrize("length", ["4", "5", "T"])
@pytest.mark.parametrize("steps", [2, 3])
def test_sizes_of_0_stay_in_their_places(opset: int, batch: int, length: str, steps: int) -> None:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> {EMPTY.format(T=length)}')
    random = np.random.default_rng(0)
    count = 5 if length == "T" else int(length)
    feeds = {
        name: random.standard_normal((*shape,)).astype(np.float32)
        for name, shape in {"xs": (count, batch, 3), "first": (batch, 2)}.items()
    }
    trace = Trace()
    after = ll.optimize(model, f"chunk:{steps}", trace=trace)
    assert any(change.pass_name == "strip-mining" for change in trace.changes)
    for optimised in (False, True):
        for a, b in zip(run(model, feeds, optimised=optimised), run(after, feeds, optimised=optimised), strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-6)


def test_blocks_are_not_padded_beyond_all_measure() -> None:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {EMPTY.format(T="T")}')
    trace = Trace()
    feeds = {"xs": np.ones((3, 1, 3), np.float32), "first": np.ones((1, 2), np.float32)}
    after = ll.optimize(model, "chunk:4000000000", trace=trace)
    assert any("padded" in refusal.reason for refusal in trace.refusals)
    for a, b in zip(run(model, feeds), run(after, feeds), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-6)


BACKWARDS = """
<ir_version: 8, opset_import: ["" : 13]>
loops (float[4] x) => (float[?,?] ys)
<int64[1] start = {-2}, int64[1] largest = {2147483647}, int64[1] axis = {-1}, int64[1] step = {-2}, int64 four = {4},
 bool yes = {1}>
{
  ys = Loop (four, yes) <body = step (int64 i, bool c) => (bool d, float[0] y)
    { d = Identity(c) y = Slice(x, start, largest, axis, step) }>
}"""


@pytest.mark.parametrize("schedule", ["auto", "scan", "unroll", "chunk:2", "chunk:3"])
def test_a_slice_that_onnxruntime_infers_to_be_empty_and_fills(schedule: str) -> None:
    model = onnx.parser.parse_model(BACKWARDS)
    feeds = {"x": np.arange(4, dtype=np.float32)}
    after = ll.optimize(model, schedule)
    for optimised in (False, True):
        (got,) = run(after, feeds, optimised=optimised)
        np.testing.assert_array_equal(got, [[2.0, 0.0]] * 4)


def test_steps_beyond_int64_are_not_rounded_up() -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 18]> g (float[3] first) => (float[?,3] ys) {{
      n = Constant <value = int64 {{{2**63 - 1}}}> () yes = Constant <value = bool {{1}}> ()
      last, ys = Loop <body = b (int64 i, bool c, float[3] s) => (bool d, float[3] t, float[3] y)
        {{ d = Identity(c) t = Tanh(s) y = Neg(t) }}> (n, yes, first) }}"""
    after = ll.optimize(onnx.parser.parse_model(text), "chunk:8")
    assert after.ByteSize() < 10_000


# Sequences that are another one moved by a step, or joined of more: what the graph makes of xs, zs and ws.
MOVED = {
    "before": ("whole = Concat <axis = 0> (first, xs) moved = Slice(whole, zero, minus_one, zero)", 2),
    "before, cut first": ("kept = Slice(xs, zero, minus_one, zero) moved = Concat <axis = 0> (first, kept)", 2),
    "behind": ("whole = Concat <axis = 0> (xs, first) moved = Slice(whole, one, end, zero)", 2),
    "behind, cut first": ("kept = Slice(xs, one, end, zero) moved = Concat <axis = 0> (kept, first)", 2),
    "by two": (
        """
      pair = Concat <axis = 0> (first, first, xs) whole = Slice(pair, zero, minus_two, zero)
      moved = Identity(whole)""",
        3,
    ),
    "in three parts": (
        """
      kept = Slice(xs, one, minus_one, zero) moved = Concat <axis = 0> (first, kept, first)""",
        3,
    ),
    "joined alone": ("kept = Tanh(xs) part = Slice(kept, zero, one, one) moved = Concat <axis = 1> (part, part)", 0),
    "read twice": ("whole = Concat <axis = 0> (first, xs) moved = Slice(whole, zero, minus_one, zero)", 0),
}


@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize(("length", "steps"), [(6, 2), (6, 4), (5, 2), (6, 1), (5, 3)])
@pytest.mark.parametrize("form", MOVED)
def test_a_sequence_moved_by_a_step_is_cut_out_of_the_original(
    form: str, length: int, steps: int, reverse: int
) -> None:
    nodes, count = MOVED[form]
    also = "also = Neg(moved)" if form == "read twice" else "also = Neg(xs)"
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 18]>
    loops (float[{length},2] xs, float[1,2] first, float[2] start) => (float[2] last, float[{length},2] ys, also)
    <int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] minus_one = {{-1}}, int64[1] minus_two = {{-2}},
     int64[1] end = {{9223372036854775807}}>
    {{
      {nodes}
      {also}
      last, ys = Scan <num_scan_inputs = 2, scan_input_directions = [{reverse}, 0],
        body = step (float[2] s, float[2] m, float[2] x) => (float[2] s2, float[2] y)
        {{ t = Mul(s, m) s2 = Add(t, x) y = Tanh(s2) }}> (start, moved, xs)
    }}""")
    random = np.random.default_rng(0)
    shapes = {"xs": (length, 2), "first": (1, 2), "start": (2,)}
    feeds = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    after = ll.optimize(model, f"chunk:{steps}", verify_each=True)
    outer = next(node for node in after.graph.node if node.op_type == "Scan")
    body = next(attribute.g for attribute in outer.attribute if attribute.name == "body")
    cuts = {name for node in body.node if node.op_type == "Slice" for name in node.output}
    joined = [node for node in body.node if node.op_type == "Concat" and {*node.input} <= cuts]
    assert [len(node.input) for node in joined] == ([count] if count else [])
    for optimised in (False, True):
        for a, b in zip(run(model, feeds, optimised=optimised), run(after, feeds, optimised=optimised), strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-6)
