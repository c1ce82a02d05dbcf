"""Writes `raw_ops.py` from the definitions: `python -m lstm_lower.raw_ops_source`.

The functions are spelled out in a file, not made at run time, so that editors and type checkers see their signatures. A
test compares the file with what this module would write.
"""

from __future__ import annotations

import inspect
import textwrap
from pathlib import Path

from lstm_lower import opdef, ops  # noqa: F401 (ops fills the registry)

# Eager calls are offered for the recurrent ops; the ordinary gradient ops around them are one numpy line each.
FAMILIES = ("block", "cudnn", "cudnn_params")

_HEADER = '''"""Recurrent ops, one call at a time: TensorFlow's `tf.raw_ops` signatures without TensorFlow.

Arguments are keyword-only, with TensorFlow's names; arrays in, a NamedTuple of numpy arrays out (one array where the op
has a single output). Each op is lowered once per attributes and dtypes and runs in onnxruntime on the CPU.

Written by `python -m lstm_lower.raw_ops_source` from the op definitions; do not edit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lstm_lower.runtime import eager

Array = np.ndarray[Any, Any]
'''

_ATTRIBUTE_TYPES = {
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    list: "Sequence[int]",
    opdef.DType: "npt.DTypeLike",
}


def source() -> str:
    """The text of `raw_ops.py`."""
    chosen = [op for op in opdef.REGISTRY.values() if op.family in FAMILIES]
    names = "".join(f'    "{op.op_type}",\n' for op in sorted(chosen, key=lambda op: op.op_type))
    body = "".join(_outputs_class(op) + _function(op) for op in chosen)
    header = _HEADER if "Sequence[" in body else _HEADER.replace("from collections.abc import Sequence\n", "")
    return f"{header}\n__all__ = [\n{names}]\n{body}"


def _outputs_class(op: type[opdef.OpDef]) -> str:
    if _single(op):
        return ""
    fields = "".join(f"    {output.name}: {'list[Array]' if output.variadic else 'Array'}\n" for output in op.outputs)
    return f'\n\nclass {op.op_type}Outputs(NamedTuple):\n    """Outputs of {op.op_type}."""\n\n{fields}'


def _function(op: type[opdef.OpDef]) -> str:
    parameters = [f"    {operand.name}: {_operand_type(operand)},\n" for operand in op.inputs]
    required = [a for a in _given_attributes(op) if a.required]
    optional = [a for a in _given_attributes(op) if not a.required]
    parameters += [f"    {a.name}: {_ATTRIBUTE_TYPES[a.type]},\n" for a in required]
    parameters += [f"    {a.name}: {_ATTRIBUTE_TYPES[a.type]} = {_default(a)},\n" for a in optional]
    parameters.append("    name: str | None = None,\n")
    result = "Array" if _single(op) else f"{op.op_type}Outputs"
    operands = "".join(f'            "{o.name}": {o.name},\n' for o in op.inputs)
    attributes = "".join(f'            "{a.name}": {a.name},\n' for a in _given_attributes(op))
    shadowing = any(o.name in ("input", "type", "id") for o in op.inputs)
    given = f"{{\n{attributes}        }}" if op.attributes else "{}"
    call = (
        f'    outputs = eager.call(\n        "{op.op_type}",\n        {{\n{operands}        }},\n'
        f"        {given},\n        name,\n    )\n"
    )
    if _single(op):
        call += f'    {op.outputs[0].name}: Array = outputs["{op.outputs[0].name}"]\n'
    returned = op.outputs[0].name if _single(op) else f"{op.op_type}Outputs(**outputs)"
    noqa = "  # noqa: A002" if shadowing else ""
    if noqa:
        parameters = [p.rstrip("\n") + (noqa if p.strip().startswith("input:") else "") + "\n" for p in parameters]
    return (
        f"\n\ndef {op.op_type}(\n    *,\n{''.join(parameters)}) -> {result}:\n"
        f"{_docstring(op)}{call}    return {returned}\n"
    )


def _given_attributes(op: type[opdef.OpDef]) -> list[opdef.Attribute]:
    """All but the lengths of operands that are lists, which the lists tell."""
    told = {operand.count for operand in op.inputs}
    return [attribute for attribute in op.attributes if attribute.name not in told]


def _operand_type(operand: opdef.Operand) -> str:
    kind = "Sequence[npt.ArrayLike]" if operand.variadic else "npt.ArrayLike"
    return f"{kind} | None = None" if operand.optional else kind


def _single(op: type[opdef.OpDef]) -> bool:
    return len(op.outputs) == 1


def _docstring(op: type[opdef.OpDef]) -> str:
    lines = [inspect.getdoc(op) or "", "", "Args:"]
    lines += [f"    {o.name}: {_describe(op, o)}." for o in op.inputs]
    lines += [f"    {a.name}: {_describe_attribute(a)}." for a in _given_attributes(op)]
    lines.append("    name: stands for the node in error messages.")
    lines += ["", "Returns:"]
    if _single(op):
        lines.append(f"    {op.outputs[0].name}, {_describe(op, op.outputs[0])}.")
    else:
        described = [f"{o.name} {_describe(op, o)}" for o in op.outputs]
        lines += textwrap.wrap("; ".join(described) + ".", 100, initial_indent="    ", subsequent_indent="    ")
    lines += ["", "Raises:", "    InvalidInputError: an operand or attribute does not fit."]
    text = "\n".join(lines)
    return textwrap.indent(f'"""{text}\n"""\n', "    ", lambda line: bool(line.strip()))


def _describe(op: type[opdef.OpDef], operand: opdef.Operand) -> str:
    shape = "any shape" if operand.spec is None else f"[{', '.join(operand.spec.text.split())}]"
    if operand.dtype in op.types:
        dtype = " or ".join(opdef.dtype_name(allowed) for allowed in op.types[operand.dtype])
    else:
        dtype = operand.dtype
    return f"{'list of ' if operand.variadic else ''}{shape}, {dtype}"


def _default(attribute: opdef.Attribute) -> str:
    value = opdef.dtype_name(attribute.default) if attribute.type is opdef.DType else attribute.default
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _describe_attribute(attribute: opdef.Attribute) -> str:
    text = _ATTRIBUTE_TYPES[attribute.type]
    if attribute.choices:
        text += ", one of " + ", ".join(
            opdef.dtype_name(choice) if attribute.type is opdef.DType else repr(choice) for choice in attribute.choices
        )
    return text + ("" if attribute.required else f", default {_default(attribute)}")


if __name__ == "__main__":
    Path(__file__).with_name("raw_ops.py").write_text(source(), encoding="utf-8")
