"""What the steps of a loop have made, known behind it.

A value that has one shape in all steps becomes a scan output where somebody asks for it. What differs in shape from
step to step, as a tensor that grows, has no such form: all steps' elements are joined into one vector. The loop carries
that vector where few are added in each step, else a sequence of pieces, which are joined behind the loop.
"""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.graph.edit import set_outputs
from lstm_lower.graph.values import stated

INT64 = ir.DataType.INT64

Repeated = std.Scan | std.Loop


class StepValues:
    """The values of a loop's steps; the loop makes more and more of them.

    Attributes:
        op: the loop.
        b: emits around it.
        scope: what names of what it makes end in.
    """

    def __init__(self, op: Repeated, b: Builder, scope: str = "saved") -> None:
        self.op = op
        self.b = b
        self.scope = f"{op.node.name or op.op_type}/{scope}"
        first = self._states + int(isinstance(op, std.Loop))
        # Value of the body -> the position of its sequence, behind the states.
        self._saved = {step: j for j, step in enumerate(op.body.outputs[first:])}

    def inside(self) -> Builder:
        """Emits at the end of the body."""
        return Builder(self.b.space, self.op.body, scope=self.scope)

    def sequence(self, value: ir.Value) -> ir.Value:
        """What the loop makes of a body's value: all steps' along an axis more; it is added where there is none."""
        position = self.saved(value)
        return self.op.node.outputs[self._states + position]

    @property
    def _states(self) -> int:
        return len(self.op.carried) if isinstance(self.op, std.Loop) else self.op.states

    def saved(self, value: ir.Value) -> int:
        """The position, behind the states, of the sequence of a body's value; added if there is none."""
        if value not in self._saved:
            self._saved[value] = len(self._saved)
            self._add(value)
        return self._saved[value]

    def _add(self, value: ir.Value) -> None:
        """Makes one more output of the loop."""
        node, body, b = self.op.node, self.op.body, self.b
        producer = value.producer()
        if producer is None or producer.graph is not body or value in body.outputs:
            value = self.inside().op(std.Identity, value)
        shape = b.facts.shape(value)
        if shape is not None:
            # onnxruntime asks for the rank of what leaves a body, which it does not always find out.
            value.type, value.shape = b.facts.type(value), stated(shape)
        body.outputs.append(value)
        node.resize_outputs(len(node.outputs) + 1)
        sequence = node.outputs[-1]
        sequence.name = b.names.fresh(self.scope)
        for key in ("scan_output_axes", "scan_output_directions"):
            if key in node.attributes:
                node.attributes[key] = ir.AttrInt64s(key, [*node.attributes[key].as_ints(), 0])
        sequence.type = b.facts.type(sequence)
        whole = b.facts.shape(sequence)
        sequence.shape = None if whole is None else stated(whole)

    def count(self) -> Expr:
        """How many steps a Loop has run, a scalar: its trip count, or a number that it carries along."""
        op, b = self.op, self.b
        assert isinstance(op, std.Loop)
        if op.is_counted:
            assert op.trips is not None
            trips = b.wrap(op.trips)
            return (trips if trips.shape == () else trips.reshape()).maximum(0)
        number = b.space.value(f"{self.scope}/count", ir.TensorType(INT64), ())
        zero = Builder.before(op.node, b.space).constant(0)
        return b.wrap(self._carry(zero.value, number, (self.inside().wrap(number) + 1).value))

    def joined(self, value: ir.Value, *, backwards: bool = False, few: bool = False) -> Expr:
        """A vector of all steps' elements, right behind the Loop.

        Args:
            value: a value of the body, of any shape.
            backwards: whether the last step's elements stand in front.
            few: whether a step makes few. In every step onnxruntime copies the entries of a sequence, each of which
                takes as long as 512 bytes of a vector.
        """
        node, b, inner = self.op.node, self.b, self.inside()
        piece = inner.wrap(value).reshape(-1)
        nothing = Builder.before(node, b.space).fill(0, [0], piece.dtype)
        type_ = ir.TensorType(piece.dtype)
        if few:
            vector = inner.wrap(b.space.value(self.scope, type_, (None,)))
            update = inner.concat([piece, vector] if backwards else [vector, piece], 0)
            return b.wrap(self._carry(nothing.value, vector.value, update.value))
        # onnxruntime joins no sequence that is empty.
        initial = nothing.builder.op(std.SequenceConstruct, nothing)
        sequence = b.space.value(self.scope, ir.SequenceType(type_), None)
        updated = inner.op(std.SequenceInsert, sequence, piece.value, *([inner.constant(0)] if backwards else []))
        final = self._carry(initial.value, sequence, updated)
        assert node.graph is not None
        behind = Builder(b.space, node.graph, after=node, scope=self.scope)
        return b.wrap(behind.set_shape(behind.op(std.ConcatFromSequence, final, axis=0), [None]))

    def _carry(self, initial: ir.Value, parameter: ir.Value, update: ir.Value) -> ir.Value:
        """Carries one more value; what it is behind the Loop."""
        node, body, count = self.op.node, self.op.body, self._states
        node.resize_inputs(len(node.inputs) + 1)
        node.replace_input_with(len(node.inputs) - 1, initial)
        body.inputs.append(parameter)
        body.outputs.insert(1 + count, update)
        final = ir.Value(name=self.b.names.fresh(self.scope), type=parameter.type, shape=parameter.shape)
        set_outputs(node, [*node.outputs[:count], final, *node.outputs[count:]])
        self.b.facts.enter(node)
        return final
