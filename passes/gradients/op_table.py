"""Writes the table of operators in `docs/gradients.md`: `python -m lstm_lower.passes.gradients.op_table`."""

from __future__ import annotations

import ast
import functools
import inspect
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from onnx import defs

from lstm_lower.graph import standard as std
from lstm_lower.passes.decompositions import decomposes
from lstm_lower.passes.gradients import registry
from lstm_lower.passes.gradients.sequences_to_tensors import kinds

MARK = "<!-- Written by `python -m lstm_lower.passes.gradients.op_table docs/gradients.md`; do not edit. -->\n"

_RULE, _DECOMPOSED, _BODY, _APART, _FLAT = "rule", "decomposed", "function", "apart", "flat"
_NOTHING, _REFUSED = "nothing", "refused"
_WAYS = (
    (_RULE, "a rule of its own"),
    (_DECOMPOSED, "decomposed first, by a formula of lstm-lower"),
    (_BODY, "decomposed first, by the function that onnx defines it as"),
    (_APART, "replaced by ordinary values first, if lengths and positions are known; a Loop may append to a sequence"),
    (_FLAT, "zero: piecewise constant, or random"),
    (_NOTHING, "none: no floating operand or no floating result"),
    (_REFUSED, "refused by name, where a gradient would flow through"),
)
_FLOATS = ("float", "double", "bfloat16")


def page(text: str) -> str:
    """The page with the table as it is now; what is written by hand comes before it."""
    return text.partition(MARK)[0] + MARK + table()


def table() -> str:
    """How the gradient of each operator of the newest opset is made, and which forms are refused."""
    newest = {schema.name: schema for schema in defs.get_all_schemas() if schema.domain == ""}
    found = {name: _way(schema) for name, schema in sorted(newest.items()) if not schema.deprecated}
    lines = ["", "| gradient | operators |", "|---|---|"]
    for way, text in _WAYS:
        names = [name for name, own in found.items() if own is way]
        lines += [f"| {text} | {', '.join(names)} |"] if names else []
    lines += ["", "Forms that are refused:", "", "| operator | what its gradient requires |", "|---|---|"]
    refusals = {name: _refusals(name) for name in found}
    lines += [f"| {name} | {'; '.join(texts)} |" for name, texts in refusals.items() if texts]
    return "\n".join([*lines, ""])


def _way(schema: Any) -> str:
    view = std.VIEWS.get(schema.name)
    flat = registry.flat()
    if view is not None and registry.differentiates.of(view) is not None:
        return _RULE
    if view is not None and issubclass(view, flat):
        return _FLAT
    if view is not None and issubclass(view, kinds()):
        return _APART
    if view is not None and issubclass(view, std.QLinear):
        return _DECOMPOSED
    if not any(_may_be_floating(formal) for formal in schema.outputs):
        return _NOTHING
    if not any(_may_be_floating(formal) for formal in schema.inputs) and not _holds_graphs(schema):
        return _NOTHING
    if view is not None and decomposes.of(view) is not None:
        return _DECOMPOSED
    return _BODY if schema.has_function or schema.has_context_dependent_function else _REFUSED


def _may_be_floating(formal: Any) -> bool:
    return any(f"({dtype})" in text for text in formal.types for dtype in _FLOATS)


def _holds_graphs(schema: Any) -> bool:
    return any(attribute.type == defs.OpSchema.AttrType.GRAPH for attribute in schema.attributes.values())


def _refusals(name: str) -> list[str]:
    """What the rule or the decomposition asks for, as its errors say it."""
    view = std.VIEWS.get(name)
    rules = [] if view is None else [registry.differentiates.of(view), decomposes.of(view)]
    rule = next((rule for rule in rules if rule is not None), None)
    return [] if rule is None else list(dict.fromkeys(_errors(inspect.unwrap(rule), 2)))


def _errors(function: Any, depth: int) -> Iterator[str]:
    """The errors of a function and of those of ours that it calls."""
    for call in _calls(function):
        name = getattr(call.func, "attr", getattr(call.func, "id", ""))
        # `op.unsupported(what, required, got)` or `requires(op_type, node, what, required, got)`.
        words = [
            getattr(argument, "value", None) for argument in call.args[{"unsupported": 0, "requires": 2}.get(name, 9) :]
        ]
        if len(words) > 1 and isinstance(words[0], str) and isinstance(words[1], str):
            yield f"{words[0].partition(',')[0]}: {words[1]}"
        inner = function.__globals__.get(name) if depth else None
        if inspect.isfunction(inner) and inner.__module__.startswith("lstm_lower.passes"):
            yield from _errors(inner, depth - 1)


@functools.cache
def _calls(function: Any) -> list[ast.Call]:
    try:
        source = textwrap.dedent(inspect.getsource(function))
        return [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    except (OSError, SyntaxError):
        return []


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.write_text(page(target.read_text(encoding="utf-8")), encoding="utf-8")
