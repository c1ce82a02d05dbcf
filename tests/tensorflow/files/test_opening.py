"""Graphs in files: told by their content, with all that belongs to them, and without TensorFlow."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lstm_lower as ll
from lstm_lower.checkpoints import messages
from lstm_lower.checkpoints.values import tensor_value
from lstm_lower.records.content_kinds import Kind, content_of
from lstm_lower.tensorflow.files.graph_files import IncompleteCheckpointWarning, read_file
from lstm_lower.tensorflow.opening import open_source
from lstm_lower.tensorflow.sources import GraphSource, Variable
from tests.support.examples import tried

DATA = Path(__file__).parents[2] / "data"
FILES, GRAPHS = DATA / "tensorflow_files", DATA / "graphs"
META = FILES / "step" / "model.ckpt-0.meta"

with np.load(FILES / "values.npz", allow_pickle=True) as data:
    VALUES = {name: data[name] for name in data.files}


def named(source: GraphSource) -> dict[str, Variable]:
    return {variable.name: variable for variable in source.variables.values()}


@pytest.mark.parametrize(
    ("path", "kind", "text"),
    [
        (META, Kind.META_GRAPH, False),
        (FILES / "small.meta.txt", Kind.META_GRAPH, True),
        (FILES / "saved_1" / "saved_model.pb", Kind.SAVED_MODEL, False),
        (GRAPHS / "block_lstm_train__dynbatch.pb", Kind.GRAPH_DEF, False),
        (GRAPHS / "onnx" / "block_lstm_train__dynbatch.onnx", Kind.ONNX, False),
        (FILES / "values.npz", None, False),
        (FILES / "bundle" / "model.ckpt.index", None, False),
        (Path(__file__), None, False),
    ],
    ids=lambda value: value.name if isinstance(value, Path) else "",
)
def test_kind_whatever_it_is_called(tmp_path: Path, path: Path, kind: Kind | None, text: bool) -> None:
    for name in ("model", "model.onnx", "model.txt"):
        shutil.copy(path, tmp_path / name)
        found = content_of(tmp_path / name)
        assert (None if found is None else found.kind) == kind
        assert found is None or found.text == text


@pytest.mark.slow
@tried(70)
@given(content=st.binary(max_size=60) | st.text(max_size=40).map(str.encode))
def test_kind_of_any_bytes(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.pb"
    path.write_bytes(content)
    content_of(path)
    with pytest.raises(ll.InvalidModelError):
        open_source(path)


@pytest.mark.parametrize("given", [META, META.with_suffix(""), META.parent], ids=["file", "prefix", "folder"])
def test_meta_graph(given: Path) -> None:
    """With its collections, and the values beside it."""
    source = open_source(given)
    assert source.train_ops == ["train"]
    assert source.losses == ["sparse_softmax_cross_entropy_loss/value:0"]
    variables = named(source)
    assert set(variables) == {name.removeprefix("step/") for name in VALUES if name.startswith("step/")}
    for name, variable in variables.items():
        expected = VALUES[f"step/{name}"]
        assert variable.shape == expected.shape
        assert variable.has_value
        np.testing.assert_array_equal(variable.value, expected)
    trained = {name for name, variable in variables.items() if variable.trainable}
    assert trained == {"kernel", "bias", "dense/part_0", "dense/part_1"}
    assert isinstance(source.graph_def, messages.GraphDef)
    assert source.inputs is None
    assert source.op_defs["BlockLSTM"].output_arg[1].name == "cs"


def test_meta_graph_alone(tmp_path: Path) -> None:
    shutil.copy(META, tmp_path / "graph")
    source = open_source(tmp_path / "graph")
    assert not any(variable.has_value for variable in source.variables.values())
    assert named(source)["kernel"].value is None
    with_values = open_source(tmp_path / "graph", checkpoint=META.parent)
    np.testing.assert_array_equal(named(with_values)["bias"].value, VALUES["step/bias"])
    with pytest.raises(
        ll.InvalidInputError,
        match=r"checkpoint requires values of the graph's variables, got .*bundle.* without any: n",
    ):
        open_source(tmp_path / "graph", checkpoint=FILES / "bundle")


def test_a_checkpoint_of_which_only_the_index_is_there(tmp_path: Path) -> None:
    for path in META.parent.iterdir():
        if path.suffix in (".meta", ".index"):
            shutil.copy(path, tmp_path)
    with pytest.warns(IncompleteCheckpointWarning, match="is not read, since .*-of-00001 is missing beside it"):
        source = open_source(tmp_path / META.name)
    assert not any(variable.has_value for variable in source.variables.values())
    asked = open_source(tmp_path / META.name, checkpoint=tmp_path / META.stem)
    with pytest.raises(ll.InvalidModelError, match="-of-00001 is missing"):
        _ = named(asked)["bias"].value


def test_a_value_is_read_when_it_is_asked_for_and_once() -> None:
    reads = []
    variable = Variable("w", lambda: reads.append("w") or np.ones(2), shape=(2,))
    assert variable.has_value
    assert "has_value=True" in repr(variable)
    assert not reads
    assert variable.value is variable.value
    assert reads == ["w"]
    variable.value = None
    assert not variable.has_value
    assert Variable("w").value is None
    assert Variable("w", np.zeros(1)).value.shape == (1,)


def test_a_message() -> None:
    meta = messages.MetaGraphDef.FromString(META.read_bytes())
    assert open_source(meta).losses
    source = open_source(meta.graph_def, checkpoint=META.parent)
    assert not source.losses
    assert named(source)["kernel"].trainable
    assert not named(source)["train/kernel" if "train/kernel" in named(source) else "beta1_power"].trainable
    with pytest.raises(ll.InvalidInputError, match="source requires a GraphDef or a MetaGraphDef, got TensorProto"):
        open_source(messages.TensorProto())


def test_a_checkpoint_of_other_sizes() -> None:
    meta = messages.MetaGraphDef.FromString(META.read_bytes())
    node = next(node for node in meta.graph_def.node if node.name == "bias")
    node.attr["shape"].shape.dim[0].size = 12
    with pytest.raises(ll.InvalidInputError, match=r"float32 of shape \[12\] for variable 'bias', got .*\[16\] in"):
        open_source(meta, checkpoint=META.parent)
    node.attr["shape"].shape.unknown_rank = True
    assert named(open_source(meta, checkpoint=META.parent))["bias"].shape == (16,)


def test_values_under_the_savers_names() -> None:
    meta = messages.MetaGraphDef.FromString(META.read_bytes())
    for node in meta.graph_def.node:
        if node.name == "kernel":
            node.name = "moved"
        for index, tensor in enumerate(node.input):
            if tensor == "kernel":
                node.input[index] = "moved"
    source = open_source(meta, checkpoint=META.parent)
    np.testing.assert_array_equal(source.variables["moved"].value, VALUES["step/kernel"])
    np.testing.assert_array_equal(source.variables["dense/part_1"].value, VALUES["step/dense/part_1"])


def test_text() -> None:
    source = open_source(FILES / "small.meta.txt")
    assert source.losses == ["loss:0"]
    assert named(source)["w"].shape == (2,)


def test_saved_model_of_references() -> None:
    source = open_source(FILES / "saved_1", signature="train")
    assert source.inputs == {"features": "x:0"}
    assert source.outputs == {"loss": "after:0"}
    np.testing.assert_array_equal(named(source)["w"].value, VALUES["saved_1/w"])
    with pytest.raises(
        ll.InvalidInputError, match=r"signature .*requires one of evaluate, train of .*saved_1, got none"
    ):
        open_source(FILES / "saved_1")


@pytest.mark.parametrize("signature", [None, "train"])
@pytest.mark.parametrize("name", ["saved_2", "saved_2/saved_model.pb"])
def test_saved_model_of_functions(name: str, signature: str | None) -> None:
    source = open_source(FILES / name, signature=signature)
    assert source.inputs == {"x": "x:0"}
    assert list(source.outputs or ()) == ["loss", "y"]
    assert source.side_effects
    variables = named(source)
    assert set(variables) == {"w", "same", "same_1", "count"}
    assert {name for name, variable in variables.items() if variable.trainable} == {"w", "same", "same_1"}
    np.testing.assert_array_equal(variables["w"].value, VALUES["saved_2/w"])
    assert sorted(float(variables[name].value[0]) for name in ("same", "same_1")) == [0, 1]
    (scale,) = source.constants.values()
    np.testing.assert_array_equal(scale, VALUES["saved_2/scale"])
    assert source.graph_def.library.function
    nodes = {node.name: node for node in source.graph_def.node}
    assert all(nodes[variable].attr["dtype"].type == 20 for variable in source.variables)
    assert [dim.size for dim in nodes["x"].attr["shape"].shape.dim] == [-1, 3]


def test_values_of_another_checkpoint_of_the_objects() -> None:
    source = open_source(FILES / "saved_2", checkpoint=FILES / "objects")
    np.testing.assert_array_equal(named(source)["w"].value, VALUES["objects/w"])
    by_name = named(open_source(FILES / "saved_2", checkpoint=FILES / "saved_1"))
    np.testing.assert_array_equal(by_name["w"].value, VALUES["saved_1/w"])
    assert not by_name["count"].has_value
    with pytest.raises(ll.InvalidInputError, match=r"got .*bundle.* without any: neither w, same"):
        open_source(FILES / "saved_2", checkpoint=FILES / "bundle")


@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
    [
        ("nowhere", {}, FileNotFoundError, "nowhere"),
        ("bundle", {}, ll.InvalidModelError, "got values of a checkpoint, whose graph is in model.ckpt.meta"),
        (
            "bundle/model.ckpt.index",
            {},
            ll.InvalidModelError,
            "got values of a checkpoint, whose graph is in model.ckpt",
        ),
        ("values.npz", {}, ll.InvalidModelError, "a GraphDef is required, got another kind of file"),
        (
            "saved_2",
            {"signature": "serve"},
            ll.InvalidInputError,
            r"signature .*requires one of train of .*, got 'serve'",
        ),
        ("step", {"signature": "x"}, ll.InvalidInputError, "signature requires"),
        ("step", {"checkpoint": "nothing"}, ll.InvalidInputError, "checkpoint requires a prefix with nothing.index"),
        ("step", {"specs": []}, ll.InvalidInputError, "specs requires a tf.function as the source"),
    ],
)
def test_what_does_not_open(name: str, options: dict[str, str], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        open_source(FILES / name, **options)


def test_what_is_no_source() -> None:
    with pytest.raises(ll.InvalidInputError, match=r"source requires a GraphDef.*got int"):
        open_source(3)


@pytest.mark.slow
@tried(50)
@given(data=st.data())
@pytest.mark.parametrize(
    "name", ["step/model.ckpt-0.meta", "saved_1/saved_model.pb", "saved_2/saved_model.pb", "small.meta.txt"]
)
def test_damage(tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject) -> None:
    """One of our errors, or a graph with other names and numbers in it."""
    folder = tmp_path_factory.getbasetemp() / "damaged"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(
        (FILES / name).parent, folder, ignore=shutil.ignore_patterns(".*", "saved_[12]", "bundle", "tables")
    )
    path = folder / Path(name).name
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content) - 1))]
    else:
        for _ in range(data.draw(st.integers(1, 4))):
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        source = open_source(path)
        for variable in source.variables.values():
            assert variable.value is None or variable.shape == variable.value.shape
        for node in source.graph_def.node:
            if node.op == "Const":
                tensor_value(node.attr["value"].tensor)
    except ll.LstmLowerError:
        pass


@pytest.mark.slow
def test_tensorflow_is_not_imported() -> None:
    code = f"""
import sys
from lstm_lower.tensorflow.opening import open_source
for name in ("step", "small.meta.txt", "saved_2"):
    for variable in open_source("{FILES.as_posix()}/" + name).variables.values():
        variable.value
print("tensorflow" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_of_several_graphs_the_one_to_train() -> None:
    saved = messages.parse(messages.SavedModel, (FILES / "saved_1" / "saved_model.pb").read_bytes(), "x")
    other = saved.meta_graphs.add()
    other.CopyFrom(saved.meta_graphs[0])
    del saved.meta_graphs[0].meta_info_def.tags[:]
    saved.meta_graphs[0].meta_info_def.tags.append("serve")
    saved.meta_graphs[0].ClearField("graph_def")
    from lstm_lower.tensorflow.files.saved_model import read_saved_model

    assert read_saved_model(saved.SerializeToString(), text=False, label="x").graph_def.node


def test_file_is_read_once_for_what_is_chosen_later() -> None:
    file = read_file(FILES / "saved_2")
    assert file.signatures == ["train"]
    assert list(file.functions) == ["train"]
