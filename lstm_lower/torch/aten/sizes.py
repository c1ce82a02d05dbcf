"""Sizes of a trace as expressions: PyTorch states them as formulas of open sizes, of which a model has tensors.

An open size of an input is read off that input where it is first asked for. One that depends on values, as of what a
mask selects, is bound by the operator whose result has it. Each formula is written once.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import sympy
import torch
from torch.fx.experimental.symbolic_shapes import (
    CallMethodKey,
    ConvertIntKey,
    DivideByKey,
)
from torch.utils._pytree import SequenceKey
from torch.utils._sympy import functions as symbolic

from lstm_lower.errors import UnsupportedOpError
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.graph.values import Dim
from lstm_lower.records.lengths import Law, Place
from lstm_lower.torch.aten.size_decisions import places_of

INT, DOUBLE = ir.DataType.INT64, ir.DataType.DOUBLE
Number = int | float | bool | Expr
# Open size -> sizes with as many chunks as it has in a trace.
Alike = Mapping[sympy.Symbol, range]


class OpenSizeError(UnsupportedOpError):
    """A number is required where sizes are open.

    Attributes:
        symbols: the open sizes.
        reason: what requires it.
    """

    def __init__(self, symbols: Collection[sympy.Symbol], reason: str) -> None:
        super().__init__(f"{reason}; give examples of that size alone, and close the axis by dynamic_shapes")
        self.symbols = symbols
        self.reason = reason


class Sizes:
    """The open sizes of a trace, and formulas of them.

    Attributes:
        b: emits at the end of the graph.
        names: open size -> the name of the dimension.
    """

    def __init__(self, b: Builder, alike: Alike) -> None:
        self.b = b
        self._alike = alike
        self.names: dict[sympy.Symbol, str] = {}
        self._written: dict[Any, Expr] = {}
        self._read_off: dict[sympy.Symbol, Callable[[], Expr]] = {}

    def name(self, x: Expr, fake: torch.Tensor) -> None:
        """Names the open sizes of an input, which are new, after it."""
        for axis, size in enumerate(fake.shape):
            symbol = formula(size)
            if isinstance(symbol, sympy.Symbol):
                self.names.setdefault(symbol, f"{x.value.name}_dim_{axis}")

    def read_off(self, x: Expr, fake: torch.Tensor) -> None:
        """Lets the open sizes of an input, which are new, be read off it."""
        for axis, size in enumerate(fake.shape):
            symbol = formula(size)
            if isinstance(symbol, sympy.Symbol):
                self._read_off.setdefault(symbol, functools.partial(_read, x, axis))

    def bind(self, symbol: sympy.Symbol, value: Number) -> None:
        """Lets a size that depends on values be an expression."""
        self._written[symbol] = value if isinstance(value, Expr) else self.b.constant(value)

    def bind_results(self, node: torch.fx.Node, results: Any) -> None:
        """Lets the sizes that a node brings into the trace be those of its results."""
        for symbol, path in (node.meta.get("unbacked_bindings") or {}).items():
            value = results
            keys = list(path)
            if any(isinstance(key, CallMethodKey) and key.name != "size" for key in keys):
                # A place in memory, of which nothing is made here but PyTorch's own checks.
                continue
            while keys:
                key = keys.pop(0)
                if isinstance(key, CallMethodKey):
                    value = _read(value, keys.pop(0).idx)
                elif isinstance(key, SequenceKey):
                    value = value[key.idx] if isinstance(value, Sequence) else value
                elif isinstance(key, ConvertIntKey):
                    value = value.cast(INT)
                elif isinstance(key, DivideByKey):
                    value = self.floor_div(value, self.number(key.divisor))
            self.bind(symbol, value)

    def dim(self, size: Any) -> Dim | None:
        """A size as a dimension: a number, the name of an open one or of a formula, `None` for what values give."""
        known = formula(size, self._alike)
        if _is_known(known):
            return int(known)
        named = known.free_symbols <= self.names.keys()
        return str(known.xreplace({size: sympy.Symbol(name) for size, name in self.names.items()})) if named else None

    def number(self, value: Any) -> Any:
        """A symbolic number of PyTorch's: an `int`, `float` or `bool` where it is known, else a scalar expression."""
        if not isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return value
        known = formula(value, self._alike)
        if known in (sympy.true, sympy.false):
            return bool(known)
        if _is_known(known):
            return float(known) if isinstance(value, torch.SymFloat) else int(known)
        return self.of(known)

    def of(self, known: Any) -> Expr:
        """A formula as an expression, a scalar: int64, double or bool."""
        if known not in self._written:
            self._written[known] = self._formula(known)
        return self._written[known]

    def floor_div(self, a: Number, b: Number) -> Expr:
        """A quotient of integers, rounded down."""
        x, y = self._same(a, b)
        # ONNX divides integers towards zero, and takes remainders with the divisor's sign.
        return (x - x % y) / y

    def _formula(self, known: Any) -> Expr:
        if isinstance(known, sympy.Symbol):
            if known not in self._read_off:
                raise UnsupportedOpError(
                    f"a size that depends on values requires an operator that says it, got {known}"
                )
            return self._read_off[known]()
        if known.is_number or known in (sympy.true, sympy.false):
            return self._constant(known)
        rule = _FORMULAS.get(known.func)
        if rule is None:
            raise OpenSizeError(
                known.free_symbols, f"a size requires +, -, *, //, %, min and max, got {known.func.__name__} in {known}"
            )
        return rule(self, *map(self.of, known.args))

    def _constant(self, known: Any) -> Expr:
        if known in (sympy.true, sympy.false):
            return self.b.constant(bool(known), ir.DataType.BOOL)
        if known.is_integer and not isinstance(known, sympy.Float):
            return self.b.constant(int(known), INT)
        return self.b.constant(float(known) if known.is_finite else float(np.sign(float(known))) * np.inf, DOUBLE)

    def _same(self, *numbers: Number) -> list[Expr]:
        """Numbers in one dtype: double where one of them is."""
        exprs = [
            x if isinstance(x, Expr) else self.b.constant(x, DOUBLE if isinstance(x, float) else INT) for x in numbers
        ]
        dtype = DOUBLE if any(x.dtype == DOUBLE for x in exprs) else INT
        return [x.cast(dtype) for x in exprs]


def formula(value: Any, alike: Alike | None = None) -> Any:
    """What PyTorch knows of a symbolic number, with equal sizes put in one's place.

    What follows from a trace's number of chunks is a number, as it would be of a size that is none of an open one.
    """
    if not isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return sympy.sympify(value)
    known = value.node.expr
    for symbol in (alike or {}).keys() & known.free_symbols if isinstance(value, torch.SymInt) else ():
        known = _of_alike(known, symbol, alike[symbol])  # type: ignore[index]
    return known


@functools.lru_cache(maxsize=4096)
def _of_alike(known: Any, symbol: sympy.Symbol, sizes: range) -> Any:
    """A formula in which numbers of chunks, and what is the same for more of them, are numbers."""
    if known.args:
        known = known.func(*(_of_alike(part, symbol, sizes) for part in known.args))
    if known.free_symbols != {symbol} or len({known.subs(symbol, size) for size in sizes}) > 1:
        return known
    number = known.subs(symbol, sizes.start)
    stays = all(known.subs(symbol, (sizes.stop << power) + power) == number for power in range(20))
    law = None if stays else _of_chunks(known, symbol)
    return number if stays or (law is not None and law.slope == len(sizes)) else known


# The size below which chunks end, and sizes far behind.
_CHUNK, _FAR = 2048, [2**power for power in range(40)]


def chunks(expression: Any, places: Mapping[sympy.Symbol, Sequence[Place]]) -> dict[Place, Law]:
    """The laws of axes whose number of chunks an equality tells; none for other comparisons.

    Args:
        expression: a comparison of sizes.
        places: open size -> axes of it.
    """
    axes = places_of(expression, places)
    if not axes or not getattr(expression, "is_Equality", False):
        return {}
    law = _of_chunks(expression.lhs - expression.rhs, *expression.free_symbols)
    return dict.fromkeys(axes, law) if law else {}


@functools.lru_cache(maxsize=256)
def _of_chunks(known: Any, symbol: sympy.Symbol) -> Law | None:
    """The law of an open size of which a formula grows evenly with the number of chunks; `None` for other formulas."""
    at = functools.cache(functools.partial(known.subs, symbol))
    begins = (size for size in range(2, _CHUNK) if at(size) != at(size - 1))
    first, second = next(begins, 1), next(begins, 1)
    if (slope := second - first) < 2:
        return None
    law = Law(slope, -(-first % slope), rest=slope - 1)
    height = at(first) - at(first - 1)
    even = all(
        at(size) - at(first) == height * ((size - law.offset) // slope - (first - law.offset) // slope)
        for size in (*range(1, 3 * slope), *_FAR)
    )
    return law if even else None


def _is_known(known: Any) -> bool:
    return bool(getattr(known, "is_number", False)) and known.is_finite is not False


def _read(x: Expr, axis: int) -> Expr:
    shape = x.shape
    if shape is not None and isinstance(shape[axis], int):
        return x.builder.root.constant(shape[axis], INT)
    return x.builder.op(std.Shape, x, start=axis, end=axis + 1).squeeze(0)


def _folded(combine: Callable[[Expr, Expr], Expr]) -> Callable[..., Expr]:
    return lambda sizes, *xs: functools.reduce(combine, sizes._same(*xs))


def _compared(combine: Callable[[Expr, Expr], Expr]) -> Callable[..., Expr]:
    return lambda sizes, a, b: combine(*sizes._same(a, b))


def _power(sizes: Sizes, x: Expr, exponent: Expr) -> Expr:
    x, exponent = sizes._same(x, exponent)
    if x.dtype == DOUBLE:
        return x**exponent
    return (x.cast(DOUBLE) ** exponent.cast(DOUBLE)).cast(INT)


def _real_power(sizes: Sizes, x: Expr, exponent: Expr) -> Expr:
    return x.cast(DOUBLE) ** exponent.cast(DOUBLE)


def _true_div(sizes: Sizes, x: Expr, y: Expr) -> Expr:
    return x.cast(DOUBLE) / y.cast(DOUBLE)


def _rounded(op: type[std.Standard]) -> Callable[..., Expr]:
    def rounded(sizes: Sizes, x: Expr) -> Expr:
        return x if x.dtype == INT else x.builder.op(op, x).cast(INT)

    return rounded


def _modular(sizes: Sizes, x: Expr, base: Expr, modulus: Expr) -> Expr:
    return sizes.floor_div(x, base) % modulus


def _real(op: type[std.Standard]) -> Callable[..., Expr]:
    return lambda sizes, x: x.builder.op(op, x.cast(DOUBLE))


def _log2(sizes: Sizes, x: Expr) -> Expr:
    """Exact for powers of two, as in Python; others are too far from a whole number to be taken for one."""
    x = x.cast(DOUBLE)
    quotient = x.log() / float(np.log(2))
    nearest = x.builder.op(std.Round, quotient)
    return x.builder.where((x.like(2) ** nearest).equals(x), nearest, quotient)


_FORMULAS: dict[Any, Callable[..., Expr]] = {
    sympy.Add: _folded(operator.add),
    sympy.Mul: _folded(operator.mul),
    sympy.Pow: _power,
    sympy.Max: _folded(Expr.maximum),
    sympy.Min: _folded(Expr.minimum),
    symbolic.Max: _folded(Expr.maximum),
    symbolic.Min: _folded(Expr.minimum),
    symbolic.FloorDiv: Sizes.floor_div,
    symbolic.CleanDiv: Sizes.floor_div,
    symbolic.IntTrueDiv: _true_div,
    symbolic.FloatTrueDiv: _true_div,
    symbolic.Mod: _compared(operator.mod),
    symbolic.PythonMod: _compared(operator.mod),
    symbolic.ModularIndexing: _modular,
    symbolic.PowByNatural: _power,
    symbolic.FloatPow: _real_power,
    symbolic.ToFloat: lambda sizes, x: x.cast(DOUBLE),
    symbolic.TruncToInt: lambda sizes, x: x.cast(INT),
    symbolic.FloorToInt: _rounded(std.Floor),
    symbolic.CeilToInt: _rounded(std.Ceil),
    symbolic.RoundToInt: _rounded(std.Round),
    symbolic.OpaqueUnaryFn_sqrt: _real(std.Sqrt),
    symbolic.OpaqueUnaryFn_log2: _log2,
    symbolic.OpaqueUnaryFn_exp: _real(std.Exp),
    symbolic.OpaqueUnaryFn_log: _real(std.Log),
    sympy.Equality: _compared(Expr.equals),
    sympy.Unequality: _compared(lambda x, y: ~x.equals(y)),
    sympy.StrictLessThan: _compared(operator.lt),
    sympy.LessThan: _compared(operator.le),
    sympy.StrictGreaterThan: _compared(operator.gt),
    sympy.GreaterThan: _compared(operator.ge),
    sympy.And: lambda sizes, *xs: functools.reduce(operator.and_, xs),
    sympy.Or: lambda sizes, *xs: functools.reduce(operator.or_, xs),
    sympy.Not: lambda sizes, x: ~x,
}
