"""The registry of lowering rules, and the view of a node that a rule reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.errors import UnsupportedOpError, requires
from lstm_lower.graph.expressions import Builder, Expr
from lstm_lower.opdef import Call, OpDef

# Returns the outputs by name; an output that is missing is one that the node must not be asked for.
Rule = Callable[["Node"], Mapping[str, Expr]]

RULES: dict[str, Rule] = {}

# Halves are computed in float32 and rounded once at the end: products and sums then accumulate in float32.
_COMPUTE_DTYPES = {ir.DataType.FLOAT16: ir.DataType.FLOAT, ir.DataType.BFLOAT16: ir.DataType.FLOAT}


# Ops whose rules look at dtypes, shapes and attributes only, never at an operand's value or at what surrounds the node:
# what such a rule emits for one node fits every other of the same signature.
REPEATABLE: set[str] = set()


def lowers(*ops: type[OpDef], repeatable: bool = False) -> Callable[[Rule], Rule]:
    """Registers a function as the lowering rule of one or more ops; see `REPEATABLE`."""

    def register(rule: Rule) -> Rule:
        for op in ops:
            if op.op_type in RULES:
                raise KeyError(f"{op.op_type} already has a rule")
            RULES[op.op_type] = rule
            if repeatable:
                REPEATABLE.add(op.op_type)
        return rule

    return register


class Node:
    """A verified composite node as a rule sees it.

    Operands and attributes are attributes of this object under TensorFlow's names: operands as expressions (halves
    widened to float32), attributes as Python values (rounded to T where the kernels do so).

    Attributes:
        call: operands and attributes bound to the definition.
        builder: where the rule emits.
        node: the node itself.
        standard_rnn: whether the rule may use the standard LSTM, GRU and RNN operators.
    """

    def __init__(self, node: ir.Node, call: Call, builder: Builder, *, standard_rnn: bool = True) -> None:
        self.standard_rnn = standard_rnn
        self.node = node
        self.call = call
        self.builder = builder
        self._values = dict(zip(call.op.operand_names(len(node.inputs), call.attributes), node.inputs, strict=False))
        self._operands: dict[str, Expr] = {}
        self._sizes: dict[str, int | Expr] = {}

    @property
    def op(self) -> Any:
        """The definition."""
        return self.call.op

    def __getattr__(self, name: str) -> Any:
        if name in self.call.attributes:
            return self._attribute(name)
        if name in self._operands:
            return self._operands[name]
        value = self.__dict__["_values"].get(name)
        if value is None:
            raise AttributeError(f"{self.call.op.op_type} has no operand or attribute '{name}' here")
        operand = self.builder.wrap(value)
        self._operands[name] = operand.cast(_COMPUTE_DTYPES.get(operand.dtype, operand.dtype))
        return self._operands[name]

    def value(self, name: str) -> ir.Value | None:
        """The graph value of an operand."""
        return self._values.get(name)

    def get(self, name: str, default: Any) -> Any:
        """An attribute or operand, or the default where the op (or this node) has none of that name."""
        present = name in self.call.attributes or self._values.get(name) is not None
        return getattr(self, name) if present else default

    def variadic(self, name: str) -> list[Expr]:
        """All operands of a variadic name."""
        return [getattr(self, key) for key in self._values if key.startswith(f"{name}[")]

    def constant(self, name: str) -> np.ndarray[Any, Any] | None:
        """The operand's value where it is a constant of the graph."""
        return self.builder.facts.constant(self._values.get(name))

    def unsupported(self, operand: str, what: str, got: object) -> UnsupportedOpError:
        """The error of a rule that cannot lower the node."""
        return UnsupportedOpError(requires(self.call.op.op_type, self.call.node, operand, what, got))

    def is_size(self, name: str, symbol: str) -> bool:
        """Whether a scalar operand is known to be the size of a dimension symbol, as in `seq_len_max = shape(x)[0]`."""
        size = self.call.sizes.get(symbol)
        return size is not None and self.builder.facts.entries(self._values.get(name)) == (size,)

    def used(self, output: str) -> bool:
        """Whether anything reads the output."""
        names = self.call.op.output_names(len(self.node.outputs), self.call.attributes)
        index = names.index(output) if output in names else len(self.node.outputs)
        if index >= len(self.node.outputs):
            return False
        value = self.node.outputs[index]
        return bool(value.uses()) or value.is_graph_output()

    def size(self, symbol: str) -> int | Expr:
        """The size of a dimension symbol: an `int` when known, else an int64 tensor of shape [1]."""
        if symbol not in self._sizes:
            known = self.call.sizes.get(symbol)
            self._sizes[symbol] = known if isinstance(known, int) else self._run_time_size(symbol)
        return self._sizes[symbol]

    def _run_time_size(self, symbol: str) -> Expr:
        for declared in self.call.op.inputs:
            spec = self.call.op.shape_spec(declared, self.call.attributes)
            if spec is None or declared.name not in self._values or spec.rest_first:
                continue
            for axis, dim in enumerate(spec.dims):
                if dim.symbol == symbol:
                    size = self.builder.wrap(self._operand_value(declared.name)).size(axis)
                    assert isinstance(size, Expr)
                    return size
        raise KeyError(f"no operand of {self.call.op.op_type} has the dimension {symbol}")

    def _operand_value(self, name: str) -> ir.Value:
        value = self._values[name]
        assert value is not None
        return value

    def _attribute(self, name: str) -> Any:
        value = self.call.attributes[name]
        declared = next(a for a in self.call.op.attributes if a.name == name)
        dtype = self.call.types.get(declared.rounds_to) if declared.rounds_to else None
        return value if dtype is None else float(np.asarray(value, dtype.numpy()))
