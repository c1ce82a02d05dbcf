"""Variables of TensorFlow graphs: read, assigned and optimized, as inputs and outputs of a model."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import lstm_lower as ll
from lstm_lower.records import state as training_state
from lstm_lower.records.state import StatePair

tf = pytest.importorskip("tensorflow")

GRAPHS = Path(__file__).parents[1] / "data" / "graphs"

Array = np.ndarray[Any, Any]


def session_of(model: onnx.ModelProto) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options)


def run(model: onnx.ModelProto, feeds: dict[str, Array]) -> dict[str, Array]:
    session = session_of(model)
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def metadata(model: onnx.ModelProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in model.metadata_props}


def names(values: Any) -> list[str]:
    return [value.name for value in values]


# Optimizers of TensorFlow 1, which become Apply ops: of resources inside functions, of references in old graphs.
OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda v1: v1.train.GradientDescentOptimizer(0.1),
    "momentum": lambda v1: v1.train.MomentumOptimizer(0.1, 0.9),
    "nesterov": lambda v1: v1.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
    "adam": lambda v1: v1.train.AdamOptimizer(0.1),
    "rmsprop": lambda v1: v1.train.RMSPropOptimizer(0.1, momentum=0.5),
    "centered-rmsprop": lambda v1: v1.train.RMSPropOptimizer(0.1, centered=True),
    "adagrad": lambda v1: v1.train.AdagradOptimizer(0.1),
    "adadelta": lambda v1: v1.train.AdadeltaOptimizer(0.5),
}


def build_step(v1: Any, optimizer: str, *, resource: bool) -> tuple[Any, Any]:
    """Loss and training op of a small regression, in the default graph."""
    x = v1.placeholder(tf.float32, [None, 3], "x")
    rng = np.random.default_rng(5)
    v1.disable_resource_variables() if not resource else v1.enable_resource_variables()
    try:
        w = v1.get_variable("w", initializer=rng.standard_normal((3, 2)).astype(np.float32), use_resource=resource)
        b = v1.get_variable("b", initializer=np.zeros(2, np.float32), use_resource=resource)
        loss = tf.reduce_mean(tf.square(tf.tanh(tf.matmul(x, w) + b) - 0.5), name="loss")
        return loss, OPTIMIZERS[optimizer](v1).minimize(loss, name="train")
    finally:
        v1.enable_resource_variables()


@pytest.mark.parametrize("resource", [True, False], ids=["resource", "reference"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_apply_ops_follow_tensorflow(optimizer: str, resource: bool) -> None:
    v1 = tf.compat.v1
    feed = np.random.default_rng(6).standard_normal((4, 3)).astype(np.float32)
    with tf.Graph().as_default() as graph:
        loss, train = build_step(v1, optimizer, resource=resource)
        with v1.Session(graph=graph) as session:
            session.run(v1.global_variables_initializer())
            variables = v1.global_variables()
            start = {variable.op.name: np.asarray(session.run(variable)) for variable in variables}
            losses = []
            for _ in range(5):
                losses.append(session.run(loss, {"x:0": feed}))
                session.run(train, {"x:0": feed})
            end = {variable.op.name: session.run(variable) for variable in variables}
        definition = graph.as_graph_def()

    model = ll.from_tensorflow(definition, ["x:0"], ["loss:0", "train"], weights="inputs")
    assert names(model.graph.output)[0] == "loss:0"
    entries = training_state.parse(metadata(model)).pairs
    assert {entry.variable for entry in entries} == set(start)
    session = session_of(ll.lower(model))
    state = {entry.input: start[entry.variable or entry.input] for entry in entries}
    outputs = names(model.graph.output)
    for expected in losses:
        results = dict(zip(outputs, session.run(outputs, {"x:0": feed, **state}), strict=True))
        np.testing.assert_allclose(results["loss:0"], expected, rtol=1e-5)
        state |= {entry.input: np.asarray(results[entry.output]) for entry in entries if entry.output}
    for entry in entries:
        expected_end = end[entry.variable or ""]
        np.testing.assert_allclose(state[entry.input], expected_end, rtol=1e-4, atol=1e-6, err_msg=entry.input)


@pytest.fixture(scope="module")
def meta(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A step whose loss is called otherwise, and recorded as one."""
    v1, path = tf.compat.v1, tmp_path_factory.mktemp("meta") / "step.meta"
    with tf.Graph().as_default():
        w = v1.get_variable("w", initializer=np.ones((3, 2), np.float32), use_resource=False)
        rows = tf.identity(tf.square(tf.matmul(v1.placeholder(tf.float32, [None, 3], "x"), w)), "rows")
        cost = tf.reduce_mean(rows, name="cost")
        tf.reduce_max(rows, name="peak")
        tf.reduce_min(rows, name="least")
        v1.losses.add_loss(cost)
        v1.add_to_collection("train_op", v1.train.GradientDescentOptimizer(0.1).minimize(cost, name="train"))
        v1.train.export_meta_graph(str(path))
    return path


@pytest.mark.parametrize(
    ("outputs", "loss"),
    [
        (None, "cost:0"),
        (["rows:0", "peak:0", "cost:0", "train"], "cost:0"),
        (["rows:0", "peak:0", "train"], "peak:0"),
        (["least:0", "peak:0", "train"], None),
        (["cost:0"], None),
    ],
    ids=["default", "recorded", "only-scalar", "several", "no-step"],
)
def test_the_loss_is_recorded_where_it_is_certain(meta: Path, outputs: list[str] | None, loss: str | None) -> None:
    model = ll.from_tensorflow(meta, outputs=outputs, weights="inputs")
    assert training_state.parse(metadata(model)).loss == loss
    if loss is not None:
        trainer = ll.Trainer(ll.lower(model), initial_values={"w:0": np.ones((3, 2), np.float32)})
        assert trainer.step({"x:0": np.ones((2, 3), np.float32)}).loss == 9


class Model(tf.Module):
    """A layer that counts its steps and trains itself by plain assignments."""

    def __init__(self) -> None:
        self.w = tf.Variable(np.arange(6, dtype=np.float32).reshape(3, 2) / 10, name="w")
        self.steps = tf.Variable(0, name="steps", trainable=False)

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
    def train(self, x: Any) -> dict[str, Any]:
        loss = tf.reduce_sum(tf.square(tf.matmul(x, self.w)))
        (gradient,) = tf.gradients(loss, [self.w])
        before = tf.identity(self.w)
        self.w.assign_sub(0.01 * gradient)
        self.w.assign(self.w * 0.5)
        self.steps.assign_add(1)
        return {"loss": loss, "before": before, "after": self.w.read_value(), "steps": self.steps.read_value()}


def test_reads_see_the_assignments_before_them() -> None:
    layer = Model()
    start = layer.w.numpy()
    x = np.random.default_rng(1).standard_normal((2, 3)).astype(np.float32)
    model = ll.from_tensorflow(layer.train, weights="inputs")
    expected = {name: value.numpy() for name, value in layer.train(tf.constant(x)).items()}
    results = run(ll.lower(model), {"x": x})
    assert set(results) == {"loss", "before", "after", "steps", "w/new", "steps/new"}
    for name, value in expected.items():
        np.testing.assert_allclose(results[name], value, rtol=1e-6, err_msg=name)
    np.testing.assert_array_equal(results["before"], start)
    np.testing.assert_allclose(results["w/new"], layer.w.numpy(), rtol=1e-6)
    assert results["steps/new"] == 1


def test_weights_are_inputs_with_their_values() -> None:
    layer = Model()
    model = ll.from_tensorflow(layer.train, weights="inputs")
    # A result of the function has the variable's name already.
    assert names(model.graph.input) == ["x", "w", "steps/value"]
    values = {initializer.name: numpy_helper.to_array(initializer) for initializer in model.graph.initializer}
    np.testing.assert_array_equal(values["w"], layer.w.numpy())
    assert training_state.parse(metadata(model)).pairs == (
        StatePair("w", "w/new", "weight", variable="w"),
        StatePair("steps/value", "steps/new", "counter", variable="steps"),
    )
    assert metadata(ll.lower(model))["lstm_lower.state"] == metadata(model)["lstm_lower.state"]


def test_weights_are_constants() -> None:
    layer = Model()
    model = ll.from_tensorflow(layer.train, weights="initializers")
    assert names(model.graph.input) == ["x"]
    assert names(model.graph.output)[-2:] == ["w/new", "steps/new"]
    assert training_state.parse(metadata(model)).pairs == ()
    x = np.ones((1, 3), np.float32)
    np.testing.assert_allclose(run(ll.lower(model), {"x": x})["loss"], np.square(x @ layer.w.numpy()).sum(), rtol=1e-6)


def test_scattered_updates() -> None:
    table = tf.Variable(np.arange(8, dtype=np.float32).reshape(4, 2), name="table")

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32, name="ids")])
    def step(ids: Any) -> Any:
        rows = tf.gather(table, ids)
        table.scatter_sub(tf.IndexedSlices(rows, ids))
        table.scatter_add(tf.IndexedSlices(tf.ones_like(rows), ids))
        table.scatter_update(tf.IndexedSlices(tf.zeros([1, 2]), tf.constant([3])))
        return rows

    ids = np.array([0, 2, 0], np.int32)
    model = ll.lower(ll.from_tensorflow(step, weights="inputs"))
    rows = step(tf.constant(ids)).numpy()
    results = run(model, {"ids": ids})
    np.testing.assert_array_equal(results["output_0"], rows)
    np.testing.assert_allclose(results["table/new"], table.numpy(), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("signature", ["train_pure", "train_assign", "train_with_weights"])
@pytest.mark.parametrize("weights", ["inputs", "initializers"])
def test_saved_model(signature: str, weights: Any) -> None:
    with np.load(GRAPHS / "block_lstm_train.saved_model.npz") as data:
        arrays = {key: data[key] for key in data.files}
    model = ll.from_tensorflow(GRAPHS / "block_lstm_train.saved_model", signature=signature, weights=weights)
    inputs = names(model.graph.input)
    if signature != "train_with_weights":
        assert inputs[:2] == ["ids", "labels"]
        assert (len(inputs) > 2) == (weights == "inputs")
    results = run(ll.lower(model), {name: arrays[f"in:{name}"] for name in inputs})
    # The SavedModel's variables have the values of the feeds.
    expected = {
        name: arrays[f"out:new_{name.removesuffix('/new')}" if name.endswith("/new") else f"out:{name}"]
        for name in results
    }
    for name, value in expected.items():
        scale = np.abs(value).max()
        np.testing.assert_allclose(results[name], value, rtol=0, atol=1e-5 * scale, err_msg=name)
    if signature == "train_assign":
        assert len([name for name in results if name.endswith("/new")]) == 8


def test_frozen_weights_become_inputs() -> None:
    path = GRAPHS / "block_lstm_train__frozen_refvar.pb"
    with np.load(path.with_suffix(".npz")) as data:
        arrays = {key: data[key] for key in data.files}
    feeds = {f"{key[3:]}:0": value for key, value in arrays.items() if key.startswith("in:")}
    model = ll.from_tensorflow(path, weights="inputs")
    inputs = names(model.graph.input)
    assert {"w:0", "emb:0", "wci:0", "dense_b:0"} <= set(inputs)
    session = session_of(ll.lower(model))
    constant = session.run(["loss:0"], feeds)[0]
    np.testing.assert_allclose(constant, arrays["out:loss"], rtol=1e-6)
    values = {initializer.name: numpy_helper.to_array(initializer) for initializer in model.graph.initializer}
    moved = session.run(["loss:0"], feeds | {"dense_b:0": values["dense_b:0"] + np.eye(13, dtype=np.float32)[2]})[0]
    assert abs(float(moved) - float(constant)) > 1e-3, "the input is connected"


def test_pairs_of_the_callers_own() -> None:
    path = GRAPHS / "block_lstm_train__dynbatch.pb"
    model = ll.from_tensorflow(path, state={"w:0": "new_w:0"})
    assert training_state.parse(metadata(model)).pairs == (StatePair("w:0", "new_w:0", variable="w"),)
    with pytest.raises(ll.InvalidInputError, match="state requires pairs of an input and an output, got 'w:0' and 'x'"):
        ll.from_tensorflow(path, state={"w:0": "x"})


def test_a_variable_without_a_value() -> None:
    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        build_step(v1, "sgd", resource=True)
        definition = graph.as_graph_def()
    with pytest.raises(ll.InvalidInputError, match="values of the variables, got a source without values of w:0, b:0"):
        ll.from_tensorflow(definition, ["x:0"], ["loss:0"], weights="initializers")
    with pytest.warns(UserWarning, match="no values of w:0, b:0 were found: they are inputs that each run must be fed"):
        model = ll.from_tensorflow(definition, ["x:0"], ["loss:0"])
    assert names(model.graph.input) == ["x:0", "w:0", "b:0"]
    assert not model.graph.initializer
    assert names(ll.from_tensorflow(definition, ["x:0"], ["loss:0"], weights="inputs").graph.input) == [
        "x:0", "w:0", "b:0"
    ]  # fmt: skip


def test_a_step_stays_trainable_and_a_forward_pass_is_constant() -> None:
    layer = Model()
    assert names(ll.from_tensorflow(layer.train).graph.input) == ["x", "w", "steps/value"]
    forward = tf.function(lambda x: x @ layer.w, input_signature=[tf.TensorSpec([None, 3], name="x")])
    model = ll.from_tensorflow(forward)
    assert names(model.graph.input) == ["x"]


def test_an_update_without_a_conversion_is_refused() -> None:
    count = tf.Variable(0, name="count")

    @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
    def step(x: Any) -> Any:
        tf.raw_ops.ResourceCountUpTo(resource=count.handle, limit=3, T=tf.int32)
        return 2 * x

    with pytest.raises(ll.UnsupportedOpError, match=r"ResourceCountUpTo '.*': no conversion is known for it"):
        ll.from_tensorflow(step)


def test_a_variable_known_by_its_handle_only() -> None:
    weight = tf.Variable(np.array([1.0, 2.0], np.float32), name="weight")

    @tf.function(input_signature=[tf.TensorSpec([2], tf.float32, name="delta")])
    def step(delta: Any) -> Any:
        tf.raw_ops.ResourceApplyGradientDescent(var=weight.handle, alpha=0.5, delta=delta)
        return delta * 2.0

    model = ll.lower(ll.from_tensorflow(step, weights="inputs"))
    (pair,) = training_state.parse(metadata(model)).pairs
    results = run(model, {"delta": np.ones(2, np.float32)})
    np.testing.assert_allclose(results[pair.output or ""], [0.5, 1.5])


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_training_from_the_file_follows_tensorflow(optimizer: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(__file__).parents[2] / "examples" / "tensorflow_training" / "train_from_file.py"
    spec = importlib.util.spec_from_file_location("train_from_file", path)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    difference, _ = example.compare(optimizer, (12, 4, 6, 10), 60, 1)
    assert difference <= 1e-5
    assert "times as fast" in capsys.readouterr().out
