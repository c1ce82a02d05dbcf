"""What the graphs of the loop tests are made with; TensorFlow is handed in, so that names can be read without it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

# Values by placeholder, a dict for each training step.
Feeds = list[dict[Any, Array]]

# Batch size and number of steps of each training step.
SIZES = ((2, 5), (3, 7), (1, 4))

FEATURES, UNITS = 3, 4


@dataclasses.dataclass
class Kit:
    """TensorFlow with what most graphs need of it.

    Attributes:
        tf: the module.
        rng: draws what is fed.
        frames: whether loops become the frames of TensorFlow 1, not functions.
    """

    tf: Any
    frames: bool
    rng: np.random.Generator = dataclasses.field(default_factory=lambda: np.random.default_rng(0))

    @property
    def v1(self) -> Any:
        return self.tf.compat.v1

    @property
    def cells(self) -> Any:
        return self.v1.nn.rnn_cell

    def input(self, name: str, shape: list[int | None], dtype: str = "float32") -> Any:
        return self.v1.placeholder(dtype, shape, name=name)

    def variable(self, name: str, *shape: int, dtype: str = "float32", **options: Any) -> Any:
        return self.v1.get_variable(name, list(shape), dtype=dtype, **options)

    def normal(self, *shape: int, dtype: str = "float32") -> Array:
        return self.rng.standard_normal(shape).astype(dtype)

    def integers(self, least: int, end: int, *shape: int) -> Array:
        return self.rng.integers(least, end, shape).astype(np.int32)

    def lengths(self, B: int, T: int) -> Array:
        return self.integers(1, T + 1, B)

    def data(self, further: Callable[[int, int], dict[Any, Array]] = lambda B, T: {}, dtype: str = "float32") -> Data:
        """Sequences and targets of changing batch sizes and lengths."""
        x, y = self.input("x", [None, None, FEATURES], dtype), self.input("y", [None, None, UNITS], dtype)

        def feeds() -> Feeds:
            shapes = [
                (B, T, self.normal(B, T, FEATURES, dtype=dtype), self.normal(B, T, UNITS, dtype=dtype))
                for B, T in SIZES
            ]
            return [{x: a, y: b, **further(B, T)} for B, T, a, b in shapes]

        return Data(self.tf, x, y, feeds)

    def dense(self, x: Any, h: Any, w: Any) -> Any:
        """The simplest cell: `tanh([x, h] w)`."""
        return self.tf.tanh(self.tf.matmul(self.tf.concat([x, h], 1), w))

    def kernel(self, name: str = "w", rows: int = FEATURES + UNITS, dtype: str = "float32") -> Any:
        return self.variable(name, rows, UNITS, dtype=dtype)

    def start(self, x: Any, units: int = UNITS) -> Any:
        """The state before the first step, zeros."""
        return self.tf.zeros([self.tf.shape(x)[0], units], x.dtype)

    def error(self, result: Any, target: Any) -> Any:
        return self.tf.reduce_mean(self.tf.square(result - target))

    def repeat(self, condition: Callable[..., Any], body: Callable[..., Any], start: list[Any], **options: Any) -> Any:
        """`while_loop`; with a limit it wants the kind of sequence that the body returns."""
        return self.v1.while_loop(condition, body, tuple(start), **options)


@dataclasses.dataclass
class Data:
    """Sequences `x`, targets `y`, and the values that are fed."""

    tf: Any
    x: Any
    y: Any
    feeds: Callable[[], Feeds]

    @property
    def steps(self) -> Any:
        return self.tf.shape(self.x)[1]

    @property
    def by_time(self) -> Any:
        return self.tf.transpose(self.x, [1, 0, 2])


# A graph: the loss, which it may have named, and the feeds. Without an operation `train`, Adam's is added.
Form = Callable[[Kit], tuple[Any, Feeds]]


class Forms(dict[str, Form]):
    """Graphs by name."""

    def add(self, form: Form) -> Form:
        self[form.__name__] = form
        return form

    def names(self, *, frames: bool) -> Iterator[str]:
        """Those that there are for frames or for functions: a name that ends in the other kind's is left out."""
        return (name for name in self if not name.endswith("_functions" if frames else "_frames"))
