"""Branches in loops, around them and in each other."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.tensorflow.loops.kit import FEATURES, UNITS, Feeds, Forms, Kit

BRANCHES = Forms()
form = BRANCHES.add


def _outside(kit: Kit, choose: Any, values: tuple[Any, ...], dtype: str = "bool") -> tuple[Any, Feeds]:
    """What a branch around a matrix product gives; the choice changes from step to step."""
    given, chosen = kit.input("choice", [], dtype), list(values)
    data = kit.data(lambda B, T: {given: np.array(chosen.pop(0), dtype)})
    z = kit.tf.einsum("bti,ih->bth", data.x, kit.variable("w", FEATURES, UNITS))
    return kit.error(choose(given, z), data.y), data.feeds()


@form
def cond_outside(kit: Kit) -> tuple[Any, Feeds]:
    tf, u = kit.tf, kit.variable("u", UNITS, UNITS)
    return _outside(
        kit, lambda p, z: tf.cond(p, lambda: tf.tanh(tf.einsum("bti,ih->bth", z, u)), lambda: tf.sigmoid(z) * 0.5),
        (True, False, True),
    )  # fmt: skip


@form
def cond_nested(kit: Kit) -> tuple[Any, Feeds]:
    tf, u = kit.tf, kit.variable("u", UNITS, UNITS)

    def choose(n: Any, z: Any) -> Any:
        def inner() -> Any:
            return tf.cond(n > 2, lambda: tf.tanh(tf.einsum("bti,ih->bth", z, u)), lambda: tf.sigmoid(z) * 0.5)

        return tf.cond(n > 1, inner, lambda: tf.square(z) - tf.reduce_mean(u))

    return _outside(kit, choose, (3, 2, 1), "int32")


@form
def cond_outputs(kit: Kit) -> tuple[Any, Feeds]:
    """Outputs of different ranks, one of them not differentiable."""
    tf, u = kit.tf, kit.variable("u", UNITS, UNITS)

    def choose(p: Any, z: Any) -> Any:
        a, b, n = tf.cond(
            p,
            lambda: (tf.tanh(tf.einsum("bti,ih->bth", z, u)), tf.reduce_sum(z, [0, 1]), tf.shape(z)[1]),
            lambda: (z * 0.5, tf.reduce_max(z, [0, 1]) * u[0], tf.constant(2)),
        )
        return a + b / tf.cast(n, tf.float32)

    return _outside(kit, choose, (False, True, False))


@form
def cond_shapes(kit: Kit) -> tuple[Any, Feeds]:
    """The two sides give different numbers of rows."""
    tf, u = kit.tf, kit.variable("u", UNITS, UNITS)

    def choose(p: Any, z: Any) -> Any:
        return tf.reduce_mean(tf.cond(p, lambda: tf.einsum("bti,ih->bth", z, u), lambda: z[:, :2]), 1, keepdims=True)

    return _outside(kit, choose, (True, False, True))


@form
def cond_twice(kit: Kit) -> tuple[Any, Feeds]:
    """Two branches of one predicate, the second reads what the first gives."""
    tf, u = kit.tf, kit.variable("u", UNITS, UNITS)

    def choose(p: Any, z: Any) -> Any:
        z = tf.cond(p, lambda: tf.tanh(z), lambda: z * u[0])
        return tf.cond(p, lambda: z * u[1], lambda: tf.sigmoid(z))

    return _outside(kit, choose, (True, False, True))


@form
def cond_of_constants(kit: Kit) -> tuple[Any, Feeds]:
    """Neither side reads what stands outside but for the predicate."""
    tf = kit.tf
    return _outside(kit, lambda p, z: z * tf.cond(p, lambda: 0.5, lambda: 2.0), (True, False, True))


@form
def cond_of_data(kit: Kit) -> tuple[Any, Feeds]:
    tf, data, w = kit.tf, kit.data(), kit.variable("w", FEATURES, UNITS)
    z = tf.einsum("bti,ih->bth", data.x, w)
    return kit.error(tf.cond(tf.reduce_sum(z) > 0, lambda: tf.tanh(z), lambda: -z), data.y), data.feeds()


@form
def case(kit: Kit) -> tuple[Any, Feeds]:
    tf, u = kit.tf, kit.variable("u", UNITS, UNITS)

    def choose(n: Any, z: Any) -> Any:
        pairs = [(tf.equal(n, 0), lambda: tf.tanh(z)), (n > 1, lambda: tf.einsum("bti,ih->bth", z, u))]
        return kit.v1.case(pairs, default=lambda: z * u[0], exclusive=False)

    return _outside(kit, choose, (2, 0, 1), "int32")


@form
def switch_case(kit: Kit) -> tuple[Any, Feeds]:
    tf, u = kit.tf, kit.variable("u", UNITS, UNITS)

    def choose(n: Any, z: Any) -> Any:
        sides = [lambda: tf.tanh(z), lambda: tf.einsum("bti,ih->bth", z, u), lambda: z * u[0]]
        return tf.switch_case(n, sides, default=lambda: tf.square(z))

    return _outside(kit, choose, (2, 0, 7), "int32")


@form
def cond_inside_reads(kit: Kit) -> tuple[Any, Feeds]:
    """In each iteration one side reads the sequence, the other a weight."""
    tf, data, w, u = kit.tf, kit.data(), kit.kernel(), kit.kernel("u", UNITS)
    xs = tf.TensorArray("float32", data.steps, clear_after_read=False).unstack(data.by_time)

    def body(t: Any, h: Any) -> Any:
        return t + 1, tf.cond(
            tf.reduce_sum(h) > 0, lambda: kit.dense(xs.read(t), h, w), lambda: tf.tanh(tf.matmul(h, u) + 0.3)
        )

    _, h = kit.repeat(lambda t, h: t < data.steps, body, [0, kit.start(data.x) - 0.1])
    return kit.error(h, data.y[:, 0]), data.feeds()


@form
def cond_inside_nested(kit: Kit) -> tuple[Any, Feeds]:
    tf, data, w, u = kit.tf, kit.data(), kit.kernel(), kit.kernel("u", UNITS)

    def body(t: Any, h: Any) -> Any:
        h = kit.dense(tf.gather(data.by_time, t), h, w)

        def even() -> Any:
            return tf.cond(tf.reduce_sum(h) > 0, lambda: tf.tanh(tf.matmul(h, u)), lambda: h * u[0])

        return t + 1, tf.cond(tf.equal(t % 2, 0), even, lambda: tf.sin(h))

    _, h = kit.repeat(lambda t, h: t < data.steps, body, [0, kit.start(data.x)])
    return kit.error(h, data.y[:, 0]), data.feeds()


@form
def cond_inside_outputs(kit: Kit) -> tuple[Any, Feeds]:
    """A branch in a loop with several results, written to a TensorArray."""
    tf, data, w = kit.tf, kit.data(), kit.kernel()
    made = tf.TensorArray("float32", data.steps)

    def body(t: Any, h: Any, c: Any, made: Any) -> Any:
        new = kit.dense(tf.gather(data.by_time, t), h, w)
        h, c = tf.cond(t > 1, lambda: (new * c, tf.sigmoid(new)), lambda: (new, c + tf.square(new)))
        return t + 1, h, c, made.write(t, h + c)

    *_, made = kit.repeat(lambda t, *_: t < data.steps, body, [0, kit.start(data.x), kit.start(data.x), made])
    return kit.error(tf.transpose(made.stack(), [1, 0, 2]), data.y), data.feeds()


def _loop(kit: Kit, data: Any, w: Any) -> Any:
    return kit.repeat(
        lambda t, h: t < data.steps, lambda t, h: (t + 1, kit.dense(kit.tf.gather(data.by_time, t), h, w)),
        [0, kit.start(data.x)],
    )[1]  # fmt: skip


@form
def loop_in_cond(kit: Kit) -> tuple[Any, Feeds]:
    tf, p, chosen = kit.tf, kit.input("p", [], "bool"), [True, False, True]
    data, w = kit.data(lambda B, T: {p: np.array(chosen.pop(0))}), kit.kernel()
    h = tf.cond(p, lambda: _loop(kit, data, w), lambda: tf.tanh(tf.matmul(data.x[:, 0], w[:FEATURES])))
    return kit.error(h, data.y[:, 0]), data.feeds()


@form
def loops_in_cond(kit: Kit) -> tuple[Any, Feeds]:
    """Each side has a loop of its own."""
    tf, p, chosen = kit.tf, kit.input("p", [], "bool"), [True, False, True]
    data, w, u = kit.data(lambda B, T: {p: np.array(chosen.pop(0))}), kit.kernel(), kit.kernel("u")
    h = tf.cond(p, lambda: _loop(kit, data, w), lambda: _loop(kit, data, u) * 2)
    return kit.error(h, data.y[:, 0]), data.feeds()


@form
def rnn_in_cond(kit: Kit) -> tuple[Any, Feeds]:
    tf, p, chosen = kit.tf, kit.input("p", [], "bool"), [True, False, True]
    data = kit.data(lambda B, T: {p: np.array(chosen.pop(0))})
    w = kit.variable("w", FEATURES, UNITS)
    cell = kit.cells.GRUCell(UNITS)
    cell.build([None, FEATURES])

    def run() -> Any:
        return kit.v1.nn.dynamic_rnn(cell, data.x, dtype="float32")[0]

    return kit.error(tf.cond(p, run, lambda: tf.einsum("bti,ih->bth", data.x, w)), data.y), data.feeds()


@form
def loop_in_cond_in_loop(kit: Kit) -> tuple[Any, Feeds]:
    tf, data, w, u = kit.tf, kit.data(), kit.kernel(), kit.kernel("u", UNITS)

    def inner(h: Any) -> Any:
        return kit.repeat(lambda j, a: j < 3, lambda j, a: (j + 1, tf.tanh(tf.matmul(a, u))), [0, h])[1]

    def body(t: Any, h: Any) -> Any:
        h = kit.dense(tf.gather(data.by_time, t), h, w)
        return t + 1, tf.cond(tf.equal(t % 2, 1), lambda: inner(h), lambda: h * 0.7)

    _, h = kit.repeat(lambda t, h: t < data.steps, body, [0, kit.start(data.x)])
    return kit.error(h, data.y[:, 0]), data.feeds()


@form
def clock(kit: Kit) -> tuple[Any, Feeds]:
    """A clockwork cell: parts of the state move at every second and fourth step only."""
    tf, data, w = kit.tf, kit.data(), kit.kernel()

    def body(t: Any, h: Any) -> Any:
        new = kit.dense(tf.gather(data.by_time, t), h, w)
        moves = tf.concat([tf.ones([2]), tf.fill([2], tf.cast(tf.equal(t % 2, 0), tf.float32))], 0)
        return t + 1, moves * new + (1 - moves) * h

    _, h = kit.repeat(lambda t, h: t < data.steps, body, [0, kit.start(data.x)])
    return kit.error(h, data.y[:, 0]), data.feeds()


@form
def cond_inside_broadcast(kit: Kit) -> tuple[Any, Feeds]:
    """A branch that skips a step; what it keeps for its gradient has a size that operands are broadcast to."""
    tf, data, w = kit.tf, kit.data(), kit.kernel()

    def body(t: Any, h: Any, total: Any) -> Any:
        x = tf.gather(data.by_time, t)

        def step() -> Any:
            new = kit.dense(x, h, w)
            return new, total + kit.error(new, data.y[:, t])

        return t + 1, *tf.cond(tf.reduce_sum(x) < -1, lambda: (h, total), step)

    *_, total = kit.repeat(lambda t, *_: t < data.steps, body, [0, kit.start(data.x), 0.0])
    return total, data.feeds()


@form
def cond_inside_lengths(kit: Kit) -> tuple[Any, Feeds]:
    """A branch reads the state and what has a batch size of another name, which must be the same."""
    tf, ln = kit.tf, kit.input("lengths", [None], "int32")
    data, w = kit.data(lambda B, T: {ln: kit.lengths(B, T)}), kit.kernel()

    def body(t: Any, h: Any, total: Any) -> Any:
        live = tf.expand_dims(t < ln, 1)
        h = tf.where(live, kit.dense(data.x[:, t], h, w), h)
        error = h - data.y[:, t]
        return t + 1, h, total + tf.cond(
            tf.equal(t % 2, 0),
            lambda: tf.reduce_sum(tf.square(error) * tf.cast(live, tf.float32)), lambda: tf.reduce_sum(tf.abs(error)),
        )  # fmt: skip

    *_, total = kit.repeat(lambda t, *_: t < tf.reduce_max(ln), body, [0, kit.start(data.x), 0.0])
    return total / 10, data.feeds()
