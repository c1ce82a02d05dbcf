"""What the steps of a forward loop pass to those of the backward one, and which of it differs in shape."""

from __future__ import annotations

import dataclasses
import functools

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.graph.values import Dim, Entry, Open, Shape
from lstm_lower.passes.loops.views.carried_shapes import staying_known, values_of
from lstm_lower.passes.loops.views.step_values import Repeated, StepValues
from lstm_lower.passes.loops.views.variation import Variation


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


class ForwardSteps(StepValues):
    """The values of a forward loop's steps, saved for the backward one."""

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

    def pieces(self, value: ir.Value) -> Pieces:
        """The values of all steps of a Loop, of whatever shapes."""
        b, inner = self.b, self.inside()
        made = inner.wrap(value)
        shape = made.sizes()
        flat = self.joined(made.reshape(-1).value)
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
