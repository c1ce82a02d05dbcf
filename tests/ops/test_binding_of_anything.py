"""Whatever a damaged model holds, binding it to a definition raises our errors and no others."""

from __future__ import annotations

import contextlib
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lstm_lower as ll
from lstm_lower.declarations import Attribute, Operand
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
DIMS = st.one_of(st.integers(0, 4), st.integers(-2, 2**40), st.sampled_from(["T", "B", "", None]))
SMALL = st.integers(0, 4)
SHAPES = st.one_of(st.none(), st.lists(DIMS, max_size=5).map(tuple))
RESTS = st.lists(SMALL, max_size=3).map(tuple)
VALUES = st.lists(st.one_of(SMALL, st.integers(-(2**62), 2**62)), min_size=1, max_size=4)
DTYPES_OR_NONE = st.sampled_from([None, *DType])
SELDOM = st.sampled_from((False,) * 11 + (True,))


def seldom(draw: st.DrawFn) -> bool:
    """One time in twelve, which leaves most of a node as it should be."""
    return draw(SELDOM)


@st.composite
def infos(draw: st.DrawFn, declared: Operand, types: dict[str, DType], sizes: dict[str, int]) -> TensorInfo | None:
    """What is known of an operand, most of it as the definition wants it."""
    if seldom(draw):
        return None
    dtype = draw(DTYPES_OR_NONE) if seldom(draw) else types[declared.dtype]
    shape = draw(SHAPES)
    if declared.spec is not None and not seldom(draw):
        rest = draw(RESTS) if declared.spec.rest else ()
        shape = (*rest, *(dim.value(dict(sizes)) for dim in declared.spec.dims))
        shape = tuple(draw(DIMS) if seldom(draw) else dim for dim in shape)
    value = None
    if dtype is not None and dtype.is_integer() and draw(st.booleans()):
        given_shape = tuple(dim if isinstance(dim, int) and 0 <= dim < 9 else 2 for dim in shape or ())
        value = np.resize(np.array(draw(VALUES)), given_shape)
        shape = shape if seldom(draw) else given_shape
    return TensorInfo(dtype, shape, value)


@st.composite
def calls(draw: st.DrawFn, op: type[OpDef]) -> tuple[Arranged[TensorInfo | None], dict[str, Any]]:
    """Operands and attributes of a damaged node."""
    operands: Arranged[TensorInfo | None] = Arranged()
    symbols = {s for x in op.inputs if x.spec for dim in x.spec.dims for s, _ in dim.terms}
    sizes = {symbol: draw(st.integers(0, 4)) for symbol in sorted(symbols)}
    types = DTYPES | {name: draw(st.sampled_from(allowed)) for name, allowed in op.types.items()}
    for declared in op.inputs:
        if declared.variadic:
            operands.lists[declared.name] = draw(st.lists(infos(declared, types, sizes), max_size=4))
        elif not seldom(draw):
            operands.single[declared.name] = draw(infos(declared, types, sizes))
    attributes = {}
    for attribute in op.attributes:
        if seldom(draw):
            attributes[attribute.name] = draw(ANYTHING)
        elif attribute.required or draw(st.booleans()):
            attributes[attribute.name] = draw(_fitting(attribute))
    if seldom(draw):
        attributes[draw(TEXTS)] = draw(ANYTHING)
    return operands, attributes


def _fitting(attribute: Attribute) -> st.SearchStrategy[Any]:
    if attribute.choices:
        return st.sampled_from(attribute.choices)
    kinds: dict[Any, st.SearchStrategy[Any]] = {
        bool: st.booleans(),
        int: st.one_of(st.integers(0, 4), NUMBERS),
        float: st.one_of(st.just(0.5), st.floats()),
        list[int]: st.tuples(st.just(1), st.integers(1, 3), st.integers(1, 3), st.just(1)).map(list),
    }
    return kinds.get(attribute.type, ANYTHING)


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
