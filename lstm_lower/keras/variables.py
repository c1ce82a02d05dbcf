"""Variables of Keras 3 and of tf-keras: what they are called in an exported step, and TensorFlow's own behind them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import keras


class VariableNames:
    """Names of variables, unique, and the same in all graphs that are traced of one model.

    Keras 3 calls a variable by its path, tf-keras by its name; where several have the same they are numbered, in the
    order in which they are asked for.
    """

    def __init__(self, variables: Iterable[Any] = ()) -> None:
        """Names variables in their order."""
        self._names: dict[int, str] = {}
        self._taken: set[str] = set()
        # An identity is one only as long as the object lives.
        self._held: list[Any] = []
        for variable in variables:
            self.of(variable)

    def of(self, variable: Any) -> str:
        """The name of a variable of Keras or TensorFlow."""
        kept = tensorflow_variable(variable)
        if id(kept) not in self._names:
            path = own_name(variable)
            candidates = itertools.chain([path], (f"{path}_{number}" for number in itertools.count(1)))
            self._names[id(kept)] = next(name for name in candidates if name not in self._taken)
            self._taken.add(self._names[id(kept)])
            self._held.append(kept)
        return self._names[id(kept)]

    def all(self) -> list[tuple[Any, str]]:
        """All variables that were named, TensorFlow's own, and their names."""
        return [(variable, self._names[id(variable)]) for variable in self._held]


def own_name(variable: Any) -> str:
    """What Keras calls a variable: its path, in tf-keras its name."""
    path = getattr(variable, "path", None)
    return str(variable.name).removesuffix(":0") if path is None else str(path)


def tensorflow_variable(variable: Any) -> Any:
    """The variable that TensorFlow holds: behind one of Keras 3, or behind one that mixed precision casts."""
    if isinstance(variable, keras.Variable):
        return variable.value
    return getattr(variable, "_variable", variable)
