"""What loops read from and write to: TensorArrays in all orders, `tf.map_fn` and `tf.scan`."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.tensorflow.loops.kit import FEATURES, SIZES, UNITS, Feeds, Forms, Kit

LISTS = Forms()
form = LISTS.add


@form
def backwards(kit: Kit) -> tuple[Any, Feeds]:
    tf, data, w = kit.tf, kit.data(), kit.kernel()
    T = data.steps
    xs, made = tf.TensorArray("float32", T).unstack(data.by_time), tf.TensorArray("float32", T)

    def body(t: Any, h: Any, made: Any) -> Any:
        h = kit.dense(xs.read(t), h, w)
        return t - 1, h, made.write(t, h * 2)

    *_, made = kit.repeat(lambda t, *_: t >= 0, body, [T - 1, kit.start(data.x), made], parallel_iterations=1)
    return kit.error(tf.transpose(made.stack(), [1, 0, 2]), data.y), data.feeds()


@form
def mirrored(kit: Kit) -> tuple[Any, Feeds]:
    """Read forwards, written backwards."""
    tf, data, w = kit.tf, kit.data(), kit.kernel()
    T = data.steps
    xs, made = tf.TensorArray("float32", T).unstack(data.by_time), tf.TensorArray("float32", T)

    def body(t: Any, h: Any, made: Any) -> Any:
        h = kit.dense(xs.read(t), h, w)
        return t + 1, h, made.write(T - 1 - t, h)

    *_, made = kit.repeat(lambda t, *_: t < T, body, [0, kit.start(data.x), made])
    return kit.error(tf.transpose(made.stack(), [1, 0, 2]), data.y), data.feeds()


@form
def every_other(kit: Kit) -> tuple[Any, Feeds]:
    """Two places in every iteration are read and written."""
    tf, data, w = kit.tf, kit.data(), kit.kernel()
    T = 2 * ((data.steps + 1) // 2)
    padded = tf.pad(data.by_time, [[0, T - data.steps], [0, 0], [0, 0]])
    xs, made = tf.TensorArray("float32", T, clear_after_read=False).unstack(padded), tf.TensorArray("float32", T)

    def body(t: Any, h: Any, made: Any) -> Any:
        a = kit.dense(xs.read(t), h, w)
        b = kit.dense(xs.read(t + 1), a, w)
        return t + 2, b, made.write(t, a).write(t + 1, b)

    *_, made = kit.repeat(lambda t, *_: t < T, body, [0, kit.start(data.x), made])
    return kit.error(tf.transpose(made.stack(), [1, 0, 2])[:, : data.steps], data.y), data.feeds()


@form
def looks_back(kit: Kit) -> tuple[Any, Feeds]:
    """An iteration reads what the one before has written: a list that must be carried."""
    tf, data, w = kit.tf, kit.data(), kit.kernel()
    T = data.steps
    made = tf.TensorArray("float32", T + 1, clear_after_read=False, element_shape=[None, UNITS]).write(
        0, kit.start(data.x)
    )

    def body(t: Any, made: Any) -> Any:
        return t + 1, made.write(t + 1, kit.dense(tf.gather(data.by_time, t), made.read(t), w))

    _, made = kit.repeat(lambda t, *_: t < T, body, [0, made])
    return kit.error(tf.transpose(made.stack()[1:], [1, 0, 2]), data.y), data.feeds()


@form
def by_index(kit: Kit) -> tuple[Any, Feeds]:
    """Read at places that are data, some of them several times."""
    tf, places = kit.tf, kit.input("places", [None], "int32")
    data, w = kit.data(lambda B, T: {places: kit.integers(0, T, T)}), kit.kernel()
    xs = tf.TensorArray("float32", data.steps, clear_after_read=False).unstack(kit.tf.tanh(data.by_time * w[0, :3]))

    def body(t: Any, h: Any) -> Any:
        return t + 1, kit.dense(xs.read(places[t]), h, w)

    _, h = kit.repeat(lambda t, *_: t < data.steps, body, [0, kit.start(data.x)])
    return kit.error(h, data.y[:, 0]), data.feeds()


@form
def scattered_and_gathered(kit: Kit) -> tuple[Any, Feeds]:
    tf, order = kit.tf, kit.input("order", [None], "int32")
    data, w = kit.data(lambda B, T: {order: kit.rng.permutation(T).astype("int32")}), kit.kernel()
    T = data.steps
    xs, made = tf.TensorArray("float32", T).scatter(order, data.by_time), tf.TensorArray("float32", T)

    def body(t: Any, h: Any, made: Any) -> Any:
        h = kit.dense(xs.read(t), h, w)
        return t + 1, h, made.write(t, h)

    *_, made = kit.repeat(lambda t, *_: t < T, body, [0, kit.start(data.x), made])
    return kit.error(tf.transpose(made.gather(order), [1, 0, 2]), data.y), data.feeds()


@form
def concatenated(kit: Kit) -> tuple[Any, Feeds]:
    tf, data, w = kit.tf, kit.data(), kit.kernel()
    T = data.steps
    made = tf.TensorArray("float32", T, element_shape=[None, UNITS], infer_shape=True)

    def body(t: Any, h: Any, made: Any) -> Any:
        h = kit.dense(tf.gather(data.by_time, t), h, w)
        return t + 1, h, made.write(t, h)

    *_, made = kit.repeat(lambda t, *_: t < T, body, [0, kit.start(data.x), made])
    return kit.error(made.concat(), tf.reshape(tf.transpose(data.y, [1, 0, 2]), [-1, UNITS])), data.feeds()


@form
def split_evenly(kit: Kit) -> tuple[Any, Feeds]:
    tf, data, w = kit.tf, kit.data(), kit.kernel()
    T, B = data.steps, tf.shape(data.x)[0]
    flat = tf.reshape(data.by_time, [-1, FEATURES]) * w[0, 0]
    xs = tf.TensorArray("float32", T, element_shape=[None, FEATURES]).split(flat, tf.fill([T], B))
    _, h = kit.repeat(lambda t, *_: t < T, lambda t, h: (t + 1, kit.dense(xs.read(t), h, w)), [0, kit.start(data.x)])
    return kit.error(h, data.y[:, 0]), data.feeds()


@form
def vectors_and_numbers(kit: Kit) -> tuple[Any, Feeds]:
    """TensorArrays of vectors, of numbers, of integers and of bools."""
    tf, data, w = kit.tf, kit.data(), kit.kernel()
    T = data.steps
    sums = tf.TensorArray("float32", T)
    counts, flags, means = tf.TensorArray("int32", T), tf.TensorArray("bool", T), tf.TensorArray("float32", T)

    def body(t: Any, h: Any, sums: Any, counts: Any, flags: Any, means: Any) -> Any:
        h = kit.dense(tf.gather(data.by_time, t), h, w)
        total = tf.reduce_sum(h, 1)
        positive = tf.reduce_sum(tf.cast(h > 0, tf.int32))
        return (
            t + 1, h, sums.write(t, total), counts.write(t, positive), flags.write(t, positive > 3),
            means.write(t, tf.reduce_mean(h)),
        )  # fmt: skip

    start = [0, kit.start(data.x), sums, counts, flags, means]
    _, h, sums, counts, flags, means = kit.repeat(lambda t, *_: t < T, body, start)
    weight = tf.where(flags.stack(), tf.ones([T]), 0.5 * tf.ones([T])) / tf.cast(1 + counts.stack(), tf.float32)
    total = tf.reduce_mean(tf.square(sums.stack()) * tf.expand_dims(weight, 1))
    return total + tf.reduce_mean(means.stack() * weight) + kit.error(h, data.y[:, 0]), data.feeds()


@form
def last_only(kit: Kit) -> tuple[Any, Feeds]:
    """Only the last element of what is written counts."""
    tf, data, w = kit.tf, kit.data(), kit.kernel()
    T = data.steps
    made = tf.TensorArray("float32", T, clear_after_read=False)

    def body(t: Any, h: Any, made: Any) -> Any:
        h = kit.dense(tf.gather(data.by_time, t), h, w)
        return t + 1, h, made.write(t, h)

    *_, made = kit.repeat(lambda t, *_: t < T, body, [0, kit.start(data.x), made])
    return kit.error(made.read(T - 1), data.y[:, 0]), data.feeds()


@form
def map_fn(kit: Kit) -> tuple[Any, Feeds]:
    tf, data, w = kit.tf, kit.data(), kit.variable("w", FEATURES, UNITS)
    return kit.error(tf.map_fn(lambda a: tf.tanh(tf.matmul(a, w)), data.x), data.y), data.feeds()


@form
def map_fn_several(kit: Kit) -> tuple[Any, Feeds]:
    tf, data, w = kit.tf, kit.data(), kit.variable("w", FEATURES, UNITS)
    made = tf.map_fn(
        lambda pair: (tf.tanh(tf.matmul(pair[0], w)) - pair[1], tf.reduce_sum(pair[1]), tf.shape(pair[0])[0]),
        (data.x, data.y), dtype=(tf.float32, tf.float32, tf.int32), parallel_iterations=3,
    )  # fmt: skip
    return tf.reduce_mean(tf.square(made[0])) + tf.reduce_mean(made[1] * tf.cast(made[2], tf.float32)), data.feeds()


@form
def map_fn_nested(kit: Kit) -> tuple[Any, Feeds]:
    tf, data, w = kit.tf, kit.data(), kit.variable("w", FEATURES, UNITS)

    def row(a: Any) -> Any:
        return tf.map_fn(lambda b: tf.tanh(tf.linalg.matvec(w, b, transpose_a=True)), a)

    return kit.error(tf.map_fn(row, data.x), data.y), data.feeds()


@form
def scan_pair(kit: Kit) -> tuple[Any, Feeds]:
    tf, data, w = kit.tf, kit.data(), kit.variable("w", FEATURES + UNITS, 2 * UNITS)

    def step(state: Any, x: Any) -> Any:
        a, b = tf.split(tf.matmul(tf.concat([x, state[0]], 1), w), 2, 1)
        c = tf.sigmoid(a) * state[1] + tf.tanh(b)
        return tf.tanh(c), c

    h, c = tf.scan(step, data.by_time, initializer=(kit.start(data.x), kit.start(data.x)))
    return kit.error(tf.transpose(h, [1, 0, 2]), data.y) + tf.reduce_mean(tf.square(c)), data.feeds()


@form
def scan_reverse(kit: Kit) -> tuple[Any, Feeds]:
    tf, data, w = kit.tf, kit.data(), kit.kernel()
    made = tf.scan(lambda h, x: kit.dense(x, h, w), data.by_time, kit.start(data.x), reverse=True)
    return kit.error(tf.transpose(made, [1, 0, 2]), data.y), data.feeds()


@form
def scan_unstarted(kit: Kit) -> tuple[Any, Feeds]:
    """Without an initializer the first element is the first result."""
    tf, data, w = kit.tf, kit.data(), kit.variable("w", FEATURES, FEATURES)
    made = tf.scan(lambda h, x: tf.tanh(tf.matmul(h, w) + x), data.by_time)
    return kit.error(tf.transpose(made, [1, 0, 2]), data.y[:, :, :3]), data.feeds()


@form
def foldl_and_foldr(kit: Kit) -> tuple[Any, Feeds]:
    tf, data, w = kit.tf, kit.data(), kit.kernel()
    step = lambda h, x: kit.dense(x, h, w)  # noqa: E731
    left = tf.foldl(step, data.by_time, kit.start(data.x))
    right = tf.foldr(step, data.by_time, kit.start(data.x))
    return kit.error(left + right, data.y[:, 0]), data.feeds()


@form
def gathered_embedding(kit: Kit) -> tuple[Any, Feeds]:
    """An embedding read in the loop: its gradient is rows with indices."""
    tf, ids, y = kit.tf, kit.input("ids", [None, None], "int32"), kit.input("y", [None, UNITS])
    e, w = kit.variable("e", 11, FEATURES), kit.kernel()

    def body(t: Any, h: Any) -> Any:
        return t + 1, kit.dense(tf.nn.embedding_lookup(e, ids[:, t]), h, w)

    _, h = kit.repeat(lambda t, h: t < tf.shape(ids)[1], body, [0, tf.zeros([tf.shape(ids)[0], UNITS])])
    return kit.error(h, y), [{ids: kit.integers(0, 11, B, T), y: kit.normal(B, UNITS)} for B, T in SIZES]


@form
def appended(kit: Kit) -> tuple[Any, Feeds]:
    """A TensorArray that grows behind what is there already, no iteration in one step."""
    tf, x, n, w = (
        kit.tf,
        kit.input("x", [2, FEATURES]),
        kit.input("n", [], "int32"),
        kit.variable("w", FEATURES, FEATURES),
    )
    made = tf.TensorArray("float32", 1, dynamic_size=True, element_shape=[2, FEATURES], clear_after_read=False).write(
        0, x
    )

    def body(t: Any, h: Any, made: Any) -> Any:
        h = tf.tanh(tf.matmul(h, w))
        return t + 1, h, made.write(made.size(), h)

    *_, made = kit.repeat(lambda t, *_: t < n, body, [0, x, made])
    return kit.error(made.stack(), 0.4), [{x: kit.normal(2, FEATURES), n: np.int32(k)} for k in (3, 0, 5)]
