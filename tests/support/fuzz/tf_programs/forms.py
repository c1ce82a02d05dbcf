"""A program as a function, a SavedModel, or a graph of TensorFlow 1: its runs there, and what we import."""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import tensorflow as tf
from tensorflow.python.ops import control_flow_util

import lstm_lower as ll
from tests.support.fuzz.tf_programs.programs import Program, Source, loss_of, replayed
from tests.support.fuzz.tf_programs.scope import Array

v1 = tf.compat.v1

RUNS = 2


@dataclasses.dataclass
class Outcome:
    """What runs leave.

    Attributes:
        results: of each run, by name.
        state: variables after the last, by name.
    """

    results: list[dict[str, Array]]
    state: dict[str, Array]


@dataclasses.dataclass
class Built:
    """A graph of TensorFlow.

    Attributes:
        truth: runs it.
        source: what `from_tensorflow` is given, and options for it.
        options: names of outputs and the like.
        start: first values of all variables.
        graph_def: the graph alone.
    """

    source: Any
    options: dict[str, Any]
    start: dict[str, Array]
    truth: Any
    graph_def: Any

    def imported(self, opset: int | None) -> onnx.ModelProto:
        return ll.from_tensorflow(self.source, weights="inputs", opset=opset, **self.options)


def built(made: Program, folder: Path, *, wide: bool = False, start: Mapping[str, Array] | None = None) -> Built:
    """A program as a graph.

    Args:
        made: the program.
        folder: for files.
        wide: in float64 throughout.
        start: first values of variables instead of the program's own.
    """
    tf.random.set_seed(made.seed)
    return (_graph if made.in_graph else _function)(made, folder, wide, start)


def _gradients(made: Program, loss: Any, wrt: dict[str, Any], taken: Any) -> tuple[Any, dict[str, Any]]:
    """The loss, perhaps with the square of a gradient, and its gradients; those that are none are left out."""
    found = taken(loss, list(wrt.values()))
    if made.twice:
        squares = [tf.reduce_sum(tf.square(tf.convert_to_tensor(g))) for g in found if g is not None]
        loss += tf.cast(tf.add_n(squares), loss.dtype) if squares else 0
        found = taken(loss, list(wrt.values()))
    return loss, {name: gradient for name, gradient in zip(wrt, found, strict=True) if gradient is not None}


def _updates(made: Program, weights: Mapping[str, Any], slots: Mapping[str, Any], gradients: Mapping[str, Any]) -> None:
    """Assigns to the variables of a function."""
    draw = random.Random(made.seed)
    for name, weight in weights.items():
        gradient = gradients.get(name)
        kind = made.rule
        if gradient is None or kind == "none":
            continue
        if kind == "assign" or (isinstance(gradient, tf.IndexedSlices) and draw.random() < 1 / 2):
            if isinstance(gradient, tf.IndexedSlices):
                weight.scatter_sub(tf.IndexedSlices(0.1 * gradient.values, gradient.indices))
            else:
                weight.assign(tf.where(gradient > 0, weight - 0.1 * gradient, weight * 0.9))
            continue
        # A function that hands a variable's handle on alone does not know its name.
        for end in ("a", "b"):
            tf.identity(slots[name + end])
        dense = tf.cast(tf.convert_to_tensor(gradient), weight.dtype)
        if kind == "sgd":
            weight.assign_sub(0.1 * dense)
        elif kind == "momentum":
            slots[name + "a"].assign(0.9 * slots[name + "a"] + dense)
            weight.assign_sub(0.1 * slots[name + "a"])
        else:
            _raw_update(draw, weight, slots[name + "a"], slots[name + "b"], dense)


def _raw_update(draw: random.Random, weight: Any, first: Any, second: Any, gradient: Any) -> None:
    raw, handle = tf.raw_ops, weight.handle

    def number(value: float) -> Any:
        return tf.constant(value, weight.dtype)

    rate = number(0.1)
    common = {"var": handle, "grad": gradient}
    pair = {"m": first.handle, "v": second.handle}
    betas = {"beta1": number(0.8), "beta2": number(0.9), "epsilon": number(1e-3)}
    choices = {
        "adam": lambda: raw.ResourceApplyAdam(**common, **pair, **betas, lr=rate, beta1_power=number(0.8),
                                              beta2_power=number(0.9), use_nesterov=draw.random() < 1 / 2),
        "adamax": lambda: raw.ResourceApplyAdaMax(**common, **pair, **betas, lr=rate, beta1_power=number(0.8)),
        "adagrad": lambda: raw.ResourceApplyAdagradV2(**common, accum=first.handle, lr=rate, epsilon=number(1e-2)),
        "adadelta": lambda: raw.ResourceApplyAdadelta(**common, accum=first.handle, accum_update=second.handle, lr=rate,
                                                      rho=number(0.9), epsilon=number(1e-2)),
        "momentum": lambda: raw.ResourceApplyMomentum(**common, accum=first.handle, lr=rate, momentum=number(0.9),
                                                      use_nesterov=draw.random() < 1 / 2),
        "keras": lambda: raw.ResourceApplyKerasMomentum(**common, accum=first.handle, lr=rate, momentum=number(0.9),
                                                        use_nesterov=draw.random() < 1 / 2),
        "ftrl": lambda: raw.ResourceApplyFtrlV2(**common, accum=second.handle, linear=first.handle, lr=rate,
                                                l1=number(0.01), l2=number(0.02), l2_shrinkage=number(0.01),
                                                lr_power=number(-0.5)),
        "sign": lambda: raw.ResourceApplyAddSign(**common, m=first.handle, lr=rate, alpha=number(1.0),
                                                 sign_decay=number(0.9), beta=number(0.9)),
        "power": lambda: raw.ResourceApplyPowerSign(**common, m=first.handle, lr=rate, logbase=number(0.7),
                                                    sign_decay=number(0.9), beta=number(0.9)),
        "proximal": lambda: raw.ResourceApplyProximalGradientDescent(var=handle, alpha=rate, l1=number(0.01),
                                                                     l2=number(0.02), delta=gradient),
    }  # fmt: skip
    choices[draw.choice(sorted(choices))]()


def _function(made: Program, folder: Path, wide: bool, start: Mapping[str, Array] | None) -> Built:
    given = dict(start or {})
    module = tf.Module()
    weights, slots = {}, {}
    for source in made.weights:
        weights[source.name] = tf.Variable(given.get(source.name, source.wide(wide=wide)), name=source.name)
        for end, value in (("a", 0.0), ("b", 0.1)):
            slots[source.name + end] = tf.Variable(tf.zeros_like(weights[source.name]) + value, name=source.name + end)
    states = {}
    for source in made.states:
        value = given.get(source.name, source.wide(wide=wide))
        states[source.name] = tf.Variable(value, name=source.name, trainable=False)
    held = weights | slots | states
    for name, variable in held.items():
        setattr(module, name, variable)
    floats = [source.name for source in made.inputs if source.array.dtype.kind == "f"]
    specs = [tf.TensorSpec(s.sizes, s.wide(wide=wide).dtype, name=s.name) for s in made.inputs]

    def step(*tensors: Any) -> dict[str, Any]:
        named = dict(zip([s.name for s in made.inputs], tensors, strict=True))
        wrt = {name: named[name] for name in floats} | weights
        persistent = made.twice
        with tf.GradientTape(persistent=persistent) as tape:
            for name in floats:
                tape.watch(named[name])
            values = replayed(
                made,
                {s.id: named[s.name] for s in made.inputs},
                {s.id: weights[s.name] for s in made.weights},
                {s.id: states[s.name] for s in made.states},
                wide=wide,
            )
            loss = loss_of(made, values, wide=wide)
            if persistent:
                first = tape.gradient(loss, list(wrt.values()))
                squares = [tf.reduce_sum(tf.square(tf.convert_to_tensor(g))) for g in first if g is not None]
                loss += tf.add_n([tf.cast(square, loss.dtype) for square in squares]) if squares else 0
        found = tape.gradient(loss, list(wrt.values()))
        gradients = {name: gradient for name, gradient in zip(wrt, found, strict=True) if gradient is not None}
        results = {f"o{number}": values[number].tensor for number in made.outputs if number in values}
        results |= {"loss": loss} | {f"grad_{name}": tf.convert_to_tensor(g) for name, g in gradients.items()}
        _updates(made, weights, slots, gradients)
        return {name: tf.identity(result) for name, result in results.items()}

    module.step = tf.function(step, input_signature=specs, autograph=False)
    concrete = module.step.get_concrete_function()
    source, options = concrete, {}
    if made.form == "saved_model":
        tf.saved_model.save(
            module,
            str(folder / "model"),
            {"train": concrete},
            tf.saved_model.SaveOptions(experimental_custom_gradients=False),
        )
        source, options = str(folder / "model"), {"signature": "train"}
    begin = {name: variable.numpy() for name, variable in held.items()}

    def truth(feeds: list[dict[str, Array]]) -> Outcome:
        def run(feed: dict[str, Array]) -> dict[str, Array]:
            found = concrete(**{name: tf.constant(array) for name, array in feed.items()})
            return {name: value.numpy() for name, value in found.items()}

        return _runs(feeds, run, lambda: {name: variable.numpy() for name, variable in held.items()})

    return Built(source, options, begin, truth, concrete.graph.as_graph_def())


@contextlib.contextmanager
def control_flow(*, functions: bool) -> Iterator[None]:
    """Loops and branches of TensorFlow 1, or functions."""
    before = control_flow_util.ENABLE_CONTROL_FLOW_V2
    control_flow_util.ENABLE_CONTROL_FLOW_V2 = functions
    try:
        yield
    finally:
        control_flow_util.ENABLE_CONTROL_FLOW_V2 = before


def _optimizer(made: Program) -> Any:
    draw = random.Random(made.seed)
    train = v1.train
    made_by = {
        "sgd": lambda: train.GradientDescentOptimizer(0.1),
        "momentum": lambda: train.MomentumOptimizer(0.1, 0.9, use_nesterov=draw.random() < 1 / 2),
        "adam": lambda: train.AdamOptimizer(0.1, epsilon=1e-3),
        "rmsprop": lambda: train.RMSPropOptimizer(0.1, momentum=0.3, epsilon=1e-2, centered=draw.random() < 1 / 2),
        "adagrad": lambda: train.AdagradOptimizer(0.1),
        "adadelta": lambda: train.AdadeltaOptimizer(0.1, epsilon=1e-2),
        "ftrl": lambda: train.FtrlOptimizer(0.1, l1_regularization_strength=0.01, l2_regularization_strength=0.01),
        "proximal": lambda: train.ProximalAdagradOptimizer(0.1, l1_regularization_strength=0.01),
    }
    return made_by[made.rule if made.rule in ("sgd", "momentum") else draw.choice(sorted(made_by))]()


def _graph(made: Program, folder: Path, wide: bool, start: Mapping[str, Array] | None) -> Built:
    with tf.Graph().as_default() as graph, control_flow(functions=made.form != "frames"):
        v1.set_random_seed(made.seed)
        resource = made.seed % 2 == 0
        # What a reference variable's reader hands out may be its memory, which an update would write meanwhile.
        trains = made.rule != "none" and (resource or not made.states)
        fed = {s.name: v1.placeholder(s.wide(wide=wide).dtype, s.sizes, name=s.name) for s in made.inputs}
        with v1.variable_scope("", use_resource=resource):
            weights = {
                s.name: v1.get_variable(s.name, initializer=s.wide(wide=wide), use_resource=resource)
                for s in made.weights
            }
            states = {
                s.name: v1.get_variable(s.name, initializer=s.wide(wide=wide), use_resource=resource, trainable=False)
                for s in made.states
            }
            values = replayed(
                made,
                {s.id: fed[s.name] for s in made.inputs},
                {s.id: weights[s.name] for s in made.weights},
                {s.id: states[s.name] for s in made.states},
                wide=wide,
            )
            loss = loss_of(made, values, wide=wide)
            trained = {v.op.name: v for v in v1.trainable_variables()}
            wrt = {s.name: fed[s.name] for s in made.inputs if s.array.dtype.kind == "f"} | trained
            loss, gradients = _gradients(made, loss, wrt, tf.gradients)
            results = {f"o{number}": values[number].tensor for number in made.outputs if number in values}
            results |= {"loss": loss} | {
                "grad_" + n.replace("/", "_"): tf.convert_to_tensor(g) for n, g in gradients.items()
            }
            named = {name: tf.identity(result, name=f"result_{name}") for name, result in results.items()}
            pairs = [(gradients[name], variable) for name, variable in trained.items() if name in gradients]
            train = []
            if trains and pairs:
                with tf.control_dependencies(list(named.values())):
                    train = [_optimizer(made).apply_gradients(pairs, name="train")]
        variables = v1.global_variables()
        saver = v1.train.Saver(variables) if variables else None
        # TensorFlow's graph optimizer computes some reads of a variable anew, behind its next assignment (seed 6036).
        config = v1.ConfigProto()
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        session = v1.Session(graph=graph, config=config)
        session.run(v1.global_variables_initializer())
        for variable in variables:
            if start and variable.op.name in start:
                variable.load(start[variable.op.name].astype(variable.dtype.base_dtype.as_numpy_dtype), session)
        if saver is not None:
            saver.save(session, str(folder / "model"))
        else:
            v1.train.export_meta_graph(str(folder / "model.meta"), graph=graph)
        begin = dict(zip([v.op.name for v in variables], session.run(variables), strict=True))

    def truth(feeds: list[dict[str, Array]]) -> Outcome:
        def run(feed: dict[str, Array]) -> dict[str, Array]:
            asked = {fed[name]: array for name, array in feed.items()}
            if resource:
                return dict(session.run([named, train], asked)[0])
            found = dict(session.run(named, asked))
            session.run(train, asked)
            return found

        def state() -> dict[str, Array]:
            return dict(zip([v.op.name for v in variables], session.run(variables), strict=True))

        outcome = _runs(feeds, run, state)
        session.close()
        return outcome

    options = {"outputs": [f"result_{name}:0" for name in named] + ["train"] * bool(train)}
    return Built(str(folder / "model.meta"), options, begin, truth, graph.as_graph_def())


def feeds_of(made: Program, *, wide: bool = False, moved: int = 0) -> list[dict[str, Array]]:
    """What each run is fed, the last one in other sizes where some are open; moved by some units in the last place."""
    rng = np.random.default_rng(moved)
    feeds = []
    for number in range(RUNS):
        feed = {}
        for source in made.inputs:
            array = source.wide(wide=wide)
            if array.dtype.kind == "f":
                array = array * array.dtype.type(1 - 0.25 * number)
                if moved:
                    array = nudged(array, rng)
            feed[source.name] = array
        feeds.append(feed)
    if any(source.open for source in made.inputs) and not made.states:
        draw = random.Random(made.seed)
        other = {size: draw.choice([1, size + 1, size + 2]) for size in range(1, 9)}
        last = feeds[-1]
        feeds.append({s.name: np.resize(last[s.name], _sizes(s, other)) for s in made.inputs})
    return feeds


def _sizes(source: Source, other: Mapping[int, int]) -> list[int]:
    return [other.get(n, n) if axis in source.open else n for axis, n in enumerate(source.array.shape)]


def _runs(
    feeds: list[dict[str, Array]],
    run: Callable[[dict[str, Array]], dict[str, Array]],
    state: Callable[[], dict[str, Array]],
) -> Outcome:
    """All runs, but for a last one in sizes that TensorFlow refuses, perhaps after some of its assignments."""
    outcome = Outcome([], state())
    for number, feed in enumerate(feeds):
        try:
            outcome = Outcome([*outcome.results, run(feed)], state())
        except Exception:
            if number < RUNS:
                raise
    return outcome


def nudged(array: Array, rng: np.random.Generator) -> Array:
    """Each element moved by a unit in the last place or two."""
    unit = np.finfo(array.dtype).eps
    return np.asarray(array * (1 + unit * rng.integers(-2, 3, array.shape)), array.dtype)
