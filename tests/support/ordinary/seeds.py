"""Cases of ops that draw the same numbers from the same seed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.support.ordinary.case import Case, text

DTYPES = {"float16": 10, "float32": 1, "float64": 11, "int32": 6, "int64": 7, "uint32": 12, "uint64": 13}
FLOATS = ("float16", "float32", "float64")
# A distribution, its dtypes, and its operands.
DRAWS: list[tuple[str, tuple[str, ...], dict[str, int]]] = [
    ("StatelessRandomUniform", FLOATS, {}),
    ("StatelessRandomNormal", FLOATS, {}),
    ("StatelessTruncatedNormal", FLOATS, {}),
    ("StatelessRandomUniformFullInt", ("int32", "int64", "uint32", "uint64"), {}),
    ("StatelessRandomUniformInt", ("int32", "int64"), {"minval": -3, "maxval": 100}),
]


def cases() -> Iterator[Case]:
    seed, shape = np.array([2**40, 5]), np.array([3, 5], np.int32)
    key, counter = np.array([2**63 + 11], np.uint64), np.array([2**64 - 3, 5], np.uint64)
    for op, dtypes, bounds in DRAWS:
        for dtype in dtypes:
            limits = {name: np.array(value, dtype) for name, value in bounds.items()}
            attributes = {} if bounds else {"dtype": DTYPES[dtype]}
            form = {"attributes": attributes, "steering": ("shape",), "since": 18}
            yield Case(op, text(dtype), {"shape": shape, "seed": seed, **limits}, **form)
            of_key = {"shape": shape, "key": key, "counter": counter, "alg": np.array(1, np.int32), **limits}
            yield Case(f"{op}V2", text(dtype), {**of_key}, constants=("alg",), **form)
    for dtype in FLOATS:
        for note, alpha in (("each", [[0.2, 1.0, 3.5]]), ("below", [0.05]), ("one", 2.0), ("none", [])):
            given = np.array(alpha, dtype)
            sizes = np.array([40, *given.shape] if note != "each" else [30, 2, *given.shape], np.int32)
            of_key = {"shape": sizes, "key": key, "counter": counter, "alg": np.array(1, np.int32), "alpha": given}
            form = {"steering": ("shape",), "since": 18}
            yield Case("StatelessRandomGammaV3", f"{note} {text(dtype)}", {**of_key}, constants=("alg",), **form)
            yield Case(
                "StatelessRandomGammaV2",
                f"{note} {text(dtype)}",
                {"shape": sizes, "seed": seed, "alpha": given},
                **form,
            )
    logits = np.array([[0, 1, 2], [-1, -np.inf, 0.5], [3, 3, 3]], np.float32)
    operands = {"logits": logits, "num_samples": np.array(9, np.int32), "seed": seed}
    yield Case("StatelessMultinomial", "float32", {**operands}, steering=("num_samples",), since=18)
    yield Case("StatelessRandomGetAlg", "float32", {})
    for op in ("StatelessRandomGetKeyCounter", "StatelessRandomGetKeyCounterAlg"):
        for kind in ("int32", "int64"):
            yield Case(op, kind, {"seed": np.array([3, -7], kind)}, since=18)
