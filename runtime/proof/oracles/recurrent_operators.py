"""ONNX's LSTM, GRU and RNN step by step, written from the operators' documentation.

`onnx.reference` knows neither lengths nor clips, nor activations other than the defaults. Formulas: ONNX's operator
documentation. It does not say how a sequence of no steps ends; in onnxruntime it ends with zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import onnx.reference.op_run

from lstm_lower.runtime.proof.oracles.numerics import sigmoid

Array = np.ndarray[Any, Any]
Function = Callable[[Array], Array]

OPERANDS = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")
_BACKWARDS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}

_ACTIVATIONS: dict[str, Callable[..., Array]] = {
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "sigmoid": sigmoid,
    "affine": lambda x, alpha, beta: alpha * x + beta,
    "leakyrelu": lambda x, alpha: np.where(x >= 0, x, alpha * x),
    "thresholdedrelu": lambda x, alpha: np.where(x >= alpha, x, 0),
    "scaledtanh": lambda x, alpha, beta: alpha * np.tanh(beta * x),
    "hardsigmoid": lambda x, alpha, beta: np.minimum(np.maximum(alpha * x + beta, 0), 1),
    "elu": lambda x, alpha: np.where(x >= 0, x, alpha * np.expm1(np.minimum(x, 0))),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "softplus": lambda x: np.logaddexp(0, x),
}
# Those that take a value, with what it is where none is given; `None` where ONNX names none.
_ALPHA = {"leakyrelu": 0.01, "thresholdedrelu": 1.0, "hardsigmoid": 0.2, "elu": 1.0, "affine": None, "scaledtanh": None}
_BETA = {"hardsigmoid": 0.5, "affine": 0.0, "scaledtanh": None}


class _Layer(onnx.reference.op_run.OpRun):
    """A layer in `onnx.reference`, in the dtype of its operands.

    Attributes:
        gates: the number of gates.
        states: names of the operands that are initial states.
        default_activations: of one direction.
    """

    gates: ClassVar[int]
    states: ClassVar[tuple[str, ...]] = ("initial_h",)
    default_activations: ClassVar[list[str]]

    def _run(self, *operands: Array | None, **attributes: Any) -> tuple[Array, ...]:
        given = {name: operand for name, operand in zip(OPERANDS, operands, strict=False) if operand is not None}
        return tuple(self.layer(given, attributes)[: len(self.onnx_node.output)])

    @classmethod
    def layer(cls, operands: Mapping[str, Array], attributes: Mapping[str, Any]) -> list[Array]:
        """All outputs.

        Args:
            operands: those that are given, by the operator's names: X `[T, B, I]`, initial states `[D, B, H]`; where
                `layout` is 1, `[B, T, I]` and `[B, D, H]`.
            attributes: the operator's.

        Returns:
            Y `[T, D, B, H]` and the final states `[D, B, H]`; where `layout` is 1, `[B, T, D, H]` and `[B, D, H]`.
        """
        given: dict[str, Array] = dict(operands)
        if attributes.get("layout"):
            given |= {name: given[name].swapaxes(0, 1) for name in ("X", *cls.states) if name in given}
        x, directions = given["X"], _BACKWARDS[attributes.get("direction") or "forward"]
        steps, batch, units = x.shape[0], x.shape[1], given["R"].shape[2]
        functions = cls._functions(attributes, len(directions))
        lengths = given.get("sequence_lens", np.full(batch, steps))[:, np.newaxis]
        y = np.zeros((steps, len(directions), batch, units), x.dtype)
        finals = np.zeros((len(cls.states), len(directions), batch, units), x.dtype)
        for d, backwards in enumerate(directions):
            weights: dict[str, Array] = {name: given[name][d] for name in ("W", "R", "B", "P") if name in given}
            zeros = np.zeros((batch, units), x.dtype)
            states = [given[name][d] if name in given else zeros for name in cls.states]
            for t in range(steps)[:: -1 if backwards else 1]:
                # A shorter sequence is not there any more, or, walked backwards, not there yet.
                runs = t < lengths
                new = cls._step(x[t], states, weights, functions[d], attributes)
                states = [np.where(runs, state, old) for state, old in zip(new, states, strict=True)]
                y[t, d] = np.where(runs, states[0], 0)
            finals[:, d] = np.where(lengths > 0, states, 0)
        if attributes.get("layout"):
            return [y.transpose(2, 0, 1, 3), *(final.swapaxes(0, 1) for final in finals)]
        return [y, *finals]

    @classmethod
    def _functions(cls, attributes: Mapping[str, Any], directions: int) -> list[list[Function]]:
        """The functions of each direction; only those that take a value use one up."""
        alphas, betas = (iter(attributes.get(f"activation_{key}") or ()) for key in ("alpha", "beta"))
        bound = float(np.float32(attributes.get("clip") or np.inf))

        def function(name: str) -> Function:
            given = ((alphas, _ALPHA), (betas, _BETA))
            taken = [next(values, defaults[name]) for values, defaults in given if name in defaults]
            # Attributes are float32.
            rounded = [float(np.float32(value)) for value in taken]
            return lambda x: _ACTIVATIONS[name](np.clip(x, -bound, bound), *rounded)

        each = len(cls.default_activations)
        # RNN's schema has two as the default, also for one direction; names are taken in any case.
        written = (attributes.get("activations") or cls.default_activations * directions)[: each * directions]
        functions = [function(name.lower()) for name in written]
        return [functions[start : start + each] for start in range(0, len(functions), each)]

    @classmethod
    def _split(
        cls, x: Array, h: Array, weights: Mapping[str, Array]
    ) -> tuple[list[Array], list[Array], list[Array], list[Array]]:
        """Gate by gate: `x W'`, `h R'` and the biases of either side."""
        bias = weights.get("B", np.zeros(2 * cls.gates * h.shape[1], x.dtype))
        sides = np.split(bias, 2 * cls.gates)
        inputs, recurrent = (x @ weights["W"].T, h @ weights["R"].T)
        halves = (np.split(side, cls.gates, axis=1) for side in (inputs, recurrent))
        return *halves, sides[: cls.gates], sides[cls.gates :]  # type: ignore[return-value]

    @classmethod
    def _step(
        cls,
        x: Array,
        states: Sequence[Array],
        weights: Mapping[str, Array],
        functions: Sequence[Function],
        attributes: Mapping[str, Any],
    ) -> list[Array]:
        """New states `[B, H]`, h first."""
        raise NotImplementedError


class LSTM(_Layer):
    """Gates i, o, f, c."""

    gates = 4
    states = ("initial_h", "initial_c")
    default_activations: ClassVar = ["sigmoid", "tanh", "tanh"]

    @classmethod
    def _step(
        cls,
        x: Array,
        states: Sequence[Array],
        weights: Mapping[str, Array],
        functions: Sequence[Function],
        attributes: Mapping[str, Any],
    ) -> list[Array]:
        (h, c), (gate, cell, last) = states, functions
        i, o, f, g = (sum(sides[1:], sides[0]) for sides in zip(*cls._split(x, h, weights), strict=True))
        peep_i, peep_o, peep_f = np.split(weights["P"], 3) if "P" in weights else np.zeros((3, h.shape[1]), x.dtype)
        i = gate(i + peep_i * c)
        kept = 1 - i if attributes.get("input_forget") else gate(f + peep_f * c)
        c = kept * c + i * cell(g)
        return [gate(o + peep_o * c) * last(c), c]


class GRU(_Layer):
    """Gates z, r, h."""

    gates = 3
    default_activations: ClassVar = ["sigmoid", "tanh"]

    @classmethod
    def _step(
        cls,
        x: Array,
        states: Sequence[Array],
        weights: Mapping[str, Array],
        functions: Sequence[Function],
        attributes: Mapping[str, Any],
    ) -> list[Array]:
        (h,), (gate, hidden) = states, functions
        inputs, recurrent, bias, recurrent_bias = cls._split(x, h, weights)
        z, r = (gate(inputs[k] + recurrent[k] + bias[k] + recurrent_bias[k]) for k in range(2))
        if attributes.get("linear_before_reset"):
            product = r * (recurrent[2] + recurrent_bias[2])
        else:
            product = (r * h) @ np.split(weights["R"], 3)[2].T + recurrent_bias[2]
        return [(1 - z) * hidden(inputs[2] + bias[2] + product) + z * h]


class RNN(_Layer):
    """One gate."""

    gates = 1
    default_activations: ClassVar = ["tanh"]

    @classmethod
    def _step(
        cls,
        x: Array,
        states: Sequence[Array],
        weights: Mapping[str, Array],
        functions: Sequence[Function],
        attributes: Mapping[str, Any],  # noqa: ARG003 (the others' steps have options)
    ) -> list[Array]:
        (first,), *others = cls._split(x, states[0], weights)
        return [functions[0](sum((side for (side,) in others), first))]


RECURRENT_OPERATORS = (GRU, LSTM, RNN)
