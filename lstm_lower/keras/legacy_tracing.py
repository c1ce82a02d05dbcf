"""How layers of tf-keras are traced: recurrent ones as loops, random numbers from generators that are state."""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import weights_broadcast_ops
from tf_keras.src import backend

from lstm_lower.replacement import replaced

# What chooses another form for reasons of speed that hold elsewhere.
_CHOICES = {"_could_use_gpu_kernel": False, "unroll": False}


class Generators:
    """A generator of random numbers in the place of each of tf-keras' that draws without one.

    TensorFlow's ops of old count how often they drew where nobody sees it. The seeds are those that tf-keras would draw
    next; it draws them all the same afterwards.
    """

    def __init__(self) -> None:
        """Looks where the seeds stand."""
        seeds = getattr(backend._SEED_GENERATOR, "generator", None)
        self._seeds = random.Random()  # noqa: S311
        self._seeds.setstate((seeds or random).getstate())
        self._made: dict[int, tuple[Any, tf.random.Generator]] = {}

    def of(self, drawing: Any) -> tf.random.Generator:
        """The generator in the place of one of tf-keras'."""
        if id(drawing) not in self._made:
            seed = drawing._seed if drawing._seed is not None else self._seeds.randint(1, 10**9)
            with tf.init_scope():
                self._made[id(drawing)] = drawing, tf.random.Generator.from_seed(seed, alg="philox")
        return self._made[id(drawing)][1]


@contextlib.contextmanager
def as_loops(model: Any, generators: Generators) -> Iterator[None]:
    """Recurrent layers of a model, however deep, become loops when they are traced within; what is random, state."""
    kind = backend.RandomGenerator
    held: list[tuple[Any, dict[str, Any]]] = []
    own = kind._maybe_init

    def stateful(drawing: Any) -> None:
        if drawing._rng_type == kind.RNG_LEGACY_STATEFUL:
            held.append((drawing, copy.copy(vars(drawing))))
            vars(drawing).update(_rng_type=kind.RNG_STATEFUL, _generator=generators.of(drawing), _built=True)
        own(drawing)

    choices = []
    for layer in model._flatten_layers():
        for name in _CHOICES.keys() & vars(layer).keys():
            choices.append((layer, name, vars(layer)[name]))
            vars(layer)[name] = _CHOICES[name]
    try:
        # A check alone, with operations on sets.
        unchecked = replaced(weights_broadcast_ops, "assert_broadcastable", lambda *_: tf.no_op())
        with replaced(kind, "_maybe_init", stateful), unchecked:
            yield
    finally:
        for layer, name, value in choices:
            vars(layer)[name] = value
        for drawing, before in reversed(held):
            vars(drawing).clear()
            vars(drawing).update(before)
