"""Contraction layout: a product that sums over many rows takes its smaller operand transposed beforehand.

A weight's gradient `a' @ g` sums over steps and batch, both of which are rows of the two operands. onnxruntime's
product on CPUs transposes its first operand in small blocks, once for every panel of columns of the second. Laid out
once, it is read as it lies. Time of [R,K]' @ [R,N] on one thread of an AMD EPYC, layout included, by that without it:

    R 3200, K 64,  N 512     0.90        R 3200, K 257, N 512     0.80
    R 3200, K 128, N 512     0.83        R 3200, K 129, N 1024    0.77
    R 1600, K 257, N 512     0.86        R 640,  K 1025, N 2048   0.75

Weights of inputs and of states are both summed with the gradients of the gates. Laid out, their operands stand below
each other, and one product packs the gradients once: 0.82 to 0.88 of the time of two products of which the one with a
bias is laid out (R 3200; K 64 and 128, N 384 and 512; K 256 and 256, N 1024), down to 0.73 of two that are not.

The layout is made by a Transpose of three axes, the first of size 1, and a Flatten: a Transpose of two axes would be
taken back into the product by the runtime (MatmulTransposeFusion), and one of the sequence itself be joined with others
before it. The product is a MatMul, because a Transpose behind a Gemm would be taken in, too (GemmTransposeFusion).

A bias gradient is the sum of the same rows: a row of ones times `g`, which reads all of it for one row of results.
Where an operand is laid out anyhow, the row of ones is appended to it, and the sum is one more row of the product: both
take 0.81 (K 128, N 512) and 0.87 (K 128, N 384) of the time.

Precondition: outside loop bodies, in a graph that holds a loop: `Gemm(a, g, transA=1)` with nothing added, or a MatMul
whose first operand is a Transpose of a matrix; float32; `a` no wider than `g`, and `g` at least `LEAST_COLUMNS` wide,
since what the layout costs does not depend on the other operand's width. It does not shrink with more threads
either: a runtime of many gains less. `LEAST_JOINED` columns are enough where products, or a product and a sum, become
one. They do where the operands of all of them are there before the first, or are rearrangements of what is there.

Postcondition: no more products than before. Runs after all other passes, which would not see through the layout.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping

import numpy as np
import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder
from lstm_lower.graph.edit import detach
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.form import node_label
from lstm_lower.passes.loops.views.base import AroundLoops, LoopPass, graphs_with_loops

LEAST_COLUMNS = 512
LEAST_JOINED = 384
LEAST_ROWS = 64
# Nodes, one behind the other, that are repeated so that a product can stand where another one stands.
MOST_MOVES = 4
# What leaves the elements in their order.
LAYING_TOGETHER = (std.Flatten, std.Reshape, std.Squeeze, std.Unsqueeze, std.Identity)


@dataclasses.dataclass(frozen=True)
class _Contraction:
    """`rows' @ others`.

    Attributes:
        node: the product.
        rows: [R, K].
        others: [R, N].
    """

    node: ir.Node
    rows: ir.Value
    others: ir.Value


@dataclasses.dataclass(frozen=True)
class _Group:
    """What becomes one product: contractions of the same matrix, and sums of its rows.

    Attributes:
        nodes: products and sums, in the order in which they stand.
        rows: of each node the [R, K] that it is the product with, `None` for a sum.
    """

    nodes: tuple[ir.Node, ...]
    rows: tuple[ir.Value | None, ...]


class ContractionLayout(AroundLoops, LoopPass):
    """Transposes the smaller operands of products over many rows in advance, and joins products with one matrix."""

    def around(self, graph: ir.Graph) -> bool:
        """Lays operands of one graph's products out."""
        places = {node: place for place, node in enumerate(graph)}
        alike: dict[Hashable, list[ir.Node]] = {}
        for node in graph:
            if (others := _contracted(self.facts, node)) is not None:
                alike.setdefault(_matrix(self.facts, others), []).append(node)
        groups = [group for nodes in alike.values() for group in self._groups(nodes, places)]
        for group in groups:
            self._write(graph, group, places)
        return bool(groups)

    def _groups(self, nodes: list[ir.Node], places: Mapping[ir.Node, int]) -> list[_Group]:
        """Products and sums with one matrix, as those that can stand where the first of them stands."""
        groups: list[_Group] = []
        while nodes:
            first, *nodes = nodes
            own = _contraction(self.facts, first)
            if own is not None and (reason := _reason_against(self.facts, own, LEAST_JOINED)) is not None:
                self.refuse(first, reason)
                continue
            rows = {first: None if own is None else own.rows}
            for node in nodes:
                other = _contraction(self.facts, node)
                if other is None:
                    rows[node] = None
                elif _reason_against(self.facts, other, LEAST_JOINED) is None and _is_made_before(
                    other.rows, first, places
                ):
                    rows[node] = other.rows
            # Sums alone have nothing to join, and a product alone must gain more by it.
            if any(rows.values()) and (len(rows) > 1 or (own is not None and self._pays(own))):
                groups.append(_Group(tuple(rows), tuple(rows.values())))
                nodes = [node for node in nodes if node not in rows]
        return groups

    def ensures(self, model: ir.Model) -> None:
        """No product is left that would gain by it.

        Raises:
            ir.passes.PostconditionError: one is.
        """
        super().ensures(model)
        for graph in graphs_with_loops(model):
            for contraction in (c for node in graph if (c := _contraction(self.facts, node)) is not None):
                if _reason_against(self.facts, contraction) is None:
                    wanted = f"its first operand laid out, got it of '{node_label(contraction.node)}'"
                    raise self.broken(contraction.node, wanted)

    def _pays(self, contraction: _Contraction) -> bool:
        reason = _reason_against(self.facts, contraction)
        if reason is not None:
            self.refuse(contraction.node, reason)
        return reason is None

    def _write(self, graph: ir.Graph, group: _Group, places: Mapping[ir.Node, int]) -> None:
        first = group.nodes[0]
        others = _contracted(self.facts, first)
        assert others is not None
        e = Builder(self.context.space, graph, before=first, scope=first.name or "contraction")
        operands = [_remade(e, rows, places[first], places) for rows in group.rows if rows is not None]
        parts = [_laid_out(e, rows) for rows in operands]
        if None in group.rows:
            one = ir.Tensor(np.ones(1, np.float32), dtype=ir.DataType.FLOAT)
            row = e.concat([e.ints(1), e.size(others, 0)], axis=0)
            parts.append(e.op(std.ConstantOfShape, row, value=one).value)
        product = e.op(std.MatMul, e.concat(parts, axis=0), others)
        made = [product]
        if len(parts) > 1:
            sizes = [*(e.size(rows, 1) for rows in operands), *([e.ints(1)] if None in group.rows else [])]
            made = list(e.node(std.Split, [product, e.concat(sizes, axis=0)], len(parts), axis=0).outputs)
        results = iter(made)
        for node, rows in zip(group.nodes, group.rows, strict=True):
            e.replace(node.outputs[0], made[-1] if rows is None else next(results))
        for node in group.nodes:
            detach(node)


def _laid_out(e: Builder, rows: ir.Value) -> ir.Value:
    """The transpose [K, R] of an operand, as the runtime leaves it alone."""
    return e.op(std.Flatten, e.transpose(e.unsqueeze(rows, 0), (2, 0, 1)), axis=1)


def _contracted(facts: Facts, node: ir.Node) -> ir.Value | None:
    """The [R, N] over whose rows a node sums."""
    contraction = _contraction(facts, node)
    return _summed_rows(facts, node) if contraction is None else contraction.others


def _matrix(facts: Facts, value: ir.Value) -> Hashable:
    """A key of a matrix: the same for all that are one tensor with all axes but the last laid together."""
    shape = facts.shape(value)
    columns = None if shape is None else shape[-1]
    while isinstance(columns, int) and columns and isinstance(view := facts.maker(value), LAYING_TOGETHER):
        before = facts.shape(view.data)
        if not before or before[-1] != columns:
            break
        value = view.data
    return value, columns


def _summed_rows(facts: Facts, node: ir.Node) -> ir.Value | None:
    """What a row of ones is multiplied with."""
    product = std.MatMul.of(node, facts)
    if product is None or facts.uniform(product.a) != 1.0 or facts.rank(product.b) != 2:
        return None
    shape = facts.shape(product.a)
    return product.b if shape is not None and len(shape) == 2 and shape[0] == 1 else None


def _is_made_before(
    value: ir.Value, node: ir.Node, places: Mapping[ir.Node, int], most_moves: int = MOST_MOVES
) -> bool:
    """Whether a value, or what it is the same elements of, is there before a node."""
    maker = value.producer()
    if maker is None or places.get(maker, -1) < places[node]:
        return True
    if not most_moves or not (std.Moving.matches(maker) or std.Constant.matches(maker)):
        return False
    return all(_is_made_before(x, node, places, most_moves - 1) for x in maker.inputs if x is not None)


def _remade(e: Builder, value: ir.Value, place: int, places: Mapping[ir.Node, int]) -> ir.Value:
    """A value as it is there at an earlier place, see `_is_made_before`."""
    maker = value.producer()
    if maker is None or places.get(maker, -1) < place:
        return value
    operands = [x if x is None else _remade(e, x, place, places) for x in maker.inputs]
    return e.repeat(maker, operands)[maker.outputs.index(value)]


def _contraction(facts: Facts, node: ir.Node) -> _Contraction | None:
    """The product over rows that a node is."""
    match facts.view(node):
        case std.Gemm(trans_a=1, trans_b=0, alpha=1.0, c=None, a=rows, b=others):
            return _Contraction(node, rows, others)
        case std.MatMul(a=a, b=others):
            turned = facts.maker(a)
            if isinstance(turned, std.Transpose) and turned.perm == (1, 0) and facts.rank(others) == 2:
                return _Contraction(node, turned.data, others)
    return None


def _reason_against(facts: Facts, contraction: _Contraction, least: int = LEAST_COLUMNS) -> str | None:
    """Why a product is left alone, `None` where it gains; `least` is the width of the second operand that pays."""
    if facts.dtype(contraction.rows) != ir.DataType.FLOAT:
        return "only products of float32 are known to gain by another layout"
    own, other = facts.shape(contraction.rows), facts.shape(contraction.others)
    if own is None or other is None:
        return "the sizes of its operands are not known"
    (rows, width), (_, columns) = own, other
    if isinstance(rows, int) and rows < LEAST_ROWS:
        return "it sums over few rows"
    if isinstance(width, int) and isinstance(columns, int) and columns >= least and 0 < width <= columns:
        return None
    return "laying its first operand out is not known to cost less than it spares"
