"""Ideas: texts, which are compared, joined, split, normalized and read as numbers.

They are hidden from other ideas: onnxruntime's Gather takes one string of a row.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
from onnx import numpy_helper

from tests.support.fuzz.ideas import idea
from tests.support.fuzz.scope import Array, Refused, Scope, Value

WORDS = ["", "a", "b", "ab", "Ab", "a b", "größe", "0.5", "-2"]


def _words(s: Scope, shape: tuple[int, ...], words: list[str]) -> Value:
    """A constant of this very graph."""
    array = np.array(s.random.choices(words, k=int(np.prod(shape))), object).reshape(shape)
    if not s.is_function and s.chance(0.3):
        return s.initializer(array)
    made = s.emit("Constant", [], known=[array], value=numpy_helper.from_array(array))[0]
    s.growth.constants.add(made.name)
    return made


@idea(0.7)
def texts(s: Scope) -> list[Value]:
    """Texts that are moved, and what is asked of them."""
    if s.growth.smooth or s.growth.opset < 20:
        raise Refused("opset")
    shape = tuple(s.random.randint(1, 3) for _ in range(s.random.randint(1, 2)))
    with _hidden(s):
        value = _words(s, shape, WORDS)
        for _ in range(s.random.randint(1, 3)):
            value = _moved(s, value)
        return _seen(s, value)


def _seen(s: Scope, value: Value) -> list[Value]:
    match s.random.choice(["match", "equal", "split", "normalized"]):
        case "match":
            return [s.one("RegexFullMatch", value, pattern=s.random.choice(["a.*", "[ab]+", ""]))]
        case "equal":
            return [s.one("Equal", value, _words(s, (1,), WORDS))]
        case "split":
            parts, counts = s.emit("StringSplit", [value], 2, delimiter=s.random.choice(["", " ", "b"]))
            return [counts, s.one("Shape", parts)]
    flat = s.one("Reshape", value, s.ints([-1]))
    action = s.random.choice(["LOWER", "UPPER", "NONE"])
    fields = {"stopwords": ["a"]} if s.chance(0.5) else {}
    made = s.one("StringNormalizer", flat, case_change_action=action, is_case_sensitive=1, **fields)
    return [s.one("Shape", made), s.one("RegexFullMatch", made, pattern="[a-z]*")]


def _moved(s: Scope, value: Value) -> Value:
    match s.random.choice(["joined", "transposed", "chosen", "stacked", "shaped"]):
        case "joined":
            return s.one("StringConcat", value, _words(s, value.shape[-1:], WORDS))
        case "chosen":
            yes: Array = s.growth.numbers.integers(0, 2, value.shape)
            return s.one("Where", s.constant(yes, bool), value, _words(s, value.shape, WORDS))
        case "stacked":
            return s.one("Concat", value, _words(s, value.shape, WORDS), axis=0)
        case "transposed":
            return s.one("Transpose", value)
    return s.one("Reshape", value, s.ints([1, -1]))


@idea(0.5)
def numerals(s: Scope) -> Value:
    """Numbers that are read from texts, or written to some and read again."""
    if s.growth.smooth:
        raise Refused("no derivative")
    with _hidden(s):
        if s.chance(0.5):
            value = _words(s, (s.random.randint(1, 3),), ["0.5", "-2", "1e1", "3"])
        else:
            value = s.one("Cast", s.pick(lambda v: v.dtype.kind == "i"), to=8)
        return s.one("Cast", value, to=s.random.choice([1, 11]))


@contextlib.contextmanager
def _hidden(s: Scope) -> Iterator[None]:
    try:
        yield
    finally:
        for value in [value for value in s.values.values() if value.is_tensor and value.dtype == object]:
            s.drop(value)
