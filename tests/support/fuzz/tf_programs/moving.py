"""Elements laid out anew: slices, gathers, scatters, segments, sorting, reductions, cumulative sums."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tests.support.fuzz.tf_programs.registry import idea
from tests.support.fuzz.tf_programs.scope import Scope, Value

raw, math = tf.raw_ops, tf.math


def ranked(value: Value) -> bool:
    return value.rank > 0


def filled(value: Value) -> bool:
    return value.rank > 0 and value.sample.size > 0


def indices(scope: Scope, end: int, *shape: int) -> Any:
    """Indices below `end`: constants, or made of a value."""
    if end < 1:
        raise ValueError("no elements")
    dtype = scope.draw.choice(["int32", "int64"])
    numbers = [scope.draw.randrange(end) for _ in range(int(tf.TensorShape(shape).num_elements()))]
    if scope.draw.random() < 1 / 3 and len(shape) == 1:
        source = scope.pick("integer", lambda value: value.rank == 1 and value.shape == shape)
        return tf.cast(source.tensor % end, dtype)
    return tf.reshape(tf.constant(numbers, dtype), shape)


@idea(2)
def strided_slice(scope: Scope) -> None:
    x = scope.pick("any", filled)
    draw = scope.draw
    spec: list[Any] = []
    axis = 0
    ellipsis = draw.random() < 1 / 4
    while axis < x.rank and len(spec) < x.rank + 1:
        size = x.shape[axis]
        match draw.choice(["index", "range", "range", "all", "new", "back", "stop", "dynamic"]):
            case "index":
                spec.append(draw.randrange(-size, size))
            case "range":
                start = draw.randrange(-size, size)
                spec.append(slice(start, draw.choice([None, size + 3, -1, size]), draw.choice([None, 1, 2, 3])))
            case "back":
                spec.append(
                    slice(draw.choice([None, -1, size + 2]), draw.choice([None, 0, -size]), draw.choice([-1, -2]))
                )
            case "all":
                spec.append(slice(None))
            case "new":
                spec.append(tf.newaxis)
                continue
            case "stop":
                spec.append(slice(None, draw.randint(-size, size)))
            case "dynamic":
                length = tf.shape(x.tensor)[axis]
                spec.append(draw.choice([slice(length // 2, None), slice(None, length - 1), length - 1]))
        axis += 1
        if ellipsis and draw.random() < 1 / 2:
            spec.append(Ellipsis)
            break
    scope.add(x.tensor[tuple(spec)])


@idea(1)
def plain_slice(scope: Scope) -> None:
    x = scope.pick("any", filled)
    begin = [scope.draw.randrange(size) for size in x.shape]
    size = [
        scope.draw.choice([-1, scope.draw.randint(1, end - start)]) for start, end in zip(begin, x.shape, strict=True)
    ]
    scope.add(tf.slice(x.tensor, begin, size))


@idea(2)
def reshape(scope: Scope) -> None:
    x = scope.pick("any", filled)
    match scope.draw.choice(["flat", "join", "split", "rows", "dynamic"]):
        case "flat":
            scope.add(tf.reshape(x.tensor, [-1]))
        case "join" if x.rank > 1:
            scope.add(tf.reshape(x.tensor, tf.concat([[-1], tf.shape(x.tensor)[2:]], 0)))
        case "split" if not x.shape[-1] % 2:
            scope.add(tf.reshape(x.tensor, tf.concat([tf.shape(x.tensor)[:-1], [2, x.shape[-1] // 2]], 0)))
        case "rows":
            scope.add(tf.reshape(x.tensor, [-1, x.shape[-1]]))
        case _:
            scope.add(tf.reshape(x.tensor, [tf.size(x.tensor, out_type=tf.int64), 1]))


@idea(2)
def axes(scope: Scope) -> None:
    x = scope.pick("any")
    match scope.draw.choice(["expand", "squeeze", "transpose", "transpose", "diagonal"]):
        case "expand":
            scope.add(tf.expand_dims(x.tensor, scope.draw.randrange(-x.rank - 1, x.rank + 1)))
        case "squeeze":
            ones = [axis for axis, size in enumerate(x.shape) if size == 1]
            scope.add(tf.squeeze(x.tensor, scope.draw.sample(ones, scope.draw.randint(1, len(ones)))))
        case "transpose":
            scope.add(
                tf.transpose(x.tensor, scope.draw.sample(range(x.rank), x.rank) if scope.draw.random() < 0.8 else None)
            )
        case _ if x.rank:
            scope.add(
                scope.draw.choice(
                    [tf.linalg.diag, lambda a: tf.linalg.diag(a, k=1), lambda a: tf.linalg.diag(a, k=-1)]
                )(x.tensor)
            )


@idea(2)
def joined(scope: Scope) -> None:
    x = scope.pick("any", ranked)
    axis = scope.draw.randrange(-x.rank, x.rank)
    cut = [size for place, size in enumerate(x.shape) if place != axis % x.rank]
    others = [
        scope.of_type(x, lambda o: o.rank == x.rank and [s for p, s in enumerate(o.shape) if p != axis % x.rank] == cut)
        for _ in range(scope.draw.randint(1, 2))
    ]
    scope.add(tf.concat([x.tensor, *(other.tensor for other in others)], axis))


@idea(1)
def stacked(scope: Scope) -> None:
    x = scope.pick("any")
    others = [scope.like(x) for _ in range(scope.draw.randint(1, 2))]
    axis = scope.draw.randrange(-x.rank - 1, x.rank + 1)
    scope.add(tf.stack([x.tensor, *(other.tensor for other in others)], axis))


@idea(2)
def taken_apart(scope: Scope) -> None:
    x = scope.pick("any", ranked)
    axis = scope.draw.randrange(-x.rank, x.rank)
    size = x.shape[axis]
    match scope.draw.choice(["split", "sizes", "unstack", "partition"]):
        case "split":
            count = scope.draw.choice([n for n in range(1, size + 1) if not size % n])
            parts = tf.split(x.tensor, count, axis)
        case "sizes":
            first = scope.draw.randint(0, size)
            parts = tf.split(x.tensor, [first, scope.draw.choice([-1, size - first])], axis)
        case "unstack":
            parts = tf.unstack(x.tensor, size, axis)
        case _:
            parts = tf.dynamic_partition(x.tensor, tf.cast(indices(scope, 2, x.shape[0]), "int32"), 2)
    scope.add(*parts)


@idea(3)
def gathered(scope: Scope) -> None:
    x = scope.pick("any", filled)
    axis = scope.draw.randrange(x.rank)
    match scope.draw.choice(["take", "take", "nd", "batched", "masked"]):
        case "take":
            shape = [scope.draw.randint(1, 4) for _ in range(scope.draw.choice([0, 1, 1, 2]))]
            where = indices(scope, x.shape[axis], *shape)
            # For weights, as they are, the gradient is a list of rows.
            tensor = x.handle if x.handle is not None and not axis else x.tensor
            scope.add(tf.gather(tensor, where, axis=axis))
        case "nd":
            depth = scope.draw.randint(1, x.rank)
            rows = [[scope.draw.randrange(size) for size in x.shape[:depth]] for _ in range(3)]
            scope.add(tf.gather_nd(x.tensor, tf.constant(rows, scope.draw.choice(["int32", "int64"]))))
        case "batched" if x.rank > 1:
            scope.add(tf.gather(x.tensor, indices(scope, x.shape[1], x.shape[0], 2), axis=1, batch_dims=1))
        case _:
            mask = tf.reduce_sum(tf.reshape(tf.cast(x.tensor, "float32"), [x.shape[0], -1]), 1) > 0
            scope.add(tf.boolean_mask(x.tensor, mask))


@idea(2)
def looked_up(scope: Scope) -> None:
    """Rows of weights."""
    x = scope.pick("float", lambda value: value.handle is not None and value.rank > 1)
    ids = indices(scope, x.shape[0], *[scope.draw.randint(1, 4) for _ in range(scope.draw.randint(1, 2))])
    norm = scope.draw.choice([None, None, 0.5])
    scope.add(tf.nn.embedding_lookup(x.handle, ids, max_norm=norm))


@idea(2)
def scattered(scope: Scope) -> None:
    x = scope.pick("number", filled)
    size = x.shape[0]
    match scope.draw.choice(["new", "update", "add", "max", "min", "stitch", "sub"]):
        case "new":
            where = tf.reshape(indices(scope, size + 2, size), [-1, 1])
            shape = tf.concat([[size + 2], tf.shape(x.tensor)[1:]], 0)
            scope.add(tf.scatter_nd(where, x.tensor, tf.cast(shape, where.dtype)))
        case "stitch":
            order = scope.draw.sample(range(size), size)
            first = tf.constant(order[: size // 2], "int32")
            second = tf.constant(order[size // 2 :], "int32")
            scope.add(tf.dynamic_stitch([first, second], [x.tensor[: size // 2], x.tensor[size // 2 :] * 2]))
        case kind:
            y = scope.like(x)
            count = scope.draw.randint(1, size)
            rows = tf.constant([[row] for row in scope.draw.sample(range(size), count)], "int32")
            ops = {
                "update": tf.tensor_scatter_nd_update, "add": tf.tensor_scatter_nd_add,
                "max": tf.tensor_scatter_nd_max, "min": tf.tensor_scatter_nd_min, "sub": tf.tensor_scatter_nd_sub,
            }  # fmt: skip
            scope.add(ops[kind](x.tensor, rows, y.tensor[:count]))


@idea(2)
def segments(scope: Scope) -> None:
    x = scope.pick("float", filled)
    size = x.shape[0]
    draw = scope.draw
    ids = [draw.randrange(4) for _ in range(size)]
    if draw.random() < 1 / 2:
        count = draw.randint(4, 5)
        ids = [draw.choice([-1, *ids]) for _ in ids]
        op = draw.choice([math.unsorted_segment_sum, math.unsorted_segment_mean, math.unsorted_segment_sqrt_n,
                          math.unsorted_segment_prod])  # fmt: skip
        scope.add(op(x.tensor, tf.constant(ids, draw.choice(["int32", "int64"])), count))
        return
    ids = tf.constant(sorted(ids), draw.choice(["int32", "int64"]))
    ops = [math.segment_sum, math.segment_mean, math.segment_max, math.segment_min, math.segment_prod]
    if draw.random() < 1 / 3:
        rows = tf.constant([draw.randrange(size) for _ in range(size)])
        kind = draw.choice([tf.sparse.segment_sum, tf.sparse.segment_mean, tf.sparse.segment_sqrt_n])
        scope.add(kind(x.tensor, rows, ids, num_segments=draw.choice([None, 5])))
        return
    scope.add(draw.choice(ops)(x.tensor, ids))


@idea(3)
def reduced(scope: Scope) -> None:
    x = scope.pick("float", filled)
    draw = scope.draw
    axis = draw.choice([None, *range(-x.rank, x.rank), draw.sample(range(x.rank), draw.randint(0, x.rank))])
    ops = [tf.reduce_sum, tf.reduce_mean, tf.reduce_max, tf.reduce_min, tf.reduce_prod, tf.reduce_logsumexp,
           math.reduce_variance, math.reduce_euclidean_norm]  # fmt: skip
    scope.add(draw.choice(ops)(x.tensor, axis, keepdims=draw.random() < 1 / 3))


@idea(1)
def reduced_others(scope: Scope) -> None:
    draw = scope.draw
    if draw.random() < 1 / 2:
        x = scope.pick("bool", filled)
        scope.add(draw.choice([tf.reduce_all, tf.reduce_any])(x.tensor, draw.choice([None, *range(x.rank)])))
        return
    x = scope.pick("integer", filled)
    op = draw.choice([tf.reduce_sum, tf.reduce_max, tf.reduce_min, tf.reduce_mean])
    scope.add(op(x.tensor, draw.choice([None, *range(x.rank)]), keepdims=draw.random() < 1 / 3))


@idea(2)
def cumulative(scope: Scope) -> None:
    x = scope.pick("float", filled)
    op = scope.draw.choice([math.cumsum, math.cumprod, math.cumulative_logsumexp])
    options = {"exclusive": scope.draw.random() < 1 / 2, "reverse": scope.draw.random() < 1 / 2}
    if op is math.cumulative_logsumexp:
        options["exclusive"] = False
    scope.add(op(x.tensor, scope.draw.randrange(-x.rank, x.rank), **options))


@idea(2)
def sorted_(scope: Scope) -> None:
    x = scope.pick("float", filled)
    draw = scope.draw
    axis = draw.randrange(-x.rank, x.rank)
    match draw.choice(["top", "sort", "argsort", "arg", "top", "nth"]):
        case "top":
            values, places = math.top_k(x.tensor, draw.randint(1, x.shape[-1]), sorted=True)
            scope.add(values, places)
        case "sort":
            scope.add(tf.sort(x.tensor, axis, draw.choice(["ASCENDING", "DESCENDING"])))
        case "argsort":
            scope.add(tf.argsort(x.tensor, axis, draw.choice(["ASCENDING", "DESCENDING"]), stable=True))
        case "nth":
            scope.add(raw.NthElement(input=x.tensor, n=draw.randrange(x.shape[-1]), reverse=draw.random() < 1 / 2))
        case _:
            scope.add(draw.choice([tf.argmax, tf.argmin])(x.tensor, axis, draw.choice(["int32", "int64"])))


@idea(2)
def turned(scope: Scope) -> None:
    x = scope.pick("number", filled)
    draw = scope.draw
    axis = draw.randrange(x.rank)
    match draw.choice(["reverse", "roll", "tile", "repeat", "sequence", "broadcast", "pad", "mirror"]):
        case "reverse":
            scope.add(tf.reverse(x.tensor, draw.sample(range(x.rank), draw.randint(1, x.rank))))
        case "roll":
            scope.add(tf.roll(x.tensor, draw.randint(-4, 4), axis))
        case "tile":
            scope.add(tf.tile(x.tensor, [draw.randint(1, 2) for _ in x.shape]))
        case "repeat":
            counts = draw.choice([2, [draw.randint(0, 2) for _ in range(x.shape[axis])]])
            scope.add(tf.repeat(x.tensor, counts, axis))
        case "sequence" if x.rank > 1:
            lengths = [draw.randint(0, x.shape[1]) for _ in range(x.shape[0])]
            scope.add(tf.reverse_sequence(x.tensor, tf.constant(lengths, "int32"), seq_axis=1, batch_axis=0))
        case "broadcast":
            shape = tf.concat([[draw.randint(1, 2)], tf.shape(x.tensor)], 0)
            scope.add(tf.broadcast_to(x.tensor, shape))
        case "pad":
            pads = [[draw.randint(0, 2), draw.randint(0, 2)] for _ in x.shape]
            scope.add(tf.pad(x.tensor, pads, constant_values=draw.choice([0, 1])))
        case _:
            mode = draw.choice(["REFLECT", "SYMMETRIC"])
            most = [size - (mode == "REFLECT") for size in x.shape]
            scope.add(tf.pad(x.tensor, [[draw.randint(0, m), draw.randint(0, m)] for m in most], mode))


@idea(2)
def counted(scope: Scope) -> None:
    x = scope.pick("integer")
    draw = scope.draw
    ids = tf.abs(x.tensor) % 5
    match draw.choice(["hot", "hot", "count", "range", "mask", "unique", "bins"]):
        case "hot":
            tensor = tf.one_hot(ids, draw.choice([4, 5, 6]), draw.choice([1.0, 0.7]), 0.0, axis=draw.choice([-1, 0]))
            scope.add(tf.cast(tensor, "float64") if scope.wide else tensor)
        case "count":
            scope.add(math.bincount(tf.cast(tf.reshape(ids, [-1]), "int32"), minlength=draw.choice([None, 7])))
        case "range":
            scope.add(tf.range(draw.randint(0, 2), tf.reduce_sum(ids) % 5 + 3, draw.choice([1, 2])))
        case "mask":
            scope.add(tf.sequence_mask(ids, draw.choice([None, 6])))
        case "unique":
            scope.add(*tf.unique(tf.reshape(ids, [-1])))
        case _:
            scope.add(raw.Bucketize(input=x.tensor, boundaries=[-1.0, 0.0, 2.0, 3.5]))


@idea(1)
def sizes(scope: Scope) -> None:
    x = scope.pick("any", ranked)
    match scope.draw.choice(["shape", "size", "rank", "where", "linspace", "scale"]):
        case "shape":
            scope.add(tf.shape(x.tensor, scope.draw.choice([tf.int32, tf.int64])))
        case "size":
            scope.add(tf.size(x.tensor))
        case "where":
            scope.add(tf.where(tf.cast(x.tensor, "bool")))
        case "linspace":
            made = tf.linspace(0.5, 2.0, tf.shape(x.tensor)[0] + 1)
            scope.add(tf.cast(made, "float64") if scope.wide else made)
        case "scale" if x.is_float:
            scope.add(x.tensor / tf.cast(tf.shape(x.tensor)[0] + 1, x.tensor.dtype))
        case _:
            scope.add(tf.rank(x.tensor))


@idea(1)
def matrix_parts(scope: Scope) -> None:
    x = scope.pick("float", lambda value: value.rank > 1 and value.sample.size > 0)
    draw = scope.draw
    match draw.choice(["band", "part", "set", "trace", "parts"]):
        case "band":
            scope.add(tf.linalg.band_part(x.tensor, draw.randint(-1, 2), draw.randint(-1, 2)))
        case "part":
            scope.add(tf.linalg.diag_part(x.tensor))
        case "parts":
            scope.add(tf.linalg.diag_part(x.tensor, k=(-1, 0), align=draw.choice(["RIGHT_LEFT", "LEFT_LEFT"])))
        case "set":
            scope.add(tf.linalg.set_diag(x.tensor, tf.linalg.diag_part(x.tensor) * 2 + 1))
        case _:
            scope.add(tf.linalg.trace(x.tensor))
