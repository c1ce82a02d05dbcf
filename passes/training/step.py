"""A training step under edit: its gradients, its state, and places to add to both."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.errors import InvalidModelError
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr, Workspace
from lstm_lower.graph.edit import operands
from lstm_lower.graph.values import declared_shape, stated
from lstm_lower.reachability import reached
from lstm_lower.records import first_values
from lstm_lower.records import state as training_state
from lstm_lower.records.first_values import Draw
from lstm_lower.records.state import Role, StatePair, TrainingState


class TrainingStep:
    """A model with its training state, and the values that its updates read as gradients.

    Attributes:
        model: the model, edited in place.
        state: its state; `save` writes it back.
        inputs: the graph's inputs by name.
        outputs: the graph's outputs by name.
        gradients: state input -> the value that stands for its gradient now.
    """

    def __init__(self, model: ir.Model, state: TrainingState) -> None:
        self.model = model
        self.state = state
        self._space = Workspace.of(model)
        self.inputs = {value.name: value for value in model.graph.inputs if value.name is not None}
        self.outputs = {value.name: value for value in model.graph.outputs if value.name is not None}
        self.gradients: dict[str, ir.Value] = {
            pair.input: _typed_source(self.outputs[pair.gradient]) for pair in state.pairs if pair.gradient is not None
        }

    def builder(self, scope: str) -> Builder:
        """A builder whose nodes join the end of the graph."""
        return Builder(self._space, self.model.graph, scope=scope)

    def builder_before(self, node: ir.Node) -> Builder:
        """A builder whose nodes stand before a node."""
        return Builder.before(node, self._space)

    def replace_gradients(self, scope: str, change: Callable[[list[Expr]], list[Expr]]) -> None:
        """Puts other gradients in place of those that the updates read.

        The gradients among the graph's outputs stay as they are.

        Args:
            scope: prefix of the new nodes' names.
            change: given the gradients in the order of `gradients`, returns those to be read instead.

        Raises:
            InvalidModelError: a weight's update does not read its gradient, or reads what that is computed from.
        """
        before = list(self.gradients.values())
        readers = {name: list(_readers(value)) for name, value in self.gradients.items()}
        builder = self.builder(scope)
        old = [builder.wrap(value) for value in self.gradients.values()]
        new = change(old)
        for name, expr in zip(self.gradients, new, strict=True):
            for node, index in readers[name]:
                node.replace_input_with(index, expr.value)
            self.gradients[name] = expr.value
        self.model.graph.sort()
        for pair in self.state.pairs:
            if pair.output is None or pair.input not in self.gradients:
                continue
            if not _is_computed_from(self.outputs[pair.output], self.gradients[pair.input]):
                raise InvalidModelError(
                    f"{scope} '{pair.input}': the update must read the gradient '{pair.gradient}', got one that "
                    "reads another value; edit the model before it is lowered"
                )
        self._check_bypasses(scope, before)

    def _check_bypasses(self, scope: str, before: Sequence[ir.Value]) -> None:
        """Refuses updates that read a replaced gradient's factors as well: a copy in another layout, or a product's.

        Args:
            scope: for the message.
            before: the gradients that were replaced.
        """
        data = [value for value in self.inputs.values() if value.name not in self._carried() and value.shape != ()]
        varying = self.dependents(data)
        factors = {value for value in needed(before) if value in varying and _is_floating(value)}
        cut = {*before, *self.gradients.values()}
        bypassing = factors - cut
        for node in self.model.graph:
            # What is asked of a value is no gradient: its size, or whether it is finite.
            if not std.Shape.matches(node) and any(value in bypassing for value in operands(node)):
                bypassing.update(value for value in node.outputs if value not in cut and _is_floating(value))
        late = self.dependents(self.gradients.values())
        for pair in self.state.pairs:
            if pair.output is not None and self.outputs[pair.output] in bypassing & late:
                raise InvalidModelError(
                    f"{scope} '{pair.input}': new values must read no gradients but those among the outputs, got "
                    "one that reads what a gradient is computed from as well; edit the model before it is lowered or "
                    "optimised, or use the options of its own optimizer"
                )

    def _carried(self) -> set[str | None]:
        return {self.state.learning_rate, *(pair.input for pair in self.state.pairs)}

    def add_input(self, hint: str, initial: np.ndarray[Any, Any]) -> ir.Value:
        """Adds an input with a default value."""
        dtype = ir.DataType.from_numpy(initial.dtype)
        value = ir.Value(name=self._space.names.fresh(hint), type=ir.TensorType(dtype), shape=stated(initial.shape))
        self.make_input(value)
        training_state.set_default(self.model, value, initial)
        return value

    def add_input_like(self, hint: str, like: ir.Value, dtype: ir.DataType, number: float = 0.0) -> ir.Value:
        """Adds an input of a state's shape that begins with one number everywhere.

        Where sizes of the shape are open, it has no default: its first value is made with that of the state.

        Raises:
            InvalidModelError: open sizes have no names.
        """
        shape = declared_shape(like)
        if shape is None or None in shape:
            raise InvalidModelError(f"state '{like.name}' requires a known shape, got {shape}")
        sizes = [dim for dim in shape if isinstance(dim, int)]
        if len(sizes) == len(shape):
            return self.add_input(hint, np.full(sizes, number, dtype.numpy()))
        value = ir.Value(name=self._space.names.fresh(hint), type=ir.TensorType(dtype), shape=stated(shape))
        self.make_input(value)
        first_values.add(self.model, {str(value.name): Draw(number, number)})
        return value

    def make_input(self, value: ir.Value) -> None:
        """Makes a value of the graph, or a new one, an input."""
        assert value.name is not None
        self.model.graph.inputs.append(value)
        self.inputs[value.name] = value

    def add_pair(self, before: ir.Value, after: Expr, role: Role, **more: Any) -> StatePair:
        """Makes an expression the next value of an input."""
        builder = self.builder("state")
        new = builder.op(std.Identity, after).value
        new.name = self._space.names.fresh(f"new_{before.name}")
        new.shape = before.shape
        self.model.graph.outputs.append(new)
        assert before.name is not None
        self.outputs[new.name] = new
        pair = StatePair(before.name, new.name, role, **more)
        self.state = dataclasses.replace(self.state, pairs=(*self.state.pairs, pair))
        return pair

    def complete_pair(self, pair: StatePair, after: Expr) -> None:
        """Gives a pair without an output its next value."""
        completed = self.add_pair(self.inputs[pair.input], after, pair.role)
        whole = dataclasses.replace(pair, output=completed.output)
        pairs = tuple(whole if old is pair else old for old in self.state.pairs[:-1])
        self.state = dataclasses.replace(self.state, pairs=pairs)

    def replace_output(self, name: str, scope: str, change: Callable[[Expr], Expr]) -> None:
        """Puts another value in an output's place, under the output's name."""
        old = self.outputs[name]
        builder = self.builder(scope)
        new = builder.op(std.Identity, change(builder.wrap(old))).value
        old.name, new.name, new.shape = self._space.names.fresh(f"{scope}/{name}"), name, old.shape
        graph_outputs = self.model.graph.outputs
        graph_outputs[next(i for i, value in enumerate(graph_outputs) if value is old)] = self.outputs[name] = new

    def dependents(self, sources: Iterable[ir.Value]) -> set[ir.Value]:
        """All values that are computed from the sources, which are among them."""
        reached = set(sources)
        for node in self.model.graph:
            if any(value in reached for value in operands(node)):
                reached.update(node.outputs)
        return reached

    def save(self) -> None:
        """Writes the state into the model's metadata."""
        training_state.write(self.model, self.state)


def needed(values: Iterable[ir.Value]) -> set[ir.Value]:
    """All values of the main graph that some of its values are computed from, these included."""
    return set(reached(values, lambda value: [] if (node := value.producer()) is None else operands(node)))


def _is_computed_from(value: ir.Value, source: ir.Value) -> bool:
    """Whether a value of the main graph is computed from another one; near ones are found first."""
    reached, waiting = {value}, collections.deque([value])
    while waiting and source not in reached:
        node = waiting.popleft().producer()
        new = [] if node is None else [operand for operand in operands(node) if operand not in reached]
        reached.update(new)
        waiting += new
    return source in reached


def source_of(value: ir.Value) -> ir.Value:
    """The value behind a chain of Identity nodes."""
    node = value.producer()
    while std.Identity.matches(node) and node.inputs[0] is not None:
        value = node.inputs[0]
        node = value.producer()
    return value


def _typed_source(value: ir.Value) -> ir.Value:
    """The value behind a chain of Identity nodes; it gets the dtype and shape of the graph output."""
    source = source_of(value)
    if source.type is None and value.dtype is not None:
        source.type = ir.TensorType(value.dtype)
    if source.shape is None:
        source.shape = value.shape
    return source


def _readers(value: ir.Value) -> Iterator[tuple[ir.Node, int]]:
    """Who reads a value, directly or through Identity nodes; Identities that make a graph output are no readers."""
    for node, index in value.uses():
        if std.Identity.matches(node):
            yield from _readers(node.outputs[0])
        else:
            yield node, index


def _is_floating(value: ir.Value) -> bool:
    return value.dtype is None or value.dtype.is_floating_point()
