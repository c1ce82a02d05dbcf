"""Models that begin with lookups in tables: what is behind these is exported."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lstm_lower as ll

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

from lstm_lower.keras.lookups import CutLookupWarning  # noqa: E402
from tests.support.keras_models import close  # noqa: E402

L = keras.layers

WORDS = np.array([["a", "b", "c"], ["b", "b", "a"]])


def words() -> Any:
    return keras.Input((3,), dtype="string", name="words")


def table(name: str = "looked") -> Any:
    return L.StringLookup(vocabulary=["a", "b"], name=name)


def head(looked: Any) -> Any:
    return L.Dense(1, name="score")(L.Flatten()(L.Embedding(20, 4, name="rows")(looked)))


@pytest.mark.slow
def test_what_is_behind_a_lookup_trains_as_in_keras() -> None:
    given, rest, lookup = words(), keras.Input((4,), name="rest"), table()
    deep = L.LSTM(3)(L.Embedding(20, 4)(lookup(given)))
    flat = L.Dense(2, activation="tanh")(rest)
    outputs = {
        "score": L.Dense(1, name="score")(L.Concatenate()([flat, deep])),
        "other": L.Dense(1, name="other")(flat),
    }
    model = keras.Model({"words": given, "rest": rest}, outputs)
    losses = {"score": "mse", "other": "mae"}
    model.compile(
        keras.optimizers.Adam(0.01), losses, loss_weights={"score": 1.0, "other": 0.5}, metrics={"score": ["mae"]}
    )
    rng = np.random.default_rng(0)
    numbers = rng.standard_normal((2, 4)).astype(np.float32)
    targets = {name: rng.standard_normal((2, 1)).astype(np.float32) for name in outputs}
    # Slots of an optimizer that has trained the model are kept.
    model.train_on_batch({"words": tf.constant(WORDS), "rest": numbers}, targets)
    before, written = model.get_weights(), model.to_json()
    with pytest.warns(CutLookupWarning, match=r"'looked' \(StringLookup\) as 'x/looked'"):
        trainer = ll.Trainer(ll.from_keras(model))
    for value, kept in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(value, kept)
    assert model.to_json() == written
    feeds = {"x/looked": lookup(WORDS).numpy(), "x/rest": numbers} | {f"y/{name}": y for name, y in targets.items()}
    evaluated = trainer.evaluate([feeds])
    theirs = model.evaluate({"words": tf.constant(WORDS), "rest": numbers}, targets, return_dict=True, verbose=0)
    assert evaluated["score_mae"] == pytest.approx(theirs["score_mae"], rel=1e-5)
    for _ in range(2):
        ours = trainer.step(feeds).loss
        logs = model.train_on_batch({"words": tf.constant(WORDS), "rest": numbers}, targets, return_dict=True)
        assert float(ours) == pytest.approx(float(logs["loss"]), rel=1e-5)
    trained = model.get_weights()
    model.set_weights(before)
    trainer.to_keras(model)
    for value, expected in zip(model.get_weights(), trained, strict=True):
        close(value, expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lookup", "dtype", "behind"),
    [
        (lambda: L.TextVectorization(vocabulary=["a", "b"], output_sequence_length=3, name="text"), "int64", True),
        (lambda: L.StringLookup(vocabulary=["a", "b"], output_mode="multi_hot", name="text"), "float32", False),
        (
            lambda: L.StringLookup(vocabulary=["a", "b"], idf_weights=[0.5, 0.7], output_mode="tf_idf", name="text"),
            "float32",
            False,
        ),
    ],
)
def test_a_single_input_is_what_the_lookup_returns(lookup: Any, dtype: str, behind: bool) -> None:
    text = lookup()
    data = np.array([["a b c"], ["b b a"]]) if behind else WORDS
    given = keras.Input(data.shape[1:], dtype="string")
    model = keras.Sequential([given, text, *([L.Embedding(4, 2), L.Flatten()] if behind else []), L.Dense(1)])
    with pytest.warns(CutLookupWarning, match=r"'text' \(\w+\) as 'x'; apply them"):
        trainer = ll.Trainer(ll.from_keras(model, "mse", "sgd"))
    (predicted,) = trainer.predict({"x": text(data).numpy().astype(dtype)}).values()
    close(predicted, model(tf.constant(data)).numpy())


@pytest.mark.slow
def test_each_call_of_a_lookup_is_an_input() -> None:
    lookup, first, second = table(), words(), keras.Input((3,), dtype="string", name="looked_1")
    rows = L.Embedding(20, 4)
    model = keras.Model([second, first], L.Dense(1)(L.Flatten()(L.Add()([rows(lookup(first)), rows(lookup(second))]))))
    for _ in range(2):
        with pytest.warns(CutLookupWarning):
            step = ll.from_keras(model, "mse", "sgd")
        names = [value.name for value in step.graph.input]
        assert {"x/looked", "x/looked_1"} <= set(names)


class Subclassed(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.lookup, self.rows, self.score = table(), L.Embedding(20, 4), L.Dense(1)

    def call(self, given: Any) -> Any:
        return self.score(self.rows(self.lookup(given)))


class OwnStep(keras.Model):
    def train_step(self, data: Any) -> Any:
        return super().train_step(data)


class OwnCall(keras.Model):
    def call(self, *args: Any, **options: Any) -> Any:
        return 2.0 * super().call(*args, **options)


def nested() -> Any:
    given = words()
    return keras.Model(given, head(keras.Sequential([words(), table()])(given)))


def subclassed() -> Any:
    model = Subclassed()
    model(tf.constant(WORDS))
    return model


def own_step() -> Any:
    given = words()
    return OwnStep(given, head(table()(given)))


def own_call() -> Any:
    given = words()
    return OwnCall(given, head(table()(given)))


def ragged() -> Any:
    given = keras.Input((1,), dtype="string")
    looked = L.TextVectorization(vocabulary=["a", "b"], ragged=True, name="looked")(given)
    return keras.Model(given, L.Embedding(20, 4)(looked))


def of_ragged() -> Any:
    given = keras.Input((None,), dtype="string", ragged=True)
    return keras.Model(given, L.Embedding(20, 4)(table()(given)))


def returned() -> Any:
    given = words()
    looked = table()(given)
    return keras.Model(given, [looked, head(looked)])


def behind_weights() -> Any:
    given = keras.Input((3,), name="numbers")
    rounded = keras.ops.cast(L.Dense(3)(given), "int64")
    return keras.Model(given, head(L.IntegerLookup(vocabulary=[0, 1], name="looked")(rounded)))


@pytest.mark.parametrize("build", [nested, subclassed, own_step, own_call, ragged, of_ragged, returned, behind_weights])
def test_a_lookup_that_cannot_be_cut_off_is_refused(build: Any) -> None:
    model = build()
    model.compile("sgd", "mse")
    with pytest.raises(ll.UnsupportedOpError, match=r"layer 'looked' \(\w+\) requires tables"):
        ll.from_keras(model, input_spec=tf.TensorSpec((None, 3), tf.string))


@pytest.mark.slow
def test_hashes_are_cut_off() -> None:
    hashed, crossed = L.Hashing(num_bins=7, name="hashed"), L.HashedCrossing(num_bins=5, name="crossed")
    given, other = keras.Input((1,), dtype="string", name="words"), keras.Input((1,), dtype="string", name="other")
    rows = [L.Flatten()(L.Embedding(9, 3)(looked)) for looked in (hashed(given), crossed((given, other)))]
    model = keras.Model([given, other], L.Dense(1)(L.Concatenate()(rows)))
    with pytest.warns(CutLookupWarning, match=r"\(Hashing\) as 'x/hashed', 'crossed' \(HashedCrossing\)"):
        trainer = ll.Trainer(ll.from_keras(model, "mse", "sgd"))
    data = [tf.constant([["a"], ["b"]]), tf.constant([["c"], ["c"]])]
    (predicted,) = trainer.predict({"x/hashed": hashed(data[0]).numpy(), "x/crossed": crossed(data).numpy()}).values()
    close(predicted, model(data).numpy())


def test_a_model_of_tf_keras_is_refused_by_the_name_of_its_lookup() -> None:
    tf_keras = pytest.importorskip("tf_keras")
    given = tf_keras.Input((3,), dtype="string")
    looked = tf_keras.layers.StringLookup(vocabulary=["a", "b"], name="looked")(given)
    model = tf_keras.Model(given, tf_keras.layers.Embedding(20, 4)(looked))
    with pytest.raises(ll.UnsupportedOpError, match=r"layer 'looked' \(StringLookup\) requires tables"):
        ll.from_keras(model, "mse", "sgd")


def test_a_warning_that_is_an_error_stays_itself() -> None:
    given = words()
    with pytest.raises(CutLookupWarning, match="'looked'"):
        ll.from_keras(keras.Model(given, head(table()(given))), "mse", "sgd")
