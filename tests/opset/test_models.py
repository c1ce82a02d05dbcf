"""Whole models moved between opsets: results, names, metadata and weights."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NoKernel

import lstm_lower as ll
from lstm_lower.errors import UnsupportedOpError
from lstm_lower.passes.opset.conversion import ConvertOpsetPass
from lstm_lower.passes.opset.installed import MIN_OPSET, newest_opset
from lstm_lower.runtime.feeds import read_arrays
from tests.support.opset_case import Array, f32, i64
from tests.support.opset_models import FLOAT, INT64, convert, info, model_of, run_ort

GRAPHS = Path(__file__).parents[1] / "data" / "graphs"


def feeds_of(case: str) -> dict[str, Array]:
    return {f"{name}:0": array for name, array in read_arrays(GRAPHS / f"{case}.npz")[0].items()}


@pytest.mark.parametrize("case", ["block_lstm_train__dynbatch", "lstm_block_cell_train__peephole"])
def test_training_graph(case: str) -> None:
    source = GRAPHS / "onnx" / f"{case}.onnx"
    feeds = feeds_of(case)
    names = [value.name for value in onnx.load(source).graph.output]
    expected = run_ort(ll.lower(source, opset=18), feeds)
    _, recorded = read_arrays(GRAPHS / f"{case}.npz")
    np.testing.assert_allclose(expected[names.index("loss:0")], recorded["loss"], rtol=1e-5)
    for opset in sorted({13, 14, 15, 16, 17, 19, 21, newest_opset()}):
        model = ll.lower(source, opset=opset)
        assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", opset)]
        onnx.checker.check_model(model, full_check=True)
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
        for got, wanted in zip(run_ort(model, feeds), expected, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("opset", [None, *range(MIN_OPSET, newest_opset() + 1)])
def test_every_opset(opset: int | None) -> None:
    model = ll.lower(GRAPHS / "onnx" / "block_lstm_train__dynbatch.onnx", opset=opset)
    assert model.opset_import[0].version == (opset or 18)
    onnx.checker.check_model(model, full_check=True)


@pytest.mark.parametrize("opset", [12, newest_opset() + 1, 0, -1, "18"])
def test_impossible_opset(opset: Any) -> None:
    with pytest.raises(ll.InvalidInputError, match=rf"opset requires 13 to \d+, got '?{opset}'?"):
        ll.lower(GRAPHS / "onnx" / "block_lstm_train__dynbatch.onnx", opset=opset)


NEWER_THAN_ITS_KERNEL = {
    "RoiAlign": (
        "float[1,1,8,8] x, float[2,4] r, int64[2] i => float[?,?,?,?] y",
        "y = RoiAlign<output_height=2, output_width=2>(x, r, i)",
    ),
    "QuantizeLinear": ("float[4] x, float s, uint8 z => uint8[4] y", "y = QuantizeLinear(x, s, z)"),
    "DequantizeLinear": ("uint8[4] x, float s, uint8 z => float[4] y", "y = DequantizeLinear(x, s, z)"),
    "OptionalHasElement": ("float[4] x => bool y", "o = Optional(x) y = OptionalHasElement(o)"),
    "RandomNormalLike": ("float[2,2] x => float[2,2] y", "y = RandomNormalLike(x)"),
    "If": (
        "float[1,1,8,8] x, float[2,4] r, int64[2] i, bool c => float[?,?,?,?] y",
        """y = If(c)<
            then_branch = g() => (float[?,?,?,?] t) {t = RoiAlign<output_height=2, output_width=2>(x, r, i)},
            else_branch = g() => (float[1,1,8,8] t) {t = Identity(x)}>""",
    ),
}


@pytest.mark.parametrize("case", NEWER_THAN_ITS_KERNEL)
def test_what_is_made_can_be_loaded(case: str) -> None:
    """onnx defines forms of operators before onnxruntime has kernels for them; the error names an opset that works."""
    header, nodes = NEWER_THAN_ITS_KERNEL[case]
    left, right = header.split(" => ")
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 16]> g ({left}) => ({right}) {{ {nodes} }}')
    for opset in range(16, newest_opset() + 1):
        try:
            lowered = ll.lower(model, opset=opset)
        except UnsupportedOpError as error:
            works = re.search(
                r"the node requires opset (\d+) or older \(onnxruntime runs no newer form of it\)", str(error)
            )
            assert works is not None
            assert int(works[1]) < opset
            lowered = ll.lower(model, opset=int(works[1]))
        ort.InferenceSession(lowered.SerializeToString(), providers=["CPUExecutionProvider"])


@pytest.mark.skipif(newest_opset() < 25, reason="Swish came with opset 24")
@pytest.mark.parametrize("target", [13, 24, 25, newest_opset()])
def test_what_only_its_own_opset_has_is_written_as_its_function(target: int) -> None:
    """onnxruntime has no kernel for Swish: it runs onnx's function of it, in models of opset 24 alone."""
    text = '<ir_version: 10, opset_import: ["": 24]> g (float[3] x) => (float[3] y) { y = Swish <alpha = 2.0> (x) }'
    lowered = ll.lower(onnx.parser.parse_model(text), opset=target)
    assert lowered.opset_import[0].version == target
    x = f32(3)
    np.testing.assert_allclose(run_ort(lowered, {"x": x})[0], x / (1 + np.exp(-2 * x)), rtol=1e-6)


def test_what_has_never_had_a_kernel_is_moved() -> None:
    """It may be meant for another runtime: the opset is not at fault."""
    header = "g (bfloat16[2,4] x) => (bfloat16[?,?] y)"
    text = f'<ir_version: 8, opset_import: ["": 16]> {header} {{y = ReduceMax(x)}}'
    lowered = ll.lower(onnx.parser.parse_model(text), opset=22)
    assert lowered.opset_import[0].version == 22
    with pytest.raises(NoKernel):
        ort.InferenceSession(lowered.SerializeToString(), providers=["CPUExecutionProvider"])


def _if(*names: str, then: list[onnx.NodeProto], other: list[onnx.NodeProto], dtype: int = FLOAT) -> onnx.NodeProto:
    branches = [
        helper.make_graph(nodes, name, [], [info(nodes[-1].output[0], dtype, *[None] * 2)])
        for name, nodes in (("then", then), ("other", other))
    ]
    return helper.make_node("If", ["condition"], list(names), then_branch=branches[0], else_branch=branches[1])


@pytest.mark.parametrize("target", [13, newest_opset()])
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
    assert set(kept) == ({"w"} if target == 13 else {"w", "axes"})
    assert kept["w"].raw_data == weight.raw_data


@pytest.mark.parametrize(("source", "target"), [(18, 13), (18, newest_opset()), (11, 15)])
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
    assert {entry.version for entry in ll.lower(tmp_path / "model.onnx", opset=21).opset_import} == {21}


@pytest.mark.parametrize("target", [13, 15, 18, newest_opset()])
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


@pytest.mark.parametrize("call", [ll.lower, ll.optimize, lambda model: ll.gradient(model, "y", "x", seeds=True)])
@pytest.mark.parametrize("opset", [9, 13])
def test_an_ir_version_in_which_every_initializer_is_an_input(opset: int, call: Any) -> None:
    """What passes add are initializers alone: the widths of Pad, which were an attribute, a shape."""
    pad = helper.make_node("Pad", ["p"], ["y"], **({"pads": [0, 1, 0, 2]} if opset == 9 else {}))
    pad.input.extend([] if opset == 9 else ["widths"])
    inputs = [info("x", FLOAT, 2, 3), info("w", FLOAT, 3), *([] if opset == 9 else [info("widths", INT64, 4)])]
    model = model_of([helper.make_node("Mul", ["x", "w"], ["p"]), pad], inputs, [info("y", FLOAT, 2, 6)], opset)
    model.graph.initializer.append(numpy_helper.from_array(f32(3), "w"))
    if opset != 9:
        model.graph.initializer.append(numpy_helper.from_array(i64(0, 1, 0, 2), "widths"))
    model.ir_version = 3
    made = call(model)
    onnx.checker.check_model(made, full_check=True)
    assert made.ir_version >= 7
    assert {value.name for value in made.graph.input} <= {"x", "seed/y"}
    feeds = {"x": f32(2, 3)}
    session = ll.Session(made)
    seed = {name: np.zeros((2, 6), np.float32) for name in session.inputs if name.startswith("seed/")}
    np.testing.assert_array_equal(session.run(feeds | seed)["y"], run_ort(model, feeds)[0])


@pytest.mark.parametrize("ir_version", [3, 4])
@pytest.mark.parametrize("source", ["proto", "path", "ir"])
def test_an_initializer_among_the_inputs_is_a_default_from_ir_version_4_on(
    source: str, ir_version: int, tmp_path: Path
) -> None:
    """Before, onnxruntime takes it for a constant, and nothing can be fed for it."""
    inputs = [info("x", FLOAT, 2), info("w", FLOAT, 2)]
    model = model_of([helper.make_node("Mul", ["x", "w"], ["y"])], inputs, [info("y", FLOAT, 2)], 8)
    model.graph.initializer.append(numpy_helper.from_array(f32(2), "w"))
    model.ir_version = ir_version
    onnx.save(model, tmp_path / "old.onnx")
    given: Any = {"proto": model, "path": tmp_path / "old.onnx", "ir": ir.from_proto(model)}[source]
    expected = ["x"] if ir_version == 3 else ["x", "w"]
    for call in (ll.lower, ll.optimize, lambda model: ll.gradient(model, "y", "w", seeds=True)):
        made = call(given)
        names = [value.name for value in (made.graph.inputs if isinstance(made, ir.Model) else made.graph.input)]
        assert [name for name in names if name != "seed/y"] == expected
    session = ll.Session(given)
    fed = {"x": np.ones(2, np.float32), "w": np.full(2, 7, np.float32)}
    if ir_version == 3:
        with pytest.raises(ll.InvalidInputError, match="feed 'w' must be one of the inputs"):
            session.run(fed)
    else:
        assert session.run(fed)["y"].tolist() == [7, 7]


def test_same_version_costs_nothing() -> None:
    node = helper.make_node("GridSample", ["x", "g"], ["y"])
    inputs = [info("x", FLOAT, 1, 2, 4, 4), info("g", FLOAT, 1, 2, 2, 2)]
    model = ir.from_proto(model_of([node], inputs, [info("y", FLOAT)], 18))
    assert not ConvertOpsetPass(18)(model).modified
    assert not ConvertOpsetPass()(model).modified


@pytest.mark.parametrize(("target", "known"), [(19, False), (20, True), (21, True)])
def test_an_operator_that_is_newer_than_its_model_has_its_first_form(target: int, known: bool) -> None:
    """The exporter of PyTorch writes such."""
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([2, 3]))
    node = ir.Node("", "Gelu", [x], outputs=[ir.Value(name="y", type=x.type, shape=x.shape)])
    model = ir.Model(ir.Graph([x], node.outputs, nodes=[node], opset_imports={"": 18}, name="g"), ir_version=8)
    if known:
        ConvertOpsetPass(target)(model)
        assert model.graph.opset_imports[""] == target
        onnx.checker.check_model(ir.to_proto(model), full_check=True)
    else:
        with pytest.raises(UnsupportedOpError, match="an operator of opset 18, got an unknown one"):
            ConvertOpsetPass(target)(model)


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


@pytest.mark.parametrize("size", [4, 0])
@pytest.mark.parametrize("known", [True, False])
def test_a_split_into_equal_parts_of_any_size(size: int, known: bool) -> None:
    node = helper.make_node("Split", ["x"], ["a", "b"], axis=-1)
    shapes = {
        name: [2, length if known else None] for name, length in {"x": size, "a": size // 2, "b": size // 2}.items()
    }
    infos = {name: helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in shapes.items()}
    graph = helper.make_graph([node], "split", [infos["x"]], [infos["a"], infos["b"]])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    feeds = {"x": np.arange(2 * size, dtype=np.float32).reshape(2, size)}
    for before, after in zip(run_ort(model, feeds), run_ort(ll.lower(model, opset=newest_opset()), feeds), strict=True):
        np.testing.assert_array_equal(after, before)


def test_the_mean_of_no_integers_ends_no_run() -> None:
    nodes = [helper.make_node("ReduceMean", ["x", "axes"], ["y"])]
    model = model_of(nodes, [info("x", INT64, "N"), info("axes", INT64, 1)], [info("y", INT64, 1)], 18)
    for values in (np.zeros(0, np.int64), np.array([1, 2, 6])):
        feeds = {"x": values, "axes": np.zeros(1, np.int64)}
        np.testing.assert_array_equal(run_ort(convert(model, 13), feeds), run_ort(model, feeds))


@pytest.mark.parametrize("pads", [(2, -1), (-1, 4), (-1, -1), (3, 0), (0, 0)])
def test_what_negative_pads_leave_is_repeated(pads: tuple[int, int]) -> None:
    model = model_of(
        [helper.make_node("Pad", ["x", "pads"], ["y"], mode="wrap")],
        [info("x", FLOAT, "N"), info("pads", INT64, 2)],
        [info("y", FLOAT, "M")],
        19,
    )
    feeds = {"x": f32(5), "pads": np.array(pads)}
    np.testing.assert_array_equal(run_ort(convert(model, 13), feeds), run_ort(model, feeds))


@pytest.mark.skipif(newest_opset() < 26, reason="CumProd came with opset 26")
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("size", [0, 1, 4])
def test_products_of_nothing_too(size: int, exclusive: int, reverse: int) -> None:
    node = helper.make_node("CumProd", ["x", "axis"], ["y"], exclusive=exclusive, reverse=reverse)
    model = model_of([node], [info("x", FLOAT, 2, "N")], [info("y", FLOAT, 2, "N")], 26)
    model.graph.initializer.append(numpy_helper.from_array(np.array(1, np.int64), "axis"))
    feeds = {"x": f32(2, size)}
    np.testing.assert_allclose(run_ort(convert(model, 13), feeds), run_ort(model, feeds), rtol=1e-6)


def test_doubles_are_normalised_as_doubles() -> None:
    node = helper.make_node("LayerNormalization", ["x", "scale"], ["y"])
    double = TensorProto.DOUBLE
    model = model_of([node], [info("x", double, 3, 4), info("scale", double, 4)], [info("y", double, 3, 4)], 17)
    feeds = {"x": f32(3, 4).astype(np.float64), "scale": f32(4).astype(np.float64)}
    np.testing.assert_allclose(run_ort(convert(model, 13), feeds), run_ort(model, feeds), rtol=1e-12)


def test_the_default_of_an_input_is_no_constant() -> None:
    """Old models, too, say what may be fed by defaults."""
    nodes = [
        helper.make_node("Range", ["start", "limit", "step"], ["r"]),
        helper.make_node("Gather", ["r", "last"], ["y"]),
    ]
    numbers = {"start": 0, "limit": 3, "step": 1}
    initializers = [numpy_helper.from_array(np.array(x, np.float32), name) for name, x in numbers.items()]
    initializers.append(numpy_helper.from_array(i64([-2]), "last"))
    model = model_of(nodes, [info("step", FLOAT)], [info("y", FLOAT, 1)], 11, initializer=initializers)
    result = ll.gradient(model, "y", "step", seeds=True)
    feeds = {"step": np.array(0.75, np.float32), "seed/y": np.ones(1, np.float32)}
    assert [value.item() for value in run_ort(result, feeds)] == [1.5, 2]


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
def test_a_softmax_of_nothing(op: str) -> None:
    model = model_of([helper.make_node(op, ["x"], ["y"])], [info("x", FLOAT, 2, 3, 0)], [info("y", FLOAT, 2, 3, 0)], 11)
    (found,) = run_ort(convert(model, 13), {"x": np.zeros((2, 3, 0), np.float32)})
    assert found.shape == (2, 3, 0)


@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_what_an_older_pad_pads_with_has_the_type_of_the_data(dtype: Any) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    pad = helper.make_node("Pad", ["x"], ["y"], pads=[1, 0], value=0.5)
    model = model_of([pad], [info("x", kind, 2)], [info("y", kind, 3)], 10)
    (found,) = run_ort(convert(model, 13), {"x": np.ones(2, dtype)})
    assert found.tolist() == [0.5, 1, 1]


def test_scattered_sums_refuse_places_that_are_none() -> None:
    """Not even where the number of such a place, counted over all axes, is that of another one."""
    node = helper.make_node("ScatterND", ["x", "i", "u"], ["y"], reduction="add")
    inputs = [info("x", FLOAT, 2, 3), info("i", INT64, 2, 2), info("u", FLOAT, 2)]
    model = ll.lower(model_of([node], inputs, [info("y", FLOAT, 2, 3)], 16), opset=13)
    feeds = {"x": f32(2, 3), "u": f32(2)}
    expected = feeds["x"].copy()
    np.add.at(expected, ([1, 1], [0, 0]), feeds["u"])
    np.testing.assert_allclose(run_ort(model, feeds | {"i": i64([1, 0], [-1, -3])})[0], expected, rtol=1e-6)
    with pytest.raises(InvalidArgument, match="out of"):
        run_ort(model, feeds | {"i": i64([1, 0], [0, 3])})
