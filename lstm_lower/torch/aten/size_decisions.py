"""Comparisons of one open size, by which code decides: for which of its numbers they hold."""

from __future__ import annotations

import bisect
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

from lstm_lower.records.lengths import Place

# Sizes that may be decided otherwise: the first are below half of how many; and how many differences there are.
_TRIED, _FEW = 2048, 8


def places_of(expression: Any, places: Mapping[Any, Sequence[Place]]) -> Sequence[Place]:
    """The axes that a comparison is about; none where it is about several sizes.

    Args:
        expression: a comparison of sizes.
        places: open size -> axes of it.
    """
    symbols = [*expression.free_symbols]
    return places.get(symbols[0], ()) if len(symbols) == 1 else ()


@functools.lru_cache(maxsize=256)
def otherwise(expression: Any) -> tuple[int, ...] | None:
    """Sizes that stand for all for which a comparison does not hold: the first ones for each difference of its sides.

    `None` where they are many, begin late, or depend on several sizes.
    """
    if len(expression.free_symbols) != 1 or not expression.is_Relational:
        return None
    (symbol,) = expression.free_symbols
    standing: dict[Any, int] = {}
    for size in (*range(1, _TRIED), *(2**power for power in range(_TRIED.bit_length(), 40))):
        if not bool(expression.subs(symbol, size)):
            # One of few rows may be decided alike by chance.
            difference = (expression.lhs - expression.rhs).subs(symbol, size), size > _FEW
            if standing.setdefault(difference, size) > _TRIED // 2 or len(standing) > 2 * _FEW:
                return None
    return tuple(standing.values())


@functools.lru_cache(maxsize=256)
def holds_up_to(expression: Any) -> int:
    """The size up to which a comparison holds for all from 1 on, as far as that is certain.

    0 where there is none, and where it does not hold for a few small sizes alone (`otherwise`).
    """
    symbols = [*expression.free_symbols]
    if len(symbols) != 1 or otherwise(expression) is not None:
        return 0
    few = next((size for size in range(1, _TRIED) if not bool(expression.subs(symbols[0], size))), 0)

    def ends(size: int) -> bool:
        return bound_sympy(expression, {symbols[0]: ValueRanges(_TRIED, size)}).lower != True  # noqa: E712

    return few - 1 if few else _TRIED + bisect.bisect(range(_TRIED, 1 << 40), 0, key=ends) - 1
