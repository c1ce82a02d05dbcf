"""Cases of the ops that round numbers to a grid."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.support.ordinary.case import Case, draw, text

# The ends of the range, on either side of zero, beyond it, and none.
ENDS = [(-2.0, 3.0), (0.0, 4.0), (1.0, 3.0), (-3.0, -0.5), (-0.1, 0.1), (0.0, 0.0)]
SHAPES: list[tuple[int, ...]] = [(3,), (4, 3), (2, 2, 5, 3)]


def cases() -> Iterator[Case]:
    forms: list[dict[str, Any]] = [{}, {"num_bits": 4}, {"num_bits": 16, "narrow_range": True}]
    for attributes in forms:
        for shape in SHAPES:
            x, dy = draw(shape, "float32", "inputs"), draw(shape, "float32", "gradients")
            for ends in ENDS:
                what = text(shape, ends, *attributes.values())
                low, high = (np.float32(end) for end in ends)
                yield from _of("Vars", what, x, dy, {"min": low, "max": high}, attributes)
                if low < high:
                    fixed = {"min": float(low), "max": float(high)}
                    yield from _of("Args", what, x, dy, {}, attributes | fixed)
            ends_of_each = {"min": np.array([-2, 0, -0.1], np.float32), "max": np.array([3, 0, 0.1], np.float32)}
            yield from _of("VarsPerChannel", text(shape, *attributes.values()), x, dy, ends_of_each, attributes)


def _of(kind: str, what: str, x: Any, dy: Any, ends: dict[str, Any], attributes: dict[str, Any]) -> Iterator[Case]:
    whole = not kind.endswith("PerChannel")
    yield Case(f"FakeQuantWithMinMax{kind}", what, {"inputs": x, **ends}, attributes, unranked=whole)
    operands = {"gradients": dy, "inputs": x, **ends}
    yield Case(f"FakeQuantWithMinMax{kind}Gradient", what, operands, attributes, unranked=whole)
