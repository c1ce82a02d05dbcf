"""`lower` on whole models: where composites may stand, what is kept, what is refused."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

import lstm_lower as ll
from lstm_lower.passes.lower import lowering_passes
from lstm_lower.passes.repair import WrongGradientWarning
from lstm_lower.passes.rules.math import Zeta
from lstm_lower.passes.rules.registry import RULES, lowers_by
from lstm_lower.records import model_files as model_io
from lstm_lower.runtime.proof.check import check
from lstm_lower.runtime.proof.oracles.registry import ORACLES
from tests.support.models import DOMAIN, single_node_model, split_kwargs
from tests.support.op_inputs import valid_inputs
from tests.support.tensorflow_cases import relative_error

GRU_OPERANDS = ["x", "h_prev", "w_ru", "w_c", "b_ru", "b_c"]


def gru_model(nodes: list[onnx.NodeProto], outputs: list[str], **fields) -> onnx.ModelProto:
    """A model whose inputs are the operands of a GRUBlockCell."""
    kwargs = valid_inputs("GRUBlockCell")
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, kwargs[name].shape) for name in GRU_OPERANDS]
    inputs += fields.pop("inputs", [])
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    domains = fields.pop("domains", [DOMAIN])
    opsets = [helper.make_opsetid("", 18), *(helper.make_opsetid(domain, 1) for domain in domains)]
    graph = helper.make_graph(nodes, "g", inputs, results)
    return helper.make_model(graph, opset_imports=opsets, ir_version=8, **fields)


def cell(prefix: str = "", domain: str = DOMAIN, name: str = "cell") -> onnx.NodeProto:
    return helper.make_node("GRUBlockCell", GRU_OPERANDS, [f"{prefix}{o}" for o in "ruch"], name=name, domain=domain)


def expected_h() -> np.ndarray:
    return ORACLES["GRUBlockCell"](**valid_inputs("GRUBlockCell"))["h"]


def only_standard(model: onnx.ModelProto) -> bool:
    def domains(graph: onnx.GraphProto) -> set[str]:
        found = {node.domain for node in graph.node}
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    found |= domains(attribute.g)
        return found

    return domains(model.graph) <= {""} and not model.functions and [o.domain for o in model.opset_import] == [""]


def test_inside_a_subgraph() -> None:
    """In a branch of an If, reading the outer graph's values."""
    branches = {}
    for branch in ("then", "else"):
        nodes = [cell(f"{branch}_", name=f"{branch}_cell")]
        if branch == "else":
            nodes.append(helper.make_node("Neg", ["else_h"], ["else_out"]))
        last = nodes[-1].output[3] if branch == "then" else "else_out"
        result = helper.make_tensor_value_info(last, TensorProto.FLOAT, None)
        branches[f"{branch}_branch"] = helper.make_graph(nodes, branch, [], [result])
    condition = helper.make_tensor_value_info("condition", TensorProto.BOOL, [])
    choice = helper.make_node("If", ["condition"], ["out"], name="choice", **branches)
    model = ll.lower(gru_model([choice], ["out"], inputs=[condition]), verify_each=True)
    assert only_standard(model)
    onnx.checker.check_model(model, full_check=True)
    feeds = {name: valid_inputs("GRUBlockCell")[name] for name in GRU_OPERANDS}
    for value, sign in ((True, 1), (False, -1)):
        out = ll.Session(model).run({**feeds, "condition": np.array(value)})["out"]
        assert relative_error(out, sign * expected_h()) < 1e-6


@pytest.mark.slow
def test_inside_functions_with_attribute_references() -> None:
    """A function that calls another; the cell's attribute is a parameter of the function."""
    kwargs = valid_inputs("LSTMBlockCell")
    operands = [name for name, value in kwargs.items() if isinstance(value, np.ndarray)]
    outputs = ["i", "cs", "f", "o", "ci", "co", "h"]
    node = helper.make_node("LSTMBlockCell", operands, outputs, name="cell", domain="tf")
    for name, kind in (("cell_clip", onnx.AttributeProto.FLOAT), ("use_peephole", onnx.AttributeProto.INT)):
        node.attribute.append(onnx.AttributeProto(name=name, ref_attr_name=name, type=kind))
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("tf", 1), helper.make_opsetid("mine", 1)]
    attributes = ["cell_clip", "use_peephole"]
    inner = helper.make_function("mine", "Inner", operands, ["h"], [node], opsets, attributes)
    call = helper.make_node("Inner", operands, ["h"], domain="mine")
    call.attribute.extend(node.attribute)
    outer = helper.make_function("mine", "Outer", operands, ["h"], [call], opsets, attributes)
    top = helper.make_node("Outer", operands, ["out"], domain="mine", cell_clip=0.25, use_peephole=1)
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, kwargs[name].shape) for name in operands]
    graph = helper.make_graph([top], "g", inputs, [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, functions=[inner, outer], opset_imports=opsets, ir_version=8)
    lowered = ll.lower(model, verify_each=True)
    assert only_standard(lowered)
    out = ll.Session(lowered).run({name: kwargs[name] for name in operands})["out"]
    clipped = {**split_kwargs("LSTMBlockCell", kwargs)[0], "cell_clip": 0.25, "use_peephole": True, "forget_bias": 1.0}
    assert relative_error(out, ORACLES["LSTMBlockCell"](**clipped)["h"]) < 1e-6


def test_names_and_symbolic_dimensions_are_kept() -> None:
    model = single_node_model("BlockLSTMGrad", valid_inputs("BlockLSTMGrad"), symbolic=True)
    for value in model.graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            dim.dim_param = f"{value.name}_{axis}"
    before = [(v.name, str(v.type)) for v in model.graph.input]
    lowered = ll.lower(model)
    assert [(v.name, str(v.type)) for v in lowered.graph.input] == before
    assert [v.name for v in lowered.graph.output] == [v.name for v in model.graph.output]
    assert all(v.type.tensor_type.elem_type == TensorProto.FLOAT for v in lowered.graph.output)


def test_the_argument_is_not_changed() -> None:
    proto = single_node_model("BlockLSTM", valid_inputs("BlockLSTM"))
    kept = proto.SerializeToString(deterministic=True)
    model = ir.from_proto(proto)
    lowered = ll.lower(model)
    assert isinstance(lowered, ir.Model)
    assert isinstance(ll.lower(proto), onnx.ModelProto)
    assert ir.to_proto(model).SerializeToString(deterministic=True) == kept
    assert proto.SerializeToString(deterministic=True) == kept


def test_passes_in_a_pipeline_of_ones_own() -> None:
    model = ir.from_proto(single_node_model("BlockLSTM", valid_inputs("BlockLSTM")))
    result = ir.passes.Sequential(*lowering_passes(opset=21))(model)
    assert result.modified
    assert only_standard(ir.to_proto(result.model))
    assert result.model.opset_imports == {"": 21}


@pytest.mark.parametrize("optimize", [False, True])
def test_nothing_unread_is_left(optimize: bool) -> None:
    """A constant seq_len_max has done its work, and without peepholes nobody reads theirs."""
    kwargs = valid_inputs("BlockLSTMGrad", use_peephole=False)
    model = ll.lower(
        single_node_model("BlockLSTMGrad", kwargs, constants=("seq_len_max", "wci", "w")),
        optimize=optimize,
    )
    left = ir.from_proto(model).graph.initializers
    assert "seq_len_max" not in left
    assert "wci" not in left
    assert all(value.uses() for value in left.values())


def test_an_output_that_is_an_operand_or_read_twice() -> None:
    """PreventGradient is its input: the graph output keeps its name, and other readers are served too."""
    through = helper.make_node("PreventGradient", ["x"], ["same"], name="p", domain=DOMAIN)
    twice = helper.make_node("Add", ["same", "same"], ["double"])
    model = ll.lower(gru_model([through, twice], ["same", "double"]))
    feeds = {name: valid_inputs("GRUBlockCell")[name] for name in GRU_OPERANDS}
    outputs = ll.Session(model).run(feeds)
    np.testing.assert_array_equal(outputs["same"], feeds["x"])
    np.testing.assert_array_equal(outputs["double"], 2 * feeds["x"])


def test_nodes_without_names_and_names_that_collide() -> None:
    """Names that the lowering would like are taken already."""
    nodes = [cell("a_", name=""), cell("z_", name="")]
    nodes.append(helper.make_node("Identity", ["a_h"], ["GRUBlockCell/Concat"], name="GRUBlockCell/MatMul"))
    model = ll.lower(gru_model(nodes, ["GRUBlockCell/Concat", "z_h"]), verify_each=True)
    onnx.checker.check_model(model, full_check=True)
    feeds = {name: valid_inputs("GRUBlockCell")[name] for name in GRU_OPERANDS}
    for value in ll.Session(model).run(feeds).values():
        assert relative_error(value, expected_h()) < 1e-6


def v2_model() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A BlockLSTMV2 whose gradient is a BlockLSTMGrad, as TensorFlow's registered gradient builds it."""
    kwargs = valid_inputs("BlockLSTMV2")
    operands, _ = split_kwargs("BlockLSTMV2", kwargs)
    saved = ["i", "cs", "f", "o", "ci", "co", "h"]
    grads = ["x_grad", "cs_prev_grad", "h_prev_grad", "w_grad", "wci_grad", "wcf_grad", "wco_grad", "b_grad"]
    forward = helper.make_node("BlockLSTMV2", list(operands), saved, name="fwd", domain=DOMAIN, cell_clip=0.0)
    backward = helper.make_node(
        "BlockLSTMGrad", [*operands, *saved, "cs", "h"], grads, name="bwd", domain=DOMAIN, use_peephole=0
    )
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in operands.items()
    ]
    graph = helper.make_graph(
        [forward, backward], "g", inputs, [helper.make_tensor_value_info("w_grad", TensorProto.FLOAT, None)]
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8), operands


@pytest.mark.parametrize("repair", [False, True])
def test_wrong_gradient_of_v2(repair: bool) -> None:
    model, operands = v2_model()
    if repair:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            lowered = ll.lower(model, repair_v2_gradient=True)
    else:
        with pytest.warns(WrongGradientWarning, match="'bwd'"):
            lowered = ll.lower(model)
    saved = ORACLES["BlockLSTMV2"](**operands, cell_clip=0.0, use_peephole=False)
    op = "BlockLSTMGradV2" if repair else "BlockLSTMGrad"
    expected = ORACLES[op](**operands, **saved, cs_grad=saved["cs"], h_grad=saved["h"], use_peephole=False)
    assert relative_error(ll.Session(lowered).run(operands)["w_grad"], expected["w_grad"]) < 1e-5


@pytest.mark.slow
def test_external_data_is_found_from_everywhere(tmp_path) -> None:
    kwargs = valid_inputs("BlockLSTM", I=200, H=100)
    feeds, _ = split_kwargs("BlockLSTM", kwargs)
    weights = {name: feeds.pop(name) for name in ("w", "b")}
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    source = tmp_path / "in" / "model.onnx"
    proto = single_node_model("BlockLSTM", kwargs, constants=tuple(weights))
    onnx.save_model(proto, source, save_as_external_data=True, location="weights.bin", size_threshold=0)
    lowered = ll.lower(ir.load(source))
    assert isinstance(lowered.graph.initializers["w"].const_value, ir.ExternalTensor)
    model_io.save(lowered, tmp_path / "out" / "inside.onnx")
    model_io.save(ll.lower(ir.load(source)), tmp_path / "out" / "beside.onnx", external_data=True)
    assert (tmp_path / "out" / "beside.onnx").stat().st_size < weights["w"].nbytes
    found = sorted(p.name for p in (tmp_path / "out").iterdir())
    assert [re.sub("[0-9a-f]{16}", "HASH", name) for name in found] == [
        "beside.onnx", "beside.onnx.HASH.data", "inside.onnx"
    ]  # fmt: skip
    expected = ORACLES["BlockLSTM"](**kwargs)["h"]
    models = [source, ll.lower(source), lowered, tmp_path / "out" / "inside.onnx", tmp_path / "out" / "beside.onnx"]
    for model in models:
        assert relative_error(ll.Session(model).run(feeds)["h_out"], expected) < 1e-5


def test_saving_over_the_models_own_external_data(tmp_path) -> None:
    """The new weights are complete before the old ones, which they are read from, are replaced."""
    kwargs = valid_inputs("BlockLSTM", I=200, H=100)
    path = tmp_path / "model.onnx"
    proto = single_node_model("BlockLSTM", kwargs, constants=("w",))
    onnx.save_model(proto, path, save_as_external_data=True, location="model.onnx.data", size_threshold=0)
    model_io.save(ll.lower(ir.load(path)), path, external_data=True)
    feeds, _ = split_kwargs("BlockLSTM", kwargs)
    del feeds["w"]
    assert relative_error(ll.Session(path).run(feeds)["h_out"], ORACLES["BlockLSTM"](**kwargs)["h"]) < 1e-5


def duplicate_name() -> onnx.ModelProto:
    return gru_model([cell("a_"), cell("a_", name="again")], ["a_h"])


def dangling() -> onnx.ModelProto:
    return gru_model([helper.make_node("Neg", ["nowhere"], ["y"], name="lost"), cell()], ["y"])


def cycle() -> onnx.ModelProto:
    nodes = [helper.make_node("Add", ["q", "x"], ["p"], name="one"), helper.make_node("Neg", ["p"], ["q"], name="two")]
    return gru_model([*nodes, cell()], ["q"])


def missing_output() -> onnx.ModelProto:
    return gru_model([cell()], ["nothing"])


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (duplicate_name, "'a_r' is redeclared.*'again'"),
        (dangling, "Neg 'lost': input 0 requires a defined value, got 'nowhere'"),
        (cycle, "cycle: .*one.*two|cycle: .*two.*one"),
        (missing_output, "graph output 'nothing' requires a value"),
    ],
)
def test_malformed_graphs(make, text: str) -> None:
    with pytest.raises(ll.InvalidModelError, match=text):
        ll.lower(make())


def test_nodes_in_no_order() -> None:
    """As onnxruntime's converter to float16 leaves them; onnxruntime puts them in order itself."""
    model = gru_model([helper.make_node("Neg", ["h"], ["y"], name="early"), cell()], ["y"])
    assert check(model).passed
    feeds = {name: valid_inputs("GRUBlockCell")[name] for name in GRU_OPERANDS}
    assert relative_error(ll.Session(ll.lower(model)).run(feeds)["y"], -expected_h()) < 1e-6


def test_weights_shared_by_name_with_an_input() -> None:
    """An initializer that is an input too is a default that a feed may override: it is no constant."""
    kwargs = valid_inputs("BlockLSTM", steps=2)
    model = single_node_model("BlockLSTM", kwargs)
    model.graph.initializer.append(numpy_helper.from_array(np.array(1), "seq_len_max"))
    feeds, _ = split_kwargs("BlockLSTM", kwargs)
    session = ll.Session(model)
    assert "seq_len_max" not in session.inputs
    expected = ORACLES["BlockLSTM"](**kwargs)["cs"]
    assert relative_error(session.run(feeds)["cs_out"], expected) < 1e-5
    del feeds["seq_len_max"]
    expected = ORACLES["BlockLSTM"](**{**kwargs, "seq_len_max": np.array(1)})["cs"]
    assert relative_error(session.run(feeds)["cs_out"], expected) < 1e-5


MISREAD = {
    "STFT": """<ir_version: 8, opset_import: ["" : 17]>
        graph (float[2, 64] x, float[9, 3] w, float s) => (float[2, 13, 3] y, float z)
        <int64 step = {4}, float[16] window = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}>
        { frames = STFT (x, step, window) energy = ReduceSumSquare <axes = [-1], keepdims = 0> (frames)
          y = MatMul (energy, w) z = Mul (s, s) }""",
    "MeanVarianceNormalization": """<ir_version: 8, opset_import: ["" : 17]>
        graph (float[2, 3, 2, 2] x, float s) => (float[2, 3, 2, 2] y, float z)
        { y = MeanVarianceNormalization (x) z = Mul (s, s) }""",
}


@pytest.mark.parametrize("text", MISREAD.values(), ids=MISREAD)
@pytest.mark.parametrize(
    "call", [ll.lower, ll.optimize, lambda model: ll.gradient(model, "z", "s")], ids=["lower", "optimize", "gradient"]
)
def test_defaults_that_inference_misses(text: str, call: Callable[[onnx.ModelProto], onnx.ModelProto]) -> None:
    """onnx's checker refuses these models, since its inference has other defaults than the operators."""
    model = onnx.parser.parse_model(text)
    with pytest.raises(onnx.shape_inference.InferenceError):
        onnx.checker.check_model(model, full_check=True)
    made = call(model)
    onnx.checker.check_model(made, full_check=True)
    rng = np.random.default_rng(0)
    shapes = {x.name: [d.dim_value for d in x.type.tensor_type.shape.dim] for x in model.graph.input}
    feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    wanted, got = (ll.Session(x).run(feeds)["y"] for x in (model, made))
    np.testing.assert_array_equal(got, wanted)


def test_a_formula_of_a_table_takes_its_ops_operands() -> None:
    before = dict(RULES)
    for formula in (lambda x: x, lambda x, y, z: x + y + z):
        with pytest.raises(TypeError, match="argument"):
            lowers_by({Zeta: formula})
    assert dict(RULES) == before
