"""What an opset cannot say is refused by name."""

from __future__ import annotations

import re
from typing import Any

import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, defs, helper

import lstm_lower as ll
from lstm_lower.passes.opset.conversion import ConvertOpsetPass
from lstm_lower.passes.opset.rewrites import BEFORE, SINCE
from tests.support.opset_models import FLOAT, INT64, convert, info, model_of

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
    assert without == {entry for entry in WITHOUT_EQUIVALENT if entry[1] <= defs.onnx_opset_version()}


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
        "axes of mode wrap requires a constant below opset 19",
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


@pytest.mark.parametrize(
    ("node", "inputs", "source", "target", "reason"),
    [refused for refused in REFUSED if refused[2] <= defs.onnx_opset_version()],
)
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
