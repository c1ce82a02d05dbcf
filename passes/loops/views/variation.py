"""Which tensors of a loop's body have another shape from iteration to iteration.

Unknown sizes are taken to stay as they are unless something is seen to change them: data that decide on a shape, or a
state that becomes longer. A result of broadcasting is not such a cause.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Container, Iterable, Mapping

import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.graph.values import Dim, Open, Shape, UnknownEntry
from lstm_lower.passes.loops.views.carried_shapes import staying_known, values_of


class ShapeLevel(enum.IntEnum):
    """What a shape depends on: nothing in the body, states, numbers made of their sizes, more, or states that grow."""

    FIXED = 0
    FOLLOWS = 1
    CHANGED = 2
    VARIES = 3
    GROWS = 4


# The operands that decide on the shape of a result by what they hold.
_SIZES: dict[type[std.Standard], tuple[int, ...]] = {
    std.Reshape: (1,), std.Expand: (1,), std.Tile: (1,), std.Slice: (1, 2, 4), std.Pad: (1,), std.Range: (0, 1, 2),
    std.ConstantOfShape: (0,), std.OneHot: (1,), std.TopK: (1,), std.Split: (1,), std.Resize: (2, 3),
    std.Compress: (1,), std.CenterCropPad: (1,), std.MaxUnpool: (2,), std.Col2Im: (1, 2), std.AffineGrid: (1,),
    std.DFT: (1,), std.STFT: (1, 3), std.SequenceAt: (1,), std.NonMaxSuppression: (0, 1, 2, 3, 4),
}  # fmt: skip

# Ops of whose results each size is that of an operand.
_KEEPING = (
    std.Elementwise, std.Product, std.Einsum, std.AlongAxis, std.Cumulative, std.Expand, std.Transpose, std.Squeeze,
    std.Unsqueeze, std.Gather, std.GatherElements, std.GatherND, std.Scatter, std.Shape,
)  # fmt: skip

# Ops that rearrange numbers and compute none.
_PLAIN = (std.Moving, std.Concat, std.Identity, std.Cast)


class BodyVariation:
    """What varies in one body.

    Args:
        facts: what is known of values.
        outside: whether a value comes from around the loop.
        updates: parameter of the body -> what an iteration makes of it.
        kept: parameters of the body that keep their shape; others vary.
        counted: whether an inner loop, given by one of its results, runs equally often in each iteration.
        names: the names of sizes that are those of the model's inputs; a name that only the body declares tells
            nothing. `None` for all names.
        changing: parameters of the body that the first iteration leaves with another shape than it finds.
    """

    def __init__(
        self,
        facts: Facts,
        outside: Callable[[ir.Value], bool],
        updates: Mapping[ir.Value, ir.Value],
        kept: Container[ir.Value] = (),
        counted: Callable[[ir.Value], bool] | None = None,
        names: Container[str] | None = None,
        changing: Container[ir.Value] = (),
    ) -> None:
        self._facts = facts
        self._outside = outside
        self._updates = updates
        self._kept = kept
        self._counted = counted or self._runs_equally
        self._names = names
        self._changing = changing
        self._varying: set[ir.Value] = set()
        self._shapes: dict[ir.Value, ShapeLevel] = {}
        self._values: dict[ir.Value, ShapeLevel] = {}
        # Parameter of a body within this one -> what it stands for.
        self._inner: dict[ir.Value, list[ir.Value | None]] = {}
        self._settled = False

    def of(self, value: ir.Value) -> bool:
        """Whether a value's shape is seen to change."""
        self._settle()
        return self._shape(value) >= ShapeLevel.VARIES

    def grows(self, value: ir.Value) -> bool:
        """Whether a value's shape is seen to change with that of a state."""
        self._settle()
        return self._shape(value) is ShapeLevel.GROWS

    def steady(self, value: ir.Value) -> bool:
        """Whether the numbers in a value are the same in every iteration."""
        self._settle()
        return self._value(value) is ShapeLevel.FIXED

    def _settle(self) -> None:
        while not self._settled:
            found = {p for p in self._updates if p not in self._varying and self._grows(p)}
            self._settled = not found
            self._varying |= found
            self._shapes.clear()
            self._values.clear()

    def _grows(self, parameter: ir.Value) -> bool:
        if self._shape(parameter) is ShapeLevel.FIXED:
            return False
        return parameter in self._changing or self._shape(self._updates[parameter]) >= ShapeLevel.CHANGED

    def _shape(self, value: ir.Value) -> ShapeLevel:
        """What a value's shape depends on."""
        if self._outside(value):
            return ShapeLevel.FIXED
        if value not in self._shapes:
            self._shapes[value] = ShapeLevel.FIXED
            shape = self._facts.shape(value)
            self._shapes[value] = self._made(value) if shape is None else self._most(self._dim(d, value) for d in shape)
        return self._shapes[value]

    def _dim(self, dim: object, value: ir.Value) -> ShapeLevel:
        if isinstance(dim, UnknownEntry):
            return self._made(value) if _is_gone(dim.value) else self._value(dim.value)
        if isinstance(dim, str) and not self._is_known(dim):
            return self._made(value)
        if not isinstance(dim, Open):
            return ShapeLevel.FIXED
        return self._made(value) if dim.value is value or _is_gone(dim.value) else self._shape(dim.value)

    def _made(self, value: ir.Value) -> ShapeLevel:
        """What the shape of a node's result depends on."""
        if value.producer() is None:
            if value in self._kept:
                return ShapeLevel.FIXED
            if value in self._inner:
                return self._most(self._shape(x) for x in self._inner[value] if x is not None)
            if value in self._varying:
                return ShapeLevel.GROWS
            return ShapeLevel.FOLLOWS if value in self._updates else ShapeLevel.VARIES
        view = self._facts.maker(value)
        match view:
            case std.NonZero() | std.Unique():
                return self._changed(self._value(view.node.inputs[0]))
            case std.Loop():
                return self._looped(view, value)
            case std.Scan():
                return self._left(view, value)
            case std.If():
                if self._value(view.node.inputs[0]) > ShapeLevel.FIXED:
                    return ShapeLevel.VARIES
                place = value.index()
                assert place is not None
                return self._most(self._shape(branch.outputs[place]) for branch in view.branches)
        found = self._operands(value, view)
        keeps = isinstance(view, _KEEPING) or (isinstance(view, std.Concat) and not self._is_open(value, view.axis))
        return found if keeps else self._changed(found)

    def _is_open(self, value: ir.Value, axis: int | None) -> bool:
        shape = self._facts.shape(value)
        return shape is None or axis is None or not self._is_known(shape[axis])

    def _is_known(self, dim: object) -> bool:
        return isinstance(dim, int) or (isinstance(dim, str) and (self._names is None or dim in self._names))

    def _operands(self, value: ir.Value, view: std.Standard | None) -> ShapeLevel:
        node = value.producer()
        assert node is not None
        sizes = _SIZES.get(type(view), ()) if view is not None else ()
        return self._most(
            self._value(x) if number in sizes else self._shape(x)
            for number, x in enumerate(node.inputs)
            if x is not None
        )

    def _looped(self, view: std.Loop, value: ir.Value) -> ShapeLevel:
        """An inner loop's result: its shape is that of each iteration if the number of iterations does not vary."""
        if not self._counted(value) or isinstance(self._facts.type(value), ir.SequenceType):
            return ShapeLevel.VARIES
        return self._left(view, value)

    def enter(self, *nodes: ir.Node) -> None:
        """Makes known what the parameters of inner loops' bodies stand for."""
        for node in nodes:
            view = self._facts.view(node)
            if isinstance(view, std.Loop | std.Scan):
                skipped, states = _states(view)
                made = view.body.outputs[min(skipped, 1) :]
                for place, (x, parameter) in enumerate(
                    zip(node.inputs[skipped:], view.body.inputs[skipped:], strict=False)
                ):
                    self._inner[parameter] = [x, made[place]] if place < states else [x]

    def _left(self, view: std.Loop | std.Scan, value: ir.Value) -> ShapeLevel:
        """What an inner loop leaves."""
        self.enter(view.node)
        skipped, states = _states(view)
        inputs, place = view.node.inputs[skipped:], value.index()
        assert place is not None
        read = [inputs[place]] if place < states else inputs[states:]
        return self._most(self._shape(x) for x in (*read, view.body.outputs[min(skipped, 1) + place]) if x is not None)

    def _runs_equally(self, value: ir.Value) -> bool:
        loop = std.Loop.of(value.producer(), self._facts)
        return loop is not None and loop.is_counted and self._value(loop.trips) is ShapeLevel.FIXED

    def _value(self, value: ir.Value | None) -> ShapeLevel:
        """What the numbers in a value depend on."""
        assert value is not None
        if self._outside(value) or self._facts.constant(value) is not None:
            return ShapeLevel.FIXED
        if value not in self._values:
            self._values[value] = ShapeLevel.VARIES
            entries = self._facts.entries(value)
            self._values[value] = (
                self._computed(value) if entries is None else self._most(self._entry(e, value) for e in entries)
            )
        return self._values[value]

    def _entry(self, entry: object, value: ir.Value) -> ShapeLevel:
        if isinstance(entry, UnknownEntry):
            own = entry.value is value or _is_gone(entry.value)
            return self._computed(value) if own else self._value(entry.value)
        if isinstance(entry, str) and not self._is_known(entry):
            return self._computed(value)
        return self._shape(entry.value) if isinstance(entry, Open) else ShapeLevel.FIXED

    def _computed(self, value: ir.Value) -> ShapeLevel:
        node, view = value.producer(), self._facts.maker(value)
        if node is None or isinstance(view, std.ControlFlow | std.Random):
            return ShapeLevel.VARIES
        if isinstance(view, std.Shape):
            return self._shape(view.data)
        if isinstance(view, std.Size):
            return self._changed(self._operands(value, view))
        found = self._most(self._value(x) for x in node.inputs if x is not None)
        return found if isinstance(view, _PLAIN) else self._changed(found)

    @staticmethod
    def _changed(level: ShapeLevel) -> ShapeLevel:
        return level if level is ShapeLevel.FIXED else max(level, ShapeLevel.CHANGED)

    @staticmethod
    def _most(levels: Iterable[ShapeLevel]) -> ShapeLevel:
        return max(levels, default=ShapeLevel.FIXED)


def _states(view: std.Loop | std.Scan) -> tuple[int, int]:
    """The number of a body's parameters before its states, and that of its states."""
    return (2, len(view.carried)) if isinstance(view, std.Loop) else (0, view.states)


def _is_gone(value: ir.Value) -> bool:
    """Whether the node that made a value, by which a size may still be known, is no part of the model any more."""
    node = value.producer()
    return node is not None and node.graph is None


def variation(op: std.Scan | std.Loop, facts: Facts, around: ir.Graph) -> BodyVariation:
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

    found = BodyVariation(facts, outside, updates, kept, names=names, changing=changing)
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
    return dim.value if isinstance(dim, Open | UnknownEntry) else None
