"""`lstm-lower ops`: the support table, from the definitions."""

from __future__ import annotations

import difflib
import inspect
import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from lstm_lower.cli import console
from lstm_lower.errors import InvalidInputError
from lstm_lower.registry import SYNONYMS, is_ours

if TYPE_CHECKING:
    from lstm_lower.opdef import OpDef

# Where our own ops come from.
OURS = "lstm-lower"


def ops(
    op: Annotated[str | None, typer.Argument(metavar="[OP]", help="One op, in detail: NAME or DOMAIN.NAME.")] = None,
    *,
    as_json: bool,
) -> None:
    """List the ops that can be lowered, built-in ones and those of plug-ins, or show one of them in detail."""
    from lstm_lower.passes.rules.registry import lowerable, lowerable_as

    known = lowerable()
    chosen = None if op is None else lowerable_as(op)
    if op is not None and chosen is None:
        raise InvalidInputError(f"ops requires an op that can be lowered, got {op!r}{_nearest(op, known)}")
    if as_json:
        console.print_json([_describe(each) for each in known] if chosen is None else _describe(chosen))
    elif chosen is not None:
        _print_one(_describe(chosen))
    else:
        _print_all([_describe(each) for each in known])


def _nearest(op: str, known: Iterable[type[OpDef]]) -> str:
    """A hint at what a mistaken name may have meant, and where all names stand."""
    from lstm_lower.passes.rules.registry import full_name

    lower = {name.lower(): name for each in known for name in (full_name(each), each.op_type)}
    nearest = [lower[name] for name in difflib.get_close_matches(op.lower(), lower)]
    meant = f"; did you mean {' or '.join(nearest)}?" if nearest else ""
    return f"{meant} (`lstm-lower ops` lists all; --plugin MODULE adds those of a module)"


def _print_all(described: list[dict[str, Any]]) -> None:
    """A table for each domain and module that others bring, ours in front of them in one."""
    for (domain, source), group in itertools.groupby(described, lambda d: (d["domain"], d["source"])):
        rows = [[d["op"], _types(d["types"]), ", ".join(d["attributes"]), d["summary"]] for d in group]
        console.table("op", "dtypes", "attributes", "meaning", rows=rows)
        names = " or ".join([domain, *(short for short, long in SYNONYMS.items() if long == domain)])
        origin = "" if source == OURS else f", from {source}"
        console.out().print(
            f"\n{len(rows)} op{'s' if len(rows) > 1 else ''}, as nodes of domain {escape(names + origin)}"
        )


def _describe(definition: type[OpDef]) -> dict[str, Any]:
    from lstm_lower.opdef import dtype_name
    from lstm_lower.runtime.proof.oracles.registry import ORACLES

    return {
        "op": definition.op_type,
        "domain": definition.domain,
        "source": OURS if is_ours(definition.__module__) else definition.__module__,
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
        "oracle": definition in ORACLES,
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
    display.print(f"[bold]{described['op']}[/]")
    display.print(f"{escape(described['description'])}\n")
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
