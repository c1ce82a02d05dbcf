"""Arithmetic of open sizes: divisions, which Python rounds down and ONNX towards zero, and roots."""

from __future__ import annotations

import builtins
import contextlib
import math
import operator
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch

from lstm_lower.replacement import replaced
from lstm_lower.torch.causes import frames

T = TypeVar("T")


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


def open_numbers(trace: Callable[[], T]) -> T:
    """What a trace returns, with `int` and `float` of open numbers in the module's code left open.

    Python's own need a number, as for `int(lengths.max())`. Where that is why tracing fails, the names stand for ours
    in that file, and it is traced once more.
    """
    files: list[dict[str, Any]] = []
    while True:
        try:
            with contextlib.ExitStack() as held:
                for names in files:
                    held.enter_context(_open_in(names))
                return trace()
        except torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode as error:
            failed = [frame.f_globals for frame, _ in frames(error)][-1:]
            if not failed or any(names is failed[0] for names in files):
                raise
            files += failed


@contextlib.contextmanager
def _open_in(names: dict[str, Any]) -> Iterator[None]:
    ours = {name: _Open(name, (), {}) for name in ("int", "float") if name not in names}
    names.update(ours)
    try:
        yield
    finally:
        for name in ours:
            del names[name]


class _Open(type):
    """`int` or `float`, which leaves open what is open."""

    def __call__(cls, x: Any = 0, *rest: Any) -> Any:
        if isinstance(x, torch.Tensor):
            x = x.item()
        if isinstance(x, (torch.SymInt, torch.SymFloat)):
            opened: Any = torch.sym_int if cls.__name__ == "int" else torch.sym_float
            return opened(x)
        return getattr(builtins, cls.__name__)(x, *rest)

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, getattr(builtins, cls.__name__))
