"""One use of an op against its definition: operands, dtypes, sizes and attributes, each verified."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from lstm_lower import dims, errors
from lstm_lower.dtypes import DTYPES, DType, dtype_name

if TYPE_CHECKING:
    from lstm_lower.opdef import Attribute, OpDef, Operand


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


def bind_attributes(call: Call, given: Mapping[str, Any]) -> None:
    """Checks the given attributes and fills in the defaults of the others."""
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


def bind_operands(call: Call) -> None:
    """Checks dtypes and shapes of the operands and binds type variables and dimension symbols."""
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
        required = DTYPES[declared.dtype]
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
