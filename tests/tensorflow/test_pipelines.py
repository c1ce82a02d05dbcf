"""Input pipelines of training graphs: where they end, the model's inputs are, without anybody naming a tensor."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import lstm_lower as ll
from lstm_lower.errors import UnsupportedOpError
from lstm_lower.tensorflow.finish import PipelineWarning

tf = pytest.importorskip("tensorflow")
v1 = tf.compat.v1

Array = np.ndarray[Any, Any]

FEATURES = {"x": v1.FixedLenFeature([4], tf.float32), "y": v1.FixedLenFeature([], tf.int64)}
WORDS = {"x": v1.FixedLenFeature([4], tf.float32), "w": v1.VarLenFeature(tf.int64), "y": FEATURES["y"]}


def examples(name: str = "examples") -> list[Any]:
    files = v1.train.string_input_producer(["a.tfrecord"], num_epochs=2, name=f"{name}_files")
    found = v1.parse_single_example(v1.TFRecordReader().read(files)[1], FEATURES)
    return [found["x"], found["y"]]


def data_set() -> Any:
    return tf.data.Dataset.from_tensor_slices((np.ones((20, 4), np.float32), np.zeros(20, np.int64))).batch(6)


def batched() -> Any:
    return v1.train.batch(examples(), 6)


def shuffled() -> Any:
    """Pictures in records of bytes."""
    files = v1.train.string_input_producer(["a.bin"])
    record = tf.io.decode_raw(v1.FixedLengthRecordReader(13).read(files)[1], tf.uint8)
    picture = tf.image.per_image_standardization(tf.reshape(record[1:], [2, 2, 3]))
    pictures, y = v1.train.shuffle_batch([picture, tf.cast(record[0], tf.int32)], 6, 40, 10, num_threads=2)
    v1.summary.image("pictures", pictures)
    return tf.reshape(pictures, [6, 12])[:, :4], y


def padded() -> Any:
    """Rows of different lengths, and as many as are left at the end."""
    x, y = v1.train.batch([tf.tile(examples()[0], [2]), examples("more")[1]], 6, dynamic_pad=True,
                          allow_smaller_final_batch=True)  # fmt: skip
    return x[:, :4], y


def taken() -> Any:
    size = v1.placeholder(tf.int32, [], "size")
    queue = v1.RandomShuffleQueue(40, 10, [tf.float32, tf.int64], [[4], []], name="queue")
    queue.enqueue_many([v1.placeholder(tf.float32, [None, 4]), v1.placeholder(tf.int64, [None])])
    return queue.dequeue_many(size)


def parsed() -> Any:
    """Examples that are parsed after they were queued, with a list of words in each."""
    texts = v1.train.batch([v1.TFRecordReader().read(v1.train.string_input_producer(["a"]))[1]], 6)
    found = v1.parse_example(texts, WORDS)
    table = v1.get_variable("table", [5, 4])
    return found["x"] + v1.nn.embedding_lookup_sparse(table, found["w"], None, combiner="sum"), found["y"]


def iterated() -> Any:
    return v1.data.make_one_shot_iterator(data_set().shuffle(10).repeat()).get_next()


def handled() -> Any:
    handle = v1.placeholder(tf.string, [], "handle")
    return v1.data.Iterator.from_string_handle(handle, (tf.float32, tf.int64), ([None, 4], [None])).get_next()


def staged() -> Any:
    """What the next step takes is put there by this one, which waits for it."""
    values = v1.data.make_initializable_iterator(data_set()).get_next("batch")
    area = tf.raw_ops.Stage(values=values, shared_name="area")
    with tf.control_dependencies([area]):
        x, y = tf.raw_ops.Unstage(dtypes=[tf.float32, tf.int64], shared_name="area")
    x.set_shape([None, 4])
    y.set_shape([None])
    return x, y


def defaulted() -> Any:
    x, y = v1.train.batch(examples(), 6)
    return v1.placeholder_with_default(x, [None, 4], "x") * v1.placeholder_with_default(0.5, []), y


def checked() -> Any:
    x, y = v1.data.make_one_shot_iterator(data_set()).get_next()
    same = tf.Assert(tf.equal(tf.shape(x)[0], tf.shape(y, out_type=tf.int32)[0]), [x, y])
    with tf.control_dependencies([same, v1.assert_less(y, tf.constant(3, tf.int64))]):
        x = v1.Print(tf.debugging.check_numerics(x, "x"), [tf.shape(x)])
    v1.summary.text("first", tf.strings.as_string(x[0, 0]))
    return x, y


def chosen() -> Any:
    """Either of two queues."""
    first, second = (v1.train.batch(examples(name), 6, name=name) for name in ("train", "test"))
    return v1.cond(v1.placeholder(tf.bool, [], "is_training"), lambda: first, lambda: second)


def called() -> Any:
    """From Python."""
    x, y = v1.py_func(lambda: None, [v1.placeholder(tf.int32, [], "number")], [tf.float32, tf.int64])
    x.set_shape([None, 4])
    y.set_shape([None])
    return x, y


def looked_up() -> Any:
    """Texts by their places in a vocabulary."""
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a", "b"], tf.range(2, dtype=tf.int64)), 2)
    words = tf.data.Dataset.from_tensors((np.full((6, 4), b"a"), np.zeros(6, np.int64)))
    words, y = v1.data.make_one_shot_iterator(words).get_next()
    return tf.cast(table.lookup(words), tf.float32), y


def decoded() -> Any:
    picture = tf.image.decode_jpeg(v1.placeholder(tf.string, [], "picture"), channels=3)
    return tf.reshape(v1.image.resize_images(picture, [2, 2]), [1, 12])[:, :4], v1.placeholder(tf.int64, [None], "y")


# Of each pipeline, where data comes in.
INPUTS: dict[Callable[[], Any], dict[str, list[int | None]]] = {
    batched: {"batch:0": [6, 4], "batch:1": [6]},
    shuffled: {"shuffle_batch:0": [6, 2, 2, 3], "shuffle_batch:1": [6]},
    padded: {"batch:0": [None, 8], "batch:1": [None]},
    taken: {"queue_DequeueMany:0": [None, 4], "queue_DequeueMany:1": [None]},
    parsed: {f"ParseExample/ParseExampleV2:{n}": s for n, s in ((0, [None, 2]), (1, [None]), (3, [6, 4]), (4, [6]))},
    iterated: {"IteratorGetNext:0": [None, 4], "IteratorGetNext:1": [None]},
    handled: {"IteratorGetNext:0": [None, 4], "IteratorGetNext:1": [None]},
    staged: {"Unstage:0": [None, 4], "Unstage:1": [None]},
    defaulted: {"x:0": [None, 4], "batch:1": [6]},
    checked: {"IteratorGetNext:0": [None, 4], "IteratorGetNext:1": [None]},
    chosen: {"train:0": [6, 4], "train:1": [6], "test:0": [6, 4], "test:1": [6], "is_training:0": []},
    called: {"PyFunc:0": [None, 4], "PyFunc:1": [None]},
    looked_up: {"IteratorGetNext:1": [6], "hash_table_Lookup/LookupTableFindV2:0": [6, 4]},
    decoded: {"DecodeJpeg:0": [None, None, 3], "y:0": [None]},
}
# Open sizes that are not 6, and feeds that are not any numbers.
SIZES = {decoded: 1}
WORD_FEEDS = {0: np.array([[row, 0] for row in range(6)] + [[5, 1]]), 1: np.array([3, 0, 1, 1, 4, 2, 0])}
FEEDS = {parsed: {f"ParseExample/ParseExampleV2:{n}": value for n, value in WORD_FEEDS.items()}}


def write(pipeline: Callable[[], Any], folder: Path) -> Path:
    """A training step on a pipeline's data, with a checkpoint, as a script leaves it."""
    with tf.Graph().as_default(), v1.Session() as session:
        v1.set_random_seed(1)
        x, y = pipeline()
        w = v1.get_variable("w", [4, 5])
        v = v1.get_variable("v", [5, 3])
        logits = tf.tanh(x @ w) @ v
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits), name="loss")
        v1.summary.scalar("loss", loss)
        v1.summary.merge_all()
        v1.train.MomentumOptimizer(0.5, 0.9).minimize(loss, v1.train.get_or_create_global_step(), name="step")
        session.run(v1.global_variables_initializer())
        v1.train.Saver(v1.global_variables()).save(session, str(folder / "model"))
    return folder / "model.meta"


def fed(pipeline: Callable[[], Any], model: onnx.ModelProto) -> dict[str, Array]:
    """A batch for the inputs that are not state."""
    rng = np.random.default_rng(0)
    found = {}
    for value in ir.from_proto(model).graph.inputs:
        if value.name in INPUTS[pipeline]:
            assert value.shape is not None
            assert value.dtype is not None
            shape = [dim if isinstance(dim, int) else SIZES.get(pipeline, 6) for dim in value.shape]
            numbers = rng.uniform(0, 3, shape)
            found[value.name] = FEEDS.get(pipeline, {}).get(value.name, numbers.astype(value.dtype.numpy()))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", INPUTS, ids=lambda made: made.__name__)
def test_inputs_are_where_pipelines_end(pipeline: Callable[[], Any], tmp_path: Path) -> None:
    path = write(pipeline, tmp_path)
    with pytest.warns(PipelineWarning, match="the input pipeline is left out") as said:
        model = ll.from_tensorflow(path)
    values = {value.name for value in model.graph.initializer}
    inputs = [value for value in ir.from_proto(model).graph.inputs if value.name not in values]
    assert {x.name: [n if isinstance(n, int) else None for n in x.shape or ()] for x in inputs} == INPUTS[pipeline]
    listed = str(said[0].message)
    assert all(name in listed for name in INPUTS[pipeline] if name not in ("is_training:0", "y:0"))
    assert [value.name for value in model.graph.output][:1] == ["loss:0"]

    feeds = fed(pipeline, model)
    trainer = ll.Trainer(ll.lower(model))
    with tf.Graph().as_default(), v1.Session() as session:
        v1.train.import_meta_graph(str(path)).restore(session, str(path.with_suffix("")))
        for _ in range(3):
            expected, _ = session.run(["loss:0", "step"], feeds)
            assert trainer.step(feeds).loss == pytest.approx(float(expected), rel=1e-5)
        held = trainer.state_dict()
        for name in ("w", "v", "w/Momentum", "global_step"):
            value = session.run(next(x for x in v1.global_variables() if x.op.name == name))
            # Sums of numbers of order one, some of which nearly cancel.
            np.testing.assert_allclose(held[f"{name}:0"], value, rtol=1e-5, atol=1e-6, err_msg=name)


def test_inputs_that_are_named_are_taken(tmp_path: Path) -> None:
    """Nobody needs to be told of them, and all must be named."""
    path = write(batched, tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PipelineWarning)
        model = ll.from_tensorflow(path, ["batch:1", "batch:0"])
    assert [value.name for value in model.graph.input][:2] == ["batch:1", "batch:0"]
    with pytest.raises(UnsupportedOpError, match="QueueDequeueManyV2 'batch': no conversion is known for it"):
        ll.from_tensorflow(path, ["batch:0"])


@pytest.mark.parametrize("control_flow", [v1.disable_control_flow_v2, v1.enable_control_flow_v2])
def test_a_batch_for_each_iteration_is_not_one_input(control_flow: Callable[[], None]) -> None:
    control_flow()
    try:
        with tf.Graph().as_default() as graph:
            queue = v1.FIFOQueue(10, [tf.float32], [[]], name="queue")
            w = v1.get_variable("w", [])
            total = v1.while_loop(lambda i, _: i < 3, lambda i, s: (i + 1, s + w * queue.dequeue()), [0, 0.0])[1]
            v1.train.GradientDescentOptimizer(0.1).minimize(total)
    finally:
        v1.enable_control_flow_v2()
    with pytest.raises(UnsupportedOpError, match="no loop can fetch them: import the step of one batch instead"):
        ll.from_tensorflow(graph)


def test_what_python_computes_of_the_network_is_no_data() -> None:
    """The regions that a detector's layer in Python picks depend on weights."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [2, 3], "x")
        hidden = x * v1.get_variable("w", [3])
        picked = tf.ensure_shape(v1.py_func(lambda a: a, [hidden], tf.float32), [2, 3])
        v1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(hidden * picked))
    with pytest.raises(UnsupportedOpError, match="PyFunc 'PyFunc': no conversion is known"):
        ll.from_tensorflow(graph)


def test_iterators_and_texts_of_functions_are_replaced_by_what_they_bring(tmp_path: Path) -> None:
    """In functions that others call too, and in a SavedModel, whose signatures are such."""
    w = tf.Variable(tf.ones([4]), name="w")

    def step(x: Any, y: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.linalg.matvec(x, w) - tf.cast(y, tf.float32)))
        w.assign_sub(0.1 * tape.gradient(loss, w))
        return {"loss": loss}

    inner = tf.function(lambda iterator: step(*next(iterator)))
    outer = tf.function(inner)
    concrete = outer.get_concrete_function(iter(data_set()))
    with pytest.warns(PipelineWarning):
        model = ll.from_tensorflow(concrete)
    prefix = "StatefulPartitionedCall/"
    assert [x.name for x in model.graph.input] == [f"{prefix}IteratorGetNext", f"{prefix}IteratorGetNext:1", "w"]

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="texts")])
    def parsing(texts: Any) -> dict[str, Any]:
        found = tf.io.parse_example(texts, {"x": tf.io.FixedLenFeature([4], tf.float32), "y": FEATURES["y"]})
        return step(found["x"], found["y"])

    module = tf.Module()
    module.w, module.step = w, parsing
    tf.saved_model.save(module, tmp_path, signatures={"train": parsing})
    names = [f"{prefix}ParseExample/ParseExampleV2{number}" for number in ("", ":1")]
    with pytest.warns(PipelineWarning, match=f"{names[0]} .ParseExampleV2."):
        model = ll.from_tensorflow(tmp_path)
    assert [x.name for x in model.graph.input] == [*names, "w"]
    x, y = np.arange(8, dtype=np.float32).reshape(2, 4) / 8, np.array([1, 2])
    trainer = ll.Trainer(ll.lower(model))
    for _ in range(3):
        assert trainer.step(dict(zip(names, (x, y), strict=True))).loss == pytest.approx(float(step(x, y)["loss"]))
    # Tensors of a called function go by their names, too.
    again = ll.from_tensorflow(tmp_path, [f"{name.removesuffix(':1')}:{n}" for n, name in enumerate(names)])
    assert next(x.name for x in again.graph.input) == f"{names[0]}:0"


def test_a_loop_over_a_data_set_is_refused() -> None:
    w, data = tf.Variable(1.0), tf.data.Dataset.range(3)

    @tf.function
    def epoch() -> Any:
        for x in data:
            w.assign_add(tf.cast(x, tf.float32))
        return w.read_value()

    with pytest.raises(UnsupportedOpError, match=r"ReduceDataset .*: no conversion"):
        ll.from_tensorflow(epoch, specs=[])


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.filterwarnings("ignore::lstm_lower.tensorflow.finish.MissingValuesWarning")
def test_losses_are_those_that_gradients_start_from(recorded: bool) -> None:
    """By the names that they have in the script, which sums of several terms hide from their gradients."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [2, 3], "x")
        first, second = (v1.get_variable(name, [3]) for name in ("first", "second"))
        error = tf.reduce_mean(tf.square(x * first)) + 0.1 * tf.nn.l2_loss(first)
        one = tf.identity(error, "one_loss")
        two = tf.reduce_mean(tf.abs(x * second), name="two")
        tf.add(one, two, name="total_loss")
        v1.train.GradientDescentOptimizer(0.1).minimize(one, var_list=[first])
        v1.train.GradientDescentOptimizer(0.1).minimize(two, var_list=[second])
        if not recorded:
            v1.get_collection_ref("train_op").clear()
    model = ll.from_tensorflow(graph)
    new = ["first/new:0", "second/new:0"]
    assert sorted(value.name for value in model.graph.output) == sorted(["one_loss:0", "two:0", *new])
