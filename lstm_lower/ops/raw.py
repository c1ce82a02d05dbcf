"""Definitions that follow TensorFlow's registry, of which a generated table holds the signatures."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from lstm_lower import dims
from lstm_lower.declarations import REQUIRED, AttributeDeclaration, OpDeclaration, OperandDeclaration
from lstm_lower.dims import Dim, broadcast_shapes, unknown_sizes
from lstm_lower.dtypes import DTYPES, DType, dtype_name
from lstm_lower.errors import InvalidInputError
from lstm_lower.opdef import Call, OpDef

# Written by `python -m lstm_lower.tensorflow.signature_table`.
SIGNATURES = Path(__file__).with_name("signatures.json")

# What the table has for a type that may be any.
ANY = "any"

# What rules compute with; TensorFlow's kernels take more or less.
FLOATS = ("float16", "bfloat16", "float32", "float64")
COMPLEX = ("complex64", "complex128")
# The dtypes of parts of complex numbers.
PAIRED = ("float32", "float64")
INDEX = ("int32", "int64")
SIGNED = ("int8", "int16", "int32", "int64")
INTEGERS = (*SIGNED, "uint8", "uint16", "uint32", "uint64")
NUMBERS = (*FLOATS, *INTEGERS)
# What a ranking by value is defined for.
ORDERED = tuple(name for name in NUMBERS if name != "uint64")
# What onnxruntime computes in.
COMPUTED = (*FLOATS, *INDEX)
EVERYTHING = (*NUMBERS, "bool")

_DTYPE = re.compile(r"(\w+)(?:\[(\w*)\])?")
_KINDS: dict[str, Any] = {"bool": bool, "int": int, "float": float, "str": str, "type": DType}
_KINDS |= {f"list({name})": list[kind] for name, kind in _KINDS.items()}  # type: ignore[valid-type]


@functools.cache
def _table() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(SIGNATURES.read_text(encoding="utf-8"))
    return found


class RawOp(OpDef, abstract=True):
    """An op of TensorFlow: its operands, outputs, attributes and their dtypes are those of TensorFlow's registry.

    Keywords of the class say by name what of it is supported, or asked for beyond it: the symbolic shape of an operand,
    the dtypes of a type variable, the values of an attribute. A base's count where the op has such a name::

        class CumulativeLogsumexp(RawOp, T=FLOATS, axis=""):
            '''log of the running sum of exp(x) along an axis, without overflow.'''

    Sizes of outputs follow from what the op's rule writes.

    Attributes:
        refinements: the keywords.
        rounded: attributes that the kernels round to T before use.
        indexes, counts: an operand, and what its values are indices below or lengths of, as in `OperandDeclaration`.
    """

    refinements: ClassVar[Mapping[str, Any]] = {}
    rounded: ClassVar[tuple[str, ...]] = ()
    indexes: ClassVar[tuple[str, str]] = ("", "")
    counts: ClassVar[tuple[str, str]] = ("", "")

    def __init_subclass__(cls, *, abstract: bool = False, **refinements: str | tuple[Any, ...]) -> None:
        cls.refinements = {**cls.refinements, **refinements}
        super().__init_subclass__(abstract=abstract)
        names = {*cls.types, *(operand.name for operand in cls.inputs), *(each.name for each in cls.attributes)}
        if not abstract and not refinements.keys() <= names:
            got = sorted(refinements.keys() - names)
            raise InvalidInputError(f"{cls.__name__}: keywords require names of {sorted(names)}, got {got}")

    @classmethod
    def _declared(cls, *, abstract: bool) -> OpDeclaration:
        """The table's, refined."""
        own = super()._declared(abstract=abstract)
        if abstract:
            return own
        signature = _table()[cls.__name__]
        types = {name: cls.refinements.get(name) or _dtypes(text) for name, text in signature.get("types", {}).items()}
        inputs = tuple(cls._input(name, dtype) for name, dtype in signature.get("in", {}).items())
        outputs = tuple(_operand(name, dtype) for name, dtype in signature["out"].items())
        # Lists tell their lengths.
        told = {declared.count: 0 for declared in inputs if declared.count}
        attributes = {name: cls._attribute(name, {**entry}, told) for name, entry in signature.get("attrs", {}).items()}
        attributes |= {attribute.name: attribute for attribute in own.attributes}
        # An output's dtype may be what an attribute says.
        chosen = {declared.dtype for declared in outputs} & attributes.keys()
        types |= {name: tuple(map(dtype_name, attributes[name].choices)) for name in sorted(chosen)}
        return OpDeclaration(types, inputs, outputs, tuple(attributes.values()))

    @classmethod
    def _input(cls, name: str, dtype: str) -> OperandDeclaration:
        declared, shape = _operand(name, dtype), cls.refinements.get(name)
        spec = None if shape is None else dims.parse_shape(shape)
        indexes, counts = (dict([pair]).get(name) for pair in (cls.indexes, cls.counts))
        return dataclasses.replace(declared, spec=spec, indexes=indexes, counts=counts)

    @classmethod
    def _attribute(cls, name: str, entry: Mapping[str, Any], told: Mapping[str, int]) -> AttributeDeclaration:
        kind, default = _KINDS[entry["type"]], entry.get("default", told.get(name, REQUIRED))
        choices = cls.refinements.get(name) or entry.get("choices", ())
        if kind is DType:
            choices = [DTYPES[each] for each in (_dtypes(choices) if isinstance(choices, str) else choices)]
            default = default if default is REQUIRED else DTYPES[default]
        return AttributeDeclaration(name, kind, default, tuple(choices), "T" if name in cls.rounded else None)


def _dtypes(text: str) -> tuple[str, ...]:
    return tuple(DTYPES) if text == ANY else tuple(text.split())


def _operand(name: str, dtype: str) -> OperandDeclaration:
    match = _DTYPE.fullmatch(dtype)
    assert match is not None
    variable, count = match.groups()
    return OperandDeclaration(name, None, variable, variadic=count is not None, count=count or None, mixed=count == "")


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


class Binary(RawOp, abstract=True):
    """A function of operands that broadcast."""

    @classmethod
    def verify(cls, call: Call) -> None:
        """The operands broadcast."""
        broadcast(call, *(declared.name for declared in cls.inputs))


def broadcast(call: Call, *names: str) -> tuple[Dim, ...] | None:
    """The shape that operands broadcast to, `None` where a rank is open.

    Raises:
        InvalidModelError, InvalidInputError: sizes differ.
    """
    result: tuple[Dim, ...] = ()
    for name in names:
        shape = call.operands[name].shape
        if shape is None:
            return None
        merged = broadcast_shapes(result, shape)
        if merged is None:
            raise call.error(name, f"a shape that broadcasts with {list(result)} (as {names[0]})", list(shape))
        result = merged
    return result


def check_count(call: Call, name: str) -> None:
    """Verifies that the attribute N, where it is given, is the number of a variadic operand's tensors.

    Raises:
        InvalidModelError, InvalidInputError: it is another number.
    """
    given = call.attributes["N"]
    count = len(call.lists[name])
    if given not in (0, count):
        raise call.error("attribute N", f"{count}, the number of tensors of {name}", given)
