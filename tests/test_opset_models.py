"""Whole models moved between opsets: results, names, metadata, weights, nesting, and errors that name every node."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import strategies as st
from onnx import TensorProto, defs, helper, numpy_helper

import lstm_lower as ll
from lstm_lower.passes.opset import MIN_OPSET, ConvertOpsetPass, newest_opset
from lstm_lower.passes.versions import convert as _tables  # noqa: F401 (fills the tables)
from lstm_lower.passes.versions.registry import BEFORE, SINCE
from tests.opset_cases import DOWNWARDS, Array, Case, f32, i64
from tests.test_opset import convert, run_ort, run_reference

GRAPHS = Path(__file__).parent / "data" / "graphs"
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64

# What older versions cannot say in any way; all others have a rewrite or a function body.
WITHOUT_EQUIVALENT = {
    ("BitCast", 26),
    ("BitwiseAnd", 18),
    ("BitwiseOr", 18),
    ("BitwiseXor", 18),
    ("Col2Im", 18),
    ("DFT", 17),
    ("DeformConv", 19),
    ("GridSample", 16),
    ("ImageDecoder", 20),
    ("MelWeightMatrix", 17),
    ("Optional", 15),
    ("OptionalGetElement", 15),
    ("OptionalHasElement", 15),
    ("RegexFullMatch", 20),
    ("STFT", 17),
    ("StringConcat", 20),
    ("StringSplit", 20),
    ("TensorScatter", 24),
}


def info(name: str, dtype: int, *shape: int | str | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def model_of(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    opset: int,
    **fields: Any,
) -> onnx.ModelProto:
    opset_id = helper.make_opsetid("", opset)
    graph = helper.make_graph(nodes, "graph", inputs, outputs, **fields)
    ir_version = helper.find_min_ir_version_for([opset_id])
    return helper.make_model(graph, opset_imports=[opset_id], ir_version=max(ir_version, 8))


def feeds_of(case: str) -> dict[str, Array]:
    recorded = np.load(GRAPHS / f"{case}.npz")
    return {f"{name[3:]}:0": recorded[name] for name in recorded if name.startswith("in:")}


@pytest.mark.parametrize("case", ["block_lstm_train__dynbatch", "lstm_block_cell_train__peephole"])
def test_training_graph(case: str) -> None:
    source = GRAPHS / "onnx" / f"{case}.onnx"
    feeds = feeds_of(case)
    names = [value.name for value in onnx.load(source).graph.output]
    expected = run_ort(ll.lower(source, opset=18), feeds)
    recorded = np.load(GRAPHS / f"{case}.npz")
    np.testing.assert_allclose(expected[names.index("loss:0")], recorded["out:loss"], rtol=1e-5)
    for opset in sorted({13, 14, 15, 16, 17, 19, 21, newest_opset()}):
        model = ll.lower(source, opset=opset)
        assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", opset)]
        onnx.checker.check_model(model, full_check=True)
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
        for got, wanted in zip(run_ort(model, feeds), expected, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("opset", [None, *range(MIN_OPSET, newest_opset() + 1)])
def test_every_opset(opset: int | None) -> None:
    model = ll.lower(GRAPHS / "onnx" / "block_lstm_train__dynbatch.onnx", opset=opset)
    assert model.opset_import[0].version == (opset or 18)
    onnx.checker.check_model(model, full_check=True)


@pytest.mark.parametrize("opset", [12, newest_opset() + 1, 0, -1, "18"])
def test_impossible_opset(opset: Any) -> None:
    with pytest.raises(ll.InvalidInputError, match=rf"opset requires 13 to \d+, got '?{opset}'?"):
        ll.lower(GRAPHS / "onnx" / "block_lstm_train__dynbatch.onnx", opset=opset)


def _same_inputs_and_outputs(newer: defs.OpSchema, older: defs.OpSchema) -> bool:
    def form(schema: defs.OpSchema) -> tuple[Any, ...]:
        operands = [[(item.option, item.is_homogeneous) for item in part] for part in (schema.inputs, schema.outputs)]
        return (set(schema.attributes), *operands)

    return form(newer) == form(older)


def test_tables_know_every_change() -> None:
    history: dict[str, dict[int, defs.OpSchema]] = {}
    for schema in defs.get_all_schemas_with_history():
        if schema.domain == "":
            history.setdefault(schema.name, {})[schema.since_version] = schema
    without = set()
    for op, forms in history.items():
        versions = sorted(forms)
        for version in versions:
            if not 13 < version <= 26 or (op, version) in BEFORE:
                continue
            newer = forms[version]
            older = forms.get(max((v for v in versions if v < version), default=0))
            if newer.has_function or newer.has_context_dependent_function:
                continue
            if older is None:
                without.add((op, version))
                continue
            added = set(newer.attributes) - set(older.attributes)
            # Anything else is an attribute whose default says what the older form did.
            assert all(newer.attributes[name].default_value.name for name in added), (op, version)
            assert set(older.attributes) <= set(newer.attributes), (op, version)
            assert (op, version) in SINCE or set(older.attributes) <= set(newer.attributes)
    assert without == WITHOUT_EQUIVALENT


def test_rewrites_belong_to_versions() -> None:
    for op, version in [*BEFORE, *SINCE]:
        if version <= defs.onnx_opset_version():
            assert defs.get_schema(op, version).since_version == version


def _refused(node: onnx.NodeProto, inputs: list[onnx.ValueInfoProto], output: int, opset: int) -> onnx.ModelProto:
    node.name = "node"
    return model_of([node], inputs, [info("y", output)], opset)


def _node(op: str, *inputs: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs, ["y"], **attributes)


X = info("x", FLOAT, 1, 2, 4, 4)
REFUSED = [
    (
        _node("GridSample", "x", "g"),
        [X, info("g", FLOAT, 1, 2, 2, 2)],
        16,
        15,
        "the operator requires opset 16 or newer, got 15",
    ),
    (
        _node("GridSample", "x", "g"),
        [info("x", FLOAT, 1, 1, 2, 2, 2), info("g", FLOAT, 1, 1, 1, 1, 3)],
        20,
        18,
        "X requires rank 4 in opset 18, got rank 5",
    ),
    (_node("ReduceMax", "x", "a"), [X, info("a", INT64, 1)], 18, 15, "axes requires a constant below opset 18"),
    (_node("ReduceLogSumExp", "x", "a"), [X, info("a", INT64, 2)], 18, 15, "axes requires a constant below opset 18"),
    (_node("DFT", "x", "", "a"), [X, info("a", INT64)], 20, 19, "axis requires a constant below opset 20"),
    (
        _node("AveragePool", "x", kernel_shape=[2, 2], dilations=[2, 1]),
        [X],
        19,
        18,
        "attribute dilations requires opset 19 or newer, got 18",
    ),
    (
        _node("LpPool", "x", kernel_shape=[2, 2], ceil_mode=1),
        [X],
        18,
        17,
        "attribute ceil_mode requires opset 18 or newer",
    ),
    (
        _node("Resize", "x", "", "", "s", antialias=1, mode="linear"),
        [X, info("s", INT64, 4)],
        18,
        13,
        "attribute antialias requires opset 18 or newer, got 13",
    ),
    (
        _node("Resize", "x", "", "", "s", coordinate_transformation_mode="half_pixel_symmetric", mode="linear"),
        [X, info("s", INT64, 4)],
        19,
        18,
        "coordinate_transformation_mode half_pixel_symmetric requires opset 19 or newer, got 18",
    ),
    (
        _node("RoiAlign", "x", "r", "i"),
        [X, info("r", FLOAT, 3, 4), info("i", INT64, 3)],
        16,
        13,
        "coordinate_transformation_mode half_pixel requires opset 16 or newer, got 13",
    ),
    (
        _node("QuantizeLinear", "x", "s", block_size=2),
        [X, info("s", FLOAT, 1, 1, 4, 4)],
        21,
        19,
        "attribute block_size requires opset 21 or newer, got 19",
    ),
    (
        _node("ScatterND", "x", "i", "u", reduction="add"),
        [X, info("i", INT64, 3, None), info("u", FLOAT)],
        16,
        15,
        "indices requires a known last size",
    ),
    (
        _node("Pad", "x", "p", "", "a", mode="wrap"),
        [X, info("p", INT64, 2), info("a", INT64, 1)],
        19,
        18,
        "axes requires a constant for mode wrap below opset 19",
    ),
    (
        _node("AffineGrid", "x", "s"),
        [info("x", FLOAT, 1, 2, 3), info("s", INT64, 4)],
        20,
        18,
        "theta requires a known batch",
    ),
    (_node("Mod", "x", "x"), [X], 28, 26, "fmod 0 of floating point numbers requires opset 28 or newer, got 26"),
    (
        _node("BatchNormalization", "x", "s", "s", "m", "m"),
        [info("x", TensorProto.FLOAT16, 1, 2, 3), info("s", FLOAT, 2), info("m", FLOAT, 2)],
        15,
        14,
        "scale requires the type of X in opset 14, got float",
    ),
]


@pytest.mark.parametrize(("node", "inputs", "source", "target", "reason"), REFUSED)
def test_refused(
    node: onnx.NodeProto, inputs: list[onnx.ValueInfoProto], source: int, target: int, reason: str
) -> None:
    dtype = inputs[0].type.tensor_type.elem_type if node.op_type != "QuantizeLinear" else TensorProto.UINT8
    model = ir.from_proto(_refused(node, inputs, dtype, source))
    text = rf"1 node cannot be converted from opset {source} to {target}:\n  {node.op_type} 'node': {re.escape(reason)}"
    with pytest.raises(ll.UnsupportedOpError, match=text):
        ConvertOpsetPass(target)(model)


TYPES = [
    ("Where", [TensorProto.BOOL, TensorProto.BFLOAT16, TensorProto.BFLOAT16], TensorProto.BFLOAT16, 16, 15, "X"),
    ("Equal", [TensorProto.STRING, TensorProto.STRING], TensorProto.BOOL, 19, 18, "A"),
    ("Sin", [TensorProto.BFLOAT16], TensorProto.BFLOAT16, 22, 21, "input"),
    ("Pow", [FLOAT, TensorProto.BFLOAT16], FLOAT, 15, 13, "Y"),
    ("Identity", [TensorProto.FLOAT8E4M3FN], TensorProto.FLOAT8E4M3FN, 19, 18, "input"),
    ("Transpose", [TensorProto.INT4], TensorProto.INT4, 21, 20, "data"),
    ("Conv", [TensorProto.BFLOAT16, TensorProto.BFLOAT16], TensorProto.BFLOAT16, 22, 18, "X"),
    ("Abs", [FLOAT], FLOAT, 18, 13, None),
]


@pytest.mark.parametrize(("op", "inputs", "output", "source", "target", "operand"), TYPES)
def test_types_of_older_versions(
    op: str, inputs: list[int], output: int, source: int, target: int, operand: str | None
) -> None:
    names = [f"x{index}" for index in range(len(inputs))]
    node = helper.make_node(op, names, ["y"], name="node")
    values = [info(name, dtype, 1, 1, 3, 3) for name, dtype in zip(names, inputs, strict=True)]
    model = model_of([node], values, [info("y", output, None, None, None, None)], source)
    if operand is None:
        convert(model, target)
        return
    text = rf"{op} 'node': {operand} requires a type that {op} knows in opset {target}, got tensor\("
    with pytest.raises(ll.UnsupportedOpError, match=text):
        ConvertOpsetPass(target)(ir.from_proto(model))


def test_error_names_every_node() -> None:
    inner = helper.make_graph(
        [helper.make_node("GridSample", ["x", "g"], ["b"], name="inner_sample")],
        "branch",
        [],
        [info("b", FLOAT, 1, 2, 2, 2)],
    )
    other = helper.make_graph([helper.make_node("Identity", ["s"], ["c"])], "other", [], [info("c", FLOAT, 1, 2, 2, 2)])
    nodes = [
        helper.make_node("GridSample", ["x", "g"], ["s"], name="sample"),
        helper.make_node("ReduceMax", ["x", "a"], ["m"], name="largest", keepdims=1),
        helper.make_node("If", ["c0"], ["y"], name="choice", then_branch=inner, else_branch=other),
        helper.make_node("Bernoulli", ["x"], ["coin"], name="coin"),
    ]
    inputs = [X, info("g", FLOAT, 1, 2, 2, 2), info("a", INT64, 1), info("c0", TensorProto.BOOL)]
    outputs = [info("y", FLOAT, 1, 2, 2, 2), info("m", FLOAT, None, None, None, None), info("coin", FLOAT, 1, 2, 4, 4)]
    with pytest.raises(ll.UnsupportedOpError) as caught:
        ConvertOpsetPass(13)(ir.from_proto(model_of(nodes, inputs, outputs, 18)))
    lines = str(caught.value).splitlines()
    assert lines[0] == "3 nodes cannot be converted from opset 18 to 13:"
    assert [line.split(":")[0] for line in lines[1:]] == [
        "  GridSample 'sample'",
        "  ReduceMax 'largest'",
        "  GridSample 'inner_sample'",
    ]


def test_error_names_the_function() -> None:
    node = helper.make_node("LeakyRelu", ["x"], ["y"], name="leaky")
    value = info("x", TensorProto.BFLOAT16, 3)
    model = model_of([node], [value], [info("y", TensorProto.BFLOAT16, 3)], 16)
    with pytest.raises(ll.UnsupportedOpError, match=r"got tensor\(bfloat16\), as part of LeakyRelu 'leaky'"):
        ConvertOpsetPass(15)(ir.from_proto(model))


def test_newer_than_onnx() -> None:
    node = helper.make_node("Abs", ["x"], ["y"])
    model = ir.from_proto(model_of([node], [info("x", FLOAT, 3)], [info("y", FLOAT, 3)], 18))
    model.graph.opset_imports[""] = 999
    with pytest.raises(ll.InvalidModelError, match=r"the model requires an opset up to .*, got 999"):
        ConvertOpsetPass(18)(model)


def test_unknown_operator() -> None:
    node = helper.make_node("Gelu", ["x"], ["y"], name="early")
    model = ir.from_proto(model_of([node], [info("x", FLOAT, 3)], [info("y", FLOAT, 3)], 18))
    with pytest.raises(
        ll.UnsupportedOpError, match="Gelu 'early': the node requires an operator of opset 18, got an unknown"
    ):
        ConvertOpsetPass(13)(model)


def test_contradicting_types() -> None:
    nodes = [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Abs", ["x"], ["y"])]
    model = ir.from_proto(model_of(nodes, [info("x", FLOAT, 3)], [info("y", FLOAT, 4)], 18))
    with pytest.raises(ll.InvalidModelError, match="converted from opset 18 to 13, requires valid nodes, got"):
        ConvertOpsetPass(13)(model)


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


@pytest.mark.parametrize("target", [13, 26])
def test_what_is_not_operators_stays(target: int) -> None:
    nodes = [
        helper.make_node("Split", ["x"], ["a", "b"], name="halves", num_outputs=2),
        helper.make_node("ReduceMean", ["a", "axes"], ["m"], name="mean"),
        helper.make_node("Mish", ["m"], ["y"], name="mish"),
    ]
    weight = numpy_helper.from_array(f32(40, 40), "w")
    nodes.append(helper.make_node("MatMul", ["b", "w"], ["z"], name="product"))
    model = model_of(
        nodes,
        [info("x", FLOAT, "N", 40)],
        [info("y", FLOAT, "M", 1), info("z", FLOAT, "N", 40)],
        18,
        initializer=[weight, numpy_helper.from_array(i64([1]), "axes")],
        value_info=[info("m", FLOAT, "M", 1)],
        doc_string="about the graph",
    )
    model.producer_name = "somebody"
    for owner, value in ((model, "model"), (model.graph, "graph"), *((node, node.name) for node in model.graph.node)):
        entry = owner.metadata_props.add()
        entry.key, entry.value = "note", value
    model.graph.input[0].doc_string = "about x"
    converted = convert(model, target)
    assert converted.producer_name == "somebody"
    assert converted.graph.doc_string == "about the graph"
    assert converted.graph.input[0] == model.graph.input[0]
    assert list(converted.graph.output) == list(model.graph.output)
    notes = {node.name: {entry.value for entry in node.metadata_props} for node in converted.graph.node}
    assert notes["halves"] == {"halves"}
    assert notes["product"] == {"product"}
    if target == 13:
        assert all(note == {"mish"} for name, note in notes.items() if name.startswith("mish/"))
    assert {entry.value for entry in converted.graph.metadata_props} == {"graph"}
    assert {entry.value for entry in converted.metadata_props} == {"model"}
    assert {value.name: value for value in converted.graph.value_info}["m"] == model.graph.value_info[0]
    kept = {value.name: value for value in converted.graph.initializer}
    assert kept["w"].raw_data == weight.raw_data


@pytest.mark.parametrize(("source", "target"), [(18, 13), (18, 26), (11, 15)])
def test_weights_are_not_touched(source: int, target: int) -> None:
    """Models beyond protobuf's 2 GB: nothing reads the weights."""

    def read() -> ir.Tensor[Any]:
        raise AssertionError("the weight was read")

    weight = ir.LazyTensor(read, dtype=ir.DataType.FLOAT, shape=ir.Shape([30000, 30000]), name="w")
    value = ir.Value(name="w", type=ir.TensorType(ir.DataType.FLOAT), shape=weight.shape, const_value=weight)
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(["N", 30000]))
    product = ir.node("MatMul", [x, value], name="product")
    shape = ir.node("Shape", [product.outputs[0]], name="shape")
    product.outputs[0].name, shape.outputs[0].name = "y", "s"
    product.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    product.outputs[0].shape = ir.Shape(["N", 30000])
    shape.outputs[0].type, shape.outputs[0].shape = ir.TensorType(ir.DataType.INT64), ir.Shape([2])
    graph = ir.Graph(
        [x],
        [product.outputs[0], shape.outputs[0]],
        nodes=[product, shape],
        initializers=[value],
        opset_imports={"": source},
        name="g",
    )
    model = ir.Model(graph, ir_version=8)
    ConvertOpsetPass(target)(model)
    assert model.graph.initializers["w"].const_value is weight
    assert [node.op_type for node in model.graph] == ["MatMul", "Shape"]
    assert [value.name for value in model.graph.inputs] == ["x"]


def test_external_data(tmp_path: Path) -> None:
    weight = numpy_helper.from_array(f32(4, 4), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("ReduceMax", ["p", "axes"], ["y"])]
    axes = numpy_helper.from_array(i64([1]), "axes")
    model = model_of(nodes, [info("x", FLOAT, "N", 4)], [info("y", FLOAT, None, 1)], 18, initializer=[weight, axes])
    onnx.save(model, tmp_path / "model.onnx", save_as_external_data=True, location="model.data", size_threshold=0)
    lowered = ll.lower(tmp_path / "model.onnx", opset=13)
    reduction = lowered.graph.node[-1]
    assert [(attribute.name, list(attribute.ints)) for attribute in reduction.attribute] == [("axes", [1])]
    assert {entry.version for entry in ll.lower(tmp_path / "model.onnx", opset=26).opset_import} == {26}


@pytest.mark.parametrize("target", [13, 15, 18, 26])
def test_older_than_13(target: int) -> None:
    nodes = [
        helper.make_node("Unsqueeze", ["x"], ["u"], axes=[0]),
        helper.make_node("Split", ["u"], ["a", "b"], axis=2, split=[1, 2]),
        helper.make_node("ReduceSum", ["b"], ["r"], axes=[2], keepdims=0),
        helper.make_node("Squeeze", ["r"], ["q"], axes=[0]),
        helper.make_node("Softmax", ["x"], ["s"], axis=1),
        _if(
            "m",
            then=[helper.make_node("ReduceMax", ["x"], ["m1"], axes=[1])],
            other=[helper.make_node("ReduceMin", ["x"], ["m2"], axes=[1])],
        ),
    ]
    outputs = [info("q", FLOAT, None), info("s", FLOAT, None, None), info("m", FLOAT, None, None)]
    inputs = [info("x", FLOAT, "N", 3), info("condition", TensorProto.BOOL)]
    model = model_of(nodes, inputs, outputs, 11)
    entry = model.graph.metadata_props.add()
    entry.key, entry.value = "note", "graph"
    feeds = {"x": f32(2, 3), "condition": np.ones((), bool)}
    converted = convert(model, target)
    for got, wanted in zip(run_ort(converted, feeds), run_ort(model, feeds), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-6)
    assert converted.graph.metadata_props[0].value == "graph"
    assert {entry.version for entry in ll.lower(model).opset_import} == {13}


def test_same_version_costs_nothing() -> None:
    node = helper.make_node("GridSample", ["x", "g"], ["y"])
    model = ir.from_proto(model_of([node], [X, info("g", FLOAT, 1, 2, 2, 2)], [info("y", FLOAT)], 18))
    assert not ConvertOpsetPass(18)(model).modified
    assert not ConvertOpsetPass()(model).modified


def test_missing_import() -> None:
    model = ir.Model(ir.Graph([], [], nodes=[], name="g", opset_imports={"tf": 1}), ir_version=8)
    ConvertOpsetPass(17)(model)
    assert model.graph.opset_imports == {"tf": 1, "": 17}


def test_full_name_of_the_domain() -> None:
    node = helper.make_node("Shape", ["x"], ["y"], domain="ai.onnx", start=1)
    model = model_of([node], [info("x", FLOAT, 2, 3)], [info("y", INT64, 1)], 18)
    model.opset_import[0].domain = "ai.onnx"
    assert run_ort(convert(model, 13), {"x": f32(2, 3)})[0].tolist() == [3]


def test_model_functions() -> None:
    """Functions are inlined, so that their nodes are moved too."""
    body = [helper.make_node("Shape", ["p"], ["q"], start=1)]
    function = helper.make_function("mine", "Sizes", ["p"], ["q"], body, [helper.make_opsetid("", 18)])
    node = helper.make_node("Sizes", ["x"], ["y"], domain="mine")
    model = model_of([node], [info("x", FLOAT, 2, 3)], [info("y", INT64, 1)], 18)
    model.functions.append(function)
    model.opset_import.append(helper.make_opsetid("mine", 1))
    converted = ll.lower(model, opset=13)
    assert "Sizes" not in {node.op_type for node in converted.graph.node}
    assert run_ort(converted, {"x": f32(2, 3)})[0].tolist() == [3]


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
