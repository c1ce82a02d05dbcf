"""A TensorFlow graph and what belongs to it, wherever it comes from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Shape = tuple[int | None, ...]


class _Value:
    """A variable's value, which may be given as what reads it, and is read when it is asked for."""

    def __get__(self, variable: Variable | None, owner: object) -> Array | None:
        # What a class has instead of a value is the default of the field.
        value = None if variable is None else variable.__dict__["_value"]
        if variable is not None and callable(value):
            value = variable.__dict__["_value"] = value()
        return value

    def __set__(self, variable: Variable, value: Array | Callable[[], Array] | None) -> None:
        variable.__dict__["_value"] = value


@dataclasses.dataclass(eq=False, repr=False)
class Variable:
    """State that outlives a run.

    Attributes:
        name: TensorFlow's name of it, or a number behind it where two share a name.
        value: its value now, or `None` where the source holds none.
        trainable: whether an optimizer would train it.
        shape: its sizes, `None` for those that are open; `None` where not even the rank is known.
        dtype: its DataType, 0 where it is not known.
        key: the tensor of a checkpoint that has its value; `None` where none has.
        box: what of this tensor is its value, where that is not all of it.
    """

    name: str
    value: _Value = _Value()
    trainable: bool = True
    shape: Shape | None = None
    dtype: int = 0
    key: str | None = None
    box: tuple[slice, ...] | None = None

    @property
    def has_value(self) -> bool:
        """Whether there is a value; it is not read for that."""
        return self.__dict__["_value"] is not None

    def __repr__(self) -> str:
        return f"Variable({self.name!r}, shape={self.shape}, dtype={self.dtype}, has_value={self.has_value})"


@dataclasses.dataclass
class GraphSource:
    """A graph and what belongs to it.

    Attributes:
        graph_def: the graph with its function library, in tensorboard's class.
        label: the source for messages.
        inputs: public name -> tensor, in order; `None` when the source does not say.
        outputs: the same for outputs.
        variables: node that stands for a variable's resource or reference -> variable.
        constants: node that stands for a captured tensor -> its value.
        side_effects: whether every assignment of the graph belongs to a run; otherwise only those that an output
            depends on do.
        suffix: what public names of tensors end in: `:0` where the source knows tensors by their full names.
        train_ops: nodes that the source records as training steps.
        losses: tensors that it records as losses.
        op_defs: op -> its OpDef message, for ops of which the source says what they are.
    """

    graph_def: Any
    label: str
    inputs: dict[str, str] | None = None
    outputs: dict[str, str] | None = None
    variables: dict[str, Variable] = dataclasses.field(default_factory=dict)
    constants: dict[str, Array] = dataclasses.field(default_factory=dict)
    side_effects: bool = False
    suffix: str = ":0"
    train_ops: list[str] = dataclasses.field(default_factory=list)
    losses: list[str] = dataclasses.field(default_factory=list)
    op_defs: dict[str, Any] = dataclasses.field(default_factory=dict)


def unique(name: str, taken: set[str]) -> str:
    """The name, with a number behind it where it is taken; it is taken from then on."""
    found, number = name, 0
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    taken.add(found)
    return found
