"""ONNX's own node tests as tests of gradients: random projections of every output, along a random direction.

A test's model and data become float64 where they can; it runs in onnxruntime, or in onnx's reference evaluator where
onnxruntime has no kernel. The derivative of each output along a random direction of all floating inputs is compared
with differences. Where the published data lie on a kink (ties, zeros), they are moved a little and that is said.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import random
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

import lstm_lower as ll
from tests.support.fuzz import node_tests
from tests.support.fuzz.runs import evaluator
from tests.support.widened import widen

Array = np.ndarray[Any, Any]
Feeds = Mapping[str, Any]
Run = Callable[[Feeds], list[Any]]

STEP = 1e-4


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a node test.

    Attributes:
        test: its name.
        op: the operator that it is a test of.
        kind: `right`, `fixed` (right if integer inputs are constants, refused else), `refused`, `wrong`, or `no test`
            where there is nothing to compare.
        reason: why, where it is not right; what was done for it, where it is.
    """

    test: str
    op: str
    kind: str
    reason: str = ""


class UntestableError(Exception):
    """Nothing to compare, and why."""


class _NotRunError(Exception):
    """Neither runtime runs a model of gradients."""


def outcome(name: str, *, twice: bool = False) -> Outcome:
    """Checks one node test; where what it says at run time only is refused, also with constants.

    Args:
        name: the test's.
        twice: whether the gradients of the gradients are checked, too.
    """
    case = node_tests.case(name)
    inputs, expected = case.data_sets[0]
    found = outcome_of(name, case.model, inputs, expected, twice=twice)
    if found.kind == "refused":
        model, left = _constant_integers(case.model, inputs)
        fixed = outcome_of(name, model, left, expected, twice=twice)
        if fixed.kind == "right":
            return dataclasses.replace(found, kind="fixed")
        return fixed if fixed.kind == "wrong" else found
    return found


def _constant_integers(model: onnx.ModelProto, inputs: list[Any]) -> tuple[onnx.ModelProto, list[Any]]:
    """A test whose inputs of integers and truth values are constants, and its other inputs."""
    work = onnx.ModelProto()
    work.CopyFrom(model)
    work.ir_version = max(work.ir_version, 8)
    left = []
    for value, array in zip(model.graph.input, inputs, strict=False):
        if isinstance(array, np.ndarray) and array.dtype.kind in "iub":
            work.graph.input.remove(value)
            work.graph.initializer.append(numpy_helper.from_array(array, value.name))
        else:
            left.append(array)
    return work, left


def outcome_of(
    name: str,
    model: onnx.ModelProto,
    inputs: list[Any],
    expected: list[Any],
    *,
    twice: bool = False,
    draw: random.Random | None = None,
) -> Outcome:
    """Checks one test, whose data are `inputs` and whose results are `expected`.

    Args:
        name: the test's.
        model: the model.
        inputs: its data, in order.
        expected: its results.
        twice: whether the gradients of the gradients are checked, too.
        draw: chooses the one gradient whose gradients are checked; `None` for those of all.
    """
    op = _operator(name, model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            try:
                kinds = list(_compared(model, inputs, expected, 1 + twice, draw))
            except _NotRunError:
                # In float64 onnxruntime lacks kernels, and onnx's evaluator fails at groups and at negative pads.
                kinds = list(_compared(model, inputs, expected, 1 + twice, draw, single=True))
        except UntestableError as reason:
            return Outcome(name, op, "no test", str(reason))
        except ll.UnsupportedOpError as error:
            return Outcome(name, op, "refused", str(error).splitlines()[0])
        except Exception as error:  # noqa: BLE001 (whatever else it is, it is a fault)
            return Outcome(name, op, "wrong", f"{type(error).__name__}: {error}".splitlines()[0])
    for kind in ("wrong", "refused", "no test", "right"):
        found = [reason for one, reason in kinds if one == kind]
        if found:
            return Outcome(name, op, kind, "; ".join(sorted({reason for reason in found if reason})))
    return Outcome(name, op, "no test", "no floating output")


def _operator(name: str, model: onnx.ModelProto) -> str:
    """The operator under test: of a function's body the one that the test is named after."""
    ops = [node.op_type for node in model.graph.node]
    if len(set(ops)) == 1:
        return ops[0]
    words = re.sub(r"_|^test", "", name)
    schemas = {s.name for s in onnx.defs.get_all_schemas()}
    named = [op for op in schemas if words.startswith(op.lower())]
    special = {
        "sce": "SoftmaxCrossEntropyLoss",
        "nllloss": "NegativeLogLikelihoodLoss",
        "mvn": "MeanVarianceNormalization",
    }
    named += [op for prefix, op in special.items() if words.startswith(prefix)]
    return max(named, key=len) if named else ops[-1]


def _compared(
    model: onnx.ModelProto,
    inputs: list[Any],
    expected: list[Any],
    times: int,
    draw: random.Random | None,
    *,
    single: bool = False,
) -> Iterator[tuple[str, str]]:
    """The kind and reason of every pair of a floating output and the floating inputs."""
    if any(entry.domain not in ("", "ai.onnx") for entry in model.opset_import):
        raise UntestableError("an operator of another domain")
    feeds = dict(zip([value.name for value in model.graph.input], map(_array, inputs), strict=False))
    tensors = all(value.type.HasField("tensor_type") for value in model.graph.input)
    if not tensors or not all(isinstance(value, np.ndarray) for value in feeds.values()):
        raise UntestableError("an input is a sequence or an optional value")
    settings = _settings(model)
    wrt = [name for name, value in feeds.items() if _is_floating(value) and value.size and name not in settings]
    if not wrt:
        raise UntestableError("no floating input")
    model, feeds, step = _precise(model, feeds, expected, single=single)
    run = _runner(model, feeds)
    base = run(feeds)
    for number, value in enumerate(model.graph.output):
        y = base[number]
        if not isinstance(y, np.ndarray):
            yield "no test", "an output is a sequence or an optional value"
        elif _is_floating(y) and y.size:
            rng = np.random.default_rng(number)
            project = rng.standard_normal(y.shape)
            found = functools.partial(_nth, run, number)
            yield from _one(model, value.name, wrt, feeds, found, project, step, times, draw)


def _array(value: Any) -> Any:
    """Tensors are also given as messages and as single numbers."""
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.generic) else value


def _settings(model: onnx.ModelProto) -> set[str]:
    """Inputs of floating numbers that are no data: gradients by them are refused."""
    places = {"Resize": (1, 2), "Upsample": (1,)}
    return {node.input[i] for node in model.graph.node for i in places.get(node.op_type, ()) if i < len(node.input)}


def _nth(run: Run, number: int, feeds: Feeds) -> Array:
    found: Array = run(feeds)[number]
    return found


def _one(
    model: onnx.ModelProto,
    of: str,
    wrt: list[str],
    feeds: Feeds,
    run: Callable[[Feeds], Array],
    weights: Array,
    step: float,
    times: int,
    draw: random.Random | None,
) -> Iterator[tuple[str, str]]:
    """Compares the gradients of an output; of more than one time, their gradients after them."""
    try:
        result = ll.gradient(model, of, wrt, seeds=True)
    except ll.UnsupportedOpError:
        if len(wrt) == 1:
            raise
        # Of which inputs there is one.
        for name in wrt:
            try:
                yield from _one(model, of, [name], feeds, run, weights, step, times, draw)
            except ll.UnsupportedOpError as error:
                yield "refused", str(error).splitlines()[0]
        return
    seed = weights.astype(run(feeds).dtype)
    drawn = [np.random.default_rng(number) for number in (7, 8)]
    directions, others = ({name: rng.uniform(-1, 1, feeds[name].shape) for name in wrt} for rng in drawn)
    for how, moved in _places(feeds, wrt):
        try:
            difference, uncertain = slope_along(run, moved, directions, weights, step)
        except UntestableError as reason:
            why = str(reason)
            continue
        fed = {**moved, f"seed/{of}": seed}
        try:
            run_gradients = _runner(result, fed)
        except Exception as error:
            raise _NotRunError(str(error)) from error
        outputs = [value.name for value in result.graph.output]
        made = dict(zip(outputs, run_gradients(fed), strict=True))
        # Of a gradient's gradient the plain name is taken.
        known = {value.name for value in model.graph.output}
        names = {name: f"grad/{of}/{name}" if f"grad/{name}" in known else f"grad/{name}" for name in wrt}
        for name in wrt:
            gradient = made[names[name]]
            if gradient.shape != feeds[name].shape or gradient.dtype != feeds[name].dtype:
                yield "wrong", f"{name}: {gradient.dtype}{gradient.shape} for {feeds[name].dtype}{feeds[name].shape}"
                return
        terms = [made[names[name]].astype(np.float64) * directions[name] for name in wrt]
        analytic = float(sum(term.sum() for term in terms))
        scale = max(1.0, abs(difference), *(float(np.abs(term).sum()) for term in terms))
        if not abs(analytic - difference) <= (1e-7 if step == STEP else 2e-2) * scale + 10 * uncertain:
            try:  # kinks of several numbers may cancel along one direction
                slope_along(run, moved, others, weights, step)
            except UntestableError as reason:
                why = str(reason)
                continue
            yield "wrong", f"{of} by {', '.join(wrt)}: {analytic:.8g} instead of {difference:.8g}"
            return
        yield "right", how
        again_of = wrt if draw is None else [draw.choice(wrt)]
        for name in again_of if times > 1 else []:
            again = functools.partial(_nth, run_gradients, outputs.index(names[name]))
            project = np.random.default_rng(len(name)).standard_normal(made[names[name]].shape)
            yield from _one(result, names[name], [*wrt, f"seed/{of}"], fed, again, project, step, times - 1, draw)
        return
    yield "no test", why


def _places(feeds: Feeds, wrt: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "", dict(feeds)
    for size in (0.01, 0.1):
        rng = np.random.default_rng(3)
        noise = {
            name: np.asarray(feeds[name] + size * rng.uniform(-1, 1, feeds[name].shape), feeds[name].dtype)
            for name in wrt
        }
        yield "beside a kink", {**feeds, **noise}


def slope_along(
    run: Callable[[Feeds], Array], feeds: Feeds, directions: Feeds, weights: Array, step: float
) -> tuple[float, float]:
    """The derivative along a direction, and how uncertain it is: some kernels compute float64 in float32.

    Raises:
        UntestableError: there is none, or it is not the same on both sides.
    """

    def at(distance: float) -> float:
        fed = {name: np.asarray(feeds[name] + distance * d, feeds[name].dtype) for name, d in directions.items()}
        try:
            found = run({**feeds, **fed})
        except Exception as error:
            raise UntestableError(f"refuses data beside the published ones: {error}".splitlines()[0][:100]) from error
        if found.shape != weights.shape:
            raise UntestableError("the shape of the result depends on the data")
        return float((found.astype(np.float64) * weights).sum())

    middle = at(0)
    if not np.isfinite(middle):
        raise UntestableError("not finite")
    if at(0) != middle:
        raise UntestableError("random")
    values = {k: at(k * step) for k in (-4, -2, -1, 1, 2, 4)}
    if not all(np.isfinite([middle, *values.values()])):
        raise UntestableError("not finite")
    central = (8 * (values[1] - values[-1]) - (values[2] - values[-2])) / (12 * step)
    coarse = (8 * (values[2] - values[-2]) - (values[4] - values[-4])) / (24 * step)
    sides = [(-3 * middle + 4 * values[s] - values[2 * s]) / (2 * s * step) for s in (1, -1)]
    tolerance = (1e-3 if step == STEP else 5e-2) * max(1.0, abs(central))
    if max(central, coarse, *sides) - min(central, coarse, *sides) > tolerance:
        raise UntestableError("no derivative: the data lie on a kink or a step, and so do those beside them")
    return central, abs(central - coarse)


def _is_floating(value: Any) -> bool:
    return isinstance(value, np.ndarray) and str(value.dtype) in ("float16", "bfloat16", "float32", "float64")


def _precise(
    model: onnx.ModelProto, feeds: Feeds, expected: list[Any], *, single: bool
) -> tuple[onnx.ModelProto, Feeds, float]:
    """The test in float64 with its data and the step of differences; as published where that does not run, or asked."""
    work = onnx.ModelProto()
    work.CopyFrom(model)
    work.ir_version = max(work.ir_version, 8)
    widen(work.graph)
    wide = {name: value.astype(np.float64) if _is_floating(value) else value for name, value in feeds.items()}
    reason = ""
    is_wide = all(value.dtype == np.float64 for value in feeds.values() if _is_floating(value))
    for candidate, fed, step in ((work, wide, STEP), (model, feeds, STEP if is_wide else 1e-2))[single:]:
        try:
            onnx.checker.check_model(candidate, full_check=True)
            found = _runner(candidate, fed)(fed)
        except Exception as error:  # noqa: BLE001 (whichever runtime it is)
            reason = f"neither runtime runs it: {error}".splitlines()[0][:100]
            continue
        if _alike(found, expected) or step != STEP:
            if any(str(value.dtype) in ("float16", "bfloat16") for value in fed.values()):
                raise UntestableError("only in a half, too coarse for differences")
            return candidate, fed, step
    raise UntestableError(reason)


def _alike(found: list[Any], expected: list[Any]) -> bool:
    """Whether floating results are about those that the test says; onnx's evaluator takes some operators otherwise."""
    pairs = [(a, b) for a, b in zip(found, expected, strict=False) if _is_floating(b)]
    return all(
        np.shape(a) == b.shape and np.allclose(a, b.astype(a.dtype), 1e-2, 1e-2, equal_nan=True) for a, b in pairs
    )


def _runner(model: onnx.ModelProto, feeds: Feeds) -> Run:
    """Runs a model in onnxruntime; in onnx's reference evaluator where onnxruntime refuses it.

    Raises:
        Exception: both refuse it.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # which crashes on some
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        session.run(None, dict(feeds))
    except Exception as error:  # noqa: BLE001 (onnxruntime's errors have no common class)
        try:
            reference = evaluator(model)
            reference.run(None, dict(feeds))
        except Exception as other:  # noqa: BLE001 (nor have the evaluator's)
            raise RuntimeError(f"{error}; and onnx's evaluator: {other}") from error
        return lambda fed: list(reference.run(None, dict(fed)))
    return lambda fed: list(session.run(None, dict(fed)))


def table(outcomes: list[Outcome]) -> str:
    """A row per operator, and every reason."""
    kinds = ("right", "fixed", "refused", "wrong", "no test")
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for one in outcomes:
        counts[one.op][one.kind] += 1
        counts["all"][one.kind] += 1
    ordered = sorted(counts, key=lambda op: (op == "all", op))
    lines = [f"{'operator':32}" + "".join(f"{kind:>10}" for kind in kinds)]
    lines += [f"{op:32}" + "".join(f"{counts[op][kind] or '':>10}" for kind in kinds) for op in ordered]
    for kind in ("no test", "fixed", "refused", "wrong"):
        reasons: dict[str, list[str]] = collections.defaultdict(list)
        for one in outcomes:
            if one.kind == kind:
                reasons[one.reason].append(one.test)
        lines += ["", f"{kind}:"] + [f"  {reason}\n    {' '.join(tests)}" for reason, tests in sorted(reasons.items())]
    moved = [one.test for one in outcomes if one.kind == "right" and one.reason]
    lines += ["", f"right beside the published data, which lie on a kink: {len(moved)}", "  " + " ".join(moved)]
    return "\n".join(lines)
