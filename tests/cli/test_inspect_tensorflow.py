"""`lstm-lower inspect` of TensorFlow's files: what is in them, told without importing anything."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lstm_lower as ll
from lstm_lower.checkpoints import messages
from lstm_lower.records.content_kinds import Kind
from lstm_lower.tensorflow.anatomy import anatomy
from lstm_lower.tensorflow.files import saved_model
from lstm_lower.tensorflow.files.graph_files import GraphFile
from tests.support.command_line import run

DATA = Path(__file__).parents[1] / "data"
FILES = DATA / "tensorflow_files"
META = FILES / "step" / "model.ckpt-0.meta"


def told(*words: object) -> str:
    result = run("inspect", *words)
    assert result.exit_code == 0, result.output
    return result.output


def row(text: str, title: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(title)).removeprefix(title).strip()


def test_a_training_graph() -> None:
    text = told(META)
    assert text.startswith("MetaGraphDef, by TensorFlow 2.")
    assert "BlockLSTMGrad      1  x:[5, 2, 3] w:[7, 16] h_prev:[2, 4]  gradients/lstm_grad/BlockLSTMGrad" in text
    assert row(text, "loops").endswith("a loop, which carries float32[5, 2, 4]")
    assert "gradients/loop/while_context (" in text
    assert row(text, "branches") == "1"
    assert row(text, "variables").startswith("15, of which 4 are trained (152 elements); 15 have values, in ")
    assert "kernel float32[7, 16], bias float32[16], dense/part_0 float32[2, 6]" in text
    assert row(text, "loss") == "sparse_softmax_cross_entropy_loss/value:0 float32[]"
    assert row(text, "training step") == "train"
    assert row(text, "data comes in at") == "fifo_queue_DequeueMany:0 float32[2, 5, 3]"
    assert text.splitlines()[-1].startswith("lstm-lower lower ")
    assert text.splitlines()[-1].endswith(
        "--inputs fifo_queue_DequeueMany:0,fifo_queue_DequeueMany:1,keep:0 "
        "--outputs sparse_softmax_cross_entropy_loss/value:0,train"
    )
    assert len(text.splitlines()) < 40


def test_what_is_not_recorded_is_guessed(tmp_path: Path) -> None:
    meta = messages.MetaGraphDef.FromString(META.read_bytes())
    (tmp_path / "bare").write_bytes(meta.graph_def.SerializeToString())
    text = told(tmp_path / "bare")
    assert row(text, "likely loss") == "sparse_softmax_cross_entropy_loss/value:0 float32[]"
    assert row(text, "likely training step") == "train"
    assert "none has a value" in row(text, "variables")
    text = told(tmp_path / "bare", "--checkpoint", META.parent)
    assert "15 have values" in row(text, "variables")


def test_between_tensors_that_are_named() -> None:
    data = json.loads(told(META, "--json", "--outputs", "Tensordot:0", "--inputs", "lstm:6"))
    assert list(data["inputs"]) == ["keep:0", "lstm:6"]
    assert data["needed"] < 60
    assert "AddN" not in data["unsupported"]
    result = run("inspect", META, "--outputs", "nowhere:0")
    assert result.exit_code == 1
    assert "outputs requires tensors of the graph, got nowhere:0" in result.output


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "saved_1",
            ["SavedModel", "signature train", "features float32[?, 3]", "1 have values", "--signature evaluate"],
        ),
        ("saved_2", ["signature train", "y float32[?, 2]", "/while (", "4, of which 3", "--signature train"]),
        ("saved_2/saved_model.pb", ["SavedModel", "16 functions"]),
        ("small.meta.txt", ["MetaGraphDef", "no recurrent op", "loss:0 float32[]"]),
        ("step", ["MetaGraphDef", "BlockLSTMGrad"]),
        ("step/model.ckpt-0", ["MetaGraphDef"]),
    ],
)
def test_other_files(name: str, words: list[str]) -> None:
    text = told(FILES / name)
    for word in words:
        assert word in text, text


def test_what_would_stop_an_import(tmp_path: Path) -> None:
    graph = messages.GraphDef()
    node = graph.node.add(name="x", op="Placeholder")
    node.attr["dtype"].type = 1
    for number in range(3):
        graph.node.add(name=f"odd{number}", op="NoSuchOp", input=["x"])
    (tmp_path / "odd.pb").write_bytes(graph.SerializeToString())
    assert "would stop an import: NoSuchOp (odd0 and 2 more)" in told(tmp_path / "odd.pb")


def test_an_input_that_the_signature_leaves_out(tmp_path: Path) -> None:
    shutil.copytree(FILES / "saved_1", tmp_path / "saved")
    path = tmp_path / "saved" / "saved_model.pb"
    saved = messages.SavedModel.FromString(path.read_bytes())
    declared = saved.meta_graphs[0].signature_def["train"].inputs
    tensor = declared.pop("features").name
    path.write_bytes(saved.SerializeToString())
    text = told(tmp_path / "saved", "--signature", "train")
    assert tensor in row(text, "data comes in at") or f" {tensor} float32" in text
    assert text.splitlines()[-1].endswith(f"--signature train --inputs {','.join([*sorted(declared), tensor])}")


def test_a_summary_is_no_loss(tmp_path: Path) -> None:
    graph = messages.GraphDef()
    for name, op in (("scope/loss", "ScalarSummary"), ("scope/mean/loss", "Mean")):
        graph.node.add(name=name, op=op).attr["T"].type = 1
    (tmp_path / "graph.pb").write_bytes(graph.SerializeToString())
    assert row(told(tmp_path / "graph.pb"), "likely loss") == "scope/mean/loss:0 float32"


@pytest.mark.parametrize("name", ["step/model.ckpt-0.meta", "saved_2/saved_model.pb"])
def test_broken_files(tmp_path: Path, name: str) -> None:
    content = (FILES / name).read_bytes()
    path = tmp_path / Path(name).name
    for keep in (0, 1, 5, 100, len(content) // 2):
        path.write_bytes(content[:keep])
        result = run("inspect", path)
        assert result.exit_code == 1, result.output
        assert "error: " in result.output
        assert "Traceback" not in result.output


@settings(max_examples=100, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("name", ["step/model.ckpt-0.meta", "saved_2/saved_model.pb"])
def test_damage(name: str, data: st.DataObject) -> None:
    """Whatever the bytes are: an answer, or one of our errors."""
    content = bytearray((FILES / name).read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        if name.endswith(".meta"):
            meta = messages.parse(messages.MetaGraphDef, bytes(content), "x")
        else:
            meta = saved_model.read_saved_model(bytes(content), text=False, label="x")
        before = meta.SerializeToString(deterministic=True)
        anatomy(GraphFile(Kind.META_GRAPH, "x", meta.graph_def, meta))
        assert meta.SerializeToString(deterministic=True) == before, "looking changes nothing"
    except ll.LstmLowerError:
        pass


def test_checkpoint_of_an_onnx_model() -> None:
    result = run("inspect", DATA / "graphs" / "onnx" / "block_lstm_train__dynbatch.onnx", "--checkpoint", META)
    assert result.exit_code == 1
    assert "--checkpoint requires a TensorFlow graph" in result.output


@pytest.mark.slow
def test_names_of_any_kind(tmp_path: Path) -> None:
    """A folder whose name the shell must quote, and no TensorFlow."""
    folder = tmp_path / "my models"
    shutil.copytree(FILES / "saved_1", folder)
    code = f"import sys; from lstm_lower.cli.main import app; sys.argv = ['x', 'inspect', {str(folder)!r}]\n"
    code += "try: app()\nfinally: print('tensorflow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
    assert f"lstm-lower lower '{folder}' --signature evaluate" in done.stdout


def save_echo(folder: Path, *, signature: bool) -> None:
    """Saves a model that hands an input on: with a signature, or with two traces of one function."""
    tf = pytest.importorskip("tensorflow")
    model = tf.Module()
    model.w = w = tf.Variable([[1.0], [2.0]], name="w")
    model.step = tf.function(lambda x, scale=None: {"x": x, "y": x @ w if scale is None else x @ w * scale})
    first = model.step.get_concrete_function(tf.TensorSpec([None, 2], name="x"))
    if not signature:
        model.step.get_concrete_function(tf.TensorSpec([3, 2], name="x"), tf.TensorSpec([], name="scale"))
    tf.saved_model.save(model, str(folder), signatures={"serving_default": first} if signature else None)


def command_of(text: str) -> list[str]:
    words = shlex.split(text.splitlines()[-1])
    assert words[:2] == ["lstm-lower", "lower"]
    return words[1:]


@pytest.mark.parametrize("signature", [True, False])
def test_the_command_imports_what_hands_an_input_on(tmp_path: Path, signature: bool) -> None:
    save_echo(tmp_path / "saved", signature=signature)
    text = told(tmp_path / "saved")
    done = run(*command_of(text), "-o", tmp_path / "out.onnx")
    assert done.exit_code == 0, done.output
    assert "output 'x' is 'x/output'" in done.output.replace("\n", " ")
    model = onnx.load(tmp_path / "out.onnx")
    assert [value.name for value in model.graph.output] == ["x/output", "y"]
    session = ort.InferenceSession(model.SerializeToString())
    echoed, product = session.run(None, {"x": np.array([[3, 4]], np.float32)})
    assert (echoed.tolist(), product.tolist()) == ([[3, 4]], [[11]])


def test_functions_have_names_where_no_signature_has(tmp_path: Path) -> None:
    save_echo(tmp_path / "saved", signature=False)
    text = told(tmp_path / "saved")
    assert row(text, "signature step ") == "(x float32[?, 2]) -> (x float32[?, 2], y float32[?, 1])"
    assert row(text, "signature step_1") == "(x float32[3, 2], scale float32[]) -> (x float32[3, 2], y float32[3, 1])"
    model = ll.from_tensorflow(tmp_path / "saved", signature="step_1", outputs=["y"])
    assert [value.name for value in model.graph.input] == ["x", "scale"]
    with pytest.raises(ll.InvalidInputError, match="requires one of step, step_1 of"):
        ll.from_tensorflow(tmp_path / "saved")


def test_a_saved_model_of_variables_alone(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    model = tf.Module()
    model.w = tf.Variable([1.0])
    tf.saved_model.save(model, str(tmp_path / "saved"))
    assert "nothing to import: a signature, or a tf.function" in told(tmp_path / "saved").replace("\n", " ")
    assert json.loads(told(tmp_path / "saved", "--json"))["command"] is None
    with pytest.raises(ll.InvalidModelError, match=r"a signature, or a tf\.function of the object itself"):
        ll.from_tensorflow(tmp_path / "saved")


def test_texts_are_no_inputs(tmp_path: Path) -> None:
    graph = messages.GraphDef()
    for name, dtype in (("text", 7), ("x", 1)):
        graph.node.add(name=name, op="Placeholder").attr["dtype"].type = dtype
    node = graph.node.add(name="y", op="Neg", input=["x", "^text"])
    node.attr["T"].type = 1
    graph.node.add(name="end", op="NoOp", input=["^y", "^text"])
    graph.node.add(name="said", op="StringJoin", input=["text"]).attr["N"].i = 1
    (tmp_path / "graph.pb").write_bytes(graph.SerializeToString())
    words = command_of(told(tmp_path / "graph.pb", "--outputs", "y:0,said:0"))
    assert words[words.index("--inputs") + 1] == "x:0"


def test_loops_are_not_called_nothing(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")

    @tf.function(input_signature=[tf.TensorSpec([5, 2], name="x")])
    def step(x: Any) -> Any:
        return {"y": tf.scan(lambda h, each: tf.tanh(h + each), x, tf.zeros([2]))}

    model = tf.Module()
    tf.saved_model.save(model, str(tmp_path / "saved"), signatures={"serving_default": step.get_concrete_function()})
    assert "no recurrent op" not in told(tmp_path / "saved")
    said = run("lower", tmp_path / "saved", "-o", tmp_path / "out.onnx").output
    assert "in standard operators already, 1 loop among them" in said
    assert "nothing to lower" not in said


@pytest.mark.parametrize("kind", ["averages", "counter", "two", "nothing"])
def test_the_step_is_what_waits_for_the_optimizer_and_writes_more(tmp_path: Path, kind: str) -> None:
    """An optimizer of TensorFlow records itself, whatever the program runs behind it."""
    v1 = pytest.importorskip("tensorflow").compat.v1
    with v1.Graph().as_default():
        x = v1.placeholder("float32", [None, 2], "x")
        weight = v1.get_variable("weight", [2, 1], use_resource=True)
        step = v1.train.AdamOptimizer().minimize(v1.reduce_mean(x @ weight, name="loss"))
        counts = [v1.get_variable(name, initializer=0, trainable=False, use_resource=False) for name in ("a", "b")]
        with v1.control_dependencies([step]):
            if kind == "averages":
                v1.group(v1.train.ExponentialMovingAverage(0.9).apply([weight]), name="train")
            for count in counts[: {"counter": 1, "two": 2}.get(kind, 0)]:
                v1.assign_add(count, 1, name=f"{count.op.name}/train")
        v1.train.export_meta_graph(str(tmp_path / "graph.meta"))
    wanted = {"averages": "train", "counter": "a/train"}.get(kind, "Adam")
    assert row(told(tmp_path / "graph.meta"), "training step") == wanted
