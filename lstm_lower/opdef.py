"""Typed op definitions: what a composite op means, written once.

A definition is a class with nested `Inputs`, `Outputs` and `Attrs`. Verification, shape and type inference, the eager
signature, `lstm-lower ops` and the reference documentation all read it.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

from lstm_lower import dims, errors
from lstm_lower.binding import Call, TensorInfo, bind_attributes, bind_operands
from lstm_lower.dtypes import DTYPES, DType, all_dtypes, dtype_name, dtype_of

__all__ = [
    "DOMAINS",
    "REGISTRY",
    "REQUIRED",
    "Attribute",
    "Call",
    "DType",
    "OpDef",
    "Operand",
    "TensorInfo",
    "all_dtypes",
    "attr",
    "definition",
    "dtype_name",
    "dtype_of",
    "operand",
]

# The domain that tf2onnx gives to ops it leaves alone, and the short form that users write by hand.
DOMAINS = ("ai.onnx.converters.tensorflow", "tf")

REGISTRY: dict[str, type[OpDef]] = {}


@dataclasses.dataclass(frozen=True)
class Operand:
    """One input or output.

    Attributes:
        name: TensorFlow's argument name.
        spec: its symbolic shape; `None` when any shape goes.
        dtype: a type variable (`T`) or one of the dtype names.
        variadic: may repeat; its shapes are checked by the op's own `verify`.
        optional: may be left out (an empty name in ONNX).
        count: the attribute that says how often a variadic operand repeats, where TensorFlow has one.
    """

    name: str
    spec: dims.ShapeSpec | None
    dtype: str
    variadic: bool = False
    optional: bool = False
    count: str | None = None


@dataclasses.dataclass(frozen=True)
class Attribute:
    """One attribute.

    Attributes:
        name: TensorFlow's attribute name.
        type: `bool`, `int`, `float`, `str`, `DType`, or a list of one of the first four as `list`.
        default: TensorFlow's default; `REQUIRED` when it has none.
        choices: allowed values; empty when any goes.
        rounds_to: the type variable to whose dtype the value is rounded before use, as the kernels do.
    """

    name: str
    type: type
    default: Any
    choices: tuple[Any, ...] = ()
    rounds_to: str | None = None

    @property
    def required(self) -> bool:
        """Whether TensorFlow has no default for it."""
        return self.default is REQUIRED


class _Required:
    def __repr__(self) -> str:
        return "required"


REQUIRED = _Required()


def operand(
    shape: str | None,
    dtype: str = "T",
    *,
    variadic: bool = False,
    optional: bool = False,
    count: str | None = None,
) -> Any:
    """Declares an operand, for example `operand("I+H 4*H")`; `None` for any shape."""
    spec = None if shape is None else dims.parse_shape(shape)
    return Operand("", spec, dtype, variadic, optional, count)


def attr(type_: type, default: Any = REQUIRED, *, choices: Sequence[Any] = (), rounds_to: str | None = None) -> Any:
    """Declares an attribute, with TensorFlow's default if it has one."""
    return Attribute("", type_, default, tuple(choices), rounds_to)


class OpDef:
    """Base of all definitions; see the module's docstring.

    Attributes:
        op_type: the class name.
        inputs, outputs, attributes: the declarations in order.
        types: type variable -> allowed dtypes, from the nested class `Types`.
        forward: for a backward op, the op type that it is the gradient of.
        family: the module that the definition stands in: `block`, `cudnn`, ...
        static_sizes: dimension symbols whose sizes the lowering must know before the run.
        static_operands: operands whose values it must know.
    """

    op_type: ClassVar[str] = ""
    inputs: ClassVar[tuple[Operand, ...]] = ()
    outputs: ClassVar[tuple[Operand, ...]] = ()
    attributes: ClassVar[tuple[Attribute, ...]] = ()
    types: ClassVar[Mapping[str, tuple[DType, ...]]] = {}
    forward: ClassVar[str | None] = None
    family: ClassVar[str] = ""
    static_sizes: ClassVar[tuple[str, ...]] = ()
    static_operands: ClassVar[tuple[str, ...]] = ()

    class Types:
        """Type variables with their allowed dtypes."""

        T = ("float16", "float32")

    def __init_subclass__(cls, *, abstract: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.inputs = _declarations(cls, "Inputs", Operand)
        cls.outputs = _declarations(cls, "Outputs", Operand)
        cls.attributes = _declarations(cls, "Attrs", Attribute)
        cls.types = {
            name: tuple(DTYPES[dtype] for dtype in allowed)
            for name, allowed in vars(cls.Types).items()
            if not name.startswith("_")
        }
        if abstract:
            return
        cls.op_type = cls.__name__
        cls.family = cls.__module__.rpartition(".")[2]
        if cls.op_type in REGISTRY:
            raise KeyError(f"{cls.op_type} is already defined")
        REGISTRY[cls.op_type] = cls

    @classmethod
    def summary(cls) -> str:
        """The first line of the definition's docstring."""
        return (inspect.getdoc(cls) or "").split("\n", 1)[0]

    @classmethod
    def operand_names(cls, count: int, attributes: Mapping[str, Any] | None = None) -> list[str]:
        """The names of a node's `count` operands; those of a variadic operand are numbered `name[0]`, `name[1]`, ...

        Variadic operands may stand anywhere: each is as long as its attribute says; what the others leave over is
        shared evenly by those without one.
        """
        return _names(cls.inputs, count, attributes or {})

    @classmethod
    def output_names(cls, count: int, attributes: Mapping[str, Any] | None = None) -> list[str]:
        """The names of a node's `count` outputs, numbered like those of variadic operands."""
        return _names(cls.outputs, count, attributes or {})

    @classmethod
    def output_count(cls, call: Call) -> int:
        """How many outputs a verified call has; overridden where an output is variadic."""
        del call
        return len(cls.outputs)

    @classmethod
    def shape_spec(cls, operand: Operand, attributes: Mapping[str, Any]) -> dims.ShapeSpec | None:  # noqa: ARG003
        """The symbolic shape of an operand under given attributes; overridden where attributes change shapes."""
        return operand.spec

    @classmethod
    def verify(cls, call: Call) -> None:
        """Further checks of one op, beyond ranks, sizes, dtypes and attributes; overridden where an op has any.

        May also bind symbols in `call.sizes` that only attributes and operands together determine.
        """

    @classmethod
    def output_infos(cls, call: Call, count: int) -> list[TensorInfo]:
        """Dtypes and shapes of the outputs of a verified call that has `count` outputs."""
        infos = []
        declared = {output.name: output for output in cls.outputs}
        for name in cls.output_names(count, call.attributes):
            output = declared[name.partition("[")[0]]
            spec = cls.shape_spec(output, call.attributes)
            shape = None if spec is None else call.unifier.shape(spec)
            infos.append(TensorInfo(_resolve_dtype(call, output), shape))
        return infos

    @classmethod
    def bind(
        cls,
        node: str | None,
        operands: Mapping[str, TensorInfo],
        attributes: Mapping[str, Any],
        *,
        error: type[errors.LstmLowerError] = errors.InvalidModelError,
    ) -> Call:
        """Verifies one use of the op against its definition.

        Args:
            node: node name; `None` for an eager call.
            operands: operand name -> what is known of it.
            attributes: attribute name -> value; names that start with `_` are TensorFlow's own notes and ignored.
            error: what to raise: `InvalidInputError` when the operands are a run's.

        Raises:
            InvalidModelError, InvalidInputError: an operand or attribute does not fit.
        """
        call = Call(cls, node, dict(operands), {}, error)
        bind_attributes(call, attributes)
        bind_operands(call)
        cls.verify(call)
        return call


def definition(domain: str, op_type: str) -> type[OpDef] | None:
    """The definition of an op in one of our domains, or `None`."""
    return REGISTRY.get(op_type) if domain in DOMAINS else None


def _declarations(cls: type[OpDef], section: str, kind: type) -> tuple[Any, ...]:
    """Reads a nested class in order; a base's declarations come first, redeclared ones keep their place."""
    found: dict[str, Any] = {}
    holder = getattr(cls, section, None)
    for base in reversed(holder.__mro__) if holder is not None else ():
        for name, value in vars(base).items():
            if isinstance(value, kind):
                found[name] = dataclasses.replace(cast("Any", value), name=name)
    return tuple(found.values())


def _names(declarations: Sequence[Operand], count: int, attributes: Mapping[str, Any]) -> list[str]:
    """Names in order; variadic ones without a count of their own share evenly what the others leave over."""
    lengths = {
        declared.name: attributes.get(declared.count or "", None) if declared.variadic else 1
        for declared in declarations
    }
    taken = sum(length for length in lengths.values() if isinstance(length, int))
    sharing = sum(not isinstance(length, int) for length in lengths.values())
    share = max(count - taken, 0) // max(sharing, 1)
    names: list[str] = []
    for declared in declarations:
        length = lengths[declared.name]
        if declared.variadic:
            names += [f"{declared.name}[{index}]" for index in range(length if isinstance(length, int) else share)]
        else:
            names.append(declared.name)
    return names


def _resolve_dtype(call: Call, output: Operand) -> DType | None:
    return call.types.get(output.dtype) if output.dtype in call.op.types else DTYPES[output.dtype]
