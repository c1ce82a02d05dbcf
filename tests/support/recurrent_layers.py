"""Models of one LSTM, GRU or RNN of ONNX's, and what they compute in float64."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper

from lstm_lower.runtime.proof.oracles.recurrent_operators import RECURRENT_OPERATORS

Array = np.ndarray[Any, Any]

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
OPERANDS = ("X", "W", "R", "B", "lens", "h0", "c0", "P")
OUTPUTS = {"LSTM": ("Y", "Y_h", "Y_c"), "GRU": ("Y", "Y_h"), "RNN": ("Y", "Y_h")}

_OPERATORS = {operator.__name__: operator for operator in RECURRENT_OPERATORS}
_NAMES = {"lens": "sequence_lens", "h0": "initial_h", "c0": "initial_c"}


def layer(op: str, operands: Mapping[str, Array], attributes: Mapping[str, Any]) -> dict[str, Array]:
    """All outputs of a layer in float64."""
    given = {
        _NAMES.get(name, name): array if name == "lens" else array.astype(np.float64)
        for name, array in operands.items()
    }
    return dict(zip(OUTPUTS[op], _OPERATORS[op].layer(given, attributes), strict=True))


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
