"""Constants that belong to an operator's formula and are no weights, known by what reads them.

Scales, zero points and code books of quantized numbers, windows, tables of Fourier, cosine and mel transforms, running
statistics, tables of rotary embeddings: a training step leaves them alone unless they are named. Names do not tell
(`head.weight_scale` matches `head.*`), and neither do shapes: the scales of a matrix are a vector, as its bias is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.dtypes import is_floating, is_integer
from lstm_lower.graph import standard as std
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.graph.values import Array

# Integers that weights became, and the floats of 8 bits.
_CODE_BITS = 8
# Larger tables are not looked at: the longest transforms of speech are of 4096 samples.
_LARGEST_TABLE = 1 << 24

_CARRYING = std.Moving | std.Concat | std.Identity | std.Cast | std.CastLike | std.Add | std.Sub
_RESCALING = std.Moving | std.Identity | std.Cast | std.CastLike | std.Mul | std.Div | std.Reciprocal
_TRANSFORMING = std.DFT | std.STFT
_OF_TABLES = std.Product | std.Conv
_OF_INTEGERS = std.MatMulInteger | std.ConvInteger
_CHOOSING = std.Gather | std.GatherElements


def fixed_constants(graph: ir.Graph, facts: Facts) -> dict[ir.Value, str]:
    """The initializers of a graph that belong to a formula, with what each is."""
    search = _Search(graph, facts)
    search.operands()
    search.quantized()
    search.tables()
    search.windows()
    return search.found


class _Search:
    """Goes through a graph's nodes, those of inner graphs included."""

    def __init__(self, graph: ir.Graph, facts: Facts) -> None:
        self.facts = facts
        self.nodes = list(all_nodes(graph))
        self.initializers = set(graph.initializers.values())
        self.found: dict[ir.Value, str] = {}
        self._transforms: set[ir.Value] = set()

    def operands(self) -> None:
        """What operators name themselves."""
        for node in self.nodes:
            view = self.facts.view(node)
            if view is not None:
                for place, what in view.settings.items():
                    self._note(view.operand(place), what)

    def quantized(self) -> None:
        """What turns integers into the numbers that they stand for, written in other operators."""
        stored = set(self.initializers)
        codes = {value for value in stored if self._is_narrow(value)}
        for node in self.nodes:
            view, result = self.facts.view(node), node.outputs[0]
            inputs = [value for value in node.inputs if value is not None]
            coded = [value for value in inputs if value in codes]
            if stored.issuperset(inputs):
                stored.update(node.outputs)
                if isinstance(view, std.BitwiseAnd | std.BitShift) or self._is_narrow(result):
                    codes.update(node.outputs)
            if isinstance(view, _OF_INTEGERS):
                codes.update(node.outputs)
            elif isinstance(view, _CHOOSING):
                self._code_book(view, stored, codes)
            elif coded and isinstance(view, std.Mul | std.Div | std.Sub) and is_floating(self.facts.dtype(result)):
                what = "zero points" if isinstance(view, std.Sub) else "scales"
                for value in inputs:
                    # A mask of integers keeps or drops as many weights.
                    fewer = value in stored and self.facts.elements(value) < self.facts.elements(coded[0])
                    if value not in codes and (fewer or coded[0] not in stored):
                        self._note(value, f"{what} of quantized numbers")
            if coded and (isinstance(view, _CARRYING | _OF_TABLES) or is_integer(self.facts.dtype(result))):
                codes.update(node.outputs)

    def _code_book(self, view: std.Gather | std.GatherElements, stored: set[ir.Value], codes: set[ir.Value]) -> None:
        """What constants of few bits choose among, or single numbers that any constants choose among."""
        shape, places = self.facts.shape(view.data), view.indices
        chosen = places in codes or (places in stored and self.facts.rank(view.data) == 1)
        if chosen and shape and isinstance(shape[0], int) and self.facts.elements(places) > shape[0]:
            self._note(view.data, "a code book")

    def tables(self) -> None:
        """Tables of transforms that are written as products or convolutions, known by their numbers."""
        readers: dict[tuple[ir.Value | None, tuple[int, ...]], list[ir.Value]] = {}
        for node in self.nodes:
            if not isinstance(self.facts.view(node), _OF_TABLES):
                continue
            for value, data in zip(node.inputs[:2], reversed(node.inputs[:2]), strict=True):
                if value is not None and (sizes := self._matrix_sizes(value)) is not None:
                    readers.setdefault((data, sizes), []).append(value)
        for (_, sizes), values in readers.items():
            tables = [value.const_value.numpy().reshape(sizes) for value in values if value.const_value is not None]
            for value, table in zip(values, tables, strict=True):
                what = _kind_of_table(table, [other for other in tables if other is not table])
                if what is not None:
                    self._note(value, what)
                    self._transforms.add(value)

    def windows(self) -> None:
        """Vectors that frames of a signal are multiplied with before they are transformed."""
        signals = {value for node in self.nodes if self._transforms_signal(node) for value in self._behind(node)}
        for node in self.nodes if signals else ():
            if std.Mul.matches(node) and node.outputs[0] in signals:
                for value in node.inputs:
                    shape = self.facts.shape(value)
                    if shape is not None and sum(dim != 1 for dim in shape) == 1:
                        self._note(value, "a window")

    def _transforms_signal(self, node: ir.Node) -> bool:
        return isinstance(self.facts.view(node), _TRANSFORMING) or not self._transforms.isdisjoint(node.inputs)

    def _behind(self, node: ir.Node) -> Iterator[ir.Value]:
        """The value that a node transforms, and those whose elements it holds."""
        for value in node.inputs[:2]:
            while value is not None and value not in self.initializers:
                yield value
                made = self.facts.maker(value)
                value = made.operand(0) if isinstance(made, std.Moving | std.Identity | std.Pad | std.Concat) else None

    def _note(self, value: ir.Value | None, what: str) -> None:
        """Notes what initializers a value is made of by scaling and moving."""
        if value is None or value in self.found:
            return
        if value in self.initializers:
            self.found[value] = what
            return
        made = self.facts.maker(value)
        if isinstance(made, std.Mul | std.Div):
            for operand in made.inputs:
                self._note(operand, what)
        elif isinstance(made, _RESCALING):
            self._note(made.operand(0), what)

    def _matrix_sizes(self, value: ir.Value) -> tuple[int, ...] | None:
        """The sizes of an initializer that may be a table, as a matrix."""
        if value not in self.initializers or value.const_value is None or not is_floating(self.facts.dtype(value)):
            return None
        sizes = [dim for dim in self.facts.shape(value) or () if isinstance(dim, int) and dim != 1]
        small = len(sizes) == 2 and self.facts.elements(value) <= _LARGEST_TABLE
        return tuple(sizes) if small else None

    def _is_narrow(self, value: ir.Value) -> bool:
        dtype = self.facts.dtype(value)
        # A string has no width.
        if dtype in (None, ir.DataType.UNDEFINED, ir.DataType.BOOL, ir.DataType.STRING):
            return False
        return dtype.bitwidth <= _CODE_BITS


def _kind_of_table(table: Array, others: list[Array]) -> str | None:
    """What transform a matrix is the table of, in either orientation."""
    for matrix, beside in ((table, others), (table.T, [other.T for other in others])):
        half = len(matrix) // 2
        pairs = [(matrix, other) for other in beside]
        if len(matrix) == 2 * half:
            pairs.append((matrix[:half], matrix[half:]))
        if any(_is_fourier(*pair) for pair in pairs):
            return "a table of a Fourier transform"
        if _is_cosine(matrix):
            return "a table of a cosine transform"
        if _is_mel(matrix):
            return "a table of a mel scale"
    return None


def _all_of(test: Callable[..., Any], *matrices: Array) -> bool:
    """Whether a test holds for all rows: for the first few first, since most matrices fail there and may be large."""
    return all(test(*[matrix[:rows].astype(np.float32) for matrix in matrices]) for rows in (4, len(matrices[0])))


def _is_fourier(cosines: Array, sines: Array) -> bool:
    """Whether rows are cosines and sines under one window: their squares add up to that of the window in every row."""

    def one_window(cosines: Array, sines: Array) -> Any:
        squares = cosines**2 + sines**2
        most = squares.max()
        # Of single bits the squares are equal, too.
        return (squares.max(0) - squares.min(0)).max() <= 1e-4 * most and np.abs(cosines).std() ** 2 > 0.01 * most

    return len(cosines) >= 2 and cosines.shape[1] >= 4 and _all_of(one_window, cosines, sines)


def _is_cosine(matrix: Array) -> bool:
    """Whether row k is a multiple of `cos(pi / N (n + 1/2) k)`, the discrete cosine transform of type II."""

    def cosines(rows: Array) -> Any:
        table = np.cos(np.pi / size * np.outer(np.arange(len(rows)), np.arange(size) + 0.5))
        scales = (rows * table).sum(1, keepdims=True) / (table**2).sum(1, keepdims=True)
        most = np.abs(rows).max()
        return ((np.abs(scales) > 0.1 * most) & (np.abs(rows - scales * table) <= 1e-4 * most)).all()

    size = matrix.shape[1]
    # The first row is constant, which few matrices' is.
    fits = 2 <= len(matrix) <= size >= 4 and np.ptp(matrix[0]) <= 2e-4 * np.abs(matrix[:4]).max()
    return bool(fits) and _all_of(cosines, matrix)


def _is_mel(matrix: Array) -> bool:
    """Whether rows are frequencies and columns triangles of which only neighbours overlap."""

    def triangles(few: Array) -> Any:
        return few.min() >= 0 and ((few != 0).sum(1) <= 2).all()

    rows, columns = matrix.shape
    if columns < 4 or rows < columns or not _all_of(triangles, matrix):
        return False
    filled = matrix != 0
    counts, first = filled.sum(1), np.argmax(filled, 1)
    beside = filled[np.arange(rows), np.minimum(first + 1, columns - 1)]
    ordered = (np.diff(first[counts > 0]) >= 0).all() and beside[counts == 2].all()
    # The lowest bands may be narrower than a frequency.
    spread = 2 * filled.any(0).sum() > columns and 4 * (counts == 2).sum() >= (counts > 0).sum()
    return bool(ordered and spread)
