"""Cases of the ops that round numbers to a grid."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from tests.support.ordinary.case import Case, draw, grid, text

# The ends of the range, on either side of zero, beyond it, and none.
ENDS = [(-2.0, 3.0), (0.0, 4.0), (1.0, 3.0), (-3.0, -0.5), (-0.1, 0.1), (0.0, 0.0)]
# Ends of which either needs the larger step, or none does.
EXTENTS = [(-2.0, 1.5), (-0.3, 2.9), (0.0, 3.0), (-1.0, -0.5), (0.5, 2.0), (0.0, 0.0)]
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
    yield from _dequantized()


def _of(kind: str, what: str, x: Any, dy: Any, ends: dict[str, Any], attributes: dict[str, Any]) -> Iterator[Case]:
    whole = not kind.endswith("PerChannel")
    yield Case(f"FakeQuantWithMinMax{kind}", what, {"inputs": x, **ends}, attributes, unranked=whole)
    operands = {"gradients": dy, "inputs": x, **ends}
    yield Case(f"FakeQuantWithMinMax{kind}Gradient", what, operands, attributes, unranked=whole)


def _dequantized() -> Iterator[Case]:
    forms: list[dict[str, Any]] = [{}, {"num_bits": 3, "narrow_range": True}, {"signed_input": False, "num_bits": 16}]
    for attributes, (shape, dtype) in product(forms, grid([(2, 0, 3), (2, 5, 3)], ("float64",))):
        if attributes and (not all(shape) or dtype == "float64"):
            continue
        x, dy = (np.round(draw(shape, dtype, name), 3) for name in ("inputs", "gradients"))
        for axis in {-1, 0, len(shape) - 1}:
            for low, high in EXTENTS:
                what = text(shape, dtype, low, high, axis, *attributes.values())
                per = shape[axis : axis + 1] * (axis >= 0)
                ends = {"input_min": np.full(per, low, dtype), "input_max": np.full(per, high, dtype)}
                yield from _versions(what, {"input": x, **ends}, {**attributes, "axis": axis, "range_given": True})
                if not attributes and (low, high) != (0, 0):
                    given = {"gradients": dy, "input": x, **ends}
                    yield Case("QuantizeAndDequantizeV4Grad", what, given, {"axis": axis}, unranked=axis == -1)
            own, none = text(shape, dtype, axis, *attributes.values()), np.zeros((), dtype)
            for name, moved in (("both", x), ("above", np.abs(x) + 1), ("below", -np.abs(x) - 1)):
                if name == "below" and not attributes.get("signed_input", True):
                    # TensorFlow has infinite numbers there.
                    continue
                given = {"input": moved, "input_min": none, "input_max": none}
                yield from _versions(text(own, name), given, {**attributes, "axis": axis, "range_given": False})
    odd = {"input": np.array([-np.inf, np.inf, np.nan, 2, -0.3], np.float32)}
    odd |= {"input_min": np.float32(-1), "input_max": np.float32(2)}
    yield from _versions("odd", odd, {"range_given": True})


def _versions(what: str, operands: dict[str, Any], attributes: dict[str, Any]) -> Iterator[Case]:
    whole, given = attributes.get("axis", -1) == -1, attributes["range_given"]
    # TensorFlow's kernels take ends of each channel in one version alone.
    taken = whole or not given
    for version, mode in (("V2", "HALF_UP"), ("V4", "HALF_TO_EVEN")):
        named = {**attributes, "round_mode": mode}
        yield Case(f"QuantizeAndDequantize{version}", what, operands, named, unranked=whole, taken=taken)
    bits = {"num_bits": np.int32(attributes.get("num_bits", 8))}
    rest = {name: value for name, value in attributes.items() if name != "num_bits"}
    yield Case("QuantizeAndDequantizeV3", what, {**operands, **bits}, rest, ("num_bits",), unranked=whole)
