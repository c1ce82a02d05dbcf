"""What operators mean, for a reader of a graph: their definitions, the names of their operands, and their formulas."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import TypedDict

from onnx import defs

from lstm_lower import opdef
from lstm_lower.passes.rules.registry import RULES
from lstm_lower.registry import ONNX_DOMAINS

# Longer descriptions of ONNX's go on with examples.
_MOST_TEXT = 700


class Operator(TypedDict):
    """What is told of an operator.

    Attributes:
        lowered: whether it is one that lowering replaces.
        text: what it does.
        formula: the rule that lowers it, as Python; empty for ONNX's own.
        inputs, outputs: names of its operands and results, the last one's repeated where it takes several.
    """

    lowered: bool
    text: str
    formula: str
    inputs: list[str]
    outputs: list[str]


def describe(operators: Iterable[tuple[str, str]], opset: int) -> dict[str, Operator]:
    """Describes operators given by domain and name, under `domain::name`, ONNX's own under their name."""
    found: dict[str, Operator] = {}
    for domain, op in sorted(set(operators)):
        described = _described(domain, op, opset)
        if described is not None:
            found[key(domain, op)] = described
    return found


def key(domain: str, op: str) -> str:
    """The name under which an operator is described."""
    return op if domain in ONNX_DOMAINS else f"{domain}::{op}"


def _described(domain: str, op: str, opset: int) -> Operator | None:
    definition = opdef.definition(domain, op)
    if definition is not None:
        rule = RULES.get(definition)
        return Operator(
            lowered=True,
            text=inspect.getdoc(definition) or "",
            formula="" if rule is None else _source(rule.formula),
            inputs=[operand.name for operand in definition.inputs],
            outputs=[operand.name for operand in definition.outputs],
        )
    if domain not in ONNX_DOMAINS or not defs.has(op, opset, ""):
        return None
    schema = defs.get_schema(op, opset, "")
    return Operator(
        lowered=False,
        text=_shortened(schema.doc),
        formula="",
        inputs=[parameter.name for parameter in schema.inputs],
        outputs=[parameter.name for parameter in schema.outputs],
    )


def _source(formula: object) -> str:
    try:
        return inspect.getsource(formula)  # type: ignore[arg-type]
    except (OSError, TypeError):
        # Another package's rule may come without a source.
        return ""


def _shortened(text: str | None) -> str:
    """The first paragraphs of ONNX's description, without its markup."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)|</?[a-z]+/?>|[`*]{1,3}", r"\1", inspect.cleandoc(text or ""))
    paragraphs = re.split(r"\n\s*\n", plain)
    taken = paragraphs[0] if paragraphs else ""
    for paragraph in paragraphs[1:]:
        if len(taken) + len(paragraph) > _MOST_TEXT:
            break
        taken += f"\n\n{paragraph}"
    return taken if len(taken) <= 2 * _MOST_TEXT else f"{taken[: 2 * _MOST_TEXT]} …"
