"""Models of tf-keras (Keras 2): their own `train_step` and `test_step`, traced as they are.

While a step is traced, copies of its optimizers and metrics stand in the model, so that it stays as it is.
"""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf
import tf_keras
from tensorflow.python.ops import weights_broadcast_ops
from tf_keras.src import backend

from lstm_lower.errors import InvalidInputError
from lstm_lower.keras import lookups, objective, operands, own_steps
from lstm_lower.keras.arguments import Given, first_line, is_of
from lstm_lower.keras.evaluation import Evaluation
from lstm_lower.keras.operands import Declared, Operands
from lstm_lower.keras.step import KerasStep
from lstm_lower.keras.variables import VariableNames
from lstm_lower.replacement import replaced, standing_in

_OWN = ("train_step", "compute_loss", "compute_metrics", "get_metrics_result", "reset_metrics")


def is_declared(model: Any) -> bool:
    """Whether a tf-keras model says what its inputs are."""
    return getattr(model, "_nested_inputs", None) is not None or (model.built and model.save_spec() is not None)


def step_of(model: Any, given: Given) -> KerasStep:
    """The step of a tf-keras model.

    Raises:
        InvalidInputError: the model is not built, or an argument does not fit or would not be followed.
    """
    if not isinstance(model, tf_keras.Model):
        raise InvalidInputError(f"model requires a model of Keras 3 or tf-keras, got {type(model).__name__}")
    if not model.built and given.input_spec is None:
        raise InvalidInputError(
            f"model '{model.name}' requires input_spec or data, since it is not built and says nothing of its inputs"
        )
    own = any(getattr(type(model), name) is not getattr(tf_keras.Model, name) for name in _OWN)
    if own:
        own_steps.check(model, given)
    _check(model, given)
    lookups.check(model)
    taken = _operands(model, given.input_spec)
    held = _held(model, given)
    loss = held["loss"]
    if not (loss or own or model.losses):
        raise InvalidInputError("loss requires a name, a Keras loss or a function, got none, and the model has none")
    has_targets = bool(loss) or given.target_spec is not None
    losses = objective.losses_by_output(loss or None, taken.output_names)
    targets = operands.target_specs(taken, given.target_spec, losses) if has_targets else []
    used = [True] * len(targets) if own else _used(held, taken, targets)
    taken, weights = taken.weighing(given.sample_weight)
    specs = [*taken.inputs, *(spec for spec, each in zip(targets, used, strict=True) if each)]
    step = _Traced(model, given, taken, used, held)
    rules = [thing for thing in held.values() if _is_optimizer(thing)]
    rule = held.get("optimizer")
    slots = [variable for each in rules for variable in _variables(each)]
    names = VariableNames([*model.weights, *model.variables, *slots])
    step.names = names
    evaluation = Evaluation(step.evaluated, taken.output_names, step.metrics, own)
    generators = Generators()
    return KerasStep(
        model,
        [*specs, *weights],
        step,
        names,
        lambda: as_loops(model, generators),
        None if given.what == "input_gradient" else evaluation,
        slots,
        _rate(rule),
        step.shown,
        one_batch=not own,
        indices=operands.indices(model),
        classes=taken.classes(),
        optimizer=rule,
        loss=None if own else loss,
    )


def _check(model: Any, given: Given) -> None:
    """Refuses what the model's own step would pay no heed to, and things of Keras 3.

    Raises:
        InvalidInputError: there is something.
    """
    if not given.training:
        raise InvalidInputError(
            f"training requires True for a tf-keras model, whose train_step trains, got {given.training}; "
            "ll.from_tensorflow takes a tf.function that calls the model with training=False"
        )
    for name in ("loss", "optimizer", "metrics"):
        for thing in keras.tree.flatten(getattr(given, name)):
            if is_of(thing, "keras"):
                raise InvalidInputError(
                    f"{name} requires a name or one of tf_keras for model '{model.name}', which is one of tf-keras, "
                    f"got Keras 3's {getattr(thing, '__name__', type(thing).__name__)}"
                )


def _operands(model: Any, given: Any) -> Operands:
    declared = None
    if (inputs := getattr(model, "_nested_inputs", None)) is not None:
        for tensor in tf.nest.flatten(inputs):
            if not isinstance(getattr(tensor, "type_spec", None), tf.TensorSpec):
                raise InvalidInputError(f"model '{model.name}' requires dense inputs, got {tensor.type_spec}")
        declared = Declared(_plain(inputs), list(model.input_names), _plain(model._nested_outputs))
    inferred = declared is None or not getattr(model, "_has_explicit_input_shape", True)
    if given is None and inferred and (saved := model.save_spec()) is not None:
        # What the model was first called with, in which only the number of rows is open.
        given = _plain(saved[0][0])

    def outputs_of(specs: Sequence[tf.TensorSpec], structure: Any) -> Any:
        def called(*tensors: tf.Tensor) -> Any:
            return model(keras.tree.pack_sequence_as(structure, list(tensors)), training=False)

        try:
            return _plain(
                tf.function(called, input_signature=specs, autograph=False).get_concrete_function().structured_outputs
            )
        except Exception as error:
            shapes = [f"{spec.dtype.name} {tuple(spec.shape)}" for spec in specs]
            raise InvalidInputError(
                f"input_spec requires what model '{model.name}' takes, got {', '.join(shapes)}, for which it fails "
                f"with: {first_line(error)}"
            ) from error

    return operands.packed(model.name, given, declared, outputs_of, model.output_names or ())


def _plain(structure: Any) -> Any:
    """A structure of specs without the wrappers in which TensorFlow tracks lists and dictionaries."""
    if isinstance(structure, Mapping):
        return {key: _plain(value) for key, value in structure.items()}
    if isinstance(structure, (list, tuple)):
        return [_plain(value) for value in structure]
    return tf.TensorSpec(structure.shape, structure.dtype)


def _is_optimizer(thing: Any) -> bool:
    kinds = (tf_keras.optimizers.Optimizer, tf_keras.optimizers.legacy.Optimizer)
    return isinstance(thing, kinds)


def _variables(rule: Any) -> list[Any]:
    # A method in legacy optimizers, a list that can be called in others.
    return list(rule.variables())


def _held(model: Any, given: Given) -> dict[str, Any]:
    """What stands in the model while it is traced: attribute -> copy, or what the arguments name in its place.

    Raises:
        InvalidInputError: tf-keras refuses it.
    """
    memo: dict[int, Any] = {id(variable): variable for variable in model.variables}
    strategy = tf.distribute.get_strategy()
    memo[id(strategy)] = strategy
    held = {name: copy.deepcopy(each, memo) for name, each in vars(model).items() if _is_optimizer(each)}
    if given.what != "train":
        held["optimizer"] = _LossAlone()
    elif given.optimizer is not None:
        try:
            chosen = copy.deepcopy(tf_keras.optimizers.get(given.optimizer), memo)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidInputError(
                f"optimizer requires a name or a tf-keras optimizer, got {given.optimizer!r}"
            ) from error
        held["optimizer"] = model._get_optimizer(chosen)
    elif "optimizer" not in held and type(model).train_step is tf_keras.Model.train_step:
        raise InvalidInputError("optimizer requires a name or a Keras optimizer, got none, and the model has none")
    for rule in held.values():
        _build(rule, model)
    compiled = model.compiled_loss
    own = type(model).train_step is not tf_keras.Model.train_step
    loss = model.loss if (given.loss is None or own) and compiled is not None else given.loss
    weights = given.loss_weights
    if given.loss is None and weights is None and compiled is not None:
        weights = compiled._user_loss_weights
    containers = tf_keras.src.engine.compile_utils
    held["loss"] = loss or {}
    held["compiled_loss"] = containers.LossesContainer(loss, weights, output_names=model.output_names)
    if given.metrics is None and model.compiled_metrics is not None:
        held["compiled_metrics"] = _copied(model.compiled_metrics)
    else:
        metrics = _by_name(given.metrics or None, model.output_names or ())
        held["compiled_metrics"] = containers.MetricsContainer(metrics, None, output_names=model.output_names)
    return held | {"_is_compiled": True}


def _by_name(metrics: Any, names: Sequence[str]) -> Any:
    """Functions by names of their own become metrics of these names."""
    if isinstance(metrics, Mapping) and not set(metrics) <= set(names):
        return [tf_keras.metrics.MeanMetricWrapper(each, name=name) for name, each in metrics.items()]
    return _copied(metrics)


def _copied(metrics: Any) -> Any:
    """Metrics anew. tf-keras' own copies fail where a metric has made variables since it began to measure."""

    def anew(metric: Any, memo: dict[int, Any]) -> Any:
        memo[id(metric)] = type(metric).from_config(metric.get_config())
        return memo[id(metric)]

    with replaced(tf_keras.metrics.Metric, "__deepcopy__", anew):
        return copy.deepcopy(metrics)


class _LossAlone:
    """Stands for an optimizer where gradients are wanted, but no update.

    Attributes:
        loss: the last loss that was to be minimized.
    """

    loss: Any = None

    def minimize(self, loss: Any, _variables: Any, **_options: Any) -> None:
        """Keeps the loss."""
        self.loss = loss

    def variables(self) -> list[Any]:
        """There is no state."""
        return []


def _build(rule: Any, model: Any) -> None:
    """Makes the slots of an optimizer; those that it has keep their values.

    Raises:
        InvalidInputError: a setting is a function, whose value the export would fix.
    """
    schedules = (tf_keras.optimizers.schedules.LearningRateSchedule, tf.Variable)
    for name, value in getattr(rule, "_hyper", {}).items():
        if callable(value) and not isinstance(value, schedules):
            raise InvalidInputError(
                f"optimizer '{rule._name}' requires a {name} that is a number or a LearningRateSchedule, got a "
                "function, whose value the export would fix; set Trainer.learning_rate from step to step instead"
            )
    make = getattr(rule, "_create_all_weights", None) or getattr(rule, "build", None)
    if make is not None:
        make(list(model.trainable_variables))


def _rate(rule: Any) -> Any:
    """The variable of the learning rate, or `None`."""
    inner = getattr(rule, "inner_optimizer", rule)
    rate = getattr(inner, "_hyper", {}).get("learning_rate", getattr(inner, "_learning_rate", None))
    return rate if isinstance(rate, tf.Variable) else None


def _used(held: Mapping[str, Any], taken: Operands, targets: Sequence[tf.TensorSpec]) -> list[bool]:
    """Per output, whether a loss or a metric looks at it, so that it needs a target.

    Raises:
        InvalidInputError: losses or metrics do not fit the outputs.
    """
    if not targets:
        return []
    outputs = keras.tree.map_structure(
        lambda each: tf.zeros([size or 1 for size in each.shape], each.dtype), taken.outputs
    )
    flat = [tf.zeros([size or 1 for size in spec.shape], spec.dtype) for spec in targets]
    try:
        held["compiled_loss"].build(outputs)
        held["compiled_metrics"].build(outputs, keras.tree.pack_sequence_as(taken.outputs, flat))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        names = list(taken.output_names)
        raise InvalidInputError(
            f"loss, loss_weights and metrics require what fits the outputs {names}, got: {first_line(error)}"
        ) from error
    measured = zip(held["compiled_metrics"]._metrics, held["compiled_metrics"]._weighted_metrics, strict=True)
    looked = [any(each is not None for each in tf.nest.flatten(both)) for both in measured]
    return [loss is not None or each for loss, each in zip(held["compiled_loss"]._losses, looked, strict=True)]


class _Traced:
    """The model's own step as a function of flat tensors.

    Attributes:
        names: of variables.
        shown: variable's name -> output that shows the gradient that its update reads; known once it was traced.
    """

    names: VariableNames

    def __init__(
        self, model: Any, given: Given, taken: Operands, used: Sequence[bool], held: Mapping[str, Any]
    ) -> None:
        self._model, self._given, self._taken, self._used, self._held = model, given, taken, used, held
        self.shown: dict[str, str] = {}
        # A step of its own may call its loss otherwise.
        own = type(model).train_step is not tf_keras.Model.train_step
        self._key = given.loss if own and isinstance(given.loss, str) else None

    def __call__(self, *given: tf.Tensor) -> dict[str, Any]:
        """Loss, metrics and gradients."""
        model, rule, gradients = self._model, self._held.get("optimizer"), {}
        batch = self._batch(given, self._given.class_weight)

        own_apply: Any = getattr(type(rule), "apply_gradients", None)

        def kept(pairs: Any, *args: Any, **options: Any) -> Any:
            found = list(pairs)
            gradients.update({self.names.of(variable): gradient for gradient, variable in found})
            return own_apply(rule, found, *args, **options)

        apply = {} if own_apply is None else {"apply_gradients": kept}
        with standing_in(model, self._held), standing_in(rule, apply), tf.GradientTape() as tape:
            tape.watch([x for x in given if x.dtype.is_floating])
            logs = own_steps.logs_of(model, "train_step", batch, loss=self._key)
        self._watch_slots()
        if isinstance(rule, _LossAlone):
            return logs | self._gradients(tape, rule.loss, given)
        inner = getattr(rule, "inner_optimizer", rule)
        shown = {name: each for name, each in gradients.items() if each is not None}
        if inner is rule:
            # The updates of single rows, or of a scaled loss, read other gradients than those among the outputs.
            self.shown |= {name: f"grad/{name}" for name, each in shown.items() if tf.is_tensor(each)}
        return logs | {f"grad/{name}": tf.identity(tf.convert_to_tensor(each)) for name, each in shown.items()}

    def metrics(self) -> list[Any]:
        """All metrics of the model as it is traced."""
        with standing_in(self._model, self._held):
            return list(self._model.metrics)

    def evaluated(self, given: Sequence[tf.Tensor]) -> tuple[Any, Mapping[str, tf.Tensor]]:
        """The model's predictions, and what its `test_step` measures of them."""
        model, seen = self._model, []

        def kept(x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None) -> Any:
            seen.append(y_pred)
            return type(model).compute_loss(model, x, y, y_pred, sample_weight)

        with standing_in(model, {**self._held, "compute_loss": kept}):
            logs = own_steps.logs_of(model, "test_step", self._batch(given), needs_loss=False, counting=True)
            inputs = self._taken.packed_inputs(given[: len(self._taken.inputs)])
            if type(model).predict_step is not tf_keras.Model.predict_step:
                return model.predict_step((inputs,)), logs
            return seen[-1] if seen else model(inputs, training=False), logs

    def _batch(self, given: Sequence[tf.Tensor], class_weight: Mapping[int, float] | None = None) -> Any:
        """Flat tensors as tf-keras hands them to a step."""
        flat, expected, weight = objective.parts_of(given, self._taken, self._used, class_weight)
        inputs = self._taken.packed_inputs(flat)
        if not expected:
            return (inputs,) if weight is None and tf.nest.is_nested(inputs) else inputs
        targets = keras.tree.pack_sequence_as(self._taken.outputs, expected)
        if weight is not None and self._taken.weighted is None:
            weight = keras.tree.map_structure(lambda _: weight, self._taken.outputs)
        weights = [] if weight is None else [weight]
        return (inputs, targets, *weights)

    def _watch_slots(self) -> None:
        """Lets the graph know variables of which legacy optimizers hand it nothing but handles."""
        for rule in self._held.values():
            if _is_optimizer(rule):
                for variable in _variables(rule):
                    tf.compat.v1.get_default_graph().watch_variable(variable)

    def _gradients(self, tape: tf.GradientTape, loss: Any, given: Sequence[tf.Tensor]) -> dict[str, Any]:
        if self._given.what == "input_gradient":
            found = zip(self._taken.inputs, given, strict=False)
            wanted = {str(spec.name): x for spec, x in found if spec.dtype.is_floating}
        else:
            wanted = {self.names.of(variable): variable for variable in self._model.trainable_variables}
            self.shown |= {name: f"grad/{name}" for name in wanted}
        gradients = tape.gradient(loss, list(wanted.values()), unconnected_gradients="zero")
        return {f"grad/{name}": tf.convert_to_tensor(each) for name, each in zip(wanted, gradients, strict=True)}


# How layers of tf-keras are traced: recurrent ones as loops, random numbers from generators that are state.


# What chooses another form for reasons of speed that hold elsewhere.
_CHOICES = {"_could_use_gpu_kernel": False, "unroll": False}


class Generators:
    """A generator of random numbers in the place of each of tf-keras' that draws without one.

    TensorFlow's ops of old count how often they drew where nobody sees it. The seeds are those that tf-keras would draw
    next; it draws them all the same afterwards.
    """

    def __init__(self) -> None:
        """Looks where the seeds stand."""
        seeds = getattr(backend._SEED_GENERATOR, "generator", None)
        self._seeds = random.Random()  # noqa: S311
        self._seeds.setstate((seeds or random).getstate())
        self._made: dict[int, tuple[Any, tf.random.Generator]] = {}

    def of(self, drawing: Any) -> tf.random.Generator:
        """The generator in the place of one of tf-keras'."""
        if id(drawing) not in self._made:
            seed = drawing._seed if drawing._seed is not None else self._seeds.randint(1, 10**9)
            with tf.init_scope():
                self._made[id(drawing)] = drawing, tf.random.Generator.from_seed(seed, alg="philox")
        return self._made[id(drawing)][1]


@contextlib.contextmanager
def as_loops(model: Any, generators: Generators) -> Iterator[None]:
    """Recurrent layers of a model, however deep, become loops when they are traced within; what is random, state."""
    kind = backend.RandomGenerator
    held: list[tuple[Any, dict[str, Any]]] = []
    own = kind._maybe_init

    def stateful(drawing: Any) -> None:
        if drawing._rng_type == kind.RNG_LEGACY_STATEFUL:
            held.append((drawing, copy.copy(vars(drawing))))
            vars(drawing).update(_rng_type=kind.RNG_STATEFUL, _generator=generators.of(drawing), _built=True)
        own(drawing)

    choices = []
    for layer in model._flatten_layers():
        for name in _CHOICES.keys() & vars(layer).keys():
            choices.append((layer, name, vars(layer)[name]))
            vars(layer)[name] = _CHOICES[name]
    try:
        # A check alone, with operations on sets.
        unchecked = replaced(weights_broadcast_ops, "assert_broadcastable", lambda *_: tf.no_op())
        with replaced(kind, "_maybe_init", stateful), unchecked:
            yield
    finally:
        for layer, name, value in choices:
            vars(layer)[name] = value
        for drawing, before in reversed(held):
            vars(drawing).clear()
            vars(drawing).update(before)
