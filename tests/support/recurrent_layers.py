"""ONNX's LSTM, GRU and RNN step by step in float64, written from the operators' documentation; and models of one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper

Array = np.ndarray[Any, Any]

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
OPERANDS = ("X", "W", "R", "B", "lens", "h0", "c0", "P")
OUTPUTS = {"LSTM": ("Y", "Y_h", "Y_c"), "GRU": ("Y", "Y_h"), "RNN": ("Y", "Y_h")}
DEFAULTS = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}

_FUNCTIONS: dict[str, Callable[..., Array]] = {
    "Relu": lambda x: np.maximum(x, 0),
    "Tanh": np.tanh,
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Affine": lambda x, alpha, beta: alpha * x + beta,
    "LeakyRelu": lambda x, alpha: np.where(x >= 0, x, alpha * x),
    "ThresholdedRelu": lambda x, alpha: np.where(x >= alpha, x, 0),
    "ScaledTanh": lambda x, alpha, beta: alpha * np.tanh(beta * x),
    "HardSigmoid": lambda x, alpha, beta: np.minimum(np.maximum(alpha * x + beta, 0), 1),
    "Elu": lambda x, alpha: np.where(x >= 0, x, alpha * np.expm1(x)),
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "Softplus": lambda x: np.logaddexp(0, x),
}
# Those that take a value, with what it is where none is given.
_ALPHA = {"LeakyRelu": 0.01, "ThresholdedRelu": 1.0, "HardSigmoid": 0.2, "Elu": 1.0, "Affine": None, "ScaledTanh": None}
_BETA = {"HardSigmoid": 0.5, "Affine": 0.0, "ScaledTanh": None}


def layer(op: str, operands: Mapping[str, Array], attributes: Mapping[str, Any]) -> dict[str, Array]:
    """All outputs of a layer, each sequence by itself."""
    given = {name: array.astype(np.float64) for name, array in operands.items() if name != "lens"}
    if attributes.get("layout"):
        given |= {name: given[name].swapaxes(0, 1) for name in ("X", "h0", "c0") if name in given}
    directions = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[
        attributes.get("direction", "forward")
    ]
    steps, batch, units = *given["X"].shape[:2], given["R"].shape[2]
    functions = _functions(op, attributes, len(directions))
    lengths = operands.get("lens", np.full(batch, steps))
    y = np.zeros((steps, len(directions), batch, units))
    finals = np.zeros((2, len(directions), batch, units))
    for d, backwards in enumerate(directions):
        weights = {name: given[name][d] for name in ("W", "R", "B", "P") if name in given}
        for b, length in enumerate(lengths):
            states = [given[name][d, b] if name in given else np.zeros(units) for name in ("h0", "c0")]
            walk = range(length)
            for t in reversed(walk) if backwards else walk:
                states = _step(op, given["X"][t, b], states, weights, functions[d], attributes)
                y[t, d, b] = states[0]
            if length:
                finals[:, d, b] = states
    outputs = [y, *finals]
    if attributes.get("layout"):
        outputs = [y.transpose(2, 0, 1, 3), *(final.swapaxes(0, 1) for final in finals)]
    return dict(zip(OUTPUTS[op], outputs, strict=False))


def _functions(op: str, attributes: Mapping[str, Any], directions: int) -> list[list[Callable[[Array], Array]]]:
    alphas, betas = (iter(attributes.get(f"activation_{key}", ())) for key in ("alpha", "beta"))

    def function(name: str) -> Callable[[Array], Array]:
        taken = [
            next(given, defaults[name]) for given, defaults in ((alphas, _ALPHA), (betas, _BETA)) if name in defaults
        ]
        # Attributes are float32.
        values = [float(np.float32(value)) for value in taken]
        return lambda x: _FUNCTIONS[name](_clipped(x, attributes), *values)

    written = attributes.get("activations", DEFAULTS[op] * directions)
    # onnxruntime takes names in any case.
    names = [next(known for known in _FUNCTIONS if known.lower() == name.lower()) for name in written]
    each = len(DEFAULTS[op])
    return [[function(name) for name in names[d * each : (d + 1) * each]] for d in range(directions)]


def _clipped(x: Array, attributes: Mapping[str, Any]) -> Array:
    bound = float(np.float32(attributes.get("clip", np.inf)))
    return np.clip(x, -bound, bound)


def _step(
    op: str,
    x: Array,
    states: list[Array],
    weights: Mapping[str, Array],
    functions: list[Callable[[Array], Array]],
    attributes: Mapping[str, Any],
) -> list[Array]:
    count, (h, c) = GATES[op], states
    w, r = np.split(weights["W"], count), np.split(weights["R"], count)
    bias = np.split(weights.get("B", np.zeros(2 * count * len(h))), 2 * count)
    wb, rb = bias[:count], bias[count:]
    gates = [w[k] @ x + r[k] @ h + wb[k] + rb[k] for k in range(count)]
    if op == "RNN":
        return [functions[0](gates[0]), c]
    if op == "GRU":
        z, reset = functions[0](gates[0]), functions[0](gates[1])
        if attributes.get("linear_before_reset"):
            new = functions[1](w[2] @ x + reset * (r[2] @ h + rb[2]) + wb[2])
        else:
            new = functions[1](w[2] @ x + r[2] @ (reset * h) + rb[2] + wb[2])
        return [(1 - z) * new + z * h, c]
    peep_i, peep_o, peep_f = np.split(weights.get("P", np.zeros(3 * len(h))), 3)
    f, g, last = functions
    i = f(gates[0] + peep_i * c)
    forget = 1 - i if attributes.get("input_forget") else f(gates[2] + peep_f * c)
    c = forget * c + i * g(gates[3])
    return [f(gates[1] + peep_o * c) * last(c), c]


@dataclasses.dataclass(frozen=True)
class Case:
    """One form of a layer.

    Attributes:
        op: the operator.
        attributes: its attributes, but for hidden_size.
        operands: what is given besides X, W and R.
        lengths: sequence_lens.
        sizes: T, B, I, H.
    """

    op: str
    attributes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    operands: tuple[str, ...] = ("B", "h0", "c0")
    lengths: tuple[int, ...] | None = None
    sizes: tuple[int, int, int, int] = (4, 3, 2, 3)

    def __str__(self) -> str:
        parts = [self.op, *(f"{key}={value}" for key, value in self.attributes.items())]
        parts += [] if self.operands == ("B", "h0", "c0") else [f"with {'+'.join(self.operands) or 'nothing'}"]
        return ", ".join(parts + ([] if self.lengths is None else [f"lengths {self.lengths}"]))

    def feeds(self, dtype: Any = np.float32, seed: int = 0) -> dict[str, Array]:
        """Random operands."""
        (steps, batch, width, units), count = self.sizes, GATES[self.op]
        d = 2 if self.attributes.get("direction") == "bidirectional" else 1
        first = (batch, d) if self.attributes.get("layout") else (d, batch)
        shapes = {
            "X": (batch, steps, width) if self.attributes.get("layout") else (steps, batch, width),
            "W": (d, count * units, width),
            "R": (d, count * units, units),
            "B": (d, 2 * count * units),
            "h0": (*first, units),
            "c0": (*first, units),
            "P": (d, 3 * units),
        }
        random = np.random.default_rng(seed)
        # Under unbounded functions states must not grow from step to step.
        scale = 0.3 if "activations" in self.attributes else 0.8
        drawn = {name: (random.standard_normal(shape) * scale).astype(dtype) for name, shape in shapes.items()}
        given = {
            name: drawn[name] for name in ("X", "W", "R", *self.operands) if self.op == "LSTM" or name not in "c0P"
        }
        if self.lengths is not None:
            given["lens"] = np.array(self.lengths, np.int32)
        return given

    def model(
        self,
        dtype: int = onnx.TensorProto.FLOAT,
        *,
        opset: int = 20,
        outputs: tuple[str, ...] | None = None,
        shapes: Callable[[str, tuple[int, ...]], Any] = lambda _, shape: shape,
    ) -> onnx.ModelProto:
        """A model of one node.

        Args:
            dtype: of all but the lengths.
            opset: version of ai.onnx.
            outputs: those that are asked for; the others have no name.
            shapes: what is declared of an operand, by name and shape.
        """
        feeds = self.feeds()
        wanted = OUTPUTS[self.op] if outputs is None else outputs
        node = helper.make_node(
            self.op,
            [name if name in feeds else "" for name in OPERANDS[: 8 if self.op == "LSTM" else 6]],
            [name if name in wanted else "" for name in OUTPUTS[self.op]],
            name="layer",
            hidden_size=self.sizes[3],
            **self.attributes,
        )
        inputs = [
            helper.make_tensor_value_info(
                name, onnx.TensorProto.INT32 if name == "lens" else dtype, shapes(name, array.shape)
            )
            for name, array in feeds.items()
        ]
        results = [helper.make_tensor_value_info(name, dtype, None) for name in wanted]
        graph = helper.make_graph([node], "graph", inputs, results)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
