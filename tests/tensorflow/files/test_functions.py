"""Functions of a library as graphs, and what lives in TensorFlow beside what it wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import google.protobuf.text_format
import numpy as np
import pytest

import lstm_lower as ll
from lstm_lower.checkpoints.messages import AttrValue, FunctionDef, GraphDef
from lstm_lower.tensorflow.files.functions import OpTable, flat_body, function_graph
from lstm_lower.tensorflow.files.graph_files import read_file
from lstm_lower.tensorflow.opening import open_source

DATA = Path(__file__).parents[2] / "data"
SAVED = DATA / "tensorflow_files" / "saved_2"

BODY = """
signature {
  name: "f" input_arg { name: "x" type: DT_FLOAT } input_arg { name: "n" type: DT_INT32 }
  output_arg { name: "first" type: DT_FLOAT } output_arg { name: "second" type: DT_FLOAT }
}
node_def { name: "s" op: "Switch" input: "x" input: "x" }
node_def { name: "u" op: "Unpack" input: "s:output_true:0" attr { key: "num" value { i: 3 } } }
node_def { name: "b" op: "BlockLSTM" input: "u:output:2" input: "n" }
node_def { name: "m" op: "IdentityN" input: "b:h:0" input: "b:i" input: "^u" input: "^x" }
node_def { name: "k" op: "Odd" input: "m:output:1" attr { key: "T" value { placeholder: "T" } } }
ret { key: "first" value: "m:output:1" } ret { key: "second" value: "x" }
control_ret { key: "k" value: "k" }
"""


def function(text: str = BODY) -> Any:
    return google.protobuf.text_format.Parse(text, FunctionDef())


def test_body() -> None:
    body = flat_body(function(), OpTable([], {}), ["outer:1", "n"], prefix="call/", attributes={"T": AttrValue(type=1)})
    assert {node.name: list(node.input) for node in body.nodes} == {
        "call/s": ["outer:1", "outer:1"],
        "call/u": ["call/s:1"],
        "call/b": ["call/u:2", "n"],
        "call/m": ["call/b:6", "call/b", "^call/u", "^outer"],
        "call/k": ["call/m:1"],
    }
    assert body.results == ["call/m:1", "outer:1"]
    assert body.controls == ["call/k"]
    assert body.nodes[-1].attr["T"].type == 1


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"b:h:0"', '"b:g:0"', "BlockLSTM 'b': a result must be one of i, cs, f, o, ci, co, h, got 'g:0'"),
        ('"b:h:0"', '"b:h:1"', "got 'h:1'"),
        ('"b:h:0"', '"b:h:x"', "function 'f' requires 'b:h:x', got none of that name"),
        ('"b:h:0"', '"z:h:0"', "IdentityN 'm': function 'f' requires 'z:h:0', got none"),
        ('"^u"', '"^u:0"', "requires '.u:0', got none"),
        ('name: "k" op', 'name: "m" op', "Odd 'm': its name must be its own in 'f'"),
        ('key: "second"', 'key: "third"', "function 'f' requires a tensor for its result 'second', got none"),
    ],
)
def test_broken_bodies(old: str, new: str, message: str) -> None:
    with pytest.raises(ll.InvalidModelError, match=message):
        flat_body(function(BODY.replace(old, new)), OpTable([], {}), ["x", "n"])


def test_arguments_that_a_call_decides() -> None:
    with pytest.raises(ll.InvalidModelError, match="function 'f' requires 2 arguments, got 1"):
        flat_body(function(), OpTable([], {}), ["x"])
    open_dtype = function(BODY.replace('"n" type: DT_INT32', '"n" type_attr: "T"'))
    with pytest.raises(ll.InvalidModelError, match="argument 'n' requires one dtype of its own"):
        function_graph(open_dtype, OpTable([], {}), GraphDef())


def all_functions() -> list[tuple[Any, OpTable]]:
    found = []
    for path in (SAVED, DATA / "graphs" / "block_lstm_train.saved_model"):
        file = read_file(path)
        op_defs = {op.name: op for op in file.meta.meta_info_def.stripped_op_list.op}
        library = file.graph_def.library.function
        found += [(each, OpTable(library, op_defs)) for each in library]
    return found


def test_numbers_need_no_list_of_ops() -> None:
    """Definitions and structure give what the file's own list of ops gives."""
    for given, table in all_functions():
        arguments = [argument.name for argument in given.signature.input_arg]
        known = flat_body(given, table, arguments)
        bare = flat_body(given, OpTable(table.functions.values(), {}), arguments)
        for one, other in zip(known.nodes, bare.nodes, strict=True):
            # An op of several results that has no definition here, and which no import takes.
            unknown = any(name.startswith("TopKV2") for name in one.input)
            assert unknown or list(one.input) == list(other.input)


def test_as_tensorflow_flattens_them() -> None:
    pytest.importorskip("tensorflow")
    from tensorflow.core.framework import function_pb2
    from tensorflow.python.framework.function_def_to_graph import function_def_to_graph_def

    for given, table in all_functions():
        theirs = function_pb2.FunctionDef.FromString(given.SerializeToString())
        try:
            expected, _ = function_def_to_graph_def(theirs)
        except ValueError:
            # TensorFlow knows the functions that this one calls as ops only after it has loaded them.
            continue
        body = flat_body(given, table, [argument.name for argument in given.signature.input_arg])
        wanted = {node.name: [name.removesuffix(":0") for name in node.input] for node in expected.node}
        for node in body.nodes:
            assert list(node.input) == wanted[node.name]


@pytest.mark.parametrize("path", [SAVED, DATA / "graphs" / "block_lstm_train.saved_model"], ids=lambda path: path.name)
def test_as_tensorflow_loads_it(path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    loaded = tf.saved_model.load(str(path))
    for signature, concrete in loaded.signatures.items():
        ours, theirs = open_source(path, signature=signature), open_source(concrete)
        assert ours.inputs == theirs.inputs
        assert list(ours.outputs or ()) == list(theirs.outputs or ())
        assert (ours.side_effects, ours.suffix) == (theirs.side_effects, theirs.suffix)
        assert type(ours.graph_def) is type(theirs.graph_def)
        assert len(ours.variables) == len(theirs.variables)
        expected = {variable.name: variable for variable in theirs.variables.values()}
        for variable in ours.variables.values():
            other = expected[variable.name]
            if not variable.name.startswith("same"):
                np.testing.assert_array_equal(variable.value, other.value)
            assert (variable.trainable, variable.shape, variable.dtype) == (other.trainable, other.shape, other.dtype)
        held = sorted(np.sum(value) for value in theirs.constants.values())
        assert sorted(np.sum(value) for value in ours.constants.values()) == held


def test_a_graph_that_lives() -> None:
    tf = pytest.importorskip("tensorflow")
    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        w = v1.get_variable("kernel", [7, 16], use_resource=False)
        b = v1.get_variable("bias", [16], trainable=False)
        v1.losses.add_loss(tf.reduce_sum(w) + tf.reduce_sum(b))
    step = DATA / "tensorflow_files" / "step"
    source = open_source(graph, checkpoint=step)
    assert source.losses == ["add:0"]
    trainable = {variable.name: variable.trainable for variable in source.variables.values()}
    assert trainable == {"kernel": True, "bias": False}
    assert all(variable.has_value for variable in source.variables.values())
    assert open_source(graph.as_graph_def()).graph_def.node
    assert isinstance(open_source(graph.as_graph_def()).graph_def, GraphDef)
