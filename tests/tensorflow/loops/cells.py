"""The recurrent models of the grid: TensorFlow 1's cells in its loops, and loops made by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.tensorflow.loops.kit import FEATURES, UNITS, Data, Feeds, Kit


def cell(kit: Kit, kind: str) -> Any:
    """A cell of TensorFlow 1."""
    cells = kit.cells
    made: dict[str, Callable[[], Any]] = {
        "block": lambda: block_cell(kit),
        "basic": lambda: cells.BasicRNNCell(UNITS),
        "gru": lambda: cells.GRUCell(UNITS),
        "lstm": lambda: cells.LSTMCell(UNITS + 2, use_peepholes=True, cell_clip=0.8, num_proj=UNITS, proj_clip=0.6),
        "multi": lambda: cells.MultiRNNCell([cells.LSTMCell(UNITS), cells.GRUCell(UNITS)]),
    }
    return made[kind]()


def block_cell(kit: Kit) -> Any:
    """A cell that is the op LSTMBlockCell, with peepholes."""
    _register_block_gradient(kit.tf)

    class BlockCell(kit.cells.RNNCell):  # type: ignore[misc, name-defined]
        state_size = (UNITS, UNITS)
        output_size = UNITS

        def __call__(self, x: Any, state: Any, scope: Any = None) -> Any:
            with kit.v1.variable_scope("lstm_cell", reuse=kit.v1.AUTO_REUSE):
                w = kit.variable("kernel", FEATURES + UNITS, 4 * UNITS)
                b = kit.variable("bias", 4 * UNITS, initializer=kit.v1.zeros_initializer())
                wci, wcf, wco = (kit.variable(name, UNITS) for name in ("wci", "wcf", "wco"))
            made = kit.tf.raw_ops.LSTMBlockCell(
                x=x, cs_prev=state[0], h_prev=state[1], w=w, wci=wci, wcf=wcf, wco=wco, b=b,
                use_peephole=True, forget_bias=1.0, cell_clip=3.0,
            )  # fmt: skip
            return made.h, (made.cs, made.h)

    return BlockCell()


def _register_block_gradient(tf: Any) -> None:
    """The gradient that TensorFlow 1 registered."""
    from tensorflow.python.framework import ops

    def gradient(op: Any, *grads: Any) -> Any:
        x, cs_prev, h_prev, w, wci, wcf, wco, b = op.inputs
        i, cs, f, o, ci, co, _ = op.outputs
        cs_prev_grad, dicfo, *peephole_grads = tf.raw_ops.LSTMBlockCellGrad(
            x=x, cs_prev=cs_prev, h_prev=h_prev, w=w, wci=wci, wcf=wcf, wco=wco, b=b, i=i, cs=cs, f=f, o=o, ci=ci,
            co=co, cs_grad=grads[1], h_grad=grads[6], use_peephole=op.get_attr("use_peephole"),
        )  # fmt: skip
        xh_grad = tf.matmul(dicfo, w, transpose_b=True)
        w_grad = tf.matmul(tf.concat([x, h_prev], 1), dicfo, transpose_a=True)
        features = x.shape[1]
        grads_ = [xh_grad[:, :features], cs_prev_grad, xh_grad[:, features:], w_grad]
        return [*grads_, *peephole_grads, tf.reduce_sum(dicfo, 0)]

    try:
        ops.RegisterGradient("LSTMBlockCell")(gradient)
    except KeyError:
        return  # an earlier graph has registered it


def model(kit: Kit, kind: str, *, lengths: bool) -> tuple[Any, Feeds]:
    """The loss of a model of the grid, and what is fed."""
    given = kit.input("lengths", [None], "int32") if lengths else None
    fed = {given: kit.lengths} if lengths else {}
    if kind == "decoder":
        limit = kit.input("limit", [], "int32")
        fed[limit] = lambda B, T: kit.integers(1, T)
        data = kit.data(lambda B, T: {name: draw(B, T) for name, draw in fed.items()})
        return _decoder(kit, data, given, limit), data.feeds()
    data = kit.data(lambda B, T: {name: draw(B, T) for name, draw in fed.items()})
    if kind in LOOPS:
        return LOOPS[kind](kit, data, given), data.feeds()
    if kind == "bidirectional":
        pair = kit.cells.LSTMCell(UNITS), kit.cells.GRUCell(UNITS)
        both, _ = kit.v1.nn.bidirectional_dynamic_rnn(*pair, data.x, sequence_length=given, dtype="float32")
        return kit.error(both[0] + both[1], data.y), data.feeds()
    result, _ = kit.v1.nn.dynamic_rnn(cell(kit, kind), data.x, sequence_length=given, dtype="float32")
    return kit.error(result, data.y), data.feeds()


def _kept(kit: Kit, lengths: Any, t: Any, new: Any, old: Any) -> Any:
    """The new state where a sequence goes on."""
    if lengths is None:
        return new
    return kit.tf.where(kit.tf.tile(kit.tf.expand_dims(t < lengths, 1), [1, UNITS]), new, old)


def _arrays(kit: Kit, data: Data, lengths: Any) -> Any:
    w, T = kit.kernel(), data.steps
    xs = kit.tf.TensorArray("float32", T).unstack(data.by_time)
    results = kit.tf.TensorArray("float32", T)

    def body(t: Any, h: Any, made: Any) -> Any:
        h = _kept(kit, lengths, t, kit.dense(xs.read(t), h, w), h)
        return t + 1, h, made.write(t, h * 2)

    *_, made = kit.repeat(lambda t, *_: t < T, body, [0, kit.start(data.x), results], swap_memory=True)
    return kit.error(kit.tf.transpose(made.stack(), [1, 0, 2]), data.y)


def _scan(kit: Kit, data: Data, lengths: Any) -> Any:
    w = kit.kernel()
    steps = (kit.tf.range(data.steps), data.by_time)
    result = kit.tf.scan(
        lambda h, step: _kept(kit, lengths, step[0], kit.dense(step[1], h, w), h), steps, kit.start(data.x)
    )
    return kit.error(kit.tf.transpose(result, [1, 0, 2]), data.y)


def _nested(kit: Kit, data: Data, lengths: Any) -> Any:
    w, u, xs = kit.kernel(), kit.kernel("u", UNITS), data.by_time

    def body(t: Any, h: Any) -> Any:
        new = kit.dense(kit.tf.gather(xs, t), h, w)
        _, new = kit.repeat(lambda j, a: j < t, lambda j, a: (j + 1, kit.tf.tanh(kit.tf.matmul(a, u))), [0, new])
        return t + 1, _kept(kit, lengths, t, new, h)

    _, h = kit.repeat(lambda t, h: t < data.steps, body, [0, kit.start(data.x)])
    return kit.error(h, data.y[:, 0])


def _cond(kit: Kit, data: Data, lengths: Any) -> Any:
    w, u, xs = kit.kernel(), kit.kernel("u", UNITS), data.by_time

    def body(t: Any, h: Any) -> Any:
        new = kit.dense(kit.tf.gather(xs, t), h, w)
        new = kit.tf.cond(kit.tf.equal(t % 2, 0), lambda: kit.tf.tanh(kit.tf.matmul(new, u)), lambda: new * 0.5)
        return t + 1, _kept(kit, lengths, t, new, h)

    _, h = kit.repeat(lambda t, h: t < data.steps, body, [0, kit.start(data.x)])
    return kit.error(h, data.y[:, 0])


def _decoder(kit: Kit, data: Data, lengths: Any, limit: Any) -> Any:
    """Writes until a sum is large or the limit is reached: the number of steps follows from the data."""
    tf, w = kit.tf, kit.kernel()
    code = tf.reduce_mean(data.x, 1)
    made = tf.TensorArray("float32", size=0, dynamic_size=True, clear_after_read=False)

    def body(t: Any, h: Any, done: Any, made: Any) -> Any:
        h = _kept(kit, lengths, t, kit.dense(code, h, w), h)
        return t + 1, h, tf.logical_or(t + 1 >= limit, tf.reduce_sum(h) > 1e3), made.write(t, h)

    start = [0, kit.start(data.x), tf.constant(False), made]  # noqa: FBT003
    _, h, _, made = kit.repeat(lambda t, h, done, made: tf.logical_not(done), body, start)
    return tf.reduce_mean(tf.square(made.stack())) + kit.error(h, data.y[:, 0])


LOOPS: dict[str, Callable[[Kit, Data, Any], Any]] = {"arrays": _arrays, "scan": _scan, "nested": _nested, "cond": _cond}

MODELS = ("block", "lstm", "gru", "basic", "multi", "bidirectional", "arrays", "scan", "nested", "decoder", "cond")
