"""Simplification: zeros and ones vanish, chains of layout changes shorten, constants fold.

Precondition: nodes in topological order. Every rule keeps the result's shape, and keeps infinities and NaN: a product
with zeros is zero only where the other factor surely is finite.

Postcondition: none of the rules applies to any node, what the rules emit included, but that one loop's simplification
may allow another's. Takes time linear in the number of nodes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.edit import detach
from lstm_lower.graph.emit import Emitter, replace
from lstm_lower.graph.subgraphs import subgraphs_of
from lstm_lower.passes.infer import attribute, constant_of, infer, shape_of
from lstm_lower.passes.loops.directions import turned_round
from lstm_lower.passes.loops.fold import fold
from lstm_lower.passes.loops.sizes import sizes_of
from lstm_lower.passes.loops.uniform import Uniform
from lstm_lower.passes.loops.views.base import LoopPass
from lstm_lower.passes.loops.views.dependence import CONTROL_FLOW, same_shape
from lstm_lower.passes.loops.views.loop import Loop, is_scan
from lstm_lower.passes.loops.views.pads import is_padded, joined_pads


class Simplify(LoopPass):
    """Algebraic simplification and constant folding of the whole model, loop bodies included."""

    name = "simplify"
    one_walk = True

    def run(self, model: ir.Model) -> bool:
        """Simplifies the model."""
        self._uniform = Uniform()
        return self._graph(model.graph)

    def rewrite(self, loop: Loop) -> bool:
        """Simplifies one loop's body."""
        self._uniform = Uniform()
        self._uniform.enter(loop)
        return self._graph(loop.body)

    def _graph(self, graph: ir.Graph) -> bool:
        modified = False
        for node in graph:
            if node.graph is None:
                continue
            if node.op_type in CONTROL_FLOW:
                if is_scan(node):
                    loop = Loop(node, self.context.space)
                    self._uniform.enter(loop)
                    modified |= self._parameter_shapes(loop)
                for subgraph in subgraphs_of(node):
                    modified |= self._graph(subgraph)
            modified |= self._node(graph, node)
        return modified

    def _node(self, graph: ir.Graph, node: ir.Node) -> bool:
        """Simplifies a node, and then what the rules put in its place; the graph's walk has passed that by."""
        self._editors: list[Emitter] = []
        if not self._apply(graph, node):
            return False
        waiting = [emitted for editor in self._editors for emitted in editor.emitted]
        for emitted in waiting:
            if emitted.graph is not None:
                self._editors = []
                if self._apply(graph, emitted):
                    waiting += [new for editor in self._editors for new in editor.emitted]
        return True

    def _apply(self, graph: ir.Graph, node: ir.Node) -> bool:
        if node.domain != "" or len(node.outputs) != 1:
            return False
        (output,) = node.outputs
        if output.shape is None or output.type is None:
            infer(node)
        array = fold(node)
        if array is not None:
            if _same_constant(output, array):
                return False
            editor = self._editor(graph, node)
            dtype = output.dtype or ir.DataType.from_numpy(array.dtype)
            self._replace(node, editor.constant(array, dtype))
            return True
        rule = _RULES.get(node.op_type)
        if rule is None:
            return False
        replacement = rule(self, node)
        if replacement is None or replacement is output:
            return False
        if node.op_type == "Identity" and output.is_graph_output():
            return False
        self._replace(node, replacement)
        return True

    def _editor(self, graph: ir.Graph, node: ir.Node) -> Emitter:
        scope = node.name or "simplify"
        self._editors.append(Emitter(self.context.space, graph, before=node, scope=scope))
        return self._editors[-1]

    def edit(self, node: ir.Node) -> Emitter:
        """Emits before a node."""
        assert node.graph is not None
        return self._editor(node.graph, node)

    def uniform(self, value: ir.Value | None) -> float | None:
        """The value that a tensor holds everywhere, if it is one."""
        return self._uniform.of(value)

    def _replace(self, node: ir.Node, replacement: ir.Value) -> None:
        (output,) = node.outputs
        if replacement.shape is None:
            replacement.shape = output.shape
        replace(output, replacement, self.context.space)
        detach(node)

    def _parameter_shapes(self, loop: Loop) -> bool:
        """The shape of a state or of an element follows from outside: it is the same at every step."""
        modified = False
        sources: list[tuple[ir.Value, ir.Value, int | None]] = [
            *((state.parameter, state.initial, None) for state in loop.states),
            *((x.parameter, x.sequence, x.axis) for x in loop.inputs),
        ]
        for parameter, outer, axis in sources:
            for node, _ in list(parameter.uses()):
                if not std.Shape.matches(node) or node.graph is not loop.body:
                    continue
                rank = None if shape_of(parameter) is None else len(shape_of(parameter) or ())
                if axis is not None and rank is None:
                    continue
                if node.outputs[0].is_graph_output():
                    continue
                e = loop.before("shape")
                shape = e.op(std.Shape, outer)
                if axis is not None and rank is not None:
                    kept = [index for index in range(rank + 1) if index != axis % (rank + 1)]
                    shape = e.op(std.Gather, shape, e.ints(*kept), axis=0)
                start, end = attribute(node, "start", 0), attribute(node, "end", None)
                if start or end is not None:
                    shape = e.slice(shape, start, np.iinfo(np.int64).max if end is None else end, 0)
                loop.substitute(node.outputs[0], shape)
                detach(node)
                modified = True
        return modified


def _same_constant(output: ir.Value, array: np.ndarray) -> bool:
    known = constant_of(output)
    return known is not None and np.array_equal(known, array)


Rule = Callable[[Simplify, ir.Node], "ir.Value | None"]


def _fits(value: ir.Value | None, output: ir.Value) -> ir.Value | None:
    """A value in an output's place, where its shape is known to be the same."""
    return value if value is not None and same_shape(value, output) else None


def _add(s: Simplify, node: ir.Node) -> ir.Value | None:
    a, b = node.inputs
    if is_padded(node):
        joined = joined_pads(s.edit(node), node)
        if joined is not None:
            return joined
    if s.uniform(b) == 0.0 and _fits(a, node.outputs[0]):
        return a
    if s.uniform(a) == 0.0 and _fits(b, node.outputs[0]):
        return b
    return None


def _sub(s: Simplify, node: ir.Node) -> ir.Value | None:
    a, b = node.inputs
    if s.uniform(b) == 0.0 and _fits(a, node.outputs[0]):
        return a
    if s.uniform(a) == 0.0 and b is not None and _fits(b, node.outputs[0]):
        return s.edit(node).op(std.Neg, b)
    return None


def _mul(s: Simplify, node: ir.Node) -> ir.Value | None:
    for value, factor in (node.inputs, node.inputs[::-1]):
        known = s.uniform(factor)
        if known is None:
            continue
        if known == 1.0 and _fits(value, node.outputs[0]):
            return value
        if known == -1.0 and value is not None and _fits(value, node.outputs[0]):
            return s.edit(node).op(std.Neg, value)
        if known == 0.0 and _fits(factor, node.outputs[0]) and s._uniform.is_finite(value):
            return factor
    return None


def _div(s: Simplify, node: ir.Node) -> ir.Value | None:
    sigmoid = _sigmoid(s, node) if s.uniform(node.inputs[0]) == 1.0 else None
    if sigmoid is not None:
        return sigmoid
    return _fits(node.inputs[0], node.outputs[0]) if s.uniform(node.inputs[1]) == 1.0 else None


def _sigmoid(s: Simplify, node: ir.Node) -> ir.Value | None:
    """1 / (1 + exp(-x)), written out."""
    total = _before(node.inputs[1], "Add")
    for one, power in () if total is None else (total.inputs, total.inputs[::-1]):
        exp = _before(power, "Exp") if s.uniform(one) == 1.0 else None
        negated = _before(exp.inputs[0], "Neg") if exp is not None else None
        if negated is not None and _fits(negated.inputs[0], node.outputs[0]):
            return s.edit(node).op(std.Sigmoid, negated.inputs[0])
    return None


def _reduce(s: Simplify, node: ir.Node) -> ir.Value | None:
    """A reduction over axes of size 1."""
    value = node.inputs[0]
    shape = shape_of(value)
    given = constant_of(node.inputs[1]) if len(node.inputs) > 1 else attribute(node, "axes", None)
    if value is None or shape is None or given is None or np.size(given) == 0:
        return None
    axes = sorted({int(axis) % len(shape) for axis in np.reshape(given, -1)})
    if any(shape[axis] != 1 for axis in axes):
        return None
    e = s.edit(node)
    return value if attribute(node, "keepdims", 1) else e.op(std.Squeeze, value, e.ints(*axes))


def _identity(_: Simplify, node: ir.Node) -> ir.Value | None:
    return node.inputs[0]


def _cast(_: Simplify, node: ir.Node) -> ir.Value | None:
    value = node.inputs[0]
    same = value is not None and value.dtype is not None and int(value.dtype) == attribute(node, "to", None)
    return value if same else None


def _before(value: ir.Value | None, op_type: str) -> ir.Node | None:
    """The node that makes a value, if it is of that type."""
    node = value.producer() if value is not None else None
    return node if node is not None and node.op_type == op_type and node.domain == "" else None


def _transpose(s: Simplify, node: ir.Node) -> ir.Value | None:
    shape = shape_of(node.inputs[0])
    order = attribute(node, "perm", None) or (None if shape is None else tuple(reversed(range(len(shape)))))
    if order is None:
        return None
    if list(order) == sorted(order):
        return node.inputs[0]
    kept = _unsqueezed_in_order(s, node, list(order))
    if kept is not None:
        return kept
    inner = _before(node.inputs[0], "Transpose")
    first = attribute(inner, "perm", None) or tuple(reversed(range(len(order)))) if inner is not None else None
    if inner is None or first is None:
        return None
    return s.edit(node).op(std.Transpose, inner.inputs[0], perm=[first[axis] for axis in order])


def _unsqueezed_in_order(s: Simplify, node: ir.Node, order: list[int]) -> ir.Value | None:
    """A Transpose that only moves axes which an Unsqueeze put in: they are put in where they belong instead."""
    inner = _before(node.inputs[0], "Unsqueeze")
    axes = constant_of(inner.inputs[1]) if inner is not None else None
    if inner is None or axes is None:
        return None
    added = {int(axis) % len(order) for axis in axes.reshape(-1)}
    rest = [axis for axis in order if axis not in added]
    if rest != sorted(rest) or inner.inputs[0] is None:
        return None
    return s.edit(node).unsqueeze(inner.inputs[0], *(place for place, axis in enumerate(order) if axis in added))


def _matmul(s: Simplify, node: ir.Node) -> ir.Value | None:
    """A transposed matrix times a vector is the vector times the matrix.

    onnxruntime fuses the Transpose into the product, and reads the matrix wrongly where the right operand is a vector.
    """
    inner, vector = _before(node.inputs[0], "Transpose"), node.inputs[1]
    rank = len(shape_of(inner.inputs[0]) or ()) if inner is not None else 0
    if inner is None or rank < 2 or len(shape_of(vector) or ()) != 1:
        return None
    order = attribute(inner, "perm", None) or tuple(reversed(range(rank)))
    if list(order) != [*range(rank - 2), rank - 1, rank - 2]:
        return None
    return s.edit(node).op(std.MatMul, vector, inner.inputs[0])


def _reshape(_: Simplify, node: ir.Node) -> ir.Value | None:
    value = node.inputs[0]
    return value if value is not None and same_shape(value, node.outputs[0]) else None


def _concat(_: Simplify, node: ir.Node) -> ir.Value | None:
    if len(node.inputs) == 1:
        return node.inputs[0]
    # The parts of one Split, all in order.
    split = _before(node.inputs[0], "Split")
    if split is None or tuple(split.outputs) != tuple(node.inputs):
        return None
    rank = len(shape_of(split.inputs[0]) or ())
    axes = attribute(split, "axis", 0), attribute(node, "axis", 0)
    same = axes[0] == axes[1] or (rank and axes[0] % rank == axes[1] % rank)
    return split.inputs[0] if same else None


def _squeeze(_: Simplify, node: ir.Node) -> ir.Value | None:
    inner = _before(node.inputs[0], "Unsqueeze")
    if inner is None or len(node.inputs) < 2:
        return None
    return _fits(inner.inputs[0], node.outputs[0]) if _equal_constants(node.inputs[1], inner.inputs[1]) else None


def _unsqueeze(_: Simplify, node: ir.Node) -> ir.Value | None:
    inner = _before(node.inputs[0], "Squeeze")
    if inner is None or len(inner.inputs) < 2:
        return None
    return _fits(inner.inputs[0], node.outputs[0]) if _equal_constants(node.inputs[1], inner.inputs[1]) else None


def _equal_constants(a: ir.Value | None, b: ir.Value | None) -> bool:
    left, right = constant_of(a), constant_of(b)
    return a is b or (left is not None and right is not None and np.array_equal(left, right))


def _expand(_: Simplify, node: ir.Node) -> ir.Value | None:
    """An Expand that adds nothing: every size it asks for is 1 or there already, whatever the other sizes are."""
    value = node.inputs[0]
    shape, target = shape_of(value), sizes_of(node.inputs[1])
    if shape is not None and target is not None and len(target) <= len(shape):
        pairs = zip(target, shape[len(shape) - len(target) :], strict=True)
        if all(wanted == 1 or (wanted is not None and wanted == dim) for wanted, dim in pairs):
            return value
    return _fits(value, node.outputs[0])


def _slice(s: Simplify, node: ir.Node) -> ir.Value | None:
    """A Slice that takes everything; a Slice of a transposed value, cut before it is transposed."""
    upright = _turned_back(s, node)
    if upright is not None:
        return upright
    inner = _before(node.inputs[0], "Transpose")
    axes = constant_of(node.inputs[3]) if len(node.inputs) > 3 else None
    if inner is not None and axes is not None and (rank := len(shape_of(inner.inputs[0]) or ())):
        order = attribute(inner, "perm", None) or tuple(reversed(range(rank)))
        e = s.edit(node)
        moved = e.constant([order[int(axis) % rank] for axis in axes], ir.DataType.from_numpy(axes.dtype))
        cut = e.op(std.Slice, inner.inputs[0], *node.inputs[1:3], moved, *node.inputs[4:])
        return e.op(std.Transpose, cut, perm=list(order))
    steps = constant_of(node.inputs[4]) if len(node.inputs) > 4 and node.inputs[4] is not None else np.ones(1)
    if steps is None or not (steps == 1).all():
        return None
    if same_shape(node.outputs[0], node.inputs[0]) if node.inputs[0] is not None else False:
        return node.inputs[0]
    starts, ends = constant_of(node.inputs[1]), constant_of(node.inputs[2])
    if starts is None or ends is None:
        return None
    return node.inputs[0] if (starts == 0).all() and (ends == np.iinfo(np.int64).max).all() else None


def _turned_back(s: Simplify, node: ir.Node) -> ir.Value | None:
    """What is turned round twice."""
    once = turned_round(s.facts, node)
    twice = turned_round(s.facts, once[0].producer()) if once is not None else None
    return twice[0] if once is not None and twice is not None and once[1] == twice[1] else None


def _scatter_nd(s: Simplify, node: ir.Node) -> ir.Value | None:
    """Elements added to zeros, all of them at the only place that the first axis has."""
    data, indices, updates = node.inputs
    shape, places = shape_of(data), constant_of(indices)
    if shape is None or places is None or places.shape != (1,) or shape[0] != 1 or updates is None:
        return None
    if int(places[0]) not in (0, -1) or s.uniform(data) != 0.0:
        return None
    if attribute(node, "reduction", "none") not in ("none", "add"):
        return None
    result = s.edit(node).unsqueeze(updates, 0)
    return _fits(result, node.outputs[0])


def _neg(_: Simplify, node: ir.Node) -> ir.Value | None:
    inner = _before(node.inputs[0], "Neg")
    return inner.inputs[0] if inner is not None else None


def _sum(s: Simplify, node: ir.Node) -> ir.Value | None:
    if any(value is None for value in node.inputs):
        return None
    result = node.inputs[0]
    editor = s.edit(node)
    for value in node.inputs[1:]:
        result = editor.op(std.Add, result, value)
    return result


def _where(_: Simplify, node: ir.Node) -> ir.Value | None:
    condition = constant_of(node.inputs[0])
    if condition is None or condition.size == 0 or not (condition == condition.reshape(-1)[0]).all():
        return None
    return _fits(node.inputs[1] if condition.reshape(-1)[0] else node.inputs[2], node.outputs[0])


_RULES: dict[str, Rule] = {
    "Add": _add,
    "Sub": _sub,
    "Mul": _mul,
    "Div": _div,
    "Identity": _identity,
    "Cast": _cast,
    "Transpose": _transpose,
    "MatMul": _matmul,
    "Reshape": _reshape,
    "Concat": _concat,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Expand": _expand,
    "Slice": _slice,
    "Gather": _turned_back,
    "ScatterND": _scatter_nd,
    "Neg": _neg,
    "Sum": _sum,
    "Where": _where,
    **dict.fromkeys(("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"), _reduce),
}
