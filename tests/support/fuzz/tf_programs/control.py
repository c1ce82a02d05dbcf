"""Loops, branches, calls and lists, nested."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tests.support.fuzz.tf_programs.registry import idea
from tests.support.fuzz.tf_programs.scope import Scope, Value

# Of a tensor, others of outside and its sizes: a tensor of the same sizes whose elements stay small.
Piece = Callable[[Any, Sequence[Any]], Any]

UNARY: list[Callable[[Any], Any]] = [
    tf.tanh, tf.sin, tf.sigmoid, tf.nn.softsign, lambda a: 0.5 * a + 0.1, lambda a: tf.nn.relu(tf.tanh(a)), tf.identity,
    lambda a: tf.tanh(a) * tf.stop_gradient(tf.cos(a)), lambda a: tf.clip_by_value(a, -0.8, 0.7),
    lambda a: tf.sqrt(tf.abs(a) + 0.1), lambda a: tf.zeros_like(a) + 0.3, lambda a: tf.minimum(a, 0.9) * 0.7,
]  # fmt: skip


def piece(draw: random.Random, shape: tuple[int, ...], depth: int) -> Piece:
    """A random function of a tensor of this shape and of others from outside."""
    simple = ["unary", "unary", "outside", "mix"] + ["rows", "matrix", "layout"] * bool(shape and min(shape) > 0)
    deep = ["chain", "chain", "cond", "case", "loop", "where", "call", "array", "until"]
    deep += ["map", "scan", "fold"] * bool(shape and shape[0] > 0)
    kind = draw.choice(simple if depth <= 0 else simple + 2 * deep)
    if kind in ("unary", "outside", "mix"):
        return _small(draw, kind)
    if kind in ("rows", "matrix", "layout"):
        return _laid_out(draw, kind, shape)
    if kind in ("map", "scan", "fold"):
        return _over_rows(draw, kind, shape, depth)
    return _structured(draw, kind, shape, depth)


def _small(draw: random.Random, kind: str) -> Piece:
    function, place = draw.choice(UNARY), draw.randrange(4)
    if kind == "unary":
        return lambda a, others: function(a)

    def outside(a: Any, others: Sequence[Any]) -> Any:
        other = tf.cast(others[place % len(others)], a.dtype) if others else a
        other = tf.tanh(tf.reduce_mean(tf.reshape(other, [-1])))
        return function(a + other) if kind == "outside" else 0.5 * function(a) * other

    return outside


def _laid_out(draw: random.Random, kind: str, shape: tuple[int, ...]) -> Piece:
    axis = draw.randrange(len(shape))
    if kind == "rows":
        order = draw.sample(range(shape[axis]), shape[axis])
        return lambda a, others: tf.gather(a, order, axis=axis)
    if kind == "matrix":
        size = shape[-1]
        numbers = [[draw.uniform(-1, 1) for _ in range(size)] for _ in range(size)]
        return lambda a, others: tf.tanh(tf.tensordot(a, tf.cast(tf.constant(numbers), a.dtype), 1)) + 0 * a
    op = draw.choice([lambda a: tf.reverse(a, [axis]), lambda a: tf.roll(a, 1, axis), lambda a: tf.cumsum(a, axis) / 5,
                      lambda a: tf.nn.softmax(a, axis), lambda a: tf.sort(a, axis)])  # fmt: skip
    return lambda a, others: op(a)


def _over_rows(draw: random.Random, kind: str, shape: tuple[int, ...], depth: int) -> Piece:
    inner = piece(draw, shape[1:], depth - 1)
    reverse = draw.random() < 1 / 2
    match kind:
        case "map":
            return lambda a, others: tf.map_fn(lambda row: inner(row, others), a)
        case "scan":
            return lambda a, others: tf.scan(lambda s, row: 0.5 * inner(s, others) + 0.5 * row, a, reverse=reverse)
        case _:
            fold = tf.foldr if reverse else tf.foldl
            return lambda a, others: a + fold(lambda s, row: inner(s, others) * 0.5 + 0.3 * row, a)


def _structured(draw: random.Random, kind: str, shape: tuple[int, ...], depth: int) -> Piece:
    parts = [piece(draw, shape, depth - 1) for _ in range(draw.randint(2, 3))]
    first, second = parts[:2]
    limit = draw.uniform(-1, 1)
    count = draw.randint(0, 3)
    match kind:
        case "chain":

            def chain(a: Any, others: Sequence[Any]) -> Any:
                for part in parts:
                    a = part(a, others)
                return a

            return chain
        case "cond":
            return lambda a, others: tf.cond(
                tf.reduce_sum(a) > limit, lambda: first(a, others), lambda: second(a, [*others, a])
            )
        case "case":
            return lambda a, others: tf.switch_case(
                tf.cast(tf.reduce_sum(a) * 2, tf.int32), [lambda p=part: p(a, others) for part in parts]
            )
        case "where":
            return lambda a, others: tf.where(a > limit, first(a, others), second(a, others))
        case "call":
            return lambda a, others: tf.function(lambda b: first(b, others), autograph=False)(a)
        case "loop":

            def loop(a: Any, others: Sequence[Any]) -> Any:
                return tf.while_loop(
                    lambda i, b: i < count, lambda i, b: (i + 1, second(first(b, others), [*others, a])), (0, a)
                )[1]

            return loop
        case "until":

            def until(a: Any, others: Sequence[Any]) -> Any:
                return tf.while_loop(
                    lambda b, n: (tf.reduce_sum(b) < limit + 1) & (n < 4),
                    lambda b, n: (first(b, others) + 0.1, n + tf.where(tf.reduce_sum(b) > 0, 1, 2)),
                    (a, tf.constant(0)),
                    maximum_iterations=5,
                )[0]

            return until
        case _:
            return _array(draw, first, second)


def _array(draw: random.Random, first: Piece, second: Piece) -> Piece:
    """What a loop writes into a TensorArray, read by another or at once."""
    steps, form = draw.randint(1, 3), draw.choice(["stack", "read", "gather", "loop", "other way"])
    dynamic = draw.random() < 1 / 2

    def array(a: Any, others: Sequence[Any]) -> Any:
        made = tf.TensorArray(a.dtype, 0 if dynamic else steps, dynamic_size=dynamic, clear_after_read=False)

        def body(i: Any, b: Any, written: Any) -> Any:
            b = first(b, others)
            return i + 1, b, written.write(steps - 1 - i if form == "other way" and not dynamic else i, b)

        _, last, written = tf.while_loop(lambda i, *_: i < steps, body, (0, a, made))
        if form == "read":
            return written.read(steps - 1) + second(written.read(0), others)
        if form == "gather":
            return tf.reduce_mean(written.gather([steps - 1, 0]), 0)
        if form != "loop":
            return 0.5 * last + 0.5 * tf.reduce_mean(written.stack(), 0)
        read = tf.while_loop(
            lambda i, b: i >= 0, lambda i, b: (i - 1, second(b, others) + 0.5 * written.read(i)), (steps - 1, a)
        )
        return read[1]

    return array


def operands(scope: Scope, x: Value) -> list[Any]:
    """Values of outside, for a piece."""
    count = scope.draw.randint(0, 2)
    return [scope.pick("number", lambda value: value.sample.size > 0).tensor for _ in range(count)]


def suits(value: Value) -> bool:
    return 0 < value.sample.size <= 60


@idea(2)
def structure(scope: Scope) -> None:
    """One of the pieces, nested."""
    x = scope.pick("float", suits)
    depth = scope.draw.choice([0, 1, 1, 2, 3])
    scope.add(piece(scope.draw, x.shape, depth)(x.tensor, operands(scope, x)))


@idea(2)
def sequence(scope: Scope) -> None:
    """A loop over the rows of a value with a state, that keeps what it computes."""
    x = scope.pick("float", lambda value: suits(value) and value.rank > 1)
    draw = scope.draw
    first, second = piece(draw, x.shape[1:], 1), piece(draw, x.shape[1:], 1)
    others = operands(scope, x)
    steps = tf.shape(x.tensor)[0]
    rows = tf.TensorArray(x.tensor.dtype, steps, element_shape=x.tensor.shape[1:]).unstack(x.tensor)
    kept = tf.TensorArray(x.tensor.dtype, steps)
    way = draw.choice(["all", "all", "back", "lengths"])
    lengths = draw.randint(1, x.shape[0])

    def body(i: Any, state: Any, written: Any) -> Any:
        place = steps - 1 - i if way == "back" else i
        row = rows.read(place) if draw_read else tf.gather(x.tensor, place)
        new = first(state, others) * 0.6 + second(row, [*others, state]) * 0.4
        if way == "lengths":
            new = tf.where(i < lengths, new, state)
        return i + 1, new, written.write(place, new)

    draw_read = draw.random() < 1 / 2
    options = {"parallel_iterations": draw.choice([1, 10]), "swap_memory": draw.random() < 1 / 4}
    if draw.random() < 1 / 3:
        options["maximum_iterations"] = steps
    _, last, written = tf.while_loop(lambda i, *_: i < steps, body, (0, tf.zeros_like(x.tensor[0]), kept), **options)
    scope.add(last, written.stack())


@idea(1)
def scanned(scope: Scope) -> None:
    """scan, map_fn and folds over two values with a structure."""
    x = scope.pick("float", lambda value: suits(value) and value.rank > 1)
    y = scope.like(x)
    draw = scope.draw
    first, second = piece(draw, x.shape[1:], 1), piece(draw, x.shape[1:], 1)
    others = operands(scope, x)
    pair = (x.tensor, y.tensor)
    match draw.choice(["scan", "map", "fold", "vectorized"]):
        case "scan":
            start = (tf.zeros_like(x.tensor[0]), tf.ones_like(x.tensor[0]))
            made = tf.scan(lambda s, e: (first(s[0] + e[0], others), 0.5 * second(s[1], others) * e[1]), pair, start,
                           reverse=draw.random() < 1 / 2)  # fmt: skip
            scope.add(*made)
        case "map":
            scope.add(*tf.map_fn(lambda e: (first(e[0], others) * e[1], second(e[1], others)), pair))
        case "fold":
            scope.add(tf.foldl(lambda s, e: first(s, others) * 0.5 + e, x.tensor, tf.zeros_like(x.tensor[0])))
        case _:
            scope.add(tf.vectorized_map(lambda e: tf.tanh(e) * 2 + tf.reduce_sum(e), x.tensor))


@idea(1)
def growing(scope: Scope) -> None:
    """A state that becomes longer, and pieces of different lengths."""
    x = scope.pick("float", lambda value: suits(value) and value.rank > 0)
    draw = scope.draw
    steps = draw.randint(1, 3)
    rest = x.tensor.shape[1:]
    if draw.random() < 1 / 2:
        function = draw.choice(UNARY)
        made = tf.while_loop(
            lambda i, a: i < steps, lambda i, a: (i + 1, tf.concat([a, function(a[:1])], 0)), (0, x.tensor),
            shape_invariants=(tf.TensorShape([]), tf.TensorShape([None]).concatenate(rest)),
        )[1]  # fmt: skip
    else:
        pieces = tf.TensorArray(
            x.tensor.dtype, steps, infer_shape=False, element_shape=tf.TensorShape([None]).concatenate(rest)
        )
        size = tf.shape(x.tensor)[0]
        made = tf.while_loop(
            lambda i, _: i < steps, lambda i, a: (i + 1, a.write(i, x.tensor[: (i % size) + 1] * 2)), (0, pieces)
        )[1]
        made = made.concat()
    scope.add(made)


@idea(1)
def branches(scope: Scope) -> None:
    """Several results of branches, of which some hand values of outside on."""
    x = scope.pick("float", suits)
    y = scope.like(x)
    draw = scope.draw
    first, second = piece(draw, x.shape, 1), piece(draw, x.shape, 1)
    condition = scope.pick("any", lambda value: value.rank == 0 or value.dtype == "bool")
    chosen = tf.reduce_any(tf.cast(condition.tensor, "bool"))
    if draw.random() < 1 / 2:
        scope.add(
            *tf.cond(chosen, lambda: (first(x.tensor, []), y.tensor), lambda: (y.tensor, second(x.tensor, [y.tensor])))
        )
        return
    other = tf.reduce_sum(y.tensor) > draw.uniform(-1, 1)
    pairs = [(chosen, lambda: first(x.tensor, [])), (other, lambda: second(y.tensor, [x.tensor]))]
    scope.add(tf.case(pairs, default=lambda: y.tensor * 0.5, exclusive=False))


@idea(1)
def recomputed(scope: Scope) -> None:
    x = scope.pick("float", suits)
    part = piece(scope.draw, x.shape, 1)
    scope.add(tf.recompute_grad(lambda a: part(a, []))(x.tensor))


@idea(1)
def split_array(scope: Scope) -> None:
    """A TensorArray without a loop."""
    x = scope.pick("float", lambda value: suits(value) and value.rank > 0)
    size = x.shape[0]
    draw = scope.draw
    array = tf.TensorArray(x.tensor.dtype, size, clear_after_read=False)
    order = draw.sample(range(size), size)
    match draw.choice(["scatter", "split", "write"]):
        case "scatter":
            scope.add(array.scatter(order, x.tensor).stack())
        case "split":
            first = draw.randint(0, size)
            made = tf.TensorArray(x.tensor.dtype, 2, infer_shape=False, clear_after_read=False).split(
                x.tensor, [first, size - first]
            )
            scope.add(made.concat(), made.read(1))
        case _:
            for place in order:
                array = array.write(place, tf.tanh(x.tensor[place]))
            scope.add(array.gather(order[:2]), array.read(order[0]))
