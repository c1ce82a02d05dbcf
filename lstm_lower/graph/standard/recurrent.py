"""ONNX's own recurrent layers."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from lstm_lower.errors import InvalidModelError, requires
from lstm_lower.graph.standard.base import Attribute, Operand, Optional, Standard

# Activations by their lower-case names, with the values that alpha and beta have where a node gives none; `None` where
# ONNX names no such value: Affine and ScaledTanh are no operators any more. One that takes no alpha takes no entry.
_ALPHA: dict[str, float | None] = {
    "affine": None,
    "elu": 1.0,
    "hardsigmoid": 0.2,
    "leakyrelu": 0.01,
    "scaledtanh": None,
    "thresholdedrelu": 1.0,
}
_BETA: dict[str, float | None] = {"affine": 0.0, "hardsigmoid": 0.5, "scaledtanh": None}
_WITHOUT_VALUES = frozenset(("relu", "sigmoid", "softplus", "softsign", "tanh"))
_BOUNDED = frozenset(("hardsigmoid", "sigmoid", "softsign", "tanh"))

_BACKWARDS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


@dataclasses.dataclass(frozen=True)
class Activation:
    """A function within a cell.

    Attributes:
        name: its name in lower case.
        alpha: its first parameter; 0 where it has none.
        beta: its second parameter; 0 where it has none.
    """

    name: str
    alpha: float = 0.0
    beta: float = 0.0

    @property
    def is_bounded(self) -> bool:
        """Whether its values lie within -1..1."""
        return self.name in _BOUNDED


class Recurrent(Standard, abstract=True):
    """x `[T, B, I]`, w `[D, G*H, I]`, r `[D, G*H, H]`, bias `[D, 2*G*H]`, lengths `[B]`, initial_h `[D, B, H]`.

    Where `layout` is 1, the batch stands first in x, in states and in results.

    Attributes:
        default_activations: of one direction.
    """

    default_activations: ClassVar[tuple[str, ...]]
    x = Operand(0)
    w = Operand(1)
    r = Operand(2)
    bias = Optional(3)
    lengths = Optional(4)
    initial_h = Optional(5)
    layout = Attribute("layout", 0)

    @property
    def backwards(self) -> tuple[bool, ...]:
        """For each direction whether it walks from the last step to the first.

        Raises:
            InvalidModelError: there is no such direction.
        """
        direction = self.attribute("direction", "forward")
        if direction not in _BACKWARDS:
            raise self._fault("direction", f"one of {', '.join(_BACKWARDS)}", direction)
        return _BACKWARDS[direction]

    @property
    def clip(self) -> float | None:
        """The bound of what activations are applied to.

        Raises:
            InvalidModelError: it bounds nothing.
        """
        clip: float | None = self.attribute("clip", None)
        if clip is not None and not clip > 0:
            raise self._fault("clip", "a bound above 0, or none", clip)
        return clip

    @property
    def activations(self) -> tuple[tuple[Activation, ...], ...]:
        """The functions of each direction, in the order in which the operator names them.

        Raises:
            InvalidModelError: a function is not known, or functions or values that they need are missing.
        """
        each, directions = len(self.default_activations), len(self.backwards)
        given = self.attribute("activations", None) or self.default_activations * directions
        # RNN's schema has two as the default, also for one direction.
        names = [name.lower() for name in given[: each * directions]]
        if len(names) < each * directions:
            raise self._fault("activations", f"{each * directions} functions", len(names))
        # Only functions that take a value use one up.
        values = {key: iter(self.attribute(f"activation_{key}", ())) for key in ("alpha", "beta")}
        found = []
        for name in names:
            if name not in _ALPHA and name not in _WITHOUT_VALUES:
                raise self._fault("activations", f"functions among {sorted({*_ALPHA, *_WITHOUT_VALUES})}", name)
            taken = {}
            for key, defaults in (("alpha", _ALPHA), ("beta", _BETA)):
                value = next(values[key], defaults[name]) if name in defaults else 0.0
                if value is None:
                    raise self._fault(f"activation_{key}", f"a value for {name}, which has no default", "none")
                taken[key] = value
            found.append(Activation(name, **taken))
        return tuple(tuple(found[start : start + each]) for start in range(0, len(found), each))

    def _fault(self, attribute: str, what: str, got: object) -> InvalidModelError:
        return InvalidModelError(requires(self.op_type, self.node.name, attribute, what, got))


class LSTM(Recurrent):
    """Gates i, o, f, c; activations of gates, cell input and cell state. peepholes `[D, 3*H]` of i, o, f."""

    default_activations = ("Sigmoid", "Tanh", "Tanh")
    initial_c = Optional(6)
    peepholes = Optional(7)
    input_forget = Attribute("input_forget", 0)


class GRU(Recurrent):
    """Gates z, r, h; activations of gates and hidden gate."""

    default_activations = ("Sigmoid", "Tanh")
    linear_before_reset = Attribute("linear_before_reset", 0)


class RNN(Recurrent):
    """One gate and its activation."""

    default_activations = ("Tanh",)
