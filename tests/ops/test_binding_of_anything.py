"""Whatever a damaged model holds, binding it to a definition raises our errors and no others."""

from __future__ import annotations

import contextlib
import random
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lstm_lower as ll
from lstm_lower.declarations import AttributeDeclaration, OperandDeclaration
from lstm_lower.dtypes import DTYPES, DType
from lstm_lower.opdef import REGISTRY, Arranged, OpDef, TensorInfo
from tests.support.examples import tried

OPS = [pytest.param(op, id=op.op_type) for op in REGISTRY.values()]

NUMBERS = st.one_of(st.integers(-3, 9), st.sampled_from([2**31 - 1, 2**31, -(2**31), 2**62, 2**63, -(2**63), 10**30]))
TEXTS = st.one_of(st.sampled_from(["lstm", "gru", "SAME", "EXPLICIT", "NCHW", "NDHWC", "linear_input", ""]), st.text())
ANYTHING: st.SearchStrategy[Any] = st.one_of(
    NUMBERS,
    st.floats(),
    st.booleans(),
    TEXTS,
    st.none(),
    st.binary(),
    st.lists(st.one_of(NUMBERS, TEXTS, st.floats()), max_size=9),
    st.sampled_from([np.float32(1), np.int64(3), np.dtype("float32"), object(), {}, np.zeros(3)]),
)
SEEDS = st.integers(0, 2**64 - 1)
SYMBOLS = ("T", "B", "", None)


class Chance(random.Random):
    """What is drawn for every part of a node, quicker than by strategies, which only draw what is odd."""

    def seldom(self) -> bool:
        """One time in twelve, which leaves most of a node as it should be."""
        return self.random() < 1 / 12

    def often(self) -> bool:
        return self.random() < 1 / 2

    def dim(self) -> int | str | None:
        kind = self.randrange(3)
        return self.choice(SYMBOLS) if kind == 0 else self.randint(0, 4) if kind == 1 else self.large(-2, 40)

    def large(self, least: int, bits: int) -> int:
        """An integer, small or large: each number of bits is as likely."""
        return self.randint(least, 1 << self.randint(0, bits))

    def shape(self) -> tuple[int | str | None, ...] | None:
        return None if self.often() else tuple(self.dim() for _ in range(self.randint(0, 5)))

    def value(self) -> int:
        return self.randint(0, 4) if self.often() else self.choice((-1, 1)) * self.large(0, 62)


def info(
    chance: Chance, declared: OperandDeclaration, types: dict[str, DType], sizes: dict[str, int]
) -> TensorInfo | None:
    """What is known of an operand, most of it as the definition wants it."""
    if chance.seldom():
        return None
    dtype = chance.choice([None, *DType]) if chance.seldom() else types[declared.dtype]
    shape = chance.shape()
    if declared.spec is not None and not chance.seldom():
        rest = [chance.randint(0, 4) for _ in range(chance.randint(0, 3))] if declared.spec.rest else ()
        shape = (*rest, *(dim.value(dict(sizes)) for dim in declared.spec.dims))
        shape = tuple(chance.dim() if chance.seldom() else dim for dim in shape)
    value = None
    if dtype is not None and dtype.is_integer() and chance.often():
        given_shape = tuple(dim if isinstance(dim, int) and 0 <= dim < 9 else 2 for dim in shape or ())
        value = np.resize(np.array([chance.value() for _ in range(chance.randint(1, 4))]), given_shape)
        shape = shape if chance.seldom() else given_shape
    return TensorInfo(dtype, shape, value)


@st.composite
def calls(draw: st.DrawFn, op: type[OpDef]) -> tuple[Arranged[TensorInfo | None], dict[str, Any]]:
    """Operands and attributes of a damaged node."""
    chance = Chance(draw(SEEDS))
    operands: Arranged[TensorInfo | None] = Arranged()
    symbols = {s for x in op.inputs if x.spec for dim in x.spec.dims for s, _ in dim.terms}
    sizes = {symbol: chance.randint(0, 4) for symbol in sorted(symbols)}
    types = DTYPES | {name: chance.choice(allowed) for name, allowed in op.types.items()}
    for declared in op.inputs:
        if declared.variadic:
            count = chance.randint(0, 4)
            operands.lists[declared.name] = [info(chance, declared, types, sizes) for _ in range(count)]
        elif not chance.seldom():
            operands.single[declared.name] = info(chance, declared, types, sizes)
    attributes = {}
    for attribute in op.attributes:
        if chance.seldom():
            attributes[attribute.name] = draw(ANYTHING)
        elif attribute.required or chance.often():
            attributes[attribute.name] = draw(_fitting(attribute))
    if chance.seldom():
        attributes[draw(TEXTS)] = draw(ANYTHING)
    return operands, attributes


FITTING: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: st.one_of(st.integers(0, 4), NUMBERS),
    float: st.one_of(st.just(0.5), st.floats()),
    list[int]: st.tuples(st.just(1), st.integers(1, 3), st.integers(1, 3), st.just(1)).map(list),
}


def _fitting(attribute: AttributeDeclaration) -> st.SearchStrategy[Any]:
    return st.sampled_from(attribute.choices) if attribute.choices else FITTING.get(attribute.type, ANYTHING)


@pytest.mark.parametrize("op", OPS)
def test_only_our_errors(op: type[OpDef]) -> None:
    @settings(tried(6), derandomize=False, database=None)
    @given(calls(op))
    def check(call: tuple[Arranged[TensorInfo | None], dict[str, Any]]) -> None:
        refused = None
        try:
            bound = op.bind("node", *call)
        except ll.InvalidModelError as error:
            refused = str(error)
        if refused is not None:
            assert refused.startswith(f"{op.op_type} 'node': ")
            return
        for info in bound.outputs:
            assert all(not isinstance(dim, int) or dim >= 0 for dim in info.shape or ())

    check()


@pytest.mark.parametrize("op", OPS)
def test_sizes_of_any_magnitude_take_no_memory(op: type[OpDef]) -> None:
    operands: Arranged[TensorInfo | None] = Arranged()
    for declared in op.inputs:
        dims = declared.spec.dims if declared.spec is not None else ()
        symbols = {symbol for dim in dims for symbol, _ in dim.terms}
        shape = tuple(dim.value(dict.fromkeys(symbols, 2**40)) for dim in dims)
        info = TensorInfo(op.types.get(declared.dtype, [DTYPES.get(declared.dtype)])[0], shape)
        if declared.variadic:
            operands.lists[declared.name] = [info]
        else:
            operands.single[declared.name] = info
    attributes = {x.name: 1 for x in op.attributes if x.required and x.type is int}
    tracemalloc.start()
    try:
        with contextlib.suppress(ll.InvalidModelError):
            op.bind("node", operands, attributes)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
