"""Lowering of products of matrices.

Symbols: I, J rows and columns of the product, K what is added up.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from lstm_lower import dims
from lstm_lower.dims import Dim
from lstm_lower.dtypes import is_complex
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.opdef import Call, OperandDeclaration
from lstm_lower.ops.raw import COMPLEX, COMPUTED, RawOp
from lstm_lower.passes.formulas.complex_numbers import conjugate
from lstm_lower.passes.formulas.kernels import COMPUTE_DTYPES
from lstm_lower.passes.formulas.rows import reshape_to
from lstm_lower.passes.formulas.sizes import up_to
from lstm_lower.passes.rules.registry import Node, lowers, wrapping

_TRANSPOSED = {"I K": dims.parse_shape("K I"), "K J": dims.parse_shape("J K")}


class MatMul(RawOp, a="I K", b="K J"):
    """The product of two matrices, each of which may be transposed."""

    @classmethod
    def shape_spec(cls, operand: OperandDeclaration, attributes: Mapping[str, Any]) -> dims.ShapeSpec | None:
        """A transposed operand has its sizes the other way round."""
        spec = operand.spec
        return _TRANSPOSED[spec.text] if spec is not None and attributes.get(f"transpose_{operand.name}") else spec


@lowers(MatMul, repeatable=True)
def mat_mul(n: Node, _: Builder) -> Expr:
    """A MatMul."""
    a, b = wrapping(n.a), wrapping(n.b)
    return (a.mT if n.transpose_a else a) @ (b.mT if n.transpose_b else b)


class _BatchMatMul(RawOp, abstract=True):
    """Products of matrices, which are the last two axes; where `adj` says so, the transposed conjugate of one.

    Attributes:
        broadcasts: whether the axes before them do.
    """

    broadcasts: ClassVar[bool] = True

    @classmethod
    def verify(cls, call: Call) -> None:
        """Both are matrices that fit."""
        x, y = call.operands["x"].shape, call.operands["y"].shape
        for name, shape in (("x", x), ("y", y)):
            if shape is not None and len(shape) < 2:
                raise call.error(name, "rank 2 or more", f"rank {len(shape)}")
        if x is None or y is None:
            return
        inner, other = x[-2 if call.attributes["adj_x"] else -1], y[-1 if call.attributes["adj_y"] else -2]
        if isinstance(inner, int) and isinstance(other, int) and inner != other:
            raise call.error("y", f"{inner} {'columns' if call.attributes['adj_y'] else 'rows'} (as x)", list(y))
        if not cls.broadcasts and not dims.agree(x[:-2], y[:-2]):
            raise call.error("y", f"a shape that starts with {list(x[:-2])} (as x)", list(y))
        if dims.broadcast_shapes(x[:-2], y[:-2]) is None:
            raise call.error("y", f"batches that broadcast with {list(x[:-2])} (as x)", list(y))


class BatchMatMul(_BatchMatMul):
    """Products of matrices, the batches of one shape."""

    broadcasts = False


class BatchMatMulV2(_BatchMatMul):
    """Products of matrices, of batches that broadcast."""


class BatchMatMulV3(
    _BatchMatMul,
    Ta=(*COMPUTED, "uint8", "int8", "int16"),
    Tb=(*COMPUTED, "uint8", "int8", "int16"),
    Tout=(*COMPUTED, "int16"),
):
    """Products of matrices of any dtypes, in a third one; the batches broadcast."""


@lowers(BatchMatMul, BatchMatMulV2, BatchMatMulV3, repeatable=True)
def batch_mat_mul(n: Node, _: Builder) -> Expr:
    """A MatMul, which broadcasts."""
    x, y = wrapping(n.x), wrapping(n.y)
    if n.op is BatchMatMulV3:
        wide = COMPUTE_DTYPES.get(n.Tout, n.Tout)
        x, y = (wrapping(part.cast(wide)) for part in (x, y))
    return _adjoint(n, "x", x, n.adj_x) @ _adjoint(n, "y", y, n.adj_y)


def _adjoint(n: Node, name: str, x: Expr, transposed: bool) -> Expr:
    """The operand with its last two axes the other way round, if they are to be, and then its conjugate."""
    if not transposed:
        return x
    x = conjugate(x) if is_complex(x.dtype) else x
    if x.shape is None:
        raise n.unsupported(name, f"a known rank where adj_{name} is true", "an unknown one")
    rank = len(x.shape)
    return x.transpose(*range(rank - 2), rank - 1, rank - 2)


# The label of any number of axes in an equation.
ELLIPSIS = "..."


def _labels(term: str) -> list[str]:
    before, ellipsis, behind = term.partition(ELLIPSIS)
    return [*before, *([ellipsis] if ellipsis else []), *behind]


@dataclasses.dataclass(frozen=True)
class Summation:
    """Einstein's summation: labels of the operands' axes and of the result's; an ellipsis is one label.

    Attributes:
        inputs: labels of each operand.
        output: labels of the result.
    """

    inputs: tuple[tuple[str, ...], ...]
    output: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Summation | None:
        """Reads `ij,jk->ik`; `None` where it is no equation."""
        left, arrow, right = text.replace(" ", "").partition("->")
        terms = [tuple(_labels(term)) for term in (*left.split(","), right)]
        single = all(label == ELLIPSIS or label.isalpha() for term in terms for label in term)
        if not arrow or not single or any(term.count(ELLIPSIS) > 1 for term in terms):
            return None
        *inputs, output = terms
        known = {label for term in inputs for label in term}
        return cls(tuple(inputs), output) if set(output) <= known else None

    @property
    def diagonal(self) -> bool:
        """Whether the result has a label twice, and zeros off that diagonal."""
        return len(set(self.output)) != len(self.output)


class Einsum(RawOp, T=(*COMPUTED, *COMPLEX)):
    """Einstein's summation over the axes of one tensor or two."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """There are as many operands as the equation has, of its ranks and sizes."""
        text, infos = call.attributes["equation"], call.lists["inputs"]
        equation = Summation.of(text)
        if equation is None:
            raise call.error("attribute equation", "labels as in ij,jk->ik", repr(text))
        if equation.diagonal and ELLIPSIS in equation.output:
            raise call.error("attribute equation", "each label once beside an ellipsis in the result", repr(text))
        if len(equation.inputs) != len(infos) or len(infos) > 2:
            raise call.error("inputs", f"one for each of {len(equation.inputs)} terms, two at most", len(infos))
        sizes: dict[str, Dim] = {}
        rest: tuple[Dim, ...] | None = ()
        for number, (labels, info) in enumerate(zip(equation.inputs, infos, strict=True)):
            if info.shape is None:
                rest = None if ELLIPSIS in labels else rest
                continue
            free = len(info.shape) - len(labels) + (ELLIPSIS in labels)
            if free < 0 or (free and ELLIPSIS not in labels):
                raise call.error(f"inputs[{number}]", f"an axis for each label of {''.join(labels)}", list(info.shape))
            split = labels.index(ELLIPSIS) if ELLIPSIS in labels else len(labels)
            named = [*info.shape[:split], *info.shape[split + free :]]
            if rest is not None:
                before, rest = rest, dims.broadcast_shapes(rest, info.shape[split : split + free])
                if rest is None:
                    what = f"an ellipsis that broadcasts with {list(before)} (as that before)"
                    raise call.error(f"inputs[{number}]", what, list(info.shape))
            for label, dim in zip([label for label in labels if label != ELLIPSIS], named, strict=True):
                known = sizes.setdefault(label, dim)
                if isinstance(known, int) and isinstance(dim, int) and known != dim:
                    raise call.error(f"inputs[{number}]", f"size {known} at label {label}", list(info.shape))
                sizes[label] = known if isinstance(known, int) else dim


@lowers(Einsum, repeatable=True)
def einsum(n: Node, b: Builder) -> Expr:
    """A MatMul of two operands whose axes each have a label of their own, an Einsum of others."""
    equation, operands = Summation.of(n.equation), [wrapping(part) for part in n.variadic("inputs")]
    assert equation is not None
    if equation.diagonal:
        once = Summation(equation.inputs, tuple(dict.fromkeys(equation.output)))
        return _on_diagonals(_sum(n, b, once, operands), once.output, equation.output)
    return _sum(n, b, equation, operands)


def _sum(n: Node, b: Builder, equation: Summation, operands: list[Expr]) -> Expr:
    """The sum by an equation whose result has each label once."""
    distinct = all(len(set(labels)) == len(labels) for labels in equation.inputs)
    spread = any(ELLIPSIS in labels for labels in equation.inputs)
    if len(operands) == 2 and distinct and (not spread or ELLIPSIS in equation.output):
        if spread and any(part.shape is None for part in operands):
            raise n.unsupported("inputs", "known ranks where the equation has an ellipsis", "an unknown one")
        return _contraction(_spelled_out(equation, operands), operands)
    terms = ",".join(map("".join, equation.inputs))
    return b.op(std.Einsum, *operands, equation=f"{terms}->{''.join(equation.output)}")


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


def _spelled_out(equation: Summation, operands: list[Expr]) -> Summation:
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
    return Summation(inputs, spelled(equation.output, max(free, default=0)))


class _Term:
    """An operand of a product with the labels of its axes."""

    def __init__(self, x: Expr, labels: tuple[str, ...], wanted: set[str]) -> None:
        """Sums over what neither the result nor the other operand has."""
        lonely = [axis for axis, label in enumerate(labels) if label not in wanted]
        self.labels = [label for label in labels if label in wanted]
        self.x = x.sum(lonely)

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


def _contraction(equation: Summation, operands: list[Expr]) -> Expr:
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
