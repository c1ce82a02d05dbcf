"""Operators moved between opsets inside branches, loops and sequences, and over random operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis
import numpy as np
import onnx
import pytest
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import lstm_lower as ll
from tests.support.opset_case import Array, Case, f32, i64
from tests.support.opset_cases import DOWNWARDS
from tests.support.opset_models import FLOAT, INT64, convert, info, model_of, run_ort, run_reference


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_recurrent_layout(op: str) -> None:
    case = next(case for case in DOWNWARDS if case.op == op and case.label == "batch-first")
    turned = [
        np.swapaxes(value, 0, 1) if value is not None and index in (0, 5, 6) else value
        for index, value in enumerate(case.inputs)
    ]
    usual = Case(op, 14, tuple(turned), {**case.attributes, "layout": 0}, outputs=case.outputs)
    unknown = [np.zeros((1,) * (4 if index == 0 else 3), np.float32) for index in range(case.outputs)]
    y, *states = run_ort(usual.model(results=unknown, form="open"), usual.feeds)
    expected = [np.transpose(y, (2, 0, 1, 3)), *[np.swapaxes(state, 0, 1) for state in states]]
    model = convert(case.model(results=expected), 13)
    for got, wanted in zip(run_ort(model, case.feeds), expected, strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-6)


def test_noop_reductions() -> None:
    x = np.abs(f32(2, 3)) + 1
    elementwise = {"ReduceL1": np.abs, "ReduceL2": np.abs, "ReduceLogSum": np.log, "ReduceSumSquare": np.square}
    for op in ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceLogSumExp", *elementwise):
        for axes in ([], [numpy_helper.from_array(i64([]), "a")]):
            inputs = ["x", "a"] if axes else ["x"]
            node = helper.make_node(op, inputs, ["y"], noop_with_empty_axes=1)
            model = model_of([node], [info("x", FLOAT, 2, 3)], [info("y", FLOAT, 2, 3)], 18, initializer=axes)
            (got,) = run_ort(convert(model, 13), {"x": x})
            np.testing.assert_allclose(got, elementwise.get(op, np.positive)(x), rtol=1e-6)


def _if(*names: str, then: list[onnx.NodeProto], other: list[onnx.NodeProto], dtype: int = FLOAT) -> onnx.NodeProto:
    branches = [
        helper.make_graph(nodes, name, [], [info(nodes[-1].output[0], dtype, *[None] * 2)])
        for name, nodes in (("then", then), ("other", other))
    ]
    return helper.make_node("If", ["condition"], list(names), then_branch=branches[0], else_branch=branches[1])


def test_computed_and_captured_axes() -> None:
    """Axes that follow from the rank or from constants outside are as good as constants."""
    nodes = [
        helper.make_node("Constant", [], ["one"], value_ints=[1]),
        helper.make_node("Constant", [], ["two"], value_ints=[2]),
        helper.make_node("Sub", ["two", "one"], ["axes"]),
        helper.make_node("Shape", ["x"], ["shape"], start=1),
        helper.make_node("Shape", ["shape"], ["rank"]),
        _if(
            "y",
            then=[helper.make_node("ReduceMax", ["x", "axes"], ["a"])],
            other=[helper.make_node("ReduceMin", ["x", "rank"], ["b"])],
        ),
    ]
    model = model_of(
        nodes, [info("x", FLOAT, "N", 3), info("condition", TensorProto.BOOL)], [info("y", FLOAT, "N", None)], 18
    )
    x = f32(4, 3)
    converted = convert(model, 13)
    for condition, reduce in ((True, np.max), (False, np.min)):
        feeds = {"x": x, "condition": np.asarray(condition)}
        for run in (run_ort, run_reference):
            np.testing.assert_array_equal(run(converted, feeds)[0], reduce(x, axis=1, keepdims=True))


def test_inside_loops() -> None:
    """Bodies of Loop and Scan, two levels deep, with captured values and scattering that becomes a Loop itself."""
    scatter = [
        helper.make_node("ScatterND", ["state", "i", "u"], ["next"], reduction="add"),
        helper.make_node("Split", ["next"], ["left", "right"], num_outputs=2, axis=1),
        helper.make_node("ReduceMax", ["left", "axes"], ["top"], keepdims=0),
        helper.make_node("Add", ["top", "u0"], ["seen"]),
    ]
    body = helper.make_graph(
        scatter,
        "scan",
        [info("state", FLOAT, 4, 3), info("u", FLOAT, 2, 3)],
        [info("next", FLOAT, 4, 3), info("seen", FLOAT, 4)],
    )
    scan = helper.make_node("Scan", ["carried", "updates"], ["after", "tops"], body=body, num_scan_inputs=1)
    loop_body = helper.make_graph(
        [helper.make_node("Identity", ["again"], ["more"]), scan],
        "loop",
        [info("turn", INT64), info("again", TensorProto.BOOL), info("carried", FLOAT, 4, 3)],
        [info("more", TensorProto.BOOL), info("after", FLOAT, 4, 3), info("tops", FLOAT, 5, 4)],
    )
    loop = helper.make_node("Loop", ["turns", "yes", "x"], ["y", "all"], body=loop_body)
    constants = {
        "turns": i64(3),
        "yes": np.ones((), bool),
        "axes": i64([1]),
        "u0": np.ones((), np.float32),
        "i": i64([[1], [1]]),
    }
    model = model_of(
        [loop],
        [info("x", FLOAT, 4, 3), info("updates", FLOAT, 5, 2, 3)],
        [info("y", FLOAT, 4, 3), info("all", FLOAT, 3, 5, 4)],
        18,
        initializer=[numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    feeds = {"x": f32(4, 3), "updates": f32(5, 2, 3)}
    expected = run_ort(model, feeds)
    for target in (17, 15, 13):
        for got, wanted in zip(run_ort(convert(model, target), feeds), expected, strict=True):
            np.testing.assert_array_equal(got, wanted)


def test_sequences_and_optionals() -> None:
    sequence = helper.make_tensor_type_proto(FLOAT, [None, 3])
    body = helper.make_graph(
        [helper.make_node("ReduceMax", ["e", "axes"], ["r"], keepdims=0)],
        "map",
        [helper.make_value_info("e", sequence)],
        [info("r", FLOAT, None)],
    )
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "z"], ["s"]),
        helper.make_node("Identity", ["s"], ["t"]),
        helper.make_node("SequenceMap", ["t"], ["m"], body=body),
        helper.make_node("ConcatFromSequence", ["m"], ["c"], axis=0),
        helper.make_node("OptionalGetElement", ["c"], ["y"]),
        helper.make_node("OptionalHasElement", ["c"], ["has"]),
        helper.make_node("OptionalHasElement", [""], ["hasnt"]),
    ]
    model = model_of(
        nodes,
        [info("x", FLOAT, 2, 3), info("z", FLOAT, 4, 3)],
        [info("y", FLOAT, None), info("has", TensorProto.BOOL), info("hasnt", TensorProto.BOOL)],
        18,
        initializer=[numpy_helper.from_array(i64([1]), "axes")],
    )
    feeds = {"x": f32(2, 3), "z": f32(4, 3)}
    expected = np.concatenate([feeds["x"].max(1), feeds["z"].max(1)])
    for target in (17, 16, 15, 13):
        y, has, has_not = run_ort(convert(model, target), feeds)
        np.testing.assert_array_equal(y, expected)
        assert has
        assert not has_not


def test_scan_closes_over_casts() -> None:
    """CastLike takes its type from a value whose type only inference knows."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("CastLike", ["x", "s"], ["c"]),
        helper.make_node("Identity", ["c"], ["y"]),
    ]
    model = model_of(nodes, [info("x", FLOAT, 2)], [info("y", INT64, 2)], 15)
    converted = convert(model, 13)
    assert [node.op_type for node in converted.graph.node] == ["Shape", "Cast", "Identity"]
    assert run_ort(converted, {"x": np.asarray([1.5, -2.5], np.float32)})[0].tolist() == [1, -2]


def _sequential(data: Array, places: list[tuple[int, ...]], updates: Array, combine: Callable[..., Any]) -> Array:
    result = data.copy()
    for place, update in zip(places, updates, strict=True):
        result[place] = combine(result[place], update)
    return result


COMBINE: dict[str, Callable[..., Any]] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


@hypothesis.settings(max_examples=20, deadline=None)
@hypothesis.given(data=st.data())
def test_scattering_is_sequential(data: st.DataObject) -> None:
    """Bit for bit what a loop over the updates computes, in whatever order and however often places come."""
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    depth = data.draw(st.integers(1, len(shape)))
    count = data.draw(st.integers(0, 8))
    reduction = data.draw(st.sampled_from(sorted(COMBINE)))
    places = [tuple(data.draw(st.integers(-size, size - 1)) for size in shape[:depth]) for _ in range(count)]
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    dtype = data.draw(st.sampled_from([np.float32, np.float64, np.int32]))
    x = (random.standard_normal(shape) * 9).astype(dtype)
    updates = (random.standard_normal((count, *shape[depth:])) * 9).astype(dtype)
    indices = np.asarray(places, np.int64).reshape(count, depth)
    case = Case("ScatterND", 18, (x, indices, updates), {"reduction": reduction})
    expected = _sequential(x, places, updates, COMBINE[reduction])
    model = convert(case.model(results=[expected], form=data.draw(st.sampled_from(case.forms))), 13)
    np.testing.assert_array_equal(run_ort(model, case.feeds)[0], expected)
    np.testing.assert_array_equal(run_reference(model, case.feeds)[0], expected)


@hypothesis.settings(max_examples=20, deadline=None)
@hypothesis.given(data=st.data())
def test_padding_of_axes(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    axes = data.draw(st.lists(st.integers(0, len(shape) - 1), unique=True, min_size=1))
    pads = [(data.draw(st.integers(0, 5)), data.draw(st.integers(0, 5))) for _ in axes]
    signs = [axis - len(shape) * data.draw(st.integers(0, 1)) for axis in axes]
    mode = data.draw(st.sampled_from(["constant", "edge", "wrap"]))
    constants = data.draw(st.sampled_from([(), (1, 3), (3,)] if mode != "wrap" else [(1, 3), (3,)]))
    x = f32(*shape)
    widths = [(0, 0)] * len(shape)
    for axis, width in zip(axes, pads, strict=True):
        widths[axis] = width
    expected = np.pad(x, widths, mode=mode)
    both = i64([width[0] for width in pads] + [width[1] for width in pads])
    case = Case("Pad", 19, (x, both, None, i64(signs)), {"mode": mode}, constants=constants)
    model = convert(case.model(results=[expected], form=data.draw(st.sampled_from(case.forms))), 13)
    np.testing.assert_array_equal(run_ort(model, case.feeds)[0], expected)


def test_bfloat16_that_old_versions_know() -> None:
    nodes = [helper.make_node("MatMul", ["x", "x"], ["m"]), helper.make_node("ReduceSum", ["m", "axes"], ["y"])]
    model = model_of(
        nodes,
        [info("x", TensorProto.BFLOAT16, 3, 3)],
        [info("y", TensorProto.BFLOAT16, None, 1)],
        23,
        initializer=[numpy_helper.from_array(i64([1]), "axes")],
    )
    assert convert(model, 13).graph.node[0].op_type == "MatMul"


def test_sizes_that_inference_names_differ_between_two_bodies() -> None:
    """onnxruntime lets values share memory whose sizes have one name."""
    text = """<ir_version: 8, opset_import: ["" : 18]>
    g (float[A,B,C,D] x) => (float[?,?,?,?] y, float[?,?,?,?,?] z)
    <int64 two = {2}, bool yes = {1}, float[2] w = {1, 2}, float[4,2] v = {1, 2, 3, 4, 5, 6, 7, 8}>
    {
      y, z = Loop (two, yes, x) <body = step (int64 i, bool c, float[] s) => (bool d, float[] t, float[E,F,G,H] r)
        { d = Identity(c) t = LayerNormalization <axis = 3> (s, w, w) r = LayerNormalization <axis = 2> (s, v, v) }>
    }"""
    model = onnx.parser.parse_model(text)
    feeds = {"x": np.arange(24, dtype=np.float32).reshape(3, 1, 4, 2) ** 2}
    for got, wanted in zip(run_ort(ll.lower(model, opset=13), feeds), run_ort(model, feeds), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_what_an_old_form_becomes_in_two_bodies_has_other_names() -> None:
    text = """<ir_version: 7, opset_import: ["" : 11]>
    g (float[3,2,2] x, float[2,2] s, float[2,2] w) => (float[2,2] p, float[2,2] q) {{
      p = Scan <num_scan_inputs = 1, {body}> (s, x)
      q = Scan <num_scan_inputs = 1, {body}> (p, x)
    }}""".format(
        body="""body = f (float[2,2] h, float[2,2] e) => (float[2,2] n)
        { u = Neg(w) j = Softmax <axis = 0> (u) k = Mul(e, j) n = Add(h, k) }"""
    )
    model = onnx.parser.parse_model(text)
    shapes = {"x": (3, 2, 2), "s": (2, 2), "w": (2, 2)}
    feeds = {name: np.random.default_rng(0).random(shape, np.float32) for name, shape in shapes.items()}
    lowered = ll.lower(model, target="cuda-graph", verify_each=True)
    for got, wanted in zip(run_ort(lowered, feeds), run_ort(model, feeds), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5)


@pytest.mark.parametrize("axis", ["<axis = 0>", "<axis = 1>", ""])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
def test_results_of_old_forms_that_bodies_read(op: str, axis: str) -> None:
    """A graph within reads what becomes of the node, and knows of a captured value which axis is the last."""
    model = onnx.parser.parse_model(f"""<ir_version: 7, opset_import: ["" : 11]>
    g (float[3,2] x, float[2,2] w, bool c) => (float[3,2,2] p, float[2,2] q) {{
      u = {op} {axis} (w)
      p = Scan <num_scan_inputs = 1, body = f (float[2] e) => (float[2,2] n) {{
        v = {op} {axis} (w)
        n = If (c) <then_branch = t () => (float[2,2] m) {{ m = Add (v, e) }},
          else_branch = o () => (float[2,2] k) {{ k = Sub (v, u) }}>
      }}> (x)
      q = Neg (u)
    }}""")
    random = np.random.default_rng(0)
    feeds = {"x": random.random((3, 2), np.float32), "w": random.random((2, 2), np.float32)}
    for condition in (True, False):
        fed = {**feeds, "c": np.array(condition)}
        lowered = ll.lower(model, verify_each=True)
        for got, wanted in zip(run_ort(lowered, fed), run_ort(model, fed), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float", "double", "float16"])
@pytest.mark.parametrize("bounds", ["max = 1.0", "min = -1.0, max = 1.0"])
def test_bounds_that_were_attributes_have_the_type_of_the_data(dtype: str, bounds: str) -> None:
    text = f"""<ir_version: 7, opset_import: ["" : 9]>
    g ({dtype}[3] x) => ({dtype}[3] y) {{ y = Clip <{bounds}> (x) }}"""
    x = np.array([-3, 0.5, 3], {"float": "f", "double": "d", "float16": "e"}[dtype])
    (found,) = run_ort(ll.lower(onnx.parser.parse_model(text)), {"x": x})
    np.testing.assert_array_equal(found, np.clip(x, -1 if "min" in bounds else None, 1))
