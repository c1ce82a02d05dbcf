"""A training step of a model of Keras 3 or tf-keras: traced by TensorFlow, and made a model with a record."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx_ir as ir
import tensorflow as tf

from lstm_lower.graph.edit import remove_unread
from lstm_lower.keras.evaluation import Evaluation
from lstm_lower.keras.variables import VariableNames
from lstm_lower.records import names as recorded_names
from lstm_lower.records import recipe
from lstm_lower.records import state as training_state
from lstm_lower.records.recipe import Choice, plain
from lstm_lower.records.state import Role, TrainingState
from lstm_lower.tensorflow import live
from lstm_lower.tensorflow.importer import from_tensorflow

Traced = Callable[..., dict[str, Any]]


@dataclasses.dataclass
class KerasStep:
    """What TensorFlow traces, and what is said of it.

    Attributes:
        model: the model.
        specs: inputs, targets and weights of samples, as they are named in the step.
        traced: the step: flat tensors to results by name, `loss` among them.
        names: of all variables.
        rules: the optimizers whose variables these are.
        rate: variable of the learning rate, or `None`.
        gradients: variable's name -> output that shows the gradient that its update reads; complete once the step was
            traced.
        evaluation: what evaluates it, or `None`.
        tracing: how layers are traced: what holds meanwhile.
        one_batch: whether the open first axes of all specs are one size, as `model.fit` has it; a step of one's own may
            take others.
        reference: Keras' own step, as `traced`, which the step is compared with; `None` where that is what is traced.
        reference_slots: variables of the optimizer that this uses, in the order of `slots`.
        indices: each integer below may be one in an input.
        classes: each integer below may be one in a target.
        optimizer: the optimizer, or `None`.
        loss: as `model.compile` takes it.
    """

    model: Any
    specs: Sequence[tf.TensorSpec]
    traced: Traced
    names: VariableNames
    tracing: Callable[[], contextlib.AbstractContextManager[Any]]
    evaluation: Evaluation | None = None
    slots: Sequence[Any] = ()
    rate: Any = None
    gradients: dict[str, str] = dataclasses.field(default_factory=dict)
    one_batch: bool = True
    reference: Traced | None = None
    reference_slots: Sequence[Any] = ()
    indices: int = 2
    classes: int = 2
    optimizer: Any = None
    loss: Any = None

    def exported(self, traced: Traced, opset: int) -> tuple[ir.Model, Any]:
        """A function of flat tensors as a model, whose variables have their names, and what TensorFlow made of it."""
        held = [(variable, variable.numpy()) for variable in self.model.variables]
        results: list[str] = []

        def listed(*given: tf.Tensor) -> dict[str, Any]:
            made = traced(*given)
            results.extend(made)
            return made

        function = tf.function(listed, input_signature=self.specs, autograph=False)
        try:
            with self.tracing():
                concrete = function.get_concrete_function()
        finally:
            for variable, value in held:
                variable.assign(value)
        # In the order in which the function reads them, in which layers have their states; the set has none.
        handles = {id(variable.handle): variable for variable in concrete.variables}
        for outer, _ in concrete.graph.captures:
            if id(outer) in handles:
                self.names.of(handles[id(outer)])
        source = live.from_function(concrete, {id(variable.handle): name for variable, name in self.names.all()})
        model = ir.from_proto(from_tensorflow(source, weights="inputs", opset=opset, shapes=self._shapes()))
        _drop_unread_state(model, results)
        return model, concrete

    def _shapes(self) -> dict[str, list[int | str | None]]:
        ranked = [spec for spec in self.specs if self.one_batch and spec.shape.rank and spec.shape[0] is None]
        return {spec.name: ["batch", *spec.shape[1:]] for spec in ranked}

    def made(self, opset: int) -> tuple[ir.Model, Any]:
        """The step as a model with everything that is recorded of it, and what TensorFlow made of it."""
        model, concrete = self.exported(self.traced, opset)
        self._record(model)
        recorded_names.write(model, recorded_names.CASTS, [spec.name for spec in self.specs])
        weights = [self.names.of(variable) for variable in self.model.weights]
        recorded_names.write(model, recorded_names.VARIABLES, weights)
        if self.evaluation is not None:
            self.evaluation.record(model, lambda traced: self.exported(traced, opset)[0])
        return model, concrete

    def _record(self, model: ir.Model) -> None:
        """Completes the record of state: gradients, the loss, the learning rate."""
        slots = {self.names.of(variable) for variable in self.slots}
        rate = None if self.rate is None else self.names.of(self.rate)
        pairs, learning_rate = [], None
        for pair in training_state.read(model).pairs:
            if pair.variable == rate and rate is not None and pair.output is None:
                learning_rate = pair.input
                continue
            # An optimizer may leave a variable of its own trainable.
            role: Role = "slot" if pair.role == "weight" and pair.variable in slots else pair.role
            pairs.append(dataclasses.replace(pair, role=role, gradient=self.gradients.get(pair.variable or "")))
        training_state.write(model, TrainingState(tuple(pairs), "loss", learning_rate))
        updates = []
        updated = [pair.input for pair in pairs if pair.role == "weight" and pair.output is not None]
        if updated and self.optimizer is not None:
            updates.append(recipe.Updates(optimizer_choice(self.optimizer), None, updated))
        recipe.add(model, updates=updates, loss=loss_choice(self.loss))


def _drop_unread_state(model: ir.Model, results: Sequence[str]) -> None:
    """Leaves out what is assigned but never read, such as the sums of metrics that each step sets to zero."""
    kept = {*results, *(pair.output for pair in training_state.read(model).pairs)}
    model.graph.outputs[:] = [value for value in model.graph.outputs if value.name in kept]
    remove_unread(model.graph)


# What a Keras model was compiled with, as a step records it.


def optimizer_choice(rule: Any) -> Choice:
    """An optimizer of Keras 3 or tf-keras with its configuration."""
    return Choice(type(rule).__name__, plain(rule.get_config()))


def loss_choice(loss: Any) -> Choice | None:
    """The loss of a model with one output, as `model.compile` takes it; `None` where there are several or none.

    Args:
        loss: a name, an object or a function; or these by output.
    """
    held = [*loss.values()] if isinstance(loss, Mapping) else loss
    if isinstance(held, Sequence) and not isinstance(held, str):
        return loss_choice(held[0]) if len(held) == 1 else None
    if held is None or isinstance(held, str):
        return None if held is None else Choice(held, {})
    if not hasattr(held, "get_config"):
        return Choice(getattr(held, "__name__", type(held).__name__), {})
    return Choice(type(held).__name__, plain(held.get_config()))
