"""Operators without a translation, in operators that have one, as PyTorch writes them."""

from __future__ import annotations

import functools
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from lstm_lower.torch.aten.changes import are_separate, in_place, needed
from lstm_lower.torch.aten.control_flow import CHECKS
from lstm_lower.torch.aten.registry import TRANSLATIONS
from lstm_lower.torch.aten.writes import join_pieces

# What an operator that has no tensor as its result makes, which is written where it is read.
_NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool)


def simple(program: ExportedProgram) -> ExportedProgram:
    """A program in operators that are translated, whose changes in place do not reach views.

    PyTorch runs the whole program again to make it so, which takes much longer than its translation.
    """
    if are_separate(program.graph_module) and not any(_untranslated(program)):
        return program
    with warnings.catch_warnings():
        # PyTorch warns of its own code.
        warnings.simplefilter("ignore")
        taken_apart: ExportedProgram = program.run_decompositions(dict(_table()))
    join_pieces(taken_apart)
    return taken_apart


def _untranslated(program: ExportedProgram) -> Iterator[Node]:
    parts = (part for part in program.graph_module.modules() if isinstance(part, GraphModule))
    for node in (node for part in parts for node in needed(part.graph)):
        if node.op != "call_function" or node.target is operator.getitem or isinstance(node.meta.get("val"), _NUMBERS):
            continue
        # `vmap` leaves functions in a trace that are no operators.
        if node.target not in TRANSLATIONS and node.target not in CHECKS and in_place(node.target) is None:
            yield node


def _table() -> Mapping[Any, Callable[..., Any]]:
    return _table_of(len(torch._C._dispatch_get_all_op_names()))


@functools.cache
def _table_of(operators: int) -> Mapping[Any, Callable[..., Any]]:
    """PyTorch's decompositions of what has no translation, of so many operators; to make it takes half a second."""
    del operators
    table: Any = torch.export.default_decompositions()
    return {overload: formula for overload, formula in table.items() if overload not in TRANSLATIONS}
