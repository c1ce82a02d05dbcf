"""Writes `raw_ops.pyi` from the definitions: `python -m lstm_lower.raw_ops_source`.

The functions are made at run time; the file tells editors and type checkers what they are. A test compares it with what
this module would write.
"""

from __future__ import annotations

import textwrap
from inspect import Parameter
from pathlib import Path

from lstm_lower import signatures
from lstm_lower.opdef import OpDef, our_definitions

# Spelled out for the recurrent ops; of the ordinary ones around them editors learn the names at run time.
FAMILIES = ("block", "cudnn", "cudnn_params")

_HEADER = '''"""Recurrent ops, one call at a time; written by `python -m lstm_lower.raw_ops_source`, do not edit."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = np.ndarray[Any, Any]

def __getattr__(name: str) -> Callable[..., Any]: ...
'''


def source() -> str:
    """The text of `raw_ops.pyi`."""
    chosen = [op for op in our_definitions() if op.family in FAMILIES]
    return _HEADER + "".join(_outputs_class(op) + _function(op) for op in chosen)


def _outputs_class(op: type[OpDef]) -> str:
    if signatures.single(op):
        return ""
    fields = "".join(f"    {output.name}: {signatures.output_type(output)}\n" for output in op.outputs)
    return f"\nclass {op.op_type}Outputs(NamedTuple):\n{fields}"


def _function(op: type[OpDef]) -> str:
    given = "".join(f"    {_parameter(parameter)},\n" for parameter in signatures.parameters(op))
    result = "Array" if signatures.single(op) else f"{op.op_type}Outputs"
    docstring = textwrap.indent(f'"""{signatures.docstring(op)}\n"""\n', "    ", lambda line: bool(line.strip()))
    return f"\ndef {op.op_type}(\n    *,\n{given}) -> {result}:\n{docstring}"


def _parameter(parameter: Parameter) -> str:
    text = f"{parameter.name}: {parameter.annotation}"
    required = parameter.default is Parameter.empty
    return text if required else f"{text} = {signatures.literal(parameter.default)}"


if __name__ == "__main__":
    Path(__file__).with_name("raw_ops.pyi").write_text(source(), encoding="utf-8")
