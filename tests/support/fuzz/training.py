"""Random training steps: a random program with a loss, next to PyTorch's losses and optimizers and to differences."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.inliner
import onnxruntime as ort
from onnx import helper, numpy_helper

import lstm_lower as ll
from tests.support.fuzz.comparison import SCHEDULES
from tests.support.fuzz.drawn_training import Arrays, DrawnLoss, Reference, draw_loss, draw_optimizer
from tests.support.fuzz.noise import bodies
from tests.support.fuzz.programs import Program
from tests.support.fuzz.runs import open_session, run_open
from tests.support.fuzz.scope import Refused
from tests.support.node_gradients import UntestableError, slope_along
from tests.support.widened import widen

STEPS = 3
# By whether all is float64: the step of differences, what they may be wrong by, and what losses may.
_WIDE = {True: (1e-4, 1e-7, 1e-6), False: (1e-2, 2e-2, 2e-3)}
# Operators that are other ones in training.
_MOVING = ("BatchNormalization", "Dropout")


class WrongStepError(Exception):
    """A step that is not what it must be."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is trained, and how.

    Attributes:
        wide: whether all numbers are float64.
        weights: inputs of the program that become weights, with their values.
        loss: of its output.
        optimizer: of all weights.
        options: of the trainer.
        schedule: of loops.
        bundle: whether the step is exported, too.
    """

    wide: bool
    weights: Arrays
    loss: DrawnLoss
    optimizer: Any
    options: dict[str, Any]
    schedule: str
    bundle: bool

    def __str__(self) -> str:
        options = ", ".join(f"{name}={value}" for name, value in self.options.items())
        return f"{type(self.loss.ours).__name__} {self.loss.options}, {self.optimizer}, {options} {self.schedule}"


def prepared(program: Program, draw: random.Random) -> tuple[onnx.ModelProto, Arrays]:
    """A program of one output without functions, and its feeds; in float64, where onnxruntime runs it so.

    Raises:
        Refused: its outputs are nothing for a loss, or onnxruntime does not run it without functions.
    """
    model = onnx.inliner.inline_local_functions(program.model)
    del model.opset_import[1:]
    statistics = {name for node in model.graph.node if node.op_type == "BatchNormalization" for name in node.output[1:]}
    ready = [value for value in model.graph.output if value.name not in statistics]
    if not ready:
        raise Refused("statistics, which are state, are nothing for a loss")
    chosen = draw.choice(ready)
    del model.graph.output[:]
    model.graph.output.append(chosen)
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    widen(wide.graph)
    feeds = {name: x.astype(np.float64) if x.dtype.kind == "f" else x for name, x in program.feeds[0].items()}
    with contextlib.suppress(Refused):
        _predicted(wide, feeds)
        return wide, feeds
    _predicted(model, program.feeds[0])
    return model, program.feeds[0]


def plan_of(model: onnx.ModelProto, feeds: Arrays, draw: random.Random, numbers: np.random.Generator) -> Plan:
    """What is done with a program.

    Raises:
        Refused: it has nothing to train, or its output is not one for a loss.
    """
    defaults = {tensor.name for tensor in model.graph.initializer}
    ready = [
        value.name
        for value in model.graph.input
        if value.name not in defaults and feeds[value.name].dtype.kind == "f" and feeds[value.name].size
    ]
    if not ready:
        raise Refused("nothing to train")
    # Beside the numbers at which programs often have no derivative.
    chosen = draw.sample(ready, draw.randint(1, len(ready)))
    noise = {name: numbers.uniform(-0.05, 0.05, feeds[name].shape) for name in chosen}
    weights = {name: (feeds[name] + noise[name]).astype(feeds[name].dtype) for name in chosen}
    prediction = _predicted(model, {**feeds, **weights})
    if not prediction.size:
        raise Refused("nothing to train")
    wide = {prediction.dtype, *(x.dtype for x in feeds.values() if x.dtype.kind == "f")} == {np.dtype(float)}
    options: dict[str, Any] = {}
    match draw.choice(["none", "none", "norm", "value", "accumulate"]):
        case "norm":
            options["clip_norm"] = draw.choice([0.1, 10.0])
        case "value":
            options["clip_value"] = draw.choice([0.05, 10.0])
        case "accumulate":
            options["accumulate"] = 2
    loss, optimizer = draw_loss(draw, numbers, prediction.shape), draw_optimizer(draw)
    loss.targets.update({k: x.astype(prediction.dtype) for k, x in loss.targets.items() if x.dtype.kind == "f"})
    return Plan(wide, weights, loss, optimizer, options, draw.choice(SCHEDULES), draw.random() < 1 / 3)


def _predicted(model: onnx.ModelProto, feeds: Arrays) -> Any:
    try:
        return run_open(open_session(model), feeds)[0]
    except Exception as error:  # onnxruntime's exceptions have no common base
        raise Refused(f"onnxruntime: {error}") from error


def outcome(model: onnx.ModelProto, feeds: Arrays, plan: Plan) -> tuple[str, str]:
    """What becomes of a plan: `right`, `refused`, `no test` or the kind of a fault; and why."""
    try:
        reason = check(model, feeds, plan)
    except WrongStepError as error:
        return error.kind, str(error)
    except ll.UnsupportedOpError as error:
        return "refused", str(error).splitlines()[0]
    except Refused as error:
        return "no test", str(error).splitlines()[0][:60]
    except Exception as error:  # noqa: BLE001 (any other error is a finding)
        return f"raises {type(error).__name__}", str(error).splitlines()[0][:300]
    return ("no test" if reason else "right"), reason


def check(model: onnx.ModelProto, feeds: Arrays, plan: Plan) -> str:
    """Trains a program for some steps; what could not be compared, if anything.

    Raises:
        WrongStepError: something is not what it must be.
        ll.LstmLowerError: the step is refused.
        Refused: onnxruntime does not run the model any more.
    """
    left = {value.name for value in model.graph.input}  # of a model that was made small
    plan = dataclasses.replace(plan, weights={name: x for name, x in plan.weights.items() if name in left})
    forward = onnx.ModelProto()
    forward.CopyFrom(model)
    if plan.loss.before is not None:
        _append(forward, plan.loss.before)
    given = onnx.ModelProto()
    given.CopyFrom(forward)
    for value in [value for value in given.graph.input if value.name in plan.weights]:
        given.graph.input.remove(value)
        given.graph.initializer.append(numpy_helper.from_array(plan.weights[value.name], value.name))
    data = {name: array for name, array in feeds.items() if name in left - plan.weights.keys()}
    predict = open_session(forward)

    def loss_at(weights: Arrays) -> float:
        return plan.loss.of(run_open(predict, {**data, **weights})[0])

    tolerance = _WIDE[plan.wide][2]

    first = loss_at(plan.weights)
    if not np.isfinite(first):
        return "not finite"
    names = list(plan.weights)
    ends = ll.from_onnx(given, plan.loss.ours, what="gradients", trainable=names)
    lowered = ll.lower(ends, schedule=plan.schedule)
    onnx.checker.check_model(lowered, full_check=True)
    gradients = open_session(lowered)
    outputs = [value.name for value in gradients.get_outputs()]

    def gradients_at(weights: Arrays) -> Arrays:
        fed = {**data, **plan.loss.targets, **weights}
        return dict(zip(outputs, run_open(gradients, fed), strict=True))

    found = gradients_at(plan.weights)
    _compare("loss", "with its gradients", float(found["loss"]), first, tolerance)
    if without := _slopes(plan, loss_at, found):
        return without
    if plan.bundle and not plan.options:
        _bundle(given, forward, plan, data)
    trainer = ll.Trainer(ll.from_onnx(given, plan.loss.ours, trainable=names), optimizer=plan.optimizer, **plan.options)
    reference = Reference(plan.optimizer, plan.weights)
    held: list[Arrays] = []
    for number in range(STEPS):
        weights = {name: x.numpy().astype(plan.weights[name].dtype) for name, x in reference.weights.items()}
        expected = loss_at(weights)
        made = gradients_at(weights)
        held.append({name: made[f"grad/{name}"] for name in names})
        if not np.isfinite([expected, *(np.abs(x).max() for x in held[-1].values())]).all() or abs(expected) > 1e6:
            return "not finite later"
        _compare("loss", f"of step {number + 1}", trainer.step({**data, **plan.loss.targets}).loss, expected, tolerance)
        if not plan.wide:
            return ""  # what rounding does to a gradient, an optimizer may make a whole step of
        if len(held) == plan.options.get("accumulate", 1):
            reference.update(_clipped({name: np.mean([g[name] for g in held], 0) for name in names}, plan.options))
            held = []
    state = trainer.state_dict()
    for name in names:
        _compare("weights", f"'{name}' after {STEPS} steps", state[name], reference.weights[name].numpy())
    return ""


def _append(model: onnx.ModelProto, op: str) -> None:
    """Puts an operator behind the output, along the axis of classes."""
    (output,) = model.graph.output
    rank = len(output.type.tensor_type.shape.dim)
    fields = {"axis": -1 if rank < 2 else 1} if op == "LogSoftmax" else {}
    model.graph.node.append(helper.make_node(op, [output.name], ["prediction"], **fields))
    output.name = "prediction"


def _slopes(plan: Plan, loss_at: Any, found: Arrays) -> str:
    """Compares gradients along a direction; what is in the way of it, if anything."""
    directions = {name: np.random.default_rng(7).uniform(-1, 1, x.shape) for name, x in plan.weights.items()}
    distance, tolerance, _ = _WIDE[plan.wide]

    def run(weights: Any) -> Any:
        return np.array(loss_at(dict(weights)))

    try:
        expected, uncertain = slope_along(run, plan.weights, directions, np.ones(()), distance)
    except UntestableError as reason:
        return str(reason)
    terms = []
    for name, direction in directions.items():
        gradient = found[f"grad/{name}"]
        if gradient.shape != direction.shape or gradient.dtype != plan.weights[name].dtype:
            raise WrongStepError("gradient", f"of '{name}' is {gradient.dtype}{gradient.shape}")
        terms.append(gradient * direction)
    slope = sum(float(term.sum()) for term in terms)
    scale = max(1.0, abs(expected), *(float(np.abs(term).sum()) for term in terms))
    if not abs(slope - expected) <= tolerance * scale + 10 * uncertain:
        raise WrongStepError("gradient", f"{slope:.8g} instead of {expected:.8g}")
    return ""


def _clipped(gradients: Arrays, options: dict[str, Any]) -> Arrays:
    if limit := options.get("clip_value"):
        return {name: x.clip(-limit, limit) for name, x in gradients.items()}
    if limit := options.get("clip_norm"):
        norm = np.sqrt(sum((x**2).sum() for x in gradients.values()))
        return {name: x * (limit / max(norm, limit)) for name, x in gradients.items()}
    return gradients


def _bundle(given: onnx.ModelProto, forward: onnx.ModelProto, plan: Plan, data: Arrays) -> None:
    """Trains by the exported files with onnxruntime alone, beside the trainer.

    Raises:
        WrongStepError: they differ, or evaluation differs from the forward model.
    """
    step = ll.from_onnx(given, plan.loss.ours, plan.optimizer, trainable=list(plan.weights))
    trainer = ll.Trainer(step)
    fed, tolerance = {**data, **plan.loss.targets}, _WIDE[plan.wide][2]
    with tempfile.TemporaryDirectory() as folder:
        path = ll.export_training(step, folder, schedule=plan.schedule)
        about = json.loads((path / "training.json").read_text())
        sessions = {name: _session(path / f"{name}.onnx") for name in ("init", "train", "eval", "predict")}
    init = sessions["init"]
    state = dict(zip([value.name for value in init.get_outputs()], init.run(None, {}), strict=True))
    rate = {about["learning_rate"]["name"]: np.array(about["learning_rate"]["value"])}
    moving = [pair for pair in about["state"] if pair["output"]]
    for number in range(STEPS):
        loss, *new = _run(sessions["train"], {**state, **rate, **fed}, [about["loss"], *(p["output"] for p in moving)])
        if not np.isfinite(loss):
            return
        state |= {pair["input"]: array for pair, array in zip(moving, new, strict=True)}
        _compare("bundle", f"loss of step {number + 1}", float(loss), trainer.step(fed).loss, tolerance)
    for name, array in trainer.held_state().items():
        if name in state:
            _compare("bundle", f"'{name}' after {STEPS} steps", state[name], array, tolerance)
    if not any(op in _MOVING for op in _operators(given)):
        prediction = run_open(open_session(forward), {**data, **{name: state[name] for name in plan.weights}})[0]
        (evaluated,) = _run(sessions["eval"], {**state, **fed}, [about["loss"]])
        _compare("bundle", "loss in evaluation", float(evaluated), plan.loss.of(prediction), tolerance)
    # Weights are in it as they are at first.
    predicted = sessions["predict"].get_outputs()[0].name
    if not any(op in _MOVING for op in _operators(given)):
        (found,) = _run(sessions["predict"], fed, [predicted])
        _compare("bundle", "prediction", found, run_open(open_session(forward), {**data, **plan.weights})[0], tolerance)


def _session(path: Path) -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return ort.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])


def _run(session: Any, feeds: Arrays, outputs: list[str]) -> list[Any]:
    wanted = {value.name: value.type for value in session.get_inputs()}
    numbers = {"tensor(float)": np.float32, "tensor(double)": np.float64}
    given = {name: np.asarray(feeds[name], numbers.get(type_)) for name, type_ in wanted.items()}
    return list(session.run(outputs, given))


def _operators(model: onnx.ModelProto) -> set[str]:
    return {node.op_type for graph in [model.graph, *(g for _, g in bodies(model.graph))] for node in graph.node}


def _compare(kind: str, what: str, found: Any, expected: Any, tolerance: float = 1e-6) -> None:
    left, right = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    if left.shape != right.shape:
        raise WrongStepError(kind, f"{what}: shape {left.shape} instead of {right.shape}")
    scale = 1 + np.abs(right[np.isfinite(right)]).max(initial=0)
    wrong = ~((np.abs(left - right) <= tolerance * scale) | (left == right) | (np.isnan(left) & np.isnan(right)))
    if wrong.any():
        raise WrongStepError(kind, f"{what}: {left[wrong][:4].tolist()} instead of {right[wrong][:4].tolist()}")
