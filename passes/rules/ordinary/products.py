"""Lowering of products of matrices."""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.dtypes import is_complex
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr
from lstm_lower.ops.ordinary.products import (
    ELLIPSIS,
    BatchMatMul,
    BatchMatMulV2,
    BatchMatMulV3,
    Einsum,
    Equation,
    MatMul,
)
from lstm_lower.passes.formulas.complex_numbers import conjugate
from lstm_lower.passes.formulas.kernels import COMPUTE_DTYPES
from lstm_lower.passes.formulas.rows import reshape_to
from lstm_lower.passes.formulas.sizes import up_to
from lstm_lower.passes.rules.ordinary.tables import widened
from lstm_lower.passes.rules.registry import Node, lowers

_INT64, _UINT64 = ir.DataType.INT64, ir.DataType.UINT64


def _factor(x: Expr) -> Expr:
    """An operand in a dtype in which onnxruntime multiplies; unsigned integers of 64 bits wrap as signed ones do."""
    return x.cast(_INT64) if x.dtype == _UINT64 else widened(x)


@lowers(MatMul, repeatable=True)
def mat_mul(n: Node) -> dict[str, Expr]:
    """A MatMul."""
    a, b = _factor(n.a), _factor(n.b)
    return {"product": (a.mT if n.transpose_a else a) @ (b.mT if n.transpose_b else b)}


@lowers(BatchMatMul, BatchMatMulV2, BatchMatMulV3, repeatable=True)
def batch_mat_mul(n: Node) -> dict[str, Expr]:
    """A MatMul, which broadcasts."""
    x, y = _factor(n.x), _factor(n.y)
    if n.op is BatchMatMulV3:
        wide = COMPUTE_DTYPES.get(n.Tout, n.Tout)
        x, y = (_factor(part.cast(wide)) for part in (x, y))
    return {"output": _adjoint(n, "x", x, n.adj_x) @ _adjoint(n, "y", y, n.adj_y)}


def _adjoint(n: Node, name: str, x: Expr, transposed: bool) -> Expr:
    """The operand with its last two axes the other way round, if they are to be, and then its conjugate."""
    if not transposed:
        return x
    x = conjugate(x) if is_complex(x.dtype) else x
    if x.shape is None:
        raise n.unsupported(name, f"a known rank where adj_{name} is true", "an unknown one")
    rank = len(x.shape)
    return x.transpose(*range(rank - 2), rank - 1, rank - 2)


@lowers(Einsum, repeatable=True)
def einsum(n: Node) -> dict[str, Expr]:
    """A MatMul of two operands whose axes each have a label of their own, an Einsum of others."""
    equation, operands = Equation.of(n.equation), [_factor(part) for part in n.variadic("inputs")]
    assert equation is not None
    if equation.diagonal:
        once = Equation(equation.inputs, tuple(dict.fromkeys(equation.output)))
        return {"output": _on_diagonals(_sum(n, once, operands), once.output, equation.output)}
    return {"output": _sum(n, equation, operands)}


def _sum(n: Node, equation: Equation, operands: list[Expr]) -> Expr:
    """The sum by an equation whose result has each label once."""
    distinct = all(len(set(labels)) == len(labels) for labels in equation.inputs)
    spread = any(ELLIPSIS in labels for labels in equation.inputs)
    if len(operands) == 2 and distinct and (not spread or ELLIPSIS in equation.output):
        if spread and any(part.shape is None for part in operands):
            raise n.unsupported("inputs", "known ranks where the equation has an ellipsis", "an unknown one")
        return _contraction(_spelled_out(equation, operands), operands)
    terms = ",".join(map("".join, equation.inputs))
    return n.builder.op(std.Einsum, *operands, equation=f"{terms}->{''.join(equation.output)}")


def _on_diagonals(x: Expr, labels: tuple[str, ...], wanted: tuple[str, ...]) -> Expr:
    """Elements where the axes of a label that is wanted twice have the same index, and zeros elsewhere."""
    b = x.builder
    first = {label: wanted.index(label) for label in labels}
    further = [axis for axis, label in enumerate(wanted) if first[label] != axis]
    spread = x.unsqueeze(*further)
    for axis in further:
        numbers = up_to(b, x.size(labels.index(wanted[axis])))
        rows, columns = (
            numbers.reshape(*(-1 if place == own else 1 for place in range(len(wanted))))
            for own in (first[wanted[axis]], axis)
        )
        spread = b.where(rows.equals(columns), spread, 0)
    return spread


def _spelled_out(equation: Equation, operands: list[Expr]) -> Equation:
    """The equation with a label for each axis of an ellipsis, counted from its last one: `...1`, `...0`."""
    free = [
        0 if part.shape is None else len(part.shape) - len(labels) + 1
        for labels, part in zip(equation.inputs, operands, strict=True)
        if ELLIPSIS in labels
    ]

    def spelled(labels: tuple[str, ...], count: int) -> tuple[str, ...]:
        axes = [f"{ELLIPSIS}{number}" for number in reversed(range(count))]
        return tuple(new for label in labels for new in (axes if label == ELLIPSIS else [label]))

    counts = iter(free)
    inputs = tuple(spelled(labels, next(counts) if ELLIPSIS in labels else 0) for labels in equation.inputs)
    return Equation(inputs, spelled(equation.output, max(free, default=0)))


class _Term:
    """An operand of a product with the labels of its axes."""

    def __init__(self, x: Expr, labels: tuple[str, ...], wanted: set[str]) -> None:
        """Sums over what neither the result nor the other operand has."""
        lonely = [axis for axis, label in enumerate(labels) if label not in wanted]
        self.labels = [label for label in labels if label in wanted]
        self.x = x.sum(lonely) if lonely else x

    def sizes(self, labels: list[str]) -> list[int | Expr]:
        """The sizes of the axes that have these labels."""
        return [self.x.size(self.labels.index(label)) for label in labels]

    def matrices(self, batch: list[str], *groups: list[str]) -> Expr:
        """The operand with the axes of the batch that it has, and then an axis for each group of labels."""
        batch = [label for label in batch if label in self.labels]
        order = [self.labels.index(label) for group in (batch, *groups) for label in group]
        x = self.x if order == sorted(order) else self.x.transpose(*order)
        if all(len(group) == 1 for group in groups):
            return x
        sizes = [*self.sizes(batch), *(_product(self.sizes(group)) for group in groups)]
        return reshape_to(x, x.builder.sizes(sizes))


def _product(sizes: list[int | Expr]) -> int | Expr:
    total: int | Expr = 1
    for size in sizes:
        total = size if isinstance(total, int) and total == 1 else total * size
    return total


def _contraction(equation: Equation, operands: list[Expr]) -> Expr:
    """The product of [batch, left, inner] and [batch, inner, right], each group of labels one axis.

    Axes of an ellipsis stand first in the batch, where they broadcast.
    """
    first, second = equation.inputs
    output = set(equation.output)
    left = _Term(operands[0], first, output | set(second))
    right = _Term(operands[1], second, output | set(first))
    batch = [label for label in equation.output if label.startswith(ELLIPSIS)]
    shared = [label for label in left.labels if label in right.labels and label not in batch]
    batch += [label for label in shared if label in output]
    inner = [label for label in shared if label not in output]
    rows, columns = ([x for x in term.labels if x not in (*shared, *batch)] for term in (left, right))
    product = left.matrices(batch, rows, inner) @ right.matrices(batch, inner, columns)
    if len(rows) != 1 or len(columns) != 1:
        front = [product.size(axis) for axis in range(len(batch))]
        sizes = [*front, *left.sizes(rows), *right.sizes(columns)]
        product = reshape_to(product, product.builder.sizes(sizes))
    labels = [*batch, *rows, *columns]
    order = [labels.index(label) for label in equation.output]
    return product if order == sorted(order) else product.transpose(*order)
