"""Operators without a translation, in operators that have one, as PyTorch writes them."""

from __future__ import annotations

import functools
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from lstm_lower.errors import LstmLowerError, UnsupportedOpError, first_line
from lstm_lower.torch.aten.changes import are_separate, in_place, needed
from lstm_lower.torch.aten.control_flow import CHECKS
from lstm_lower.torch.aten.registry import TRANSLATIONS
from lstm_lower.torch.aten.sizes import Alike, OpenSizeError
from lstm_lower.torch.aten.writes import join_pieces

# What an operator that has no tensor as its result makes, which is written where it is read.
_NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool)


def simple(program: ExportedProgram, alike: Alike | None = None) -> ExportedProgram:
    """A program in operators that are translated, whose changes in place do not reach views.

    PyTorch runs the whole program again to make it so, which takes much longer than its translation.

    Args:
        program: a trace.
        alike: of its sizes that go by numbers of chunks those with as many.

    Raises:
        OpenSizeError: PyTorch's formulas hold for some of the open sizes alone.
        UnsupportedOpError: PyTorch fails.
    """
    if are_separate(program.graph_module) and not any(_untranslated(program)):
        return program
    _unbind_sizes(program)
    before, level = len(_guards(program)), torch._C._functorch.maybe_current_level() or 0
    # An open size is not taken for 1 where it is so at the example, as in the trace.
    with warnings.catch_warnings(), torch.fx.experimental._config.patch(backed_size_oblivious=True):  # type: ignore[attr-defined]
        # PyTorch warns of its own code.
        warnings.simplefilter("ignore")
        try:
            taken_apart: ExportedProgram = program.run_decompositions(dict(_table()))
        except LstmLowerError:
            raise
        except Exception as error:
            # What `vmap` has begun has not ended.
            while (torch._C._functorch.maybe_current_level() or 0) > level:
                torch._C._functorch._vmap_decrement_nesting()
            raise UnsupportedOpError(
                "changes through views, torch.vmap and operators without a translation require a trace that PyTorch's "
                f"run_decompositions takes apart, got {first_line(error)} from it; write them without: new tensors "
                "(`torch.cat` for `out[1:] = ...`), and products and sums over a batch axis for torch.vmap"
            ) from error
    for guard in _guards(taken_apart)[before:]:
        if guard.expr.is_Equality and _fails_somewhere(guard.expr):
            raise OpenSizeError(_deciding(guard.expr, _example(program)), "a formula of PyTorch's own decides by it")
    join_pieces(taken_apart, alike)
    return taken_apart


def _unbind_sizes(program: ExportedProgram) -> None:
    """Lets sizes of results that depend on data be others in another run: PyTorch fails where they are formulas then.

    They are where a later line of the trace has said what a slice's size is.
    """
    parts = (part for part in program.graph_module.modules() if isinstance(part, GraphModule))
    for node in (node for part in parts for node in part.graph.nodes):
        if isinstance(node.meta.get("val"), torch.Tensor):
            node.meta.pop("unbacked_bindings", None)


def _guards(program: ExportedProgram) -> Sequence[Any]:
    """What PyTorch takes for granted of open sizes."""
    values = (node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder")
    modes = (value.fake_mode for value in values if getattr(value, "fake_mode", None))
    return next((mode.shape_env.guards for mode in modes if mode.shape_env is not None), ())


def _example(program: ExportedProgram) -> Mapping[Any, int]:
    """Open sizes as they are in the example."""
    inputs = (node for node in program.graph.nodes if node.op == "placeholder")
    shapes = (getattr(node.meta.get("val"), "shape", ()) for node in inputs)
    return {size.node.expr: size.node.hint for shape in shapes for size in shape if isinstance(size, torch.SymInt)}


def _deciding(expression: Any, example: Mapping[Any, int]) -> set[Any]:
    """The last of some open sizes if an equality always holds where it alone has the example's; else all of them.

    What is cut into rows of 4, `x.reshape(-1, 4)`, may have any number of them if its last axis is of 4.
    """
    ordered = [symbol for symbol in example if symbol in expression.free_symbols]
    alone = (symbol for symbol in reversed(ordered) if not _fails_somewhere(expression.subs(symbol, example[symbol])))
    return {symbol} if (symbol := next(alone, None)) is not None else set(expression.free_symbols)


def _fails_somewhere(expression: Any) -> bool:
    """Whether an equality of open sizes does not hold for all: sympy leaves some as they are that always hold."""
    symbols = sorted(expression.free_symbols, key=str)
    tried = ({symbol: size + 3 * number for number, symbol in enumerate(symbols)} for size in (1, 2, 3, 4, 7, 10, 64))
    return any(not bool(expression.subs(sizes)) for sizes in tried)


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
