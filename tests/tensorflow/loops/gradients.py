"""Gradients of loops that are not asked for in the ordinary way."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.tensorflow.loops.kit import FEATURES, SIZES, UNITS, Feeds, Forms, Kit

GRADIENTS = Forms()
form = GRADIENTS.add


def _final(kit: Kit, data: Any, step: Any, **options: Any) -> Any:
    """The state after a loop of `step(x, h)`."""

    def body(t: Any, h: Any) -> Any:
        return t + 1, step(kit.tf.gather(data.by_time, t), h)

    return kit.repeat(lambda t, h: t < data.steps, body, [0, kit.start(data.x)], **options)[1]


def _train(kit: Kit, loss: Any, gradients: list[Any] | None = None, **options: Any) -> Any:
    variables = kit.v1.trainable_variables()
    gradients = kit.tf.gradients(loss, variables, **options) if gradients is None else gradients
    optimizer = kit.v1.train.GradientDescentOptimizer(0.1)
    with kit.tf.control_dependencies([loss]):
        optimizer.apply_gradients(zip(gradients, variables, strict=True), name="train")
    return loss


@form
def stopped(kit: Kit) -> tuple[Any, Feeds]:
    """Truncated backpropagation: no gradient through every second state."""
    tf, data, w = kit.tf, kit.data(), kit.kernel()

    def body(t: Any, h: Any) -> Any:
        h = tf.where(tf.equal(t % 2, 0), tf.stop_gradient(h), h)
        return t + 1, kit.dense(tf.gather(data.by_time, t), h, w)

    _, h = kit.repeat(lambda t, h: t < data.steps, body, [0, kit.start(data.x)])
    return kit.error(h, data.y[:, 0]), data.feeds()


@form
def custom(kit: Kit) -> tuple[Any, Feeds]:
    """A custom gradient in the body: one that is clipped."""
    tf, data, w = kit.tf, kit.data(), kit.kernel()

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def clipped(a: Any) -> Any:
        return tf.identity(a), lambda grad: tf.clip_by_value(grad, -0.02, 0.02)

    h = _final(kit, data, lambda x, h: clipped(kit.dense(x, h, w)))
    return kit.error(h, data.y[:, 0]), data.feeds()


@form
def recomputed(kit: Kit) -> tuple[Any, Feeds]:
    tf, data, w = kit.tf, kit.data(), kit.kernel()
    step = tf.recompute_grad(kit.dense)
    return kit.error(_final(kit, data, lambda x, h: step(x, h, tf.convert_to_tensor(w))), data.y[:, 0]), data.feeds()


@form
def penalty(kit: Kit) -> tuple[Any, Feeds]:
    """A gradient of a gradient: the loss holds the norm of the gradient by the input of an unrolled loop."""
    tf, x, y, w = kit.tf, kit.input("x", [None, 3, FEATURES]), kit.input("y", [None, UNITS]), kit.kernel()
    h = kit.start(x)
    for t in range(3):
        h = kit.dense(x[:, t], h, w)
    loss = kit.error(h, y)
    (grad,) = tf.gradients(loss, [x])
    return loss + tf.reduce_sum(tf.square(grad)), [
        {x: kit.normal(B, 3, FEATURES), y: kit.normal(B, UNITS)} for B, _ in SIZES
    ]


@form
def second_order_functions(kit: Kit) -> tuple[Any, Feeds]:
    """A gradient of a gradient of a loop, which functions alone have."""
    tf, data, w = kit.tf, kit.data(), kit.kernel()
    loss = kit.error(_final(kit, data, lambda x, h: kit.dense(x, h, w)), data.y[:, 0])
    (grad,) = tf.gradients(loss, [data.x])
    return loss + tf.reduce_sum(tf.square(grad)), data.feeds()


@form
def inner_gradient(kit: Kit) -> tuple[Any, Feeds]:
    """Gradient descent in the loop's body, with a gradient that is computed there."""
    tf, x, n, w = (
        kit.tf,
        kit.input("x", [None, FEATURES]),
        kit.input("n", [], "int32"),
        kit.variable("w", FEATURES, FEATURES),
    )

    def body(i: Any, z: Any) -> Any:
        energy = tf.reduce_sum(tf.square(tf.matmul(z, w) - x))
        return i + 1, z - 0.1 * tf.gradients(energy, [z])[0]

    _, z = kit.repeat(lambda i, z: i < n, body, [0, x])
    return kit.error(z, 0.1), [{x: kit.normal(B, FEATURES), n: np.int32(k)} for B, k in ((2, 3), (3, 0), (1, 2))]


@form
def by_input(kit: Kit) -> tuple[Any, Feeds]:
    """The gradient by the sequence itself leaves as a second variable's update."""
    tf, data, w = kit.tf, kit.data(), kit.kernel()
    loss = kit.error(_final(kit, data, lambda x, h: kit.dense(x, h, w)), data.y[:, 0])
    seen = kit.variable("seen", trainable=False, initializer=kit.v1.zeros_initializer())
    grad_x, grad_w = tf.gradients(loss, [data.x, w])
    with tf.control_dependencies([loss, grad_x]):
        step = kit.v1.train.GradientDescentOptimizer(0.1).apply_gradients([(grad_w, w)])
    tf.group(step, kit.v1.assign_add(seen, tf.reduce_sum(tf.abs(grad_x))), name="train")
    return loss, data.feeds()


@form
def seeded(kit: Kit) -> tuple[Any, Feeds]:
    """Gradients that begin with given ones."""
    tf, data, w = kit.tf, kit.data(), kit.kernel()
    h = _final(kit, data, lambda x, h: kit.dense(x, h, w))
    _train(kit, h, tf.gradients([h], [w], grad_ys=[data.y[:, 0]]))
    return tf.reduce_sum(h * data.y[:, 0]), data.feeds()


def _two_uses(kit: Kit, method: int) -> tuple[Any, Feeds]:
    tf, data, w = kit.tf, kit.data(), kit.kernel()
    h = _final(kit, data, lambda x, h: kit.dense(x, h, w) + 0.1 * tf.tanh(tf.matmul(x, w[:FEATURES])))
    return _train(
        kit, kit.error(h, data.y[:, 0]) + tf.reduce_sum(tf.square(w)), aggregation_method=method
    ), data.feeds()


@form
def added_in_turn(kit: Kit) -> tuple[Any, Feeds]:
    return _two_uses(kit, kit.tf.AggregationMethod.EXPERIMENTAL_ACCUMULATE_N)


@form
def added_as_a_tree(kit: Kit) -> tuple[Any, Feeds]:
    return _two_uses(kit, kit.tf.AggregationMethod.EXPERIMENTAL_TREE)


@form
def norm_clipped(kit: Kit) -> tuple[Any, Feeds]:
    data = kit.data()
    result, _ = kit.v1.nn.dynamic_rnn(kit.cells.LSTMCell(UNITS), data.x, dtype="float32")
    loss = kit.error(result, data.y)
    variables = kit.v1.trainable_variables()
    gradients, _ = kit.tf.clip_by_global_norm(kit.tf.gradients(loss, variables), 0.05)
    rate = kit.v1.train.exponential_decay(0.1, kit.v1.train.get_or_create_global_step(), 2, 0.9)
    optimizer = kit.v1.train.MomentumOptimizer(rate, 0.9)
    pairs = zip(gradients, variables, strict=True)
    optimizer.apply_gradients(pairs, global_step=kit.v1.train.get_global_step(), name="train")
    return loss, data.feeds()


@form
def no_backpropagation(kit: Kit) -> tuple[Any, Feeds]:
    """A loop without gradients beside one with them."""
    tf, data, w = kit.tf, kit.data(), kit.kernel()
    teacher = _final(kit, data, lambda x, h: kit.dense(x, h, w * 0.5), back_prop=False)
    return kit.error(_final(kit, data, lambda x, h: kit.dense(x, h, w)), tf.stop_gradient(teacher)), data.feeds()


def _typed(kit: Kit, dtype: str) -> tuple[Any, Feeds]:
    data = kit.data(dtype=dtype)
    w = kit.kernel(dtype=dtype)
    made = kit.tf.TensorArray(dtype, data.steps)

    def body(t: Any, h: Any, made: Any) -> Any:
        h = kit.dense(kit.tf.gather(data.by_time, t), h, w)
        return t + 1, h, made.write(t, h)

    *_, made = kit.repeat(lambda t, *_: t < data.steps, body, [0, kit.start(data.x), made])
    return kit.error(kit.tf.transpose(made.stack(), [1, 0, 2]), data.y), data.feeds()


@form
def float64(kit: Kit) -> tuple[Any, Feeds]:
    return _typed(kit, "float64")


@form
def float16(kit: Kit) -> tuple[Any, Feeds]:
    return _typed(kit, "float16")


@form
def product(kit: Kit) -> tuple[Any, Feeds]:
    """A product over the steps, and a largest one."""
    tf, data, w = kit.tf, kit.data(), kit.variable("w", FEATURES)

    def body(t: Any, p: Any, m: Any) -> Any:
        v = tf.sigmoid(tf.reduce_sum(tf.gather(data.by_time, t) * w, 1))
        return t + 1, p * (0.5 + v), tf.maximum(m, v)

    ones = tf.ones([tf.shape(data.x)[0]])
    _, p, m = kit.repeat(lambda t, *_: t < data.steps, body, [0, ones, ones * 0])
    return tf.reduce_mean(p + m), data.feeds()


@form
def broadcast(kit: Kit) -> tuple[Any, Feeds]:
    """Next to a size that is known stands one that only the data tell: 1, which is broadcast, or the same."""
    given, chosen = kit.input("given", [None], "int32"), [1, UNITS, 1]
    data = kit.data(lambda B, T: {given: np.arange(chosen.pop(0), dtype=np.int32)})
    w, v = kit.kernel(), kit.variable("v", UNITS)
    h = _final(kit, data, lambda x, h: kit.dense(x, h, w) + kit.tf.gather(v, given))
    return kit.error(h, data.y[:, 0]), data.feeds()
