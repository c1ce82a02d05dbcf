"""Checks of values in a module's code: `assert lengths.min() > 0`, `if bad.any(): raise`.

A trace knows no values and refuses to branch over them. Where the other branch does nothing but raise, there is nothing
to compute on it, and the check is taken to hold.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from torch.fx.experimental import symbolic_shapes
from torch.fx.experimental.sym_node import SymNode

from lstm_lower.replacement import all_replaced
from lstm_lower.torch.interface import Step
from lstm_lower.torch.pytorch_errors import is_users
from lstm_lower.torch.source import innermost, is_caught, only_raises


def values_unchecked() -> contextlib.AbstractContextManager[None]:
    """Answers what a check asks of values so that it holds."""
    branch: Callable[[SymNode, str, int], bool] = SymNode.guard_bool

    def either(self: SymNode, file: str, line: int) -> bool:
        answer = _holding(sys._getframe(1)) if symbolic_shapes.free_unbacked_symbols(self.expr) else None
        return branch(self, file, line) if answer is None else answer

    # The place of a decision is the frame below, not this file's (`branches`).
    passed_over = symbolic_shapes.uninteresting_files() | {__file__}
    return all_replaced((SymNode, "guard_bool", either), (symbolic_shapes, "uninteresting_files", lambda: passed_over))


def _holding(frame: types.FrameType) -> bool | None:
    """What is to be answered in the innermost frame of the user's code; `None` where it is no check."""
    frames = list(_users(frame))
    places = [(Path(each.f_code.co_filename), each.f_lineno) for each in frames]
    if not places or any(is_caught(*place) for place in places):
        return None
    parts = _asked(*places[0])
    wanted = {truth for _, truth in parts}
    return wanted.pop() if len(wanted) == 1 else _part(frames[0], parts)


def _part(frame: types.FrameType, parts: Iterable[tuple[ast.expr, bool | None]]) -> bool | None:
    """What the part of a test wants that asks: what was computed last is within it, the jump itself need not be."""
    positions = list(frame.f_code.co_positions())[: frame.f_lasti // 2]
    for line, last_line, column, last_column in reversed(positions):
        if line is None or last_line is None or column is None or last_column is None:
            return None
        for part, truth in parts:
            end = (part.end_lineno or 0, part.end_col_offset or 0)
            if (part.lineno, part.col_offset) <= (line, column) and (last_line, last_column) <= end:
                return truth
    return None


def _users(frame: types.FrameType | None) -> Iterator[types.FrameType]:
    """Frames of the user's code within a step, the innermost first."""
    while frame is not None and frame.f_code is not Step.forward.__code__:
        if is_users(frame):
            yield frame
        frame = frame.f_back


@functools.lru_cache(maxsize=1024)
def _asked(path: Path, line: int) -> Sequence[tuple[ast.expr, bool | None]]:
    """The parts of a test, if a line is a check, and with which truth of each it holds."""
    statement = innermost(path, line)
    if isinstance(statement, ast.Assert):
        return list(_parts(statement.test, truth=True))
    if isinstance(statement, ast.If) and only_raises(statement):
        return list(_parts(statement.test, truth=False))
    return ()


def _parts(test: ast.expr, *, truth: bool) -> Iterator[tuple[ast.expr, bool | None]]:
    """Of each part of a test the truth that gives the test its own; `None` where that does not show.

    Once one part of an `or` is true, the others are not asked.
    """
    if isinstance(test, ast.BoolOp):
        for part in test.values:
            yield from _parts(part, truth=truth)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _parts(test.operand, truth=not truth)
    else:
        hidden = (ast.BoolOp, ast.Not, ast.IfExp, ast.NamedExpr, ast.Lambda)
        yield test, None if any(isinstance(node, hidden) for node in ast.walk(test)) else truth
