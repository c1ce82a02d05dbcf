"""What a loop needs: the loop variables that anything depends on, and the ops that make them."""

from __future__ import annotations

from collections.abc import Iterable

from lstm_lower.tensorflow.regions import Aliases, Op, Region
from lstm_lower.tensorflow.state import writes


def params_behind(region: Region, names: Iterable[str | None], aliases: Aliases) -> set[int]:
    """The numbers of the parameters that some tensors of a region depend on."""
    makers = {op.name: op for op in region.ops}
    place = {name: index for index, name in enumerate(region.params)}
    found: set[int] = set()
    seen: set[str] = set()
    pending = [name for name in names if name is not None]
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in place:
            found.add(place[name])
            continue
        op = makers.get(name.rpartition(":")[0])
        if op is not None:
            pending += op.reads()
            pending += [x for waited in op.waits() if waited in makers for x in makers[waited].reads()]
        elif name in aliases.names:
            pending.append(aliases.names[name])
    return found


def needed(region: Region, names: Iterable[str | None], aliases: Aliases) -> list[Op]:
    """The ops of a region that some tensors need, or that change something."""
    makers = {op.name: op for op in region.ops}
    found: set[str] = set()
    pending = [name for name in names if name is not None]
    pending += [name for op in region.ops if writes(op) for name in (f"{op.name}:0", *op.reads())]
    seen: set[str] = set()
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        op = makers.get(name.rpartition(":")[0])
        if op is None:
            if name not in region.params and name in aliases.names:
                pending.append(aliases.names[name])
        elif op.name not in found:
            found.add(op.name)
            pending += [*op.reads(), *(f"{waited}:0" for waited in op.waits())]
    return [op for op in region.ops if op.name in found]
