"""What layers carry from step to step becomes state: statistics of batch normalization, the stream of dropout."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.graph.edit import detach
from lstm_lower.passes.formulas.philox import Stream, fractions
from lstm_lower.passes.formulas.sizes import up_to
from lstm_lower.passes.model_pass import Pass
from lstm_lower.passes.opset.conversion import ConvertOpsetPass
from lstm_lower.passes.training.step import TrainingStep
from lstm_lower.records import state as training_state

FLOAT, INT64 = ir.DataType.FLOAT, ir.DataType.INT64

# The first opset with the operators that random words are made of.
_WITH_BITS = 18


class LayerStatePass(Pass):
    """Records what layers in training mode carry on.

    Running statistics of a BatchNormalization are inputs with defaults and outputs. Dropout draws from a stream whose
    seed and place are the input `dropout_stream`, so that a run can be resumed, and is the same in every runtime; it is
    Philox 4x32-10 (Salmon et al., 2011). In the bodies of loops and branches Dropout stays onnxruntime's own.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Edits the graph."""
        normalizations = [view for node in model.graph if (view := self._batch_normalization(node)) is not None]
        dropping = [node for node in model.graph if self._drops(node)]
        if dropping and model.opset_imports.get("", 0) < _WITH_BITS:
            ConvertOpsetPass(_WITH_BITS)(model)
            self.context.changed(preserved=False)
        if not normalizations and not dropping:
            return ir.passes.PassResult(model, modified=False)
        step = TrainingStep(model, training_state.read(model))
        for view in normalizations:
            for before, after in zip(view.node.inputs[3:5], view.node.outputs[1:3], strict=True):
                self._carry(model, step, before, after)
        if dropping:
            _draw(step, dropping)
        step.save()
        return ir.passes.PassResult(model, modified=True)

    def _batch_normalization(self, node: ir.Node) -> std.BatchNormalization | None:
        view = std.BatchNormalization.of(node, self.context.space.facts)
        return view if view is not None and view.training_mode and len(node.outputs) >= 3 else None

    def _drops(self, node: ir.Node) -> bool:
        """Whether a node drops anything: its mode is known to be training, its ratio not to be zero."""
        facts = self.context.space.facts
        if not std.Dropout.matches(node) or len(node.inputs) < 3:
            return False
        ratio, training = facts.constant(node.inputs[1]), facts.constant(node.inputs[2])
        return training is not None and bool(training) and (ratio is None or float(ratio) != 0)

    def _carry(self, model: ir.Model, step: TrainingStep, before: ir.Value | None, after: ir.Value) -> None:
        """Makes a statistic that the model keeps state."""
        if before is None or before.name not in model.graph.initializers or before.name in step.inputs:
            return
        step.make_input(before)
        b = step.builder("statistics")
        new = b.wrap(after)
        step.add_pair(before, new, "slot", variable=before.name)


def _draw(step: TrainingStep, nodes: list[ir.Node]) -> None:
    """Lets nodes drop by a stream of the step's own, whose place moves on by one for each of them."""
    stream = step.add_input("dropout_stream", np.zeros(2, np.int64))
    for number, node in enumerate(nodes):
        b = step.builder_before(node)
        place = b.wrap(stream) + b.ints(0, number)
        results = _dropped(b, node, Stream.of_seed(place))
        for old, new in zip(node.outputs, results, strict=False):
            b.replace(old, new.value)
        detach(node)
    b = step.builder("dropout")
    after = b.wrap(stream) + b.ints(0, len(nodes))
    step.add_pair(stream, after, "counter")


def _dropped(b: Builder, node: ir.Node, stream: Stream) -> list[Expr]:
    """What is kept, scaled so that its expectation stays, and which elements these are."""
    data, given = node.inputs[0], node.inputs[1]
    assert data is not None
    x = b.wrap(data)
    ratio = b.constant(0.5, FLOAT) if given is None else b.wrap(given).cast(FLOAT)
    sizes = x.sizes()
    count = b.op(std.ReduceProd, sizes, keepdims=0).reshape(1)
    groups = b.op(std.Div, count + 3, b.ints(4))
    numbers = fractions(stream.words(up_to(b, groups)), FLOAT).slice(0, count, axis=0)
    kept = b.op(std.Reshape, numbers, sizes, allowzero=1) >= ratio
    comparison = kept.value.producer()
    assert comparison is not None
    comparison.metadata_props[std.KEPT] = std.BY_DRAW
    if x.shape is not None:
        kept = b.set_shape(kept, x.shape)
    # Where nothing is kept, no gradient is to be divided by 0; the share of what is kept is else no smaller.
    share = (1 - ratio).maximum(2.0**-24)
    return [b.where(kept, x / share.cast(x.dtype), 0), kept]
