"""Broken and unsupported TensorFlow graphs: one clear error each, before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lstm_lower as ll

tf = pytest.importorskip("tensorflow")

GRAPHS = Path(__file__).parents[1] / "data" / "graphs"
TRAIN = GRAPHS / "block_lstm_train__dynbatch.pb"


def graph_of(build: Callable[[Any], Any]) -> Any:
    """The GraphDef of what `build` makes with TensorFlow 1's functions."""
    with tf.Graph().as_default() as graph:
        build(tf.compat.v1)
        return graph.as_graph_def()


def doubled(v1: Any) -> None:
    x = v1.placeholder(tf.float32, [2], "x")
    tf.add(x, x, name="y")


@pytest.mark.parametrize("keep", [1, 100, 5000, 15000])
def test_truncated_file(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "cut.pb"
    path.write_bytes(TRAIN.read_bytes()[:keep])
    with pytest.raises(ll.InvalidModelError, match=r"cut\.pb: a GraphDef is required|require"):
        ll.from_tensorflow(path)


@pytest.mark.parametrize("text", ["node {", "this is no graph", ""])
def test_broken_text(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broken.pbtxt"
    path.write_text(text)
    message = r"broken\.pbtxt: a (GraphDef|TensorFlow graph) is required, got a(nother kind of)? file"
    with pytest.raises(ll.InvalidModelError, match=message):
        ll.from_tensorflow(path)


def test_text_is_read_like_bytes(tmp_path: Path) -> None:
    from google.protobuf import text_format

    path = tmp_path / "graph.pbtxt"
    path.write_text(text_format.MessageToString(graph_of(doubled)))
    assert [value.name for value in ll.from_tensorflow(path).graph.output] == ["y:0"]


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        ll.from_tensorflow(tmp_path / "nowhere.pb")
    with pytest.raises(ll.InvalidModelError, match=r"a SavedModel is required, got a folder without"):
        ll.from_tensorflow(tmp_path)


def test_unknown_ops_are_all_named() -> None:
    graph = graph_of(doubled)
    for number in range(2):
        node = graph.node.add()
        node.name, node.op = f"odd{number}", f"NoSuchOp{number}"
        node.input.append("y")
    with pytest.raises(ll.UnsupportedOpError) as caught:
        ll.from_tensorflow(graph, ["x:0"], ["odd0:0", "odd1:0"])
    lines = str(caught.value).splitlines()
    assert lines[:2] == [
        "NoSuchOp0 'odd0': no conversion is known for it",
        "NoSuchOp1 'odd1': no conversion is known for it",
    ]
    way = "inputs, where the graph is then cut, or what they read as outputs ('y:0'), or define the ops in a plug-in."
    proposed = "`lstm-lower inspect` proposes inputs and outputs."
    assert lines[2:] == [f"Name tensors behind them as {way} {proposed}"]
    ll.from_tensorflow(graph, ["x:0"], ["y:0"])


def test_of_many_unknown_ops_a_few_are_named() -> None:
    graph = graph_of(doubled)
    for number in range(20):
        node = graph.node.add()
        node.name, node.op = f"odd{number}", "NoSuchOp"
        node.input.append("y")
    with pytest.raises(ll.UnsupportedOpError) as caught:
        ll.from_tensorflow(graph, ["x:0"], [f"odd{number}:0" for number in range(20)])
    assert "NoSuchOp 'odd0', 'odd1', 'odd2' and 17 more: no conversion is known" in str(caught.value)


def test_ops_without_conversion_are_all_named() -> None:
    def build(v1: Any) -> None:
        x = v1.placeholder(tf.float32, [4, 4], "x")
        tf.raw_ops.BesselJ0(x=x, name="first")
        tf.add(tf.linalg.lu(x)[0], tf.raw_ops.MatrixSquareRoot(input=x, name="second"), name="sum")

    with pytest.raises(ll.UnsupportedOpError) as caught:
        ll.from_tensorflow(graph_of(build))
    text = str(caught.value)
    assert "BesselJ0 'first': no conversion is known for it" in text
    assert "MatrixSquareRoot 'second': no conversion is known for it" in text
    assert "Lu 'Lu': no conversion is known for it" in text


def test_loop_of_tensorflow_1() -> None:
    def build(v1: Any) -> None:
        v1.disable_control_flow_v2()
        try:
            x = v1.placeholder(tf.float32, [], "x")
            v1.while_loop(lambda y: y < 9.0, lambda y: y * 2.0, [x], name="loop")
        finally:
            v1.enable_control_flow_v2()

    session = ll.Session(ll.lower(ll.from_tensorflow(graph_of(build), ["x:0"], ["loop/Exit:0"])))
    for given, expected in ((1.5, 12.0), (9.5, 9.5)):
        assert session.run({"x:0": np.float32(given)})["loop/Exit:0"] == expected


def test_branch_of_tensorflow_1() -> None:
    def build(v1: Any) -> None:
        v1.disable_control_flow_v2()
        try:
            x = v1.placeholder(tf.float32, [], "x")
            v1.cond(x > 0, lambda: x * 2.0, lambda: x, name="branch")
        finally:
            v1.enable_control_flow_v2()

    session = ll.Session(ll.lower(ll.from_tensorflow(graph_of(build), ["x:0"], ["branch/Merge:0"])))
    for given, expected in ((1.5, 3.0), (-1.5, -1.5)):
        assert session.run({"x:0": np.float32(given)})["branch/Merge:0"] == expected


def test_missing_library_function() -> None:
    @tf.function
    def inner(x: Any) -> Any:
        return x * 2.0

    @tf.function(input_signature=[tf.TensorSpec([2], tf.float32, name="x")])
    def outer(x: Any) -> Any:
        return inner(x) + inner(x)

    graph = outer.get_concrete_function().graph.as_graph_def()
    assert [value.name for value in ll.from_tensorflow(graph, ["x:0"]).graph.output] == ["Identity:0"]
    del graph.library.function[:]
    with pytest.raises(ll.InvalidModelError, match=r"Call.*: function '.*inner.*' must be in the library"):
        ll.from_tensorflow(graph, ["x:0"])


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("dtype", "Const 'c': value requires dtype 1, as the node has it, got 3"),
        ("many", r"Const 'c'"),
        ("huge", "Const 'c' requires at most 2 GB, got"),
    ],
)
def test_constants_of_two_kinds(entry: str, message: str) -> None:
    graph = graph_of(
        lambda v1: tf.add(v1.placeholder(tf.float32, [2], "x"), tf.constant([1.0, 2.0], name="c"), name="y")
    )
    constant = next(node for node in graph.node if node.op == "Const")
    if entry == "dtype":
        constant.attr["value"].tensor.dtype = tf.int32.as_datatype_enum
    else:
        constant.attr["value"].tensor.tensor_shape.dim[0].size = 3 if entry == "many" else 2**40
    with pytest.raises(ll.InvalidModelError, match=message):
        ll.from_tensorflow(graph, outputs=["y:0"])


def test_missing_node() -> None:
    graph = graph_of(doubled)
    del graph.node[0]
    with pytest.raises(ll.InvalidModelError, match="'y': its inputs require nodes of the graph, got 'x'"):
        ll.from_tensorflow(graph, outputs=["y:0"])


@pytest.mark.parametrize("spelled", ["x:b:c", "x:b", f"x:{'9' * 5000}"])
def test_an_input_that_no_output_is(spelled: str) -> None:
    graph = graph_of(doubled)
    graph.node[1].input[0] = spelled
    with pytest.raises(ll.InvalidModelError, match="requires the form node or node:number, got 'x:"):
        ll.from_tensorflow(graph, outputs=["y:0"])


@pytest.mark.parametrize(("op", "tensor"), [("AddV2", "y:-1"), ("AddV2", "y:1"), ("Mystery", "y:-1")])
def test_an_input_that_its_node_does_not_make(op: str, tensor: str) -> None:
    graph = graph_of(doubled)
    graph.node[1].op = op
    with pytest.raises(ll.InvalidInputError, match=f"requires tensors of the graph, got '{tensor}' of {op} 'y', which"):
        ll.from_tensorflow(graph, [tensor], ["y:0"])


def test_what_an_unknown_op_makes_may_be_an_input() -> None:
    graph = graph_of(lambda v1: tf.tanh(tf.add(v1.placeholder(tf.float32, [2], "x"), 1.0, name="y"), name="z"))
    next(node for node in graph.node if node.name == "y").op = "Mystery"
    model = ll.from_tensorflow(graph, ["y:0"], ["z:0"], shapes={"y:0": ["batch"]})
    assert [dim.dim_param for dim in model.graph.input[0].type.tensor_type.shape.dim] == ["batch"]
    with pytest.warns(UserWarning, match="the rank of y:0 is not known: taken as scalars; shapes says otherwise"):
        ll.from_tensorflow(graph, ["y:0"], ["z:0"])


def test_an_input_of_unknown_rank_that_is_no_scalar() -> None:
    def build(v1: Any) -> None:
        tf.matmul(v1.placeholder(tf.float32, None, "x"), tf.ones([2, 3]), name="y")

    message = "shapes requires the sizes of inputs whose rank the graph leaves open, got none of x:0; as scalars they"
    with pytest.raises(ll.InvalidInputError, match=message):
        ll.from_tensorflow(graph_of(build))
    model = ll.from_tensorflow(graph_of(build), shapes={"x:0": [None, 2]})
    assert [value.name for value in model.graph.output] == ["y:0"]


def test_a_value_that_no_tensor_is() -> None:
    def assigned(v1: Any) -> Any:
        variable = v1.get_variable("v", [2], use_resource=True)
        return tf.add(v1.assign(variable, tf.constant([1.0, 2.0], name="c")), 1.0, name="y")

    graph = graph_of(assigned)
    next(node for node in graph.node if node.name == "c").op = "NoOp"
    with pytest.raises(ll.InvalidModelError, match="'c:0' requires an op that makes it before it is read"):
        ll.from_tensorflow(graph, outputs=["y:0"])


def test_cycle() -> None:
    graph = graph_of(doubled)
    node = graph.node.add()
    node.name, node.op = "back", "Identity"
    node.attr["T"].type = tf.float32.as_datatype_enum
    node.input.append("y")
    next(node for node in graph.node if node.name == "y").input[1] = "back"
    with pytest.raises(
        ll.InvalidModelError, match=r"the graph requires an order, got a cycle: (y <- back <- y|back <- y <- back)"
    ):
        ll.from_tensorflow(graph, ["x:0"], ["y:0"])


def test_constant_as_input() -> None:
    path = GRAPHS / "block_lstm_train__frozen_refvar.pb"
    with pytest.raises(ll.InvalidInputError, match=r"input 'w:0' requires a placeholder.*got Const 'w', which"):
        ll.from_tensorflow(path, ["ids:0", "labels:0", "w:0"], ["loss:0"])


def test_input_that_nothing_reads() -> None:
    def build(v1: Any) -> None:
        doubled(v1)
        v1.placeholder(tf.float32, [2], "idle")

    with pytest.raises(ll.InvalidInputError, match="inputs requires tensors that an output depends on, got 'idle:0'"):
        ll.from_tensorflow(graph_of(build), ["x:0", "idle:0"], ["y:0"])


def test_placeholders_that_are_left_out() -> None:
    def build(v1: Any) -> None:
        tf.add_n([v1.placeholder(tf.float32, [2], f"x{number}") for number in range(9)], name="y")

    message = (
        "requires every placeholder that the outputs need, got none of x1:0, x2:0, x3:0, x4:0 and 4 more; name them"
    )
    with pytest.raises(ll.InvalidInputError, match=message):
        ll.from_tensorflow(graph_of(build), ["x0:0"], ["y:0"])


def test_input_inside_the_graph_cuts_it() -> None:
    def build(v1: Any) -> None:
        x = v1.placeholder(tf.float32, [2, None], "x")
        tf.multiply(tf.tanh(x, name="inner"), 3.0, name="y")

    model = ll.from_tensorflow(graph_of(build), ["inner:0"], ["y:0"])
    assert [value.name for value in model.graph.input] == ["inner:0"]
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 2
    assert "Tanh" not in {node.op_type for node in model.graph.node}


def test_strings() -> None:
    def build(v1: Any) -> None:
        text = v1.placeholder(tf.string, [None], "text")
        tf.strings.to_number(tf.strings.lower(text, name="low"), name="number")

    with pytest.raises(ll.UnsupportedOpError, match="StringLower 'low': no conversion is known for it"):
        ll.from_tensorflow(graph_of(build), ["text:0"], ["number:0"])


def test_strings_before_a_cut_are_not_looked_at() -> None:
    def build(v1: Any) -> None:
        text = v1.placeholder(tf.string, [None], "text")
        tf.multiply(tf.strings.to_number(tf.strings.lower(text), name="number"), 2.0, name="y")

    model = ll.from_tensorflow(graph_of(build), ["number:0"], ["y:0"], shapes={"number:0": ["batch"]})
    assert [value.name for value in model.graph.input] == ["number:0"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inputs": ["nowhere:0"]}, "inputs requires tensors of the graph, got 'nowhere:0'"),
        ({"outputs": ["nowhere:0"]}, "outputs requires tensors of the graph, got 'nowhere:0'"),
        (
            {"outputs": ["loss:1"]},
            "outputs requires tensors of the graph, got 'loss:1' of Identity 'loss', which has 1",
        ),
        ({"outputs": ["loss:0", "loss:0"]}, "outputs requires names that differ"),
        ({"opset": 12}, r"opset requires 13 to \d+, got 12"),
        ({"opset": 999}, r"opset requires 13 to \d+.*got 999"),
        ({"weights": "none"}, "weights requires one of inputs, initializers, got 'none'"),
        ({"signature": "x"}, "signature requires a SavedModel as the source"),
        ({"specs": []}, "specs requires a tf.function as the source"),
        ({"shapes": {"ids:0": [7]}}, r"shapes\['ids:0'\] requires rank 2"),
        ({"shapes": {"ids:0": [8, None]}}, r"shapes\['ids:0'\] requires 7 along axis 0, got 8"),
        ({"shapes": {"nowhere:0": [8]}}, "shapes requires names of inputs or outputs, got nowhere:0"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ll.InvalidInputError, match=message):
        ll.from_tensorflow(TRAIN, **options)


@pytest.mark.parametrize("opset", [13, 21, 23])
def test_opsets(opset: int) -> None:
    model = ll.from_tensorflow(TRAIN, opset=opset)
    assert {entry.version for entry in model.opset_import if not entry.domain} == {opset}


def test_signatures_are_named() -> None:
    path = GRAPHS / "block_lstm_train.saved_model"
    with pytest.raises(ll.InvalidInputError, match=r"signature .--signature. requires one of train_assign, train_pure"):
        ll.from_tensorflow(path)
    with pytest.raises(ll.InvalidInputError, match="got 'serve'"):
        ll.from_tensorflow(path, signature="serve")


def test_what_is_no_source() -> None:
    with pytest.raises(ll.InvalidInputError, match=r"source requires a GraphDef.*got int"):
        ll.from_tensorflow(3)


def test_function_without_specs() -> None:
    @tf.function
    def free(x: Any) -> Any:
        return x * 2.0

    with pytest.raises(ll.InvalidInputError, match="specs requires one tf"):
        ll.from_tensorflow(free)
    model = ll.from_tensorflow(free, specs=[tf.TensorSpec([None, 2], tf.float32, name="x")])
    assert [value.name for value in model.graph.input] == ["x"]


def test_unsupported_graph_writes_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def build(v1: Any) -> None:
        tf.raw_ops.MatrixSquareRoot(input=v1.placeholder(tf.float32, [4, 4], "x"), name="y")

    with pytest.raises(ll.UnsupportedOpError):
        ll.from_tensorflow(graph_of(build))
    assert not list(tmp_path.iterdir())
    assert "MatrixSquareRoot" not in capfd.readouterr().err, "the error says it, and nothing else does"


@pytest.mark.slow
def test_tf2onnx_plugin() -> None:
    convert = pytest.importorskip("tf2onnx.convert")
    graph = tf.compat.v1.GraphDef.FromString(TRAIN.read_bytes())
    inputs = [f"{name}:0" for name in ("ids", "labels", "emb", "w", "wci", "wcf", "wco", "b", "dense_w", "dense_b")]
    outputs = ["loss:0", "grad_w:0"]
    model, _ = convert.from_graph_def(graph, input_names=inputs, output_names=outputs, **ll.tf2onnx_ops())
    assert {"BlockLSTM", "BlockLSTMGrad"} <= {node.op_type for node in model.graph.node if node.domain}
    assert {node.domain for node in ll.lower(model).graph.node} == {""}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"outputs": ["losss:0"]}, "outputs .* got 'losss:0', which it does not hold; did you mean 'loss:0'"),
        ({"outputs": ["Loss"]}, "outputs .* got 'Loss', which it does not hold; did you mean 'loss'"),
        ({"outputs": ["elsewhere:0"]}, "got 'elsewhere:0', which it does not hold$"),
        ({"inputs": ["X:0"], "outputs": ["loss:0"]}, "inputs .* did you mean 'x:0'"),
        ({"outputs": ["tell:0"]}, "outputs requires tensors of numbers, got 'tell:0' of ScalarSummary 'tell'"),
    ],
)
def test_names_that_are_near(options: dict[str, Any], message: str) -> None:
    def build(v1: Any) -> None:
        v1.summary.scalar("tell", tf.reduce_sum(v1.placeholder(tf.float32, [2], "x"), name="loss"))

    with pytest.raises(ll.InvalidInputError, match=message):
        ll.from_tensorflow(graph_of(build), **options)


def test_an_output_on_one_side_of_a_branch() -> None:
    def build(v1: Any) -> None:
        x, p = v1.placeholder(tf.float32, [2], "x"), v1.placeholder(tf.bool, [], "p")
        there, here = tf.raw_ops.Switch(data=x, pred=p)
        tf.raw_ops.Merge(inputs=[tf.identity(there * 2.0, "inner"), here + 1.0], name="c")

    with pytest.raises(ll.UnsupportedOpError, match=r"'c': a merge .* got 'inner:0'; ask for 'c:0' instead"):
        ll.from_tensorflow(graph_of(build), outputs=["c:0", "inner:0"])
