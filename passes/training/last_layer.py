"""The last layer of a model: the linear one that makes its first output of features."""

from __future__ import annotations

import onnx_ir as ir

from lstm_lower.errors import InvalidInputError, UnsupportedOpError
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Workspace
from lstm_lower.passes.training.low_rank import constant_source, layer_of
from lstm_lower.records import first_values

# What may stand between the layer and the output.
_BEHIND = std.Identity | std.Softmax | std.LogSoftmax | std.Sigmoid


class LastLayer:
    """Where the last layer of a model is, once it is found.

    Attributes:
        draws: the weights of the model that get their first values when training starts.
        made: what it makes.
        behind: the first output, and what leads from there to what it makes.
        features: what it reads.
        nodes: its nodes.
    """

    made: ir.Value
    behind: list[ir.Value]
    features: ir.Value
    nodes: set[ir.Node]

    def __init__(self, model: ir.Model, space: Workspace, caller: str) -> None:
        """Prepares.

        Args:
            model: the model.
            space: shared by all that works on it.
            caller: the function that messages speak of.

        Raises:
            InvalidInputError: the model has no output.
        """
        self._graph, self._space, self._caller = model.graph, space, caller
        self.draws = first_values.parse(model.metadata_props)
        if not model.graph.outputs:
            raise InvalidInputError(f"{caller} requires a model with an output, got none")

    def find(self) -> None:
        """Looks for it.

        Raises:
            UnsupportedOpError: no linear layer makes the first output, or others depend on it.
        """
        self.made, self.behind = self._graph.outputs[0], [self._graph.outputs[0]]
        while (before := self.before(self.made)) is not None:
            self.made = before
            self.behind.append(before)
        self.features = self._read_by(self.made)
        self._check_readers()
        self.nodes = _nodes_before(self.made, self.features)

    def before(self, value: ir.Value) -> ir.Value | None:
        """What a value is made of, where that is a matter of a softmax or the like behind the layer."""
        view = self._space.facts.maker(value)
        return view.inputs[0] if isinstance(view, _BEHIND) else None

    def unrounded(self, value: ir.Value) -> ir.Value:
        """What was quantized and dequantized again, else the value itself."""
        facts = self._space.facts
        view = facts.maker(value)
        quantized = facts.maker(view.data) if isinstance(view, std.DequantizeLinear) else None
        return self.unrounded(quantized.data) if isinstance(quantized, std.QuantizeLinear) else value

    def _read_by(self, made: ir.Value) -> ir.Value:
        """What the last layer reads."""
        facts = self._space.facts
        node, layer, others = made.producer(), layer_of(made, facts), list[ir.Value | None]()
        if layer is None and node is not None and std.Add.matches(node):
            layers = [None if x is None else layer_of(self.unrounded(x), facts) for x in node.inputs]
            layer = next((each for each in layers if each is not None), None)
            others = [x for x, each in zip(node.inputs, layers, strict=True) if each is None]
        # What else is added would be lost.
        if layer is None or not all(self._is_weight(x) for x in [*_weights(layer[0]), *others]):
            got = "an input" if node is None else f"{node.op_type} '{node.name}'"
            raise UnsupportedOpError(
                f"{self._caller} requires a first output that a product with a matrix makes, plus a bias or not, "
                f"got {got}"
            )
        return layer[1]

    def _is_weight(self, value: ir.Value | None) -> bool:
        """Whether a value is made of constants, or is a weight that gets its first value when training starts."""
        return constant_source(value) is not None or (value is not None and value.name in self.draws)

    def _check_readers(self) -> None:
        """Refuses other readers of the last layer, whose sizes would be others, too."""
        for value in self.behind:
            others = [use.node for use in value.uses() if use.node not in {each.producer() for each in self.behind}]
            if others or (value is not self.behind[0] and value in self._graph.outputs):
                what = f"{others[0].op_type} '{others[0].name}'" if others else f"output '{value.name}'"
                raise UnsupportedOpError(f"{self._caller} requires a last layer that nothing else reads, got {what}")


def _nodes_before(made: ir.Value, features: ir.Value) -> set[ir.Node]:
    """The nodes that make a value of features."""
    nodes: set[ir.Node] = set()
    left: list[ir.Value | None] = [made]
    while left:
        value = left.pop()
        node = None if value is None else value.producer()
        if value is not features and node is not None and node not in nodes:
            nodes.add(node)
            left.extend(node.inputs)
    return nodes


def _weights(product: ir.Node) -> list[ir.Value]:
    """The matrix, and what a Gemm adds: not the zero point of what integers stand for features."""
    read = product.inputs[1:2] if std.MatMulInteger.matches(product) else product.inputs[1:]
    return [value for value in read if value is not None]
