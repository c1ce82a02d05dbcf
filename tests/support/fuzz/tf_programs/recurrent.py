"""Recurrent ops with random attributes, and TensorFlow 1's cells in its loops."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tests.support.fuzz.tf_programs.registry import idea
from tests.support.fuzz.tf_programs.scope import Scope, Value

raw = tf.raw_ops


def is_sequence(value: Value) -> bool:
    return value.rank == 3 and 0 < value.sample.size <= 100 and value.dtype == "float32"


def is_batch(value: Value) -> bool:
    return value.rank == 2 and 0 < value.sample.size <= 60 and value.dtype == "float32"


def _operands(scope: Scope, x: Any, batch: int, features: int, units: int, gates: int) -> dict[str, Any]:
    names = ["wci", "wcf", "wco"]
    return {
        "cs_prev": scope.numbers(x, batch, units),
        "h_prev": scope.numbers(x, batch, units, scale=0.5),
        "w": scope.numbers(x, features + units, gates * units, scale=0.4),
        "b": scope.numbers(x, gates * units, scale=0.3),
    } | {name: scope.numbers(x, units, scale=0.3) for name in names}


@idea(3)
def block(scope: Scope) -> None:
    """BlockLSTM, whose gradient TensorFlow has, and BlockLSTMV2, whose gradient there is wrong."""
    x = scope.pick("float", is_sequence)
    if scope.wide:
        return
    draw = scope.draw
    units = draw.randint(1, 3)
    given = _operands(scope, x, x.shape[1], x.shape[2], units, 4)
    steps = draw.choice([x.shape[0], x.shape[0], draw.randint(0, x.shape[0])])
    options = {"use_peephole": draw.random() < 1 / 2, "cell_clip": draw.choice([3.0, 0.0, -1.0, 0.4])}
    if draw.random() < 2 / 3:
        made = raw.BlockLSTM(
            seq_len_max=steps, x=x.tensor, **given, **options, forget_bias=draw.choice([1.0, 0.0, -0.5])
        )
    else:
        inputs = tf.stop_gradient(x.tensor)
        made = raw.BlockLSTMV2(seq_len_max=steps, x=inputs, **given, **options)
    scope.add(made.h, made.cs)


@idea(2)
def cell(scope: Scope) -> None:
    """LSTMBlockCell and GRUBlockCell, their gradients called by name."""
    x = scope.pick("float", is_batch)
    if scope.wide:
        return
    draw = scope.draw
    batch, features = x.shape
    units = draw.randint(1, 3)
    tensor = tf.stop_gradient(x.tensor)
    if draw.random() < 1 / 2:
        given = _operands(scope, x, batch, features, units, 4)
        options = {"use_peephole": draw.random() < 1 / 2, "cell_clip": draw.choice([3.0, -1.0, 0.4])}
        made = raw.LSTMBlockCell(x=tensor, **given, **options, forget_bias=draw.choice([1.0, 0.3]))
        kept = {name: getattr(made, name) for name in ("i", "cs", "f", "o", "ci", "co")}
        grads = {"cs_grad": scope.numbers(x, batch, units), "h_grad": made.h * 0.5}
        back = raw.LSTMBlockCellGrad(x=tensor, **given, **kept, **grads, use_peephole=options["use_peephole"])
        scope.add(*map(tf.stop_gradient, [made.h, made.cs, back.cs_prev_grad, back.dicfo, back.wcf_grad]))
        return
    h = scope.numbers(x, batch, units)
    given = {
        "w_ru": scope.numbers(x, features + units, 2 * units), "w_c": scope.numbers(x, features + units, units),
        "b_ru": scope.numbers(x, 2 * units), "b_c": scope.numbers(x, units),
    }  # fmt: skip
    made = raw.GRUBlockCell(x=tensor, h_prev=h, **given)
    back = raw.GRUBlockCellGrad(x=tensor, h_prev=h, **given, r=made.r, u=made.u, c=made.c, d_h=made.h * 0.5)
    scope.add(*map(tf.stop_gradient, [made.h, back.d_x, back.d_h_prev, back.d_c_bar, back.d_r_bar_u_bar]))


def _cell(scope: Scope, dtype: Any, units: int, name: str) -> Any:
    """One of TensorFlow 1's cells, perhaps with a wrapper; weights get their values from outside."""
    from tf_keras.src.layers.rnn import legacy_cells as cells

    draw = scope.draw
    options = {"dtype": dtype, "name": name}
    activation = draw.choice([None, tf.nn.relu6, tf.nn.softsign])
    kind = draw.choice(["rnn", "basic", "lstm", "lstm", "gru", "multi"])
    match kind:
        case "rnn":
            made = cells.BasicRNNCell(units, activation=activation, **options)
        case "basic":
            made = cells.BasicLSTMCell(units, forget_bias=0.5, activation=activation, **options)
        case "gru":
            made = cells.GRUCell(units, activation=activation, **options)
        case "multi":
            parts = [
                cells.LSTMCell(units + 1, dtype=dtype, name=name + "a"),
                cells.GRUCell(units, dtype=dtype, name=name + "b"),
            ]
            made = cells.MultiRNNCell(parts)
        case _:
            projected = draw.choice([{}, {"num_proj": 2, "proj_clip": 0.4}])
            made = cells.LSTMCell(units, use_peepholes=draw.random() < 1 / 2, cell_clip=draw.choice([None, 0.6]),
                                  activation=activation, **projected, **options)  # fmt: skip
    return made


@idea(3, graph_only=True)
def rolled(scope: Scope) -> None:
    """dynamic_rnn, static_rnn, bidirectional_dynamic_rnn and raw_rnn."""
    x = scope.pick("float", lambda value: value.rank == 3 and 0 < value.sample.size <= 100)
    draw = scope.draw
    v1 = tf.compat.v1.nn
    number, units, dtype = draw.randrange(1000), draw.randint(1, 3), x.tensor.dtype
    time_major = draw.random() < 1 / 3
    batch, steps = (x.shape[1], x.shape[0]) if time_major else x.shape[:2]
    lengths = draw.choice([None, [draw.randint(0, steps) for _ in range(batch)]])
    options: dict[str, Any] = {"dtype": dtype, "time_major": time_major, "sequence_length": lengths}
    fixed = tf.ensure_shape(x.tensor, [None, None, x.shape[2]])
    with tf.compat.v1.variable_scope(f"rnn{number}", reuse=tf.compat.v1.AUTO_REUSE):
        match draw.choice(["dynamic", "dynamic", "both", "static", "raw"]):
            case "dynamic":
                outputs, state = v1.dynamic_rnn(_cell(scope, dtype, units, "one"), fixed, **options)
            case "both":
                pair = [_cell(scope, dtype, units, "one"), _cell(scope, dtype, units, "two")]
                outputs, state = v1.bidirectional_dynamic_rnn(*pair, fixed, **options)
            case "static":
                fixed = tf.ensure_shape(x.tensor, x.shape)
                rows = tf.unstack(fixed, axis=0 if time_major else 1)
                outputs, state = v1.static_rnn(
                    _cell(scope, dtype, units, "one"), rows, dtype=dtype, sequence_length=lengths
                )
            case _:
                outputs, state = _raw(
                    scope, _cell(scope, dtype, units, "one"), fixed, batch, steps, time_major=time_major
                )
    flat = tf.nest.flatten(outputs)
    scope.add(*flat[:3], *[part for part in tf.nest.flatten(state) if part.shape.rank is not None][:2])


def _raw(scope: Scope, cell_: Any, x: Any, batch: int, steps: int, *, time_major: bool) -> Any:
    turned = x if time_major else tf.transpose(x, [1, 0, 2])
    rows = tf.TensorArray(x.dtype, steps).unstack(turned)
    ends = tf.constant([scope.draw.randint(1, steps) for _ in range(batch)])

    def step(time: Any, output: Any, state: Any, loop_state: Any) -> Any:
        following = cell_.zero_state(batch, x.dtype) if output is None else state
        finished = time >= ends
        row = tf.cond(tf.reduce_all(finished), lambda: tf.zeros_like(turned[0]), lambda: rows.read(time))
        return finished, tf.ensure_shape(row, [batch, x.shape[2]]), following, output, None

    outputs, state, _ = tf.compat.v1.nn.raw_rnn(cell_, step)
    return outputs.stack(), state
