"""Feeds that TensorFlow takes for a graph, found from what its own messages say of others.

Sizes that a graph leaves open may still be fixed by what it computes: a batch that a reshape has as a constant, as many
features as a window of samples has, lengths within a sequence, indices within a sparse matrix. TensorFlow's messages
name such numbers; each is tried as the size of an axis, or as a length, until a step runs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import heapq
import itertools
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.errors import InvalidInputError
from lstm_lower.graph.values import declared_shape
from lstm_lower.runtime.feeds import DEFAULT_SIZE, random_feeds
from lstm_lower.tensorflow.original import SparseFeed, TensorFlowRefusedError

Array = np.ndarray[Any, Any]
# What a step leaves on some feeds: arrays, of which those that are no numbers decide nothing.
Results = Sequence[Mapping[str, Array]]

# Guesses for one graph, and seconds for them.
_TRIES, _SECONDS = 250, 150
# What a message that was not heard before takes off the cost of all that is tried next.
_PROGRESS = 2.0
# Elements of all feeds together, so that each guess is a matter of a moment.
_MOST = 2**22

# What is fed to scalars, by their names: no dropout, whichever way it is asked for, and small steps.
_RATE, _KEEP = re.compile(r"learn|(^|[/_])lr"), re.compile(r"keep|drop|prob|rate")
_LENGTH = re.compile(r"len|size|steps|max")

# A size that a message names: no part of a name.
_NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")
_NAMED, _DIGITS, _LARGEST = 5, 12, 10_000


@dataclasses.dataclass(frozen=True)
class Guess:
    """What is not known of feeds.

    Attributes:
        sizes: of symbolic dimensions.
        length: of sequences.
        nameless: whether integers are lengths, too, whose names do not say so.
        rows: number of rows of sparse matrices, where nothing else is said of one.
        matrices: number of a sparse tensor -> its rows and columns.
        entries: how many entries a row of sparse matrices has.
        zeros: whether classes and indices are all the first.
        keep: what scalars are fed whose names say that they keep, drop or rate something.
        positive: whether no number is below zero.
    """

    sizes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    length: int = DEFAULT_SIZE
    nameless: bool = False
    rows: int = DEFAULT_SIZE
    matrices: Mapping[int, tuple[int, int]] = dataclasses.field(default_factory=dict)
    entries: int = 2
    zeros: bool = False
    keep: float = 1.0
    positive: bool = False

    def matrix(self, number: int) -> tuple[int, int]:
        """Rows and columns of a sparse tensor."""
        return self.matrices.get(number, (self.rows, DEFAULT_SIZE))


class FeedSearch:
    """Looks for feeds on which a step runs, and leaves numbers.

    Attributes:
        guess: what the last search found.
    """

    def __init__(
        self,
        model: ir.Model,
        inputs: Sequence[ir.Value],
        sparse: Sequence[SparseFeed],
        given: Mapping[str, Array],
        sizes: Mapping[str, int],
        run: Callable[[Mapping[str, Array]], Results],
    ) -> None:
        """Takes what is known.

        Args:
            model: the imported model.
            inputs: its inputs of data.
            sparse: which of them together are sparse tensors.
            given: feeds that stay as they are.
            sizes: sizes that stay as they are, by names of dimensions.
            run: runs a step; raises RefusedError.
        """
        self.model, self.inputs, self.sparse, self.given, self.run = model, list(inputs), list(sparse), given, run
        self.guess = Guess(sizes={**self._given_sizes(), **sizes})

    def _given_sizes(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for value in self.inputs:
            shape, array = declared_shape(value), self.given.get(str(value.name))
            if array is not None and shape is not None and len(shape) == array.ndim:
                named = {dim: size for dim, size in zip(shape, array.shape, strict=True) if isinstance(dim, str)}
                found |= {dim: size for dim, size in named.items() if size}
        return found

    def feeds(self, guess: Guess, seed: int = 0) -> dict[str, Array]:
        """Random feeds, but for what random numbers do not fit: rates, switches, lengths, indices of sparse tensors.

        Raises:
            InvalidInputError, InvalidModelError: as `random_feeds`'.
        """
        entries = {name: guess.matrix(number)[0] * guess.entries for name, number in self._entry_sizes().items()}
        drawn = random_feeds(self.model, {**dict.fromkeys(self._ranks(), 2), **entries, **guess.sizes}, seed)
        found = {str(value.name): _guessed(value, drawn[str(value.name)], guess) for value in self.inputs}
        for number, sparse in enumerate(self.sparse):
            found |= _sparse(sparse, found, guess.matrix(number))
        return {**found, **self.given}

    def _entry_sizes(self) -> dict[str, int]:
        """Names of the sizes that say how many entries sparse tensors have -> number of the tensor."""
        shapes = {value.name: declared_shape(value) or () for value in self.inputs}
        return {
            str(shapes[name][0]): number
            for number, sparse in enumerate(self.sparse)
            for name in (sparse.indices, sparse.values)
            if name in shapes and shapes[name] and isinstance(shapes[name][0], str)
        }

    def _ranks(self) -> list[str]:
        """Names of the sizes that are ranks of sparse tensors: almost all are matrices."""
        axes = {name: axis for x in self.sparse for name, axis in ((x.indices, -1), (x.shape, 0)) if name is not None}
        sizes = [(declared_shape(x) or (None,))[axes[x.name]] for x in self.inputs if x.name in axes]
        return [size for size in sizes if isinstance(size, str)]

    def fitting(self, seed: int = 0) -> dict[str, Array]:
        """Feeds that TensorFlow takes, if any can be found on which what it computes are numbers.

        A number that a message names is worth following as long as the message changes.

        Raises:
            RefusedError: TensorFlow takes none of those that were tried; as it said of the first.
            InvalidInputError, InvalidModelError: as `random_feeds`'.
        """
        taken, results = self._taken(seed)
        if _is_finite(results):
            return taken
        # A number of that name is what dropout keeps, or what it drops: the same for both where it is a half. And
        # logarithms of what is fed are numbers where it is positive.
        for other in ({"keep": 0.5}, {"positive": True}, {"keep": 0.5, "positive": True}):
            guess = dataclasses.replace(self.guess, **other)
            feeds = self.feeds(guess, seed)
            with contextlib.suppress(TensorFlowRefusedError):
                if _is_finite(self.run(feeds)):
                    self.guess = guess
                    return feeds
        return taken

    def _taken(self, seed: int) -> tuple[dict[str, Array], Results]:
        start, first = time.monotonic(), None
        order = itertools.count()
        # The cheapest first: a guess after which TensorFlow says something new was a good one.
        pending: list[tuple[float, int, Guess]] = [(0.0, next(order), self.guess)]
        tried, heard = set[str](), set[str]()
        while pending and len(tried) < _TRIES and time.monotonic() - start < _SECONDS:
            cost, _, guess = heapq.heappop(pending)
            try:
                feeds = self.feeds(guess, seed)
            except InvalidInputError:
                if first is None:
                    raise
                continue
            told = _told(feeds)
            if told in tried or (tried and sum(array.size for array in feeds.values()) > _MOST):
                continue
            tried.add(told)
            try:
                results = self.run(feeds)
            except TensorFlowRefusedError as error:
                first, fault = first or error, str(error)
            else:
                self.guess = guess
                return feeds, results
            about = re.sub(r"\d+", "", fault)
            cost += 1.0 if about in heard else -_PROGRESS
            heard.add(about)
            for further, more in self._further(guess, fault):
                heapq.heappush(pending, (cost + more, next(order), further))
        assert first is not None
        raise first

    def _further(self, guess: Guess, fault: str) -> Iterator[tuple[Guess, float]]:
        """What to try next, and what it costs: each number that may be a size of an axis, or a length."""
        fixed = [*guess.sizes, *self._entry_sizes(), *self._ranks()]
        shapes = [declared_shape(value) or () for value in self.inputs]
        lone = dict.fromkeys(dim for shape in shapes for dim in shape if isinstance(dim, str) and dim not in fixed)
        for number, cost in _sizes_named(fault).items():
            for axis in (0, -1, 1):
                dims = [x[axis] for x in shapes if -len(x) <= axis < len(x) and (axis != -1 or len(x) > 1)]
                found = {dim: number for dim in dims if isinstance(dim, str) and dim in lone}
                if found:
                    rows = number if axis == 0 else guess.rows
                    yield dataclasses.replace(guess, sizes={**guess.sizes, **found}, rows=rows), cost
            yield dataclasses.replace(guess, length=number), cost
            for dim in lone:
                yield dataclasses.replace(guess, sizes={**guess.sizes, dim: number}), cost + 0.5
            for matrix in range(len(self.sparse)):
                rows, columns = guess.matrix(matrix)
                for other in ((rows, number), (number, columns)):
                    yield dataclasses.replace(guess, matrices={**guess.matrices, matrix: other}), cost + 0.2
        if self.sparse and guess.entries > 1:
            yield dataclasses.replace(guess, entries=1), 0.5
        yield dataclasses.replace(guess, nameless=True), 1.0
        yield dataclasses.replace(guess, zeros=True), 1.5


def is_rate(name: str) -> bool:
    """Whether an input is called as numbers are that steps and dropout go by."""
    return bool(_RATE.search(name.lower()) or _KEEP.search(name.lower()))


def _sizes_named(fault: str) -> dict[int, float]:
    """Sizes that would make equal what a message says is not, and how unlikely each is.

    Of two numbers that should be equal one may be the product of an open size and of what else there is, and a number
    may have to be a multiple of another.
    """
    named = [int(digits) for digits in dict.fromkeys(_NUMBER.findall(fault)) if len(digits) <= _DIGITS][:_NAMED]
    found = {number: 0.0 for number in named if number > 1}
    for one, other in itertools.permutations([number for number in named if number], 2):
        each, rest = divmod(one, DEFAULT_SIZE)
        if not rest:
            found.setdefault(other // math.gcd(each, other), 0.5)
        if one * DEFAULT_SIZE % other == 0:
            found.setdefault(one * DEFAULT_SIZE // other, 0.5)
    fitting = {number: cost for number, cost in found.items() if 0 < number < _LARGEST and number != DEFAULT_SIZE}
    return {number: cost + math.log2(number) / 8 for number, cost in fitting.items()}


def _told(feeds: Mapping[str, Array]) -> str:
    return str({name: (array.shape, array.tolist() if array.ndim < 2 else None) for name, array in feeds.items()})


def _is_finite(results: Results) -> bool:
    arrays = [np.asarray(array) for each in results for array in each.values()]
    return all(np.isfinite(array).all() for array in arrays if array.dtype.kind in "fc")


def _guessed(value: ir.Value, drawn: Array, guess: Guess) -> Array:
    name = str(value.name).lower()
    if drawn.dtype.kind == "f" and drawn.ndim == 0:
        return np.asarray(1e-3 if _RATE.search(name) else guess.keep if _KEEP.search(name) else 0.5, drawn.dtype)
    if drawn.dtype == bool and drawn.ndim == 0:
        return np.asarray("train" in name)
    if drawn.dtype.kind in "iu" and drawn.ndim < 2 and (guess.nameless or _LENGTH.search(name)):
        return np.full_like(drawn, guess.length)
    if drawn.dtype.kind in "iu" and guess.zeros:
        return np.zeros_like(drawn)
    return np.abs(drawn) if guess.positive and drawn.dtype.kind == "f" else drawn


def _sparse(sparse: SparseFeed, feeds: Mapping[str, Array], matrix: tuple[int, int]) -> dict[str, Array]:
    """The indices and the shape of a sparse tensor: as many entries in each row, in their order."""
    found: dict[str, Array] = {}
    rows, columns = matrix
    if sparse.indices is not None and feeds[sparse.indices].ndim == 2:
        indices = np.zeros_like(feeds[sparse.indices])
        count, rank = indices.shape
        each = max(1, -(-count // max(rows, 1)))
        for column, of_entries in enumerate((np.arange(count) // each, np.arange(count) % each)[:rank]):
            indices[:, column] = of_entries
        found[sparse.indices] = indices
    if sparse.shape is not None and feeds[sparse.shape].ndim == 1:
        sizes = np.full_like(feeds[sparse.shape], columns)
        sizes[:1] = rows
        found[sparse.shape] = sizes
    return found
