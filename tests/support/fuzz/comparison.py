"""Does a pass leave a program what it was? What onnxruntime makes of the original, its optimiser off, is the truth."""

from __future__ import annotations

import dataclasses
import functools
import re
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.inliner

import lstm_lower as ll
from lstm_lower.passes.loops.views.loop_pass import LoopPass
from lstm_lower.passes.opset.conversion import ConvertOpsetPass
from lstm_lower.passes.tidy import UniqueNamesPass, VerifyPass
from lstm_lower.records.model_files import load, to_proto
from lstm_lower.runtime.session import _loadable
from tests.support.fuzz.noise import declared, perturbed, undeclared
from tests.support.fuzz.runs import evaluated, open_session, run_open
from tests.support.fuzz.scope import tensor_in
from tests.support.fuzz.sparse import sparsely_written
from tests.support.loop_passes import keeping_passes

Array = np.ndarray[Any, Any]
Results = list[Any]
Feeds = Mapping[str, Any]

SCHEDULES = ("auto", "scan", "unroll", "chunk:1", "chunk:2", "chunk:3")

# Seconds of processor time that a program of a few dozen nodes may take; a pass that does not end would take longer.
SLOW = 30.0

# onnxruntime's optimiser breaks such models, whoever wrote them: a Reshape that it puts around a product reads a size
# of 0 as a copy, it takes nested choices of known conditions in the wrong order and forgets what it renamed there.
FAULTS_OF_THE_OPTIMISER = (
    "MatMulAddFusion",
    "gemm_input_reshape",
    "gemm_output_reshape",
    "InlineIfSubgraph",
    "Missing Input: _if_",
    "is not a graph input, initializer, or output of a previous node",
)
# onnx's inference reads axes of a Pad as int64, though they may be int32.
FAULTS_OF_THE_CHECKER = ("(op_type:Pad", "Expected:int64 Actual:int32")

_TOLERANCE = {2: 1e-2, 4: 2e-5, 8: 1e-10}


@dataclasses.dataclass(frozen=True)
class Case:
    """One way through the compiler.

    `optimize` under a schedule, `lower` to an opset (0 for the model's own) or for a target, with sizes or not, or some
    passes, each called alone, or what a session opens; at times of the same model with sparse tensors.
    """

    schedule: str = "auto"
    opset: int | None = None
    verify_each: bool = False
    passes: tuple[str, ...] = ()
    target: str | None = None
    sizes: tuple[tuple[str, int], ...] = ()
    sparse: bool = False
    session: bool = False

    def __str__(self) -> str:
        way = (
            f"optimize {self.schedule}" if self.opset is None else f"lower {self.schedule} opset {self.opset or 'own'}"
        )
        way += "" if self.target is None else f" target {self.target}"
        way = "session" if self.session else way
        return (", ".join(self.passes) or way) + " --verify-each" * self.verify_each + " sparse" * self.sparse

    def apply(self, model: onnx.ModelProto) -> onnx.ModelProto:
        model = sparsely_written(model) if self.sparse else model
        if self.passes:
            work = load(model)
            # Shapes that onnx's inference has declared and that are none are put right before a pass is judged by them.
            VerifyPass()(work)
            ConvertOpsetPass()(work)  # passes see no older models
            steps = [keeping_passes()[name] for name in self.passes]
            if not all(isinstance(step, LoopPass) for step in steps):
                UniqueNamesPass()(work)  # only loop passes do so themselves
            for step in steps:
                step.verify_each = self.verify_each
                step(work)
            return to_proto(work)
        if self.session:
            return to_proto(_loadable(model, [])[1])
        if self.target is not None:
            # A model that is made small has fewer.
            left = {dim.dim_param for value in model.graph.input for dim in tensor_in(value.type).shape.dim}
            given: dict[str, Any] = {"sizes": {name: size for name, size in self.sizes if name in left} or None}
            return ll.lower(model, None, self.schedule, verify_each=self.verify_each, target=self.target, **given)
        if self.opset is None:
            return ll.optimize(model, self.schedule, verify_each=self.verify_each)
        return ll.lower(model, self.opset or None, self.schedule, verify_each=self.verify_each)


@dataclasses.dataclass(frozen=True)
class Failure:
    """What went wrong in a case.

    Attributes:
        case: which way through the compiler.
        kind: what sort of fault; two failures of a kind are taken to be alike while a model is reduced.
        detail: what exactly.
    """

    case: Case
    kind: str
    detail: str


class UnsteadyError(Exception):
    """The original gives other results each time: it draws random numbers, or onnxruntime reads what nobody wrote."""


class Truth:
    """What the original computes from its feeds, at both levels of onnxruntime."""

    def __init__(self, model: onnx.ModelProto, feeds: Sequence[Feeds]) -> None:
        self.model = model
        plain = open_session(model)
        self.names = [value.name for value in plain.get_outputs()]
        self.feeds = list(feeds)
        self.results = [run_open(plain, entry) for entry in self.feeds]
        again = [run_open(plain, entry) for entry in self.feeds]
        for first, second in zip(self.results, again, strict=True):
            if any(_differs(*pair) for pair in zip(first, second, strict=True)):
                raise UnsteadyError("two runs of the original differ")
        for results in self.results:
            if not all(fits(*pair) for pair in zip(model.graph.output, results, strict=True)):
                # onnxruntime makes a Loop without iterations have sizes of 0, whatever the model says.
                raise UnsteadyError("the original's results are not what it declares")
        self.optimised = self._left_alone(model)
        self.is_checked = not _refused(model)
        self._spread: dict[int, Results] = {}

    @functools.cached_property
    def is_left_alone_inlined(self) -> bool:
        """Whether the runtime's own optimiser leaves the results what they are where functions are inlined, too."""
        return not self.model.functions or all(self._left_alone(onnx.inliner.inline_local_functions(self.model)))

    @functools.cached_property
    def is_evaluated(self) -> bool:
        """Whether onnx's reference evaluator finds the same as onnxruntime for the first feeds."""
        found = evaluated(self.model, self.feeds[0])
        return found is not None and all(not _differs(*pair) for pair in zip(self.results[0], found, strict=True))

    def _left_alone(self, model: onnx.ModelProto) -> list[bool]:
        """For which feeds the runtime's own optimiser leaves the results what they are."""
        try:
            session = open_session(model, optimised=True)
        except Exception:  # noqa: BLE001 (onnxruntime's exceptions have no common base)
            return [False] * len(self.feeds)
        same = []
        for entry, expected in zip(self.feeds, self.results, strict=True):
            try:
                same.append(all(not _differs(*pair) for pair in zip(expected, run_open(session, entry), strict=True)))
            except Exception:  # noqa: BLE001
                same.append(False)
        return same

    def spread(self, index: int) -> Results:
        """How far the outputs move when the program is written a little otherwise: what is within that is no fault."""
        if index not in self._spread:
            runs = [self.results[index]]
            for change in [undeclared, declared, *(functools.partial(perturbed, seed=seed) for seed in range(4))]:
                try:
                    runs.append(run_open(open_session(change(self.model)), self.feeds[index]))
                except Exception:  # noqa: BLE001 (a size may have come from a rounded number)
                    continue
            self._spread[index] = [_range_of(list(versions)) for versions in zip(*runs, strict=True)]
        return self._spread[index]


def _range_of(versions: list[Any]) -> Any:
    """Largest minus smallest, or infinity where they cannot be compared."""
    if isinstance(versions[0], list):
        return np.inf
    if any(version.shape != versions[0].shape for version in versions):
        return np.inf
    stack = np.stack([version.astype(np.float64) for version in versions])
    with np.errstate(all="ignore"):
        distance = stack.max(0) - stack.min(0)
    return np.where(np.isfinite(distance), distance, np.where(np.isnan(stack).all(0), 0, np.inf))


def _differs(expected: Any, got: Any, spread: Any = 0.0) -> str:
    """What differs between two results, or nothing."""
    if np.ndim(spread) == 0 and np.isinf(spread):
        return ""
    if isinstance(expected, list) or isinstance(got, list):
        if type(expected) is not type(got) or len(expected) != len(got):
            return "sequences differ in length"
        return next((text for pair in zip(expected, got, strict=True) if (text := _differs(*pair))), "")
    if expected.dtype != got.dtype:
        return f"dtype {expected.dtype} became {got.dtype}"
    if expected.shape != got.shape:
        if not got.size and (_zeros_in(expected.shape, got.shape) or _zeros_in(got.shape, expected.shape)):
            return ""  # sizes that a Loop without iterations does not know are 0 in onnxruntime
        return f"shape {list(expected.shape)} became {list(got.shape)}"
    if expected.dtype.kind != "f":
        wrong = (expected != got) & (np.asarray(spread) == 0)
        return f"values {_some(expected, wrong)} became {_some(got, wrong)}" if wrong.any() else ""
    left, right = expected.astype(np.float64), got.astype(np.float64)
    with np.errstate(all="ignore"):
        finite = np.abs(left[np.isfinite(left)])
        allowed = _TOLERANCE[expected.dtype.itemsize] * (1 + finite.max(initial=0)) + 10 * np.asarray(spread)
        same = (left == right) | (np.isnan(left) & np.isnan(right)) | (np.abs(left - right) <= allowed)
        same |= np.isinf(np.broadcast_to(spread, same.shape))
    return "" if same.all() else f"values {_some(expected, ~same)} became {_some(got, ~same)}"


def _zeros_in(shape: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether a shape is another one but for zeros."""
    return len(shape) == len(other) and all(a in (0, b) for a, b in zip(shape, other, strict=True))


def _some(array: Array, where: Array) -> list[Any]:
    return array[where][:4].tolist()


def failures(
    model: onnx.ModelProto,
    feeds: Sequence[Feeds],
    cases: Sequence[Case],
    *,
    levels: Sequence[bool] = (False, True),
    stage: Callable[[str], None] = lambda _: None,
) -> list[Failure]:
    """Runs a valid program through the compiler in several ways.

    Args:
        model: the program.
        feeds: sets of feeds that it runs on.
        cases: ways through the compiler.
        levels: levels of onnxruntime: its optimiser off, on.
        stage: told what comes next.

    Returns:
        One failure a case, at most.
    """
    truth = Truth(model, feeds)
    found = []
    seen: set[bytes] = set()
    for case in cases:
        stage(str(case))
        argument = onnx.ModelProto()
        argument.CopyFrom(model)
        kind, detail, result = _apply(case, argument)
        if result is not None:
            data = result.SerializeToString(deterministic=True)
            if data not in seen:
                seen.add(data)
                wrong = _judge(case, truth, result, levels)
                kind, detail = wrong if wrong[0] else (kind, detail)
        if kind:
            found.append(Failure(case, kind, detail))
    return found


def fails_alike(model: onnx.ModelProto, feeds: Sequence[Feeds], failure: Failure) -> bool:
    """Whether a model is valid and has a failure of this kind in this case."""
    try:
        onnx.checker.check_model(model, full_check=True)
        found = failures(model, feeds, [failure.case])
    except Exception:  # noqa: BLE001 (not valid, then)
        return False
    return any(other.kind == failure.kind for other in found)


def _apply(case: Case, model: onnx.ModelProto) -> tuple[str, str, onnx.ModelProto | None]:
    before = model.SerializeToString(deterministic=True)
    start = time.process_time()
    try:
        result = case.apply(model)
    except Exception as error:  # noqa: BLE001 (any error on a valid program is a finding)
        if isinstance(error, ll.UnsupportedOpError) and (case.opset is not None or case.target is not None):
            return "", "", None  # a domain that is not ours, or an operator that the opset or the target lacks
        where = traceback.extract_tb(error.__traceback__)[-1]
        text = re.sub(r"\s+", " ", str(error))
        ours = "refused" if isinstance(error, ll.LstmLowerError) else "raises"
        kind = f"{ours} {type(error).__name__} {_place(error)}"
        return kind, f"{text[:400]} ({where.filename.rpartition('/')[2]}:{where.lineno} {where.name})", None
    if time.process_time() - start > SLOW:
        return "slow", f"{time.process_time() - start:.0f} s", None
    if model.SerializeToString(deterministic=True) != before:
        return "argument changed", "the model given was changed", result
    return "", "", result


def _place(error: BaseException) -> str:
    """The innermost function of ours that the error passed through."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if any(f"/{folder}/" in frame.filename for folder in ("passes", "lstm_lower", "runtime"))
        and "site-packages" not in frame.filename
    ]
    return f"{frames[-1].filename.rpartition('/')[2]}:{frames[-1].name}" if frames else ""


def _judge(case: Case, truth: Truth, result: onnx.ModelProto, levels: Sequence[bool]) -> tuple[str, str]:
    if truth.is_checked and (refusal := _refused(result)):
        return "checker refuses", refusal[:600]
    before = [value.name for value in truth.model.graph.input]
    if [value.name for value in result.graph.input] != before:
        return "inputs", f"{before} became {[value.name for value in result.graph.input]}"
    for optimised in levels:
        wrong = _judge_level(case, truth, result, optimised=optimised)
        if wrong[0] and (not optimised or truth.is_left_alone_inlined):
            return wrong
    if not case.passes and truth.is_evaluated and (got := evaluated(result, truth.feeds[0])) is not None:
        text = _compare(truth, 0, got)
        return ("values (evaluator)", f"feeds 0: {text}") if text else ("", "")
    return "", ""


def _judge_level(case: Case, truth: Truth, result: onnx.ModelProto, *, optimised: bool) -> tuple[str, str]:
    # What onnxruntime's optimiser breaks, or dies of, only the whole pipeline writes otherwise.
    if optimised and (case.passes or not any(truth.optimised)):
        return "", ""
    level = "optimised" if optimised else "plain"
    try:
        session = open_session(result, optimised=optimised)
    except Exception as error:  # noqa: BLE001
        if case.opset and "Could not find an implementation" in str(error):
            return "", ""  # onnxruntime lacks kernels of newer versions
        if optimised and _is_known(error):
            return "", ""
        return f"onnxruntime refuses ({level})", str(error)[:600]
    if [value.name for value in session.get_outputs()] != truth.names:
        return "outputs", f"{truth.names} became {[value.name for value in session.get_outputs()]}"
    for index, feeds in enumerate(truth.feeds):
        if optimised and not truth.optimised[index]:
            continue
        try:
            got = run_open(session, feeds)
        except Exception as error:  # noqa: BLE001
            if optimised and _is_known(error):
                break
            return f"onnxruntime fails ({level})", f"feeds {index}: {str(error)[:600]}"
        if (text := _compare(truth, index, got)) or (text := _declared(result, truth, index)):
            kind = text.split()[1]
            return f"{kind} ({level})", f"feeds {index}: {text}"
    return "", ""


def _refused(model: onnx.ModelProto) -> str:
    """What onnx's checker says against a model; it refuses some of onnx's own node tests."""
    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception as error:  # noqa: BLE001
        known = all(words in str(error) for words in FAULTS_OF_THE_CHECKER)
        return "" if known else str(error)
    return ""


def _is_known(error: Exception) -> bool:
    return any(name in str(error) for name in FAULTS_OF_THE_OPTIMISER)


def _compare(truth: Truth, index: int, got: Results) -> str:
    for number, (name, expected, value) in enumerate(zip(truth.names, truth.results[index], got, strict=True)):
        if _differs(expected, value):
            text = _differs(expected, value, truth.spread(index)[number])
            if text:
                return f"{name}: {text}"
    return ""


def _declared(result: onnx.ModelProto, truth: Truth, index: int) -> str:
    """What the result declares of its outputs against what came out, where the original declares no such thing."""
    for before, value, sample in zip(truth.model.graph.output, result.graph.output, truth.results[index], strict=True):
        if not fits(value, sample) and fits(before, sample):
            return f"{value.name}: declared {_sizes(value)}, but it has {list(sample.shape)}"
    return ""


def fits(value: onnx.ValueInfoProto, sample: Any) -> bool:
    """Whether a result has the sizes that the model declares of it."""
    if isinstance(sample, list) or not value.type.tensor_type.HasField("shape"):
        return True
    known = _sizes(value)
    return len(known) == sample.ndim and all(a in (None, b) for a, b in zip(known, sample.shape, strict=True))


def _sizes(value: onnx.ValueInfoProto) -> list[int | None]:
    return [dim.dim_value if dim.HasField("dim_value") else None for dim in value.type.tensor_type.shape.dim]
