"""The proof of an import: a graph's runs here next to TensorFlow's, on the same feeds and from the same weights.

TensorFlow itself runs the graph that was imported, so that everything is covered that an import does: what each op
means, in which order assignments happen, what loops and branches carry. How far TensorFlow's own rounding goes is told
by the same graph in float64, and by runs from numbers that are moved by a unit in their last place.
"""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
import onnx
import onnx_ir as ir

from lstm_lower.errors import InvalidInputError, LstmLowerError, LstmLowerWarning, UnsupportedOpError, some
from lstm_lower.passes.lower import lower
from lstm_lower.records import certificate
from lstm_lower.records import state as training_state
from lstm_lower.records.certificate import Kind
from lstm_lower.records.model_files import load
from lstm_lower.runtime.feeds import required_inputs
from lstm_lower.runtime.proof import steps as proof
from lstm_lower.runtime.proof.comparison import (
    AGREE,
    NOT_DECIDED,
    OUT_OF_TOLERANCE,
    PASSED,
    coarsest_dtype,
    overall,
    tolerance,
)
from lstm_lower.runtime.proof.steps import NOT_FINITE, Runs, StepRow
from lstm_lower.runtime.session import Session
from lstm_lower.tensorflow import original as tensorflow
from lstm_lower.tensorflow.comparison_graphs import all_nodes, fix_draws
from lstm_lower.tensorflow.conversion import Weights, converted
from lstm_lower.tensorflow.feed_search import FeedSearch, is_rate
from lstm_lower.tensorflow.files.functions import OpTable
from lstm_lower.tensorflow.files.views import View
from lstm_lower.tensorflow.model import OpenRankError
from lstm_lower.tensorflow.original import Original, Runner, TensorFlowRefusedError
from lstm_lower.tensorflow.races import affected, races
from lstm_lower.tensorflow.sources import GraphSource
from lstm_lower.tensorflow.tensor_types import Shape

Array = np.ndarray[Any, Any]

# Ranks that are tried of inputs of which nothing tells it, seeds of weights and feeds, and how often numbers are moved.
_RANKS, _SEEDS, _MOVES = (1, 2, 3), 3, 4

# Of these a row says nothing.
_UNDECIDED = (NOT_DECIDED, NOT_FINITE)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """What came of it.

    Attributes:
        rows: a row for each output and each variable that a run changes.
        steps: number of runs.
        draws: draws of random numbers, which are the same fixed numbers for both.
        float64: why TensorFlow could not run the graph in float64; `None` where it did.
        rtol: tolerated error relative to the largest magnitude.
        atol: tolerated absolute error on top.
        feeds: shapes of what was fed, by input.
        races: variables that the graph reads and writes in no order, on which rows depend that are not decided.
    """

    rows: list[StepRow]
    steps: int
    draws: list[str]
    float64: str | None
    rtol: float
    atol: float
    feeds: dict[str, list[int]]
    races: list[str] = dataclasses.field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether something could be compared, and all of that agrees."""
        return self.verdict == PASSED

    @property
    def verdict(self) -> str:
        """`passed`; `not decided`, where nothing is wrong, but something cannot be told; or `failed`."""
        told = {row.verdict for row in self.rows} - {"random"}
        return overall({NOT_DECIDED if verdict == NOT_FINITE else verdict for verdict in told})


@dataclasses.dataclass(frozen=True)
class Import:
    """How a graph is imported.

    Attributes:
        source: opens the graph, anew each time.
        inputs: as `from_tensorflow` takes them, and so what follows.
        outputs: which tensors and assignments are compared.
        shapes: sizes of inputs.
        state: further pairs of an input and its next value.
        weights: what becomes of variables.
        opset: version of `ai.onnx`.
    """

    source: Callable[[], GraphSource]
    inputs: Sequence[str] | None = None
    outputs: Sequence[str] | None = None
    shapes: Mapping[str, Shape] = dataclasses.field(default_factory=dict)
    state: Mapping[str, str] | None = None
    weights: Weights | None = None
    opset: int | None = None

    def fixed(self) -> tuple[GraphSource, list[str]]:
        """The graph with fixed numbers for random ones, and the names of those draws."""
        source = self.source()
        return source, fix_draws(source.graph_def)

    def model(self) -> ir.Model:
        """The model of that graph; errors as `from_tensorflow`'s."""
        return load(
            converted(
                self.fixed()[0], inputs=self.inputs, outputs=self.outputs, opset=self.opset, weights=self.weights,
                shapes=self.shapes, state=self.state,
            )
        )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Lowering:
    """How the lowered model runs.

    Attributes:
        schedule: as `lower` takes it.
        providers: as `Session` takes them, and so what follows.
        precision: in which a provider computes.
    """

    schedule: str = "auto"
    providers: list[str] | None = None
    precision: str | None = None


def compare_with_tensorflow(
    imported: Import,
    given: Mapping[str, Array] | None = None,
    sizes: Mapping[str, int] | None = None,
    *,
    seed: int = 0,
    steps: int = 3,
    tolerances: tuple[float | None, float | None] = (None, None),
    lowering: Lowering | None = None,
) -> Comparison:
    """Imports a graph, lowers it, and runs it here and in TensorFlow on the same feeds and weights.

    Feeds that TensorFlow refuses are replaced, guided by what it says of them, and where some numbers decide nothing,
    others are tried.

    Args:
        imported: the graph.
        given: feeds by input; all others are random.
        sizes: sizes of symbolic dimensions of inputs.
        seed: of feeds and of weights without values.
        steps: number of runs, each from the state that the run before left.
        tolerances: relative to the largest magnitude, and absolute; `None` for those of the model's dtype.
        lowering: how the model runs here.

    Raises:
        InvalidInputError: names or feeds do not fit, TensorFlow cannot run the graph, or it is not installed.
        InvalidModelError, UnsupportedOpError: as `from_tensorflow`'s and `lower`'s.
    """
    refused: LstmLowerError | None = None
    for number, attempt in enumerate(_of_any_rank(imported)):
        with warnings.catch_warnings():
            if number:
                warnings.simplefilter("ignore", LstmLowerWarning)
            try:
                with _Trial(attempt, given or {}, sizes or {}, seed) as trial:
                    return trial.comparison(seed, steps, tolerances, lowering or Lowering())
            except LstmLowerError as error:
                # What a rank that is only tried leads to tells nothing.
                if not (number or isinstance(error, (TensorFlowRefusedError, OpenRankError))):
                    raise
                refused = refused or error
    assert refused is not None
    raise refused


def certified(model: onnx.ModelProto, imported: Import) -> onnx.ModelProto:
    """The model with a record of what was compared.

    Args:
        model: what the import made. It is changed.
        imported: the graph.

    Raises:
        UnsupportedOpError: something differs from what TensorFlow computes; it is named.
        InvalidInputError: TensorFlow cannot run the graph, or is not installed.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LstmLowerWarning)
        found = compare_with_tensorflow(imported)
    framework = f"TensorFlow {tensorflow.version()}"
    wrong = [row for row in found.rows if row.verdict not in (*AGREE, *_UNDECIDED, "random")]
    if wrong:
        told = some([f"{row.kind} '{row.name}' ({_said(row)})" for row in wrong])
        raise UnsupportedOpError(
            f"the import requires a model that computes what {framework} does, got another {told}; check=False imports "
            "it as it is"
        )
    loss = training_state.parse({entry.key: entry.value for entry in model.metadata_props}).loss
    errors: dict[Kind, dict[str, float]] = {}
    for row in found.rows:
        if row.verdict in AGREE and row.relative is not None:
            kind: Kind = "update" if row.kind == "variable" else "loss" if row.name == loss else "output"
            errors.setdefault(kind, {})[row.name] = row.relative
    left = {row.name: row.verdict for row in found.rows if row.verdict not in AGREE}
    compared = certificate.Certificate(framework, found.feeds, errors, left)
    model.metadata_props.add(key=certificate.METADATA_KEY, value=certificate.written(compared))
    return model


def _said(row: StepRow) -> str:
    return row.verdict if row.relative is None else f"{row.verdict} by {row.relative:.1e} of the largest magnitude"


def _of_any_rank(imported: Import) -> Iterator[Import]:
    """The import, then with ranks of inputs that the graph leaves open: one for all of them, then for each alone."""
    yield imported
    names = [name for name in _open_ranks(imported) if name not in imported.shapes and not is_rate(name)]
    guesses = [dict.fromkeys(names, rank) for rank in _RANKS]
    guesses += [{name: rank} for name in names for rank in _RANKS] if len(names) > 1 else []
    for ranks in guesses if names else ():
        shapes = {name: [None] * rank for name, rank in ranks.items()}
        yield dataclasses.replace(imported, shapes={**imported.shapes, **shapes})


def _open_ranks(imported: Import) -> list[str]:
    """Inputs of whose rank the graph says nothing, by their public names."""
    source = imported.source()
    view = View(source.graph_def, OpTable(source.graph_def.library.function, source.op_defs), source.variables)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LstmLowerWarning)
        try:
            names = [str(value.name) for value in imported.model().graph.inputs if value.const_value is None]
        except OpenRankError as error:
            return error.names
        except LstmLowerError:
            return []
    tensors = {name: (source.inputs or {}).get(name, name) for name in names}
    return [name for name, x in tensors.items() if view.made_by(x)[0] is not None and view.shape(x) is None]


class _Trial:
    """A graph with its inputs' ranks, imported once, and open in TensorFlow."""

    def __init__(self, imported: Import, given: Mapping[str, Array], sizes: Mapping[str, int], seed: int) -> None:
        self.imported = imported
        self.model = imported.model()
        carried = {pair.input for pair in training_state.read(self.model).pairs}
        inputs = [value for value in required_inputs(self.model) if value.name not in carried]
        unknown = given.keys() - {value.name for value in inputs}
        if unknown:
            raise InvalidInputError(f"--inputs requires inputs of the graph, got {some(sorted(unknown))}")
        source, self.draws = imported.fixed()
        self._values = {variable.name: variable for variable in source.variables.values()}
        dtypes = {str(x.name): np.zeros(0, x.dtype.numpy()) for x in inputs if x.dtype is not None}
        self.graph = tensorflow.original(source, {**dtypes, **given}, imported.outputs)
        self._open = contextlib.ExitStack()
        self._runners: dict[str, Runner] = {}
        self.search = FeedSearch(
            self.model, inputs, tensorflow.sparse_feeds(self.graph), given, sizes,
            lambda feeds: [each for step in self.run("graph", self.graph, feeds, self.start(seed), 1) for each in step],
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def start(self, seed: int) -> dict[str, Array]:
        """The first values of all variables; those that nobody has are random."""
        found = proof.start_values(self.model, seed)
        for name in self.graph.variables:
            if name not in found:
                value = self._values[name].value
                assert value is not None, name
                found[name] = value
        return found

    def run(
        self, what: str, graph: Original, feeds: Mapping[str, Array], start: Mapping[str, Array], count: int
    ) -> Runs:
        """Runs of TensorFlow's, in the session that is open for this form of the graph."""
        if what not in self._runners:
            self._runners[what] = self._open.enter_context(tensorflow.opened(graph))
        return self._runners[what].run(feeds, start, count)

    def comparison(
        self, seed: int, steps: int, tolerances: tuple[float | None, float | None], lowering: Lowering
    ) -> Comparison:
        """Compares runs, where some rows decide nothing from other numbers, too."""
        feeds = self.search.fitting(seed)
        session = Session(
            lower(self.model, schedule=lowering.schedule), lowering.providers, precision=lowering.precision
        )
        known = tolerance(coarsest_dtype(self.model))
        rtol, atol = (default if asked is None else asked for asked, default in zip(tolerances, known, strict=True))
        rows: dict[tuple[str, str], StepRow] = {}
        fault, raced = None, self._raced()
        for other in range(seed, seed + _SEEDS):
            if rows:
                try:
                    feeds = self.search.fitting(other)
                except TensorFlowRefusedError:
                    break
            start = self.start(other)
            ours = proof.run(session, self.model, feeds, start, steps)
            found, fault = self._rows(ours, feeds, start, steps, (rtol, atol))
            for row in (_undecided(row) if (row.kind, row.name) in raced else row for row in found):
                before = rows.get((row.kind, row.name))
                if before is None or before.verdict in _UNDECIDED or row.verdict not in (*_UNDECIDED, "ok"):
                    rows[row.kind, row.name] = row
            open_rows = [row for row in rows.values() if row.verdict in _UNDECIDED]
            if all((row.kind, row.name) in raced for row in open_rows):
                break
        kept = {node.name for node in all_nodes(self.graph.graph_def)}
        draws = [name for name in self.draws if name in kept]
        shapes = {name: list(array.shape) for name, array in feeds.items()}
        told = [raced[key] for key, row in rows.items() if row.verdict in _UNDECIDED and key in raced]
        return Comparison(list(rows.values()), steps, draws, fault, rtol, atol, shapes, list(dict.fromkeys(told)))

    def _raced(self) -> dict[tuple[str, str], str]:
        """Outputs and variables that depend on the order of ops of which none waits for the other -> such a pair."""
        found = races(self.graph)
        told = {race.variable: f"{race.variable} ({race.writer}, {race.other})" for race in reversed(found)}
        return {key: told.get(key[1], next(iter(told.values()))) for key in affected(self.graph, found)}

    def _rows(
        self,
        ours: Runs,
        feeds: Mapping[str, Array],
        start: Mapping[str, Array],
        steps: int,
        tolerances: tuple[float, float],
    ) -> tuple[list[StepRow], str | None]:
        """The rows of some runs, and why TensorFlow does not run in float64."""
        theirs = self.run("graph", self.graph, feeds, start, steps)
        wide, fault, moved = None, None, list[Runs]()
        try:
            wide = self.run("wide", tensorflow.widened(self.graph), feeds, start, steps)
        except TensorFlowRefusedError as error:
            fault = error.reason
            moved.append(self._moved(0, feeds, start, steps))
        others = tensorflow.reseeded(self.graph)
        drawn = None if others is None else self.run("reseeded", others, feeds, start, steps)

        def compared() -> list[StepRow]:
            rtol, atol = tolerances
            return proof.compare(ours, theirs, wide=wide, moved=moved, drawn=drawn, rtol=rtol, atol=atol)

        rows = compared()
        while len(moved) < _MOVES and any(row.verdict in (OUT_OF_TOLERANCE, NOT_DECIDED) for row in rows):
            moved.append(self._moved(len(moved), feeds, start, steps))
            rows = compared()
        return rows, fault

    def _moved(self, number: int, feeds: Mapping[str, Array], start: Mapping[str, Array], steps: int) -> Runs:
        """Runs from weights and feeds that differ in their last place, by steps in other directions for each number."""
        fed, held = (
            {name: _moved(array, number, place) for place, (name, array) in enumerate(arrays.items())}
            for arrays in (feeds, start)
        )
        return self.run("graph", self.graph, fed, held, steps)


def _undecided(row: StepRow) -> StepRow:
    return dataclasses.replace(row, verdict=NOT_DECIDED) if row.verdict == OUT_OF_TOLERANCE else row


def _moved(array: Array, number: int, place: int) -> Array:
    """The same by one unit in the last place: upwards, or from number 1 on in a random direction for each element."""
    if array.dtype.kind != "f" or not array.ndim:
        return array
    ups = np.random.default_rng([number, place]).random(array.shape) < 0.5 if number else np.ones(array.shape, bool)
    towards = np.where(ups, np.inf, -np.inf).astype(array.dtype)
    moved: Array = np.nextafter(array, towards)
    return moved
