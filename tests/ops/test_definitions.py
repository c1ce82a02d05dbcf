"""A definition that nobody can read is refused where it is made, not where it is first used."""

from __future__ import annotations

import pytest

from lstm_lower.errors import InvalidInputError
from lstm_lower.extend import OpDef, attr, operand
from lstm_lower.opdef import REGISTRY
from tests.support.plugins import own_registry  # noqa: F401

pytestmark = pytest.mark.usefixtures("own_registry")

FAULTS = {
    "type variable T requires a tuple of some of .*, got .*float8": {"Types": {"T": ("float8",)}},
    "type variable T requires a tuple of some of .*, got 'float32'": {"Types": {"T": "float32"}},
    "x requires one of T, .* as its dtype, got 'U'": {"Inputs": {"x": operand("N", "U")}},
    "y requires one of T, .* as its dtype, got 'float8'": {"Outputs": {"y": operand("N", "float8")}},
    r"x requires one of the int attributes \[\] as its count": {
        "Inputs": {"x": operand("N", variadic=True, count="n")}
    },
    "attribute a requires a type of bool, int, .*, got <class 'dict'>": {"Attrs": {"a": attr(dict)}},
    "attribute a requires a default of type int, got 1.5": {"Attrs": {"a": attr(int, 1.5)}},
    "attribute x requires a name of its own, got that of an operand": {
        "Inputs": {"x": operand("N")},
        "Attrs": {"x": attr(int)},
    },
    "operand name requires a name of its own, got that of the node's": {"Inputs": {"name": operand("N")}},
    "Broken requires a domain of its own, got ONNX's ''": {"domain": ""},
    "Broken requires a domain of its own, got ONNX's 'ai.onnx.ml'": {"domain": "ai.onnx.ml"},
}


@pytest.mark.parametrize("message", FAULTS)
def test_refused(message: str) -> None:
    members = {
        name: type(name, (), value) if isinstance(value, dict) else value for name, value in FAULTS[message].items()
    }
    with pytest.raises(InvalidInputError, match=message):
        type("Broken", (OpDef,), {"domain": "com.example", "__module__": __name__, **members})
    assert ("com.example", "Broken") not in REGISTRY


@pytest.mark.parametrize("shape", ["I-1", "*S *R", "A *S B", "2**"])
def test_a_shape_that_is_none(shape: str) -> None:
    with pytest.raises(InvalidInputError, match=r"a (dimension|shape) requires"):
        operand(shape)
