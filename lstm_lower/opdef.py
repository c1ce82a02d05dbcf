"""Typed op definitions: what a composite op means, written once.

A definition is a class with nested `Inputs`, `Outputs` and `Attrs`. Verification, shape and type inference, the eager
signature, `lstm-lower ops` and the reference documentation all read it.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any, ClassVar, cast

import numpy as np

from lstm_lower import declarations, dims, errors
from lstm_lower.declarations import (
    REQUIRED,
    Arranged,
    AttributeDeclaration,
    OpDeclaration,
    OperandDeclaration,
    Slot,
    attr,
    operand,
    slots,
)
from lstm_lower.dtypes import DTYPES, DType, all_dtypes, dtype_name, dtype_of
from lstm_lower.registry import DOMAIN, ONNX_DOMAINS, SYNONYMS, Registry, is_ours, key_of

__all__ = [
    "DOMAIN",
    "REGISTRY",
    "REQUIRED",
    "Arranged",
    "AttributeDeclaration",
    "Call",
    "DType",
    "OpDef",
    "OperandDeclaration",
    "Slot",
    "TensorInfo",
    "all_dtypes",
    "attr",
    "definition",
    "domains",
    "dtype_name",
    "dtype_of",
    "operand",
]

REGISTRY: Registry[type[OpDef]] = Registry("definition", "lstm_lower.ops", "lstm_lower.passes.rules")

# No op has so many outputs; a damaged attribute may say so.
_MAX_COUNT = 65536


@dataclasses.dataclass
class TensorInfo:
    """Knowledge of one actual operand.

    Attributes:
        dtype: its dtype, or `None`.
        shape: its dimensions, or `None` when not even the rank is known.
        value: its value where it is of integers, and a constant or an eager argument; else `None`.
    """

    dtype: DType | None
    shape: tuple[dims.Dim, ...] | None
    value: np.ndarray[Any, Any] | None = None


@dataclasses.dataclass(eq=False)
class Call:
    """One use of an op: operands and attributes verified and bound to the definition. Equal nodes may share one.

    Attributes:
        op: the definition.
        operands: operand name -> what is known of it (missing optional ones are absent).
        lists: name of a variadic operand -> what is known of each.
        attributes: every attribute, defaults filled in.
        unifier: the bindings of dimension symbols, from which output shapes follow.
        types: type variable -> dtype or `None`.
        outputs: what follows for each output.
    """

    op: type[OpDef]
    operands: dict[str, TensorInfo] = dataclasses.field(default_factory=dict)
    lists: dict[str, list[TensorInfo]] = dataclasses.field(default_factory=dict)
    attributes: dict[str, Any] = dataclasses.field(default_factory=dict)
    unifier: dims.Unifier = dataclasses.field(default_factory=dims.Unifier)
    types: dict[str, DType | None] = dataclasses.field(default_factory=dict)
    outputs: list[TensorInfo] = dataclasses.field(default_factory=list)

    @property
    def sizes(self) -> dict[str, dims.Dim]:
        """Dimension symbol -> size, name or `None`."""
        return self.unifier.sizes

    def error(self, operand_name: str, what: str, got: object) -> errors.MisfitError:
        """The error for one operand or attribute."""
        return errors.MisfitError(operand_name, what, got)


class OpDef:
    """Base of all definitions; see the module's docstring.

    Attributes:
        domain: the domain that nodes of the op stand in; another package's op may have one of that package's own.
        op_type: the class name.
        inputs, outputs, attributes: the declarations in order.
        types: type variable -> allowed dtypes, from the nested class `Types`.
        forward: for a backward op, the op type that it is the gradient of.
        family: the module that the definition stands in: `block`, `cudnn`, ...
        static_sizes: dimension symbols whose sizes the lowering must know before the run.
        static_operands: operands whose values it must know.
        stock: whether onnxruntime itself has a kernel for it on every machine.
    """

    domain: ClassVar[str] = DOMAIN
    op_type: ClassVar[str] = ""
    inputs: ClassVar[tuple[OperandDeclaration, ...]] = ()
    outputs: ClassVar[tuple[OperandDeclaration, ...]] = ()
    attributes: ClassVar[tuple[AttributeDeclaration, ...]] = ()
    types: ClassVar[Mapping[str, tuple[DType, ...]]] = {}
    forward: ClassVar[str | None] = None
    family: ClassVar[str] = ""
    static_sizes: ClassVar[tuple[str, ...]] = ()
    static_operands: ClassVar[tuple[str, ...]] = ()
    stock: ClassVar[bool] = False

    class Types:
        """Type variables with their allowed dtypes."""

        T = ("float16", "float32")

    def __init_subclass__(cls, *, abstract: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        declared = cls._declared(abstract=abstract)
        fault = declarations.fault(declared)
        if fault is not None:
            raise errors.InvalidInputError(errors.requires(cls.__name__, None, *fault))
        cls.inputs, cls.outputs, cls.attributes = declared.inputs, declared.outputs, declared.attributes
        cls.types = {name: tuple(DTYPES[dtype] for dtype in allowed) for name, allowed in declared.types.items()}
        if abstract:
            return
        cls.op_type = cls.__name__
        cls.family = cls.__module__.rpartition(".")[2]
        cls.domain = key_of(cls)[0]
        if cls.domain in ONNX_DOMAINS:
            raise errors.InvalidInputError(f"{cls.op_type} requires a domain of its own, got ONNX's '{cls.domain}'")
        REGISTRY.register(cls, cls, cls.__module__)

    @classmethod
    def _declared(cls, *, abstract: bool) -> OpDeclaration:  # noqa: ARG003
        """Declarations of the nested classes."""
        types = {name: allowed for name, allowed in vars(cls.Types).items() if not name.startswith("_")}
        inputs, outputs = (
            _declarations(cls, "Inputs", OperandDeclaration),
            _declarations(cls, "Outputs", OperandDeclaration),
        )
        return OpDeclaration(types, inputs, outputs, _declarations(cls, "Attrs", AttributeDeclaration))

    @classmethod
    def summary(cls) -> str:
        """The first line of the definition's docstring."""
        return (inspect.getdoc(cls) or "").split("\n", 1)[0]

    @classmethod
    def input_slots(cls, count: int, attributes: Mapping[str, Any] | None = None) -> list[Slot]:
        """The operand at each of a node's `count` inputs; see `declarations.slots`."""
        return slots(cls.inputs, count, attributes or {})

    @classmethod
    def output_slots(cls, count: int, attributes: Mapping[str, Any] | None = None) -> list[Slot]:
        """The operand at each of a node's `count` outputs."""
        return slots(cls.outputs, count, attributes or {})

    @classmethod
    def shape_spec(cls, operand: OperandDeclaration, attributes: Mapping[str, Any]) -> dims.ShapeSpec | None:  # noqa: ARG003
        """The symbolic shape of an operand under given attributes; overridden where attributes change shapes."""
        return operand.spec

    @classmethod
    def verify(cls, call: Call) -> None:
        """Further checks of one op, beyond ranks, sizes, dtypes and attributes; overridden where an op has any.

        May also bind symbols in `call.sizes` that only attributes and operands together determine.

        Raises:
            MisfitError: as `call.error` makes it.
        """

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """Dtypes and shapes of all outputs of a verified call; overridden where they follow from more than symbols."""
        infos = []
        for output in cls.outputs:
            spec = cls.shape_spec(output, call.attributes)
            shape = None if spec is None else call.unifier.shape(spec)
            infos += [TensorInfo(dtype, shape) for dtype in _output_dtypes(call, output)]
        return infos

    @classmethod
    def draws(cls, attributes: Mapping[str, Any]) -> bool:  # noqa: ARG003
        """Whether a node with these attributes draws random numbers, so that no two runs agree; overridden by such ops.

        Args:
            attributes: those that the node gives, defaults not filled in.
        """
        return False

    @classmethod
    def bind(
        cls,
        node: str | None,
        operands: Arranged[TensorInfo | None],
        attributes: Mapping[str, Any],
        *,
        error: type[errors.LstmLowerError] = errors.InvalidModelError,
    ) -> Call:
        """Verifies one use of the op against its definition.

        Args:
            node: node name; `None` for an eager call.
            operands: what is known of the operands; `None` for one that is left out.
            attributes: attribute name -> value; names that start with `_` are TensorFlow's own notes and ignored.
            error: what to raise: `InvalidInputError` when the operands are a run's.

        Raises:
            InvalidModelError, InvalidInputError: an operand or attribute does not fit.
        """
        call = Call(cls)
        try:
            _bind_attributes(call, attributes)
            _bind_operands(call, operands, attributes)
            cls.verify(call)
            call.outputs = cls.output_infos(call)
            _check_outputs(call)
        except errors.MisfitError as misfit:
            raise error(errors.requires(cls.op_type, node, misfit.operand, misfit.what, misfit.got)) from None
        except errors.LstmLowerError:
            raise
        except Exception as fault:
            if is_ours(cls.__module__):
                raise
            got = f"{type(fault).__name__}: {fault}"
            where = f"the definition of {cls.__module__}"
            raise error(errors.requires(cls.op_type, node, where, "to verify its use", got)) from fault
        return call


def definition(domain: str, op_type: str) -> type[OpDef] | None:
    """The definition of an op, or `None`."""
    return REGISTRY.get((domain, op_type))


def our_definitions() -> list[type[OpDef]]:
    """The definitions that are part of lstm-lower, without those of other packages."""
    return [op for op in REGISTRY.values() if is_ours(op.__module__)]


def domains() -> tuple[str, ...]:
    """The domains that hold defined ops: ours, its short form, and those of other packages."""
    return tuple(dict.fromkeys([DOMAIN, *SYNONYMS, *(op.domain for op in REGISTRY.values())]))


def _declarations(cls: type[OpDef], section: str, kind: type) -> tuple[Any, ...]:
    """Reads a nested class in order; a base's declarations come first, redeclared ones keep their place."""
    found: dict[str, Any] = {}
    holder = getattr(cls, section, None)
    for base in reversed(holder.__mro__) if holder is not None else ():
        for name, value in vars(base).items():
            if isinstance(value, kind):
                found[name] = dataclasses.replace(cast("Any", value), name=name)
    return tuple(found.values())


def _bind_attributes(call: Call, given: Mapping[str, Any]) -> None:
    """Checks the given attributes and fills in the defaults of the others."""
    known = {attribute.name for attribute in call.op.attributes}
    for name in given:
        # TensorFlow keeps the dtypes of an op as attributes T, S, ...; a converter may carry them along.
        if name not in known and not name.startswith("_") and name not in call.op.types:
            raise call.error(f"attribute {name}", f"a name of {sorted(known) or 'none'}", "an unknown attribute")
    for attribute in call.op.attributes:
        what = f"attribute {attribute.name}"
        if attribute.name in given:
            value = attribute.read(given[attribute.name])
            if value is None:
                raise call.error(what, f"a {attribute.type_name}", f"{given[attribute.name]!r}")
            if attribute.choices and value not in attribute.choices:
                raise call.error(what, f"one of {list(attribute.choices)}", f"{value!r}")
        elif attribute.required:
            raise call.error(what, f"a {attribute.type_name}", "nothing")
        else:
            value = attribute.default
        call.attributes[attribute.name] = value
    for count in {declared.count for declared in (*call.op.inputs, *call.op.outputs) if declared.count}:
        if not 0 <= call.attributes[count] <= _MAX_COUNT:
            raise call.error(f"attribute {count}", f"0 to {_MAX_COUNT}", call.attributes[count])


def _bind_operands(call: Call, given: Arranged[TensorInfo | None], attributes: Mapping[str, Any]) -> None:
    """Checks dtypes and shapes of the operands and binds type variables and dimension symbols; lists tell lengths."""
    for declared in call.op.inputs:
        if declared.variadic:
            infos = given.lists.get(declared.name, [])
            for index, info in enumerate(infos):
                _bind_operand(call, Slot(declared, index), info)
            call.lists[declared.name] = [info for info in infos if info is not None]
            if declared.count and declared.count not in attributes:
                call.attributes[declared.count] = len(infos)
        else:
            found = given.single.get(declared.name)
            _bind_operand(call, Slot(declared), found)
            if found is not None:
                call.operands[declared.name] = found
    call.unifier.solve()


def _bind_operand(call: Call, slot: Slot, info: TensorInfo | None) -> None:
    declared = slot.operand
    if info is None:
        if not declared.optional:
            raise call.error(str(slot), "a value", "nothing")
        return
    _bind_dtype(call, slot, info)
    shape = info.shape
    if info.value is not None:
        shape = info.value.shape
        if not dims.agree(shape, info.shape):
            raise call.error(str(slot), f"its declared shape {list(info.shape or ())}", f"a value of {list(shape)}")
    spec = call.op.shape_spec(declared, call.attributes)
    if spec is not None and shape is not None:
        call.unifier.add(str(slot), spec, shape)


def _bind_dtype(call: Call, slot: Slot, info: TensorInfo) -> None:
    declared = slot.operand
    allowed = call.op.types.get(declared.dtype)
    if allowed is None:
        if info.dtype not in (None, DTYPES[declared.dtype]):
            raise call.error(str(slot), f"dtype {declared.dtype}", dtype_name(info.dtype))
        return
    bound = info.dtype if declared.mixed else call.types.get(declared.dtype) or info.dtype
    call.types[declared.dtype] = bound
    if info.dtype is None:
        return
    if info.dtype not in allowed:
        names = " or ".join(dtype_name(dtype) for dtype in allowed)
        raise call.error(str(slot), f"dtype {names}", dtype_name(info.dtype))
    if info.dtype != bound:
        first = next(o.name for o in call.op.inputs if o.dtype == declared.dtype)
        raise call.error(str(slot), f"dtype {dtype_name(bound)} (as {first})", dtype_name(info.dtype))


def _output_dtypes(call: Call, output: OperandDeclaration) -> list[DType | None]:
    """The dtype of each tensor of an output."""
    if output.mixed:
        alike = next(declared.name for declared in call.op.inputs if declared.dtype == output.dtype)
        return [info.dtype for info in call.lists[alike]]
    dtype = DTYPES.get(output.dtype) or call.types.get(output.dtype) or call.attributes.get(output.dtype)
    return [dtype] * (call.attributes[output.count] if output.count else 1)


def _check_outputs(call: Call) -> None:
    """No size of an output may follow to be negative, as it does from a damaged operand's value."""
    for slot, info in zip(call.op.output_slots(len(call.outputs), call.attributes), call.outputs, strict=True):
        if any(isinstance(dim, int) and dim < 0 for dim in info.shape or ()):
            raise call.error(str(slot), "sizes of 0 or more", f"shape {list(info.shape or ())}")
