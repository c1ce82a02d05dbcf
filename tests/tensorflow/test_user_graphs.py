"""Training steps as users write them: unusual layers, losses and updates, followed step by step beside TensorFlow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lstm_lower as ll

tf = pytest.importorskip("tensorflow")

Array = np.ndarray[Any, Any]


def variables(seed: int, **shapes: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [
        tf.Variable(0.3 * rng.standard_normal(shape).astype(np.float32), name=name) for name, shape in shapes.items()
    ]


def check(step: Any, feeds: dict[str, Array], kept: list[Any], outputs: tuple[str, ...] = ()) -> None:
    """Three steps of both, then the state."""
    trainer = ll.Trainer(ll.lower(ll.from_tensorflow(step, weights="inputs")))
    for _ in range(3):
        expected = step(*[tf.constant(value) for value in feeds.values()])
        result = trainer.step(feeds, outputs)
        assert result.loss == pytest.approx(float(expected["loss"]), rel=1e-5)
        for name in outputs:
            np.testing.assert_allclose(result.outputs[name], expected[name].numpy(), rtol=1e-5, err_msg=name)
    held = trainer.state_dict()
    for variable in kept:
        value = variable.numpy()
        ours = held[variable.name.removesuffix(":0")]
        np.testing.assert_allclose(ours, value, rtol=0, atol=1e-5 * np.abs(value).max(), err_msg=variable.name)


def lstm(x: Any, w: Any, b: Any) -> Any:
    """The outputs [T, B, H] of a BlockLSTM."""
    units = w.shape[1] // 4
    state, zeros = tf.zeros([tf.shape(x)[1], units]), tf.zeros(units)
    steps = tf.cast(tf.shape(x)[0], tf.int64)
    return tf.raw_ops.BlockLSTM(
        seq_len_max=steps, x=x, cs_prev=state, h_prev=state, w=w, wci=zeros, wcf=zeros, wco=zeros, b=b
    ).h


@pytest.mark.slow
def test_connectionist_loss_of_both_directions() -> None:
    """The loss lies in a function of its own, whose nodes name each other as neighbours."""
    kept = variables(0, wf=(7, 16), bf=(16,), wb=(7, 16), bb=(16,), dense=(8, 5))
    momenta = [tf.Variable(tf.zeros_like(variable), name=f"m{number}") for number, variable in enumerate(kept)]
    specs = [tf.TensorSpec([None, None, 3], name="x"), tf.TensorSpec([None], tf.int32, name="n")]

    @tf.function(input_signature=[*specs, tf.TensorSpec([None, 3], tf.int32, name="y")])
    def step(x: Any, n: Any, y: Any) -> dict[str, Any]:
        def turned(z: Any) -> Any:
            return tf.reverse_sequence(z, n, seq_axis=0, batch_axis=1)

        with tf.GradientTape() as tape:
            wf, bf, wb, bb, dense = kept
            both = tf.concat([lstm(x, wf, bf), turned(lstm(turned(x), wb, bb))], 2)
            logits = tf.tensordot(both, dense, 1)
            labels = tf.sparse.from_dense(y)
            loss = tf.reduce_mean(tf.nn.ctc_loss(labels, logits, None, n, logits_time_major=True, blank_index=0))
        for variable, momentum, gradient in zip(kept, momenta, tape.gradient(loss, kept), strict=True):
            momentum.assign(0.9 * momentum + gradient)
            variable.assign_sub(0.05 * momentum)
        return {"loss": loss}

    x = np.random.default_rng(1).standard_normal((8, 3, 3)).astype(np.float32)
    labels = np.array([[1, 2, 3], [2, 2, 0], [4, 0, 0]], np.int32)
    check(step, {"x": x, "n": np.array([8, 5, 7], np.int32), "y": labels}, [*kept, *momenta])


@pytest.mark.slow
def test_tied_embedding_with_dropout_focal_loss_and_lazy_moments() -> None:
    kept = variables(2, embedding=(9, 6), w=(12, 24), b=(24,))
    moments = [tf.Variable(tf.zeros_like(variable), name=f"moment{number}") for number, variable in enumerate(kept)]
    count = tf.Variable(0, dtype=tf.int64, name="count", trainable=False)
    specs = [tf.TensorSpec([5, None], tf.int32, name="ids"), tf.TensorSpec([2], tf.int32, name="seed")]

    @tf.function(input_signature=specs)
    def step(ids: Any, seed: Any) -> dict[str, Any]:
        embedding, w, b = kept
        with tf.GradientTape() as tape:
            x = tf.nn.embedding_lookup(embedding, ids[:-1])
            # Splits the seed by drawing integers from it.
            x = tf.nn.experimental.stateless_dropout(x, 0.2, seed, rng_alg="philox")
            logits = tf.einsum("tbe,ve->tbv", lstm(x, w, b), embedding)
            entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(ids[1:], logits)
            loss = tf.reduce_mean((1 - tf.exp(-entropy)) ** 2 * entropy)
        count.assign_add(1)
        rate = 0.05 / (1 - 0.9 ** tf.cast(count, tf.float32))
        for variable, moment, gradient in zip(kept, moments, tape.gradient(loss, kept), strict=True):
            moment.assign(0.9 * moment)
            if isinstance(gradient, tf.IndexedSlices):
                moment.scatter_add(tf.IndexedSlices(0.1 * gradient.values, gradient.indices))
            else:
                moment.assign_add(0.1 * gradient)
            variable.assign_sub(rate * moment)
        return {"loss": loss}

    ids = np.random.default_rng(3).integers(0, 9, (5, 4)).astype(np.int32)
    check(step, {"ids": ids, "seed": np.array([1, 2], np.int32)}, [*kept, *moments])


@pytest.mark.slow
def test_cells_in_a_python_loop_under_attention() -> None:
    """LSTMBlockCell with a gradient that the user registers, label smoothing, clipping by value and by norm."""
    steps, inputs, units = 4, 2, 5
    kept = variables(4, w=(inputs + units, 4 * units), b=(4 * units,), query=(units, units), dense=(2 * units, 3))
    peephole = {name: tf.zeros(units) for name in ("wci", "wcf", "wco")}

    @tf.custom_gradient
    def cell(x: Any, cs: Any, h: Any, w: Any, b: Any) -> Any:
        given = {"x": x, "cs_prev": cs, "h_prev": h, "w": w, "b": b, **peephole}
        made = tf.raw_ops.LSTMBlockCell(**given)

        def gradient(d_cs: Any, d_h: Any) -> Any:
            saved = {name: getattr(made, name) for name in ("i", "cs", "f", "o", "ci", "co")}
            back = tf.raw_ops.LSTMBlockCellGrad(**given, **saved, cs_grad=d_cs, h_grad=d_h, use_peephole=False)
            d_x, d_previous = tf.split(back.dicfo @ tf.transpose(w), [inputs, units], 1)
            d_w = tf.matmul(tf.concat([x, h], 1), back.dicfo, transpose_a=True)
            return d_x, back.cs_prev_grad, d_previous, d_w, tf.reduce_sum(back.dicfo, 0)

        return (made.cs, made.h), gradient

    specs = [tf.TensorSpec([steps, None, inputs], name="x"), tf.TensorSpec([None], tf.int32, name="y")]

    @tf.function(input_signature=specs, autograph=False)
    def step(x: Any, y: Any) -> dict[str, Any]:
        w, b, query, dense = kept
        with tf.GradientTape() as tape:
            cs = h = tf.zeros([tf.shape(x)[1], units])
            outputs = []
            for number in range(steps):
                cs, h = cell(x[number], cs, h, w, b)
                outputs.append(h)
            sequence = tf.stack(outputs, 1)
            weights = tf.nn.softmax(tf.einsum("bh,hk,btk->bt", h, query, sequence))
            logits = tf.concat([tf.einsum("bt,bth->bh", weights, sequence), h], 1) @ dense
            labels = tf.one_hot(y, 3) * 0.9 + 0.1 / 3
            loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels, logits))
        first, *others = tape.gradient(loss, kept)
        clipped = [tf.clip_by_value(first, -0.01, 0.01), *(tf.clip_by_norm(other, 0.05) for other in others)]
        for variable, gradient in zip(kept, clipped, strict=True):
            variable.assign_sub(gradient)
        return {"loss": loss}

    x = np.random.default_rng(5).standard_normal((steps, 3, inputs)).astype(np.float32)
    check(step, {"x": x, "y": np.array([0, 2, 1], np.int32)}, kept)


@pytest.mark.slow
def test_penalty_on_the_gradient_of_the_input() -> None:
    """Gradients of gradients, through a convolution, pooling and a normalised weight."""
    kept = variables(6, kernel=(3, 3, 2, 4), gain=(4,), dense=(4, 1))

    @tf.function(input_signature=[tf.TensorSpec([None, 6, 6, 2], name="x")])
    def step(x: Any) -> dict[str, Any]:
        kernel, gain, dense = kept
        with tf.GradientTape() as tape:
            with tf.GradientTape() as inner:
                inner.watch(x)
                weights = gain * tf.math.l2_normalize(kernel, [0, 1, 2])
                pooled = tf.nn.avg_pool2d(tf.tanh(tf.nn.conv2d(x, weights, 1, "SAME")), 2, 2, "VALID")
                out = tf.reduce_mean(pooled, [1, 2]) @ dense
                total = tf.reduce_sum(out)
            gradient = tf.reshape(inner.gradient(total, x), [tf.shape(x)[0], 72])
            penalty = tf.reduce_mean((tf.norm(gradient, axis=1) - 1) ** 2)
            loss = tf.reduce_mean(out**2) + penalty
        gradients, norm = tf.clip_by_global_norm(tape.gradient(loss, kept), 0.5)
        for variable, change in zip(kept, gradients, strict=True):
            variable.assign_sub(0.1 * change)
        return {"loss": loss, "penalty": penalty, "norm": norm}

    x = np.random.default_rng(7).standard_normal((3, 6, 6, 2)).astype(np.float32)
    check(step, {"x": x}, kept, ("penalty", "norm"))


@pytest.mark.slow
def test_loops_and_branches_that_no_gradient_goes_through() -> None:
    """A spectral norm by power iteration, and a rate that depends on the loss."""
    (w,) = variables(8, w=(6, 8))
    direction = tf.Variable(tf.ones([1, 8]) / np.float32(8**0.5), name="direction", trainable=False)

    @tf.function(input_signature=[tf.TensorSpec([None, 6], name="x")], autograph=False)
    def step(x: Any) -> dict[str, Any]:
        value = w.read_value()

        def turn(number: Any, u: Any) -> tuple[Any, Any]:
            return number + 1, tf.math.l2_normalize(tf.math.l2_normalize(u @ tf.transpose(value)) @ value)

        _, turned = tf.while_loop(lambda number, _: number < 3, turn, [0, direction.read_value()])
        direction.assign(turned)
        with tf.GradientTape() as tape:
            other = tf.math.l2_normalize(turned @ tf.transpose(value))
            norm = tf.reduce_sum((tf.stop_gradient(other) @ w) * tf.stop_gradient(turned))
            loss = tf.reduce_mean((x @ (w / norm)) ** 2)
        rate = tf.cond(loss > 0.1, lambda: 0.1, lambda: 0.05)
        w.assign_sub(rate * tape.gradient(loss, w))
        return {"loss": loss}

    x = np.random.default_rng(9).standard_normal((3, 6)).astype(np.float32)
    check(step, {"x": x}, [w, direction])


def test_a_variable_read_inside_a_loop() -> None:
    """What is assigned to it is the result of the loop."""
    (w,) = variables(10, w=(4, 4))

    @tf.function(input_signature=[tf.TensorSpec([4, 4], name="x")], autograph=False)
    def step(x: Any) -> dict[str, Any]:
        _, result = tf.while_loop(lambda number, _: number < 3, lambda number, y: (number + 1, y @ w), [0, x])
        w.assign_add(result)
        return {"loss": tf.reduce_sum(result)}

    check(step, {"x": 0.3 * np.random.default_rng(12).standard_normal((4, 4)).astype(np.float32)}, [w])


@pytest.mark.slow
def test_a_recurrent_op_that_stands_only_inside_a_loop() -> None:
    """A cell under `tf.while_loop`: its operator set is needed there alone."""
    rng = np.random.default_rng(11)
    w, b, zeros = (tf.constant(rng.standard_normal(shape).astype(np.float32)) for shape in ((7, 16), (16,), (4,)))

    @tf.function(input_signature=[tf.TensorSpec([5, 2, 3], name="x")], autograph=False)
    def forward(x: Any) -> dict[str, Any]:
        def turn(number: Any, state: Any, hidden: Any) -> tuple[Any, Any, Any]:
            cell = tf.raw_ops.LSTMBlockCell(
                x=x[number], cs_prev=state, h_prev=hidden, w=w, wci=zeros, wcf=zeros, wco=zeros, b=b
            )
            return number + 1, cell.cs, cell.h

        start = [0, tf.zeros([2, 4]), tf.zeros([2, 4])]
        _, _, hidden = tf.while_loop(lambda number, *_: number < 5, turn, start)
        return {"hidden": hidden}

    x = rng.standard_normal((5, 2, 3)).astype(np.float32)
    model = ll.lower(ll.from_tensorflow(forward))
    (hidden,) = ll.Session(model).run({"x": x}).values()
    np.testing.assert_allclose(hidden, forward(tf.constant(x))["hidden"].numpy(), rtol=1e-5, atol=1e-6)
