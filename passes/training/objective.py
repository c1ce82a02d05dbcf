"""A loss and its gradients for a model that has none: what makes a training step of it."""

from __future__ import annotations

import dataclasses
import fnmatch
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence

import onnx_ir as ir

from lstm_lower import arguments
from lstm_lower.dims import format_shape
from lstm_lower.dtypes import type_string
from lstm_lower.errors import InvalidInputError, LstmLowerWarning, some, warn
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.graph.values import stated
from lstm_lower.passes.differentiate import GradientPass
from lstm_lower.passes.gradients.activity import Activity, learned, weights
from lstm_lower.passes.gradients.fixed_constants import fixed_constants
from lstm_lower.passes.model_pass import Pass
from lstm_lower.passes.training.losses import BY_NAME, Loss, Target, resolve, shape_of, target_names
from lstm_lower.records import adaptation, first_values, recipe
from lstm_lower.records import state as training_state
from lstm_lower.records.origin import Origin
from lstm_lower.records.state import StatePair, TrainingState

# Outputs of the model, then targets.
LossFunction = Callable[..., Expr]
Trainable = str | Sequence[str] | Callable[[str], bool]


class ProbabilitiesWarning(LstmLowerWarning):
    """A loss of scores is taken of probabilities."""


class UnvaryingLossError(InvalidInputError):
    """A loss through which no gradient reaches a weight that is to be trained."""


@dataclasses.dataclass
class ObjectivePass(Pass):
    """Adds a loss, and the gradients of weights or inputs; records the weights as state.

    Precondition: that of `GradientPass`.

    Attributes:
        loss: see `from_onnx`.
        trainable: see `from_onnx`; of a set of names, those that the loss varies with.
        what: see `from_onnx`.
    """

    loss: str | Loss | LossFunction
    trainable: Trainable | frozenset[str] | None = None
    what: str = "train"

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Edits the graph.

        Raises:
            InvalidInputError: an argument does not fit the model.
            UnsupportedOpError: gradients flow through operators without a rule.
        """
        unmade = _unmade(model)
        inputs = [x for x in model.graph.inputs if x.name not in model.graph.initializers and x not in unmade]
        carried = (*training_state.read(model).pairs, *(StatePair(str(x.name), None) for x in unmade))
        loss = self._add_loss(model)
        # What decomposes the node that makes it gives its name to another value.
        name = str(loss.name)
        if self.what == "input_gradient":
            facts = self.context.space.facts
            names = [str(x.name) for x in inputs if (dtype := facts.dtype(x)) and dtype.is_floating_point()]
            if not names:
                raise InvalidInputError("input_gradient requires an input of a floating dtype, got none")
            self._differentiate(model, name, names)
            training_state.write(model, TrainingState(carried, name))
        elif self.what == "forward":
            training_state.write(model, TrainingState(carried, name))
        else:
            updated = {pair.input for pair in carried if pair.output is not None}
            weights = [str(weight.name) for weight in self._weights(model, loss, updated)]
            self._differentiate(model, name, weights)
            for weight in weights:
                value = model.graph.initializers.get(weight)
                if value is not None and value not in model.graph.inputs:
                    model.graph.inputs.append(value)
            # What an import with its weights as inputs says of them holds on, under the names of its framework.
            variables = {pair.input: pair.variable or pair.input for pair in carried}
            pairs = [StatePair(x, None, "weight", f"grad/{x}", variables.get(x, x)) for x in weights]
            others = [pair for pair in carried if pair.input not in weights]
            training_state.write(model, TrainingState((*pairs, *others), name))
        Origin("onnx").write(model)
        return ir.passes.PassResult(model, modified=True)

    def _differentiate(self, model: ir.Model, loss: str, names: list[str]) -> None:
        taken = [f"grad/{name}" for name in names if any(x.name == f"grad/{name}" for x in model.graph.outputs)]
        if taken:
            raise InvalidInputError(f"a training step requires a model without gradients, got one with '{taken[0]}'")
        GradientPass(loss, names).share(self.context)(model)

    def _add_loss(self, model: ir.Model) -> ir.Value:
        """The loss, the model's first output from now on."""
        outputs = {value.name: value for value in model.graph.outputs}
        if not (isinstance(self.loss, (str, Loss)) or callable(self.loss)):
            raise InvalidInputError(f"loss requires a name, a loss or a function, got {self.loss!r}")
        if isinstance(self.loss, str) and self.loss in outputs:
            value = outputs[self.loss]
        elif isinstance(self.loss, str) and self.loss.lower() not in BY_NAME:
            raise InvalidInputError(
                f"loss requires one of the model's outputs, {some(list(outputs))}, a loss of {sorted(BY_NAME)} or a "
                f"function, got {self.loss!r}"
            )
        else:
            value = self._loss(model)
        shape = self.context.space.facts.shape(value)
        if shape is None or any(dim != 1 for dim in shape):
            known = [dim if isinstance(dim, (int, str)) else None for dim in shape or ()]
            text = "one of unknown shape" if shape is None else f"one of shape {format_shape(known)}"
            raise InvalidInputError(f"loss requires a scalar, got {text}; reduce it (reduction='mean', or a sum)")
        others = [output for output in model.graph.outputs if output is not value]
        model.graph.outputs.clear()
        model.graph.outputs.extend([value, *others])
        return value

    def _loss(self, model: ir.Model) -> ir.Value:
        b = Builder(self.context.space, model.graph, scope="loss")
        predictions = [b.wrap(self._held(value)) for value in model.graph.outputs]
        if not predictions:
            raise InvalidInputError("loss requires a model with outputs, got none")
        if isinstance(self.loss, (str, Loss)):
            loss = resolve(self.loss)
            self._check_tensor(predictions[0].value, "a first output")
            self._check_prediction(predictions)
            self._tell_probabilities(model, loss, predictions[0].value)
            given = self._inputs(model, b, loss.targets(predictions[0]))
            result = loss(predictions[0], *given)
            recipe.add(model, loss=recipe.choice_of(loss))
        else:
            places = self._places(len(predictions))
            for x in predictions[:places]:
                self._check_tensor(x.value, "for each target an output")
            given = self._inputs(model, b, [Target(x.dtype, shape_of(x)) for x in predictions[:places]])
            result = self.loss(*predictions, *given)
        if not isinstance(result, Expr):
            raise InvalidInputError(f"loss requires a function that returns an expression, got {result!r}")
        if any(value.name == "loss" for value in model.graph.outputs):
            raise InvalidInputError("loss requires a model without an output 'loss', got one; name it as the loss")
        value = b.op(std.Identity, result).value
        value.name = b.names.fresh("loss")
        value.type, value.shape = ir.TensorType(result.dtype), stated(result.shape or ())
        for target in given:
            if not target.value.uses():
                model.graph.inputs.remove(target.value)
        return value

    def _held(self, output: ir.Value) -> ir.Value:
        """An output, or the tensor in it: an optional value that is made of one always has it."""
        made = self.context.space.facts.maker(output)
        content = made.operand(0) if isinstance(made, std.MadeOptional) else None
        return output if content is None else content

    def _check_tensor(self, value: ir.Value, what: str) -> None:
        kind = self.context.space.facts.type(value)
        if isinstance(kind, ir.SequenceType | ir.OptionalType):
            raise InvalidInputError(
                f"loss requires {what} that is a tensor, got '{value.name}' of {type_string(kind) or 'another type'}; "
                "give the model outputs that are tensors first, as SequenceAt and OptionalGetElement make them"
            )

    def _check_prediction(self, predictions: Sequence[Expr]) -> None:
        first, *others = predictions
        if first.dtype.is_floating_point():
            return
        names = [f"'{x.value.name}'" for x in others if x.dtype.is_floating_point()]
        way = f"; in Python, a function of all outputs and targets takes {some(names)}" if names else ""
        raise InvalidInputError(
            f"loss requires a first output of a floating dtype, got '{first.value.name}' of {first.dtype.name}{way}"
        )

    def _tell_probabilities(self, model: ir.Model, loss: Loss, prediction: ir.Value) -> None:
        facts = self.context.space.facts
        made = facts.maker(prediction)
        while isinstance(made, std.Identity):
            made = facts.maker(made.inputs[0])
        if loss.of_scores is None or not isinstance(made, loss.of_scores) or (scores := made.operand(0)) is None:
            return
        data = [value.name for value in model.graph.inputs if value.name not in model.graph.initializers]
        way = f"onnx.utils.extract_model('model.onnx', 'scores.onnx', {data}, ['{scores.name}'], check_model=False)"
        if _unmade(model) or adaptation.parse(model.metadata_props) is not None:
            # It drops what such a model records.
            way = "onnx.utils.extract_model(..., check_model=False) ends the file before it; call ll.replace_head or "
            way += "ll.lora after that"
        warn(
            f"{type(loss).__name__} takes scores, and '{prediction.name}' is {made.node.op_type} of these: it computes "
            f"that once more, and trains slowly; a model of scores: {way}",
            ProbabilitiesWarning,
        )

    def _places(self, outputs: int) -> int:
        """How many targets a function takes behind the model's outputs."""
        assert callable(self.loss)
        try:
            parameters = inspect.signature(self.loss).parameters.values()
        except (TypeError, ValueError) as error:
            raise InvalidInputError(f"loss requires a name or a function, got {self.loss!r}") from error
        count = sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)
        if not outputs <= count <= 2 * outputs:
            raise InvalidInputError(
                f"loss requires a function of the model's {outputs} outputs and of up to as many targets, got one of "
                f"{count} parameters"
            )
        return count - outputs

    def _inputs(self, model: ir.Model, b: Builder, targets: Sequence[Target]) -> list[Expr]:
        """Inputs for the targets."""
        names = target_names(len(targets), {str(value.name) for value in model.graph.inputs})
        values = [
            self.context.space.value(name, ir.TensorType(target.dtype), target.shape)
            for name, target in zip(names, targets, strict=True)
        ]
        # Behind the model's data, before its state.
        place = sum(value.name not in model.graph.initializers for value in model.graph.inputs)
        for number, value in enumerate(values):
            model.graph.inputs.insert(place + number, value)
        return [b.wrap(value) for value in values]

    def _weights(self, model: ir.Model, loss: ir.Value, updated: Collection[str]) -> list[ir.Value]:
        """What is trained: nothing that the model has a new value of already."""
        facts = self.context.space.facts
        unmade = _unmade(model)
        floating = [value for value in [*weights(model.graph, facts), *unmade] if value.name not in updated]
        fixed = fixed_constants(model.graph, facts)
        if isinstance(self.trainable, str | Sequence):
            return _chosen(floating, self.trainable, fixed)
        adapted = adaptation.parse(model.metadata_props)
        if self.trainable is None and adapted is not None:
            return _chosen(floating, adapted.weights, fixed)
        reached = Activity(model.graph, facts, floating, [loss]).active
        if self.trainable is not None:
            # What is not asked for by name needs no gradient that is zero everywhere.
            if isinstance(self.trainable, frozenset):
                chosen = [value for value in floating if value.name in self.trainable]
            else:
                chosen = _chosen(floating, self.trainable, fixed)
            found = [value for value in chosen if value in reached]
            if not found:
                names = some([str(value.name) for value in chosen]) if chosen else "them"
                raise UnvaryingLossError(
                    f"training requires a loss that varies with weights, got '{loss.name}', which varies with "
                    f"none of {names}: no gradient goes through rounding, comparisons, indices and what is detached"
                )
            return found
        # Exporters write the constants of a formula as single numbers: a step must not change them.
        learnable = [value for value in [*learned(model.graph, facts), *unmade] if value.name not in updated]
        found = [value for value in learnable if value in reached and facts.rank(value)]
        if not found:
            got = _none(model, floating, fixed)
            got = f"a model that has new values of {some(sorted(updated))} already" if updated else got
            raise InvalidInputError(f"training requires weights that the loss varies with, got {got}")
        return found


def _unmade(model: ir.Model) -> list[ir.Value]:
    """Weights without a value yet, which a model says of some of its inputs."""
    draws = first_values.parse(model.metadata_props)
    return [value for value in model.graph.inputs if value.name in draws]


def _none(model: ir.Model, floating: Sequence[ir.Value], fixed: Mapping[ir.Value, str]) -> str:
    """What a model has in place of weights."""
    if any(std.DequantizeLinear.matches(node) for node in all_nodes(model.graph)):
        return "integers that are dequantized; ll.lora gives these low-rank matrices, ll.replace_head a new last layer"
    if floating:
        return f"none; trainable chooses among {_listed(floating, fixed)}"
    return "a model without initializers of a floating dtype"


def _listed(values: Sequence[ir.Value], fixed: Mapping[ir.Value, str]) -> str:
    return some([f"{value.name} ({fixed[value]})" if value in fixed else str(value.name) for value in values])


def _chosen(values: list[ir.Value], trainable: Trainable, fixed: Mapping[ir.Value, str]) -> list[ir.Value]:
    """The weights that names, patterns or a predicate choose; what belongs to a formula is chosen by its name alone."""
    patterns: list[str] = []
    if callable(trainable):
        tests = {"a predicate": trainable}
    else:
        patterns = [trainable] if isinstance(trainable, str) else arguments.names("trainable", trainable)
        tests = {repr(pattern): _test(pattern) for pattern in patterns}
    if not tests:
        raise InvalidInputError("trainable requires one name or more, got an empty list; None means all")
    named = [value for value in values if value.name in patterns]
    chosen: set[ir.Value] = set(named)
    for what, test in tests.items():
        matching = [value for value in values if test(str(value.name))]
        weights = [value for value in matching if value in named or value not in fixed]
        if matching and not weights:
            raise InvalidInputError(
                f"trainable requires exact names of what belongs to a formula, got {what}, which matches only "
                f"{_listed(matching, fixed)}"
            )
        if not matching and not patterns:
            raise InvalidInputError("trainable requires a predicate that holds for a weight, got one that never does")
        if not matching:
            names = some([str(value.name) for value in values])
            raise InvalidInputError(f"trainable requires names or patterns of weights, such as {names}, got {what}")
        chosen.update(weights)
    return [value for value in values if value in chosen]


def _test(pattern: str) -> Callable[[str], bool]:
    return lambda name: name == pattern or fnmatch.fnmatchcase(name, pattern)
