"""Typed op definitions: what a composite op means, written once.

A definition is a class with nested `Inputs`, `Outputs` and `Attrs`. Verification, shape and type inference, the eager
signature, `lstm-lower ops` and the reference documentation all read it.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

import numpy as np
import onnx_ir as ir

from lstm_lower import dims, errors

# The domain that tf2onnx gives to ops it leaves alone, and the short form that users write by hand.
DOMAINS = ("ai.onnx.converters.tensorflow", "tf")

REGISTRY: dict[str, type[OpDef]] = {}

DType = ir.DataType
_DTYPES: dict[str, DType] = {
    "bool": DType.BOOL,
    "int8": DType.INT8,
    "int32": DType.INT32,
    "int64": DType.INT64,
    "float16": DType.FLOAT16,
    "bfloat16": DType.BFLOAT16,
    "float32": DType.FLOAT,
    "float64": DType.DOUBLE,
}


def all_dtypes() -> tuple[DType, ...]:
    """Every dtype that an operand may have."""
    return tuple(_DTYPES.values())


def dtype_of(name: str) -> DType | None:
    """The dtype of a numpy-style name; `None` for a type variable."""
    return _DTYPES.get(name)


def dtype_name(dtype: DType | None) -> str:
    """The numpy-style name of a dtype, for messages: `float32`."""
    if dtype is None:
        return "unknown"
    for name, known in _DTYPES.items():
        if known == dtype:
            return name
    return dtype.name.lower()


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


@dataclasses.dataclass
class TensorInfo:
    """What is known of one actual operand.

    Attributes:
        dtype: its dtype, or `None`.
        shape: its dimensions, or `None` when not even the rank is known.
        value: its value where it is a constant or an eager argument, else `None`.
    """

    dtype: DType | None
    shape: tuple[dims.Dim, ...] | None
    value: np.ndarray[Any, Any] | None = None


@dataclasses.dataclass
class Call:
    """One use of an op, verified: operands and attributes bound to the definition.

    Attributes:
        op: the definition.
        node: node name, or `None` for an eager call.
        operands: operand name -> what is known of it (missing optional ones are absent; variadic ones are
            numbered `name[0]`, `name[1]`, ...).
        attributes: every attribute, defaults filled in.
        error_type: what a misfit raises.
        sizes: dimension symbol -> size, name or `None`.
        unifier: the bindings, from which output shapes follow.
        types: type variable -> dtype or `None`.
    """

    op: type[OpDef]
    node: str | None
    operands: dict[str, TensorInfo]
    attributes: dict[str, Any]
    error_type: type[errors.LstmLowerError] = errors.InvalidModelError
    unifier: dims.Unifier = dataclasses.field(default_factory=dims.Unifier)
    types: dict[str, DType | None] = dataclasses.field(default_factory=dict)

    @property
    def sizes(self) -> dict[str, dims.Dim]:
        """Dimension symbol -> size, name or `None`."""
        return self.unifier.sizes

    def error(self, operand_name: str, what: str, got: object) -> errors.LstmLowerError:
        """The error for one operand or attribute."""
        return self.error_type(errors.requires(self.op.op_type, self.node, operand_name, what, got))


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
            name: tuple(_DTYPES[dtype] for dtype in allowed)
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
        _bind_attributes(call, attributes)
        _bind_operands(call)
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


def _bind_attributes(call: Call, given: Mapping[str, Any]) -> None:
    known = {attribute.name: attribute for attribute in call.op.attributes}
    for name in given:
        # TensorFlow keeps the dtypes of an op as attributes T, S, ...; a converter may carry them along.
        if name not in known and not name.startswith("_") and name not in call.op.types:
            raise call.error(f"attribute {name}", f"to be one of {sorted(known) or 'none'}", "an unknown attribute")
    for attribute in call.op.attributes:
        if attribute.name not in given:
            if attribute.required:
                raise call.error(f"attribute {attribute.name}", f"a {attribute.type.__name__}", "nothing")
            call.attributes[attribute.name] = attribute.default
            continue
        call.attributes[attribute.name] = _attribute_value(call, attribute, given[attribute.name])


def _attribute_value(call: Call, attribute: Attribute, value: Any) -> Any:
    what = f"attribute {attribute.name}"
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if attribute.type is bool and isinstance(value, (int, np.bool_)) and value in (0, 1):
        value = bool(value)
    elif attribute.type is int and isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        value = int(value)
    elif attribute.type is float and isinstance(value, (int, float, np.floating)) and not isinstance(value, bool):
        value = float(value)
    elif attribute.type is list and isinstance(value, (list, tuple)):
        value = list(value)
    elif attribute.type is DType and (dtype := _as_dtype(value)) is not None:
        value = dtype
    elif not (attribute.type is str and isinstance(value, str)):
        raise call.error(what, f"a {attribute.type.__name__}", f"{value!r}")
    if attribute.choices and value not in attribute.choices:
        raise call.error(what, f"one of {list(attribute.choices)}", f"{value!r}")
    return value


def _as_dtype(value: Any) -> DType | None:
    """A dtype given as ONNX's number, a name, a numpy dtype, or TensorFlow's (which knows its numpy one)."""
    try:
        if isinstance(value, int):
            return DType(value)
        return DType.from_numpy(np.dtype(getattr(value, "as_numpy_dtype", value)))
    except (TypeError, ValueError):
        return None


def _bind_operands(call: Call) -> None:
    op = call.op
    known = {declared.name for declared in op.inputs}
    for name in call.operands:
        if name.partition("[")[0] not in known:
            raise call.error(name, f"to be one of {[declared.name for declared in op.inputs]}", "an unknown operand")
    for declared in op.inputs:
        if declared.variadic:
            _bind_variadic(call, declared)
            continue
        info = call.operands.get(declared.name)
        if info is None:
            if declared.optional:
                continue
            raise call.error(declared.name, "a value", "nothing")
        _bind_dtype(call, declared, declared.name, info)
        spec = op.shape_spec(declared, call.attributes)
        if spec is not None and info.shape is not None:
            try:
                call.unifier.add(declared.name, spec, info.shape)
            except dims.MismatchError as error:
                raise call.error(declared.name, error.args[0], error.args[1]) from None
    try:
        call.unifier.solve()
    except dims.OperandMismatchError as error:
        raise call.error(error.operand, error.args[0], error.args[1]) from None


def _bind_variadic(call: Call, declared: Operand) -> None:
    for name, info in call.operands.items():
        if name.startswith(f"{declared.name}["):
            _bind_dtype(call, declared, name, info)


def _bind_dtype(call: Call, declared: Operand, name: str, info: TensorInfo) -> None:
    allowed = call.op.types.get(declared.dtype)
    if allowed is None:
        required = _DTYPES[declared.dtype]
        if info.dtype is not None and info.dtype != required:
            raise call.error(name, f"dtype {declared.dtype}", dtype_name(info.dtype))
        return
    bound = call.types.setdefault(declared.dtype, info.dtype)
    if bound is None:
        bound = call.types[declared.dtype] = info.dtype
    if info.dtype is None:
        return
    if info.dtype not in allowed:
        names = " or ".join(dtype_name(dtype) for dtype in allowed)
        raise call.error(name, f"dtype {names}", dtype_name(info.dtype))
    if info.dtype != bound:
        first = next(o.name for o in call.op.inputs if o.dtype == declared.dtype)
        raise call.error(name, f"dtype {dtype_name(bound)} (as {first})", dtype_name(info.dtype))


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
    return call.types.get(output.dtype) if output.dtype in call.op.types else _DTYPES[output.dtype]
