"""Writes `lstm_lower/ops/signatures.json`: `python -m lstm_lower.tensorflow.signature_table`.

An op of TensorFlow's registry a line: its inputs, outputs, attributes and type variables, of all ops whose operands are
numbers. Inputs have the names of `tf.raw_ops`. Needs TensorFlow; the file is read without it.
"""

from __future__ import annotations

import inspect
import json
from typing import Any

import numpy as np

from lstm_lower.dtypes import DTYPES
from lstm_lower.ops.raw import ANY, SIGNATURES

# Attributes that no tensor and no number can be.
_KINDS = {"bool": "bool", "int": "int", "float": "float", "string": "str", "type": "type", "shape": "list(int)"}
_KINDS |= {
    f"list({kind})": f"list({name})" for kind, name in _KINDS.items() if kind in ("bool", "int", "float", "string")
}


def signatures() -> dict[str, dict[str, Any]]:
    """Op -> its signature, for every op of numbers that TensorFlow has."""
    import tensorflow as tf
    from tensorflow.python.framework import op_def_registry

    found = {}
    for name in sorted(dir(tf.raw_ops)):
        definition = None if name.startswith("_") else op_def_registry.get(name)
        signature = None if definition is None else _signature(definition, getattr(tf.raw_ops, name))
        if signature is not None:
            found[name] = signature
    return found


def text() -> str:
    """The file's text."""
    lines = [f"{json.dumps(name)}: {json.dumps(entry, separators=(',', ':'))}" for name, entry in signatures().items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _signature(definition: Any, function: Any) -> dict[str, Any] | None:
    inputs, outputs = (
        {arg.name: _dtype(arg) for arg in args} for args in (definition.input_arg, definition.output_arg)
    )
    variables = {arg.type_attr or arg.type_list_attr for arg in definition.input_arg}
    kinds = {attr.name: attr.type for attr in definition.attr}
    types, attributes = {}, {}
    for attr in definition.attr:
        if attr.name in variables:
            types[attr.name] = _allowed(attr)
        elif attr.type != "list(type)":
            attributes[attr.name] = _attribute(attr)
    dtypes = {name.partition("[")[0] for name in (*inputs.values(), *outputs.values())}
    known = dtypes <= {*DTYPES, *types, *attributes}
    if not known or not all(types.values()) or None in attributes.values():
        return None
    names = [name for name in inspect.signature(function).parameters if name != "name" and name not in kinds]
    inputs = dict(zip(_python_names(list(inputs), names), inputs.values(), strict=True))
    found = {"in": inputs, "out": outputs, "attrs": attributes, "types": types}
    return {key: value for key, value in found.items() if value}


def _python_names(graph: list[str], python: list[str]) -> list[str]:
    """The inputs' names in Python, in the graph's order."""
    others = iter([name for name in python if name not in graph])
    return [name if name in python else next(others) for name in graph]


def _dtype(arg: Any) -> str:
    """A dtype, a type variable, `T[N]` for N tensors of one, `T[]` for tensors of dtypes in a list."""
    from tensorflow.python.framework import dtypes

    if arg.type_list_attr:
        return f"{arg.type_list_attr}[]"
    name = arg.type_attr or dtypes.as_dtype(arg.type).name
    return f"{name}[{arg.number_attr}]" if arg.number_attr else name


def _allowed(attr: Any) -> str:
    """The dtypes of ours that a type may be, between blanks."""
    from tensorflow.python.framework import dtypes

    names = {dtypes.as_dtype(number).name for number in attr.allowed_values.list.type}
    return " ".join(name for name in DTYPES if name in names) if names else ANY


def _attribute(attr: Any) -> dict[str, Any] | None:
    kind = _KINDS.get(attr.type)
    if kind is None:
        return None
    found: dict[str, Any] = {"type": kind}
    if attr.HasField("default_value"):
        found["default"] = _default(attr)
    if attr.type == "type":
        found["choices"] = _allowed(attr)
    elif attr.allowed_values.list.s:
        found["choices"] = [value.decode() for value in attr.allowed_values.list.s]
    return found


def _default(attr: Any) -> Any:
    from tensorflow.python.framework import dtypes

    value = attr.default_value
    match attr.type:
        case "string":
            return value.s.decode()
        case "type":
            return dtypes.as_dtype(value.type).name
        case "shape":
            return [dim.size for dim in value.shape.dim]
        case "list(string)":
            return [item.decode() for item in value.list.s]
        case "bool" | "int" | "float":
            number = getattr(value, attr.type[0])
            return _shortest(number) if attr.type == "float" else number
    return list(value.list.i or value.list.f or value.list.b)


def _shortest(number: float) -> float:
    """The number of fewest digits that is the same in float32."""
    return next(short for digits in range(1, 10) if np.float32(short := float(f"{number:.{digits}g}")) == number)


if __name__ == "__main__":
    SIGNATURES.write_text(text(), encoding="utf-8")
