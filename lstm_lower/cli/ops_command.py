"""`lstm-lower ops`: the support table, from the definitions."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable
from typing import Annotated, Any

import typer
from rich.markup import escape

from lstm_lower.cli import console
from lstm_lower.cli.options import JsonOption
from lstm_lower.errors import InvalidInputError


def ops(
    op: Annotated[str | None, typer.Argument(metavar="[OP]", help="One op, in detail.", show_default=False)] = None,
    as_json: JsonOption = False,
) -> None:
    """List the ops that can be lowered, or show one of them in detail."""
    with console.errors(as_json=as_json):
        described = support_table()
        if op is not None and op not in described:
            raise InvalidInputError(f"ops requires an op that can be lowered, got {op!r}{_nearest(op, described)}")
    if as_json:
        console.print_json(list(described.values()) if op is None else described[op])
    elif op is not None:
        _print_one(described[op])
    else:
        rows = [[d["op"], _types(d["types"]), ", ".join(d["attributes"]), d["summary"]] for d in described.values()]
        console.table("op", "dtypes", "attributes", "meaning", rows=rows)
        console.out().print(f"\n{len(rows)} ops, as nodes of domain ai.onnx.converters.tensorflow or tf")


def _nearest(op: str, known: Iterable[str]) -> str:
    """What a mistaken name may have meant, and where all names stand."""
    lower = {name.lower(): name for name in known}
    found = [lower[name] for name in difflib.get_close_matches(op.lower(), lower)]
    meant = f"; did you mean {' or '.join(found)}?" if found else ""
    return f"{meant} (`lstm-lower ops` lists all)"


def support_table() -> dict[str, dict[str, Any]]:
    """Op type -> what its definition says, for every op that has a lowering rule."""
    from lstm_lower import opdef
    from lstm_lower.passes.rules.registry import RULES
    from lstm_lower.runtime.proof.oracles.registry import ORACLES

    return {
        op.op_type: _describe(op) | {"oracle": op in ORACLES}
        for op in sorted(opdef.REGISTRY.values(), key=lambda op: op.op_type)
        if op in RULES
    }


def _describe(definition: Any) -> dict[str, Any]:
    from lstm_lower.opdef import dtype_name

    return {
        "op": definition.op_type,
        "summary": definition.summary(),
        "description": inspect.getdoc(definition) or "",
        "inputs": [_operand(operand) for operand in definition.inputs],
        "outputs": [_operand(operand) for operand in definition.outputs],
        "attributes": {
            attribute.name: {
                "type": attribute.type.__name__ if isinstance(attribute.type, type) else str(attribute.type),
                "default": None if attribute.required else _jsonable(attribute.default),
                "required": attribute.required,
                **({"choices": [_jsonable(choice) for choice in attribute.choices]} if attribute.choices else {}),
            }
            for attribute in definition.attributes
        },
        "types": {name: [dtype_name(dtype) for dtype in allowed] for name, allowed in definition.types.items()},
    }


def _operand(operand: Any) -> dict[str, Any]:
    return {
        "name": operand.name,
        "shape": None if operand.spec is None else operand.spec.text,
        "dtype": operand.dtype,
        "optional": operand.optional,
        "variadic": operand.variadic,
    }


def _jsonable(value: Any) -> Any:
    return value if isinstance(value, (bool, int, float, str, list, type(None))) else str(value)


def _types(types: dict[str, list[str]]) -> str:
    return "; ".join(", ".join(allowed) for allowed in types.values())


def _print_one(described: dict[str, Any]) -> None:
    display = console.out()
    display.print(f"[bold]{described['op']}[/]\n{escape(described['description'])}\n")
    for section in ("inputs", "outputs"):
        rows = []
        for operand in described[section]:
            shape = "any" if operand["shape"] is None else f"[{', '.join(operand['shape'].split())}]"
            notes = [note for note in ("optional", "variadic") if operand[note]]
            rows.append([operand["name"], operand["dtype"], shape, ", ".join(notes)])
        console.table(section, "dtype", "shape", "", rows=rows)
        display.print()
    rows = [
        [
            name,
            a["type"],
            "required" if a["required"] else repr(a["default"]),
            ", ".join(map(str, a.get("choices", []))),
        ]
        for name, a in described["attributes"].items()
    ]
    if rows:
        console.table("attributes", "type", "default", "choices", rows=rows)
        display.print()
    for name, allowed in described["types"].items():
        display.print(f"{name}: {', '.join(allowed)}")
