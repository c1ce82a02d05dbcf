"""Steps of sequences: read where they were made, or all at once, with the same results."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lstm_lower as ll
from lstm_lower.passes.targets.step_reads import ReadStepsPass

# How a sequence [N, 2, 3], with its steps along an axis, comes about from the input x [N, 2, 3].
SOURCES = {
    "input": "s = Identity(x)",
    "along the last axis": "s = Transpose<perm = [1, 2, 0]>(x)",
    "steps of their own": "{parts} = Split<axis = 0, num_outputs = {N}>(x) s = Concat<axis = 0>({parts})",
    "stacked": "{parts} = Split<axis = 0, num_outputs = {N}>(x) {squeezed} s = Concat<axis = 0>({unsqueezed})",
}


def reading(source: str, steps: int, read: Sequence[int], kept: int = 0) -> onnx.ModelProto:
    """A model that reads steps of a sequence and makes another of them; the first `kept` are outputs, too."""
    axis = 2 if source == "along the last axis" else 0
    parts = [f"p{number}" for number in range(steps)]
    apart = " ".join(f"q{number} = Squeeze({part}, zero) u{number} = Unsqueeze(q{number}, zero)"
                     for number, part in enumerate(parts))  # fmt: skip
    made = SOURCES[source].format(
        N=steps, parts=", ".join(parts), squeezed=apart, unsqueezed=", ".join(f"u{number}" for number in range(steps))
    )
    gathers = " ".join(
        f"i{place} = Constant<value_int = {number}>() g{place} = Gather<axis = {axis}>(s, i{place}) "
        f"t{place} = Tanh(g{place}) w{place} = Unsqueeze(t{place}, zero)"
        for place, number in enumerate(read)
    )
    outputs = ["float[K,2,3] y", *(f"float[2,3] g{place}" for place in range(kept))]
    joined = ", ".join(f"w{place}" for place in range(len(read)))
    return onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 18]> g (float[{steps},2,3] x) => ({", ".join(outputs)}) '
        f"<int64[1] zero = {{0}}> {{ {made} {gathers} y = Concat<axis = 0>({joined}) }}"
    )


def passed(model: onnx.ModelProto) -> onnx.ModelProto:
    work = ir.from_proto(model)
    step = ReadStepsPass()
    step.verify_each = True
    step(work)
    return ir.to_proto(work)


def count(model: onnx.ModelProto, op: str) -> int:
    return sum(node.op_type == op for node in model.graph.node)


@given(
    st.sampled_from([*SOURCES]),
    st.integers(3, 40).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.integers(-n, n - 1), min_size=1))),
    st.integers(0, 2),
)
def test_the_same_steps_are_read(source: str, sizes: tuple[int, list[int]], kept: int) -> None:
    steps, read = sizes
    model = reading(source, steps, read, min(kept, len(read)))
    x = np.random.default_rng(0).standard_normal((steps, 2, 3)).astype(np.float32)
    found, expected = ll.Session(passed(model)).run({"x": x}), ll.Session(model).run({"x": x})
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[name], expected[name]) for name in expected)
    again = ir.from_proto(passed(model))
    assert not ReadStepsPass()(again).modified


@pytest.mark.parametrize(
    ("source", "read", "gathers", "splits"),
    [
        ("input", [0, 1, 2, 3], 0, 1),
        ("along the last axis", [3, -1, 0, 2], 0, 1),
        ("input", [0, 1], 2, 0),            # a half of them
        ("steps of their own", [2], 0, 1),  # the model's own Split
        ("stacked", [0, 1, 2, 3], 0, 1),
    ],
)  # fmt: skip
def test_one_split_stands_for_many_gathers(source: str, read: list[int], gathers: int, splits: int) -> None:
    made = passed(reading(source, 4, read))
    assert (count(made, "Gather"), count(made, "Split")) == (gathers, splits)
    if source == "stacked":
        assert count(made, "Concat") == 1, "the sequence is read by nobody"


def test_indices_that_are_no_single_step_stay() -> None:
    model = onnx.parser.parse_model("""
<ir_version: 8, opset_import: ["" : 18]>
g (float[4,2] x, int64 n, float[T,2] open) => (float[1,2] a, float[2] b, float[2] c)
<int64[1] first = {0}, int64 one = {1}>
{ a = Gather(x, first) b = Gather(x, n) c = Gather(open, one) }""")
    assert count(passed(model), "Gather") == 3


def test_an_unrolled_loop_for_a_capture_has_no_gathers() -> None:
    model = onnx.parser.parse_model("""
<ir_version: 8, opset_import: ["" : 18]> g (float[70,3] x, float[3] h) => (float[3] last, float[70,3] all)
{ last, all = Scan<num_scan_inputs = 1, body = b (float[3] a, float[3] e) => (float[3] s, float[3] o)
  { p = Mul(a, e) s = Tanh(p) o = Neg(s) }>(h, x) }""")
    made = ll.lower(model, target="cuda-graph", verify_each=True)
    assert count(made, "Gather") == 0
    assert max(max(len(node.input), len(node.output)) for node in made.graph.node) == 32
    feeds = {"x": np.random.default_rng(0).uniform(0.5, 1, (70, 3)).astype(np.float32), "h": np.ones(3, np.float32)}
    found, expected = ll.Session(made).run(feeds), ll.Session(model).run(feeds)
    assert all(np.array_equal(found[name], expected[name]) for name in expected)
