"""The registry of lowering rules, the view of a node that a rule reads, and rules that are tables of formulas."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import onnx_ir as ir

from lstm_lower.errors import InvalidInputError, UnsupportedOpError, requires
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.graph.form import node_label
from lstm_lower.opdef import REGISTRY, Arranged, Call, OpDef
from lstm_lower.passes.formulas import kernels
from lstm_lower.passes.formulas.kernels import CARRIERS
from lstm_lower.passes.rewriting import Results
from lstm_lower.registry import DOMAIN, Registry, is_ours

# As `passes/rewriting.py` has it, of a node and the builder that emits in its place. Of the outputs in order, an entry
# each for those of a variadic one, a missing one or `None` is one that the node must not be asked for.
Formula = Callable[["Node", Builder], Results]

F = TypeVar("F", bound=Formula)


@dataclasses.dataclass(frozen=True)
class Rule:
    """How an op is lowered.

    Attributes:
        formula: emits what computes a node, by the builder that it gets.
        repeatable: it looks at dtypes, shapes, attributes and what is known of integer operands only, never at other
            operands' values or at what surrounds the node: what it emits for one node fits every other of the same
            signature.
    """

    formula: Formula
    repeatable: bool


RULES: Registry[Rule] = Registry("lowering rule", "lstm_lower.passes.rules")


def lowerable() -> list[type[OpDef]]:
    """Every op that can be lowered, by name: ours, then those of other packages, module by module."""

    def place(op: type[OpDef]) -> tuple[str, ...]:
        return (
            ("", op.domain.removeprefix(DOMAIN), op.op_type)
            if is_ours(op.__module__)
            else (op.domain, op.__module__, op.op_type)
        )

    return sorted((op for op in REGISTRY.values() if op in RULES), key=place)


def lowerable_as(name: str) -> type[OpDef] | None:
    """The op of a name, or of a domain and a name as in `com.example.Leaky`; `None` where none can be lowered.

    Where several domains have the name, it is our domain's op.

    Raises:
        UnsupportedOpError: several domains have an op of that name, and ours is not among them.
    """
    ours = REGISTRY.get(name)
    if ours is not None and ours in RULES:
        return ours
    found = [op for op in lowerable() if name in (op.op_type, full_name(op))]
    if len(found) > 1:
        names = " or ".join(full_name(op) for op in found)
        raise UnsupportedOpError(f"'{name}' requires a domain, got the name of several ops: {names}")
    return found[0] if found else None


def full_name(op: type[OpDef]) -> str:
    """An op's domain and name."""
    return f"{op.domain}.{op.op_type}"


def lowers(*ops: type[OpDef], repeatable: bool = False) -> Callable[[F], F]:
    """Registers a function of a node and a builder as the lowering rule of one or more ops.

    Args:
        *ops: the ops.
        repeatable: as in `Rule`.

    Raises:
        InvalidInputError: the function does not take a node and a builder.
    """

    def register(formula: F) -> F:
        # mypy sees that ours do.
        if not is_ours(formula.__module__):
            _check_arguments(ops, formula)
        for op in ops:
            RULES.register(op, Rule(formula, repeatable), formula.__module__)
        return formula

    return register


def _check_arguments(ops: Sequence[type[OpDef]], formula: Formula) -> None:
    signature = inspect.signature(formula)
    try:
        signature.bind("node", "builder")
    except TypeError:
        names = ", ".join(op.op_type for op in ops)
        text = f"the lowering rule of {names} requires two arguments, the node and the builder, got {signature}"
        raise InvalidInputError(text) from None


class Node:
    """A verified composite node as a rule sees it.

    Operands and attributes are attributes of this object under TensorFlow's names: operands as expressions (halves
    widened to float32), attributes as Python values (rounded to T where the kernels do so).

    Attributes:
        call: operands and attributes bound to the definition.
        node: the node itself.
        standard_rnn: whether the rule may use the standard LSTM, GRU and RNN operators.
    """

    def __init__(self, node: ir.Node, call: Call, builder: Builder, *, standard_rnn: bool = True) -> None:
        self.standard_rnn = standard_rnn
        self.node = node
        self.call = call
        self._builder = builder
        arranged = Arranged.of(call.op.inputs, node.inputs, call.attributes)
        self._values, self._lists = arranged.single, arranged.lists
        self._operands: dict[str, Expr] = {}
        self._sizes: dict[str, int | Expr] = {}

    @property
    def op(self) -> Any:
        """The definition."""
        return self.call.op

    def __getattr__(self, name: str) -> Any:
        if name in self.call.attributes:
            return self._attribute(name)
        return self.operand(name)

    def operand(self, name: str) -> Expr:
        """An operand; for names that methods of this class have, too."""
        if name in self._operands:
            return self._operands[name]
        value = self.__dict__["_values"].get(name)
        if value is None:
            raise AttributeError(f"{self.call.op.op_type} has no operand or attribute '{name}' here")
        self._operands[name] = self._expression(value)
        return self._operands[name]

    def value(self, name: str) -> ir.Value | None:
        """The graph value of an operand."""
        return self._values.get(name)

    def get(self, name: str, default: Any) -> Any:
        """An attribute or operand, or the default where the op (or this node) has none of that name."""
        if name in self.call.attributes:
            return self._attribute(name)
        return default if self._values.get(name) is None else self.operand(name)

    def variadic(self, name: str) -> list[Expr]:
        """All operands of a variadic name."""
        return [self._expression(value) for value in self._lists[name] if value is not None]

    def moved(self, name: str) -> Expr:
        """An operand in its own dtype, halves too: for what rearranges elements and rounds nothing."""
        return self._builder.wrap(self._operand_value(name))

    def all_moved(self, name: str) -> list[Expr]:
        """All operands of a variadic name, in their own dtype."""
        return [self._builder.wrap(value) for value in self._lists[name] if value is not None]

    def constant(self, name: str) -> np.ndarray[Any, Any] | None:
        """The operand's value where it is a constant of the graph."""
        return self._builder.facts.constant(self._values.get(name))

    def fixed(self, name: str) -> np.ndarray[Any, Any]:
        """The value of one of the op's `static_operands`; an `UnsupportedOpError` where it is no constant."""
        value = self.constant(name)
        if value is None:
            raise self.unsupported(name, "a constant", "a value known at run time only")
        return value

    def unsupported(self, operand: str, what: str, got: object) -> UnsupportedOpError:
        """The error of a rule that cannot lower the node."""
        return UnsupportedOpError(requires(self.call.op.op_type, node_label(self.node), operand, what, got))

    def is_size(self, name: str, symbol: str) -> bool:
        """Whether a scalar operand is known to be the size of a dimension symbol, as in `seq_len_max = shape(x)[0]`."""
        size = self.call.sizes.get(symbol)
        return size is not None and self._builder.facts.entries(self._values.get(name)) == (size,)

    def used(self, output: str) -> bool:
        """Whether anything reads the output."""
        value = Arranged.of(self.call.op.outputs, self.node.outputs, self.call.attributes).single.get(output)
        return value is not None and (bool(value.uses()) or value.is_graph_output())

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
                    size = self._builder.wrap(self._operand_value(declared.name)).size(axis)
                    assert isinstance(size, Expr)
                    return size
        raise KeyError(f"no operand of {self.call.op.op_type} has the dimension {symbol}")

    def _expression(self, value: ir.Value) -> Expr:
        """An operand, halves widened to float32."""
        return kernels.widened(self._builder.wrap(value))

    def _operand_value(self, name: str) -> ir.Value:
        value = self._values[name]
        assert value is not None
        return value

    def _attribute(self, name: str) -> Any:
        value = self.call.attributes[name]
        declared = next(a for a in self.call.op.attributes if a.name == name)
        dtype = self.call.types.get(declared.rounds_to) if declared.rounds_to else None
        return value if dtype is None else float(np.asarray(value, dtype.numpy()))


def widened(x: Expr) -> Expr:
    """Integers of few bits in one of the dtypes that onnxruntime computes in; the rest as it is."""
    return x.cast(CARRIERS.get(x.dtype, x.dtype))


def rank_of(n: Node, operand: str, x: Expr) -> int:
    """The operand's rank, which must be known."""
    if x.shape is None:
        raise n.unsupported(operand, "a known rank", "an unknown one")
    return len(x.shape)


def wrapping(x: Expr) -> Expr:
    """Unsigned integers of 64 bits as signed ones, whose sums and products have the same bits; the rest widened."""
    return x.cast(ir.DataType.INT64) if x.dtype == ir.DataType.UINT64 else widened(x)


def standard(op: type[std.Standard]) -> Callable[..., Expr]:
    """The formula that is one of ONNX's own operators."""

    def formula(*operands: Expr) -> Expr:
        return operands[0].builder.op(op, *operands)

    return formula


def lowers_by(table: Mapping[type[OpDef], Callable[..., Expr]]) -> None:
    """Registers rules: each formula takes its op's operands, widened, and gives its only output.

    Raises:
        TypeError: a formula does not take as many.
    """
    for op, formula in table.items():
        lowers(op, repeatable=True)(_rule(op, formula))


def _rule(op: type[OpDef], formula: Callable[..., Expr]) -> Callable[[Node, Builder], Expr]:
    operands = [declared.name for declared in op.inputs]
    # Operands are bound by position: a formula of fewer or more is refused here and not in a user's graph.
    inspect.signature(formula).bind(*operands)

    def rule(n: Node, _: Builder) -> Expr:
        return formula(*(widened(n.operand(name)) for name in operands))

    return rule
