"""Loops whose number of iterations follows from the data, down to none, and loops within loops."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.tensorflow.loops.kit import FEATURES, SIZES, UNITS, Feeds, Forms, Kit

COUNTS = Forms()
form = COUNTS.add


def _power(kit: Kit, counts: tuple[int, ...], dtype: str = "float32", **options: Any) -> tuple[Any, Feeds]:
    tf, x, n = kit.tf, kit.input("x", [None, FEATURES], dtype), kit.input("n", [], "int32")
    w = kit.variable("w", FEATURES, FEATURES, dtype=dtype)
    _, found = kit.repeat(lambda i, a: i < n, lambda i, a: (i + 1, tf.tanh(tf.matmul(a, w))), [0, x], **options)
    return kit.error(found, 0.5), [{x: kit.normal(2, FEATURES, dtype=dtype), n: np.int32(k)} for k in counts]


@form
def power(kit: Kit) -> tuple[Any, Feeds]:
    return _power(kit, (3, 1, 5))


@form
def power_none(kit: Kit) -> tuple[Any, Feeds]:
    return _power(kit, (0, 4, 0))


@form
def power_limited(kit: Kit) -> tuple[Any, Feeds]:
    return _power(kit, (5, 0, 2), maximum_iterations=3)


@form
def power_serial(kit: Kit) -> tuple[Any, Feeds]:
    return _power(kit, (5, 0, 2), parallel_iterations=1, swap_memory=True)


@form
def power_float64(kit: Kit) -> tuple[Any, Feeds]:
    return _power(kit, (3, 0, 5), dtype="float64")


@form
def until(kit: Kit) -> tuple[Any, Feeds]:
    """The condition reads what the body computes."""
    tf, x, w = kit.tf, kit.input("x", [None, FEATURES]), kit.variable("w", FEATURES, FEATURES)
    found = kit.repeat(lambda a: tf.reduce_sum(tf.abs(a)) > 0.5, lambda a: (tf.tanh(tf.matmul(a, w)) * 0.3,), [x])
    found = found[0] if isinstance(found, (list, tuple)) else found
    return tf.reduce_mean(tf.square(found) + found), [{x: kit.normal(2, FEATURES) * k} for k in (1, 0, 3)]


@form
def until_each(kit: Kit) -> tuple[Any, Feeds]:
    """Adaptive computation: each row stops when its sum of probabilities is 1."""
    tf, x, w, p = (
        kit.tf,
        kit.input("x", [None, FEATURES]),
        kit.variable("w", FEATURES, FEATURES),
        kit.variable("p", FEATURES, 1),
    )

    def body(a: Any, total: Any, out: Any) -> Any:
        a = tf.tanh(tf.matmul(a, w))
        share = tf.minimum(tf.sigmoid(tf.matmul(a, p))[:, 0] * 0.6, 1 - total)
        return a, total + share, out + tf.expand_dims(share, 1) * a

    start = [x, tf.zeros([tf.shape(x)[0]]), tf.zeros_like(x)]
    *_, out = kit.repeat(lambda a, total, out: tf.reduce_any(total < 1 - 1e-3), body, start, maximum_iterations=8)
    return kit.error(out, 0.3), [{x: kit.normal(B, FEATURES)} for B in (2, 3, 1)]


def _nested(kit: Kit, inner: Any) -> tuple[Any, Feeds]:
    tf, data, w, u = kit.tf, kit.data(), kit.kernel(), kit.kernel("u", UNITS)

    def body(t: Any, h: Any) -> Any:
        h = kit.dense(tf.gather(data.by_time, t), h, w)
        _, h = kit.repeat(lambda j, a: j < inner(data, t), lambda j, a: (j + 1, tf.tanh(tf.matmul(a, u))), [0, h])
        return t + 1, h

    _, h = kit.repeat(lambda t, h: t < data.steps, body, [0, kit.start(data.x)])
    return kit.error(h, data.y[:, 0]), data.feeds()


@form
def nested_fixed(kit: Kit) -> tuple[Any, Feeds]:
    return _nested(kit, lambda data, t: 3)


@form
def nested_open(kit: Kit) -> tuple[Any, Feeds]:
    return _nested(kit, lambda data, t: data.steps)


@form
def nested_triangle(kit: Kit) -> tuple[Any, Feeds]:
    """The inner loop runs 0, 1, 2, ... times."""
    return _nested(kit, lambda data, t: t)


@form
def nested_counts(kit: Kit) -> tuple[Any, Feeds]:
    """The inner loop's count is read from the data, some of them 0."""
    tf = kit.tf
    counts = kit.input("counts", [None], "int32")
    data, w, u = kit.data(lambda B, T: {counts: kit.integers(0, 4, T)}), kit.kernel(), kit.kernel("u", UNITS)
    xs = tf.TensorArray("float32", data.steps).unstack(data.by_time)
    ns = tf.TensorArray("int32", data.steps).unstack(counts)
    made = tf.TensorArray("float32", data.steps)

    def body(t: Any, h: Any, made: Any) -> Any:
        h, n = kit.dense(xs.read(t), h, w), ns.read(t)
        _, h = kit.repeat(lambda j, a: j < n, lambda j, a: (j + 1, tf.tanh(tf.matmul(a, u))), [0, h])
        return t + 1, h, made.write(t, h)

    *_, made = kit.repeat(lambda t, *_: t < data.steps, body, [0, kit.start(data.x), made])
    return kit.error(tf.transpose(made.stack(), [1, 0, 2]), data.y), data.feeds()


@form
def nested_thrice(kit: Kit) -> tuple[Any, Feeds]:
    tf, data, w, u = kit.tf, kit.data(), kit.kernel(), kit.kernel("u", UNITS)

    def innermost(j: Any, a: Any) -> Any:
        _, a = kit.repeat(lambda k, a: k < 2, lambda k, a: (k + 1, tf.tanh(tf.matmul(a, u))), [0, a])
        return j + 1, a

    def body(t: Any, h: Any) -> Any:
        h = kit.dense(tf.gather(data.by_time, t), h, w)
        return t + 1, kit.repeat(lambda j, a: j < t % 3, innermost, [0, h])[1]

    _, h = kit.repeat(lambda t, h: t < data.steps, body, [0, kit.start(data.x)])
    return kit.error(h, data.y[:, 0]), data.feeds()


@form
def nested_sums(kit: Kit) -> tuple[Any, Feeds]:
    """An inner loop over a row, its sum carried by the outer one."""
    tf, x, w = kit.tf, kit.input("x", [None, None, FEATURES]), kit.variable("w", FEATURES)

    def row(i: Any, total: Any) -> Any:
        def step(j: Any, s: Any) -> Any:
            return j + 1, s * 0.9 + tf.tanh(tf.reduce_sum(x[i, j] * w))

        return i + 1, total + kit.repeat(lambda j, s: j < tf.shape(x)[1], step, [0, 0.0])[1]

    _, total = kit.repeat(lambda i, s: i < tf.shape(x)[0], row, [0, 0.0])
    return tf.square(total), [{x: kit.normal(B, T, FEATURES)} for B, T in SIZES]


@form
def two_in_a_row(kit: Kit) -> tuple[Any, Feeds]:
    """The second loop begins with what the first one ends with, an encoder and a decoder."""
    tf, data, w, u = kit.tf, kit.data(), kit.kernel(), kit.kernel("u", UNITS)
    made = tf.TensorArray("float32", data.steps)
    _, h = kit.repeat(
        lambda t, h: t < data.steps,
        lambda t, h: (t + 1, kit.dense(tf.gather(data.by_time, t), h, w)),
        [0, kit.start(data.x)],
    )

    def write(t: Any, h: Any, made: Any) -> Any:
        h = tf.tanh(tf.matmul(h, u))
        return t + 1, h, made.write(t, h)

    _, _, made = kit.repeat(lambda t, *_: t < data.steps, write, [0, h, made])
    return kit.error(tf.transpose(made.stack(), [1, 0, 2]), data.y), data.feeds()


@form
def side_by_side(kit: Kit) -> tuple[Any, Feeds]:
    """Two loops that share a weight."""
    tf, data, w = kit.tf, kit.data(), kit.kernel()

    def run(xs: Any) -> Any:
        return kit.repeat(
            lambda t, h: t < data.steps, lambda t, h: (t + 1, kit.dense(tf.gather(xs, t), h, w)), [0, kit.start(data.x)]
        )[1]

    return kit.error(run(data.by_time) * run(tf.reverse(data.by_time, [0])), data.y[:, 0]), data.feeds()


@form
def growing(kit: Kit) -> tuple[Any, Feeds]:
    """The shape of what is carried grows."""
    tf, x, w, n = (
        kit.tf,
        kit.input("x", [None, FEATURES]),
        kit.variable("w", FEATURES, FEATURES),
        kit.input("n", [], "int32"),
    )
    invariants = (tf.TensorShape([]), tf.TensorShape([None, FEATURES]))
    _, found = kit.repeat(
        lambda i, a: i < n, lambda i, a: (i + 1, tf.concat([a, tf.tanh(tf.matmul(a[-1:], w))], 0)), [0, x],
        shape_invariants=invariants,
    )  # fmt: skip
    return kit.error(found, 0.5), [{x: kit.normal(2, FEATURES), n: np.int32(k)} for k in (3, 0, 5)]


@form
def bools_and_integers(kit: Kit) -> tuple[Any, Feeds]:
    """Carried besides the state: a mask, counts per row, a sum in int64."""
    tf, data, w = kit.tf, kit.data(), kit.kernel()

    def body(t: Any, h: Any, done: Any, steps: Any, total: Any) -> Any:
        new = kit.dense(tf.gather(data.by_time, t), h, w)
        h = tf.where(tf.tile(tf.expand_dims(done, 1), [1, UNITS]), h, new)
        done = tf.logical_or(done, tf.reduce_sum(h, 1) > 0.9)
        steps += tf.cast(tf.logical_not(done), tf.int32)
        return t + 1, h, done, steps, total + tf.cast(tf.reduce_sum(steps), tf.int64)

    B = tf.shape(data.x)[0]
    start = [0, kit.start(data.x), tf.zeros([B], tf.bool), tf.zeros([B], tf.int32), tf.constant(0, tf.int64)]
    _, h, _, steps, total = kit.repeat(lambda t, *_: t < data.steps, body, start)
    weight = 1 + tf.cast(steps, tf.float32) / (1 + tf.cast(total, tf.float32))
    return tf.reduce_mean(tf.square(h - data.y[:, 0]) * tf.expand_dims(weight, 1)), data.feeds()


@form
def swapped(kit: Kit) -> tuple[Any, Feeds]:
    """Two states that change places in every iteration."""
    tf, data, w = kit.tf, kit.data(), kit.kernel()
    _, a, b = kit.repeat(
        lambda t, a, b: t < data.steps,
        lambda t, a, b: (t + 1, b, kit.dense(tf.gather(data.by_time, t), a, w)),
        [0, kit.start(data.x), kit.start(data.x) + 0.3],
    )
    return kit.error(a - 2 * b, data.y[:, 0]), data.feeds()


@form
def greedy_beam(kit: Kit) -> tuple[Any, Feeds]:
    """A beam search runs beside the training: top-k, gathers of states, growing sequences of ids."""
    tf, data, w, e = kit.tf, kit.data(), kit.kernel(), kit.variable("e", 6, FEATURES)
    out = kit.variable("out", UNITS, 6)

    def step(ids: Any, h: Any) -> tuple[Any, Any]:
        h = kit.dense(tf.gather(e, ids), h, w)
        return h, tf.nn.log_softmax(tf.matmul(h, out))

    def body(t: Any, ids: Any, h: Any, scores: Any, text: Any) -> Any:
        h, logits = step(ids, h)
        scores, best = tf.nn.top_k(tf.reshape(tf.expand_dims(scores, 1) + logits, [-1]), 3)
        origin, ids = best // 6, best % 6
        text = tf.concat([tf.gather(text, origin), tf.expand_dims(ids, 1)], 1)
        return t + 1, ids, tf.gather(h, origin), scores, text

    start = [0, tf.constant([0, 1, 2]), tf.zeros([3, UNITS]), tf.zeros([3]), tf.zeros([3, 0], tf.int32)]
    shapes = tuple(tf.TensorShape(s) for s in ([], [3], [3, UNITS], [3], [3, None]))
    *_, text = kit.repeat(lambda t, *_: t < data.steps, body, start, shape_invariants=shapes, back_prop=False)
    h, logits = step(tf.stop_gradient(text[:, -1]), tf.zeros([3, UNITS]))
    return tf.reduce_mean(tf.square(h)) - tf.reduce_mean(logits), data.feeds()
