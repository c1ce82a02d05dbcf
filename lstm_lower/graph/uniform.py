"""Which tensors hold one value everywhere, zeros and ones in all their disguises, and which are surely finite."""

from __future__ import annotations

from lstm_lower.graph import standard as std


def uniform_by(op: std.Standard) -> float | None:
    """The value that a node's first output holds everywhere, as it follows from the operands."""
    known = op.facts.uniform
    operands = op.inputs
    match op:
        case std.ConstantOfShape():
            return 0.0 if op.fill is None else float(op.fill.numpy().reshape(-1)[0])
        case std.Moving() | std.Identity():
            return known(operands[0])
        case std.Cast():
            inner = known(operands[0])
            return inner if inner in (0.0, 1.0) or (inner == -1.0 and op.to.is_signed()) else None
        case std.Concat():
            values = {known(x) for x in operands}
            return values.pop() if len(values) == 1 else None
        case std.Add() | std.Sub():
            a, b = known(operands[0]), known(operands[1])
            return None if a is None or b is None else a + b if isinstance(op, std.Add) else a - b
        case std.Mul() | std.MatMul() | std.Gemm():
            return _product(op)
        case std.ReduceSum() | std.ReduceMean() | std.Neg():
            return 0.0 if known(operands[0]) == 0.0 else None
    return None


def _product(op: std.Standard) -> float | None:
    factors = [op.facts.uniform(x) for x in op.inputs]
    if len(factors) != 2:
        return None
    a, b = factors
    if isinstance(op, std.Mul) and a is not None and b is not None:
        return a * b
    # Zero times infinity is NaN.
    return 0.0 if 0.0 in factors and all(op.facts.finite(x) for x in op.inputs) else None


def finite_by(op: std.Standard) -> bool:
    """Whether a node's first output surely holds neither infinities nor NaN, where it is not uniform."""
    return isinstance(op, std.Moving | std.Identity) and op.facts.finite(op.inputs[0])
