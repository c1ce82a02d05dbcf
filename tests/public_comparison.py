"""One graph of a public repository next to TensorFlow, with feeds that TensorFlow takes.

    python -m tests.public_comparison GRAPH     prints a row of `tests/data/public_graphs.json`

Sizes that a graph leaves open may still be fixed by what it computes: a batch that a reshape has as a constant, as many
features as a window of samples has. TensorFlow's own messages name such numbers; each is tried as the size of an axis,
or as a length, until a step runs.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.cli.check_tensorflow import Comparison, compare_with_tensorflow, fixed_source
from lstm_lower.cli.sources import ImportOptions, chosen, names_of, open_model
from lstm_lower.errors import InvalidInputError, LstmLowerError, LstmLowerWarning
from lstm_lower.graph.values import declared_shape
from lstm_lower.records import state
from lstm_lower.runtime.feeds import random_feeds, required_inputs
from lstm_lower.runtime.proof import steps
from lstm_lower.tensorflow import original as tensorflow
from lstm_lower.tensorflow.anatomy import anatomy
from lstm_lower.tensorflow.files.opening import read_file

Array = np.ndarray[Any, Any]

# Open axes have that size until something names another; guesses at sizes for one graph, and at ranks.
_SIZE, _TRIES = 4, 30
_RANKS: tuple[tuple[str, ...], ...] = (("?",), ("?", "?"), ("?", "?", "?"))

# What is fed to scalars, by their names: no dropout, whichever way it is asked for, and small steps.
_RATE, _KEEP = re.compile(r"learn|(^|[/_])lr"), re.compile(r"keep|drop|prob|rate")
_LENGTH = re.compile(r"len|size|steps|max")

# A size that the graph fixes: no part of a name.
_NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")
_LENGTHS = re.compile(r"\[(\d+)\] vs\. \[(\d+)\]")
_NAMED = 4


@dataclasses.dataclass(frozen=True)
class Guess:
    """What is not known of feeds.

    Attributes:
        sizes: of symbolic dimensions.
        length: of sequences.
        nameless: whether integers are lengths, too, whose names do not say so.
    """

    sizes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    length: int = _SIZE
    nameless: bool = False


class Trial:
    """A graph, imported once, and run by TensorFlow on guessed feeds."""

    def __init__(self, path: Path, options: ImportOptions) -> None:
        options = chosen(path, options)
        self.options = options
        self.model = open_model(path, options, fixed_source(path, options)[0])
        carried = {pair.input for pair in state.read(self.model).pairs}
        self.inputs = [value for value in required_inputs(self.model) if value.name not in carried]
        self.start = steps.start_values(self.model)
        self.source = fixed_source(path, options)[0]
        self.graph: tensorflow.Original | None = None

    def feeds(self, guess: Guess, keep: float) -> dict[str, Array]:
        """Random feeds, but for what random numbers do not fit: rates, switches and lengths."""
        drawn = random_feeds(self.model, guess.sizes)
        return {str(value.name): _guessed(value, drawn[str(value.name)], guess, keep) for value in self.inputs}

    def fault(self, feeds: Mapping[str, Array]) -> str | None:
        """Why TensorFlow does not run a step on these feeds; `None` where it does."""
        if self.graph is None:
            self.graph = tensorflow.original(self.source, feeds, names_of(self.options.outputs))
            for variable in self.source.variables.values():
                if variable.name in self.graph.variables and variable.name not in self.start:
                    assert variable.value is not None, variable.name
                    self.start[variable.name] = variable.value
        try:
            tensorflow.run(self.graph, feeds, self.start, 1)
        except InvalidInputError as error:
            return str(error)
        return None

    def fitting(self, keep: float) -> dict[str, Array]:
        """Feeds that TensorFlow takes; the first guess where none of them is.

        A number that a message names is worth following as long as the message changes.
        """
        pending: list[tuple[Guess, str]] = [(Guess(), "")]
        tried: set[str] = set()
        while pending and len(tried) < _TRIES:
            guess, before = pending.pop(0)
            try:
                feeds = self.feeds(guess, keep)
            except LstmLowerError:
                continue
            told = str({name: (array.shape, array if array.ndim < 2 else None) for name, array in feeds.items()})
            if told in tried:
                continue
            tried.add(told)
            fault = self.fault(feeds)
            if fault is None:
                return feeds
            if fault != before:
                pending = [(further, fault) for further in self._further(guess, fault)] + pending
        return self.feeds(Guess(), keep)

    def _further(self, guess: Guess, fault: str) -> Iterator[Guess]:
        """What to try next: a number that a message names as the size of one axis wherever it is open, or as length.

        Of two lengths that should be equal one may be the product of such a size and of what else there is.
        """
        numbers = [int(digits) for digits in dict.fromkeys(_NUMBER.findall(fault))][:_NAMED]
        pairs = [tuple(map(int, pair)) for pair in _LENGTHS.findall(fault)]
        numbers += [a * _SIZE // b for pair in pairs for a, b in (pair, pair[::-1]) if b and a * _SIZE % b == 0]
        for number in [number for number in dict.fromkeys(numbers) if 1 < number < 10_000 and number != _SIZE]:
            for axis in (0, -1, 1):
                names = [
                    shape[axis]
                    for shape in (declared_shape(value) or () for value in self.inputs)
                    if -len(shape) <= axis < len(shape) and (axis != -1 or len(shape) > 1)
                ]
                found = {name: number for name in names if isinstance(name, str) and name not in guess.sizes}
                if found:
                    yield dataclasses.replace(guess, sizes={**guess.sizes, **found})
            yield dataclasses.replace(guess, length=number)
        yield dataclasses.replace(guess, nameless=True)


def _guessed(value: ir.Value, drawn: Array, guess: Guess, keep: float) -> Array:
    name = str(value.name).lower()
    if drawn.dtype.kind == "f" and drawn.ndim == 0:
        return np.asarray(1e-3 if _RATE.search(name) else keep if _KEEP.search(name) else 0.5, drawn.dtype)
    if drawn.dtype == bool and drawn.ndim == 0:
        return np.asarray("train" in name)
    if drawn.dtype.kind == "i" and drawn.ndim < 2 and (guess.nameless or _LENGTH.search(name)):
        return np.full_like(drawn, guess.length)
    return drawn


def compared(path: Path) -> dict[str, Any]:
    """What comes of one graph."""
    try:
        found = anatomy(read_file(path, None))
    except LstmLowerError as error:
        return {"refused": _reason(error, path)}
    row: dict[str, Any] = {"tensorflow": found.tensorflow, "trains": bool(found.train_ops)}
    open_ranks = [name for name, text in found.inputs.items() if "[" not in text]
    faults: list[str] = []
    for shapes in _shapes(open_ranks):
        # A number of that name is what dropout keeps, or what it drops: the same for both where it is a half.
        # And logarithms of what is fed are numbers where it is positive.
        for keep, positive in ((1.0, False), (0.5, False), (0.5, True)):
            try:
                row |= _figures(_compared(path, ImportOptions(shapes=shapes), keep, positive=positive))
            except LstmLowerError as error:
                faults.append(_reason(error, path))
                break
            if row["agrees"]:
                return row
        if "agrees" in row:
            return row
    return row | {"refused": faults[0]}


def _shapes(open_ranks: Sequence[str]) -> Iterator[list[str]]:
    """What to say of inputs whose rank the graph leaves open: nothing, then a rank for all, then for each alone."""
    yield []
    for sizes in _RANKS if open_ranks else ():
        yield [f"{name}={','.join(sizes)}" for name in open_ranks]
    for name in open_ranks if len(open_ranks) > 1 else ():
        for sizes in _RANKS:
            yield [f"{name}={','.join(sizes)}"]


def _compared(path: Path, options: ImportOptions, keep: float, *, positive: bool = False) -> Comparison:
    feeds = Trial(path, options).fitting(keep)
    if positive:
        feeds = {name: np.abs(array) if array.dtype.kind == "f" else array for name, array in feeds.items()}
    return compare_with_tensorflow(
        path, options, feeds, {}, seed=0, steps=3, tolerances=(None, None), schedule="auto", provider=None,
        precision=None,
    )  # fmt: skip


def _figures(found: Comparison) -> dict[str, Any]:
    worst = {}
    for key in ("relative", "own"):
        numbers = [number for number in (getattr(row, key) for row in found.rows) if number is not None]
        worst[key] = float(f"{max(numbers):.2g}") if numbers and np.isfinite(max(numbers)) else None
    return {
        "agrees": found.passed,
        "worst": worst["relative"],
        "tensorflows_own": worst["own"],
        "verdicts": dict(collections.Counter(row.verdict for row in found.rows)),
    }


def _reason(error: LstmLowerError, path: Path) -> str:
    if isinstance(error, tensorflow.RefusedError):
        return f"TensorFlow: {error.reason}"
    text = str(error).replace(f"{path}: ", "").replace(f"{path}", path.name)
    return text.strip().split("\n")[0][:240]


if __name__ == "__main__":
    warnings.simplefilter("ignore", LstmLowerWarning)
    json.dump(compared(Path(sys.argv[1])), sys.stdout)
