"""A program's runs here next to TensorFlow's."""

from __future__ import annotations

import dataclasses
import random
import re
import tempfile
import traceback
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

import lstm_lower as ll
from lstm_lower.records import state as training_state
from tests.support.fuzz.tf_programs.forms import Outcome, built, feeds_of, nudged
from tests.support.fuzz.tf_programs.programs import Program
from tests.support.fuzz.tf_programs.scope import Array

# Of programs that hold float32 somewhere, and of others.
COARSE, FINE = 2e-5, 1e-9
SCHEDULES = ("auto", "auto", "auto", "scan", "unroll", "chunk:1", "chunk:2")
Stage = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Finding:
    """What came of a program.

    Attributes:
        kind: `passed`, `refused`, `invalid`, `not decided`, or what sort of fault.
        detail: what exactly.
        wrong: which results.
    """

    kind: str
    detail: str = ""
    wrong: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        return self.kind.startswith(("wrong", "raises", "dies"))


def judged(made: Program, stage: Stage = lambda _: None) -> Finding:
    """Builds a program, runs it in TensorFlow, imports it, and compares."""
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _judged(made, Path(name), stage)


def _judged(made: Program, folder: Path, stage: Stage) -> Finding:
    draw = random.Random(made.seed)
    schedule, opset = draw.choice(SCHEDULES), draw.choice([None, None, 18, 21, 13, 16, 20, 22, 23])
    stage("original")
    try:
        graph = built(made, folder)
    except Exception as error:  # noqa: BLE001 (TensorFlow's own exceptions have no common base)
        return Finding("invalid", f"{type(error).__name__}: {str(error)[:300]}")
    stage("import")
    refused = None
    try:
        model = graph.imported(opset)
        stage("lower")
        lowered = ll.lower(model, schedule=schedule)
    except ll.LstmLowerError as error:
        refused = str(error)
    except Exception as error:  # noqa: BLE001 (any other is a fault)
        return Finding(f"raises {type(error).__name__}", traceback.format_exc()[-1500:])
    stage("original")
    feeds = feeds_of(made)
    try:
        theirs = graph.truth(feeds)
    except Exception as error:  # noqa: BLE001
        return Finding("invalid in a run", f"{type(error).__name__}: {str(error)[:300]}")
    if refused is not None:
        return Finding("refused", refused)
    stage("run")
    try:
        ours = run(lowered, feeds[: len(theirs.results)], graph.start)
    except Exception as error:  # noqa: BLE001
        return Finding("raises in onnxruntime", f"{schedule} {opset}: {type(error).__name__}: {str(error)[:600]}")
    tolerance = COARSE if made.is_coarse else FINE
    wrong = differences(ours, theirs, {}, [], tolerance)
    if wrong:
        stage("original")
        wrong = differences(ours, theirs, *_noise(made, folder, graph.start), tolerance)
    if not wrong:
        return Finding("passed")
    detail = "; ".join(f"{name}: {text}" for name, text in wrong.items())
    return Finding("wrong " + _sort(next(iter(wrong.values()))), f"{schedule} {opset}: {detail}", tuple(wrong))


def judged_keras(seed: int, stage: Stage = lambda _: None) -> Finding:
    """Builds a Keras model, exports its step, and compares three of them with Keras."""
    from tests.support.fuzz.tf_programs import keras_models

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stage("original")
        try:
            made = keras_models.task(seed)
            expected = keras_models.theirs(keras_models.task(seed))
        except Exception as error:  # noqa: BLE001 (layers that do not fit each other, gradients that Keras has not)
            return Finding("invalid", f"{type(error).__name__}: {str(error)[:300]}")
        stage("from_keras and steps")
        made = keras_models.task(seed)
        layers = ", ".join(type(layer).__name__ for layer in made.model.layers)
        what = f"{layers}; {made.loss if isinstance(made.loss, str) else made.loss.name}; {made.optimizer.name}: "
        try:
            got = keras_models.ours(made)
        except ll.LstmLowerError as error:
            return Finding("refused", str(error))
        except Exception:  # noqa: BLE001 (any other is a fault)
            return Finding("raises in Keras", what + traceback.format_exc()[-1500:])
        wrong = differences(got, expected, {}, [])
        if wrong:
            stage("original")
            moved = [keras_models.theirs(keras_models.task(seed), moved=number) for number in range(1, 5)]
            wrong = differences(got, expected, {}, moved)
    if not wrong:
        return Finding("passed")
    return Finding("wrong in Keras", what + "; ".join(f"{name}: {text}" for name, text in wrong.items()), tuple(wrong))


def _sort(text: str) -> str:
    return re.sub(r" [\d\[].*", "", text)


def run(model: onnx.ModelProto, feeds: list[dict[str, Array]], start: Mapping[str, Array]) -> Outcome:
    """The lowered model, which has the variables' first values."""
    pairs = training_state.parse({entry.key: entry.value for entry in model.metadata_props}).pairs
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    wanted = {re.sub(":0$", "", value.name): value.name for value in session.get_inputs()}
    state: dict[str, Array] = {}
    results = []
    written: dict[str, Array] = {}
    for feed in feeds:
        given = {wanted[name]: array for name, array in feed.items() if name in wanted}
        found = dict(zip(names, map(np.asarray, session.run(None, given | state)), strict=True))
        state = {pair.input: found[pair.output] for pair in pairs if pair.output}
        written |= {re.sub("(:0)?$", "", n).removesuffix("/new"): value for n, value in found.items() if "/new" in n}
        results.append(
            {
                re.sub(":0$", "", name).removeprefix("result_"): value
                for name, value in found.items()
                if "/new" not in name
            }
        )
    return Outcome(results, dict(start) | written)


def _noise(made: Program, folder: Path, start: Mapping[str, Array]) -> tuple[dict[str, Array], list[Outcome]]:
    """TensorFlow's results in float64 where it has them, and with moved inputs and weights."""
    moved = []
    for number in range(1, 4):
        rng = np.random.default_rng(number)
        nearby = {name: nudged(array, rng) if array.dtype.kind == "f" else array for name, array in start.items()}
        moved.append(built(made, folder, start=nearby).truth(feeds_of(made, moved=number)))
    try:
        broad = {name: array.astype("float64") if array.dtype == "float32" else array for name, array in start.items()}
        exact = flat(built(made, folder, wide=True, start=broad).truth(feeds_of(made, wide=True)))
    except Exception:  # noqa: BLE001 (ops without a float64 kernel)
        exact = {}
    return exact, moved


def flat(outcome: Outcome) -> dict[str, Array]:
    results = {f"{name} of run {n}": value for n, run_ in enumerate(outcome.results) for name, value in run_.items()}
    return results | {f"variable {name}": value for name, value in outcome.state.items()}


def differences(
    ours: Outcome, theirs: Outcome, exact: Mapping[str, Array], moved: list[Outcome], tolerance: float = COARSE
) -> dict[str, str]:
    """What differs by more than rounding, by name."""
    mine, expected = flat(ours), flat(theirs)
    others = [flat(outcome) for outcome in moved]
    wrong = {}
    for name, value in expected.items():
        text = (
            "missing"
            if name not in mine
            else _differs(mine[name], value, exact.get(name), [o.get(name) for o in others], tolerance)
        )
        if text:
            wrong[name] = text
    return wrong


def _differs(got: Array, expected: Array, exact: Array | None, moved: list[Any], tolerance: float) -> str:
    if got.dtype != expected.dtype:
        return f"dtype {expected.dtype} became {got.dtype}"
    if got.shape != expected.shape:
        return f"shape {list(expected.shape)} became {list(got.shape)}"
    if expected.dtype.kind != "f":
        same = got == expected
        for other in moved:
            same |= other != expected if other is not None and other.shape == expected.shape else True
        return "" if np.all(same) else f"values {got[~same][:3]} instead of {expected[~same][:3]}"
    with np.errstate(all="ignore"):
        a, b = got.astype("float64"), expected.astype("float64")
        spread = np.zeros_like(b)
        for other in moved:
            if other is None or other.shape != b.shape:
                return ""
            distance = np.abs(other.astype("float64") - b)
            spread = np.maximum(
                spread,
                np.where(
                    np.isfinite(other) & np.isfinite(b),
                    distance,
                    np.where(np.isnan(other) & np.isnan(b) | (other == b), 0, np.inf),
                ),
            )
        finite = np.isfinite(b)
        scale = np.abs(b[finite]).max(initial=0)
        allowed = tolerance * max(scale, 1e-3) + 8 * spread.max(initial=0)
        if exact is not None and exact.shape == b.shape:
            own = np.abs(exact - b)[finite & np.isfinite(exact)]
            allowed += 3 * own.max(initial=0)
        same = np.where(finite, np.abs(a - b) <= allowed, (a == b) | (np.isnan(a) & np.isnan(b)) | ~np.isfinite(spread))
    if same.all():
        return ""
    odd = ~same
    kind = "values" if np.isfinite(b[odd]).all() and np.isfinite(a[odd]).all() else "infinite values"
    return f"{kind} {a[odd][:3]} instead of {b[odd][:3]}, up to {np.abs(a - b)[odd].max():.3g} of {scale:.3g}"
