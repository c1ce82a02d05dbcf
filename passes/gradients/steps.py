"""What the steps of a forward loop pass to those of the backward one.

A value that has one shape in all steps is a scan output. What differs in shape from step to step, as a tensor that
grows, has no such form: its elements are appended to a sequence that the loop carries, one piece a step, and behind the
loop all pieces are joined into one vector.
"""

from __future__ import annotations

import dataclasses
import functools

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.graph.edit import insert_output
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.graph.values import Dim, Entry, Open, Shape, stated
from lstm_lower.passes.loops.views.carried_shapes import staying_known, values_of
from lstm_lower.passes.loops.views.variation import Variation

Repeated = std.Scan | std.Loop


def variation(op: Repeated, facts: Facts, around: ir.Graph) -> Variation:
    """What has another shape from step to step, in a loop's body.

    Args:
        op: the loop.
        facts: what is known of values.
        around: the main graph, whose inputs' names of sizes stand for one size everywhere.
    """
    body = op.body
    inside = set(values_of(body))
    names = {dim for value in around.inputs for dim in facts.shape(value) or () if isinstance(dim, str)}
    if isinstance(op, std.Loop):
        carried = list(zip(op.carried, body.inputs[2:], body.outputs[1:], strict=False))
        once = facts.assuming({parameter: facts.shape(given) for given, parameter, _ in carried}, inside)
        changing = {p for given, p, update in carried if _differ(facts.shape(given), once.shape(update), inside, names)}
        shapes, facts = staying_known(op.node, facts)
        kept = set(shapes)
        updates = {parameter: update for _, parameter, update in carried}
    else:
        kept, updates, changing = set(body.inputs), {}, set()

    def outside(value: ir.Value) -> bool:
        node = value.producer()
        # What is saved adds to the body.
        return value not in inside and (node is None or node.graph is not body)

    found = Variation(facts, outside, updates, kept, names=names, changing=changing)
    found.enter(*all_nodes(body))
    return found


def _differ(a: Shape | None, b: Shape | None, inside: set[ir.Value], names: set[str]) -> bool:
    """Whether two shapes are known around a loop, and seen to differ."""

    def is_known(dim: Dim) -> bool:
        return isinstance(dim, int) or (dim in names if isinstance(dim, str) else _value_of(dim) not in inside)

    if a is None or b is None:
        return False
    return len(a) != len(b) or any(x != y and is_known(x) and is_known(y) for x, y in zip(a, b, strict=True))


def _value_of(dim: Dim) -> ir.Value | None:
    return dim.value if isinstance(dim, Open | Entry) else None


@dataclasses.dataclass
class Pieces:
    """The values that steps make, of different shapes, in one vector.

    Attributes:
        flat: all elements, step by step.
        shapes: each step's shape, one row a step; pieces themselves where the number of axes is not known.
        starts: where each step's elements begin, and
        ends: where they end.
        like: the value in the forward body.
    """

    flat: Expr
    shapes: Expr | Pieces
    starts: Expr
    ends: Expr
    like: ir.Value

    def read(self, b: Builder, step: Expr) -> Expr:
        """The value of one step, given by number."""
        place = step.reshape(1)
        start, end = (ends.take(place) for ends in (self.starts, self.ends))
        given = self.shapes
        shape = given.read(b, step) if isinstance(given, Pieces) else given.take(step)
        piece = b.op(std.Slice, self.flat, start, end, b.ints(0))
        found, known = b.op(std.Reshape, piece, shape, allowzero=1), b.facts.shape(self.like)
        # A size by name or identity would be taken for the same in every step.
        return found if known is None else b.set_shape(found, [dim if isinstance(dim, int) else None for dim in known])


class ForwardSteps:
    """The values of a forward loop's steps, saved.

    Attributes:
        op: the loop, which makes more and more.
        b: emits around it.
    """

    def __init__(self, op: Repeated, b: Builder) -> None:
        self.op = op
        self.b = b

    @functools.cached_property
    def _variation(self) -> Variation:
        return variation(self.op, self.b.facts, self.b.root.graph)

    def varies(self, value: ir.Value) -> bool:
        """Whether a value of the body has another shape from step to step."""
        shape = self.b.facts.shape(value)
        return (shape is None or not all(isinstance(dim, int) for dim in shape)) and self._variation.of(value)

    def stays(self, before: ir.Value, after: ir.Value) -> bool:
        """Whether a state is known to have one shape before and after a step."""
        shape = self.b.facts.shape(before)
        return isinstance(self.op, std.Scan) or (shape is not None and shape == self.b.facts.shape(after))

    def count(self) -> Expr:
        """How many steps a Loop has run, a scalar."""
        op, b = self.op, self.b
        assert isinstance(op, std.Loop)
        if op.is_counted:
            assert op.trips is not None
            trips = b.wrap(op.trips)
            return (trips if trips.shape == () else trips.reshape()).maximum(0)
        return b.op(std.Size, b.wrap(self.sequence(op.body.inputs[0])))

    def sequence(self, value: ir.Value) -> ir.Value:
        """What the loop makes of a body's value: all steps' along an axis more; it is added where there is none."""
        position = self.saved(value)
        return self.op.node.outputs[self._states + position]

    @property
    def _states(self) -> int:
        return len(self.op.carried) if isinstance(self.op, std.Loop) else self.op.states

    def saved(self, value: ir.Value) -> int:
        """The position, behind the states, of the sequence of a body's value; added if there is none."""
        node, body, b = self.op.node, self.op.body, self.b
        first = self._states + int(isinstance(self.op, std.Loop))
        for j, step in enumerate(body.outputs[first:]):
            if step is value:
                return j
        producer = value.producer()
        if producer is None or producer.graph is not body or value in body.outputs:
            value = Builder(b.space, body, scope=f"{node.name}/saved").op(std.Identity, value)
        shape = b.facts.shape(value)
        if shape is not None:
            # onnxruntime asks for the rank of what leaves a body, which it does not always find out.
            value.type, value.shape = b.facts.type(value), stated(shape)
        body.outputs.append(value)
        node.resize_outputs(len(node.outputs) + 1)
        sequence = node.outputs[-1]
        sequence.name = b.names.fresh(f"{node.name or node.op_type}/saved")
        for key in ("scan_output_axes", "scan_output_directions"):
            if key in node.attributes:
                node.attributes[key] = ir.AttrInt64s(key, [*node.attributes[key].as_ints(), 0])
        sequence.type = b.facts.type(sequence)
        whole = b.facts.shape(sequence)
        sequence.shape = None if whole is None else stated(whole)
        return len(body.outputs) - 1 - first

    def pieces(self, value: ir.Value) -> Pieces:
        """The values of all steps of a Loop, of whatever shapes."""
        node, body, b = self.op.node, self.op.body, self.b
        inner = Builder(b.space, body, scope=f"{node.name}/saved")
        made = inner.wrap(value)
        shape = made.sizes()
        flat = self._joined(made.reshape(-1), inner)
        shapes: Expr | Pieces
        if made.shape is None:
            # A Loop without a step makes a vector of what it knows no rank of.
            shapes = self.pieces(shape.value)
            sizes = b.wrap(self.sequence(inner.op(std.Size, made).value))
        else:
            shapes = b.wrap(self.sequence(shape.value))
            sizes = shapes.reduce(std.ReduceProd, 1, keepdims=False)
        ends = b.op(std.CumSum, sizes, b.constant(0, ir.DataType.INT64))
        return Pieces(flat, shapes, ends - sizes, ends, value)

    def _joined(self, piece: Expr, inner: Builder) -> Expr:
        """A vector of all steps' pieces, which stands right behind the Loop."""
        node, body, b = self.op.node, self.op.body, self.b
        assert node.graph is not None
        # onnxruntime joins no sequence that is empty.
        front = Builder.before(node, b.space)
        nothing = front.fill(0, [0], piece.dtype)
        initial = front.op(std.SequenceConstruct, nothing)
        type_ = ir.SequenceType(ir.TensorType(piece.dtype))
        parameter = b.space.value(f"{node.name or node.op_type}/pieces", type_, None)
        updated = inner.op(std.SequenceInsert, inner.wrap(parameter), piece)
        count = self._states
        node.resize_inputs(len(node.inputs) + 1)
        node.replace_input_with(len(node.inputs) - 1, initial.value)
        body.inputs.append(parameter)
        body.outputs.insert(1 + count, updated.value)
        final = insert_output(node, count)
        final.name, final.type = b.names.fresh(f"{node.name or node.op_type}/pieces"), type_
        b.facts.enter(node)
        behind = Builder(b.space, node.graph, after=node, scope=node.name or node.op_type)
        return b.wrap(behind.set_shape(behind.op(std.ConcatFromSequence, final, axis=0), [None]))
