"""What the steps of a forward loop pass to those of the backward one: computed again where that is cheap, or saved.

Cheap is what rearranges elements, compares, casts or makes sizes. All arithmetic is done once: its result leaves the
forward body as one more output, unless it does so already, and is handed to the backward body.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import onnx_ir as ir

from lstm_lower.dtypes import is_integer
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, replace
from lstm_lower.graph.copies import Copier
from lstm_lower.graph.edit import detach, remove_unread, set_operands
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.passes.formulas.pieces import Pieces
from lstm_lower.passes.loops.views.step_values import StepValues
from lstm_lower.passes.loops.views.variation import BodyVariation, variation
from lstm_lower.passes.loops.views.while_loop import WhileLoop

CHEAP = (
    std.Moving,
    std.Identity,
    std.Cast,
    std.CastLike,
    std.Logical,
    std.Test,
    std.Shape,
    std.Size,
    std.Range,
    std.Constant,
    std.ConstantOfShape,
    std.Concat,
)


def is_cheap(node: ir.Node, facts: Facts) -> bool:
    """Whether a value is computed again rather than saved. Arithmetic on integers finds places and sizes."""
    view = facts.view(node)
    if isinstance(view, CHEAP):
        return True
    dtype = facts.dtype(node.outputs[0])
    return isinstance(view, std.Elementwise) and is_integer(dtype)


class Handing:
    """The handing over from a forward body to the backward one.

    Attributes:
        graph: the backward body, complete; it reads values of the forward one as if it could.
    """

    def __init__(self, backward: Builder, varies: Callable[[ir.Value], bool] = lambda _: False) -> None:
        """Prepares.

        Args:
            backward: what has emitted the backward body.
            varies: whether a value of the forward body has another shape from step to step.
        """
        self.backward = backward
        self._varies = varies
        self.graph = backward.graph
        remove_unread(self.graph)
        self._inside = set(all_nodes(self.graph))

    def run(self, forward: ir.Graph, handed: Callable[[ir.Value], ir.Value]) -> None:
        """Lets the backward body read nothing of the forward one but what is handed to it.

        Args:
            forward: the forward body.
            handed: a value of the forward body -> what the backward body has in its place; of one of which only the
                shape is read just that is asked for.
        """
        saved = list(forward.inputs)
        for node in reversed(list(forward)):
            read = [value for value in node.outputs if self._readers(value)]
            if read and is_cheap(node, self.backward.facts):
                self._copy(node)
            else:
                saved += read
        for value in saved:
            readers = self._readers(value)
            if readers and all(std.Shape.matches(node) for node, _ in readers):
                for node, _ in readers:
                    self._hand_shape(node, forward, handed)
            elif readers:
                _redirect(readers, handed(value))

    def _hand_shape(self, reader: ir.Node, forward: ir.Graph, handed: Callable[[ir.Value], ir.Value]) -> None:
        """Lets the forward body find a shape that the backward one reads."""
        own = self.backward
        shape = Builder(own.space, forward, scope=own.scope).again(reader, reader.inputs)
        replace(reader.outputs[0], handed(shape.outputs[0]), own.space)
        detach(reader)

    def _copy(self, node: ir.Node) -> None:
        """Computes a node again at the start of the backward body."""
        copier = Copier(captures=True, name=self.backward.names.another)
        (copy,) = copier.nodes([node])
        first = next(iter(self.graph), None)
        if first is None:
            self.graph.append(copy)
        else:
            self.graph.insert_before(first, copy)
        self._inside.add(copy)
        for old, new in zip(node.outputs, copy.outputs, strict=True):
            if self._varies(old):
                # A size by name would be taken for the same in every step.
                new.shape = (
                    None if new.shape is None else ir.Shape([x if isinstance(x, int) else None for x in new.shape])
                )
            else:
                self.backward.facts.alike(new, old)
            _redirect(self._readers(old), new)

    def _readers(self, value: ir.Value) -> list[tuple[ir.Node, int]]:
        return [(node, index) for node, index in value.uses() if node in self._inside]


def _redirect(readers: list[tuple[ir.Node, int]], new: ir.Value) -> None:
    for node, index in readers:
        set_operands(node, {index: new})


class ForwardSteps(StepValues):
    """The values of a forward loop's steps, saved for the backward one."""

    @functools.cached_property
    def _variation(self) -> BodyVariation:
        view = self.b.facts.view(self.loop.node)
        assert isinstance(view, std.Scan | std.Loop)
        return variation(view, self.b.facts, self.b.root.graph)

    def varies(self, value: ir.Value) -> bool:
        """Whether a value of the body has another shape from step to step."""
        shape = self.b.facts.shape(value)
        return (shape is None or not all(isinstance(dim, int) for dim in shape)) and self._variation.of(value)

    def stays(self, before: ir.Value, after: ir.Value) -> bool:
        """Whether a state is known to have one shape before and after a step."""
        shape = self.b.facts.shape(before)
        return not isinstance(self.loop, WhileLoop) or (shape is not None and shape == self.b.facts.shape(after))

    def pieces(self, value: ir.Value) -> Pieces:
        """The values of all steps of a Loop, of whatever shapes."""
        b, inner = self.b, self.inside()
        made = inner.wrap(value)
        shape, elements = made.sizes(), self.joined(value)
        if made.shape is None:
            # A Loop without a step makes a vector of what it knows no rank of.
            counts = b.wrap(self.sequence(inner.op(std.Size, made).value))
            return Pieces(elements, counts, self.pieces(shape.value).get)
        shapes = b.wrap(self.sequence(shape.value))
        counts = shapes.reduce(std.ReduceProd, 1, keepdims=False)
        # A size by name or identity would be taken for the same in every step.
        known = [dim if isinstance(dim, int) else None for dim in made.shape]
        return Pieces(elements, counts, shapes.take, known)
