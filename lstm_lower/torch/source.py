"""A module's Python code, by the lines that frames name."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path


@functools.lru_cache(maxsize=64)
def tree(path: Path) -> ast.Module:
    """A file's code; empty where it cannot be read."""
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return ast.Module([], [])


def around(path: Path, line: int) -> Iterator[ast.stmt]:
    """The statements that a line belongs to."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0):
            yield node


@functools.lru_cache(maxsize=1024)
def innermost(path: Path, line: int) -> ast.stmt | None:
    """The innermost of them; of several on a line the outer one, which is its head."""
    return max(around(path, line), key=lambda node: node.lineno, default=None)


def only_raises(statement: ast.stmt | None) -> bool:
    """Whether a statement is an `if` whose body ends in an error, without an `else`."""
    return isinstance(statement, ast.If) and isinstance(statement.body[-1], ast.Raise) and not statement.orelse


def only_moves(statement: ast.stmt | None) -> bool:
    """Whether a statement is an `if` without an `else` that changes no value: its body is `x = x.contiguous()`."""
    return isinstance(statement, ast.If) and not statement.orelse and all(map(_makes_contiguous, statement.body))


def _makes_contiguous(statement: ast.stmt) -> bool:
    match statement:
        case ast.Assign([target], ast.Call(ast.Attribute(source, "contiguous"))):
            return ast.unparse(target) == ast.unparse(source)
    return False


@functools.lru_cache(maxsize=1024)
def is_caught(path: Path, line: int) -> bool:
    """Whether the code goes on elsewhere when a line raises."""
    return any(
        isinstance(node, ast.Try | ast.TryStar)
        and any(map(_goes_on, node.handlers))
        and node.body[0].lineno <= line <= (node.body[-1].end_lineno or 0)
        for node in ast.walk(tree(path))
    )


def _goes_on(handler: ast.ExceptHandler) -> bool:
    """Whether it may end in something else than an error."""
    ways = (ast.Return, ast.Break, ast.Continue)
    return not isinstance(handler.body[-1], ast.Raise) or any(isinstance(node, ways) for node in ast.walk(handler))
