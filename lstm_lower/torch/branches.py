"""Where a module's code decides by sizes: a trace follows one branch, which must not be taken for all sizes.

PyTorch records each such decision as a guard, and drops it on the way to ONNX. Those of its own code concern strides or
are checks that runtimes make too; those of a module's code fix the axes that they are about, unless the other branch
does nothing but raise, by its looks or in a run, changes strides alone, or is for a few small sizes, of which runs tell
whether it matters.
"""

from __future__ import annotations

import ast
import functools
import traceback
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from lstm_lower.torch.pytorch_errors import is_users
from lstm_lower.torch.source import around, innermost, is_caught, only_moves, only_raises
from lstm_lower.torch.trials import RefusedError, Trials

# Small sizes that may be decided otherwise: below half of how many, and how many of them.
_TRIED, _FEW = 2048, 8


def decided_axes(
    program: torch.export.ExportedProgram, names: Sequence[str], trials: Trials
) -> dict[str, dict[int, str]]:
    """Input -> open axis -> the decision in the module's code that holds for some of its sizes alone.

    Args:
        program: a traced module.
        names: of its inputs.
        trials: runs of the module.
    """
    found: dict[str, dict[int, str]] = {}
    values = _inputs(program)
    for expression, said in _decisions(program):
        if _otherwise(expression) is None and not _is_check(expression, values, trials):
            for name, axes in axes_of(program, names, expression.free_symbols, said).items():
                found[name] = axes | found.get(name, {})
    return found


def axes_of(
    program: torch.export.ExportedProgram, names: Sequence[str], symbols: Collection[Any], said: str
) -> dict[str, dict[int, str]]:
    """Input -> open axis whose size is made of open sizes -> what is said of these."""
    axes = {name: list(_about(value, symbols)) for name, value in zip(names, _inputs(program), strict=True)}
    return {name: dict.fromkeys(each, said) for name, each in axes.items() if each}


def open_axes(program: torch.export.ExportedProgram) -> list[set[int]]:
    """The open axes of each input."""
    return [{axis for axis, size in enumerate(value.shape) if _is_open(size)} for value in _inputs(program)]


def _is_open(size: Any) -> bool:
    """Whether a size is open still: what a trace has found to be a number stays symbolic."""
    return isinstance(size, torch.SymInt) and size.node.maybe_as_int() is None


def sizes_to_try(program: torch.export.ExportedProgram) -> dict[Any, set[int]]:
    """Open size -> numbers at which a decision in the module's code goes the other way."""
    found: dict[Any, set[int]] = {}
    for expression, _ in _decisions(program):
        for symbol in expression.free_symbols:
            found.setdefault(symbol, set()).update(_otherwise(expression) or ())
    return found


def _inputs(program: torch.export.ExportedProgram) -> list[Any]:
    return [
        node.meta["val"]
        for node in program.graph.nodes
        if node.op == "placeholder" and node.name in program.graph_signature.user_inputs
    ]


def _decisions(program: torch.export.ExportedProgram) -> Iterator[tuple[Any, str]]:
    """What holds for sizes on the branches that were taken in the module's code, and where that is decided."""
    environments = [value.fake_mode.shape_env for value in _inputs(program) if getattr(value, "fake_mode", None)]
    for guard in environments[0].guards if environments else ():
        where = guard.sloc.framework_loc
        if _follows(guard.expr, environments[0]):
            continue
        if where is None or not _decides(str(getattr(where, "filename", "")), int(getattr(where, "lineno", 0) or 0)):
            continue
        yield guard.expr, f"{Path(where.filename).name}:{where.lineno} decides by it: {(where.line or '').strip()}"


def _follows(expression: Any, environment: Any) -> bool:
    """Whether a comparison holds for all sizes that the model takes: of sizes that must be equal, it says no more.

    A comparison that says itself that they are equal decides.
    """
    return not getattr(expression, "is_Equality", False) and environment.replace(expression) == True  # noqa: E712


@functools.lru_cache(maxsize=256)
def _otherwise(expression: Any) -> tuple[int, ...] | None:
    """Sizes that stand for all for which a comparison does not hold: one for each difference of its sides.

    `None` where they are many, may go on without end, or depend on several sizes.
    """
    if len(expression.free_symbols) != 1 or not expression.is_Relational:
        return None
    (symbol,) = expression.free_symbols
    standing: dict[Any, int] = {}
    for size in (*range(1, _TRIED), *(2**power for power in range(_TRIED.bit_length(), 40))):
        if not bool(expression.subs(symbol, size)):
            standing[(expression.lhs - expression.rhs).subs(symbol, size)] = size
            if len(standing) > _FEW or size > _TRIED // 2:
                return None
    return tuple(standing.values())


def _is_check(expression: Any, values: Sequence[Any], trials: Trials) -> bool:
    """Whether the module raises wherever a comparison of several sizes does not hold, as far as runs tell.

    A single size has too many others for that.
    """
    # Symbols as the comparison has them: it may have made them equal since.
    shapes = [[getattr(getattr(size, "node", None), "_expr", size) for size in value.shape] for value in values]
    example = {
        symbol: size
        for shape, tensor in zip(shapes, trials.tensors, strict=True)
        for symbol, size in zip(shape, tensor.shape, strict=True)
    }
    symbols = expression.free_symbols
    if len(symbols) < 2 or not symbols <= example.keys():
        return False
    raises = False
    for symbol in sorted(symbols, key=str):
        for size in (1, example[symbol] + 1, 2 * example[symbol], 3 * example[symbol]):
            sizes = {**example, symbol: size}
            if bool(expression.subs(sizes)):
                continue
            try:
                trials.results(
                    [trials.resized(number, [sizes[each] for each in shape]) for number, shape in enumerate(shapes)]
                )
            except RefusedError as error:
                raises |= _is_raised(error.__cause__)
            else:
                return False
    return raises


def _is_raised(error: BaseException | None) -> bool:
    """Whether the module's code itself raises an error."""
    frames = list(traceback.walk_tb(error.__traceback__ if error else None))
    if not frames or not is_users(frames[-1][0]):
        return False
    frame, line = frames[-1]
    return any(isinstance(each, ast.Raise | ast.Assert) for each in around(Path(frame.f_code.co_filename), line))


def _about(value: Any, symbols: Collection[Any]) -> Iterator[int]:
    """The open axes of an input whose sizes are made of open sizes."""
    for axis, size in enumerate(value.shape):
        own: set[Any] = getattr(getattr(getattr(size, "node", None), "expr", None), "free_symbols", set())
        if not own.isdisjoint(symbols):
            yield axis


@functools.lru_cache(maxsize=256)
def _decides(file: str, line: int) -> bool:
    """Whether a line of code is a module's, and goes on either way."""
    path = Path(file)
    if not path.is_file() or not is_users(path):
        return False
    statement = innermost(path, line)
    if only_moves(statement):
        return False
    return is_caught(path, line) or not (isinstance(statement, ast.Assert) or only_raises(statement))
