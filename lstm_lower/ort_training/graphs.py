"""The graphs of a training run: of a model with a loss, what gives gradients, and what evaluates.

The training graph reads parameters and accumulators of gradients as required inputs. An accumulator that comes in as
`<parameter>_grad.accumulation.buffer` goes out under that name with `.updated` behind it: with the gradient added or,
where `lazy_reset_grad` is true, as the gradient alone. These are the names that `ll.lower` gives to a graph of
onnxruntime-training. What layers carry from step to step, such as running statistics, are inputs with defaults.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import onnx
import onnx_ir as ir

from lstm_lower.errors import InvalidInputError, some
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder
from lstm_lower.graph.values import stated
from lstm_lower.passes.driver import run_passes
from lstm_lower.passes.gradient_preparation import preparing_passes
from lstm_lower.passes.lower import lowering_passes
from lstm_lower.passes.model_pass import Pass
from lstm_lower.passes.training.evaluation import InferenceFormPass
from lstm_lower.passes.training.layers import LayerStatePass
from lstm_lower.passes.training.objective import ObjectivePass
from lstm_lower.records import state as training_state
from lstm_lower.records.state import Role, StatePair

LAZY_RESET = "lazy_reset_grad"


def training_graph(model: onnx.ModelProto, trainable: Sequence[str], frozen: Sequence[str]) -> ir.Model:
    """The model that computes outputs and accumulates gradients, in operators of ONNX.

    Args:
        model: a model whose first output is the loss. It is not changed.
        trainable: parameters that get gradients.
        frozen: parameters that do not.

    Raises:
        InvalidInputError: the model lacks a parameter, or the loss is not a scalar.
        UnsupportedOpError: gradients flow through operators without a rule; each such node is named.
    """
    _check(model, trainable, frozen)
    loss = model.graph.output[0].name
    parameters = [weight.name for weight in model.graph.initializer if weight.name in {*trainable, *frozen}]
    steps = [
        *preparing_passes(),
        LayerStatePass(),
        ObjectivePass(loss, list(trainable), "gradients"),
        AccumulatorsPass(),
        ParametersPass(dict.fromkeys(parameters, "weight")),
        *lowering_passes(),
    ]
    return run_passes(model, steps)


def evaluation_graph(model: onnx.ModelProto, training: ir.Model) -> ir.Model:
    """The model that computes outputs and changes nothing: no dropout, normalization by running statistics.

    Args:
        model: the model that the training graph was made of. It is not changed.
        training: the training graph; what it carries and the model has is an input here, too.
    """
    held = {weight.name for weight in model.graph.initializer}
    roles = {pair.input: pair.role for pair in training_state.read(training).pairs if pair.input in held}
    return run_passes(model, [InferenceFormPass(), ParametersPass(roles), *lowering_passes()])


def _check(model: onnx.ModelProto, trainable: Sequence[str], frozen: Sequence[str]) -> None:
    held = {weight.name: weight for weight in model.graph.initializer}
    if not trainable:
        raise InvalidInputError(
            f"requires_grad requires the names of initializers that are to be trained, such as {some(list(held))}, got "
            "none"
        )
    unknown = [name for name in (*trainable, *frozen) if name not in held]
    if unknown:
        raise InvalidInputError(f"a parameter requires one of the initializers {some(list(held))}, got '{unknown[0]}'")
    both = sorted(set(trainable) & set(frozen))
    if both:
        raise InvalidInputError(f"a parameter must be trained or frozen, got '{both[0]}' in both lists")
    floating = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
    whole = [name for name in trainable if held[name].data_type not in floating]
    if whole:
        dtype = onnx.TensorProto.DataType.Name(held[whole[0]].data_type).lower()
        raise InvalidInputError(f"requires_grad requires parameters of a floating dtype, got '{whole[0]}' in {dtype}")


class AccumulatorsPass(Pass):
    """Puts accumulators in the place of the gradients among a step's outputs."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Edits the graph."""
        space, graph = self.context.space, model.graph
        recorded = training_state.read(model)
        outputs = {value.name: value for value in graph.outputs}
        flag = space.value(LAZY_RESET, ir.TensorType(ir.DataType.BOOL), (1,))
        b = Builder(space, graph, scope="accumulate")
        pairs, accumulators = [], []
        for pair in recorded.pairs:
            if pair.gradient is None:
                pairs.append(pair)
                continue
            gradient, weight = outputs[pair.gradient], graph.initializers[pair.input]
            dtype = space.facts.dtype(weight)
            assert dtype is not None
            shape = space.facts.shape(weight)
            name = f"{pair.input}_grad.accumulation.buffer"
            buffer = space.value(name, ir.TensorType(dtype), shape)
            new = b.wrap(gradient)
            total = b.op(std.Identity, b.where(b.wrap(flag).reshape(), new, new + b.wrap(buffer))).value
            total.name, total.type = space.names.fresh(f"{name}.updated"), ir.TensorType(dtype)
            total.shape = None if shape is None else stated(shape)
            graph.inputs.append(buffer)
            graph.outputs[graph.outputs.index(gradient)] = total
            assert buffer.name is not None
            pairs.append(dataclasses.replace(pair, gradient=total.name))
            accumulators.append(StatePair(buffer.name, total.name, "slot", None, pair.input))
        graph.inputs.append(flag)
        graph.sort()
        state = dataclasses.replace(recorded, pairs=(*pairs, *accumulators))
        training_state.write(model, state)
        return ir.passes.PassResult(model, modified=True)


class ParametersPass(Pass):
    """Makes initializers required inputs, and records them as state, where they are not, that does not change."""

    def __init__(self, roles: Mapping[str, Role]) -> None:
        """Prepares.

        Args:
            roles: initializer -> its role.
        """
        super().__init__()
        self.roles = roles

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Edits the graph."""
        recorded = training_state.read(model)
        states = {pair.input for pair in recorded.pairs}
        for name in self.roles:
            value = model.graph.initializers.pop(name)
            value.const_value = None
            if value not in model.graph.inputs:
                model.graph.inputs.append(value)
        more = [StatePair(name, None, role, None, name) for name, role in self.roles.items() if name not in states]
        # Parameters stand in the order of the model that they come from, trained or not.
        place = {name: number for number, name in enumerate(self.roles)}
        pairs = sorted((*recorded.pairs, *more), key=lambda pair: place.get(pair.input, len(place)))
        training_state.write(model, dataclasses.replace(recorded, pairs=tuple(pairs)))
        return ir.passes.PassResult(model, modified=bool(self.roles))
