"""Product fusion: several products of a body become one larger one.

Precondition: any Scan. `h @ w1` and `h @ w2` are parts of `h @ [w1 | w2]`; `a @ w1 + b @ w2` is `[a | b] @ [w1; w2]`.
The weights need no carried state, so that they are joined outside, once. Products that can leave the loop are not mixed
with products that cannot.

Postcondition: no two products of the recurrence share their left factor, and no sum adds two products that nobody else
reads. One large product packs, threads and starts once where small ones do so each.
"""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder
from lstm_lower.graph.edit import lone_reader
from lstm_lower.passes.loops.invariant_hoisting import InvariantHoisting
from lstm_lower.passes.loops.views.dependence import Dependence, Level
from lstm_lower.passes.loops.views.loop import Loop
from lstm_lower.passes.loops.views.loop_pass import LoopPass
from lstm_lower.passes.loops.views.partitions import position_in_whole


class ProductFusion(LoopPass):
    """Joins products that share a factor, or that are added up."""

    # Weights that the body makes stand where they are made; joined, they are needed where the first of them is.
    needs = (InvariantHoisting,)

    def rewrite(self, loop: Loop) -> bool:
        """Fuses in one loop."""
        modified = self._fuse_sums(loop)
        if modified:
            loop.commit()
        if self._fuse_parallel(loop):
            loop.commit()
            modified = True
        return modified

    def _fuse_parallel(self, loop: Loop) -> bool:
        dependence = Dependence(loop)
        recurrent = dependence.recurrent()
        groups: dict[tuple[ir.Value, bool], list[ir.Node]] = {}
        for node in dependence.order:
            if _is_product(dependence, node):
                assert node.inputs[0] is not None
                groups.setdefault((node.inputs[0], node in recurrent), []).append(node)
        found = [(left, nodes) for (left, stays), nodes in groups.items() if stays and len(nodes) > 1]
        for left, nodes in found:
            e = loop.inside(before=nodes[0])
            nodes.sort(key=lambda node: position_in_whole(loop.facts, _weight(node)))
            weights = [node.inputs[1] for node in nodes]
            wide = e.op(std.MatMul, left, e.op(std.Concat, *weights, axis=1))
            rank = loop.facts.rank(left)
            assert rank is not None
            sizes = _sizes(e, [weight for weight in weights if weight is not None])
            parts = e.node(std.Split, [wide, sizes], len(nodes), axis=rank - 1)
            for node, part in zip(nodes, parts.outputs, strict=True):
                loop.substitute(node.outputs[0], part)
        return bool(found)

    def _fuse_sums(self, loop: Loop) -> bool:
        dependence = Dependence(loop)
        results = set(loop.results())
        inner: set[ir.Node] = set()
        modified = False
        for node in reversed(dependence.order):
            if not std.Add.matches(node) or node in inner:
                continue
            leaves = _leaves(dependence, node, results, inner)
            products = [leaf for leaf in leaves if _is_lone_product(dependence, leaf, results)]
            modified |= len(products) > 1 and self._fuse_sum(loop, node, leaves, products)
        return modified

    def _fuse_sum(self, loop: Loop, node: ir.Node, leaves: list[ir.Value], products: list[ir.Value]) -> bool:
        producers = [producer for product in products if (producer := product.producer()) is not None]
        producers.sort(key=lambda producer: position_in_whole(loop.facts, _weight(producer)))
        factors = [producer.inputs for producer in producers]
        shapes = [loop.facts.shape(left) for left, _ in factors]
        known = [shape[:-1] for shape in shapes if shape is not None]
        if len(known) < len(shapes) or any(rows != known[0] for rows in known):
            self.refuse(node, "the products that it adds are not known to have equally many rows")
            return False
        if not all(loop.facts.same_shape(product, products[0]) for product in products):
            self.refuse(node, "the products that it adds are not known to have equally many columns")
            return False
        e = loop.inside(before=node)
        rank = len(known[0]) + 1
        wide = e.op(std.Concat, *(left for left, _ in factors), axis=rank - 1)
        result = e.op(std.MatMul, wide, e.op(std.Concat, *(weight for _, weight in factors), axis=0))
        for leaf in leaves:
            if leaf not in products:
                result = e.op(std.Add, leaf, result)
        loop.substitute(node.outputs[0], result)
        return True


def _weight(node: ir.Node) -> ir.Value:
    weight = node.inputs[1]
    assert weight is not None
    return weight


def _is_product(dependence: Dependence, node: ir.Node) -> bool:
    """Whether a node is a product of carried rows with an invariant matrix."""
    if not std.MatMul.matches(node) or None in node.inputs:
        return False
    left, right = node.inputs
    facts = dependence.loop.facts
    rows = facts.rank(left)
    if facts.rank(right) != 2 or rows is None or rows < 2:
        return False
    return dependence.level(left) == Level.CARRIED and dependence.level(right) == Level.INVARIANT


def _is_lone_product(dependence: Dependence, value: ir.Value, results: set[ir.Value]) -> bool:
    producer = value.producer()
    if producer is None or producer.graph is not dependence.loop.body or value in results:
        return False
    return lone_reader(value) is not None and _is_product(dependence, producer)


def _leaves(dependence: Dependence, node: ir.Node, results: set[ir.Value], inner: set[ir.Node]) -> list[ir.Value]:
    """What a sum adds up, through sums that nothing else reads."""
    found: list[ir.Value] = []
    same_shape = dependence.loop.facts.same_shape
    waiting = list(reversed(node.inputs))
    while waiting:
        value = waiting.pop()
        assert value is not None
        producer = value.producer()
        lone = lone_reader(value) is not None and value not in results
        if (
            producer is not None
            and std.Add.matches(producer)
            and lone
            and producer.graph is node.graph
            and same_shape(value, node.outputs[0])
        ):
            inner.add(producer)
            waiting += reversed(producer.inputs)
        else:
            found.append(value)
    return found


def _sizes(e: Builder, weights: list[ir.Value]) -> ir.Value:
    """The numbers of columns."""
    columns = [shape[1] if (shape := e.facts.shape(weight)) is not None else None for weight in weights]
    known = [size for size in columns if isinstance(size, int)]
    if len(known) == len(columns):
        return e.ints(*known).value
    return e.op(std.Concat, *(e.size(weight, 1) for weight in weights), axis=0).value
