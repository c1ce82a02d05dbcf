"""The forms that an operator has had, as onnx's schemas tell them, and whether a node fits one."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import onnx_ir as ir
from onnx import defs, helper

from lstm_lower.dtypes import type_string


@functools.cache
def _histories() -> dict[str, dict[int, defs.OpSchema]]:
    histories: dict[str, dict[int, defs.OpSchema]] = {}
    for schema in defs.get_all_schemas_with_history():
        if schema.domain == "":
            histories.setdefault(schema.name, {})[schema.since_version] = schema
    return {op: dict(sorted(forms.items())) for op, forms in histories.items()}


@functools.cache
def form(op_type: str, version: int) -> defs.OpSchema | None:
    """The form that an operator has in a version; `None` before its first one."""
    forms = [schema for since, schema in _histories().get(op_type, {}).items() if since <= version]
    return forms[-1] if forms else None


def first_version(node: ir.Node) -> int:
    """The oldest version that has a node's operator; 0 for others than ONNX's own."""
    return min(_histories().get(node.op_type, {}), default=0) if node.domain == "" else 0


@functools.cache
def changes(op_type: str, source: int, target: int) -> tuple[int, ...]:
    """The versions between two in which an operator changed, in the order in which a conversion meets them."""
    low, high = sorted((source, target))
    between = tuple(since for since in _histories().get(op_type, {}) if low < since <= high)
    return between if source < target else between[::-1]


def misfit(node: ir.Node, schema: defs.OpSchema) -> tuple[str, str] | None:
    """Where a node does not fit a form, as operand and what it holds, or `None`.

    A value without a known type is not judged here; the model's final check infers it.
    """
    for name in node.attributes:
        if name not in schema.attributes:
            return f"attribute {name}", "it"
    for values, parameters, what in ((node.inputs, schema.inputs, "input"), (node.outputs, schema.outputs, "output")):
        for index, value in enumerate(values):
            if value is None:
                continue
            parameter = _parameter(parameters, index)
            if parameter is None:
                return f"{what} {index}", "it"
            type_ = type_string(value.type)
            if type_ is not None and type_ not in parameter.types:
                return parameter.name, type_
    return None


def _parameter(parameters: Sequence[defs.OpSchema.FormalParameter], index: int) -> defs.OpSchema.FormalParameter | None:
    if index < len(parameters):
        return parameters[index]
    if parameters and parameters[-1].option == defs.OpSchema.FormalParameterOption.Variadic:
        return parameters[-1]
    return None


def default_attributes(newer: defs.OpSchema, older: defs.OpSchema, node: ir.Node) -> Iterator[str]:
    """The node's attributes that the older form lacks and that say what the newer one assumes without them."""
    for name, attribute in node.attributes.items():
        if name in older.attributes or name not in newer.attributes or attribute.is_ref():
            continue
        default = newer.attributes[name].default_value
        if not default.name:
            continue
        value = helper.get_attribute_value(default)
        if attribute.value == (value.decode() if isinstance(value, bytes) else value):
            yield name


def opset_of(model: ir.Model) -> int:
    """A model's version of `ai.onnx`, which it may import by that name or by none; 0 where it imports none."""
    imports = model.graph.opset_imports
    return imports.get("ai.onnx", imports.get("", 0))
