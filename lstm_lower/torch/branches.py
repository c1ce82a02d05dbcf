"""Where a module's code decides by sizes: a trace follows one branch, which must not be taken for all sizes.

PyTorch records each such decision as a guard, and drops it on the way to ONNX. Those of its own code concern strides or
are checks that runtimes make too; those of a module's code fix the axes that they are about, unless the other branch
does nothing but raise.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

_OWN = (Path(torch.__file__).parent, Path(__file__).parents[1])


def decided_axes(program: torch.export.ExportedProgram, names: Sequence[str]) -> dict[str, dict[int, str]]:
    """Input -> open axis -> the decision in the module's code that is about its size.

    Args:
        program: a traced module.
        names: of its inputs.
    """
    values = [
        node.meta["val"]
        for node in program.graph.nodes
        if node.op == "placeholder" and node.name in program.graph_signature.user_inputs
    ]
    environments = [value.fake_mode.shape_env for value in values if getattr(value, "fake_mode", None) is not None]
    found: dict[str, dict[int, str]] = {}
    for guard in environments[0].guards if environments else ():
        where = guard.sloc.framework_loc
        if where is None or not _decides(str(getattr(where, "filename", "")), int(getattr(where, "lineno", 0) or 0)):
            continue
        said = f"{Path(where.filename).name}:{where.lineno} decides by it: {(where.line or '').strip()}"
        for name, value in zip(names, values, strict=True):
            for axis in _about(value, guard.expr):
                found.setdefault(name, {}).setdefault(axis, said)
    return found


def _about(value: Any, expression: Any) -> Iterator[int]:
    """The open axes of an input whose sizes stand in an expression."""
    for axis, size in enumerate(value.shape):
        symbols: set[Any] = getattr(getattr(getattr(size, "node", None), "expr", None), "free_symbols", set())
        if symbols & expression.free_symbols:
            yield axis


@functools.lru_cache(maxsize=256)
def _decides(file: str, line: int) -> bool:
    """Whether a line of code is a module's, and goes on either way."""
    path = Path(file)
    if not path.is_file() or any(own in path.parents for own in _OWN):
        return False
    statement = _statement(path, line)
    if isinstance(statement, ast.Assert):
        return False
    return not (isinstance(statement, ast.If) and _only_raises(statement.body) and not statement.orelse)


def _only_raises(body: Sequence[ast.stmt]) -> bool:
    return isinstance(body[-1], ast.Raise)


def _statement(path: Path, line: int) -> ast.stmt | None:
    """The innermost statement that a line belongs to; of a compound one, its head."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return None
    around = [
        node for node in ast.walk(tree) if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return max(around, key=lambda node: node.lineno, default=None)
