"""Operators that hold graphs, sequences, and operators with random results."""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph.standard.elementwise import Identity
from lstm_lower.graph.standard.view import Attribute, Operand, Optional, Standard, counted

# A Loop that bears this in its `metadata_props` never runs without a step: the model's author knows that its sequences
# are not empty. Only then may a Loop of an open number of steps become a Scan, of which runtimes ask for one step at
# least. Where the mark is not true, a run of no steps fails.
STEPS, AT_LEAST_ONE = "lstm_lower.steps", "at least one"


class ControlFlow(Standard, abstract=True):
    """Runs graphs that it holds."""


class If(ControlFlow):
    condition = Operand(0)

    @property
    def branches(self) -> tuple[ir.Graph, ir.Graph]:
        """The graphs for where the condition holds, and where it does not."""
        attributes = self.node.attributes
        return attributes["then_branch"].as_graph(), attributes["else_branch"].as_graph()


class Repeated(ControlFlow, abstract=True):
    """Runs one graph again and again."""

    @property
    def body(self) -> ir.Graph:
        """The graph that runs every time."""
        return self.node.attributes["body"].as_graph()


class Loop(Repeated):
    """Its body takes the iteration's number, the condition and the carried values."""

    trips = Optional(0)
    start = Optional(1)

    @property
    def carried(self) -> tuple[ir.Value | None, ...]:
        """The carried values' initial values."""
        return tuple(self.node.inputs[2:])

    @property
    def starts(self) -> bool:
        """Whether the condition is known to hold before the first step."""
        start = self.constant(1)
        return self.start is None or (start is not None and bool(start.all()))

    @property
    def never_empty(self) -> bool:
        """Whether it is known to run a step at least."""
        count = self.constant(0)
        some = self.trips is None or (count is not None and count.size == 1 and int(count.reshape(-1)[0]) > 0)
        return (some and self.starts) or self.node.metadata_props.get(STEPS) == AT_LEAST_ONE

    @property
    def is_counted(self) -> bool:
        """Whether its number of steps is the trip count: the condition holds before every step."""
        if self.trips is None or not self.starts:
            return False
        again: ir.Value | None = self.body.outputs[0]
        while (node := again.producer() if again is not None else None) is not None and Identity.matches(node):
            again = node.inputs[0]
        constant = self.facts.constant(again)
        return again is self.body.inputs[1] or (constant is not None and bool(constant.all()))


class Scan(Repeated):
    """Opset 9 or newer; the older one had a batch axis. Its body takes the states and one element of each sequence."""

    @property
    def states(self) -> int:
        """The number of carried values, which stand first."""
        return len(self.node.inputs) - int(self.attribute("num_scan_inputs", 0))

    @property
    def input_axes(self) -> tuple[int, ...]:
        """The axis of time of each sequence that is walked along, as written."""
        return self._each("scan_input_axes", len(self.node.inputs) - self.states)

    @property
    def input_directions(self) -> tuple[int, ...]:
        """1 for each sequence that is walked along backwards."""
        return self._each("scan_input_directions", len(self.node.inputs) - self.states)

    @property
    def output_axes(self) -> tuple[int, ...]:
        """The axis of time of each sequence that is made, as written."""
        return self._each("scan_output_axes", len(self.body.outputs) - self.states)

    @property
    def output_directions(self) -> tuple[int, ...]:
        """1 for each sequence whose first step stands last."""
        return self._each("scan_output_directions", len(self.body.outputs) - self.states)

    def _each(self, name: str, count: int) -> tuple[int, ...]:
        stated = self.attribute(name, None)
        return (0,) * count if stated is None else tuple(int(x) for x in stated)


class SequenceMap(Repeated): ...


class Random(Standard, abstract=True):
    """Results that differ from run to run: never moved, merged or repeated."""


class RandomNormal(Random): ...


class RandomNormalLike(Random): ...


class RandomUniform(Random): ...


class RandomUniformLike(Random): ...


class Multinomial(Random):
    data = Operand(0)


class Bernoulli(Random):
    data = Operand(0)


# Metadata of the comparison in a Dropout that is written out, of the numbers that it draws with what it drops: it draws
# as the Dropout did, and can be given other numbers.
KEPT, BY_DRAW = "lstm_lower.kept", "by draw"


class Dropout(Random):
    """Hands its operand on unless it trains."""

    data = Operand(0)
    ratio = Optional(1)
    training = Optional(2)


# Operators on sequences of tensors and on optional values.


class SequenceConstruct(Standard): ...


class SequenceEmpty(Standard): ...


class OfSequence(Standard, abstract=True):
    """Its first operand is a sequence."""

    sequence = Operand(0)


class At(OfSequence, abstract=True):
    """Concerns one place of a sequence.

    Attributes:
        place: the operand that names it.
    """

    place = 1

    def position(self, length: int) -> int | None:
        """The place counted from the front; `None` where it is not known, or there is none."""
        given = self.constant(self.place)
        return None if given is None or given.size != 1 else counted(int(given.reshape(-1)[0]), length)


class SequenceInsert(At):
    tensor = Operand(1)
    place = 2


class SequenceErase(At): ...


class SequenceAt(At): ...


class SequenceLength(OfSequence): ...


class SplitToSequence(Standard):
    data = Operand(0)
    keepdims = Attribute("keepdims", 1)

    @property
    def axis(self) -> int | None:
        """The axis that is divided."""
        return counted(self.attribute("axis", 0), self.rank())


class ConcatFromSequence(OfSequence):
    axis = Attribute("axis", 0)
    new_axis = Attribute("new_axis", 0)


class MadeOptional(Standard, op_type="Optional"): ...


class OptionalHasElement(Standard): ...


class OptionalGetElement(Standard): ...
