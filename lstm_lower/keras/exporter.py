"""`from_keras`: the training step of a Keras model as ONNX."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

import keras
import onnx
import onnx_ir as ir
import tensorflow as tf

from lstm_lower import state as training_state
from lstm_lower.errors import InvalidInputError
from lstm_lower.keras.tracing import without_loops
from lstm_lower.state import StatePair, TrainingState
from lstm_lower.tensorflow.importer import from_tensorflow

What = Literal["train", "gradients", "input_gradient"]


def from_keras(
    model: keras.Model,
    loss: Any = None,
    optimizer: Any = None,
    input_spec: Any = None,
    what: What = "train",
    *,
    target_spec: Any = None,
    metrics: Mapping[str, Callable[..., Any]] | Sequence[str] = (),
    training: bool = True,
    opset: int = 18,
) -> onnx.ModelProto:
    """Exports one step of a Keras 3 model on TensorFlow's backend.

    The model is left as it is. Recurrent layers become nodes that `lower`, `Session` and `Trainer` lower; see
    `lstm_lower.keras.tracing` for how.

    Args:
        model: a built model.
        loss: name, Keras loss, or function of targets and predictions; `None` takes the compiled model's.
        optimizer: name or Keras optimizer, for `train`; `None` takes the compiled model's.
        input_spec: a `tf.TensorSpec`, or several, in the order of the model's inputs; `None` for the model's own.
        what: `train`, a step with the optimizer's update; `gradients`, loss and gradients of all trainable weights;
            `input_gradient`, loss and gradients with respect to floating-point inputs.
        target_spec: `tf.TensorSpec` of the targets; `None` derives it from the output and the loss.
        metrics: names of Keras' metric functions, or functions of targets and predictions by name; each becomes a
            scalar output, the mean over the batch.
        training: whether layers behave as in training (dropout, batch statistics).
        opset: version of `ai.onnx`.

    Returns:
        A model with inputs `x` (`x_0`, ... if there are several) and `y`, weights and optimizer state as inputs with
        their present values. Outputs: `loss`, the metrics, `grad/<weight>` or `grad/<input>`, and the new state, all
        recorded in the metadata (`lstm_lower.state`).

    Raises:
        InvalidInputError: an argument is missing or does not fit.
        UnsupportedOpError: a layer or op cannot be exported; it is named.
    """
    if what not in get_args(What):
        raise InvalidInputError(f"what requires one of {get_args(What)}, got {what!r}")
    if not model.built:
        raise InvalidInputError(f"model '{model.name}' requires to be built, got one without weights")
    loss_function = _loss(model, loss)
    specs = _input_specs(model, input_spec)
    y = _named(target_spec, "y") if target_spec is not None else _target_spec(model, loss_function)
    functions = _metrics(metrics)
    rule = _optimizer(model, optimizer) if what == "train" else None
    variables = list(model.trainable_variables)
    names = {variable.path: f"grad/{variable.path}" for variable in variables}

    def step(*operands: tf.Tensor) -> dict[str, tf.Tensor]:
        inputs, target = list(operands[:-1]), operands[-1]
        watched = [x for x in inputs if x.dtype.is_floating] if what == "input_gradient" else []
        with tf.GradientTape() as tape:
            tape.watch(watched)
            prediction = model(inputs[0] if len(inputs) == 1 else inputs, training=training)
            value = tf.reduce_mean(loss_function(target, prediction))
            for extra in model.losses:
                value += tf.cast(extra, value.dtype)
        results = {"loss": value}
        results |= {name: tf.reduce_mean(tf.cast(f(target, prediction), tf.float32)) for name, f in functions.items()}
        if what == "input_gradient":
            gradients = tape.gradient(value, watched, unconnected_gradients="zero")
            floating = [spec.name for spec in specs if spec.dtype.is_floating]
            return results | {f"grad/{name}": g for name, g in zip(floating, gradients, strict=True)}
        gradients = tape.gradient(value, [variable.value for variable in variables], unconnected_gradients="zero")
        gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
        if rule is not None:
            rule.apply(gradients, variables)
        return results | {names[v.path]: tf.identity(g) for v, g in zip(variables, gradients, strict=True)}

    held = [variable.numpy() for variable in model.variables]
    function = tf.function(step, input_signature=[*specs, y], autograph=False)
    with without_loops():
        concrete = function.get_concrete_function()
    for variable, value in zip(model.variables, held, strict=True):
        variable.assign(value)
    exported = ir.from_proto(from_tensorflow(concrete, weights="inputs", opset=opset))
    _record(exported, model, rule, names if what != "input_gradient" else {})
    return ir.to_proto(exported)


def _record(exported: ir.Model, model: keras.Model, rule: Any, gradients: Mapping[str, str]) -> None:
    """Completes the record of state: Keras' paths, gradients, the loss, the learning rate."""
    paths = {}
    for variable in [*model.variables, *(rule.variables if rule is not None else [])]:
        paths[variable.value.name.removesuffix(":0")] = variable.path
    rate = rule.learning_rate.path if rule is not None and hasattr(rule.learning_rate, "path") else None
    pairs, learning_rate = [], None
    for pair in training_state.read(exported).pairs:
        path = paths.get(pair.variable or "", pair.variable)
        if path == rate and path is not None and pair.output is None:
            learning_rate = pair.input
            continue
        pairs.append(StatePair(pair.input, pair.output, pair.role, gradients.get(path or ""), path))
    training_state.write(exported, TrainingState(tuple(pairs), "loss", learning_rate))


def _loss(model: keras.Model, loss: Any) -> Callable[..., Any]:
    found = loss if loss is not None else getattr(model, "loss", None)
    if found is None:
        raise InvalidInputError("loss requires a name, a Keras loss or a function, got none, and the model has none")
    resolved: Callable[..., Any] = keras.losses.get(found)
    return resolved


def _optimizer(model: keras.Model, optimizer: Any) -> Any:
    found = optimizer if optimizer is not None else getattr(model, "optimizer", None)
    if found is None:
        raise InvalidInputError("optimizer requires a name or a Keras optimizer, got none, and the model has none")
    if not isinstance(found, str):
        # Its slots may belong to a training that goes on; a copy starts afresh.
        found = type(found).from_config(found.get_config())
    rule = keras.optimizers.get(found)
    rule.build(model.trainable_variables)
    return rule


def _input_specs(model: keras.Model, given: Any) -> list[tf.TensorSpec]:
    if given is None:
        given = [tf.TensorSpec([None, *x.shape[1:]], x.dtype) for x in model.inputs]
    specs = list(given) if isinstance(given, (list, tuple)) else [given]
    if not all(isinstance(spec, tf.TensorSpec) for spec in specs):
        raise InvalidInputError(f"input_spec requires tf.TensorSpec, one or several, got {given!r}")
    return [_named(spec, "x" if len(specs) == 1 else f"x_{n}") for n, spec in enumerate(specs)]


def _target_spec(model: keras.Model, loss: Any) -> tf.TensorSpec:
    if len(model.outputs) != 1:
        raise InvalidInputError(f"a model with one output is required, got {len(model.outputs)}")
    output = model.outputs[0]
    if "sparse" in getattr(loss, "name", getattr(loss, "__name__", "")):
        return tf.TensorSpec([None, *output.shape[1:-1]], tf.int64, "y")
    return tf.TensorSpec([None, *output.shape[1:]], tf.float32, "y")


def _named(spec: tf.TensorSpec, name: str) -> tf.TensorSpec:
    return tf.TensorSpec(spec.shape, spec.dtype, name)


def _metrics(metrics: Mapping[str, Callable[..., Any]] | Sequence[str]) -> dict[str, Callable[..., Any]]:
    if isinstance(metrics, Mapping):
        return dict(metrics)
    found = {name: _METRICS.get(name) or getattr(keras.metrics, name, None) for name in metrics}
    unknown = [name for name, function in found.items() if function is None]
    if unknown:
        raise InvalidInputError(f"metrics requires names of keras.metrics' functions, got {unknown[0]!r}")
    return {name: function for name, function in found.items() if function is not None}


def _sparse_categorical_accuracy(target: tf.Tensor, prediction: tf.Tensor) -> tf.Tensor:
    """Keras' own looks at the bits of each number, to tell 0 from -0."""
    return tf.equal(tf.cast(target, tf.int64), tf.argmax(prediction, -1))


def _categorical_accuracy(target: tf.Tensor, prediction: tf.Tensor) -> tf.Tensor:
    return tf.equal(tf.argmax(target, -1), tf.argmax(prediction, -1))


_METRICS: dict[str, Callable[..., Any]] = {
    "sparse_categorical_accuracy": _sparse_categorical_accuracy,
    "categorical_accuracy": _categorical_accuracy,
}
