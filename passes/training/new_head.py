"""Another last layer, for another number of classes: transfer learning."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.errors import InvalidInputError, UnsupportedOpError
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder
from lstm_lower.graph.edit import detach, remove_unread
from lstm_lower.graph.values import declared_shape, stated
from lstm_lower.passes.model_pass import Pass
from lstm_lower.passes.softmax import SoftmaxPass
from lstm_lower.passes.training.low_rank import constant_source, float_products, layer_of
from lstm_lower.records import first_values
from lstm_lower.records.first_values import Draw

# The weights of the new layer.
WEIGHT, BIAS = "head.weight", "head.bias"
# The name of a class count that stays open.
CLASSES = "classes"
# What may stand between the last layer and the output.
_BEHIND = std.Identity | std.Softmax | std.LogSoftmax | std.Sigmoid


@dataclasses.dataclass
class NewHeadPass(Pass):
    """Puts a linear layer of new weights in place of the one that makes the model's first output.

    Attributes:
        classes: how many numbers the new layer makes of each sample; `None` keeps the count open: the weights are
            inputs then, whose first values are drawn when training starts.
        seed: of its first values, which are drawn as PyTorch's Linear draws them.
    """

    classes: int | None
    seed: int = 0

    def __post_init__(self) -> None:
        super().__init__()
        classes: Any = 1 if self.classes is None else self.classes
        if not isinstance(classes, (int, np.integer)) or isinstance(classes, bool) or not 1 <= classes < 2**31:
            raise InvalidInputError(f"classes requires a number of classes, at least 1, got {classes!r}")

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Edits the graph.

        Raises:
            InvalidInputError: something else has the names of the new weights.
            UnsupportedOpError: no linear layer makes the first output, or others depend on it.
        """
        graph = model.graph
        self._draws = first_values.parse(model.metadata_props)
        if not graph.outputs:
            raise InvalidInputError("replace_head requires a model with an output, got none")
        float_products(self, model)
        SoftmaxPass().share(self.context)(model)
        self._leave_unrounded(graph)
        made, behind = graph.outputs[0], [graph.outputs[0]]
        while (node := made.producer()) is not None and isinstance(self.context.space.facts.view(node), _BEHIND):
            made = _operand(node, 0)
            behind.append(made)
        features = self._features(made)
        self._check_readers(graph, behind)
        self._free_names(model, _nodes_before(made, features))
        for value in behind:
            shape = declared_shape(value)
            value.shape = None if shape is None else stated((*shape[:-1], self.classes or CLASSES))
        self._put(model, made, features)
        remove_unread(graph)
        for name, value in list(graph.initializers.items()):
            if not value.uses() and value not in graph.outputs and not value.is_graph_input():
                del graph.initializers[name]
        return ir.passes.PassResult(model, modified=True)

    def _leave_unrounded(self, graph: ir.Graph) -> None:
        """Takes away what quantizes the last layer's numbers: their range is that of the old classes."""
        value: ir.Value | None = graph.outputs[0]
        while value is not None and (node := value.producer()) is not None:
            value = _operand(node, 0) if isinstance(self.context.space.facts.view(node), _BEHIND) else None
            unrounded = self._unrounded(node.outputs[0])
            if unrounded is not node.outputs[0]:
                Builder.before(node, self.context.space).replace(node.outputs[0], unrounded)
                remove_unread(graph)
                value = graph.outputs[0]

    def _unrounded(self, value: ir.Value) -> ir.Value:
        """What was quantized and dequantized again, else the value itself."""
        facts = self.context.space.facts
        view = facts.maker(value)
        quantized = facts.maker(view.data) if isinstance(view, std.DequantizeLinear) else None
        return self._unrounded(quantized.data) if isinstance(quantized, std.QuantizeLinear) else value

    def _features(self, made: ir.Value) -> ir.Value:
        """What the last layer reads."""
        facts = self.context.space.facts
        node, layer, others = made.producer(), layer_of(made, facts), list[ir.Value | None]()
        if layer is None and node is not None and std.Add.matches(node):
            layers = [None if x is None else layer_of(self._unrounded(x), facts) for x in node.inputs]
            layer = next((each for each in layers if each is not None), None)
            others = [x for x, each in zip(node.inputs, layers, strict=True) if each is None]
        # What else is added would be lost.
        if layer is None or not all(self._is_weight(x) for x in [*_weights(layer[0]), *others]):
            got = "an input" if node is None else f"{node.op_type} '{node.name}'"
            raise UnsupportedOpError(
                "replace_head requires a first output that a product with a matrix makes, plus a bias or not, "
                f"got {got}"
            )
        return layer[1]

    def _is_weight(self, value: ir.Value | None) -> bool:
        """Whether a value is made of constants, or is a weight that gets its first value when training starts."""
        return constant_source(value) is not None or (value is not None and value.name in self._draws)

    def _check_readers(self, graph: ir.Graph, behind: list[ir.Value]) -> None:
        """Refuses other readers of the last layer, whose sizes would be others, too."""
        for value in behind:
            others = [use.node for use in value.uses() if use.node not in {_producer(each) for each in behind}]
            if others or (value is not behind[0] and value in graph.outputs):
                what = f"{others[0].op_type} '{others[0].name}'" if others else f"output '{value.name}'"
                raise UnsupportedOpError(f"replace_head requires a last layer that nothing else reads, got {what}")

    def _free_names(self, model: ir.Model, layer: set[ir.Node]) -> None:
        """Takes the names of the new weights from those of the old layer, and the name of the class count."""
        graph = model.graph
        for name in (WEIGHT, BIAS):
            value = next((x for x in [*graph.inputs, *graph.initializers.values()] if x.name == name), None)
            given = value is not None and value.is_graph_input() and name not in self._draws
            if value is not None and (given or not {use.node for use in value.uses()} <= layer):
                raise InvalidInputError(
                    f"replace_head requires that nothing but the last layer reads '{name}', the name of a new weight, "
                    "got a model in which something else does"
                )
            graph.initializers.pop(name, None)
            if name in self._draws and value is not None:
                graph.inputs.remove(value)
        first_values.remove(model, (WEIGHT, BIAS))
        if self.classes is None and any(CLASSES in (declared_shape(x) or ()) for x in graph.inputs):
            raise InvalidInputError(
                f"replace_head requires a model without an open size '{CLASSES}' where the class count is to be open, "
                "got one with it; rename it"
            )

    def _put(self, model: ir.Model, made: ir.Value, features: ir.Value) -> None:
        facts = self.context.space.facts
        shape, dtype = facts.shape(features), facts.dtype(features)
        size = shape[-1] if shape else None
        if not isinstance(size, int) or dtype is None:
            raise UnsupportedOpError(
                "replace_head requires a last layer of a known number of features, got another one"
            )
        node = made.producer()
        assert node is not None
        count = self.classes or CLASSES
        forms = {WEIGHT: ir.Shape((size, count)), BIAS: ir.Shape((count,))}
        weights = {name: ir.Value(name=name, type=ir.TensorType(dtype), shape=form) for name, form in forms.items()}
        self._begin(model, weights, 1 / math.sqrt(size))
        b = Builder.before(node, self.context.space)
        b.replace(made, b.wrap(features) @ b.wrap(weights[WEIGHT]) + b.wrap(weights[BIAS]))
        detach(node)

    def _begin(self, model: ir.Model, weights: Mapping[str, ir.Value], bound: float) -> None:
        """Gives new weights first values, or says how these are drawn."""
        if self.classes is None:
            draws = {name: Draw(-bound, bound, (self.seed, number)) for number, name in enumerate(weights)}
            model.graph.inputs.extend(weights.values())
            first_values.add(model, draws)
            return
        random = np.random.default_rng(self.seed)
        for name, value in weights.items():
            assert value.shape is not None
            assert value.dtype is not None
            array = random.uniform(-bound, bound, value.shape.numpy()).astype(value.dtype.numpy())
            value.const_value = ir.Tensor(array, dtype=value.dtype, name=name)
            model.graph.register_initializer(value)


def _nodes_before(made: ir.Value, features: ir.Value) -> set[ir.Node]:
    """The nodes that make a value of features."""
    nodes: set[ir.Node] = set()
    left: list[ir.Value | None] = [made]
    while left:
        value = left.pop()
        node = _producer(value)
        if value is not features and node is not None and node not in nodes:
            nodes.add(node)
            left.extend(node.inputs)
    return nodes


def _weights(product: ir.Node) -> list[ir.Value]:
    """The matrix, and what a Gemm adds: not the zero point of what integers stand for features."""
    read = product.inputs[1:2] if std.MatMulInteger.matches(product) else product.inputs[1:]
    return [value for value in read if value is not None]


def _operand(node: ir.Node, index: int) -> ir.Value:
    value = node.inputs[index]
    assert value is not None
    return value


def _producer(value: ir.Value | None) -> ir.Node | None:
    return None if value is None else value.producer()
