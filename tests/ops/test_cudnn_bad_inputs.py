"""Malformed operands and attributes of the cuDNN ops are refused: eagerly, in lowering, and in a session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import lstm_lower as ll
from lstm_lower import opdef
from tests.support.cudnn_cases import Case
from tests.support.cudnn_models import node_model
from tests.support.examples import by_op, named

CASE = Case("lstm", 2, bidirectional=True, proj=2)
PLAIN = Case("lstm", 2, bidirectional=True)
SEQUENCE_OPS = tuple(f"CudnnRNN{part}{version}" for part in ("", "Backprop") for version in ("", "V2", "V3"))

# Not read, hence of any shape.
FREE = ("reserve_space", "host_reserved")

Call = dict[str, Any]


class Row(NamedTuple):
    """One malformed call: what is changed, and what the error says of it."""

    op: str
    id: str
    change: Callable[[Call], Call]
    text: str
    attribute: bool = False


def valid_call(op: str) -> Call:
    """Operands and attributes of a good call."""
    definition = opdef.REGISTRY[op]
    case = CASE if op.endswith("V3") else PLAIN
    operands = {operand.name: case.operands(dtype=np.float32)[operand.name] for operand in definition.inputs}
    attributes = {attribute.name for attribute in definition.attributes}
    return operands | {name: value for name, value in case.attributes.items() if name in attributes}


def put(**changes: Any) -> Callable[[Call], Call]:
    return lambda call: {**call, **changes}


def reshape(name: str, shape: tuple[int, ...]) -> Callable[[Call], Call]:
    return lambda call: {**call, name: np.zeros(shape, call[name].dtype)}


def retype(name: str, dtype: Any) -> Callable[[Call], Call]:
    return lambda call: {**call, name: call[name].astype(dtype)}


def rows_of(op: str) -> Iterator[Row]:
    call = valid_call(op)
    for operand in opdef.REGISTRY[op].inputs:
        name, value = operand.name, call[operand.name]
        other = np.int64 if value.dtype.kind == "i" else np.float64
        yield Row(op, f"{name} dtype", retype(name, other), r"\w+ requires dtype \w+")
        if name in FREE:
            continue
        yield Row(op, f"{name} rank+1", reshape(name, (*value.shape, 1)), rf"{name} requires rank {value.ndim}")
        yield Row(op, f"{name} rank-1", reshape(name, value.shape[1:]), rf"{name} requires rank {value.ndim}")
        for axis in range(value.ndim):
            if name == "input" and axis == 0 and "Backprop" not in op:
                continue  # one step more is as good
            larger = tuple(size + (index == axis) for index, size in enumerate(value.shape))
            yield Row(op, f"{name} axis {axis}", reshape(name, larger), "requires")
    for name, bad, text in (
        ("rnn_mode", "lstmp", "rnn_mode requires one of"),
        ("input_mode", "linear", "input_mode requires one of"),
        ("direction", "both", "direction requires one of"),
        ("dropout", -0.5, "dropout requires 0 to 1, got -0.5"),
        ("dropout", 1.5, "dropout requires 0 to 1, got 1.5"),
        ("input_mode", "skip_input", "requires input size = num_units"),
    ):
        yield Row(op, f"{name} {bad}", put(**{name: bad}), text, attribute=True)
    if op.endswith("V3"):
        yield Row(op, "num_proj negative", put(num_proj=-1), "num_proj requires 0 or more", attribute=True)
        yield Row(
            op, "num_proj of a gru", put(rnn_mode="gru"), "num_proj requires 0 under rnn_mode gru", attribute=True
        )
        yield Row(op, "num_proj other", put(num_proj=3), "input_h requires num_proj = 3", attribute=True)
        yield Row(op, "no num_proj", put(num_proj=0), "input_c requires", attribute=True)


ROWS = [row for op in SEQUENCE_OPS for row in rows_of(op)]


def lengths_rows() -> Iterator[Row]:
    for op in ("CudnnRNNV3", "CudnnRNNBackpropV3"):
        for bad in ([0, 6, 2], [5, -1, 2]):
            value = np.array(bad, np.int32)
            text = rf"sequence_lengths requires 0 <= length <= T = 5, got {6 if 6 in bad else -1}"
            yield Row(op, f"lengths {bad}", put(sequence_lengths=value), text)


LENGTHS = list(lengths_rows())


def split(op: str, call: Call) -> tuple[dict[str, Any], dict[str, Any]]:
    names = [operand.name for operand in opdef.REGISTRY[op].inputs]
    attributes = {name: value for name, value in call.items() if name not in names}
    plain = {name: int(value) if isinstance(value, bool) else value for name, value in attributes.items()}
    return {name: call[name] for name in names}, plain


@pytest.mark.parametrize("rows", by_op([*ROWS, *LENGTHS]))
def test_eager(rows: list[Row]) -> None:
    for row in rows:
        with named(row.id):
            with pytest.raises(ll.InvalidInputError, match=f"^{row.op}: .*{row.text}") as caught:
                getattr(ll.raw_ops, row.op)(**row.change(valid_call(row.op)))
            assert ", got " in str(caught.value)


@pytest.mark.parametrize("rows", by_op([*ROWS, *LENGTHS]))
def test_lower(rows: list[Row]) -> None:
    for row in rows:
        operands, attributes = split(row.op, row.change(valid_call(row.op)))
        constants = ["sequence_lengths"] if row in LENGTHS else []
        model = node_model(row.op, operands, attributes, constants=constants)
        with named(row.id):
            with pytest.raises(ll.InvalidModelError, match=f"^{row.op} 'rnn': .*{row.text}") as caught:
                ll.lower(model)
            assert ", got " in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("op", SEQUENCE_OPS)
def test_session(op: str) -> None:
    """Every malformed feed is refused before onnxruntime sees it, also where the graph's own sizes are open."""
    good, attributes = split(op, valid_call(op))
    free = {name: [None] * good[name].ndim for name in good if name not in ("input", "input_h", "input_c")}
    symbols = {**free, "input": ["T", "B", 3], "input_h": [4, "B", good["input_h"].shape[2]]}
    symbols["input_c"] = [4, "B", good["input_c"].shape[2]]
    session = ll.Session(node_model(op, good, attributes, symbols=symbols))
    for row in [*ROWS, *LENGTHS]:
        if row.op == op and not row.attribute:
            with pytest.raises(ll.InvalidInputError, match="requires"):
                session.run(split(op, row.change(valid_call(op)))[0])
    session.run(good)


def test_params_of_a_wrong_length_are_explained() -> None:
    call = valid_call("CudnnRNN") | {"params": np.zeros(700, np.float32)}
    with pytest.raises(ll.InvalidInputError) as caught:
        ll.raw_ops.CudnnRNN(**call)
    assert str(caught.value) == (
        "CudnnRNN: params requires length 736 (lstm, 4 gates of 4 units; "
        "layer 0: 2 x (16x3 W + 16x4 R + 2x16 biases); layer 1: 2 x (16x8 W + 16x4 R + 2x16 biases)), got length 700"
    )


@pytest.mark.parametrize("op", ["CudnnRNNV3", "CudnnRNNBackpropV3"])
@pytest.mark.parametrize("mode", ["gru", "rnn_tanh"])
def test_modes_without_a_cell_read_no_input_c(op: str, mode: str) -> None:
    """It may have any shape and any value."""
    case = Case(mode)
    operands = {operand.name: case.operands()[operand.name] for operand in opdef.REGISTRY[op].inputs}
    known = {attribute.name for attribute in opdef.REGISTRY[op].attributes}
    attributes = {name: value for name, value in case.attributes.items() if name in known}
    expected = getattr(ll.raw_ops, op)(**operands, **attributes)
    operands["input_c"] = np.full((2, 5), np.nan)
    found = getattr(ll.raw_ops, op)(**operands, **attributes)
    np.testing.assert_array_equal(found[0], expected[0])
    if op == "CudnnRNNBackpropV3":
        np.testing.assert_array_equal(found.input_c_backprop, np.zeros((2, 5)))
    # Keras passes a plain 0.
    getattr(ll.raw_ops, op)(**{**operands, "input_c": 0}, **attributes)


def test_odd_pseudo_layers() -> None:
    call = valid_call("CudnnRNN")
    for name in ("input_h", "input_c"):
        call[name] = call[name][:3]
    with pytest.raises(ll.InvalidInputError, match="input_h requires a positive multiple of 2 pseudo-layers, got 3"):
        ll.raw_ops.CudnnRNN(**call)


def test_no_steps() -> None:
    call = valid_call("CudnnRNN")
    call["input"] = call["input"][:0]
    with pytest.raises(ll.InvalidInputError, match="input requires at least one time step, got 0"):
        ll.raw_ops.CudnnRNN(**call)


PARAMS = {"num_layers": 2, "num_units": 4, "input_size": 3}


def test_params_ops() -> None:
    size = ll.raw_ops.CudnnRNNParamsSize(**PARAMS, T="float64", S="int64", num_proj=2)
    assert size.dtype == np.int64
    assert size.tolist() == [16 * 3 + 16 * 2 + 2 * 4 + 16 * 2 + 16 * 2 + 2 * 4 + 4 * 16]
    params = np.arange(size[0], dtype=np.float32)
    parts = ll.raw_ops.CudnnRNNParamsToCanonicalV2(
        **PARAMS, params=params, num_proj=2, num_params_weights=18, num_params_biases=16
    )
    assert [part.shape for part in parts.weights[:9]] == [(4, 3)] * 4 + [(4, 2)] * 4 + [(2, 4)]
    assert [part.shape for part in parts.biases] == [(4,)] * 16
    packed = ll.raw_ops.CudnnRNNCanonicalToParamsV2(
        **PARAMS, weights=[part.reshape(-1) for part in parts.weights], biases=parts.biases, num_proj=2
    )
    np.testing.assert_array_equal(packed, params)


@pytest.mark.parametrize("mode", ["lstm", "gru", "rnn_tanh", "rnn_relu"])
@pytest.mark.parametrize("direction", ["unidirectional", "bidirectional"])
@pytest.mark.parametrize("input_mode", ["linear_input", "skip_input"])
def test_params_round_trip(mode: str, direction: str, input_mode: str) -> None:
    sizes = {"num_layers": 2, "num_units": 3, "input_size": 3}
    attributes = {"rnn_mode": mode, "direction": direction, "input_mode": input_mode}
    params = np.arange(ll.raw_ops.CudnnRNNParamsSize(**sizes, **attributes)[0], dtype=np.float64)
    count = {"lstm": 8, "gru": 6}.get(mode, 2) * 2 * (2 if direction == "bidirectional" else 1)
    parts = ll.raw_ops.CudnnRNNParamsToCanonical(**sizes, params=params, num_params=count, **attributes)
    assert len(parts.weights) == len(parts.biases) == count
    assert parts.weights[0].shape == (3, 0 if input_mode == "skip_input" else 3)
    packed = ll.raw_ops.CudnnRNNCanonicalToParams(**sizes, weights=parts.weights, biases=parts.biases, **attributes)
    np.testing.assert_array_equal(packed, params)


def canonical(**changes: Any) -> Any:
    parts = {"weights": [np.zeros((4, 3))] * 3 + [np.zeros((4, 4))] * 3, "biases": [np.zeros(4)] * 6}
    call = {"num_layers": 1, "num_units": 4, "input_size": 3, "rnn_mode": "gru", **parts, **changes}
    return ll.raw_ops.CudnnRNNCanonicalToParams(**call)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"num_layers": 0}, "num_layers requires at least 1, got 0"),
        ({"num_units": -4}, "num_units requires at least 1, got -4"),
        ({"num_layers": np.array([1], np.int32)}, "num_layers requires rank 0"),
        ({"num_layers": np.array(1, np.int64)}, "num_layers requires dtype int32, got int64"),
        ({"rnn_mode": "lstm"}, "num_params requires 8 weights .*, got 6"),
        ({"num_layers": 2}, "num_params requires 12 weights .*, got 6"),
        ({"input_size": 5}, r"weights\[0\] requires W_r with 20 elements, \[4, 5\], got shape \[4, 3\]"),
        ({"biases": [np.zeros(4)] * 5 + [np.zeros(3)]}, r"biases\[5\] requires bR_n with 4 elements"),
        ({"biases": [np.zeros(4)] * 5 + [np.zeros(4, np.float32)]}, r"biases\[5\] requires dtype float64"),
        ({"input_mode": "skip_input"}, "input_size|input requires input size = num_units = 4"),
    ],
)
def test_bad_canonical_parts(changes: dict[str, Any], text: str) -> None:
    canonical()
    with pytest.raises(ll.InvalidInputError, match=f"CudnnRNNCanonicalToParams: .*{text}"):
        canonical(**changes)


def test_sizes_of_params_ops_must_be_constants() -> None:
    operands = {name: np.array(value, np.int32) for name, value in PARAMS.items()}
    model = node_model("CudnnRNNParamsSize", operands, {}, constants=["num_units", "input_size"])
    with pytest.raises(ll.UnsupportedOpError, match="CudnnRNNParamsSize 'rnn': num_layers requires a constant"):
        ll.lower(model)
    model = node_model("CudnnRNNParamsSize", operands, {}, constants=list(PARAMS))
    assert ll.Session(ll.lower(model)).run({})["params_size"].tolist() == [304]
