"""What definitions of ops on whole arrays share: dtypes, and shapes as far as operands and values tell them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lstm_lower.dims import Dim, unknown_sizes
from lstm_lower.opdef import Call, DType, OpDef, TensorInfo, attr, operand
from lstm_lower.ops.gradients import COMPLEX
from lstm_lower.ops.indexing import INDEX
from lstm_lower.ops.ordinary.kinds import EVERYTHING, NUMBERS

ALL = (*EVERYTHING, *COMPLEX)
REAL = NUMBERS
# What a ranking by value is defined for.
ORDERED = tuple(name for name in REAL if name != "uint64")


def index_attr(default: DType = DType.INT32) -> Any:
    """An attribute that says which integers come out."""
    return attr(DType, default, choices=(DType.INT32, DType.INT64))


def result(call: Call, shape: Sequence[Dim] | None, variable: str = "T") -> list[TensorInfo]:
    """One output of a type variable's dtype."""
    return [TensorInfo(call.types.get(variable), None if shape is None else tuple(shape))]


def shape_of(call: Call, name: str) -> tuple[Dim, ...] | None:
    """An operand's shape."""
    return call.operands[name].shape


def numbers(call: Call, name: str) -> list[int] | None:
    """The entries of an integer operand where they are known."""
    value = call.operands[name].value
    return None if value is None else [int(entry) for entry in value.ravel().tolist()]


def number(call: Call, name: str) -> int | None:
    """The value of an integer scalar (or of a vector of one) where it is known."""
    found = numbers(call, name)
    if found is not None and len(found) != 1:
        raise call.error(name, "one entry", f"{len(found)}")
    return None if found is None else found[0]


def count_axis(call: Call, name: str, axis: int, rank: int) -> int:
    """An axis counted from the front.

    Raises:
        InvalidModelError, InvalidInputError: there are not so many.
    """
    if not -rank <= axis < rank:
        raise call.error(name, f"an axis from {-rank} to {rank - 1}", f"{axis}")
    return axis % rank


def length_of(call: Call, name: str) -> int | None:
    """How many entries a vector has, where that is known."""
    shape = shape_of(call, name)
    return shape[0] if shape is not None and len(shape) == 1 and isinstance(shape[0], int) else None


def said(call: Call, name: str) -> tuple[Dim, ...] | None:
    """The shape that a vector of sizes says; only its rank where the sizes are not known."""
    sizes = numbers(call, name)
    if sizes is not None:
        return tuple(sizes)
    return unknown_sizes(length_of(call, name))


def times(size: Dim, factor: Dim) -> Dim:
    """A product of sizes, where it is known."""
    if isinstance(size, int) and isinstance(factor, int):
        return size * factor
    return size if factor == 1 else factor if size == 1 else 0 if 0 in (size, factor) else None


def at(shape: Sequence[Dim], axis: int, size: Dim) -> tuple[Dim, ...]:
    """A shape with another size at one axis."""
    return (*shape[:axis], size, *shape[axis + 1 :])


class Kept(OpDef, abstract=True):
    """An op on `input` whose output has the input's shape."""

    class Types:
        T = ALL

    class Inputs:
        input = operand("*S")

    class Outputs:
        output = operand("*S")


class Reshaped(OpDef, abstract=True):
    """An op on `input` whose output has a shape of its own."""

    class Types:
        T = ALL

    class Inputs:
        input = operand(None)

    class Outputs:
        output = operand(None)


__all__ = [
    "ALL",
    "INDEX",
    "ORDERED",
    "REAL",
    "Kept",
    "Reshaped",
    "at",
    "count_axis",
    "index_attr",
    "length_of",
    "number",
    "numbers",
    "result",
    "said",
    "shape_of",
    "times",
]
