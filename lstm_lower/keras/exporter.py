"""`from_keras`: the training step of a Keras model as ONNX."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any, get_args

import keras
import onnx
import onnx_ir as ir

from lstm_lower.arguments import explained
from lstm_lower.errors import InvalidInputError, UnsupportedOpError, some
from lstm_lower.keras import (
    arguments,
    certification,
    evaluation,
    files,
    lookups,
    objective,
    operands,
    optimizers,
    own_steps,
)
from lstm_lower.keras.arguments import Given, What
from lstm_lower.keras.data import specified
from lstm_lower.keras.step import KerasStep
from lstm_lower.keras.traced_step import KerasOwnStep, TracedStep
from lstm_lower.keras.tracing import as_loops, in_our_form
from lstm_lower.keras.variables import VariableNames
from lstm_lower.records import certificate

# Keras has no public name for it.
_OF_IMAGES = keras.layers.RandomFlip.__base__


@explained(arguments.told)
def from_keras(
    model: Any,
    loss: Any = None,
    optimizer: Any = None,
    input_spec: Any = None,
    what: What = "train",
    *,
    data: Any = None,
    target_spec: Any = None,
    loss_weights: Any = None,
    sample_weight: Any = False,
    class_weight: Mapping[int, float] | None = None,
    metrics: Any = None,
    training: bool = True,
    opset: int = 18,
    check: bool = True,
) -> onnx.ModelProto:
    """Exports one step of a Keras 3 model on TensorFlow's backend, or of a tf-keras model.

    The model is not changed. Recurrent layers become nodes that `lower`, `Session` and `Trainer` lower; see
    `lstm_lower.keras.tracing` for how. What StringLookup, IntegerLookup and TextVectorization return becomes an input
    of the step, `x/<layer>`, and a warning names them. Of a tf-keras model it is its own `train_step` and `test_step`
    that are traced.

    Args:
        model: a built model, or one that `input_spec` or `data` build; or the path of a file of one, `.keras`, `.h5` or
            the folder of a SavedModel of tf-keras, which Keras 3 loads if it wrote it, and else tf-keras. Files with
            Python code are refused.
        loss: as `model.compile` takes it: a name, Keras loss or function of targets and predictions, or a list or
            dictionary of them for several outputs; `None` takes the compiled model's, and is enough where layers add a
            loss (`add_loss`). Of a model with a `train_step` of its own, the key of its loss among what that returns.
        optimizer: name or Keras optimizer, for `train`; `None` takes the compiled model's. The slots of an optimizer
            that has already trained this model keep their values.
        input_spec: a `tf.TensorSpec`, or several in order or by name of input; `None` for the model's own, or that of
            `data`. A model that is not built is built for it, as `fit` does.
        what: `train`, a step with the optimizer's update; `gradients`, loss and gradients of all trainable weights;
            `input_gradient`, loss and gradients with respect to floating-point inputs.
        data: what `model.fit` would be given, whose first batches say what inputs, targets and weights are where
            nothing else does: a `tf.data.Dataset`, PyDataset, generator or other iterable of batches `x`, `(x, y)` or
            `(x, y, sample_weight)`, a function that makes one, or a tuple of arrays, one batch. An iterator, which can
            be read once, yields these batches again to `Trainer.fit`, but to nobody else. Sizes that differ in the
            first two batches are open, and so is the number of rows.
        target_spec: `tf.TensorSpec` of the targets, or several in order or by name of output; `None` for those of
            `data`, or else derived from outputs and losses.
        loss_weights: of several outputs, as `model.compile` takes them; `None` takes the compiled model's if the loss
            is its own.
        sample_weight: `True` for an input `sample_weight` with a weight per row, or its `tf.TensorSpec`; or these for
            several outputs, in order or by name, which become `sample_weight/<output>`. `False` for those of `data`.
        class_weight: class -> weight, as `model.fit` takes it, for a model with one output.
        metrics: as `model.compile` takes them, or functions of targets and predictions by name; each becomes an output,
            its value on this batch alone. `None` takes the compiled model's, `()` none.
        training: whether layers behave as in training (dropout, batch statistics).
        opset: version of `ai.onnx`.
        check: whether one update is compared with Keras' own from the same state, on a small batch in which indices
            repeat: loss, weights and slots. The metadata record what was compared (`lstm_lower.certificate`).

    Returns:
        A model with inputs `x` and `y` (`x/<input>`, `y/<output>` where there are several; outputs without loss and
        metrics have no target), weights and optimizer state as inputs with their present values. Outputs: `loss`, the
        metrics, `<output>_loss` where several outputs have one, `grad/<weight>` or `grad/<input>`, and the new state,
        all recorded in the metadata (`lstm_lower.state`). The metadata also hold the evaluation graph
        (`lstm_lower.evaluation`): the model with `training=False`, whose outputs have Keras' names, its loss without
        class weights, and its metrics.

    Raises:
        InvalidInputError: an argument is missing or does not fit, or a file holds no model that can be loaded.
        UnsupportedOpError: a layer or op cannot be exported; it is named. Or the step computes something else than
            Keras; what differs is named.
    """
    arguments.check_backend()
    if isinstance(model, (str, os.PathLike)):
        model = files.opened(model)
    if what not in get_args(What):
        raise InvalidInputError(f"what requires one of {get_args(What)}, got {what!r}")
    arguments.check(loss_weights, class_weight, training=training, check=check)
    if class_weight is not None and sample_weight is not False:
        raise InvalidInputError("class_weight requires a step without sample_weight, got both")
    given = Given(
        loss, optimizer, input_spec, what, target_spec, loss_weights, sample_weight, class_weight, metrics, training
    )
    if arguments.is_of(model, "tf_keras"):
        from lstm_lower.keras import legacy

        step = legacy.step_of(model, specified(given, data, declared=legacy.is_declared(model)))
    else:
        declared = isinstance(model, keras.Model) and operands.is_declared(model) and not own_steps.is_own(model)
        step = _step(model, specified(given, data, declared=declared))
    with _image_layers_told(model):
        made, concrete = step.made(opset)
        arguments.tell_unheeded(model)
        if check:
            certificate.write(made, certification.certified(step, made, concrete))
    return ir.to_proto(made)


def _step(model: Any, given: Given) -> KerasStep:
    """The step of a Keras 3 model."""
    if not isinstance(model, keras.Model):
        raise InvalidInputError(f"model requires a model of Keras 3 or tf-keras, got {type(model).__name__}")
    own = own_steps.is_own(model)
    operands.build(model, given.input_spec, own=own)
    _check(model)
    cut = lookups.cut(model)
    if own:
        own_steps.check(model, given)
    loss, loss_weights = _loss(model, None if own else given.loss, given.loss_weights)
    taken = operands.of(cut.model, given.input_spec, own=own)
    if own:
        taken = taken.taking(given.target_spec)
    taken, weights = taken.weighing(given.sample_weight)
    cut.tell(taken)
    has_targets = not own or loss is not None or given.target_spec is not None
    losses = objective.losses_by_output(loss, taken.output_names)
    targets = operands.target_specs(taken, given.target_spec, losses) if has_targets else []
    metrics = _metrics(model, given.metrics)
    measure = None if own else objective.Objective(taken, targets, loss, loss_weights, *metrics)
    if measure is not None:
        targets = [spec for spec, used in zip(targets, measure.used, strict=True) if used]
    # A step of one's own may have optimizers of its own.
    named = given.optimizer is not None or getattr(model, "optimizer", None) is not None
    rule = optimizers.resolve(model, given.optimizer) if given.what == "train" and (named or not own) else None
    slots = [] if rule is None else rule.variables
    names = VariableNames([*model.variables, *slots])
    specs = [*taken.inputs, *targets, *weights]
    rate = None if rule is None else getattr(rule, "inner_optimizer", rule)._learning_rate
    held = rate if isinstance(rate, keras.Variable) else None
    shown: dict[str, str] = {}
    if measure is None:
        traced = own_steps.step_of(model, rule, taken, targets, weights, given.loss)
        evaluated = evaluation.of_own_step(model, taken, targets)
    else:
        traced = TracedStep(cut.model, taken, measure, rule, names, given, shown)
        evaluated = evaluation.of_objective(cut.model, taken, measure)
    by_inputs = given.what == "input_gradient"
    step = KerasStep(
        model, specs, traced, names, lambda: _traced_as_we_need(model), None if by_inputs else evaluated, slots, held,
        shown, one_batch=not own, indices=operands.indices(model), classes=taken.classes(),
        optimizer=rule, loss=None if own else loss,
    )  # fmt: skip
    if measure is not None and given.what == "train" and given.training:
        other = optimizers.counterpart(model, given.optimizer, rule)
        step.reference = KerasOwnStep(cut.model, taken, measure, other, given.class_weight)
        step.reference_slots = other.variables
    return step


@contextlib.contextmanager
def _image_layers_told(model: Any) -> Iterator[None]:
    """Says of a refused model with layers that change images, which need not be in it, where they may be."""
    try:
        yield
    except UnsupportedOpError as error:
        layers = [layer for layer in model._flatten_layers() if isinstance(layer, _OF_IMAGES)]
        if not layers:
            raise
        within = {id(inner) for layer in layers for inner in layer._flatten_layers(include_self=False)}
        names = [layer.name for layer in layers if id(layer) not in within]
        raise UnsupportedOpError(
            f"{error}; layers that change images, {some(names)}, may be applied to the data instead: "
            "dataset.map(lambda x, y: (layer(x, training=True), y))"
        ) from error


@contextlib.contextmanager
def _traced_as_we_need(model: keras.Model) -> Iterator[None]:
    with as_loops(model), in_our_form():
        yield


def _check(model: keras.Model) -> None:
    """Refuses layers whose dtypes no runtime has."""
    for layer in model._flatten_layers():
        if layer.compute_dtype == "bfloat16":
            raise UnsupportedOpError(
                f"layer '{layer.name}' requires a policy of float32, float64 or mixed_float16, since TensorFlow's "
                f"importer and onnxruntime's CPU kernels lack bfloat16, got '{layer.dtype_policy.name}'; its weights "
                "are float32 all the same: build the model with another policy and set_weights"
            )


def _loss(model: keras.Model, loss: Any, weights: Any) -> tuple[Any, Any]:
    """The loss and the weights of several outputs' losses; `None` where layers add all there is."""
    compiled = getattr(model, "_compile_loss", None)
    if loss is not None or compiled is None:
        return loss or None, weights
    return compiled._user_loss, compiled._user_loss_weights if weights is None else weights


def _metrics(model: keras.Model, metrics: Any) -> tuple[Any, Any]:
    """Metrics, and those that heed the weights of samples."""
    if metrics is not None:
        return metrics, None
    compiled = getattr(model, "_compile_metrics", None)
    return (None, None) if compiled is None else (compiled._user_metrics, compiled._user_weighted_metrics)
