"""Declarations of a definition: operands, attributes, and which operand is at which position of a node."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar, get_args, get_origin

import numpy as np

from lstm_lower import dims
from lstm_lower.dtypes import DTYPES, DType

# The types that an attribute may have.
TYPES = (bool, int, float, str, DType, list[bool], list[int], list[float], list[str])

V = TypeVar("V")
W = TypeVar("W")


@dataclasses.dataclass(frozen=True)
class OperandDeclaration:
    """One input or output.

    Attributes:
        name: TensorFlow's argument name.
        spec: its symbolic shape; `None` when any shape goes.
        dtype: a type variable (`T`) or one of the dtype names.
        variadic: may repeat; its shapes are checked by the op's own `verify`.
        sequence: it is a sequence of tensors of the dtype.
        mixed: each of a variadic operand's values has a dtype of its own, one of those that the type variable allows.
        optional: may be left out (an empty name in ONNX).
        count: the attribute that says how often a variadic operand repeats, where TensorFlow has one.
        indexes: the dimension symbol, or the scalar operand, whose size its values are indices below.
        counts: the dimension symbol of which its values are lengths, 1 up to all.
    """

    name: str
    spec: dims.ShapeSpec | None
    dtype: str
    variadic: bool = False
    optional: bool = False
    count: str | None = None
    indexes: str | None = None
    counts: str | None = None
    mixed: bool = False
    sequence: bool = False


class _Required:
    def __repr__(self) -> str:
        return "required"


REQUIRED = _Required()


@dataclasses.dataclass(frozen=True)
class AttributeDeclaration:
    """One attribute.

    Attributes:
        name: TensorFlow's attribute name.
        type: `bool`, `int`, `float`, `str`, `DType`, or a list of one of the first four, as `list[int]`.
        default: TensorFlow's default; `REQUIRED` when it has none.
        choices: allowed values; empty when any goes.
        rounds_to: the type variable to whose dtype the value is rounded before use, as the kernels do.
    """

    name: str
    type: Any
    default: Any
    choices: tuple[Any, ...] = ()
    rounds_to: str | None = None

    @property
    def required(self) -> bool:
        """Whether TensorFlow has no default for it."""
        return self.default is REQUIRED

    @property
    def type_name(self) -> str:
        """The type as Python writes it: `int`, `list[int]`."""
        return str(self.type) if get_origin(self.type) else str(self.type.__name__)

    def read(self, given: object) -> Any:
        """A given value in the attribute's type; `None` when it is of another one."""
        return _read(self.type, given)


@dataclasses.dataclass(frozen=True)
class OpDeclaration:
    """All that a definition declares.

    Attributes:
        types: type variable -> names of the dtypes that it may be.
        inputs, outputs, attributes: the declarations in order.
    """

    types: Mapping[str, Sequence[Any]]
    inputs: tuple[OperandDeclaration, ...]
    outputs: tuple[OperandDeclaration, ...]
    attributes: tuple[AttributeDeclaration, ...]


def fault(declared: OpDeclaration) -> tuple[str, str, object] | None:
    """A fault in declarations: at which name, what is required there, and what came."""
    types, inputs, outputs, attributes = declared.types, declared.inputs, declared.outputs, declared.attributes
    known = sorted(DTYPES)
    for variable, allowed in types.items():
        for dtype in [allowed] if isinstance(allowed, str) else allowed:
            if dtype not in DTYPES or isinstance(allowed, str):
                return f"type variable {variable}", f"a tuple of some of {', '.join(known)}", repr(allowed)
    lengths = [attribute.name for attribute in attributes if attribute.type is int]
    taken = {"name": "the node's"}
    for kind, name in [("operand", o.name) for o in inputs] + [("attribute", a.name) for a in attributes]:
        if name in taken:
            return f"{kind} {name}", "a name of its own", f"that of {taken[name]}"
        taken[name] = f"an {kind}"
    for each in (*inputs, *outputs):
        if each.dtype not in types and each.dtype not in DTYPES:
            return each.name, f"one of {', '.join([*types, *known])} as its dtype", repr(each.dtype)
        if each.count is not None and each.count not in lengths:
            return each.name, f"one of the int attributes {lengths} as its count", repr(each.count)
    for attribute in attributes:
        if attribute.type not in TYPES:
            names = [getattr(type_, "__name__", "") if get_origin(type_) is None else str(type_) for type_ in TYPES]
            return f"attribute {attribute.name}", f"a type of {', '.join(names)}", repr(attribute.type)
        if not attribute.required and attribute.read(attribute.default) is None:
            return f"attribute {attribute.name}", f"a default of type {attribute.type_name}", repr(attribute.default)
    return None


def _read(type_: Any, given: object) -> Any:
    """A value in a type; `None` when it is none of it."""
    if get_origin(type_) is list:
        if not isinstance(given, (list, tuple)):
            return None
        (element,) = get_args(type_)
        values = [_read(element, value) for value in given]
        return None if any(value is None for value in values) else values
    if isinstance(given, bytes):
        given = given.decode("utf-8", "replace")
    if type_ is DType:
        return _dtype(given)
    if type_ is bool:
        return bool(given) if isinstance(given, (int, np.integer, np.bool_)) and given in (0, 1) else None
    numbers = {int: (int, np.integer), float: (int, float, np.integer, np.floating)}.get(type_, (type_,))
    # A truth value is an int to Python only.
    if not isinstance(given, numbers) or isinstance(given, (bool, np.bool_)):
        return None
    try:
        return type_(given)
    except OverflowError:
        return None


def _dtype(given: Any) -> DType | None:
    """A dtype given as ONNX's number, a name, a numpy dtype, or TensorFlow's (which knows its numpy one)."""
    try:
        if isinstance(given, (int, np.integer)):
            return DType(int(given))
        return DType.from_numpy(np.dtype(getattr(given, "as_numpy_dtype", given)))
    except (TypeError, ValueError, SyntaxError):
        return None


def operand(
    shape: str | None,
    dtype: str = "T",
    *,
    variadic: bool = False,
    optional: bool = False,
    count: str | None = None,
    indexes: str | None = None,
    counts: str | None = None,
    mixed: bool = False,
    sequence: bool = False,
) -> Any:
    """Declares an operand, for example `operand("I+H 4*H")`; `None` for any shape. See `OperandDeclaration`."""
    spec = None if shape is None else dims.parse_shape(shape)
    return OperandDeclaration("", spec, dtype, variadic, optional, count, indexes, counts, mixed, sequence)


def attr(type_: Any, default: Any = REQUIRED, *, choices: Sequence[Any] = (), rounds_to: str | None = None) -> Any:
    """Declares an attribute, with TensorFlow's default if it has one. See `AttributeDeclaration`."""
    return AttributeDeclaration("", type_, default, tuple(choices), rounds_to)


@dataclasses.dataclass(frozen=True)
class Slot:
    """One place in a node's list of inputs or outputs.

    Attributes:
        operand: what stands there.
        index: which one of a variadic operand's values; `None` for any other operand.
    """

    operand: OperandDeclaration
    index: int | None = None

    def __str__(self) -> str:
        return self.operand.name if self.index is None else f"{self.operand.name}[{self.index}]"


def slots(declared: Sequence[OperandDeclaration], count: int, attributes: Mapping[str, Any]) -> list[Slot]:
    """The places of a node that has `count` inputs (or outputs); fewer where the node has more than its op.

    Variadic operands may stand anywhere: each is as long as its attribute says; what the others leave over is shared
    evenly by those without one.
    """
    lengths = [_length(operand, attributes) for operand in declared]
    taken = sum(length for length in lengths if length is not None)
    share = max(count - taken, 0) // max(lengths.count(None), 1)
    places: list[Slot] = []
    for operand, length in zip(declared, lengths, strict=True):
        if operand.variadic:
            # Not more than there are, whatever a damaged attribute says.
            length = min(share if length is None else length, count - len(places))
            places += [Slot(operand, index) for index in range(length)]
        else:
            places.append(Slot(operand))
    return places[:count]


def _length(operand: OperandDeclaration, attributes: Mapping[str, Any]) -> int | None:
    """How many places an operand takes; `None` when it shares what others leave over."""
    if not operand.variadic:
        return 1
    length = attributes.get(operand.count) if operand.count else None
    return max(length, 0) if isinstance(length, int) else None


@dataclasses.dataclass(frozen=True)
class Arranged(Generic[V]):
    """Values at a node's places, by operand name.

    Attributes:
        single: operand name -> item.
        lists: name of a variadic operand -> its items.
    """

    single: dict[str, V] = dataclasses.field(default_factory=dict)
    lists: dict[str, list[V]] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(
        cls, declared: Sequence[OperandDeclaration], items: Sequence[V], attributes: Mapping[str, Any]
    ) -> Arranged[V]:
        """Arranges a node's inputs or outputs, or what stands for them."""
        arranged = cls.at(zip(slots(declared, len(items), attributes), items, strict=False))
        for operand in declared:
            if operand.variadic:
                arranged.lists.setdefault(operand.name, [])
        return arranged

    @classmethod
    def at(cls, placed: Iterable[tuple[Slot, V]]) -> Arranged[V]:
        """Arranges items by their places, which are in order."""
        arranged = cls()
        for slot, item in placed:
            if slot.index is None:
                arranged.single[slot.operand.name] = item
            else:
                arranged.lists.setdefault(slot.operand.name, []).append(item)
        return arranged

    def map(self, function: Callable[[V], W]) -> Arranged[W]:
        """The same places with something else at each."""
        return Arranged(
            {name: function(item) for name, item in self.single.items()},
            {name: [function(item) for item in items] for name, items in self.lists.items()},
        )

    def named(self) -> dict[str, V | list[V]]:
        """All of it in one mapping, as functions take their arguments."""
        return {**self.single, **self.lists}
