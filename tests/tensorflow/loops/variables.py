"""Variables that loops and branches change, and steps that depend on conditions."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.tensorflow.loops.kit import UNITS, Feeds, Forms, Kit

VARIABLES = Forms()
form = VARIABLES.add


def _zeros(kit: Kit, name: str, *shape: int, dtype: str = "float32") -> Any:
    return kit.variable(name, *shape, dtype=dtype, trainable=False, initializer=kit.v1.zeros_initializer())


def _rnn(kit: Kit, data: Any) -> Any:
    result, _ = kit.v1.nn.dynamic_rnn(kit.cells.BasicLSTMCell(UNITS), data.x, dtype="float32")
    return kit.error(result, data.y)


def _gradients(kit: Kit, loss: Any) -> list[tuple[Any, Any]]:
    variables = kit.v1.trainable_variables()
    return [*zip(kit.tf.gradients(loss, variables), variables, strict=True)]


@form
def counted(kit: Kit) -> tuple[Any, Feeds]:
    """Every iteration counts a variable up."""
    tf, data, w, seen = kit.tf, kit.data(), kit.kernel(), _zeros(kit, "seen")

    def body(t: Any, h: Any) -> Any:
        with tf.control_dependencies([kit.v1.assign_add(seen, 1.0)]):
            return t + 1, kit.dense(tf.gather(data.by_time, t), h, w)

    _, h = kit.repeat(lambda t, h: t < data.steps, body, [0, kit.start(data.x)])
    return kit.error(h, data.y[:, 0]), data.feeds()


@form
def counted_in_branch(kit: Kit) -> tuple[Any, Feeds]:
    """Some iterations count a variable up."""
    tf, data, w, seen = kit.tf, kit.data(), kit.kernel(), _zeros(kit, "seen")

    def body(t: Any, h: Any) -> Any:
        h = kit.dense(tf.gather(data.by_time, t), h, w)
        up = tf.cond(tf.reduce_sum(h) > 0, lambda: tf.identity(kit.v1.assign_add(seen, 1.0)), lambda: tf.constant(0.0))
        with tf.control_dependencies([up]):
            return t + 1, tf.identity(h)

    _, h = kit.repeat(lambda t, h: t < data.steps, body, [0, kit.start(data.x)])
    return kit.error(h, data.y[:, 0]), data.feeds()


@form
def carried_over(kit: Kit) -> tuple[Any, Feeds]:
    """A stateful network: the last state is kept in a variable for the next step."""
    tf, w, kept = kit.tf, kit.kernel(), _zeros(kit, "kept", 2, UNITS)
    x, y = kit.input("x", [2, None, 3]), kit.input("y", [2, UNITS])
    by_time = tf.transpose(x, [1, 0, 2])
    _, h = kit.repeat(
        lambda t, h: t < tf.shape(x)[1],
        lambda t, h: (t + 1, kit.dense(tf.gather(by_time, t), h, w)),
        [0, tf.identity(kept)],
    )
    loss = kit.error(h, y)
    step = kit.v1.train.GradientDescentOptimizer(0.1).minimize(loss)
    tf.group(step, kit.v1.assign(kept, h), name="train")
    return loss, [{x: kit.normal(2, T, 3), y: kit.normal(2, UNITS)} for T in (5, 3, 4)]


@form
def skipped(kit: Kit) -> tuple[Any, Feeds]:
    """No update where a gradient is not finite, but the loss is."""
    tf, scale, scales = kit.tf, kit.input("scale", []), [1.0, np.inf, 2.0]
    data = kit.data(lambda B, T: {scale: np.float32(scales.pop(0))})
    loss = _rnn(kit, data)
    pairs = _gradients(kit, loss)
    finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(grad * scale)) for grad, _ in pairs])
    optimizer = kit.v1.train.GradientDescentOptimizer(0.1)
    tf.group(tf.cond(finite, lambda: optimizer.apply_gradients(pairs), tf.no_op), name="train")
    return loss, data.feeds()


@form
def scaled_loss(kit: Kit) -> tuple[Any, Feeds]:
    """Loss scaling: a variable doubles after a good step and halves after a bad one."""
    tf, bad, seen = kit.tf, kit.input("bad", [], "bool"), [False, True, False]
    data = kit.data(lambda B, T: {bad: np.array(seen.pop(0))})
    loss = _rnn(kit, data)
    scale = kit.variable("scale", trainable=False, initializer=kit.v1.constant_initializer(8.0))
    variables = kit.v1.trainable_variables()
    scaled = tf.gradients(loss * scale, variables)
    pairs = [*zip([grad / scale for grad in scaled], variables, strict=True)]
    optimizer = kit.v1.train.MomentumOptimizer(0.1, 0.9)
    optimizer._create_slots(variables)

    def good() -> Any:
        with tf.control_dependencies([optimizer.apply_gradients(pairs)]):
            return tf.identity(kit.v1.assign(scale, scale * 2))

    tf.group(tf.cond(bad, lambda: tf.identity(kit.v1.assign(scale, scale / 2)), good), name="train")
    return loss, data.feeds()


@form
def accumulated(kit: Kit) -> tuple[Any, Feeds]:
    """Gradients are summed up, and applied at every second step."""
    tf, v1, data = kit.tf, kit.v1, kit.data()
    loss = _rnn(kit, data)
    pairs = _gradients(kit, loss)
    sums = [_zeros(kit, f"sum{i}", *grad.shape.as_list()) for i, (grad, _) in enumerate(pairs)]
    count = _zeros(kit, "count", dtype="int32")
    optimizer = v1.train.GradientDescentOptimizer(0.1)
    added = [v1.assign_add(total, grad) for total, (grad, _) in zip(sums, pairs, strict=True)]
    with tf.control_dependencies([*added, v1.assign_add(count, 1)]):
        now = tf.equal(count.read_value() % 2, 0)

    def apply() -> Any:
        step = optimizer.apply_gradients([(s.read_value(), v) for s, (_, v) in zip(sums, pairs, strict=True)])
        with tf.control_dependencies([step]):
            return tf.group(*[v1.assign(s, tf.zeros_like(s)) for s in sums])

    tf.group(tf.cond(now, apply, tf.no_op), name="train")
    return loss, data.feeds()


def _scheduled(kit: Kit, rate: Any) -> tuple[Any, Feeds]:
    data = kit.data()
    loss = _rnn(kit, data)
    step = kit.v1.train.get_or_create_global_step()
    kit.v1.train.MomentumOptimizer(rate(step), 0.9).minimize(loss, global_step=step, name="train")
    return loss, data.feeds()


@form
def piecewise(kit: Kit) -> tuple[Any, Feeds]:
    return _scheduled(kit, lambda step: kit.v1.train.piecewise_constant(step, [0, 1], [0.1, 0.05, 0.01]))


@form
def warm_up(kit: Kit) -> tuple[Any, Feeds]:
    tf = kit.tf
    number = lambda step: tf.cast(step, tf.float32)  # noqa: E731
    return _scheduled(
        kit, lambda step: tf.cond(step < 2, lambda: 0.05 * (number(step) + 1), lambda: 0.1 / number(step))
    )


@form
def polynomial(kit: Kit) -> tuple[Any, Feeds]:
    return _scheduled(kit, lambda step: kit.v1.train.polynomial_decay(0.1, step, 5, 0.01, power=2.0, cycle=True))


@form
def averaged(kit: Kit) -> tuple[Any, Feeds]:
    """Moving averages of the weights after the update."""
    data = kit.data()
    loss = _rnn(kit, data)
    step = kit.v1.train.AdamOptimizer(0.01).minimize(loss)
    averages = kit.v1.train.ExponentialMovingAverage(0.9)
    with kit.tf.control_dependencies([step]):
        kit.tf.group(averages.apply(kit.v1.trainable_variables()), name="train")
    return loss, data.feeds()


@form
def several_inner_steps_functions(kit: Kit) -> tuple[Any, Feeds]:
    """The weights themselves are changed in a loop, as often as is fed."""
    tf, n, counts = kit.tf, kit.input("n", [], "int32"), [2, 0, 3]
    data, w = kit.data(lambda B, T: {n: np.int32(counts.pop(0))}), kit.variable("w", 3, UNITS)

    def body(i: Any, total: Any) -> Any:
        wrong = tf.einsum("bti,ih->bth", data.x, tf.identity(w)) - data.y
        grad = tf.einsum("bti,bth->ih", data.x, wrong)
        with tf.control_dependencies([wrong, grad]):
            step = kit.v1.assign_sub(w, 0.01 * grad)
        with tf.control_dependencies([step]):
            return i + 1, total + tf.reduce_mean(tf.square(wrong))

    _, total = kit.repeat(lambda i, *_: i < n, body, [0, 0.0], parallel_iterations=1)
    tf.group(total, name="train")
    return total, data.feeds()
