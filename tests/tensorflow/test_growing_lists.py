"""Lists that grow where they are written, and TensorFlow 1's branches around loops, beside TensorFlow."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import lstm_lower as ll
from lstm_lower.errors import UnsupportedOpError

tf = pytest.importorskip("tensorflow")

v1 = tf.compat.v1
X = np.arange(12, dtype=np.float32).reshape(6, 2) / 10


@pytest.fixture(params=["frames", "functions"])
def control_flow(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "frames":
        v1.disable_control_flow_v2()
    yield request.param
    v1.enable_control_flow_v2()


def check(build: Callable[[Any], Any], x: np.ndarray[Any, Any] = X, *, optimize: bool = True) -> None:
    with tf.Graph().as_default() as graph:
        placed = v1.placeholder(tf.float32, [None, 2], "x")
        outputs = [tf.identity(y, name=f"y{number}") for number, y in enumerate(build(placed))]
        with v1.Session() as session:
            expected = session.run(outputs, {placed: x})
    names = [output.name for output in outputs]
    model = ll.lower(ll.from_tensorflow(graph.as_graph_def(), ["x:0"], names), optimize=optimize)
    found = ort.InferenceSession(model.SerializeToString()).run(names, {"x:0": x})
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def growing(size: int = 0, **options: Any) -> Any:
    return tf.TensorArray(
        tf.float32, size=size, dynamic_size=True, element_shape=[2], clear_after_read=False, **options
    )


def each(x: Any, body: Callable[..., Any], *state: Any) -> Any:
    return v1.while_loop(lambda i, *_: i < tf.shape(x)[0], lambda i, *s: (i + 1, *body(i, *s)), [0, *state])[1:]


@pytest.mark.usefixtures("control_flow")
def test_places_in_any_order() -> None:
    def build(x: Any) -> Any:
        array = growing().write(0, x[0]).write(3, x[1]).write(1, x[2])
        longer = growing(1).write(1, x[0])
        return array.stack(), array.size(), longer.stack(), longer.read(1)

    check(build)


@pytest.mark.usefixtures("control_flow")
def test_written_whole_and_scattered() -> None:
    def build(x: Any) -> Any:
        whole, some = growing().unstack(x), growing().scatter([2, 0, 1], x[:3])
        (total,) = each(x, lambda i, s: [s + whole.read(i)], tf.zeros([2]))
        return total, some.stack(), some.size()

    check(build)


@pytest.mark.usefixtures("control_flow")
def test_written_in_a_loop_and_behind_it() -> None:
    def build(x: Any) -> Any:
        (first,) = each(x, lambda i, a: [a.write(i, x[i] * 2)], growing())
        longer = first.write(first.size(), x[0])
        (measured,) = each(x, lambda i, a: [a.write(a.size(), x[i] * 3)], growing())
        (shifted,) = each(x, lambda i, a: [a.write(i + 3, x[i])], growing().write(0, x[1]))
        return longer.stack(), longer.size(), measured.stack(), shifted.stack()

    check(build)


@pytest.mark.usefixtures("control_flow")
def test_pieces_of_different_lengths() -> None:
    """Written one by one and joined, joined and cut up again, cut up by lengths that are data."""

    def build(x: Any) -> Any:
        def pieces() -> Any:
            return tf.TensorArray(tf.float32, 2, infer_shape=False, element_shape=[None, 2], clear_after_read=False)

        joined = pieces().write(1, x[1:]).write(0, x[:2] * 2).concat()
        lengths = tf.stack([tf.shape(x)[0] - 4, tf.constant(4)])
        cut = pieces().split(x * 3, lengths)
        first = cut.read(0)
        loss = tf.reduce_sum(joined**2) + tf.reduce_sum(cut.read(1) ** 3) * tf.reduce_sum(tf.sin(first))
        return joined, first, cut.concat(), loss, *tf.gradients(loss, x)

    check(build)


@pytest.mark.slow
@pytest.mark.usefixtures("control_flow")
def test_gradient_of_what_grows() -> None:
    def build(x: Any) -> Any:
        read = growing().unstack(x)
        made, _ = each(
            x, lambda i, a, s: [a.write(i, tf.sin(read.read(i)) * s), s + read.read(i)], growing(), tf.zeros([2])
        )
        loss = tf.reduce_sum(made.stack() ** 2)
        return [loss, *tf.gradients(loss, x)]

    check(build)


@pytest.mark.slow
@pytest.mark.parametrize("x", [X, X[:1]], ids=["loop", "other side"])
@pytest.mark.usefixtures("control_flow")
def test_gradient_of_a_loop_within_a_branch(x: np.ndarray[Any, Any]) -> None:
    def build(x: Any) -> Any:
        def looped() -> Any:
            read = tf.TensorArray(tf.float32, size=tf.shape(x)[0]).unstack(tf.transpose(x, tf.concat([[0], [1]], 0)))
            return tf.reduce_sum(each(x, lambda i, s: [tf.tanh(s + read.read(i))], tf.zeros([2]))[0])

        loss = v1.cond(tf.shape(x)[0] > 1, looped, lambda: tf.reduce_sum(x * x))
        return [loss, *tf.gradients(loss, x)]

    check(build, x)


def added_up(x: Any, read: Callable[[Any], Any]) -> Any:
    return each(x, lambda i, s: [s + tf.reduce_sum(tf.sin(read(i)))], 0.0)[0]


READS: dict[str, Callable[[Any, Any], Any]] = {
    "all": lambda array, _: tf.reduce_sum(tf.sin(array.stack())),
    "joined": lambda array, _: tf.reduce_sum(array.concat() ** 2),
    "some, one twice": lambda array, _: tf.reduce_sum(tf.exp(array.gather([0, 2, 2]))),
    "one": lambda array, _: tf.reduce_sum(array.read(2) ** 3),
    "each in a loop": lambda array, x: added_up(x, array.read),
    "all in a loop": lambda array, x: added_up(x, lambda i: array.stack() * tf.cast(i, tf.float32)),
}


# A read of each kind with one of each, in one of the two forms of loops.
PAIRS = list(itertools.combinations_with_replacement(READS, 2))


@pytest.mark.slow
@pytest.mark.parametrize("control_flow", ["frames", "functions"], indirect=True)
def test_gradients_of_two_reads_add_up(control_flow: str) -> None:
    pairs = PAIRS[control_flow == "functions" :: 2]

    def build(x: Any) -> Any:
        array = tf.TensorArray(tf.float32, tf.shape(x)[0], element_shape=[1, 2], clear_after_read=False)
        array = each(x, lambda i, s: [s.write(i, tf.reshape(tf.tanh(x[i]), [1, 2]))], array)[0]
        losses = [READS[first](array, x) + READS[second](array, x) for first, second in pairs]
        return [gradient for loss in losses for gradient in tf.gradients(loss, x)]

    # What is read is known from the import alone.
    check(build, optimize=False)


def test_constant_sides_and_checks() -> None:
    """A frozen graph writes the predicate of a branch as several equal constants, and a check's Merge has no reader."""
    v1.disable_control_flow_v2()
    try:
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [2], "x")
            first, second = (tf.constant(np.True_, name=name) for name in ("p", "q"))
            side = tf.raw_ops.Switch(data=first, pred=first)
            with tf.control_dependencies([tf.identity(side.output_false)]):
                fixed = tf.constant([5.0, 6.0])
            merged = tf.raw_ops.Merge(inputs=[fixed, tf.raw_ops.Switch(data=x, pred=second).output_true + 1])
            tf.identity(merged.output, name="y")
            with tf.control_dependencies([tf.debugging.assert_less(tf.reduce_sum(x), 1e6)]):
                tf.identity(x, name="z")
    finally:
        v1.enable_control_flow_v2()
    model = ll.lower(ll.from_tensorflow(graph.as_graph_def(), ["x:0"], ["y:0", "z:0"]))
    y, z = ort.InferenceSession(model.SerializeToString()).run(None, {"x:0": X[1]})
    np.testing.assert_array_equal(y, X[1] + 1)
    np.testing.assert_array_equal(z, X[1])


def test_tensor_called_like_a_result() -> None:
    """A function's second result is `output_1`; with a number behind a colon a name is a tensor's."""

    @tf.function(input_signature=[tf.TensorSpec([2], name="x")])
    def function(x: Any) -> Any:
        return tf.identity(x + 1, name="output_1"), tf.identity(x + 2, name="other")

    source = function.get_concrete_function()
    for name, shift in (("output_1:0", 1), ("output_1", 2)):
        model = ll.lower(ll.from_tensorflow(source, outputs=[name]))
        session = ort.InferenceSession(model.SerializeToString())
        (found,) = session.run(None, {session.get_inputs()[0].name: X[1]})
        np.testing.assert_allclose(found, X[1] + shift)


def pieces(x: Any, size: Callable[[Any], Any], step: int = 1) -> Any:
    """A list of rows of `x` from each on, whose number nobody knows."""
    n = tf.shape(x)[0]
    made = tf.TensorArray(tf.float32, n, element_shape=[None, 2], infer_shape=False, clear_after_read=False)
    return v1.while_loop(
        lambda i, _: tf.logical_and(i >= 0, i < n),
        lambda i, made: (i + step, made.write(i, tf.sin(x[: size(i)] + tf.cast(i, tf.float32)))),
        [0 if step > 0 else n - 1, made],
    )[1]


@pytest.mark.parametrize(("width", "grows", "many"), [(2, False, False), (64, False, True), (2, True, True)])
def test_few_numbers_of_a_step_are_joined_at_once_and_many_behind_the_loop(width: int, grows: bool, many: bool) -> None:
    """Rows of few numbers and of many, and a tensor that grows; from the last place to the first."""

    def step(i: Any, state: Any, made: Any) -> Any:
        state = tf.concat([state, x[i : i + 1]], 0) if grows else state
        return i - 1, state, made.write(i, tf.sin(state if grows else x[: 1 + i % 3]))

    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, width], "x")
        n = tf.shape(x)[0]
        pieces = tf.TensorArray(tf.float32, n, element_shape=[None, width], infer_shape=False)
        shapes = [tf.TensorShape([]), tf.TensorShape([None, width]), tf.TensorShape(None)]
        y = tf.while_loop(lambda i, *_: i >= 0, step, [n - 1, x[:1], pieces], shapes)[2].concat(name="y")
        given = np.linspace(-1, 1, 6 * width, dtype=np.float32).reshape(6, width)
        with v1.Session() as session:
            expected = session.run(y, {x: given})
    model = ll.lower(ll.from_tensorflow(graph.as_graph_def(), ["x:0"], [y.name]))
    (loop,) = [node for node in model.graph.node if node.op_type == "Loop"]
    assert ("SequenceInsert" in {node.op_type for node in loop.attribute[0].g.node}) == many
    np.testing.assert_allclose(*ll.Session(model).run({"x:0": given}).values(), expected, rtol=1e-5)


@pytest.mark.usefixtures("control_flow")
def test_gathered_backwards_where_nobody_knows_that_they_are_alike() -> None:
    def build(x: Any) -> Any:
        n = tf.shape(x)[0]
        turned = tf.range(n - 1, -1, -1), tf.range(n)[::-1], tf.reverse(tf.range(n), [0])
        found = [pieces(x, lambda _: 2).gather(places) for places in turned]
        total = sum(tf.reduce_sum(tf.cumsum(y) ** (power + 2)) for power, y in enumerate(found))
        return *found, *tf.gradients(total, x)

    check(build)
    with pytest.raises(UnsupportedOpError, match="elements of different shapes"):
        # The other places may hold others.
        check(lambda x: [pieces(x, lambda i: i + 1).gather([1])])


@pytest.mark.parametrize("step", [1, -1])
def test_elements_of_other_shapes_in_the_place_of_some(step: int) -> None:
    def build(x: Any) -> Any:
        n = tf.shape(x)[0]
        _, half = v1.while_loop(
            lambda i, _: tf.logical_and(i >= 1, i < n - 1),
            lambda i, made: (i + step, made.write(i, x[: n - i] * 2.0)),
            [1 if step > 0 else n - 2, pieces(x, lambda i: i + 1, -step)],
        )
        _, all_read = v1.while_loop(
            lambda i, _: i < n,
            lambda i, made: (i + 1, made.write(i, made.read(i) ** 2)),
            [0, pieces(x, lambda _: 2, step)],
        )
        return half.concat(), half.read(2), *tf.gradients(all_read.concat(), x)

    check(build)


@pytest.mark.parametrize("even", [False, True])
def test_gradients_of_gradients_through_uneven_inner_loops_name_the_form_that_is_taken(even: bool) -> None:
    """Inner loops of 1, 2, 3 steps, or of 3 that hand their state on."""

    def step(i: Any, j: Any, b: Any) -> Any:
        return tf.where(j <= i, tf.sin(b) * b, b) if even else tf.sin(b) * b

    def outer(i: Any, a: Any) -> Any:
        last = 3 if even else i + 1
        return i + 1, tf.while_loop(lambda j, _: j < last, lambda j, b: (j + 1, step(i, j, b)), (0, a))[1]

    @tf.function(autograph=False)
    def second(x: Any) -> Any:
        with tf.GradientTape() as around, tf.GradientTape() as tape:
            around.watch(x)
            tape.watch(x)
            gradient = tape.gradient(tf.while_loop(lambda i, _: i < 3, outer, (0, x))[1], x)
        return around.gradient(gradient, x)

    concrete, x = second.get_concrete_function(tf.TensorSpec([3])), np.array([0.3, 0.5, 0.9], np.float32)
    if not even:
        with pytest.raises(ll.UnsupportedOpError, match="hands its state on with"):
            ll.from_tensorflow(concrete)
        return
    (result,) = ll.Session(ll.from_tensorflow(concrete)).run({"x": x}).values()
    np.testing.assert_allclose(result, second(tf.constant(x)), rtol=1e-5)


@pytest.mark.usefixtures("control_flow")
@pytest.mark.parametrize("optimize", [True, False])
def test_both_sides_of_a_branch_write(optimize: bool) -> None:
    """To the same place, known or not, or to different ones; before and behind the branch others are written."""

    def written(x: Any, before: bool, first: Any, second: Any) -> Any:
        array = tf.TensorArray(tf.float32, size=tf.shape(x)[0], element_shape=[2])
        array = array.write(0, x[0]) if before else array
        sides = [lambda: array.write(first, x[1]), lambda: array.write(second, x[2])]
        return v1.cond(tf.reduce_sum(x) > 1, *sides).write(3, x[3]).stack()

    def build(x: Any) -> Any:
        last = tf.shape(x)[0] - 1
        return [written(x, *case) for case in itertools.product((True, False), (1, last), (1, last))]

    check(build, optimize=optimize)
    check(build, -X, optimize=optimize)
