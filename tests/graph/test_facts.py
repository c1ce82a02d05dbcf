"""What is known of a node's outputs agrees with onnx's inference and with what onnxruntime computes, form by form."""

from __future__ import annotations

from typing import Any

import hypothesis
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from lstm_lower.dims import SizeIdentity
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Workspace, replace
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.folding import folds
from tests.support.examples import tried
from tests.support.operator_cases import FORMS, Case, cases

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
quick = settings(tried(10), suppress_health_check=SLOW)


def computed(case: Case) -> list[np.ndarray[Any, Any]]:
    """What onnxruntime computes, its optimiser off; a form that it refuses is none."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    for output in model.graph.output:
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
        known = {value.name: value for value in [*inferred.graph.output, *inferred.graph.value_info]}
        if output.name in known:
            output.type.CopyFrom(known[output.name].type)
            if output.type.tensor_type.HasField("shape"):
                output.type.tensor_type.ClearField("shape")
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    try:
        return ort.InferenceSession(model.SerializeToString(), options).run(None, case.feeds)
    except Exception:  # noqa: BLE001 (onnxruntime's exceptions have no common base)
        return hypothesis.reject()


@pytest.mark.parametrize("op", sorted(FORMS))
@quick
@given(data=st.data())
def test_operator(op: str, data: st.DataObject) -> None:
    case = data.draw(cases(op))
    results = computed(case)
    model = ir.from_proto(case.model)
    facts = Facts.of(model)
    # The size that each name and each identity stands for.
    sizes: dict[Any, int] = {}
    for value in model.graph.inputs:
        for dim, size in zip(facts.shape(value) or (), case.feeds[value.name].shape, strict=True):
            if not isinstance(dim, int):
                assume(sizes.setdefault(dim, size) == size)
    for value, array in zip(model.graph.outputs, results, strict=True):
        check(facts, value, array, sizes)
        agrees_with_onnx(facts, value, case.model)


def check(facts: Facts, value: ir.Value, array: np.ndarray[Any, Any], sizes: dict[Any, int]) -> None:
    assert facts.dtype(value) is None or facts.dtype(value).numpy() == array.dtype
    shape = facts.shape(value)
    if shape is not None:
        assert len(shape) == array.ndim
        for dim, size in zip(shape, array.shape, strict=True):
            assert (dim if isinstance(dim, int) else sizes.setdefault(dim, size)) == size
    constant = facts.constant(value)
    if constant is not None:
        assert constant.dtype == array.dtype
        np.testing.assert_array_equal(constant, array)
    entries = facts.entries(value)
    if entries is not None:
        for entry, number in zip(entries, array.reshape(-1).tolist(), strict=True):
            known = sizes.setdefault(entry, number) if isinstance(entry, str | SizeIdentity) else entry
            assert known == number
    uniform = facts.uniform(value)
    if uniform is not None:
        assert (array == uniform).all()
    if facts.finite(value):
        assert np.isfinite(array).all()


def agrees_with_onnx(facts: Facts, value: ir.Value, model: onnx.ModelProto) -> None:
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    known = {info.name: info.type for info in [*inferred.output, *inferred.value_info]}
    type_ = known.get(value.name or "")
    if type_ is None or not type_.tensor_type.HasField("shape"):
        return
    shape = facts.shape(value)
    assert shape is not None, "onnx knows the rank"
    disputed = getattr(facts.view(value.producer()), "disputed_axes", ())
    for axis, (dim, other) in enumerate(zip(shape, type_.tensor_type.shape.dim, strict=True)):
        if other.HasField("dim_value") and axis not in disputed:
            assert dim == other.dim_value


@pytest.mark.parametrize(("shape", "known"), [((1, 3), None), ((2, 3), (2, 3))])
def test_an_empty_list_of_axes_to_squeeze_is_only_certain_where_all_are_larger_than_1(
    shape: tuple[int, ...], known: tuple[int, ...] | None
) -> None:
    """onnx's inference leaves such axes alone, onnxruntime takes all of size 1 away."""
    text = (
        f"squeezed (float{list(shape)} x) => (float y) {{ a = Constant <value = int64[0] {{}}> () y = Squeeze(x, a) }}"
    )
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}')
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    model.graph.output[0].type.tensor_type.ClearField("shape")
    found = ir.from_proto(model)
    assert Facts.of(found).shape(found.graph.outputs[0]) == known


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("w (float[B,3] x) => (float[?,?] y) <bool c = {1}, float s = {1}> { y = Where(c, s, x) }", ("B", 3)),
        # onnxruntime does not ask that the sizes of an empty operand fit.
        ("c (float[B,3] x) => (float[?,?] y) <float[2,0] e = {}> { y = Concat <axis = 1> (e, x) }", ("B", 3)),
        ("d (float[0,B] x) => (float[?,N] y) <float[0,2] e = {}> { y = Concat <axis = 0> (e, x) }", (0, "N")),
        ("f (float[0,B] x) => (float[?,N] y) { y = Concat <axis = 0> (x, x) }", (0, "B")),
    ],
)
def test_shapes_and_values_of_empty_and_lone_operands(text: str, known: tuple[int | str, ...]) -> None:
    found = ir.from_proto(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}'))
    facts = Facts.of(found)
    assert facts.constant(found.graph.outputs[0]) is None
    assert facts.shape(found.graph.outputs[0]) == known


@pytest.mark.parametrize(
    ("node", "sizes"),
    [
        ("Resize (x, , s)", [8, None]),  # 5 of 3 * 1.6666666, and 4 to onnx's inference
        ("MaxPool <kernel_shape = [2, 2], auto_pad = 'SAME_UPPER', dilations = [2, 1]> (x)", [None, 3]),
        ("AveragePool <kernel_shape = [5, 1], strides = [2, 1], ceil_mode = 1> (x)", [1, 3]),
        ("AveragePool <kernel_shape = [6, 1], strides = [2, 1], ceil_mode = 1> (x)", [None, 3]),
        ("AveragePool <kernel_shape = [3, 2], strides = [2, 2], ceil_mode = 1> (x)", [2, 2]),
        ("AveragePool <kernel_shape = [1, 1], strides = [2, 2], ceil_mode = 1> (x)", [None, 2]),  # 2, and 3 to onnx's
        ("MaxPool <kernel_shape = [1, 2], strides = [1, 3], pads = [0, 1, 0, 1], ceil_mode = 1> (x)", [4, 2]),
        (
            "ConvTranspose <auto_pad = 'SAME_LOWER', strides = [2, 2], output_padding = [0, 1]> (x, w)",
            [8, None],
        ),
    ],
)
@pytest.mark.parametrize("inferred", [False, True])
def test_sizes_that_onnxruntime_makes_otherwise_are_not_known(
    node: str, sizes: list[int | None], inferred: bool
) -> None:
    """Nor believed where a file states what onnx's inference says of them."""
    case = Case(
        onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 19]>
        g (float[1,1,4,3] x) => (float[?,?,?,?] y)
        <float[4] s = {{1, 1, 2, 1.6666666}}, float[1,1,2,2] w = {{1, 1, 1, 1}}> {{ y = {node.replace("'", '"')} }}"""),
        {"x": np.ones((1, 1, 4, 3), np.float32)},
    )
    found = ir.from_proto(onnx.shape_inference.infer_shapes(case.model) if inferred else case.model)
    facts = Facts.of(found)
    shape = facts.shape(found.graph.outputs[0]) or ()
    assert [size if isinstance(size, int) else None for size in shape] == [1, 1, *sizes]
    check(facts, found.graph.outputs[0], computed(case)[0], {})


def test_what_has_no_elements_is_known() -> None:
    text = "e (float[3,0] x) => (float[?,?] y) { y = Tanh(x) }"
    found = ir.from_proto(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}'))
    constant = Facts.of(found).constant(found.graph.outputs[0])
    assert constant is not None
    assert constant.shape == (3, 0)


def test_a_product_beyond_the_integers_is_not_known() -> None:
    """onnxruntime gives the smallest integer, numpy what is left modulo 2**64."""
    largest = 2**63 - 1
    text = f"p () => (int64[1] y) <int64[2] x = {{{-largest}, {largest}}}> {{ y = ReduceProd(x) }}"
    found = ir.from_proto(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}'))
    assert Facts.of(found).constant(found.graph.outputs[0]) is None


@pytest.mark.parametrize(("dtype", "keepdims"), [("int32", 0), ("int64", 1), ("uint8", 0)])
@pytest.mark.parametrize("axes", ["{0}", "{1}", "{0, -1}", "{}"])
@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
def test_extremes_of_integers_are_those_of_onnxruntime(op: str, axes: str, dtype: str, keepdims: int) -> None:
    """TensorFlow asks for the longest and the shortest of constant lengths before each step of `static_rnn`."""
    constants = f"{dtype}[2,3] x = {{4, 2, 9, 7, 2, 8}}, int64[{axes.count(',') + (axes != '{}')}] axes = {axes}"
    text = f"""<ir_version: 8, opset_import: ["" : 18]>
    e () => ({dtype} y) <{constants}> {{ y = {op} <keepdims = {keepdims}> (x, axes) }}"""
    model = onnx.parser.parse_model(text)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    found = ir.from_proto(model)
    folded = Facts.of(found).constant(found.graph.outputs[0])
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert folded is not None
    np.testing.assert_array_equal(folded, session.run(None, {})[0])


@pytest.mark.parametrize("divisor", [2, 3, -3, 2**63 - 1, -(2**63)])
def test_quotients_of_extreme_integers_round_towards_zero(divisor: int) -> None:
    dividends = [-(2**63), -(2**63) + 1, -7, 7, 2**63 - 1]
    constants = f"int64[5] a = {{{str(dividends)[1:-1]}}}, int64 b = {{{divisor}}}"
    text = f"d () => (int64[5] y) <{constants}> {{ y = Div(a, b) }}"
    found = ir.from_proto(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}'))
    quotients = Facts.of(found).constant(found.graph.outputs[0])
    assert quotients is not None
    signs = [1 if (dividend < 0) == (divisor < 0) else -1 for dividend in dividends]
    assert quotients.tolist() == [sign * (abs(a) // abs(divisor)) for a, sign in zip(dividends, signs, strict=True)]


@pytest.mark.parametrize(("fmod", "expected"), [(0, [1, 2, -1, 0]), (1, [1, -1, 2, 0])])
def test_remainders_have_the_sign_of_the_divisor_or_under_fmod_the_dividend(fmod: int, expected: list[int]) -> None:
    constants = "int64[4] a = {7, -7, 8, -9}, int64[4] b = {3, 3, -3, 3}"
    text = f"m () => (int64[4] y) <{constants}> {{ y = Mod <fmod = {fmod}> (a, b) }}"
    found = ir.from_proto(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}'))
    remainders = Facts.of(found).constant(found.graph.outputs[0])
    assert remainders is not None
    assert remainders.tolist() == expected


def test_shapes_of_what_is_taken_from_strings() -> None:
    """Of operators without a rule, whose shapes onnx infers."""
    text = """s () => (string[?] y) <string[2] a = {"a", "b"}, int64[1,1] places = {1}> { y = GatherND(a, places) }"""
    found = ir.from_proto(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}'))
    assert Facts.of(found).shape(found.graph.outputs[0]) == (1,)


@pytest.mark.parametrize("dtype", ["float16", "float", "double"])
def test_integers_of_any_float_warn_of_nothing(dtype: str) -> None:
    text = f"c ({dtype}[2] x) => (int64[2] y) {{ y = Cast <to = 7> (x) }}"
    found = ir.from_proto(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}'))
    view = Facts.of(found).view(found.graph[0])
    assert view is not None
    rule = folds.of(type(view))
    assert rule is not None
    operand = np.array([1, -3], onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.DataType.Value(dtype.upper())))
    assert np.array_equal(rule(view, [operand]), [1, -3])


@pytest.mark.parametrize("body", ["(float[N] s, float[3] x) => (float t)", "(float s, float[3] x) => (float[N] t)"])
def test_a_state_has_the_rank_that_its_body_says(body: str) -> None:
    text = f"""s (float[2,3] xs, int64[1] shape) => (float last) {{
      first = Expand(shape, shape) start = Cast <to = 1> (first)
      last = Scan <num_scan_inputs = 1, body = b {body} {{ t = Identity(s) }}> (start, xs) }}"""
    found = ir.from_proto(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}'))
    found.graph.outputs[0].shape = None
    assert Facts.of(found).rank(found.graph.outputs[0]) == 1


def test_less_than_nothing_has_no_entries() -> None:
    text = "p (int64[2] x) => (int64[?] y) <int64[2] pads = {-4, 0}> { z = Pad(x, pads) y = Identity(z) }"
    found = ir.from_proto(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}'))
    assert Facts.of(found).entries(found.graph.outputs[0]) is None


COUNTED = """<ir_version: 10, opset_import: ["" : 18]>
g (float[2] s, int64 n, float[T,2] xs) => (float[2] last, float[?,2] ys, float[2] last2, float[?,2] zs) {
  shape = Shape (xs) zero = Constant <value = int64 {0}> () T = Gather <axis = 0> (shape, zero)
  last, ys = Loop <body = a (int64 i, bool go, float[2] u) => (bool on, float[2] v, float[2] y)
    { on = Identity (go) v = Neg (u) y = Neg (u) }> (n, , s)
  last2, zs = Loop <body = b (int64 j, bool go2, float[2] u2) => (bool on2, float[2] v2, float[2] y2)
    { on2 = Identity (go2) v2 = Neg (u2) y2 = Neg (u2) }> (T, , s) }"""


def test_a_loop_makes_as_many_elements_as_it_has_steps() -> None:
    model = ir.from_proto(onnx.parser.parse_model(COUNTED))
    first, second = [node for node in model.graph if node.op_type == "Loop"]
    facts = Facts.of(model)
    assert facts.shape(second.outputs[1]) == ("T", 2)
    # Less than nothing is nothing.
    assert facts.shape(first.outputs[1])[0] != facts.entries(first.inputs[0])[0]
    first.metadata_props[std.STEPS] = std.AT_LEAST_ONE
    facts = Facts.of(model)
    assert facts.shape(first.outputs[1])[0] == facts.entries(first.inputs[0])[0]


def test_what_is_told_lasts() -> None:
    model = ir.from_proto(onnx.parser.parse_model(COUNTED))
    facts, (n, ys) = Facts.of(model), (model.graph.inputs[1], model.graph.outputs[1])
    facts.tell(ys, (*facts.entries(n), 2))
    facts.look_again()
    assert facts.shape(ys) == (*facts.entries(n), 2)


def test_what_follows_from_a_value_that_another_replaces_is_found_out_anew() -> None:
    model = ir.from_proto(
        onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 18]> g (float[6] x, int32[2] k)
        => (float[A,B] z)
        { sizes = Cast <to = 7> (k) known = Constant <value = int64[2] {2, 3}> ()
          y = Reshape (x, sizes) n = Neg (y) z = Expand (n, known) }""")
    )
    space = Workspace.of(model)
    sizes, known, _, negated, _ = (node.outputs[0] for node in model.graph)
    assert space.facts.shape(negated) != (2, 3)
    replace(sizes, known, space)
    space.facts.revise()
    assert space.facts.shape(negated) == Facts.of(model).shape(negated) == (2, 3)


@pytest.mark.parametrize(
    ("keys", "past", "total"),
    [("K", "P", None), ("K", 3, None), (2, "P", None), (2, 3, 5)],
    ids=["both open", "keys open", "past open", "known"],
)
def test_open_sizes_that_onnx_takes_for_zero(keys: int | str, past: int | str, total: int | None) -> None:
    """Attention's weights are as long as past keys and keys together; onnx adds nothing for an open one of them."""
    model = onnx.parser.parse_model(f"""<ir_version: 11, opset_import: ["" : 23]> g (
        float[B,2,Q,8] q, float[B,2,{keys},8] k, float[B,2,{keys},8] v, float[B,2,{past},8] pk, float[B,2,{past},8] pv)
        => (float[a,b,c,d] y, float[e,f,g,h] weights)
        {{ y, present_k, present_v, weights = Attention <qk_matmul_output_mode = 3> (q, k, v, , pk, pv) }}""")
    loaded = ir.from_proto(model)
    shape = Facts.of(loaded).shape(loaded.graph.outputs[1])
    assert shape is not None
    assert (shape[3] if isinstance(shape[3], int) else None) == total


@pytest.mark.parametrize(("attributes", "bins"), [("", 9), ("<onesided = 1>", 9), ("<onesided = 0>", 16)])
def test_onnx_is_told_the_attributes_that_are_left_out(attributes: str, bins: int) -> None:
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
        s (float[1,128,1] x) => (float[a,b,c,d] y) <int64 step = {{8}}, int64 length = {{16}}>
        {{ y = STFT {attributes} (x, step, , length) }}""")
    loaded = ir.from_proto(model)
    assert Facts.of(loaded).shape(loaded.graph.outputs[0]) == (1, 15, bins, 2)


def test_an_input_may_have_another_size_than_its_default() -> None:
    text = "d (float[N] x) => (int64[1] y) <float[3] x = {1.0, 2.0, 3.0}> { y = Shape(x) }"
    found = ir.from_proto(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}'))
    facts = Facts.of(found)
    assert facts.shape(found.graph.inputs[0]) == ("N",)
    assert facts.constant(found.graph.outputs[0]) is None
