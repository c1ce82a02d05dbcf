"""An op's definition as a Python function: its parameters, its result and its docstring."""

from __future__ import annotations

import inspect
import textwrap
from inspect import Parameter
from typing import Any

from lstm_lower.declarations import AttributeDeclaration, OperandDeclaration
from lstm_lower.dtypes import DType, dtype_name
from lstm_lower.opdef import OpDef

_ATTRIBUTE_TYPES: dict[Any, str] = {DType: "npt.DTypeLike"}


def parameters(op: type[OpDef]) -> list[Parameter]:
    """The function's parameters, all by name: operands, attributes, and a name that stands for the node."""
    found = [
        _parameter(o.name, f"{_operand_type(o)} | None", None) if o.optional else _parameter(o.name, _operand_type(o))
        for o in op.inputs
    ]
    found += [
        _parameter(a.name, _attribute_type(a), Parameter.empty if a.required else _default(a)) for a in _given(op)
    ]
    # Those that must be given stand first.
    found.sort(key=lambda parameter: parameter.default is not Parameter.empty)
    return [*found, _parameter("name", "str | None", None)]


def single(op: type[OpDef]) -> bool:
    """Whether the function returns its only output as it is; else it returns a named tuple."""
    return len(op.outputs) == 1


def output_type(output: OperandDeclaration) -> str:
    """The annotation of an output."""
    return "list[Array]" if output.variadic else "Array"


def docstring(op: type[OpDef]) -> str:
    """The function's docstring."""
    lines = [inspect.getdoc(op) or "", "", "Args:"]
    lines += [f"    {o.name}: {_describe(op, o)}." for o in op.inputs]
    lines += [f"    {a.name}: {_describe_attribute(a)}." for a in _given(op)]
    lines.append("    name: names the node in error messages.")
    lines += ["", "Returns:"]
    if single(op):
        lines.append(f"    {op.outputs[0].name}, {_describe(op, op.outputs[0])}.")
    else:
        described = [f"{o.name} {_describe(op, o)}" for o in op.outputs]
        lines += textwrap.wrap("; ".join(described) + ".", 100, initial_indent="    ", subsequent_indent="    ")
    lines += ["", "Raises:", "    InvalidInputError: an operand or attribute does not fit."]
    return "\n".join(lines)


def _parameter(name: str, annotation: str, default: Any = Parameter.empty) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _given(op: type[OpDef]) -> list[AttributeDeclaration]:
    """All but the lengths of operands that are lists, which the lists tell."""
    told = {operand.count for operand in op.inputs}
    return [attribute for attribute in op.attributes if attribute.name not in told]


def _operand_type(operand: OperandDeclaration) -> str:
    return "Sequence[npt.ArrayLike]" if operand.variadic else "npt.ArrayLike"


def _attribute_type(attribute: AttributeDeclaration) -> str:
    return _ATTRIBUTE_TYPES.get(attribute.type) or attribute.type_name.replace("list[", "Sequence[")


def _default(attribute: AttributeDeclaration) -> Any:
    return dtype_name(attribute.default) if attribute.type is DType else attribute.default


def _describe(op: type[OpDef], operand: OperandDeclaration) -> str:
    shape = "any shape" if operand.spec is None else f"[{', '.join(operand.spec.text.split())}]"
    if operand.dtype in op.types:
        dtype = " or ".join(dtype_name(allowed) for allowed in op.types[operand.dtype])
    else:
        dtype = operand.dtype
    return f"{'list of ' if operand.variadic else ''}{shape}, {dtype}"


def _describe_attribute(attribute: AttributeDeclaration) -> str:
    text = _attribute_type(attribute)
    if attribute.choices:
        text += ", one of " + ", ".join(
            dtype_name(choice) if attribute.type is DType else repr(choice) for choice in attribute.choices
        )
    return text + ("" if attribute.required else f", default {literal(_default(attribute))}")


def literal(value: Any) -> str:
    """A default as source has it."""
    return f'"{value}"' if isinstance(value, str) else repr(value)
