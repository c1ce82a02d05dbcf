"""A model cut before its last layer: features of data, which are computed once, and a head that is trained on them."""

from __future__ import annotations

import dataclasses
from typing import Literal

import onnx_ir as ir

from lstm_lower.errors import UnsupportedOpError
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder
from lstm_lower.graph.edit import redirect, remove_unread
from lstm_lower.graph.form import node_label
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.passes.model_pass import Pass
from lstm_lower.passes.randomness import draws
from lstm_lower.passes.softmax import SoftmaxPass
from lstm_lower.passes.tidy import RemoveUnreadWeightsPass
from lstm_lower.passes.training.evaluation import InferenceFormPass
from lstm_lower.passes.training.last_layer import LastLayer
from lstm_lower.records import first_values

# What the one half makes, and the other takes.
FEATURES = "features"


@dataclasses.dataclass
class CutAtFeaturesPass(Pass):
    """Leaves of a model, in its form for inference, what makes the features that its last layer reads, or that layer.

    Attributes:
        half: which.
    """

    half: Literal["features", "head"]

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Edits the graph.

        Raises:
            UnsupportedOpError: there is no such layer, nothing is before it, or what is before it is random.
        """
        graph, space = model.graph, self.context.space
        SoftmaxPass().share(self.context)(model)
        InferenceFormPass().share(self.context)(model)
        layer = LastLayer(model, space, "split_head")
        layer.find()
        random = next((node for node in all_nodes(graph) if draws(node, space.facts)), None)
        if random is not None or layer.features.producer() is None:
            got = (
                "an input" if random is None else f"{random.op_type} '{node_label(random)}', which draws random numbers"
            )
            raise UnsupportedOpError(f"split_head requires features that the model computes alike each time, got {got}")
        shape, kind = space.facts.shape(layer.features), space.facts.type(layer.features)
        features = space.value(FEATURES, kind, shape)
        if self.half == "head":
            redirect(layer.features, features)
            graph.inputs.append(features)
            kept = [layer.behind[0]]
        else:
            b = Builder(space, graph, scope="split_head")
            output = b.op(std.Identity, layer.features)
            output.name, output.type, output.shape = features.name, features.type, features.shape
            kept = [output, *(value for value in graph.outputs if value is not layer.behind[0])]
        graph.outputs[:] = kept
        remove_unread(graph)
        unread = [x for x in graph.inputs if not x.uses() and (self.half == "head" or x.name in layer.draws)]
        for value in unread:
            graph.inputs.remove(value)
        first_values.remove(model, [str(value.name) for value in unread])
        RemoveUnreadWeightsPass().share(self.context)(model)
        return ir.passes.PassResult(model, modified=True)
