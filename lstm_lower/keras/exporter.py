"""`from_keras`: the training step of a Keras model as ONNX."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

import keras
import onnx
import onnx_ir as ir
import tensorflow as tf

from lstm_lower.arguments import explained
from lstm_lower.errors import InvalidInputError, UnsupportedOpError
from lstm_lower.keras import arguments, evaluation, legacy, objective, operands, optimizers, own_steps
from lstm_lower.keras.traced_step import TracedStep
from lstm_lower.keras.tracing import as_loops, in_our_form
from lstm_lower.records import names as recorded_names
from lstm_lower.records import state as training_state
from lstm_lower.records.state import Role, TrainingState
from lstm_lower.replacement import replaced
from lstm_lower.tensorflow.importer import from_tensorflow

What = Literal["train", "gradients", "input_gradient"]


@explained(arguments.told)
def from_keras(
    model: keras.Model,
    loss: Any = None,
    optimizer: Any = None,
    input_spec: Any = None,
    what: What = "train",
    *,
    target_spec: Any = None,
    loss_weights: Any = None,
    sample_weight: Any = False,
    class_weight: Mapping[int, float] | None = None,
    metrics: Any = None,
    training: bool = True,
    opset: int = 18,
) -> onnx.ModelProto:
    """Exports one step of a Keras 3 model on TensorFlow's backend, or of a tf-keras model, which Keras 3 rebuilds.

    The model is not changed. Recurrent layers become nodes that `lower`, `Session` and `Trainer` lower; see
    `lstm_lower.keras.tracing` for how.

    Args:
        model: a built model.
        loss: as `model.compile` takes it: a name, Keras loss or function of targets and predictions, or a list or
            dictionary of them for several outputs; `None` takes the compiled model's.
        optimizer: name or Keras optimizer, for `train`; `None` takes the compiled model's. The slots of an optimizer
            that has already trained this model keep their values.
        input_spec: a `tf.TensorSpec`, or several in order or by name of input; `None` for the model's own.
        what: `train`, a step with the optimizer's update; `gradients`, loss and gradients of all trainable weights;
            `input_gradient`, loss and gradients with respect to floating-point inputs.
        target_spec: `tf.TensorSpec` of the targets, or several in order or by name of output; `None` derives them from
            outputs and losses.
        loss_weights: of several outputs, as `model.compile` takes them; `None` takes the compiled model's if the loss
            is its own.
        sample_weight: `True` for an input `sample_weight` with a weight per row, or its `tf.TensorSpec`.
        class_weight: class -> weight, as `model.fit` takes it, for a model with one output.
        metrics: as `model.compile` takes them, or functions of targets and predictions by name; each becomes an output,
            its value on this batch alone. `None` takes the compiled model's, `()` none.
        training: whether layers behave as in training (dropout, batch statistics).
        opset: version of `ai.onnx`.

    Returns:
        A model with inputs `x` and `y` (`x/<input>`, `y/<output>` where there are several; outputs without loss and
        metrics have no target), weights and optimizer state as inputs with their present values. Outputs: `loss`, the
        metrics, `<output>_loss` where several outputs have one, `grad/<weight>` or `grad/<input>`, and the new state,
        all recorded in the metadata (`lstm_lower.state`). The metadata also hold the evaluation graph
        (`lstm_lower.evaluation`): the model with `training=False`, whose outputs have Keras' names, its loss without
        class weights, and its metrics.

    Raises:
        InvalidInputError: an argument is missing or does not fit.
        UnsupportedOpError: a layer or op cannot be exported; it is named.
    """
    arguments.check_backend()
    if what not in get_args(What):
        raise InvalidInputError(f"what requires one of {get_args(What)}, got {what!r}")
    arguments.check(loss_weights, class_weight, training)
    model, loss, optimizer, loss_weights, metrics = legacy.translated(
        legacy.Step(model, loss, optimizer, loss_weights, metrics)
    )
    if not model.built:
        raise InvalidInputError(f"model '{model.name}' must be built, got one without weights")
    _check(model)
    own = own_steps.is_own(model)
    if own:
        given = {"loss": loss, "loss_weights": loss_weights, "metrics": metrics, "class_weight": class_weight}
        own_steps.check(model, what, **given, training=None if training else training)
    if class_weight is not None and sample_weight is not False:
        raise InvalidInputError("class_weight requires a step without sample_weight, got both")
    loss, loss_weights = _loss(model, loss, loss_weights, required=not own)
    taken = operands.of(model, input_spec)
    has_targets = loss is not None or target_spec is not None
    losses = objective.losses_by_output(loss, taken.output_names)
    targets = operands.target_specs(taken, target_spec, losses) if has_targets else []
    measure = None if own else objective.Objective(taken, targets, loss, loss_weights, _metrics(model, metrics))
    if measure is not None:
        targets = [spec for spec, used in zip(targets, measure.used, strict=True) if used]
    weight = operands.weight_spec(sample_weight)
    # A step of one's own may have optimizers of its own.
    wanted = what == "train" and not (own and optimizer is None and getattr(model, "optimizer", None) is None)
    rule = optimizers.resolve(model, optimizer) if wanted else None
    variables = list(model.trainable_variables)
    state = _names([*model.variables, *(rule.variables if rule is not None else [])])
    names = [f"grad/{state[id(variable)]}" for variable in variables]
    specs = [*taken.inputs, *targets, *([weight] if weight is not None else [])]
    traced: Callable[..., dict[str, Any]]
    apart: Sequence[str] = ()
    if measure is None:
        traced = own_steps.step_of(model, rule, taken, targets, weight)
    else:
        traced = step = TracedStep(model, taken, measure, rule, names, what == "input_gradient", class_weight, training)
        apart = step.apart
    held = [*model.variables, *(rule.variables if rule is not None else [])]
    exporting = functools.partial(_exported, model, specs, [(v, state[id(v)]) for v in held], opset)
    exported = exporting(traced)
    # The updates of a scaled loss, or of single occurrences, read other gradients than those among the outputs.
    scaled = rule is not None and (hasattr(rule, "inner_optimizer") or rule.loss_scale_factor is not None)
    hidden = scaled or own or what == "input_gradient"
    shown = {} if hidden else {state[id(v)]: n for v, n in zip(variables, names, strict=True)}
    shown = {variable: name for variable, name in shown.items() if name not in apart}
    rate = None if rule is None else state.get(id(getattr(rule, "inner_optimizer", rule)._learning_rate))
    _record(exported, rate, shown, set() if rule is None else {state[id(variable)] for variable in rule.variables})
    recorded_names.write(exported, recorded_names.CASTS, [spec.name for spec in specs])
    recorded_names.write(exported, recorded_names.VARIABLES, [state[id(variable)] for variable in model.weights])
    if what != "input_gradient":
        evaluation.Evaluation(model, taken, targets, measure).record(exported, exporting)
    return ir.to_proto(exported)


def _exported(
    model: keras.Model,
    specs: Sequence[tf.TensorSpec],
    names: Sequence[tuple[Any, str]],
    opset: int,
    traced: Callable[..., dict[str, Any]],
) -> ir.Model:
    """A function of flat tensors as a model, in which variables have the names given."""
    held = [variable.numpy() for variable in model.variables]
    function = tf.function(traced, input_signature=specs, autograph=False)
    try:
        with as_loops(model), in_our_form():
            concrete = function.get_concrete_function()
    finally:
        for variable, value in zip(model.variables, held, strict=True):
            variable.assign(value)
    with contextlib.ExitStack() as renamed:
        for variable, name in names:
            renamed.enter_context(replaced(variable.value, "_handle_name", f"{name}:0"))
        return ir.from_proto(from_tensorflow(concrete, weights="inputs", opset=opset, shapes=_batches(model, specs)))


def _batches(model: keras.Model, specs: Sequence[tf.TensorSpec]) -> dict[str, list[int | str | None]]:
    """Shapes whose open first axes are one batch, as `model.fit` has it; none for a step of one's own."""
    if own_steps.is_own(model):
        return {}
    ranked = [spec for spec in specs if spec.shape.rank and spec.shape[0] is None]
    return {spec.name: ["batch", *spec.shape[1:]] for spec in ranked}


def _check(model: keras.Model) -> None:
    """Refuses layers whose dtypes no runtime has."""
    for layer in model._flatten_layers():
        if layer.compute_dtype == "bfloat16":
            raise UnsupportedOpError(
                f"layer '{layer.name}' requires a policy of float32, float64 or mixed_float16, since TensorFlow's "
                f"importer and onnxruntime's CPU kernels lack bfloat16, got '{layer.dtype_policy.name}'; its weights "
                "are float32 all the same: build the model with another policy and set_weights"
            )


def _names(variables: Sequence[Any]) -> dict[int, str]:
    """Keras' path of each variable, numbered where several have the same."""
    names: dict[int, str] = {}
    taken: set[str] = set()
    for variable in variables:
        candidates = itertools.chain([variable.path], (f"{variable.path}_{number}" for number in itertools.count(1)))
        names[id(variable)] = next(name for name in candidates if name not in taken)
        taken.add(names[id(variable)])
    return names


def _record(exported: ir.Model, rate: str | None, gradients: Mapping[str, str], slots: set[str]) -> None:
    """Completes the record of state: gradients, the loss, the learning rate."""
    pairs, learning_rate = [], None
    for pair in training_state.read(exported).pairs:
        if pair.variable == rate and rate is not None and pair.output is None:
            learning_rate = pair.input
            continue
        # An optimizer may leave a variable of its own trainable.
        role: Role = "slot" if pair.role == "weight" and pair.variable in slots else pair.role
        pairs.append(dataclasses.replace(pair, role=role, gradient=gradients.get(pair.variable or "")))
    training_state.write(exported, TrainingState(tuple(pairs), "loss", learning_rate))


def _loss(model: keras.Model, loss: Any, weights: Any, *, required: bool) -> tuple[Any, Any]:
    """The loss and the weights of several outputs' losses."""
    if loss is not None:
        return loss, weights
    compiled = getattr(model, "_compile_loss", None)
    if compiled is None and required:
        raise InvalidInputError("loss requires a name, a Keras loss or a function, got none, and the model has none")
    if compiled is None:
        return None, None
    return compiled._user_loss, compiled._user_loss_weights if weights is None else weights


def _metrics(model: keras.Model, metrics: Any) -> Any:
    if metrics is not None:
        return metrics
    compiled = getattr(model, "_compile_metrics", None)
    return None if compiled is None else compiled._user_metrics
