"""Rules of ops that differ in their formula alone: tables from ops to formulas on their operands."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.opdef import OpDef
from lstm_lower.passes.formulas.kernels import CARRIERS
from lstm_lower.passes.rules.registry import Node, lowers


def widened(x: Expr) -> Expr:
    """Integers of few bits in one of the dtypes that onnxruntime computes in; the rest as it is."""
    return x.cast(CARRIERS.get(x.dtype, x.dtype))


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
