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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.fx.experimental import symbolic_shapes
from torch.fx.experimental.sym_node import SymNode

from lstm_lower.replacement import replaced
from lstm_lower.torch.causes import is_users
from lstm_lower.torch.interface import Step
from lstm_lower.torch.source import innermost, is_caught, only_raises


@contextlib.contextmanager
def values_unchecked() -> Iterator[None]:
    """Answers what a check asks of values so that it holds."""
    branch: Callable[[SymNode, str, int], bool] = SymNode.guard_bool

    def either(self: SymNode, file: str, line: int) -> bool:
        answer = _holding(sys._getframe(1)) if symbolic_shapes.free_unbacked_symbols(self.expr) else None
        return branch(self, file, line) if answer is None else answer

    # The place of a decision is the frame below, not this file's (`branches`).
    passed_over = symbolic_shapes.uninteresting_files() | {__file__}
    with (
        replaced(SymNode, "guard_bool", either),
        replaced(symbolic_shapes, "uninteresting_files", lambda: passed_over),
    ):
        yield


def _holding(frame: types.FrameType) -> bool | None:
    """What is to be answered in the innermost frame of the user's code; `None` where it is no check."""
    frames = list(_users(frame))
    places = [(Path(each.f_code.co_filename), each.f_lineno) for each in frames]
    if not places or any(is_caught(*place) for place in places):
        return None
    return _asked(*places[0])


def _users(frame: types.FrameType | None) -> Iterator[types.FrameType]:
    """Frames of the user's code within a step, the innermost first."""
    while frame is not None and frame.f_code is not Step.forward.__code__:
        if is_users(frame):
            yield frame
        frame = frame.f_back


@functools.lru_cache(maxsize=1024)
def _asked(path: Path, line: int) -> bool | None:
    """With which truth of its parts a check holds, if a line is one and all parts need the same.

    Which part it is that asks cannot be told before Python 3.12.
    """
    statement = innermost(path, line)
    if isinstance(statement, ast.Assert):
        wanted = set(_parts(statement.test, truth=True))
    elif isinstance(statement, ast.If) and only_raises(statement):
        wanted = set(_parts(statement.test, truth=False))
    else:
        return None
    return wanted.pop() if len(wanted) == 1 else None


def _parts(test: ast.expr, *, truth: bool) -> Iterator[bool | None]:
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
        yield None if any(isinstance(node, hidden) for node in ast.walk(test)) else truth


def _passed(*_args: Any, **_options: Any) -> None:
    """A check that holds."""


CHECKS: dict[Any, Callable[..., None]] = {
    torch._assert: _passed,
    torch._assert_async: _passed,
}
