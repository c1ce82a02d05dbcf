"""Operand swapping: a product that is repeated in a loop is written so that the runtime repacks its small operand.

onnxruntime's product on CPUs copies its *second* operand into a packed form at every call, unless that is a constant
of the model. In `a[B,K] @ w[K,N]` that is the weight, the large one. Exchanged, `Gemm(w', a, transB=1)` packs `a` and
makes the result transposed, [N,B]. A state is then kept in that layout and transposed at the start of the next step.
Elsewhere the result is transposed on the spot. A Transpose right behind a Gemm without a third operand would be folded
back into it by the runtime (GemmTransposeFusion), which undoes the exchange; so a bias that is added next becomes that
operand, and where there is none, the product is a MatMul of `w'` and the transpose of `a`, which the runtime takes into
the product (MatmulTransposeFusion).

Precondition: a product of a carried matrix with an invariant weight that is no constant. The exchange is made where
the cost model below finds it cheaper. With a = 0.27 ns to pack an element, c = 0.5 ns to transpose one and d = 1.5 us
for a node:

    as written   a*K*N
    exchanged    a*K*16*ceil(B/16) + c*N*B + d

and never below 12 rows, which fill too little of the kernel's 16 columns. Rows that are not known count as 32: a
product whose weight is no constant belongs to training, where batches are not small.

A single row is another matter: nothing is packed, and each element of the result is one scalar product, for which the
weight should lie in memory along K. With a weight beyond the nearest caches, `Gemm(a, w', transB=1)` took 0.3 to 0.9 of
the product's time.

Postcondition: as many products as before. Runs after all other passes, which would not see through the exchange.
"""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import replace
from lstm_lower.graph.facts import Facts
from lstm_lower.passes.loops.invariant_hoisting import InvariantHoisting
from lstm_lower.passes.loops.views.dependence import Dependence, Level
from lstm_lower.passes.loops.views.loop import Loop, State
from lstm_lower.passes.loops.views.loop_pass import LoopPass

PACK = 0.27
TRANSPOSE = 0.5
NODE = 1500.0
KERNEL_COLUMNS = 16
LEAST_ROWS = 12
ASSUMED_ROWS = 32
ASSUMED_UNITS = 256
# Elements; smaller weights of a single row are as well left alone.
LARGE_WEIGHT = 1 << 17


class OperandSwapping(LoopPass):
    """Exchanges the operands of repeated products if that saves packing the weight."""

    # What is written before the loop cannot read what the body makes, though it be the same at every step.
    needs = (InvariantHoisting,)
    # A block may be a single step.
    on_blocks = True

    def rewrite(self, loop: Loop) -> bool:
        """Orients the products of one loop."""
        modified, dependence, facts = False, Dependence(loop), self.facts
        for node in dependence.order:
            product = _repacking(facts, dependence, node)
            if product is None:
                continue
            value, weight = product.a, product.b
            if _is_constant(facts, weight):
                self.refuse(node, "the runtime packs a constant weight once, when it loads the model")
                continue
            if _is_single_row(facts, value, weight):
                self._turn_weight(loop, node, value, weight)
                modified = True
                continue
            if not _is_cheaper(facts, value, weight):
                self.refuse(node, "packing the weight at every step costs no more than swapping the operands")
                continue
            state = _lone_state(loop, dependence, node)
            if state is None:
                self._exchange_in_place(loop, dependence, node, value, weight)
            else:
                self._exchange_state(loop, node, value, weight, state)
            modified = True
        if modified:
            loop.commit()
        return modified

    @staticmethod
    def _turn_weight(loop: Loop, node: ir.Node, value: ir.Value, weight: ir.Value) -> None:
        """Gives the product the weight's transpose, made once before the loop, or what the weight is a transpose of."""
        source = loop.facts.maker(weight)
        if isinstance(source, std.Transpose) and source.perm == (1, 0):
            turned = source.data
        else:
            turned = loop.before("orient").transpose(weight, (1, 0))
        loop.substitute(node.outputs[0], loop.inside(before=node).op(std.Gemm, value, turned, transB=1))

    @staticmethod
    def _exchange_state(loop: Loop, node: ir.Node, value: ir.Value, weight: ir.Value, state: State) -> None:
        """Keeps the state that the product makes transposed."""
        before, after = loop.before("orient"), loop.after("orient")
        turned = loop.inside(before=node).op(std.Gemm, before.transpose(weight, (1, 0)), value, transB=1)
        first = next(iter(loop.body))
        shape = loop.facts.shape(state.parameter)
        flipped = None if shape is None else shape[::-1]
        kind = loop.facts.type(state.parameter)
        parameter = loop.space.value(loop.scope("state"), kind, flipped)
        loop.substitute(state.parameter, loop.inside(before=first).transpose(parameter, (1, 0)))
        loop.substitute(node.outputs[0], turned)
        final = loop.space.value(loop.scope("final"), kind, flipped)
        replace(state.final, after.transpose(final, (1, 0)), loop.space)
        state.initial = before.transpose(state.initial, (1, 0))
        state.parameter, state.final = parameter, final

    @staticmethod
    def _exchange_in_place(
        loop: Loop, dependence: Dependence, node: ir.Node, value: ir.Value, weight: ir.Value
    ) -> None:
        """Transposes the result on the spot, in a form that the runtime does not fold back."""
        turned = loop.before("orient").transpose(weight, (1, 0))
        addition = _bias_addition(dependence, node)
        if addition is None:
            e, old = loop.inside(before=node), node.outputs[0]
            product = e.op(std.MatMul, turned, e.transpose(value, (1, 0)))
        else:
            add, bias = addition
            e, old = loop.inside(before=add), add.outputs[0]
            before = loop.before("orient")
            product = e.op(std.Gemm, turned, value, before.op(std.Reshape, bias, before.ints(-1, 1)), transB=1)
        loop.substitute(old, e.transpose(product, (1, 0)))


def _bias_addition(dependence: Dependence, node: ir.Node) -> tuple[ir.Node, ir.Value] | None:
    """The addition of a vector to a product that nothing else reads, and the vector, the same at every step."""
    product, facts = node.outputs[0], dependence.loop.facts
    readers, shape = dependence.readers(product), facts.shape(product)
    if len(readers) != 1 or product in set(dependence.loop.results()) or shape is None:
        return None
    (add,) = readers
    if not std.Add.matches(add) or len(set(add.inputs)) != 2:
        return None
    bias = next(value for value in add.inputs if value is not product)
    fits = dependence.level(bias) == Level.INVARIANT and facts.shape(bias) == shape[1:]
    return (add, bias) if bias is not None and fits else None


def _repacking(facts: Facts, dependence: Dependence, node: ir.Node) -> std.MatMul | None:
    """The product of a carried matrix with an invariant weight that a node is, which the runtime packs in each step."""
    product = std.MatMul.of(node, facts)
    if product is None or dependence.node_level(node) != Level.CARRIED:
        return None
    value, weight = product.a, product.b
    if (facts.rank(value), facts.rank(weight)) != (2, 2) or facts.dtype(value) != ir.DataType.FLOAT:
        return None
    levels = dependence.level(value), dependence.level(weight)
    return product if levels == (Level.CARRIED, Level.INVARIANT) else None


def _is_cheaper(facts: Facts, value: ir.Value, weight: ir.Value) -> bool:
    """Whether the exchanged product takes less time."""
    rows, units = facts.shape(value), facts.shape(weight)
    assert rows is not None
    assert units is not None
    B = rows[0] if isinstance(rows[0], int) else ASSUMED_ROWS
    inner = next((dim for dim in (units[0], rows[1]) if isinstance(dim, int)), ASSUMED_UNITS)
    columns = units[1] if isinstance(units[1], int) else ASSUMED_UNITS
    exchanged = PACK * inner * -(-B // KERNEL_COLUMNS) * KERNEL_COLUMNS + TRANSPOSE * columns * B + NODE
    return B >= LEAST_ROWS and exchanged < PACK * inner * columns


def _is_single_row(facts: Facts, value: ir.Value, weight: ir.Value) -> bool:
    """Whether the product is one row times a weight that the nearest caches do not hold."""
    rows, units = facts.shape(value), facts.shape(weight)
    if rows is None or units is None or rows[0] != 1:
        return False
    inner, columns = units
    return isinstance(inner, int) and isinstance(columns, int) and inner * columns >= LARGE_WEIGHT


def _is_constant(facts: Facts, value: ir.Value) -> bool:
    """Whether a weight follows from constants alone: the runtime folds what leads to it."""
    pending, seen = [value], set()
    while pending:
        value = pending.pop()
        if value in seen or facts.constant(value) is not None:
            continue
        seen.add(value)
        node = value.producer()
        if node is None or node.domain != "":
            return False
        pending += [x for x in node.inputs if x is not None]
    return True


def _lone_state(loop: Loop, dependence: Dependence, node: ir.Node) -> State | None:
    """The state that a product makes directly, when nothing else reads the product."""
    product = node.outputs[0]
    if dependence.readers(product) or list(loop.results()).count(product) != 1:
        return None
    return next((state for state in loop.states if state.update is product), None)
