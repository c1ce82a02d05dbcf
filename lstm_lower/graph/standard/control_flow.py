"""Operators that hold graphs, sequences, and operators with random results."""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.graph.standard.base import Operand, Standard


class ControlFlow(Standard, abstract=True):
    """Runs graphs that it holds."""


class If(ControlFlow):
    condition = Operand(0)

    @property
    def branches(self) -> tuple[ir.Graph, ir.Graph]:
        """What runs where the condition holds, and where it does not."""
        attributes = self.node.attributes
        return attributes["then_branch"].as_graph(), attributes["else_branch"].as_graph()


class Repeated(ControlFlow, abstract=True):
    """Runs one graph again and again."""

    @property
    def body(self) -> ir.Graph:
        """What runs every time."""
        return self.node.attributes["body"].as_graph()


class Loop(Repeated):
    """Its body takes the iteration's number, the condition and the carried values."""

    @property
    def carried(self) -> tuple[ir.Value | None, ...]:
        """The carried values' initial values."""
        return tuple(self.node.inputs[2:])


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
        found = self.attribute(name, None)
        return (0,) * count if found is None else tuple(int(x) for x in found)


class SequenceMap(Repeated): ...


class SequenceConstruct(Standard): ...


class SequenceEmpty(Standard): ...


class SequenceInsert(Standard): ...


class SequenceErase(Standard): ...


class SequenceAt(Standard): ...


class SequenceLength(Standard): ...


class SplitToSequence(Standard): ...


class ConcatFromSequence(Standard): ...


class OptionalHasElement(Standard): ...


class OptionalGetElement(Standard): ...


class Random(Standard, abstract=True):
    """Results that differ from run to run: never moved, merged or repeated."""


class RandomNormal(Random): ...


class RandomNormalLike(Random): ...


class RandomUniform(Random): ...


class RandomUniformLike(Random): ...


class Multinomial(Random): ...


class Bernoulli(Random): ...


class Dropout(Random): ...
