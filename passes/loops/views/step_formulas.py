"""Formulas of what constants are in models of several numbers of steps: functions of whole numbers that grow evenly.

Sizes, places and numbers of steps grow by as much with each step. Numbers that a module's code computes of a step's
place, such as `t / T`, `0.9**t` or `math.sin(t / 10)`, lie in a row; of which function they are is guessed from the
first of them, where no other function that is known is near to these and differs far behind.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

import numpy as np
import onnx_ir as ir

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.graph.values import Array
from lstm_lower.passes.formulas.sizes import scalar, up_to


@dataclasses.dataclass
class Formulas:
    """Constants as formulas of lengths.

    Attributes:
        b: emits in front of the model's nodes.
        sizes: the lengths, scalars.
        steps: which they are in the first model; there is one more of each in another one.
    """

    b: Builder
    sizes: Sequence[Expr]
    steps: Sequence[int]

    def of(self, arrays: Sequence[Array], dtype: ir.DataType) -> Expr:
        """The formula for what an operand is in each model."""
        form = form_of(arrays)
        assert form is not None
        if form.ratio is not None:
            numbers = self._numbers(form).cast(ir.DataType.DOUBLE)
            powers = self.b.constant(form.ratio, ir.DataType.DOUBLE) ** numbers * float(form.first.item()) + form.offset
            return powers.reshape(*(-1 if axis == form.axis else 1 for axis in range(form.first.ndim))).cast(dtype)
        x = self._whole(form)
        if form.apart is not None:
            rank = form.first.ndim + 1
            column = self._numbers(form).reshape(-1, *[1] * (rank - 1)) * self.b.constant(form.apart)
            x = self.b.move_axis(column + x.unsqueeze(0), 0, form.axis, rank)
        if form.is_function:
            x = x.cast(ir.DataType.DOUBLE)
            divisor = self._linear(form.divisor) if form.divisor else 1
            if isinstance(divisor, Expr):
                # By 0, as a share of one step has no place among others, a run fails.
                divisor = divisor.unsqueeze(0).take((1 - divisor).maximum(0)).cast(x.dtype)
            x = form.function.written(x / divisor)
        return x.cast(dtype)

    def not_from_the_end(self, x: Expr, arrays: Sequence[Array]) -> Expr:
        """Places, none of which is negative; for so few steps that one would be, a run fails."""
        first, *others = (array.astype(np.int64) for array in arrays)
        least = first - sum((x - first) * (steps - 1) for x, steps in zip(others, self.steps, strict=True))
        if first.min() < 0 or np.min(least) >= 0:
            return x
        below = (-x).reshape(-1).maximum(0).reduce(std.ReduceMax, 0, keepdims=False)
        return x.unsqueeze(0).take(below)

    def _numbers(self, form: Form) -> Expr:
        return up_to(self.b, self._linear(form.counts))

    def _whole(self, form: Form) -> Expr:
        """Each element by itself."""
        shape = form.first.shape
        numbers = np.stack([x.reshape(-1) for x in (form.first, *form.slopes)], axis=1)
        elements = [self._linear(each) for each in numbers]
        if shape == ():
            return scalar(self.b, elements[0])
        row = self.b.sizes([x.unsqueeze(0) if isinstance(x, Expr) else x for x in elements])
        return row if len(shape) == 1 else row.reshape(*shape)

    def _linear(self, numbers: Sequence[int]) -> int | Expr:
        """A number of the first model that grows by so much with each step of each length."""
        first, *slopes = map(int, numbers)
        result: int | Expr = first - sum(slope * steps for slope, steps in zip(slopes, self.steps, strict=True))
        for slope, size in zip(slopes, self.sizes, strict=True):
            if slope:
                term = size if slope == 1 else size * slope
                result = term if isinstance(result, int) and result == 0 else term + result
        return result


@dataclasses.dataclass(frozen=True)
class _Function:
    """A function that a module's code may take of a step's number.

    Attributes:
        of: the function.
        inverse: its inverse where the first steps are.
        written: writes it.
    """

    of: Callable[[Array], Array]
    inverse: Callable[[Array], Array]
    written: Callable[[Expr], Expr]


def _writes(*ops: type[std.Unary]) -> Callable[[Expr], Expr]:
    return lambda x: functools.reduce(lambda made, op: made.builder.op(op, made), ops, x)


_WHOLE = _Function(np.positive, np.positive, _writes())
_INVERSE = _Function(np.reciprocal, np.reciprocal, _writes(std.Reciprocal))
_ROOTS = (
    _Function(np.sqrt, np.square, _writes(std.Sqrt)),
    _Function(lambda x: 1 / np.sqrt(x), lambda x: 1 / np.square(x), _writes(std.Sqrt, std.Reciprocal)),
    _Function(np.log, np.exp, _writes(std.Log)),
)
_FUNCTIONS = (
    _WHOLE,
    _INVERSE,
    *_ROOTS,
    _Function(np.square, np.sqrt, lambda x: x * x),
    _Function(np.exp, np.log, _writes(std.Exp)),
    _Function(np.sin, np.arcsin, _writes(std.Sin)),
    _Function(np.cos, np.arccos, _writes(std.Cos)),
    # Of half turns: a period of many steps is as many of them as there are turns.
    _Function(lambda x: np.sin(np.pi * x), lambda x: np.arcsin(x) / np.pi, lambda x: _writes(std.Sin)(x * math.pi)),
    _Function(lambda x: np.cos(np.pi * x), lambda x: np.arccos(x) / np.pi, lambda x: _writes(std.Cos)(x * math.pi)),
)


@dataclasses.dataclass(frozen=True)
class Form:
    """A function of whole numbers by lengths, `first + slopes * (length - steps)`, over a divisor.

    Attributes:
        first: in the first model.
        slopes: how much they grow with each length.
        function: what the constant is of them.
        divisor: what they are divided by before, in the first model, and how much that grows with each length.
        apart: of a row of numbers their distance; `first` is the first of them.
        ratio: of a row of any numbers, each of which is a multiple of the one before, that multiple.
        offset: what is added to each of these.
        axis: along which they lie.
        counts: how many there are in the first model, and how many more with each length.
    """

    first: Array
    slopes: Sequence[Array]
    function: _Function = _WHOLE
    divisor: Sequence[int] = ()
    apart: Array | None = None
    ratio: float | None = None
    offset: float = 0.0
    axis: int = 0
    counts: Sequence[int] = ()

    @property
    def is_function(self) -> bool:
        """Whether it is no whole number."""
        return bool(self.divisor) or self.function != _WHOLE

    def far(self) -> float:
        """What stands far behind in a row of the first model."""
        if self.ratio is not None:
            return self.offset + float(self.first.item()) * self.ratio**_FAR
        assert self.apart is not None
        place = self.first.reshape(-1)[0] + self.apart.reshape(-1)[0] * np.float64(_FAR)
        with np.errstate(all="ignore"):
            return float(self.function.of(place / (self.divisor[0] if self.divisor else 1)))


def form_of(arrays: Sequence[Array]) -> Form | None:
    """The formula of what a constant is in each model, if there is one."""
    for function in (_WHOLE, _INVERSE, *_ROOTS):
        whole = _whole_numbers(arrays, function)
        if whole is None:
            continue
        form = _linear(whole) or (_rows(whole) if function in {_WHOLE, _INVERSE} else None)
        if form is not None:
            return dataclasses.replace(form, function=function)
    if (form := _fractions(arrays)) is not None:
        return form
    forms = [*_progressions(arrays), *_powers(arrays)]
    # Slow ones are all alike at their beginning: of which one they are so few do not say.
    alike = all(np.isclose(form.far(), forms[0].far(), rtol=_NEAR, atol=_NOUGHT) for form in forms)
    return forms[0] if forms and alike else None


# Into how many parts 1 may be divided, of which constants are so many.
_MOST_PARTS = 1000


def _fractions(arrays: Sequence[Array]) -> Form | None:
    """Numbers of parts of 1, such as tenths."""
    if arrays[0].dtype.kind != "f" or not all(np.isfinite(x).all() for x in arrays):
        return None
    parts = 1
    for number in np.concatenate([x.reshape(-1) for x in arrays]):
        parts = math.lcm(parts, Fraction(float(number)).limit_denominator(_MOST_PARTS).denominator)
        if parts > _MOST_PARTS:
            return None
    counts = [np.rint(x.astype(np.float64) * parts).astype(np.int64) for x in arrays]
    if any(((count / parts).astype(x.dtype) != x).any() for count, x in zip(counts, arrays, strict=True)):
        return None
    form = _linear(counts) or _rows(counts)
    return form and dataclasses.replace(form, divisor=_grown([parts] * len(arrays)))


# A step far behind those that are traced, how near to each other formulas are there that are the same, and what
# rounding makes of 0 there.
_FAR, _NEAR, _NOUGHT = 1000, 1e-4, 1e-12
# Elements of a row at least that are told to be a function of their places.
_LEAST_ROW = 4


def _progressions(arrays: Sequence[Array]) -> Iterator[Form]:
    """Functions of numbers at equal distances that are decimal fractions, or have a common divisor, in a row."""
    kinds = {(x.dtype.kind, x.dtype.itemsize >= _LEAST_BYTES, x.size == max(x.shape, default=0)) for x in arrays}
    if kinds != {("f", True, True)} or min(x.size for x in arrays) < _LEAST_ROW:
        return
    rows = [x.reshape(-1).astype(np.float64) for x in arrays]
    eps = float(np.finfo(arrays[0].dtype).eps)
    for function in _FUNCTIONS:
        with np.errstate(all="ignore"):
            begins = [function.inverse(row[:2]) for row in rows]
        if not np.isfinite(begins).all():
            continue
        for divisors in _divisors(begins, [len(row) - 1 for row in rows]):
            whole = [
                np.rint(first * divisor) + np.rint((second - first) * divisor) * np.arange(len(row))
                for row, (first, second), divisor in zip(rows, begins, divisors, strict=True)
            ]
            with np.errstate(all="ignore"):
                made = [function.of(x / divisor) for x, divisor in zip(whole, divisors, strict=True)]
            near = zip(made, rows, strict=True)
            if all(np.allclose(x, row, rtol=2 * eps, atol=eps * np.abs(row).max()) for x, row in near):
                shaped = [x.astype(np.int64).reshape(array.shape) for x, array in zip(whole, arrays, strict=True)]
                if (form := _rows(shaped)) is not None:
                    yield dataclasses.replace(form, function=function, divisor=_grown(divisors))
                    break


# Decimals of such fractions: with more an exponential is like each power.
_DECIMALS = 4
# Bytes of numbers whose digits tell functions apart.
_LEAST_BYTES = 4


def _divisors(begins: Sequence[Array], parts: Sequence[int]) -> Iterator[list[int]]:
    """What the first numbers of rows that have so many distances may have been divided by."""
    apart = [abs(float(second - first)) for first, second in begins]
    shares = [[max(round(part / x), 1) for x in apart] for part in (1, 2) if all(x * 10**_DIGITS > 1 for x in apart)]
    for digits in range(_DECIMALS + 1):
        for each in ([1] * len(begins), parts):
            yield [10**digits * divisor for divisor in each]
    yield from shares


def numbers_said(arrays: Sequence[Array]) -> str:
    """Constants for which there is no formula, and what to do."""
    longest = max(arrays, key=lambda x: x.size).reshape(-1)
    said = ", ".join([*(f"{x:.4g}" for x in longest[:3].tolist()), *(["..."] if longest.size > 3 else [])])
    return (
        f"numbers of which no formula is known ({said}): made of "
        "torch.arange before the loop, and taken from there in each step, they are of any length"
    )


# Digits of a decay or the like, which is a decimal fraction as a rule, that rounding leaves of it.
_DIGITS = 6


def _powers(arrays: Sequence[Array]) -> Iterator[Form]:
    """Powers of one number, more of them in some models, or what is missing from each to 1."""
    rows, shape = [x.reshape(-1) for x in arrays], arrays[0].shape
    if arrays[0].dtype.kind != "f" or any(x.size != max((3, *x.shape)) for x in arrays):
        return
    near = 2 * float(np.finfo(arrays[0].dtype).eps)
    for offset in (0.0, 1.0):
        start, second = (float(x) - offset for x in rows[0][:2])
        ratio = float(f"{second / start:.{_DIGITS}g}") if start else 0.0
        made = [offset + start * ratio ** np.arange(len(row)) for row in rows]
        if start and all(np.allclose(row, x, rtol=near, atol=0) for row, x in zip(rows, made, strict=True)):
            counts = _grown([len(row) for row in rows])
            first = np.full([1] * len(shape), start)
            yield Form(first, [], ratio=ratio, offset=offset, axis=int(np.argmax(shape)), counts=counts)


def _grown(counts: Sequence[int]) -> list[int]:
    return [counts[0], *(count - counts[0] for count in counts[1:])]


def _whole_numbers(arrays: Sequence[Array], function: _Function) -> list[Array] | None:
    """What constants are a function of, where it is integers."""
    if arrays[0].dtype.kind in "iu":
        return [x.astype(np.int64) for x in arrays] if function == _WHOLE else None
    if arrays[0].dtype.kind != "f":
        return None
    found = []
    for x in arrays:
        with np.errstate(all="ignore"):
            near = np.rint(function.inverse(x.astype(np.float64)))
            exact = function.of(near).astype(x.dtype)
        if not np.array_equal(exact, x) or np.abs(near).max(initial=0) > 1 << 24:
            return None
        found.append(near.astype(np.int64))
    return found


def _linear(arrays: Sequence[Array]) -> Form | None:
    first, *others = arrays
    return Form(first, [x - first for x in others]) if all(x.shape == first.shape for x in others) else None


def _rows(arrays: Sequence[Array]) -> Form | None:
    """Rows of numbers at equal distances, longer in some models."""
    first = arrays[0]
    if any(x.ndim != first.ndim for x in arrays):
        return None
    axes = {axis for x in arrays for axis in range(first.ndim) if x.shape[axis] != first.shape[axis]}
    if len(axes) != 1 or min(x.shape[next(iter(axes))] for x in arrays) < 2:
        return None
    axis = axes.pop()
    rows = [np.moveaxis(x, axis, 0) for x in arrays]
    apart = rows[0][1] - rows[0][0]
    if any((np.diff(row, axis=0) != apart).any() for row in rows):
        return None
    form, counts = _linear([row[0] for row in rows]), _grown([len(row) for row in rows])
    return form and dataclasses.replace(form, apart=apart, axis=axis, counts=counts)
