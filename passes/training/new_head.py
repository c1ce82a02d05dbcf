"""Another last layer, for another number of classes: transfer learning."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower import arguments
from lstm_lower.errors import InvalidInputError, UnsupportedOpError
from lstm_lower.graph.builder import Builder
from lstm_lower.graph.edit import detach, remove_unread
from lstm_lower.graph.values import declared_shape, stated
from lstm_lower.passes.model_pass import Pass
from lstm_lower.passes.softmax import SoftmaxPass
from lstm_lower.passes.tidy import RemoveUnreadWeightsPass
from lstm_lower.passes.training.last_layer import LastLayer
from lstm_lower.passes.training.low_rank import float_products
from lstm_lower.records import first_values
from lstm_lower.records.first_values import Draw

# The weights of the new layer.
WEIGHT, BIAS = "head.weight", "head.bias"
# The name of a class count that stays open.
CLASSES = "classes"


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
        classes: Any = 1 if self.classes is None else self.classes
        if not isinstance(classes, (int, np.integer)) or isinstance(classes, bool) or not 1 <= classes < 2**31:
            raise InvalidInputError(f"classes requires a number of classes, at least 1, got {classes!r}")
        self.seed = arguments.whole("seed", self.seed, least=0)

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Edits the graph.

        Raises:
            InvalidInputError: something else has the names of the new weights.
            UnsupportedOpError: no linear layer makes the first output, or others depend on it.
        """
        graph = model.graph
        layer = LastLayer(model, self.context.space, "replace_head")
        float_products(self, model)
        SoftmaxPass().share(self.context)(model)
        self._leave_unrounded(graph, layer)
        layer.find()
        self._free_names(model, layer)
        for value in layer.behind:
            shape = declared_shape(value)
            value.shape = None if shape is None else stated((*shape[:-1], self.classes or CLASSES))
        self._put(model, layer)
        remove_unread(graph)
        RemoveUnreadWeightsPass().share(self.context)(model)
        return ir.passes.PassResult(model, modified=True)

    def _leave_unrounded(self, graph: ir.Graph, layer: LastLayer) -> None:
        """Takes away what quantizes the last layer's numbers: their range is that of the old classes."""
        value: ir.Value | None = graph.outputs[0]
        while value is not None and (node := value.producer()) is not None:
            value = layer.before(node.outputs[0])
            unrounded = layer.unrounded(node.outputs[0])
            if unrounded is not node.outputs[0]:
                Builder.before(node, self.context.space).replace(node.outputs[0], unrounded)
                remove_unread(graph)
                value = graph.outputs[0]

    def _free_names(self, model: ir.Model, layer: LastLayer) -> None:
        """Takes the names of the new weights from those of the old layer, and the name of the class count."""
        graph = model.graph
        for name in (WEIGHT, BIAS):
            value = next((x for x in [*graph.inputs, *graph.initializers.values()] if x.name == name), None)
            given = value is not None and value.is_graph_input() and name not in layer.draws
            if value is not None and (given or not {use.node for use in value.uses()} <= layer.nodes):
                raise InvalidInputError(
                    f"replace_head requires that nothing but the last layer reads '{name}', the name of a new weight, "
                    "got a model in which something else does"
                )
            graph.initializers.pop(name, None)
            if name in layer.draws and value is not None:
                graph.inputs.remove(value)
        first_values.remove(model, (WEIGHT, BIAS))
        if self.classes is None and any(CLASSES in (declared_shape(x) or ()) for x in graph.inputs):
            raise InvalidInputError(
                f"replace_head requires a model without an open size '{CLASSES}' where the class count is to be open, "
                "got one with it; rename it"
            )

    def _put(self, model: ir.Model, layer: LastLayer) -> None:
        made, features = layer.made, layer.features
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
