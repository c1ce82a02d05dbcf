"""Kernel selection: products are written in the form that onnxruntime's kernels on CPUs take the least time for.

All passes before know MatMul, of operands that Transposes turn, and what is added to it. This one is the way out of
that form and runs after them: they would not see through what it writes. Four choices, each where its cost model says
so:

**Divided or whole.** `split(x @ w + b)` is `x @ w1 + b1, x @ w2 + b2`, outside of bodies, so that the result over all
steps is not copied. The parts of the weight are copied instead, which pays where `x` has more rows than columns.
Hoisted products of cells whose gates are treated differently, a GRU's, are of this kind.

**Which operand is packed.** onnxruntime's product copies its *second* operand into a packed form at every call, unless
that is a constant of the model. In a body's `a[B,K] @ w[K,N]` with a carried `a` and an invariant `w` that is the
weight, the large one. Exchanged, `Gemm(w', a, transB=1)` packs `a` and makes the result transposed, [N,B]. A state is
then kept in that layout and transposed at the start of the next step. Elsewhere the result is transposed on the spot. A
Transpose right behind a Gemm without a third operand would be folded back into it by the runtime (GemmTransposeFusion),
which undoes the exchange; so a bias that is added next becomes that operand, and where there is none, the product is a
MatMul of `w'` and the transpose of `a`, which the runtime takes into the product (MatmulTransposeFusion). With 0.27 ns
to pack an element, 0.5 ns to transpose one and 1.5 us for a node:

    as written   0.27*K*N
    exchanged    0.27*K*16*ceil(B/16) + 0.5*N*B + 1500

and never below 12 rows, which fill too little of the kernel's 16 columns. Rows that are not known count as 32: a
product whose weight is no constant belongs to training, where batches are not small. Of a single row nothing is packed,
and each element of the result is one scalar product, for which the weight should lie in memory along K. With a weight
beyond the nearest caches, `Gemm(a, w', transB=1)` took 0.3 to 0.9 of the product's time.

**Laid out, and joined.** A weight's gradient `a' @ g` sums over steps and batch, both of which are rows of the two
operands. onnxruntime transposes the first operand in small blocks, once for every panel of columns of the second. Laid
out once, it is read as it lies. Time of [R,K]' @ [R,N] on one thread of an AMD EPYC, layout included, by that without
it:

    R 3200, K 64,  N 512     0.90        R 3200, K 257, N 512     0.80
    R 3200, K 128, N 512     0.83        R 3200, K 129, N 1024    0.77
    R 1600, K 257, N 512     0.86        R 640,  K 1025, N 2048   0.75

Weights of inputs and of states are both summed with the gradients of the gates. Laid out, their operands stand below
each other, and one product packs the gradients once: 0.82 to 0.88 of the time of two products of which the one with a
bias is laid out (R 3200; K 64 and 128, N 384 and 512; K 256 and 256, N 1024), down to 0.73 of two that are not. The
layout is made by a Transpose of three axes, the first of size 1, and a Flatten: a Transpose of two axes would be taken
back into the product (MatmulTransposeFusion), and one of the sequence itself be joined with others before it. The
product is a MatMul, because a Transpose behind a Gemm would be taken in, too (GemmTransposeFusion).

Where one operand is several beside each other, as of a cell that joins inputs and states, and what is laid out is
joined with ones or others anyhow, each of them is laid out by itself and joined once: layout and product took
0.94 to 0.97 of the time (AMD with AVX-512, one thread and two; R 800 and 1600, K 256 and 256 and the ones, N 1024).

A bias gradient is the sum of the same rows. onnxruntime's ReduceSum over leading axes does not share its work among
threads, its product does. As a row of ones times `g` the sum took 0.67 to 0.98 of the time on one thread, 0.30 to 0.73
on two, from 160 rows of 128 to 6,400 of 2,048 (16,000 rows of 256: 1.3 on one, 0.36 on two). Where an operand is laid
out anyhow, the row of ones is appended to it, and the sum is one more row of the product: both take 0.81 (K 128, N 512)
and 0.87 (K 128, N 384) of the time.

That is done outside of bodies, in a graph that holds a loop, of a product of which the first operand is turned and to
which nothing is added, and of a ReduceSum over all axes but the last of at least `LEAST_SUMMED` elements, unknown sizes
counted as 64; float32; `a` no wider than `g`, and `g` at least `LEAST_COLUMNS` wide, since what the layout costs does
not depend on the other operand's width. It does not shrink with more threads either: a runtime of many gains less.
`LEAST_JOINED` columns are enough where products, or a product and a sum, become one. They do where the operands of all
of them are there before the first, or are rearrangements of what is there. Others become `Gemm(a, g, transA=1)`.

**Added up in the product.** A loop over blocks of steps adds a block's gradients to those of the blocks before. Where
states do nothing but add up the parts of a product, they become one state, cut behind the loop, and the addition is the
product's own: Gemm. No copy of the product's size is made; a step of [1025,K] @ [K,2048] took 0.8 of the time at K 64,
and as long as before at K 640, where the product is nearly all of it.

Precondition: any model.

Postcondition: no sum over rows or product with turned rows is left outside of bodies that would gain by its layout.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr, replace
from lstm_lower.graph.edit import detach, lone_reader
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.form import node_label
from lstm_lower.passes.loops.invariant_hoisting import InvariantHoisting
from lstm_lower.passes.loops.views.dependence import Dependence, Level
from lstm_lower.passes.loops.views.loop import Loop, State, scans_of
from lstm_lower.passes.loops.views.loop_pass import LoopPass, graphs_with_loops
from lstm_lower.reachability import reached

# Nanoseconds to pack an element, to transpose one, and for a node.
PACK = 0.27
TRANSPOSE = 0.5
NODE = 1500.0
KERNEL_COLUMNS = 16
LEAST_ROWS = 12
ASSUMED_ROWS = 32
ASSUMED_UNITS = 256
# Elements; smaller weights of a single row are as well left alone.
LARGE_WEIGHT = 1 << 17
LEAST_COLUMNS = 512
LEAST_JOINED = 384
LEAST_SUMMED_ROWS = 64
LEAST_SUMMED = 20_000
MATRIX = 2
# Nodes, one behind the other, that are repeated so that a product can stand where another one stands.
MOST_MOVES = 4
# Operands in one that are laid out each: each takes nodes of its own.
MOST_BESIDE = 4
# What leaves the elements in their order.
LAYING_TOGETHER = (std.Flatten, std.Reshape, std.Squeeze, std.Unsqueeze, std.Identity)


class KernelSelection(LoopPass):
    """Writes products for the runtime's kernels."""

    # What is written before a loop cannot read what the body makes, though it be the same at every step.
    needs = (InvariantHoisting,)
    # A block may be a single step.
    on_blocks = True

    def run(self, model: ir.Model) -> bool:
        """Writes the products of loops' bodies, then those around the loops, then those that are added up."""
        modified = super().run(model)
        modified |= sum(map(self._lay_out, graphs_with_loops(model))) > 0
        for node in scans_of(model.graph):
            modified |= _accumulate(Loop(node, self.context.space))
        return modified

    def rewrite(self, loop: Loop) -> bool:
        """Divides the products around one loop, and orients those of its body."""
        divided, oriented = self._divide(loop.graph), False
        loop = Loop(loop.node, loop.space) if divided else loop
        dependence = Dependence(loop)
        for node in dependence.order:
            product = _repacking(dependence, node)
            if product is not None:
                oriented |= self._orient(loop, dependence, product)
        if oriented:
            loop.commit()
        return divided or oriented

    def faults(self, model: ir.Model) -> Iterator[tuple[ir.Node, str]]:
        """Products and sums that would gain by another layout."""
        for graph in graphs_with_loops(model):
            for contraction in (c for node in graph if (c := _contraction(self.facts, node)) is not None):
                if _reason_against(self.facts, contraction) is None:
                    label = node_label(contraction.node)
                    yield contraction.node, f"its operand laid out for a product, got it of '{label}'"

    def _divide(self, graph: ir.Graph) -> bool:
        """Computes the parts of split products separately."""
        modified = False
        for node in list(graph):
            # What it multiplies may be a part of a product that was divided just now.
            product = std.MatMul.of(node, self.facts)
            if product is not None and _has_more_rows_than_columns(product):
                modified |= self._divide_product(graph, product)
        return modified

    def _divide_product(self, graph: ir.Graph, product: std.MatMul) -> bool:
        addition, bias = _biased(product) or (None, None)
        whole = product.output if addition is None else addition.output
        split = std.Split.of(lone_reader(whole), self.facts)
        rank = self.facts.rank(whole)
        if split is None or split.sizes is None or rank is None or split.axis != rank - 1:
            return False
        e = Builder(self.context.space, graph, before=split.node, scope=split.node.name or "split")
        sizes, count = e.ints(*split.sizes), len(split.sizes)
        weights = _columns(e, product.b, sizes, count)
        biases = [] if bias is None else e.node(std.Split, [bias, sizes], count, axis=0).outputs
        for place, (output, weight) in enumerate(zip(list(split.node.outputs), weights, strict=True)):
            part = e.op(std.MatMul, product.a, weight)
            e.replace(output, e.op(std.Add, part, biases[place]) if biases else part)
        detach(split.node, *([] if addition is None else [addition.node]), product.node)
        return True

    def _orient(self, loop: Loop, dependence: Dependence, product: std.MatMul) -> bool:
        """Exchanges the operands of a repeated product, or turns its weight, if that saves time."""
        node, facts = product.node, self.facts
        if _is_constant(facts, product.b):
            self.refuse(node, "the runtime packs a constant weight once, when it loads the model")
            return False
        if _is_single_row(product):
            turned = loop.inside(before=node).op(std.Gemm, product.a, _turned(loop, product.b), transB=1)
            loop.substitute(product.output, turned)
            return True
        if not _is_cheaper(product):
            self.refuse(node, "packing the weight at every step costs no more than swapping the operands")
            return False
        state = _lone_state(loop, dependence, node)
        if state is None:
            _exchange_in_place(loop, dependence, product)
        else:
            _exchange_state(loop, product, state)
        return True

    def _lay_out(self, graph: ir.Graph) -> bool:
        """Transposes the smaller operands of products over many rows, and joins products with one matrix."""
        places = {node: place for place, node in enumerate(graph)}
        alike: dict[Hashable, list[_Contraction]] = {}
        for node in graph:
            if (contraction := _contraction(self.facts, node)) is not None:
                alike.setdefault(_matrix(self.facts, contraction.others), []).append(contraction)
        modified = False
        for contractions in alike.values():
            groups, others = self._groups(contractions, places)
            for group in groups:
                e = Builder.before(group[0].node, self.context.space)
                _write_joined(e, [self._now(contraction) for contraction in group], places)
            modified |= bool(groups) | (sum([self._write_plain(self._now(x)) for x in others]) > 0)
        return modified

    def _now(self, contraction: _Contraction) -> _Contraction:
        """A product or sum of what its operands have become, which may be products that are written already."""
        now = _contraction(self.facts, contraction.node)
        assert now is not None
        return now

    def _groups(
        self, alike: list[_Contraction], places: Mapping[ir.Node, int]
    ) -> tuple[list[list[_Contraction]], list[_Contraction]]:
        """Products and sums with one matrix, as those that can stand where the first of them stands; and the others."""
        groups: list[list[_Contraction]] = []
        left: list[_Contraction] = []
        while alike:
            first, *alike = alike
            reason = _reason_against(self.facts, first, LEAST_JOINED)
            group = [first, *(other for other in alike if reason is None and self._joins(other, first, places))]
            if len(group) == 1 and reason is None:
                # A product alone must gain more by it.
                reason = _reason_against(self.facts, first)
            if reason is None:
                groups.append(group)
                alike = [other for other in alike if other not in group]
            else:
                self.refuse(first.node, reason)
                left.append(first)
        return groups, left

    def _joins(self, other: _Contraction, first: _Contraction, places: Mapping[ir.Node, int]) -> bool:
        """Whether a product or sum can become part of an earlier one."""
        if _reason_against(self.facts, other, LEAST_JOINED) is not None:
            return False
        return other.rows is None or _is_made_before(other.rows, first.node, places)

    def _write_plain(self, contraction: _Contraction) -> bool:
        """Leaves it to the kernel to turn a product's rows."""
        node, rows = contraction.node, contraction.rows
        if not std.MatMul.matches(node) or self.facts.dtype(rows) not in (ir.DataType.FLOAT, ir.DataType.DOUBLE):
            return False
        e = Builder.before(node, self.context.space)
        e.replace(node.outputs[0], e.op(std.Gemm, rows, contraction.others, transA=1))
        detach(node)
        return True


def _biased(product: std.MatMul) -> tuple[std.Add, ir.Value] | None:
    """The addition of a vector to a product that nothing else reads, and the vector."""
    facts, result = product.facts, product.output
    addition, shape = std.Add.of(lone_reader(result), facts), facts.shape(result)
    bias = None if addition is None else next(value for value in addition.inputs if value is not result)
    if addition is None or bias is None or shape is None or facts.shape(bias) != shape[-1:]:
        return None
    return addition, bias


def _has_more_rows_than_columns(product: std.MatMul) -> bool:
    shape = product.shape(0)
    if product.rank(1) != MATRIX or shape is None or len(shape) < MATRIX or not isinstance(shape[-1], int):
        return False
    return product.facts.elements(product.a) > shape[-1] ** 2


def _columns(e: Builder, weight: ir.Value, sizes: Expr, count: int) -> Sequence[ir.Value]:
    """The parts of a weight's columns; of a transposed one transposed rows, which the runtime takes into products."""
    upright = _upright(e.facts, weight)
    if upright is None:
        return e.node(std.Split, [weight, sizes], count, axis=1).outputs
    return [e.transpose(part, (1, 0)) for part in e.node(std.Split, [upright, sizes], count, axis=0).outputs]


def _upright(facts: Facts, value: ir.Value) -> ir.Value | None:
    """What a matrix is the transpose of."""
    maker = facts.maker(value)
    return maker.data if isinstance(maker, std.Transpose) and maker.perm == (1, 0) else None


def _turned(loop: Loop, weight: ir.Value) -> ir.Value:
    """A weight's transpose, made once before the loop, or what the weight is a transpose of."""
    upright = _upright(loop.facts, weight)
    return loop.before("orient").transpose(weight, (1, 0)) if upright is None else upright


def _exchange_state(loop: Loop, product: std.MatMul, state: State) -> None:
    """Keeps the state that the product makes transposed."""
    before, after = loop.before("orient"), loop.after("orient")
    weight = before.transpose(product.b, (1, 0))
    turned = loop.inside(before=product.node).op(std.Gemm, weight, product.a, transB=1)
    first = next(iter(loop.body))
    shape = loop.facts.shape(state.parameter)
    flipped = None if shape is None else shape[::-1]
    kind = loop.facts.type(state.parameter)
    parameter = loop.space.value(loop.scope("state"), kind, flipped)
    loop.substitute(state.parameter, loop.inside(before=first).transpose(parameter, (1, 0)))
    loop.substitute(product.output, turned)
    final = loop.space.value(loop.scope("final"), kind, flipped)
    replace(state.final, after.transpose(final, (1, 0)), loop.space)
    state.initial = before.transpose(state.initial, (1, 0))
    state.parameter, state.final = parameter, final


def _exchange_in_place(loop: Loop, dependence: Dependence, product: std.MatMul) -> None:
    """Transposes the result on the spot, in a form that the runtime does not fold back."""
    before = loop.before("orient")
    weight = before.transpose(product.b, (1, 0))
    addition, bias = _biased(product) or (None, None)
    if addition is None or dependence.level(bias) != Level.INVARIANT:
        e, old = loop.inside(before=product.node), product.output
        turned = e.op(std.MatMul, weight, e.transpose(product.a, (1, 0)))
    else:
        e, old = loop.inside(before=addition.node), addition.output
        column = before.op(std.Reshape, bias, before.ints(-1, 1))
        turned = e.op(std.Gemm, weight, product.a, column, transB=1)
    loop.substitute(old, e.transpose(turned, (1, 0)))


def _repacking(dependence: Dependence, node: ir.Node) -> std.MatMul | None:
    """The product of a carried matrix with an invariant weight that a node is, which the runtime packs in each step."""
    product = std.MatMul.of(node, dependence.loop.facts)
    if product is None or (product.rank(0), product.rank(1)) != (MATRIX, MATRIX):
        return None
    levels = dependence.level(product.a), dependence.level(product.b)
    return product if levels == (Level.CARRIED, Level.INVARIANT) and product.dtype(0) == ir.DataType.FLOAT else None


def _is_cheaper(product: std.MatMul) -> bool:
    """Whether the exchanged product takes less time."""
    rows, units = product.shape(0), product.shape(1)
    assert rows is not None
    assert units is not None
    B = rows[0] if isinstance(rows[0], int) else ASSUMED_ROWS
    inner = next((dim for dim in (units[0], rows[1]) if isinstance(dim, int)), ASSUMED_UNITS)
    columns = units[1] if isinstance(units[1], int) else ASSUMED_UNITS
    exchanged = PACK * inner * -(-B // KERNEL_COLUMNS) * KERNEL_COLUMNS + TRANSPOSE * columns * B + NODE
    return B >= LEAST_ROWS and exchanged < PACK * inner * columns


def _is_single_row(product: std.MatMul) -> bool:
    """Whether the product is one row times a weight that the nearest caches do not hold."""
    rows, units = product.shape(0), product.shape(1)
    if rows is None or units is None or rows[0] != 1:
        return False
    inner, columns = units
    return isinstance(inner, int) and isinstance(columns, int) and inner * columns >= LARGE_WEIGHT


def _is_constant(facts: Facts, value: ir.Value) -> bool:
    """Whether a weight follows from constants alone: the runtime folds what leads to it."""

    def behind(value: ir.Value) -> list[ir.Value]:
        node = None if facts.constant(value) is not None else value.producer()
        return [] if node is None else [x for x in node.inputs if x is not None]

    def is_folded(value: ir.Value) -> bool:
        node = value.producer()
        return facts.constant(value) is not None or (node is not None and node.domain == "")

    return all(map(is_folded, reached([value], behind)))


def _lone_state(loop: Loop, dependence: Dependence, node: ir.Node) -> State | None:
    """The state that a product makes directly, when nothing else reads the product."""
    product = node.outputs[0]
    if dependence.readers(product) or list(loop.results()).count(product) != 1:
        return None
    return next((state for state in loop.states if state.update is product), None)


@dataclasses.dataclass(frozen=True)
class _Contraction:
    """`rows' @ others`, or the sum of the rows of `others`.

    Attributes:
        node: the product, or the sum.
        rows: [R, K]; `None` for the ones of a sum.
        others: [R, N]; of a sum with all axes but the last as its rows.
    """

    node: ir.Node
    rows: ir.Value | None
    others: ir.Value


def _contraction(facts: Facts, node: ir.Node) -> _Contraction | None:
    """The product over rows, or the sum of them, that a node is."""
    match facts.view(node):
        case std.ReduceSum(axes=tuple() as axes, data=data) if _sums_rows(facts, data, axes):
            return _Contraction(node, None, data)
        case std.Gemm(trans_a=1, trans_b=0, alpha=1.0, c=None, a=rows, b=others):
            return _Contraction(node, rows, others)
        case std.MatMul(a=a, b=others) if facts.rank(others) == MATRIX:
            upright = _upright(facts, a)
            return None if upright is None else _Contraction(node, upright, others)
    return None


def _sums_rows(facts: Facts, data: ir.Value, axes: tuple[int, ...]) -> bool:
    """Whether a sum is a large one over all axes of a tensor but the last."""
    rank = facts.rank(data)
    if rank is None or rank < MATRIX or sorted(axes) != list(range(rank - 1)):
        return False
    return facts.dtype(data) == ir.DataType.FLOAT and facts.elements(data) >= LEAST_SUMMED


def _reason_against(facts: Facts, contraction: _Contraction, least: int = LEAST_COLUMNS) -> str | None:
    """Why a product is left alone, `None` where it gains; `least` is the width of the second operand that pays."""
    if contraction.rows is None:
        return None
    if facts.dtype(contraction.rows) != ir.DataType.FLOAT:
        return "only products of float32 are known to gain by another layout"
    own, other = facts.shape(contraction.rows), facts.shape(contraction.others)
    if own is None or other is None:
        return "the sizes of its operands are not known"
    (rows, width), (_, columns) = own, other
    if isinstance(rows, int) and rows < LEAST_SUMMED_ROWS:
        return "it sums over few rows"
    if isinstance(width, int) and isinstance(columns, int) and columns >= least and 0 < width <= columns:
        return None
    return "laying its first operand out is not known to cost less than it spares"


def _write_joined(e: Builder, group: Sequence[_Contraction], places: Mapping[ir.Node, int]) -> None:
    """Writes products and sums with one matrix as one product, of rows that are laid out below each other."""
    place = places[group[0].node]
    operands = [_remade(e, x.rows, place, places) for x in group if x.rows is not None]
    others, sums = _as_matrix(e, group[0].others), len(operands) < len(group)
    nodes = [x.node for x in group]
    blocks = [_side_by_side(e, rows, nodes) if len(group) > 1 else [rows] for rows in operands]
    parts = [_laid_out(e, block) for block in itertools.chain(*blocks)]
    sizes = [e.wrap(rows).size(1) for rows in operands]
    if sums:
        parts.append(e.fill(1.0, [1, e.wrap(others).size(0)], ir.DataType.FLOAT).value)
        sizes.append(1)
    results = [e.op(std.MatMul, e.concat(parts, axis=0), others)]
    if len(sizes) > 1:
        results = list(e.node(std.Split, [results[0], e.sizes(sizes)], len(sizes), axis=0).outputs)
    products = iter(results)
    for x in group:
        e.replace(x.node.outputs[0], _of_sum(e, x.node, results[-1]) if x.rows is None else next(products))
    for x in group:
        detach(x.node)


def _of_sum(e: Builder, node: ir.Node, row: ir.Value) -> ir.Value:
    """A row of sums [1, N] in the shape of what a sum makes."""
    total = std.ReduceSum(node, e.facts)
    return e.unsqueeze(row, *range(len(total.axes or ()) - 1)) if total.keepdims else e.squeeze(row, 0)


def _as_matrix(e: Builder, value: ir.Value) -> ir.Value:
    """A tensor with all axes but the last laid together."""
    rank = e.facts.rank(value)
    assert rank is not None
    return value if rank == MATRIX else e.op(std.Flatten, value, axis=rank - 1)


def _laid_out(e: Builder, rows: ir.Value) -> ir.Value:
    """The transpose [K, R] of an operand, as the runtime leaves it alone."""
    return e.op(std.Flatten, e.transpose(e.unsqueeze(rows, 0), (2, 0, 1)), axis=1)


def _side_by_side(e: Builder, rows: ir.Value, nodes: Collection[ir.Node]) -> list[ir.Value]:
    """The operands that stand beside each other in one that is there for some nodes alone."""
    *_, whole = _laid_together(e.facts, rows)
    concat, rank = std.Concat.of(whole.producer(), e.facts), e.facts.rank(whole)
    if concat is None or rank is None or concat.axis != rank - 1 or len(concat.parts) > MOST_BESIDE:
        return [rows]
    return [rows] if not _is_read_alone(whole, nodes) else [_as_matrix(e, part) for part in concat.parts]


def _is_read_alone(value: ir.Value, nodes: Collection[ir.Node]) -> bool:
    """Whether nothing but some nodes reads a value, or its elements rearranged."""
    readers = [node for node, _ in value.uses() if node not in nodes]
    made = [output for node in readers for output in node.outputs]
    is_moved = all(map(std.Moving.matches, readers)) and not value.is_graph_output()
    return is_moved and all(_is_read_alone(output, nodes) for output in made)


def _matrix(facts: Facts, value: ir.Value) -> Hashable:
    """A key of a matrix: the same for all that are one tensor with all axes but the last laid together."""
    *_, source = _laid_together(facts, value)
    shape = facts.shape(value)
    return source, None if shape is None else shape[-1]


def _laid_together(facts: Facts, value: ir.Value) -> Iterator[ir.Value]:
    """A matrix and what it is the same rows of, the source last."""
    yield value
    shape = facts.shape(value)
    columns = None if shape is None else shape[-1]
    while isinstance(columns, int) and columns and isinstance(view := facts.maker(value), LAYING_TOGETHER):
        before = facts.shape(view.data)
        if not before or before[-1] != columns:
            break
        value = view.data
        yield value


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


@dataclasses.dataclass(frozen=True)
class _Sum:
    """A state that does nothing but add something up.

    Attributes:
        state: the state.
        dropped: axes of size 1 that what is added loses before.
    """

    state: State
    dropped: tuple[int, ...]


def _accumulate(loop: Loop) -> bool:
    """Adds products up whole whose parts are added up."""
    modified = False
    for split in [split for node in loop.body if (split := std.Split.of(node, loop.facts)) is not None]:
        product = std.MatMul.of(split.data.producer(), loop.facts)
        sums = [total for part in split.node.outputs if (total := _sum_of(loop, part)) is not None]
        if product is not None and len(sums) == len(split.node.outputs) and _is_accumulated(loop, product, split):
            _join(loop, product, split, sums)
            modified = True
    if modified:
        loop.commit()
    return modified


def _is_accumulated(loop: Loop, product: std.MatMul, split: std.Split) -> bool:
    """Whether the kernel can add a product up of which nothing but its parts is read."""
    ranks, dtype = (product.rank(0), product.rank(1)), product.dtype()
    fits = ranks == (MATRIX, MATRIX) and dtype == ir.DataType.FLOAT and split.sizes is not None
    return fits and product.node.graph is loop.body and lone_reader(product.output) is split.node


def _sum_of(loop: Loop, part: ir.Value) -> _Sum | None:
    """The state that adds up a part of a product, where that is all that is read of both."""
    reader, dropped = lone_reader(part), tuple[int, ...]()
    squeeze = std.Squeeze.of(reader, loop.facts)
    if squeeze is not None and squeeze.axes is not None:
        part, reader, dropped = squeeze.output, lone_reader(squeeze.output), squeeze.axes
    state = next((state for state in loop.states if state.update.producer() is reader is not None), None)
    if state is None or not std.Add.matches(reader) or set(reader.inputs) != {part, state.parameter}:
        return None
    results = list(loop.results())
    alone = results.count(state.update) == 1 and not state.update.uses() and state.parameter not in results
    fits = alone and len(state.parameter.uses()) == 1 and loop.facts.same_shape(part, state.parameter)
    return _Sum(state, dropped) if fits else None


def _join(loop: Loop, product: std.MatMul, split: std.Split, sums: Sequence[_Sum]) -> None:
    """Puts one state, to which a product is added, in the place of those of its parts."""
    space, whole, axis = loop.space, product.output, split.axis
    shape, kind = loop.facts.shape(whole), loop.facts.type(whole)
    assert axis is not None
    assert split.sizes is not None
    parameter, final = (space.value(loop.scope(name), kind, shape) for name in ("total", "totals"))
    initial = _initial(loop.before("total"), sums, axis)
    after = loop.after("total")
    cut = after.node(std.Split, [final, after.ints(*split.sizes)], len(sums), axis=axis).outputs
    for part, x in zip(cut, sums, strict=True):
        replace(x.state.final, after.squeeze(part, *x.dropped) if x.dropped else part, space)
        loop.drop_state(x.state)
    e = loop.inside(before=product.node, scope="total")
    update = e.op(std.Gemm, product.a, product.b, parameter)
    loop.states.append(State(initial, parameter, update, final))


def _initial(e: Builder, sums: Sequence[_Sum], axis: int) -> ir.Value:
    """The initial values, joined as the parts are; one number everywhere is not copied together."""
    parts = [e.unsqueeze(x.state.initial, *x.dropped) if x.dropped else x.state.initial for x in sums]
    whole = e.wrap(e.concat(parts, axis))
    number, sizes = e.facts.uniform(whole.value), [dim for dim in whole.shape or () if isinstance(dim, int)]
    if number is None or len(sizes) != e.facts.rank(whole.value):
        return whole.value
    filled = e.fill(number, sizes, whole.dtype).value
    e.discard_unread([filled])
    return filled
