"""What models are made of around loops: attention, CRF, wrapped cells, other ways to run a cell."""

from __future__ import annotations

from typing import Any

from tests.tensorflow.loops.kit import FEATURES, SIZES, UNITS, Feeds, Forms, Kit

LAYERS = Forms()
form = LAYERS.add


def _run(kit: Kit, cell: Any, **options: Any) -> tuple[Any, Feeds]:
    data = kit.data()
    result, _ = kit.v1.nn.dynamic_rnn(cell, data.x, dtype="float32", **options)
    return kit.error(result, data.y), data.feeds()


@form
def attention(kit: Kit) -> tuple[Any, Feeds]:
    tf, ln = kit.tf, kit.input("lengths", [None], "int32")
    data, w, q = kit.data(lambda B, T: {ln: kit.lengths(B, T)}), kit.kernel(), kit.variable("q", UNITS, FEATURES)
    x, T = data.x, data.steps
    mask, made = tf.sequence_mask(ln, T, dtype=tf.float32), tf.TensorArray("float32", T)

    def body(t: Any, h: Any, made: Any) -> Any:
        scores = tf.reduce_sum(tf.expand_dims(tf.matmul(h, q), 1) * x, 2) + (1 - mask) * -1e9
        h = kit.dense(tf.reduce_sum(tf.expand_dims(tf.nn.softmax(scores), 2) * x, 1), h, w)
        return t + 1, h, made.write(t, h)

    *_, made = kit.repeat(lambda t, *_: t < T, body, [0, kit.start(x), made])
    return kit.error(made.stack(), tf.transpose(data.y, [1, 0, 2])), data.feeds()


@form
def translator(kit: Kit) -> tuple[Any, Feeds]:
    """An encoder, and a decoder that attends to its states and is fed with what it said itself."""
    tf, source, target = kit.tf, kit.input("source", [None, None], "int32"), kit.input("target", [None, None], "int32")
    e, out, cell = (
        kit.variable("e", 9, FEATURES),
        kit.variable("out", UNITS, 9),
        kit.cells.GRUCell(UNITS, name="decoder"),
    )
    with kit.v1.variable_scope("encoder"):
        memory, h = kit.v1.nn.dynamic_rnn(kit.cells.GRUCell(UNITS), tf.nn.embedding_lookup(e, source), dtype="float32")
    cell.build([None, FEATURES + UNITS])
    T, B = tf.shape(target)[1], tf.shape(target)[0]
    made = tf.TensorArray("float32", 0, dynamic_size=True, element_shape=[None, 9])

    def body(t: Any, h: Any, ids: Any, made: Any) -> Any:
        scores = tf.nn.softmax(tf.reduce_sum(memory * tf.expand_dims(h, 1), 2))
        context = tf.reduce_sum(tf.expand_dims(scores, 2) * memory, 1)
        h, _ = cell(tf.concat([tf.nn.embedding_lookup(e, ids), context], 1), h)
        logits = tf.matmul(h, out)
        return t + 1, h, tf.argmax(logits, 1, output_type=tf.int32), made.write(t, logits)

    *_, made = kit.repeat(lambda t, *_: t < T, body, [0, h, tf.zeros([B], tf.int32), made])
    logits = tf.transpose(made.stack(), [1, 0, 2])
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=target, logits=logits))
    return loss, [{source: kit.integers(0, 9, B, T), target: kit.integers(0, 9, B, T + 1)} for B, T in SIZES]


@form
def crf(kit: Kit) -> tuple[Any, Feeds]:
    tf, x, tags = kit.tf, kit.input("x", [None, None, FEATURES]), kit.input("tags", [None, None], "int32")
    ln, w, change = (
        kit.input("lengths", [None], "int32"),
        kit.variable("w", FEATURES, UNITS),
        kit.variable("change", UNITS, UNITS),
    )
    unary, T = tf.einsum("bti,ih->bth", x, w), tf.shape(x)[1]
    mask = tf.sequence_mask(ln, T, dtype=tf.float32)
    pairs = tf.gather_nd(change, tf.stack([tags[:, :-1], tags[:, 1:]], 2)) * mask[:, 1:]
    score = tf.reduce_sum(tf.reduce_sum(tf.one_hot(tags, UNITS) * unary, 2) * mask, 1) + tf.reduce_sum(pairs, 1)
    by_time = tf.transpose(unary, [1, 0, 2])

    def body(t: Any, a: Any) -> Any:
        new = tf.reduce_logsumexp(tf.expand_dims(a, 2) + tf.expand_dims(change, 0), 1) + by_time[t]
        return t + 1, tf.where(tf.tile(tf.expand_dims(t < ln, 1), [1, UNITS]), new, a)

    _, a = kit.repeat(lambda t, a: t < T, body, [1, by_time[0]])
    loss = tf.reduce_mean(tf.reduce_logsumexp(a, 1) - score)
    return loss, [
        {x: kit.normal(B, T, FEATURES), tags: kit.integers(0, UNITS, B, T), ln: kit.lengths(B, T)} for B, T in SIZES
    ]


@form
def viterbi(kit: Kit) -> tuple[Any, Feeds]:
    """Decoding beside training: backpointers of a first loop are followed backwards by a second."""
    tf, data, w, change = kit.tf, kit.data(), kit.variable("w", FEATURES, UNITS), kit.variable("change", UNITS, UNITS)
    unary = tf.einsum("bti,ih->tbh", data.x, w)
    T = data.steps
    pointers = tf.TensorArray("int32", T, element_shape=[None, UNITS])

    def forwards(t: Any, a: Any, pointers: Any) -> Any:
        scores = tf.expand_dims(a, 2) + tf.expand_dims(change, 0)
        pointers = pointers.write(t, tf.argmax(scores, 1, output_type=tf.int32))
        return t + 1, tf.reduce_max(scores, 1) + tf.gather(unary, t), pointers

    _, best, pointers = kit.repeat(lambda t, *_: t < T, forwards, [1, unary[0], pointers], back_prop=False)
    steps, tags = pointers.stack(), tf.TensorArray("int32", T)

    def back(t: Any, tag: Any, tags: Any) -> Any:
        return t - 1, tf.gather(steps[t], tag, batch_dims=1), tags.write(t, tag)

    start = [T - 1, tf.argmax(best, 1, output_type=tf.int32), tags]
    *_, tags = kit.repeat(lambda t, *_: t > 0, back, start, back_prop=False)
    said = tf.cast(tags.stack()[1:], tf.float32)
    return kit.error(tf.transpose(unary, [1, 0, 2]), data.y) + tf.reduce_mean(said) * tf.reduce_sum(
        change
    ), data.feeds()


@form
def dropout_none(kit: Kit) -> tuple[Any, Feeds]:
    return _run(kit, kit.cells.DropoutWrapper(kit.cells.BasicLSTMCell(UNITS), output_keep_prob=1.0))


@form
def dropout_fed(kit: Kit) -> tuple[Any, Feeds]:
    """The probability is fed: 1, so that the numbers are the same."""
    keep = kit.input("keep", [])
    data = kit.data(lambda B, T: {keep: kit.normal() * 0 + 1})
    cell = kit.cells.DropoutWrapper(kit.cells.GRUCell(UNITS), keep, keep, keep)
    result, _ = kit.v1.nn.dynamic_rnn(cell, data.x, dtype="float32")
    return kit.error(result, data.y), data.feeds()


@form
def residual(kit: Kit) -> tuple[Any, Feeds]:
    cells = [kit.cells.LSTMCell(UNITS), kit.cells.ResidualWrapper(kit.cells.LSTMCell(UNITS))]
    return _run(kit, kit.cells.MultiRNNCell(cells))


@form
def time_major(kit: Kit) -> tuple[Any, Feeds]:
    data = kit.data()
    start = kit.variable("start", 1, UNITS)
    initial = kit.tf.tile(start, [kit.tf.shape(data.x)[0], 1])
    cell = kit.cells.GRUCell(UNITS)
    result, last = kit.v1.nn.dynamic_rnn(cell, data.by_time, initial_state=initial, time_major=True, swap_memory=True)
    return kit.error(result, kit.tf.transpose(data.y, [1, 0, 2])) + kit.tf.reduce_sum(last), data.feeds()


@form
def last_state(kit: Kit) -> tuple[Any, Feeds]:
    """Only the state after the last step of each sequence is used."""
    ln = kit.input("lengths", [None], "int32")
    data = kit.data(lambda B, T: {ln: kit.integers(0, T + 1, B)})
    _, (c, h) = kit.v1.nn.dynamic_rnn(kit.cells.LSTMCell(UNITS), data.x, sequence_length=ln, dtype="float32")
    return kit.error(h + 0.1 * c, data.y[:, 0]), data.feeds()


@form
def raw(kit: Kit) -> tuple[Any, Feeds]:
    tf, ln = kit.tf, kit.input("lengths", [None], "int32")
    data, cell = kit.data(lambda B, T: {ln: kit.lengths(B, T)}), kit.cells.LSTMCell(UNITS)
    xs = tf.TensorArray("float32", data.steps, clear_after_read=False).unstack(data.by_time)
    B = tf.shape(data.x)[0]

    def step(t: Any, output: Any, state: Any, extra: Any) -> Any:
        state = cell.zero_state(B, tf.float32) if output is None else state
        done = t >= ln
        ended = tf.zeros([B, FEATURES])
        x = tf.cond(tf.reduce_all(done), lambda: ended, lambda: xs.read(t))
        return done, x, state, output, None

    made, state, _ = kit.v1.nn.raw_rnn(cell, step)
    return tf.reduce_mean(tf.square(made.stack())) + kit.error(state.h, data.y[:, 0]), data.feeds()


@form
def static(kit: Kit) -> tuple[Any, Feeds]:
    x, y = kit.input("x", [None, 4, FEATURES]), kit.input("y", [None, 4, UNITS])
    made, _ = kit.v1.nn.static_rnn(kit.cells.BasicLSTMCell(UNITS), kit.tf.unstack(x, axis=1), dtype="float32")
    return kit.error(kit.tf.stack(made, 1), y), [
        {x: kit.normal(B, 4, FEATURES), y: kit.normal(B, 4, UNITS)} for B, _ in SIZES
    ]


@form
def static_both_ways(kit: Kit) -> tuple[Any, Feeds]:
    """With lengths: each step is a branch."""
    x, y, ln = (
        kit.input("x", [None, 4, FEATURES]),
        kit.input("y", [None, 4, 2 * UNITS]),
        kit.input("lengths", [None], "int32"),
    )
    pair = kit.cells.GRUCell(UNITS), kit.cells.GRUCell(UNITS)
    steps = kit.tf.unstack(x, axis=1)
    made, *_ = kit.v1.nn.static_bidirectional_rnn(*pair, steps, dtype="float32", sequence_length=ln)
    fed = [(B, {x: kit.normal(B, 4, FEATURES), y: kit.normal(B, 4, 2 * UNITS)}) for B, _ in SIZES]
    return kit.error(kit.tf.stack(made, 1), y), [{**values, ln: kit.lengths(B, 4)} for B, values in fed]


@form
def stacked_both_ways(kit: Kit) -> tuple[Any, Feeds]:
    ln = kit.input("lengths", [None], "int32")
    data = kit.data(lambda B, T: {ln: kit.lengths(B, T)})
    result = data.x
    for layer in range(2):
        pair = kit.cells.LSTMCell(UNITS // 2), kit.cells.LSTMCell(UNITS // 2)
        both, _ = kit.v1.nn.bidirectional_dynamic_rnn(
            *pair, result, sequence_length=ln, dtype="float32", scope=f"layer{layer}"
        )
        result = kit.tf.concat(both, 2)
    return kit.error(result, data.y), data.feeds()


@form
def ctc(kit: Kit) -> tuple[Any, Feeds]:
    tf, ln = kit.tf, kit.input("lengths", [None], "int32")
    data = kit.data(lambda B, T: {ln: kit.integers(2, T + 1, B)})
    result, _ = kit.v1.nn.dynamic_rnn(kit.cells.LSTMCell(UNITS), data.x, sequence_length=ln, dtype="float32")
    B = tf.shape(data.x)[0]
    rows = tf.cast(tf.stack([tf.range(B), tf.zeros([B], tf.int32)], 1), tf.int64)
    labels = tf.SparseTensor(rows, tf.ones([B], tf.int32), tf.cast(tf.stack([B, 1]), tf.int64))
    return tf.reduce_mean(kit.v1.nn.ctc_loss(labels, tf.transpose(result, [1, 0, 2]), ln)), data.feeds()


@form
def embedded(kit: Kit) -> tuple[Any, Feeds]:
    ids, y = kit.input("ids", [None, None], "int32"), kit.input("y", [None, None, UNITS])
    e = kit.variable("e", 11, FEATURES)
    result, _ = kit.v1.nn.dynamic_rnn(kit.cells.GRUCell(UNITS), kit.tf.nn.embedding_lookup(e, ids), dtype="float32")
    return kit.error(result, y), [{ids: kit.integers(0, 11, B, T), y: kit.normal(B, T, UNITS)} for B, T in SIZES]
