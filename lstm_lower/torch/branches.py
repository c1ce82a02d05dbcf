"""Where a module's code decides by sizes: a trace follows one branch, which must not be taken for all sizes.

PyTorch records each such decision as a guard, and drops it on the way to ONNX. Those of its own code concern strides or
are checks that runtimes make too; those of a module's code fix the axes that they are about, unless the other branch
does nothing but raise, by its looks or in a run, changes strides alone, is for a few small sizes, of which runs tell
whether it matters, or for large ones, which the model refuses then.
"""

from __future__ import annotations

import ast
import functools
import math
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from lstm_lower.errors import some
from lstm_lower.records.lengths import Place
from lstm_lower.torch.aten.size_decisions import holds_up_to, otherwise, places_of
from lstm_lower.torch.aten.sizes import chunks
from lstm_lower.torch.axes import BY_ITSELF, OF_PICTURES, Axes
from lstm_lower.torch.lengths import Lengths
from lstm_lower.torch.pytorch_errors import is_users
from lstm_lower.torch.source import around, innermost, is_caught, only_moves, only_raises
from lstm_lower.torch.trials import FORMS, RefusedError, Trials

# The largest size of axes, and the line of code that decides otherwise by larger ones.
Bounds = dict[Place, tuple[int, str]]
# By how much sizes differ at most that may grow together.
_NEAR = 2


def sizes_of(program: torch.export.ExportedProgram, names: Sequence[str]) -> dict[Place, Any]:
    """The size of each axis of inputs: a number, a symbol, or a formula of symbols."""
    inputs = zip(names, _inputs(program), strict=True)
    sizes = ((name, axis, size) for name, x in inputs for axis, size in enumerate(x.shape))
    return {(name, axis): getattr(getattr(size, "node", None), "expr", size) for name, axis, size in sizes}


def axes_of(sizes: Mapping[Place, Any], said: Mapping[Any, str]) -> Axes:
    """Axes whose sizes are made of open ones, and what is said of these."""
    return {place: said[symbol] for place, size in sizes.items() for symbol in symbols_of(size) & said.keys()}


def symbols_of(size: Any) -> set[Any]:
    """The open sizes that a size is made of."""
    return set(getattr(size, "free_symbols", ()))


def decided_axes(program: torch.export.ExportedProgram, names: Sequence[str], trials: Trials, lengths: Lengths) -> Axes:
    """Open axes, and the decision in the module's code that holds for some of their sizes alone.

    Args:
        program: a traced module.
        names: of its inputs.
        trials: runs of the module.
        lengths: its numbers of steps, of which chunks may become one.
    """
    places = _places(program, names)
    said: dict[Any, str] = {}
    for guard in _environment(program).guards:
        if getattr(guard.sloc.framework_loc, "name", "") == "split":
            lengths.counts(chunks(guard.expr, places), "pieces of a split")
    further = {place: size for each in lengths.found for place, size in each.sizes(each.steps + 1).items()}
    # An example of one chunk shows no loop, and where one ends is a decision by how many steps are traced.
    known = (trials.sizes, lengths.sizes, {**lengths.sizes, **further})
    for expression, where in decisions(program):
        sizes = (each[place] for place in places_of(expression, places) for each in known)
        holds = otherwise(expression) is not None or holds_up_to(expression) >= max(sizes, default=math.inf)
        holds = holds or _is_check(expression, places, trials)
        if not holds and not lengths.counts(chunks(expression, places), where):
            said = dict.fromkeys(expression.free_symbols, where) | said
    return axes_of(sizes_of(program, names), said)


def bounds_of(program: torch.export.ExportedProgram, names: Sequence[str]) -> Bounds:
    """Open axes up to some size, and the decision in the module's code that is another one for larger ones."""
    places, sizes = _places(program, names), sizes_of(program, names)
    found: dict[Any, tuple[int, str]] = {}
    for expression, where in decisions(program):
        for place in places_of(expression, places) if (most := holds_up_to(expression)) else ():
            found[sizes[place]] = min(found.get(sizes[place], (most, where)), (most, where))
    return {place: found[size] for place, size in sizes.items() if symbols_of(size) and size in found}


def left_open(program: torch.export.ExportedProgram, fixed: Axes, trials: Trials, names: Sequence[str]) -> Axes:
    """Fixed axes that forward itself leaves open, and where its code, or PyTorch's, fixes them.

    The module runs where there are more of them: of one axis, of the same axis of all inputs of this size, or of all
    axes of this size.

    Args:
        program: a traced module.
        fixed: axes that have the example's size, and why, as far as the trace tells.
        trials: runs of the module.
        names: of its inputs.
    """
    places = _places(program, names)
    said: dict[Place, str] = {}
    for expression, path, line, code in _guards(program):
        for place in places_of(expression, places):
            said.setdefault(place, f"{path.name}:{line} takes it as a number: {code}")
    found: Axes = {}
    for place, why in fixed.items():
        if why != OF_PICTURES and (larger := _larger(trials, place)):
            takes = f"forward takes {larger}, too, and its trace this size alone"
            found[place] = said.get(place, takes) if why == BY_ITSELF else why
    return found


def _larger(trials: Trials, place: Place) -> str:
    """A larger size with which the module runs, and other axes that have it then; some take multiples."""
    size = trials.sizes[place]
    # One of size 1 may be repeated, and of size 3 by accident, too.
    sizes = (size + 1, size + 2, 2 * size) if size > 1 else (2,)
    tried = ((larger, trials.group(form, place, {size})) for larger in sizes for form in FORMS)
    for larger, group in tried:
        if trials.takes(dict.fromkeys(group, larger)):
            others = [f"axis {axis} of '{name}'" for name, axis in group if (name, axis) != place]
            return f"{larger}{f' together with {some(others)}' if others else ''}"
    # One input may have a step less than another.
    axis = {each: other for each, other in trials.sizes.items() if each[1] == place[1]}
    near = {each: other + 1 for each, other in axis.items() if abs(other - size) <= _NEAR}
    return f"{size + 1}" if len(near) > 1 and trials.takes(near) else ""


def open_axes(program: torch.export.ExportedProgram, names: Sequence[str]) -> set[Place]:
    """The open axes of inputs: what a trace has found to be a number stays symbolic."""
    return {place for place, size in sizes_of(program, names).items() if symbols_of(size)}


def decisions(program: torch.export.ExportedProgram) -> Iterator[tuple[Any, str]]:
    """What holds for sizes on the branches that were taken in the module's code, and where that is decided."""
    environment = _environment(program)
    for expression, path, line, code in _guards(program):
        if not _follows(expression, environment) and _decides(path, line):
            yield expression, f"{path.name}:{line} decides by it: {code}"


def sizes_to_try(program: torch.export.ExportedProgram) -> dict[Any, dict[int, str]]:
    """Open size -> numbers at which a decision in the module's code goes the other way -> where that is."""
    found: dict[Any, dict[int, str]] = {}
    for expression, where in decisions(program):
        for symbol in () if holds_up_to(expression) else expression.free_symbols:
            found.setdefault(symbol, {}).update(dict.fromkeys(otherwise(expression) or (), f"{where}: "))
    return found


def _inputs(program: torch.export.ExportedProgram) -> list[Any]:
    own = program.graph_signature.user_inputs
    return [node.meta["val"] for node in program.graph.find_nodes(op="placeholder") if node.name in own]


def _places(program: torch.export.ExportedProgram, names: Sequence[str]) -> dict[Any, list[Place]]:
    """Symbol, as code has compared it -> axes whose size it is: it may have become another one, or a number, since."""
    found: dict[Any, list[Place]] = {}
    for name, x in zip(names, _inputs(program), strict=True):
        for axis, size in enumerate(x.shape):
            if isinstance(size, torch.SymInt):
                found.setdefault(size.node._expr, []).append((name, axis))
    return found


def _environment(program: torch.export.ExportedProgram) -> Any:
    return _inputs(program)[0].fake_mode.shape_env


def _guards(program: torch.export.ExportedProgram) -> Iterator[tuple[Any, Path, int, str]]:
    """What holds for sizes on the branches that were taken in users' code, and where that is decided."""
    for guard in _environment(program).guards:
        where = guard.sloc.framework_loc
        path = Path(getattr(where, "filename", ""))
        if path.is_file() and is_users(path):
            yield guard.expr, path, int(where.lineno or 0), (where.line or "").strip()


def _follows(expression: Any, environment: Any) -> bool:
    """Whether a comparison holds for all sizes that the model takes: of sizes that must be equal, it says no more.

    A comparison that says itself that they are equal decides.
    """
    return not getattr(expression, "is_Equality", False) and environment.replace(expression) == True  # noqa: E712


def _is_check(expression: Any, places: Mapping[Any, Sequence[Place]], trials: Trials) -> bool:
    """Whether the module raises wherever a comparison of several sizes does not hold, as far as runs tell.

    A single size has too many others for that.
    """
    symbols = expression.free_symbols
    if len(symbols) < 2 or not symbols <= places.keys():
        return False
    example = {symbol: trials.sizes[each[0]] for symbol, each in places.items()}
    raises = False
    for symbol in sorted(symbols, key=str):
        for size in (1, example[symbol] + 1, 2 * example[symbol], 3 * example[symbol]):
            if bool(expression.subs({**example, symbol: size})):
                continue
            try:
                trials.results(trials.at(dict.fromkeys(places[symbol], size)))
            except RefusedError as error:
                raises |= _is_raised(error.__cause__)
            else:
                return False
    return raises


def _is_raised(error: BaseException | None) -> bool:
    """Whether the module's code itself raises an error."""
    last = [*traceback.walk_tb(error.__traceback__ if error else None)][-1:]
    places = [(Path(frame.f_code.co_filename), line) for frame, line in last if is_users(frame)]
    return any(isinstance(each, ast.Raise | ast.Assert) for place in places for each in around(*place))


@functools.lru_cache(maxsize=256)
def _decides(path: Path, line: int) -> bool:
    """Whether a line of a module's code goes on either way."""
    statement = innermost(path, line)
    checks = isinstance(statement, ast.Assert) or only_raises(statement)
    return not only_moves(statement) and (is_caught(path, line) or not checks)
