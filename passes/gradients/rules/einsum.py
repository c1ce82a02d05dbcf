"""Gradients of Einstein's summation, each a summation over the result's gradient and the other operands."""

from __future__ import annotations

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.graph.standard.networks import Equation
from lstm_lower.passes.formulas.sizes import up_to
from lstm_lower.passes.gradients.registry import Cotangents, Gradients, differentiates, summed, unbroadcast, widened


@differentiates(std.Einsum)
def _einsum(op: std.Einsum, b: Builder, dys: Cotangents) -> Gradients:
    equation = op.equation
    if equation is None:
        unknown = next((x for i, x in enumerate(op.inputs) if op.rank(i) is None), None)
        got = "others" if unknown is None else std.undeclared(unknown)
        raise op.unsupported("inputs, for their gradients,", "known ranks, those of the equation", got)
    if not set(equation.spread) <= set(equation.output):
        raise op.unsupported("equation, for the gradient,", "an ellipsis in its result too", "none")
    terms = equation.inputs
    operands = [_of_rank(b.operand(op, i), len(term)) for i, term in enumerate(terms)]
    found: list[Expr | None] = []
    for i, own in enumerate(terms):
        if not dys.needs(i):
            found.append(None)
            continue
        others = [(term, operands[j]) for j, term in enumerate(terms) if j != i]
        dy, x = _of_rank(dys[0], len(equation.output)), operands[i]
        dx = _contracted(b, equation, [(equation.output, dy), *others], own)
        found.append(unbroadcast(_on_diagonal(dx, x, own), x).cast(x.dtype))
    return found


def _of_rank(x: Expr, rank: int) -> Expr:
    """The same value, whose rank the equation tells."""
    return x if x.shape is not None else x.builder.set_shape(x, [None] * rank)


def _contracted(b: Builder, equation: Equation, factors: list[tuple[str, Expr]], own: str) -> Expr:
    """The product of the factors summed to the labels of an operand, each once; of those that no factor has, size 1."""
    once = "".join(dict.fromkeys(own))
    tensors = [(term, widened(x)) for term, x in factors if term]
    # An ellipsis stands in front, with all its axes: operands may be broadcast along them.
    present = equation.spread
    present += "".join(c for c in once if c not in present and any(c in term for term, _ in tensors))
    total: Expr | None = None
    if [term for term, _ in tensors] == [present]:
        total = tensors[0][1]
    elif tensors:
        text = ",".join(equation.written(term) for term, _ in tensors) + "->" + equation.written(present)
        total = b.op(std.Einsum, *(x for _, x in tensors), equation=text)
    for factor in (widened(x) for term, x in factors if not term):
        total = factor if total is None else total * factor
    assert total is not None
    beyond = [axis for axis, label in enumerate(present) if label not in once]
    total, present = summed(total, beyond), "".join(label for label in present if label in once)
    missing = "".join(label for label in once if label not in present)
    total = total.unsqueeze(*range(len(present), len(once))) if missing else total
    return b.transpose(total, [(present + missing).index(label) for label in once])


def _on_diagonal(dx: Expr, x: Expr, own: str) -> Expr:
    """What has an axis for each label as what has the operand's axes: repeated labels are a diagonal."""
    b = dx.builder
    repeated = [axis for axis, label in enumerate(own) if label in own[:axis]]
    dx = dx.unsqueeze(*repeated) if repeated else dx
    for axis in repeated:
        first = own.index(own[axis])
        places = []
        for at in (first, axis):
            numbers, behind = up_to(b, x.size(at)), len(own) - 1 - at
            places.append(numbers.unsqueeze(*range(1, behind + 1)) if behind else numbers)
        dx = b.where(b.op(std.Equal, *places), dx, 0)
    return dx if b.facts.same_shape(dx.value, x.value) else _broadcast_to(dx, x, own)


def _broadcast_to(dx: Expr, x: Expr, own: str) -> Expr:
    """Repeated along the axes that the operand was summed along alone, which have size 1 here."""
    alone = [axis for axis, dim in enumerate(dx.shape or ()) if dim == 1 and (x.shape or ())[axis] != 1]
    if not alone:
        return dx
    sizes = [x.size(axis) if axis in alone else 1 for axis in range(len(own))]
    return dx.builder.op(std.Expand, dx, dx.builder.sizes(sizes))
