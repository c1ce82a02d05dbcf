"""Steps of one's own: `train_step` and `compute_loss` of a class, and layers in a `tf.function`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lstm_lower as ll

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")

from tests.support.keras_models import LOSS, ElmanCell, close, data  # noqa: E402

L = keras.layers


class Clipped(keras.Sequential):  # type: ignore[misc]
    def train_step(self, batch: Any) -> Any:
        x, y, *weight = batch
        with tf.GradientTape() as tape:
            predictions = self(x, training=True)
            loss = self.compute_loss(x, y, predictions, *weight) + 0.1 * tf.reduce_mean(tf.square(predictions))
        gradients, _ = tf.clip_by_global_norm(tape.gradient(loss, self.trainable_variables), 0.1)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        for metric in self.metrics:
            metric.update_state(loss) if metric.name == "loss" else metric.update_state(y, predictions)
        return {metric.name: metric.result() for metric in self.metrics}


class Twice(keras.Sequential):  # type: ignore[misc]
    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        return 2 * super().compute_loss(*args, **kwargs)


class Coder(keras.Sequential):  # type: ignore[misc]
    def train_step(self, x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(x, training=True) - x))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss, "root": tf.sqrt(loss)}


def made(kind: Any, *, head: Any = None) -> Any:
    keras.utils.set_random_seed(3)
    model = kind([keras.Input((3, 2)), L.LSTM(4, return_sequences=True), head or L.RNN(ElmanCell(3))])
    model.compile(keras.optimizers.Adam(0.01), *([] if kind is Coder else ["mse"]), run_eagerly=True)
    return model


def same_weights(model: Any, trainer: ll.Trainer) -> None:
    held = {pair.variable: trainer.state_dict()[pair.input] for pair in trainer.state.pairs}
    for variable in model.trainable_variables:
        close(held[variable.path], variable.numpy(), what=variable.path)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "weighted"), [(Clipped, False), (Twice, True)])
def test_training_follows_the_models_own_step(kind: Any, *, weighted: bool) -> None:
    model, (x, _) = made(kind), data()
    y, weight = np.eye(5, 3, dtype=np.float32), np.linspace(0, 1, 5, dtype=np.float32)
    trainer = ll.Trainer(ll.from_keras(model, sample_weight=weighted))
    for _ in range(3):
        model.reset_metrics()
        loss = model.train_on_batch(x, y, sample_weight=weight if weighted else None)
        feeds = {"x": x, "y": y} | ({"sample_weight": weight} if weighted else {})
        assert trainer.step(feeds).loss == pytest.approx(float(np.ravel(loss)[0]), rel=1e-5)
    same_weights(model, trainer)


@pytest.mark.slow
def test_metrics_that_compile_was_given() -> None:
    keras.utils.set_random_seed(3)
    model, (x, y) = Twice([keras.Input((3, 2)), L.LSTM(4), L.Dense(3, activation="softmax")]), data()
    model.compile("sgd", LOSS, metrics=["accuracy"], run_eagerly=True)
    result = ll.Trainer(ll.from_keras(model)).step({"x": x, "y": y}, ["accuracy"])
    loss, accuracy = model.train_on_batch(x, y)
    assert result.loss == pytest.approx(float(loss), rel=1e-5)
    assert float(result.outputs["accuracy"]) == pytest.approx(float(accuracy))


@pytest.mark.slow
def test_a_step_on_inputs_alone() -> None:
    model, (x, _) = made(Coder, head=L.Dense(2)), data()
    trainer = ll.Trainer(ll.from_keras(model))
    first = trainer.step({"x": x}, ["root"])
    assert float(first.outputs["root"]) == pytest.approx(first.loss**0.5, rel=1e-5)
    trainer.step({"x": x})
    model.fit(x, batch_size=5, epochs=2, shuffle=False, verbose=0)
    same_weights(model, trainer)


def test_what_such_a_step_pays_no_heed_to() -> None:
    with pytest.raises(ll.InvalidInputError, match=r"loss requires Keras' own training step.*model.compile"):
        ll.from_keras(made(Twice), keras.losses.MeanSquaredError(), "sgd")
    with pytest.raises(ll.InvalidInputError, match=r"what requires 'train' for model .*from_tensorflow"):
        ll.from_keras(made(Twice), what="gradients")


@pytest.mark.slow
@pytest.mark.parametrize("steps", [3, None])
def test_layers_in_a_function(steps: int | None) -> None:
    """LSTM layers, as Keras traces them without any help, and an optimizer of Keras."""
    keras.utils.set_random_seed(3)
    words, _ = data()
    masking, layer, dense = L.Masking(), L.Bidirectional(L.LSTM(3, return_sequences=True)), L.GRU(2)
    rule = keras.optimizers.Adam(0.01)

    def loss_of(x: Any) -> Any:
        return tf.reduce_mean(tf.square(dense(layer(masking(x))) - 0.5))

    loss_of(words)
    variables = [*layer.trainable_variables, *dense.trainable_variables]
    rule.build(variables)

    def step(x: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            loss = loss_of(x)
        rule.apply(tape.gradient(loss, variables), variables)
        return {"loss": loss}

    function = tf.function(step, input_signature=[tf.TensorSpec([None, steps, 2], name="x")], autograph=False)
    trainer = ll.Trainer(ll.from_tensorflow(function, weights="inputs"))
    for _ in range(3):
        assert trainer.step({"x": words}).loss == pytest.approx(float(function(words)["loss"]), rel=1e-5)


class Discriminator(keras.Sequential):  # type: ignore[misc]
    def train_step(self, x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(x, training=True)))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"d_loss": loss}


@pytest.mark.slow
def test_a_loss_of_another_name() -> None:
    keras.utils.set_random_seed(3)
    model, (x, _) = Discriminator([keras.Input((3, 2)), L.Flatten(), L.Dense(1)]), data()
    model.compile("sgd")
    with pytest.raises(ll.InvalidInputError, match="with a 'loss', got one with d_loss; loss names another"):
        ll.from_keras(model)
    trainer = ll.Trainer(ll.from_keras(model, "d_loss"))
    expected = float(np.square(model(x)).mean())
    assert trainer.step({"x": x}).loss == pytest.approx(expected, rel=1e-5)
    assert "d_loss" in trainer.outputs


class End(L.Layer):  # type: ignore[misc]
    def call(self, y: Any, p: Any) -> Any:
        self.add_loss(tf.reduce_mean(tf.square(y - p)))
        return p


@pytest.mark.slow
def test_losses_that_layers_add_are_enough() -> None:
    keras.utils.set_random_seed(3)
    x, label = keras.Input((3, 2), name="image"), keras.Input((1,), name="label")
    model = keras.Model([x, label], End()(label, L.Dense(1)(L.Flatten()(x))))
    model.compile("adam", run_eagerly=True)
    feeds = {"x/image": data()[0], "x/label": np.ones((5, 1), np.float32)}
    trainer = ll.Trainer(ll.from_keras(model))
    for _ in range(2):
        loss = model.train_on_batch([*feeds.values()])
        assert trainer.step(feeds).loss == pytest.approx(float(np.ravel(loss)[0]), rel=1e-5)
    plain = keras.Sequential([keras.Input((3,)), L.Dense(1)])
    with pytest.raises(ll.InvalidInputError, match="nor do its layers add any"):
        ll.from_keras(plain, None, "sgd")


@pytest.mark.slow
def test_labels_of_ctc_need_no_spec() -> None:
    """Rows of classes of any length, which zeros fill up."""
    keras.utils.set_random_seed(5)
    model = keras.Sequential([keras.Input((6, 2)), L.Dense(4)])
    model.compile(keras.optimizers.SGD(0.1), keras.losses.CTC(), run_eagerly=True)
    x, y = np.random.default_rng(0).standard_normal((3, 6, 2)).astype(np.float32), np.array([[1, 2], [3, 3], [2, 0]])
    trainer = ll.Trainer(ll.from_keras(model))
    for _ in range(2):
        loss = trainer.step({"x": x, "y": y}).loss
        assert loss == pytest.approx(float(np.ravel(model.train_on_batch(x, y))[0]), rel=1e-5)


class OfNames(keras.Model):
    """Takes a dictionary in training, and a list when it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = L.Dense(1)

    def call(self, inputs: Any) -> Any:
        source, target = inputs
        return self.layer(source) + target

    def train_step(self, batch: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self([batch["source"], batch["target"]]) - 1.0))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


@pytest.mark.slow
def test_a_step_may_take_what_the_model_does_not() -> None:
    model = OfNames()
    batch = {"source": np.ones((2, 3), np.float32), "target": np.ones((2, 1), np.float32)}
    value = float(np.square(model([*batch.values()]) - 1.0).mean())
    model.compile("sgd")
    spec = {name: tf.TensorSpec((None, *array.shape[1:])) for name, array in batch.items()}
    trainer = ll.Trainer(ll.from_keras(model, input_spec=spec))
    assert trainer.step({f"x/{name}": array for name, array in batch.items()}).loss == pytest.approx(value, rel=1e-5)


class Wasserstein(keras.Model):
    """WGAN-GP as Keras' pages have it: two models, two optimizers, the gradient of a gradient, no `call`."""

    def __init__(self) -> None:
        super().__init__()
        self.critic = keras.Sequential([keras.Input((4, 4, 1)), L.Conv2D(3, 3), L.LeakyReLU(), L.Flatten(), L.Dense(1)])
        layers = [keras.Input((3,)), L.Dense(16, activation="sigmoid"), L.Reshape((4, 4, 1))]
        self.generator = keras.Sequential(layers)
        self.seeds = keras.random.SeedGenerator(1)

    def compile(self, critic_optimizer: Any, optimizer: Any) -> None:
        super().compile()
        self.critic_optimizer, self.generator_optimizer = critic_optimizer, optimizer

    def penalty(self, real: Any, fake: Any) -> Any:
        share = keras.random.uniform((tf.shape(real)[0], 1, 1, 1), seed=self.seeds)
        between = real + share * (fake - real)
        with tf.GradientTape() as tape:
            tape.watch(between)
            scores = self.critic(between, training=True)
        (gradient,) = tape.gradient(scores, [between])
        return tf.reduce_mean((tf.sqrt(tf.reduce_sum(tf.square(gradient), axis=[1, 2, 3])) - 1.0) ** 2)

    def train_step(self, real: Any) -> Any:
        for _ in range(2):
            noise = keras.random.normal((tf.shape(real)[0], 3), seed=self.seeds)
            with tf.GradientTape() as tape:
                fake = self.generator(noise, training=True)
                cost = tf.reduce_mean(self.critic(fake)) - tf.reduce_mean(self.critic(real))
                cost += 10.0 * self.penalty(real, fake)
            gradients = tape.gradient(cost, self.critic.trainable_variables)
            self.critic_optimizer.apply_gradients(zip(gradients, self.critic.trainable_variables, strict=True))
        noise = keras.random.normal((tf.shape(real)[0], 3), seed=self.seeds)
        with tf.GradientTape() as tape:
            loss = -tf.reduce_mean(self.critic(self.generator(noise, training=True)))
        gradients = tape.gradient(loss, self.generator.trainable_variables)
        self.generator_optimizer.apply_gradients(zip(gradients, self.generator.trainable_variables, strict=True))
        return {"d_loss": cost, "g_loss": loss}


class Distiller(keras.Model):
    """A student that learns from a teacher and from labels, as Keras' pages have it; never called before it trains."""

    def __init__(self) -> None:
        super().__init__()
        self.teacher = keras.Sequential([keras.Input((3, 2)), L.SimpleRNN(4), L.Dense(3)])
        self.student = keras.Sequential([L.Flatten(), L.Dense(3)])

    def call(self, x: Any) -> Any:
        return self.student(x)

    def compute_loss(self, x: Any = None, y: Any = None, y_pred: Any = None, *_: Any, **__: Any) -> Any:
        soft = [keras.ops.softmax(each / 3.0) for each in (self.teacher(x, training=False), y_pred)]
        hard = keras.losses.SparseCategoricalCrossentropy(from_logits=True)(y, y_pred)
        return 0.1 * hard + 0.9 * keras.losses.KLDivergence()(*soft)


class Named(keras.Model):
    """Inputs, outputs and targets by names; targets that are no outputs; metrics of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = L.Embedding(9, 4), L.Dense(3)
        self.seen = keras.metrics.Mean(name="seen")

    def call(self, inputs: Any) -> Any:
        h = keras.ops.mean(self.words(inputs["words"]), axis=1)
        return {"topic": self.head(keras.ops.concatenate([h, inputs["rest"]], axis=-1))}

    def train_step(self, batch: Any) -> Any:
        x, y = batch
        with tf.GradientTape() as tape:
            scores = self(x, training=True)["topic"]
            rows = keras.losses.sparse_categorical_crossentropy(y["label"], scores, from_logits=True)
            loss = tf.reduce_mean(rows * tf.cast(y["weight"], rows.dtype))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        self.seen.update_state(loss)
        return {"loss": loss, "mean": self.seen.result()}


def wasserstein() -> Any:
    model = Wasserstein()
    model.compile(keras.optimizers.Adam(0.01), keras.optimizers.RMSprop(0.01))
    return model, (np.random.default_rng(0).random((4, 4, 4, 1)).astype(np.float32),)


def distiller() -> Any:
    model = Distiller()
    model.compile("adam", metrics=["sparse_categorical_accuracy"])
    return model, (data()[0], np.array([0, 2, 1, 1, 0]))


def named() -> Any:
    model = Named()
    model.compile("adam")
    x = {"words": np.arange(15).reshape(5, 3) % 9, "rest": np.ones((5, 2), np.float32)}
    return model, (x, {"label": np.array([0, 2, 1, 1, 0]), "weight": np.linspace(0, 1, 5, dtype=np.float32)})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "loss", "inputs"),
    [
        (wasserstein, "d_loss", ["x"]),
        (distiller, None, ["x", "y"]),
        (named, None, ["x/rest", "x/words", "y/label", "y/weight"]),
    ],
)
def test_steps_as_keras_pages_write_them(kind: Any, loss: str | None, inputs: list[str]) -> None:
    """Models that nobody has built: the first batch says what they take."""
    keras.utils.set_random_seed(3)
    model, parts = kind()
    batches = tf.data.Dataset.from_tensors(parts if len(parts) > 1 else parts[0])
    trainer = ll.Trainer(ll.from_keras(model, loss, data=batches))
    assert trainer.inputs == inputs
    ours = trainer.fit(batches, epochs=3)
    theirs = model.fit(batches, epochs=3, verbose=0)
    for name, values in theirs.history.items():
        np.testing.assert_allclose(ours[name], values, rtol=1e-4, err_msg=name)
    same_weights(model, trainer)
