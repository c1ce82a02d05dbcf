"""Selection to product: numbers that a comparison keeps or sets to zero are multiplied by its truth values.

onnxruntime's Where on processors branches at every element. Where a comparison of computed numbers decides, as in the
gradient of ReLU or in dropout, the branch cannot be foretold and takes 4.5 ns an element, a product of elements 0.3
(1.32.0, one thread of an AMD EPYC). Half of the time or less remains in this form:

    product = numbers * cast(kept)                        # NaN, too, where what is dropped is not finite: 0 * inf
    result  = where(isnan(product) & ~kept, 0, product)   # a branch that is hardly ever taken, 1.1 ns

Precondition: a Where of which one operand is zero and the other has the shape of the result, `LEAST` elements or more
(an open size counts as 64), of float32 or float64, and a condition of that shape that is made of comparisons of such
numbers. Postcondition: there is none. Results are equal, infinities and NaN too; a zero may have another sign.

Runs after the passes that know selections as such, and for onnxruntime's processors alone: elsewhere a Where is one
kernel like any other.
"""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder
from lstm_lower.graph.facts import Facts
from lstm_lower.passes.loops.views.base import SitesOnGraphs

# Elements; with fewer, the nodes that are added take as long as they save.
LEAST = 1 << 13
_COMPARISONS = (std.Less, std.Greater, std.LessOrEqual, std.GreaterOrEqual)
_FLOATS = (ir.DataType.FLOAT, ir.DataType.DOUBLE)


@dataclasses.dataclass(frozen=True)
class _Selection:
    """A Where that keeps numbers or sets them to zero.

    Attributes:
        op: its view.
        numbers: what it keeps.
        zero: what it puts in the place of the others.
        inverted: whether its condition says what is dropped, and not what is kept.
    """

    op: std.Where
    numbers: ir.Value
    zero: ir.Value
    inverted: bool


class SelectionToProduct(SitesOnGraphs[_Selection]):
    """Writes selections whose branch cannot be foretold as products."""

    promise = "to be a product"

    def site(self, node: ir.Node) -> _Selection | None:
        """A large selection by a comparison."""
        facts = self.facts
        op = std.Where.of(node, facts)
        if op is None or facts.dtype(op.output) not in _FLOATS or facts.elements(op.output) < LEAST:
            return None
        if not facts.same_shape(op.condition, op.output) or not _is_unforeseeable(op.condition, facts):
            return None
        for numbers, zero, inverted in ((op.yes, op.no, False), (op.no, op.yes, True)):
            if facts.uniform(zero) == 0.0 and facts.same_shape(numbers, op.output):
                return _Selection(op, numbers, zero, inverted)
        return None

    def write(self, node: ir.Node, site: _Selection) -> None:
        """Multiplies by the condition."""
        b = Builder.before(node, self.context.space)
        numbers, condition = b.wrap(site.numbers), b.wrap(site.op.condition)
        kept, dropped = (~condition, condition) if site.inverted else (condition, ~condition)
        product = numbers * kept.cast(numbers.dtype)
        lost = b.op(std.IsNaN, product) & dropped
        b.replace(site.op.output, b.where(lost, b.wrap(site.zero), product).value)


def _is_unforeseeable(condition: ir.Value, facts: Facts) -> bool:
    """Whether a condition is made of comparisons of floats, of which each place has its own.

    Those of two vectors along different axes, as of rows with columns, hold for many places in a row.
    """
    waiting: list[ir.Value | None] = [condition]
    found = False
    while waiting:
        op = facts.maker(waiting.pop())
        if isinstance(op, std.And | std.Or | std.Not):
            waiting += op.inputs
        elif isinstance(op, _COMPARISONS) and op.dtype() in _FLOATS:
            found |= any(facts.same_shape(value, condition) for value in op.inputs)
        else:
            return False
    return found
