"""Arithmetic of open sizes: divisions, which Python rounds down and ONNX towards zero, and roots."""

from __future__ import annotations

import contextlib
import math
import operator
from typing import Any

import torch

from lstm_lower.replacement import replaced


def round_down(program: torch.export.ExportedProgram) -> None:
    """Makes divisions of what may be below zero come out even, by the remainder, which both see alike."""
    graph = program.graph_module.graph
    for node in list(graph.nodes):
        if node.op != "call_function" or node.target is not operator.floordiv or not _may_be_negative(node.args[0]):
            continue
        whole, divisor = node.args
        with graph.inserting_before(node):
            rest = graph.call_function(operator.mod, (whole, divisor))
            even = graph.call_function(operator.sub, (whole, rest))
        rest.meta, even.meta = dict(node.meta), dict(node.meta)
        if "val" in node.meta:
            whole_value, divisor_value = (x.meta["val"] if isinstance(x, torch.fx.Node) else x for x in node.args)
            rest.meta["val"] = whole_value % divisor_value
            even.meta["val"] = whole_value - rest.meta["val"]
        node.args = (even, divisor)
    program.graph_module.recompile()


def _may_be_negative(value: Any) -> bool:
    if isinstance(value, int):
        return value < 0
    symbolic = value.meta.get("val") if isinstance(value, torch.fx.Node) else None
    own = getattr(symbolic, "node", None)
    if own is None:
        return False
    bounds = own.shape_env.bound_sympy(own.expr)
    return bool(bounds.lower < 0)


def open_roots() -> contextlib.AbstractContextManager[None]:
    """Makes `math.sqrt` of an open size a power, which leaves it open."""
    root = math.sqrt

    def either(x: Any) -> Any:
        return x**0.5 if isinstance(x, (torch.SymInt, torch.SymFloat)) else root(x)

    return replaced(math, "sqrt", either)
