"""Elements of different shapes, lists of lists, and loops, branches and lists in each other to some depth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.tensorflow.loops.kit import FEATURES, UNITS, Feeds, Forms, Kit

UNEVEN = Forms()
form = UNEVEN.add


def _pieces(kit: Kit, build: Callable[..., Any]) -> tuple[Any, Feeds]:
    """A loss of sequences `x`, the lengths of pieces of their first one, and a weight."""
    lengths = kit.input("lengths", [None], "int32")
    data = kit.data(lambda B, T: {lengths: kit.integers(1, T + 1, T)})
    return build(data, lengths, kit.variable("w", FEATURES, UNITS)), data.feeds()


def _written(kit: Kit, data: Any, lengths: Any, w: Any, start: Any, step: int) -> Any:
    """Pieces of different lengths, written one by one."""
    tf, T = kit.tf, data.steps
    made = tf.TensorArray("float32", T, infer_shape=False, element_shape=[None, UNITS])

    def body(t: Any, total: Any, made: Any) -> Any:
        piece = tf.tanh(tf.matmul(data.x[0, : lengths[t]], w) + total)
        return t + step, total + tf.reduce_mean(piece), made.write(t, piece)

    *_, made = kit.repeat(lambda t, *_: tf.logical_and(t >= 0, t < T), body, [start, 0.0, made])
    return made


@form
def uneven_concatenated(kit: Kit) -> tuple[Any, Feeds]:
    return _pieces(
        kit, lambda data, lengths, w: kit.error(_written(kit, data, lengths, w, 0, 1).concat(), data.y[:1, 0])
    )


@form
def uneven_backwards(kit: Kit) -> tuple[Any, Feeds]:
    return _pieces(
        kit,
        lambda data, lengths, w: kit.error(_written(kit, data, lengths, w, data.steps - 1, -1).concat(), data.y[:1, 0]),
    )


@form
def uneven_read(kit: Kit) -> tuple[Any, Feeds]:
    """One loop writes pieces of different lengths, another reads them."""

    def build(data: Any, lengths: Any, w: Any) -> Any:
        made = _written(kit, data, lengths, w, 0, 1)
        return kit.repeat(
            lambda t, s: t < data.steps,
            lambda t, s: (t + 1, s * 0.5 + kit.tf.reduce_mean(kit.tf.tanh(made.read(t) - s))),
            [0, 0.0],
        )[1]

    return _pieces(kit, build)


@form
def uneven_split(kit: Kit) -> tuple[Any, Feeds]:
    def build(data: Any, lengths: Any, w: Any) -> Any:
        tf = kit.tf
        values = tf.matmul(tf.tile(data.x[0], [data.steps, 1])[: tf.reduce_sum(lengths)], w)
        pieces = tf.TensorArray("float32", data.steps, infer_shape=False, element_shape=[None, UNITS]).split(
            values, lengths
        )

        def body(t: Any, h: Any) -> Any:
            return t + 1, tf.tanh(h + tf.reduce_sum(pieces.read(t), 0))

        _, h = kit.repeat(lambda t, h: t < data.steps, body, [0, tf.zeros([UNITS])])
        return kit.error(h, data.y[:, 0])

    return _pieces(kit, build)


def _powers(kit: Kit, body: Callable[[Any, Any, Any], Any], shape: list[int | None]) -> tuple[Any, Feeds]:
    """A state whose shape changes."""
    x, n, w = kit.input("x", [3, FEATURES]), kit.input("n", [], "int32"), kit.variable("w", FEATURES, FEATURES)
    _, found = kit.repeat(
        lambda i, a: i < n, lambda i, a: (i + 1, body(i, a, w)), [0, x],
        shape_invariants=(kit.tf.TensorShape([]), kit.tf.TensorShape(shape)),
    )  # fmt: skip
    return kit.error(found, 0.5), [{x: kit.normal(3, FEATURES), n: np.int32(k)} for k in (2, 0, 1)]


@form
def growing_columns(kit: Kit) -> tuple[Any, Feeds]:
    tf = kit.tf
    return _powers(kit, lambda i, a, w: tf.concat([a, tf.tanh(tf.matmul(a[:, -FEATURES:], w))], 1), [3, None])


@form
def shrinking(kit: Kit) -> tuple[Any, Feeds]:
    return _powers(kit, lambda i, a, w: kit.tf.tanh(kit.tf.matmul(a[1:], w)), [None, FEATURES])


@form
def growing_at_times(kit: Kit) -> tuple[Any, Feeds]:
    tf = kit.tf
    return _powers(
        kit,
        lambda i, a, w: tf.cond(
            tf.equal(i % 2, 0), lambda: tf.concat([a, tf.tanh(tf.matmul(a[-1:], w))], 0), lambda: tf.sin(a)
        ),
        [None, FEATURES],
    )


def _outer(kit: Kit, inner: Callable[..., Any]) -> tuple[Any, Feeds]:
    """A loop over the steps of `h = inner(t, h, u)`."""
    tf, data, w, u = kit.tf, kit.data(), kit.kernel(), kit.kernel("u", UNITS)

    def body(t: Any, h: Any) -> Any:
        return t + 1, inner(t, kit.dense(tf.gather(data.by_time, t), h, w), u)

    _, h = kit.repeat(lambda t, h: t < data.steps, body, [0, kit.start(data.x)])
    return kit.error(h, data.y[:, 0]), data.feeds()


@form
def growing_nested(kit: Kit) -> tuple[Any, Feeds]:
    tf = kit.tf

    def inner(t: Any, h: Any, u: Any) -> Any:
        _, found = kit.repeat(
            lambda j, a: j < 2, lambda j, a: (j + 1, tf.concat([a, tf.tanh(tf.matmul(a[:1], u))], 0)), [0, h],
            shape_invariants=(tf.TensorShape([]), tf.TensorShape([None, UNITS])),
        )  # fmt: skip
        return h + tf.reduce_mean(found, 0, keepdims=True)

    return _outer(kit, inner)


def _repeated(kit: Kit, count: Any, u: Any, h: Any) -> Any:
    tf = kit.tf
    return kit.repeat(lambda j, a: j < count, lambda j, a: (j + 1, tf.tanh(tf.matmul(a, u))), [0, h])[1]


@form
def nested_thrice_uneven(kit: Kit) -> tuple[Any, Feeds]:
    def middle(t: Any, h: Any, u: Any) -> Any:
        return kit.repeat(
            lambda j, a: j < t % 3, lambda j, a: (j + 1, _repeated(kit, (t + j) % 3, u, a * 0.9)), [0, h]
        )[1]

    return _outer(kit, middle)


@form
def loop_in_nested_conds_in_loop(kit: Kit) -> tuple[Any, Feeds]:
    tf = kit.tf

    def inner(t: Any, h: Any, u: Any) -> Any:
        def odd() -> Any:
            return tf.cond(tf.reduce_sum(h) > 0, lambda: _repeated(kit, t, u, h), lambda: h * u[0])

        return tf.cond(tf.equal(t % 2, 1), odd, lambda: tf.sin(h))

    return _outer(kit, inner)


@form
def loops_on_both_sides(kit: Kit) -> tuple[Any, Feeds]:
    tf = kit.tf
    return _outer(
        kit,
        lambda t, h, u: tf.cond(
            tf.equal(t % 2, 1), lambda: _repeated(kit, t, u, h), lambda: _repeated(kit, 2, u * 0.5, h * 0.7)
        ),
    )


@form
def cond_in_loop_in_cond_in_loop(kit: Kit) -> tuple[Any, Feeds]:
    tf = kit.tf

    def inner(t: Any, h: Any, u: Any) -> Any:
        def step(j: Any, a: Any) -> Any:
            return j + 1, tf.cond(tf.equal(j, 1), lambda: tf.tanh(tf.matmul(a, u)), lambda: tf.sin(a) * u[0])

        return tf.cond(tf.equal(t % 2, 1), lambda: kit.repeat(lambda j, a: j < t, step, [0, h])[1], lambda: h * 0.7)

    return _outer(kit, inner)


@form
def loop_in_cond_in_loop_in_cond(kit: Kit) -> tuple[Any, Feeds]:
    tf, p, chosen = kit.tf, kit.input("p", [], "bool"), [True, False, True]
    data, w, u = kit.data(lambda B, T: {p: np.array(chosen.pop(0))}), kit.kernel(), kit.kernel("u", UNITS)

    def body(t: Any, h: Any) -> Any:
        h = kit.dense(tf.gather(data.by_time, t), h, w)
        return t + 1, tf.cond(tf.equal(t % 2, 1), lambda: _repeated(kit, t, u, h), lambda: h * 0.7)

    h = tf.cond(
        p, lambda: kit.repeat(lambda t, h: t < data.steps, body, [0, kit.start(data.x)])[1],
        lambda: tf.matmul(data.x[:, 0], w[:FEATURES]),
    )  # fmt: skip
    return kit.error(h, data.y[:, 0]), data.feeds()


@form
def map_fn_in_scan(kit: Kit) -> tuple[Any, Feeds]:
    tf, data, w = kit.tf, kit.data(), kit.kernel()

    def step(h: Any, x: Any) -> Any:
        return tf.map_fn(
            lambda pair: tf.tanh(tf.linalg.matvec(w, tf.concat(pair, 0), transpose_a=True)), (x, h), dtype=tf.float32
        )

    made = tf.scan(step, data.by_time, kit.start(data.x))
    return kit.error(tf.transpose(made, [1, 0, 2]), data.y), data.feeds()


@form
def map_fn_thrice(kit: Kit) -> tuple[Any, Feeds]:
    tf, data, w = kit.tf, kit.data(), kit.variable("w", FEATURES)
    made = tf.map_fn(lambda a: tf.map_fn(lambda b: tf.map_fn(lambda c: tf.tanh(c * w[0]), b), a), data.x)
    return kit.error(made, 0.3) + tf.reduce_sum(tf.square(w)), data.feeds()


@form
def map_fn_in_cond_in_loop(kit: Kit) -> tuple[Any, Feeds]:
    tf = kit.tf

    def inner(t: Any, h: Any, u: Any) -> Any:
        mapped = lambda: tf.map_fn(lambda a: tf.tanh(tf.linalg.matvec(u, a)), h)  # noqa: E731
        return tf.cond(tf.equal(t % 2, 1), mapped, lambda: h * 0.7)

    return _outer(kit, inner)


@form
def rnn_in_map_fn(kit: Kit) -> tuple[Any, Feeds]:
    tf, data = kit.tf, kit.data()
    cell = kit.cells.GRUCell(UNITS)
    cell.build([None, FEATURES])

    def run(a: Any) -> Any:
        return kit.v1.nn.dynamic_rnn(cell, tf.expand_dims(a, 0), dtype="float32")[0][0]

    return kit.error(tf.map_fn(run, data.x), data.y), data.feeds()


@form
def list_in_cond_in_loop(kit: Kit) -> tuple[Any, Feeds]:
    """In some iterations an inner loop makes a list, which another one reads."""
    tf = kit.tf

    def inner(t: Any, h: Any, u: Any) -> Any:
        def listed() -> Any:
            made = tf.TensorArray("float32", t, clear_after_read=False)

            def write(j: Any, a: Any, made: Any) -> Any:
                a = tf.tanh(tf.matmul(a, u))
                return j + 1, a, made.write(j, a)

            _, a, made = kit.repeat(lambda j, *_: j < t, write, [0, h, made])
            return kit.repeat(lambda j, s: j < t, lambda j, s: (j + 1, s * 0.8 + made.read(t - 1 - j)), [0, a])[1]

        return tf.cond(tf.equal(t % 2, 1), listed, lambda: h * 0.7)

    return _outer(kit, inner)


@form
def total_of_pieces(kit: Kit) -> tuple[Any, Feeds]:
    """In the loop alone the shapes differ, and only in some of the iterations."""
    tf = kit.tf

    def build(data: Any, lengths: Any, w: Any) -> Any:
        def body(t: Any, s: Any) -> Any:
            def piece() -> Any:
                return tf.reduce_mean(tf.tanh(tf.matmul(data.x[0, : lengths[t]], w)), 0)

            return t + 1, tf.cond(tf.equal(t % 2, 0), piece, lambda: s * 0.5) + s * 0.5

        return kit.error(kit.repeat(lambda t, s: t < data.steps, body, [0, tf.zeros([UNITS])])[1], data.y[:, 0])

    return _pieces(kit, build)


@form
def written_on_both_sides(kit: Kit) -> tuple[Any, Feeds]:
    tf, data, w, u = kit.tf, kit.data(), kit.kernel(), kit.kernel("u", UNITS)
    made = tf.TensorArray("float32", data.steps)

    def body(t: Any, h: Any, made: Any) -> Any:
        h = kit.dense(tf.gather(data.by_time, t), h, w)
        made = tf.cond(
            tf.equal(t % 2, 0), lambda: made.write(t, tf.tanh(tf.matmul(h, u))), lambda: made.write(t, h * 0.5)
        )
        return t + 1, h, made

    *_, made = kit.repeat(lambda t, *_: t < data.steps, body, [0, kit.start(data.x), made])
    return kit.error(tf.transpose(made.stack(), [1, 0, 2]), data.y), data.feeds()


@form
def pieces_read_on_one_side(kit: Kit) -> tuple[Any, Feeds]:
    """An inner loop with a branch that reads parts of the sequence, in a branch of an outer loop."""
    tf, data, w, u = kit.tf, kit.data(), kit.kernel(), kit.variable("u", FEATURES, UNITS)

    def body(t: Any, h: Any) -> Any:
        h = kit.dense(tf.gather(data.by_time, t), h, w)

        def step(j: Any, a: Any) -> Any:
            return j + 1, tf.cond(
                j > 0,
                lambda: tf.tanh(a + tf.matmul(data.by_time[j], u)),
                lambda: tf.sin(a + tf.matmul(data.x[:, j], u)),
            )

        return t + 1, tf.cond(
            tf.reduce_sum(h) > 0, lambda: kit.repeat(lambda j, a: j < t % 3, step, [0, h])[1], lambda: h * 0.9
        )

    _, h = kit.repeat(lambda t, h: t < data.steps, body, [0, kit.start(data.x)])
    return kit.error(h, data.y[:, 0]), data.feeds()
