"""What the steps of a loop have made, known behind it.

A value that has one shape in all steps becomes a scan output where somebody asks for it. What differs in shape from
step to step, as a tensor that grows, has no such form: all steps' elements are joined into one vector. The loop carries
that vector where few are added in each step, else a sequence of pieces, which are joined behind the loop.
"""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.graph.values import stated
from lstm_lower.passes.loops.views.loop import Loop, ScanOutput, State
from lstm_lower.passes.loops.views.while_loop import WhileLoop

INT64 = ir.DataType.INT64


class StepValues:
    """The values of a loop's steps; the loop makes more and more of them.

    Attributes:
        loop: the loop.
        b: emits around it.
    """

    def __init__(self, loop: Loop, b: Builder) -> None:
        self.loop = loop
        self.b = b
        self.scope = loop.scope("saved")

    def inside(self) -> Builder:
        """Emits at the end of the body."""
        return Builder(self.b.space, self.loop.body, scope=self.scope)

    def output(self, value: ir.Value) -> ScanOutput:
        """What the loop makes of a body's value: all steps' along an axis more; it is added where there is none."""
        output = self.loop.stacked(value)
        self.loop.write()
        whole = self.b.facts.shape(output.sequence)
        output.sequence.shape = None if whole is None else stated(whole)
        return output

    def sequence(self, value: ir.Value) -> ir.Value:
        """The tensor of all steps' values; see `output`."""
        return self.output(value).sequence

    def count(self) -> Expr:
        """How many steps a Loop has run, a scalar: its trip count, or a number that it carries along."""
        loop, b = self.loop, self.b
        assert isinstance(loop, WhileLoop)
        if loop.view.is_counted:
            return b.wrap(loop.count(b))
        number = b.space.value(f"{self.scope}/count", ir.TensorType(INT64), ())
        zero = loop.before().constant(0)
        return b.wrap(self._carry(zero.value, number, (self.inside().wrap(number) + 1).value))

    def joined(self, value: ir.Value, *, backwards: bool = False, few: bool = False) -> Expr:
        """A vector of all steps' elements, right behind the Loop.

        Args:
            value: a value of the body, of any shape.
            backwards: whether the last step's elements stand in front.
            few: whether a step makes few. In every step onnxruntime copies the entries of a sequence, each of which
                takes as long as 512 bytes of a vector.
        """
        b, inner = self.b, self.inside()
        piece = inner.wrap(value).reshape(-1)
        nothing = self.loop.before().fill(0, [0], piece.dtype)
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
        behind = self.loop.after("saved")
        return b.wrap(behind.set_shape(behind.op(std.ConcatFromSequence, final, axis=0), [None]))

    def _carry(self, initial: ir.Value, parameter: ir.Value, update: ir.Value) -> ir.Value:
        """Carries one more value; what it is behind the Loop."""
        final = ir.Value(name=self.b.names.fresh(self.scope), type=parameter.type, shape=parameter.shape)
        self.loop.states.append(State(initial, parameter, update, final))
        self.loop.write()
        return final
