"""The command line on TensorFlow graphs."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from typer.testing import CliRunner

import lstm_lower as ll
from lstm_lower.cli.main import app
from lstm_lower.records import state as training_state
from lstm_lower.runtime.feeds import read_arrays
from tests.support.tensorflow_cases import relative_error

META = Path(__file__).parents[1] / "data" / "tensorflow_files" / "step" / "model.ckpt-0.meta"
GRAPHS = Path(__file__).parents[1] / "data" / "graphs"
CASE = "block_lstm_train__dynbatch"


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.output


def test_lower_a_graph_def(tmp_path) -> None:
    facts = json.loads((GRAPHS / f"{CASE}.json").read_text())
    inputs = {entry["name"]: entry["tensor"] for entry in facts["inputs"]}
    target = tmp_path / "out.onnx"
    code, text = invoke(
        "lower", str(GRAPHS / f"{CASE}.pb"), "--inputs", ",".join(inputs.values()), "--outputs", "loss:0,grad_w:0",
        "-o", str(target),
    )  # fmt: skip
    assert code == 0, text
    feeds, recorded = read_arrays(GRAPHS / f"{CASE}.npz")
    results = ll.Session(target).run({tensor: feeds[name] for name, tensor in inputs.items()})
    assert set(results) == {"loss:0", "grad_w:0"}
    assert relative_error(results["grad_w:0"], recorded["grad_w"]) < 1e-5


def test_inspect_a_graph_def() -> None:
    code, text = invoke("inspect", str(GRAPHS / f"{CASE}.pb"))
    assert code == 0
    assert "BlockLSTMGrad" in text


def test_what_inspect_proposes_is_taken(tmp_path: Path) -> None:
    """By every command; the graph's queues are no operators of ONNX."""
    code, text = invoke("lower", str(META), "-o", str(tmp_path / "out.onnx"))
    assert code == 0, text
    assert "taken of the graph: --inputs fifo_queue_DequeueMany:0, " in text
    assert "--outputs sparse_softmax_cross_entropy_loss/value:0, train" in text
    assert "fifo_queue_DequeueMany:0" in [value.name for value in onnx.load(tmp_path / "out.onnx").graph.input]
    code, text = invoke("report", str(GRAPHS / "block_lstm_train.saved_model"), "-o", str(tmp_path / "out.html"))
    assert (code, "requires one of train_assign, train_pure" in text) == (1, True)


def test_errors(tmp_path) -> None:
    graph = tmp_path / "broken.pb"
    graph.write_bytes((GRAPHS / f"{CASE}.pb").read_bytes()[:1000])
    code, text = invoke("lower", str(graph), "-o", str(tmp_path / "out.onnx"))
    assert code == 1, text
    code, text = invoke("lower", str(tmp_path / "model.onnx"), "--inputs", "x:0")
    assert code != 0
    assert not (tmp_path / "out.onnx").exists()


@pytest.mark.slow
def test_a_saved_model_stays_trainable(tmp_path: Path) -> None:
    path, target = str(GRAPHS / "block_lstm_train.saved_model"), tmp_path / "step.onnx"
    for words, inputs, says in (
        ([], 10, "weights: 8 inputs with initial values, to be trained (--weights initializers: constants)"),
        (["--weights", "initializers"], 2, ""),
        (["--weights", "inputs", "--shapes", "ids=7,batch"], 10, ""),
    ):
        code, text = invoke("lower", path, "--signature", "train_assign", *words, "-o", str(target))
        assert code == 0, text
        assert says in text
        assert ("weights:" in text) == bool(says)
        model = onnx.load(target)
        assert len(model.graph.input) == inputs
        assert ("batch" in str(model.graph.input[0])) == ("--shapes" in words)


@pytest.mark.slow
def test_what_was_frozen_stays_constant(tmp_path: Path) -> None:
    path = GRAPHS / "block_lstm_train__frozen_refvar.pb"
    words = ["lower", str(path), "--outputs", "loss:0", "-o", str(tmp_path / "low.onnx")]
    code, text = invoke(*words)
    assert code == 0, text
    assert "constants of the model (--weights inputs: inputs with initial values)" in text
    code, text = invoke(*words, "--weights", "inputs")
    assert code == 0, text
    assert "w:0" in {value.name for value in onnx.load(tmp_path / "low.onnx").graph.input}


@pytest.mark.slow
def test_a_training_graph_with_and_without_its_checkpoint(tmp_path: Path) -> None:
    """The command that `inspect` ends with; values are found beside the file, or where an option says, or are fed."""
    words = ["--inputs", "fifo_queue_DequeueMany:0,fifo_queue_DequeueMany:1,keep:0"]
    words += ["--outputs", "sparse_softmax_cross_entropy_loss/value:0,train", "-o", str(tmp_path / "low.onnx")]
    code, text = invoke("lower", str(META), *words)
    assert code == 0, text
    assert "inputs with initial values" in text
    held = len(onnx.load(tmp_path / "low.onnx").graph.initializer)
    bare = tmp_path / "bare"
    bare.write_bytes(META.read_bytes())
    code, text = invoke("lower", str(bare), *words)
    assert code == 0, text
    assert text.count("warning: ") == 1
    assert f"{bare}: no values of " in text
    assert "they are inputs that each run must be fed" in text
    assert "weights:" not in text
    assert len(onnx.load(tmp_path / "low.onnx").graph.initializer) < held
    code, text = invoke("lower", str(bare), *words, "--checkpoint", str(META.parent))
    assert code == 0, text
    assert len(onnx.load(tmp_path / "low.onnx").graph.initializer) == held


def test_pairs_and_opsets(tmp_path: Path) -> None:
    target = tmp_path / "low.onnx"
    words = ["lower", str(GRAPHS / f"{CASE}.pb"), "-o", str(target)]
    code, text = invoke(*words, "--state", "w:0=new_w:0", "--opset", "21")
    assert code == 0, text
    model = onnx.load(target)
    assert [entry.version for entry in model.opset_import] == [21]
    (pair,) = training_state.parse({entry.key: entry.value for entry in model.metadata_props}).pairs
    assert (pair.input, pair.output) == ("w:0", "new_w:0")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--weights", "none"], "--weights requires inputs or initializers, got 'none'"),
        (["--shapes", "ids:0"], "--shapes requires NAME=SIZES, got 'ids:0'"),
        (["--shapes", "ids:0=8,?"], "shapes['ids:0'] requires 7 along axis 0, got 8"),
        (["--state", "w:0"], "--state requires inputs, defaults or INPUT=OUTPUT, got 'w:0'"),
        (["--state", "w:0=x"], "state requires pairs of an input and an output"),
        (["--checkpoint", "/nowhere"], "nowhere"),
    ],
)
def test_options_that_do_not_fit(tmp_path: Path, words: list[str], message: str) -> None:
    code, text = invoke("lower", str(GRAPHS / f"{CASE}.pb"), *words, "-o", str(tmp_path / "low.onnx"))
    assert code == 1, text
    assert message in text
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("option", ["--inputs", "--weights", "--checkpoint", "--shapes", "--state"])
def test_options_of_an_onnx_model(option: str) -> None:
    code, text = invoke("lower", str(GRAPHS / "onnx" / f"{CASE}.onnx"), option, "x=y")
    assert code == 1
    assert f"{option} requires a TensorFlow graph" in text
