"""What a backward body reads of the forward one: a value is recomputed where that is cheap, otherwise it is saved.

Cheap is what rearranges elements, compares, casts or makes sizes. All arithmetic is done once: its result leaves the
forward body as one more output, unless it does so already, and is handed to the backward body.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, replace
from lstm_lower.graph.copies import Copier
from lstm_lower.graph.edit import detach, remove_unread, set_operands
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.subgraphs import all_nodes

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
    return isinstance(view, std.Elementwise) and dtype is not None and dtype.is_integer()


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
