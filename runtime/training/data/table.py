"""Samples in columns, a column per input: arrays, mapped files, or sequences of different lengths."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from lstm_lower.dtypes import native
from lstm_lower.errors import InvalidInputError
from lstm_lower.runtime.training.data.layout import Array, Batch, Field, Fingerprint, Layout

# Of a fingerprint: up to how many bytes a column is looked at as a whole, and else how many samples and elements are.
_SEEN_WHOLE = 16 << 20
_SAMPLED = 256


class Ragged:
    """Samples of different lengths, `[length, ...]` each.

    Attributes:
        samples: the samples.
        lengths: their lengths, int64.
    """

    def __init__(self, samples: Sequence[Array]) -> None:
        self.samples = samples
        self.lengths = np.array([len(sample) for sample in samples], np.int64)


Column = Array | Ragged


@dataclasses.dataclass(frozen=True)
class Padding:
    """How sequences of different lengths become one array.

    Attributes:
        values: input -> what is put behind its shorter sequences.
        lengths: input that takes lengths -> the input whose lengths they are.
        buckets: the lengths to which sequences are padded, ascending; samples of one batch come from one bucket.
            Without any, a batch is as long as its longest sequence, or as long as the model fixes it.
    """

    values: Mapping[str, float] = dataclasses.field(default_factory=dict)
    lengths: Mapping[str, str] = dataclasses.field(default_factory=dict)
    buckets: tuple[int, ...] = ()

    def check(self, layout: Layout) -> None:
        """Raises an InvalidInputError if a name is not that of an input, or buckets do not ascend."""
        for what, names in (("pad", self.values), ("lengths", self.lengths), ("lengths", self.lengths.values())):
            unknown = [name for name in names if name not in layout.fields]
            if unknown:
                raise InvalidInputError(
                    f"{what} requires names of data inputs, {sorted(layout.fields)}, got '{unknown[0]}'"
                )
        sizes = [0, *self.buckets]
        if any(low >= high for low, high in itertools.pairwise(sizes)):
            raise InvalidInputError(f"buckets require ascending lengths above 0, got {list(self.buckets)}")
        if self.buckets and not self.values:
            raise InvalidInputError("buckets require pad={'<input>': value}, got no input that is padded")

    def bucket_of(self, table: Table) -> Array:
        """The bucket of each sample; all the same without buckets.

        Raises:
            InvalidInputError: a sample is longer than the last bucket.
        """
        if not self.buckets:
            return np.zeros(table.count, np.int64)
        lengths = table.lengths(self.values)
        if lengths.size and lengths.max() > self.buckets[-1]:
            raise InvalidInputError(
                f"buckets require a length of {lengths.max()} or more at their end, got {list(self.buckets)}"
            )
        return np.searchsorted(np.array(self.buckets), lengths)


class Table:
    """Samples that lie in memory or in mapped files.

    Attributes:
        layout: the inputs.
        columns: input -> its samples, or the one number of an input without axes.
        count: number of samples.
    """

    def __init__(self, layout: Layout, columns: Mapping[str, Column], count: int) -> None:
        self.layout, self.columns, self.count = layout, dict(columns), count

    @classmethod
    def of(cls, layout: Layout, data: Mapping[str, Any], padding: Padding, where: str = "data") -> Self:
        """Checks values against the inputs.

        Args:
            layout: the inputs.
            data: input -> array, with samples along the axis that the layout says, or a list of samples; of an input
                without axes, the number that all samples share. What is no input is not looked at.
            padding: of lists of sequences.
            where: what they are, for messages.

        Raises:
            InvalidInputError: a value is missing, or of a wrong dtype or shape, or numbers of samples differ.
        """
        fields = {name: field for name, field in layout.fields.items() if name not in padding.lengths}
        missing = [f"'{name}' {field.signature}" for name, field in fields.items() if name not in data]
        if missing:
            raise InvalidInputError(f"{where} requires an array {' and '.join(missing)}, got {sorted(data)}")
        columns = {name: _column(field, data[name], name in padding.values, where) for name, field in fields.items()}
        counts = {name: _count(column, fields[name]) for name, column in columns.items() if fields[name].shape}
        if len(set(counts.values())) > 1:
            raise InvalidInputError(f"{where} requires as many samples in every array, got {counts}")
        return cls(layout, columns, next(iter(counts.values()), 0))

    def take(self, rows: Array) -> Table:
        """Some samples, copied."""
        columns: dict[str, Column] = {}
        for name, column in self.columns.items():
            if isinstance(column, Ragged):
                columns[name] = Ragged([column.samples[row] for row in rows])
            elif not self.layout.fields[name].shape:
                columns[name] = column
            else:
                columns[name] = np.take(column, rows, self.layout.fields[name].axis)
        return Table(self.layout, columns, len(rows))

    def fingerprint(self) -> Fingerprint:
        """A digest of names, dtypes, shapes and elements; of a large column of some elements of some samples.

        `fit` in JavaScript makes the same of the same samples.
        """
        digest = hashlib.sha256()
        for name, column in sorted(self.columns.items()):
            field = self.layout.fields[name]
            samples: Any
            if isinstance(column, Ragged):
                digest.update(f"{name} {column.lengths.tolist()}".encode())
                parts, samples = [*column.samples], column.samples
            else:
                digest.update(f"{name} {column.dtype.str} {list(column.shape)}".encode())
                parts, samples = [column], np.moveaxis(column, field.axis, 0) if field.shape else [column]
            if sum(part.nbytes for part in parts) > _SEEN_WHOLE:
                chosen, last = min(len(samples), _SAMPLED), len(samples) - 1
                parts = [np.asarray(samples[place * last // max(1, chosen - 1)]) for place in range(chosen)]
                parts = [part.flat[:: max(1, part.size // _SAMPLED)] for part in parts]
            for part in parts:
                digest.update(part.tobytes())
        return {"arrays": digest.hexdigest()}

    def lengths(self, names: Mapping[str, Any]) -> Array:
        """The length of each sample, of the longest of its sequences among some inputs."""
        counts = np.zeros(self.count, np.int64)
        for name in names:
            column = self.columns[name]
            if isinstance(column, Ragged):
                counts = np.maximum(counts, column.lengths)
            else:
                field = self.layout.fields[name]
                counts = np.maximum(counts, np.delete(np.array(column.shape), field.axis)[0])
        return counts

    def feeds(self, padding: Padding) -> Batch:
        """The samples as one batch.

        Raises:
            InvalidInputError: sequences differ in length, and nothing says what to pad them with.
        """
        feeds: Batch = {}
        for name, column in self.columns.items():
            if isinstance(column, Ragged):
                feeds[name] = _padded(column, self.layout.fields[name], padding)
            else:
                feeds[name] = np.asarray(column)
        for name, of in padding.lengths.items():
            feeds[name] = self.lengths({of: None}).astype(self.layout.fields[name].dtype)
        return {name: feeds[name] for name in self.layout.fields}


def joined(tables: Sequence[Table]) -> Table:
    """Samples of several tables, one behind the other.

    Raises:
        InvalidInputError: an input without axes has several values in them.
    """
    if len(tables) == 1:
        return tables[0]
    first = tables[0]
    columns: dict[str, Column] = {}
    for name in first.columns:
        parts = [table.columns[name] for table in tables]
        if any(isinstance(part, Ragged) for part in parts):
            field = first.layout.fields[name]
            columns[name] = Ragged([sample for part in parts for sample in _samples(part, field)])
        elif not first.layout.fields[name].shape:
            values = np.unique([np.asarray(part) for part in parts])
            if len(values) > 1:
                raise InvalidInputError(
                    f"data '{name}' requires one number for all samples, got {values[0]} and {values[1]} in two shards"
                )
            columns[name] = parts[0]
        else:
            # A shard whose sequences all have one length may stand beside one of another length.
            columns[name] = _concatenated([np.asarray(part) for part in parts], first.layout.fields[name])
    return Table(first.layout, columns, sum(table.count for table in tables))


def _concatenated(parts: Sequence[Array], field: Field) -> Column:
    shapes = {part.shape[: field.axis] + part.shape[field.axis + 1 :] for part in parts}
    if len(shapes) == 1:
        return np.concatenate(parts, axis=field.axis)
    return Ragged([sample for part in parts for sample in _samples(part, field)])


def _samples(column: Column, field: Field) -> Sequence[Array]:
    return column.samples if isinstance(column, Ragged) else [*np.moveaxis(column, field.axis, 0)]


def _count(column: Column, field: Field) -> int:
    return len(column.samples) if isinstance(column, Ragged) else column.shape[field.axis]


def _column(field: Field, value: Any, padded: bool, where: str) -> Column:
    listed = isinstance(value, (list, Ragged)) or (isinstance(value, np.ndarray) and value.dtype.hasobject)
    if not listed:
        return field.checked(value, where)
    samples = value.samples if isinstance(value, Ragged) else value
    arrays = [native(sample, f"{where} '{field.name}'") for sample in samples]
    for array in arrays:
        if array.ndim != len(field.sample_shape):
            raise InvalidInputError(
                f"{where} '{field.name}' requires samples of rank {len(field.sample_shape)} for {field.signature}, "
                f"got one of {list(array.shape)}"
            )
    if not padded and len({array.shape for array in arrays}) <= 1:
        empty = np.zeros([0 if i == field.axis else 1 for i in range(len(field.shape))], field.dtype)
        stacked = np.stack(arrays, axis=field.axis) if arrays else empty
        # Numbers of Python have no dtype of their own.
        plain = not any(hasattr(sample, "dtype") for sample in samples)
        if plain and np.can_cast(stacked.dtype, field.dtype, "same_kind"):
            stacked = stacked.astype(field.dtype)
        return field.checked(stacked, where)
    if not field.sample_shape:
        raise InvalidInputError(f"{where} '{field.name}' requires sequences to pad, got {field.signature}")
    arrays = [field.converted(array, where) for array in arrays]
    for array in arrays:
        if len({array.shape[1:], arrays[0].shape[1:]}) > 1:
            raise InvalidInputError(
                f"{where} '{field.name}' requires samples that differ in length only, "
                f"got {list(arrays[0].shape)} and {list(array.shape)}"
            )
    return Ragged(arrays)


def _padded(column: Ragged, field: Field, padding: Padding) -> Array:
    longest = int(column.lengths.max(initial=0))
    if field.name not in padding.values:
        raise InvalidInputError(
            f"data '{field.name}' requires samples of one length, or pad={{'{field.name}': value}}, "
            f"got lengths from {column.lengths.min(initial=longest)} to {longest}"
        )
    fixed = field.sample_shape[0]
    target = next((bound for bound in padding.buckets if bound >= longest), longest)
    if isinstance(fixed, int):
        if longest > fixed:
            raise InvalidInputError(
                f"data '{field.name}' requires at most {fixed} steps, as the model has it, got {longest}"
            )
        target = fixed
    rest = column.samples[0].shape[1:] if column.samples else ()
    padded = np.full((len(column.samples), target, *rest), padding.values[field.name], field.dtype)
    for row, sample in zip(padded, column.samples, strict=True):
        row[: len(sample)] = sample
    whole = np.ascontiguousarray(np.moveaxis(padded, 0, field.axis))
    field.check_sizes(whole.shape, "data")
    return whole
