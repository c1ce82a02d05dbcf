"""Which tensors hold one value everywhere: zeros and ones in all their disguises."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from lstm_lower.passes.infer import attribute, constant_of
from lstm_lower.passes.loops.views.loop import Loop

# Operators that only lay elements out anew, of their first operand.
LAYOUT = frozenset(
    {
        "Identity",
        "Expand",
        "Reshape",
        "Transpose",
        "Squeeze",
        "Unsqueeze",
        "Slice",
        "Flatten",
        "Tile",
        "Gather",
        "Split",
    }
)
# Operators whose result may be known to be uniform.
FOLLOWED = LAYOUT | {"ConstantOfShape", "Cast", "Concat", "Add", "Sub", "Mul", "ReduceSum", "ReduceMean", "Neg"}
FOLLOWED |= {"MatMul", "Gemm"}
LARGEST_CONSTANT = 1 << 16


class Uniform:
    """Answers which value a tensor holds everywhere, `None` when it differs or is not known.

    Answers are kept: use one object between two changes of the graph only.
    """

    def __init__(self) -> None:
        self._known: dict[ir.Value, float | None] = {}
        self._sequences: dict[ir.Value, ir.Value] = {}

    def enter(self, loop: Loop) -> None:
        """Makes the loop's scan inputs known: one element of a uniform sequence is uniform."""
        self._sequences.update((x.parameter, x.sequence) for x in loop.inputs)

    def of(self, value: ir.Value | None) -> float | None:
        """The value that a tensor holds everywhere."""
        if value is None:
            return None
        if value not in self._known:
            self._known[value] = None
            self._known[value] = self._find(value)
        return self._known[value]

    def _find(self, value: ir.Value) -> float | None:
        if value in self._sequences:
            return self.of(self._sequences[value])
        node = value.producer()
        if node is None or node.op_type == "Constant":
            return self._constant(value)
        op = node.op_type
        if op not in FOLLOWED or node.domain != "":
            return None
        if op == "ConstantOfShape":
            fill = attribute(node, "value", None)
            return 0.0 if fill is None else float(fill.numpy().reshape(-1)[0])
        if op in LAYOUT:
            return self.of(node.inputs[0])
        if op == "Cast":
            inner = self.of(node.inputs[0])
            return inner if inner in (0.0, 1.0, -1.0) else None
        if op == "Concat":
            values = {self.of(x) for x in node.inputs}
            return values.pop() if len(values) == 1 else None
        if op in ("Add", "Sub", "Mul"):
            a, b = self.of(node.inputs[0]), self.of(node.inputs[1])
            if a is not None and b is not None:
                return {"Add": a + b, "Sub": a - b, "Mul": a * b}[op]
            zero = op == "Mul" and 0.0 in (a, b)
            return 0.0 if zero and all(self.is_finite(x) for x in node.inputs) else None
        if op in ("ReduceSum", "ReduceMean", "Neg") and self.of(node.inputs[0]) == 0.0:
            return 0.0
        if op in ("MatMul", "Gemm") and len(node.inputs) == 2:
            zero = 0.0 in (self.of(node.inputs[0]), self.of(node.inputs[1]))
            return 0.0 if zero and all(self.is_finite(x) for x in node.inputs) else None
        return None

    @staticmethod
    def _constant(value: ir.Value) -> float | None:
        array = constant_of(value) if value.const_value is None or value.const_value.size <= LARGEST_CONSTANT else None
        if array is None or array.size == 0 or array.size > LARGEST_CONSTANT or array.dtype.kind not in "iuf":
            return None
        first = array.reshape(-1)[0]
        return float(first) if bool(np.all(array == first)) else None

    def is_finite(self, value: ir.Value | None) -> bool:
        """Whether a value surely holds neither infinities nor NaN; only then may a zero swallow it."""
        if value is None:
            return False
        uniform = self.of(value)
        if uniform is not None:
            return bool(np.isfinite(uniform))
        dtype = value.dtype
        if dtype is not None and dtype.is_integer():
            return True
        node = value.producer()
        if node is None or node.domain != "":
            return False
        return node.op_type in LAYOUT and self.is_finite(node.inputs[0])
