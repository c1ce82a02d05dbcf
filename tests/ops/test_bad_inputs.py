"""Malformed operands and attributes are refused with one clear error: eagerly, in lowering, and in a session."""

from __future__ import annotations

import contextlib
import inspect

import google.protobuf.message
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lstm_lower as ll
from lstm_lower import opdef
from tests.support.bad_inputs import BAD_INPUTS, GOOD_INPUTS, BadInput, GoodInput
from tests.support.examples import by_op, named
from tests.support.models import single_node_model, split_kwargs
from tests.support.op_inputs import valid_inputs


def row_id(row: BadInput | GoodInput) -> str:
    return f"{row.op}-{row.id}".replace(" ", "_")


def check_message(error: Exception, row: BadInput) -> None:
    """Names the op, some operand or attribute of it, what is required and what came."""
    text = str(error)
    definition = opdef.REGISTRY[row.op]
    names = [row.fault, *(operand.name for operand in definition.inputs)]
    assert text.startswith((row.op, "input "))
    assert "requires" in text
    assert "got" in text
    assert any(name in text for name in names)


@pytest.mark.slow
@pytest.mark.parametrize("rows", by_op(BAD_INPUTS))
def test_eager(rows: list[BadInput]) -> None:
    for row in rows:
        with named(row.id):
            assert_refused_eagerly(row)


def assert_refused_eagerly(row: BadInput) -> None:
    op = getattr(ll.raw_ops, row.op)
    kwargs = row.change(valid_inputs(row.op))
    if set(kwargs) - set(inspect.signature(op).parameters) or "missing" in row.id or row.kind == "missing":
        with pytest.raises(TypeError, match=row.fault):
            op(**kwargs)
        return
    with pytest.raises(ll.InvalidInputError) as caught:
        op(**kwargs)
    check_message(caught.value, row)


@pytest.mark.parametrize("rows", by_op(BAD_INPUTS))
def test_lower(rows: list[BadInput]) -> None:
    for row in rows:
        with named(row.id):
            assert_not_lowered(row)


def assert_not_lowered(row: BadInput) -> None:
    kwargs = row.change(valid_inputs(row.op))
    # Values are known to the lowering only when they are constants.
    constants = ("seq_len_max",) if row.kind == "value" else ()
    model = single_node_model(row.op, kwargs, constants=constants)
    with pytest.raises(ll.InvalidModelError) as caught:
        ll.lower(model)
    check_message(caught.value, row)
    assert "'node'" in str(caught.value)


@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("op", sorted({row.op for row in BAD_INPUTS}))
def test_session(op: str, symbolic: bool) -> None:
    """All rows of one op on one session: none reaches onnxruntime, and a good run follows."""
    good = valid_inputs(op)
    session = ll.Session(single_node_model(op, good, symbolic=symbolic))
    for row in BAD_INPUTS:
        if row.op != op or row.kind == "attribute":
            continue
        feeds, attributes = split_kwargs(op, row.change(good))
        if set(attributes) != set(split_kwargs(op, good)[1]):
            continue
        with pytest.raises(ll.InvalidInputError) as caught:
            session.run(feeds)
        assert "requires" in str(caught.value), row.id
    session.run(split_kwargs(op, good)[0])


@pytest.mark.parametrize("row", GOOD_INPUTS, ids=row_id)
def test_good(row: GoodInput) -> None:
    kwargs = row.change(valid_inputs(row.op))
    getattr(ll.raw_ops, row.op)(**kwargs)
    ll.lower(single_node_model(row.op, kwargs))


def test_every_unsupported_node_is_named() -> None:
    model = single_node_model("GRUBlockCell", valid_inputs("GRUBlockCell"))
    for index, domain in enumerate(["tf", "com.example"]):
        node = onnx.helper.make_node("Mystery", ["x"], [f"y{index}"], name=f"m{index}", domain=domain)
        model.graph.node.append(node)
        model.opset_import.append(onnx.helper.make_opsetid(domain, 1))
    with pytest.raises(ll.UnsupportedOpError, match=r"(?s)2 nodes.*Mystery 'm0'.*Mystery 'm1'.*com\.example"):
        ll.lower(model)


@pytest.mark.parametrize(
    ("data", "text"),
    [(b"", "got nothing: 0 bytes"), (b"\xff\xff\xff\xff", "bytes that are not one"), (b"\x08\x08", "without a graph")],
)
def test_bad_bytes(tmp_path, data: bytes, text: str) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    with pytest.raises(ll.InvalidModelError, match=text):
        ll.lower(path)


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.9, 0.99])
def test_truncated_file(tmp_path, keep: float) -> None:
    data = single_node_model("BlockLSTM", valid_inputs("BlockLSTM")).SerializeToString()
    path = tmp_path / "model.onnx"
    path.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(ll.InvalidModelError):
        ll.lower(path)


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255), st.booleans()), min_size=1, max_size=4))
def test_damaged_bytes(damages: list[tuple[int, int, bool]]) -> None:
    """Overwritten and lost bytes: lowered if they do not matter, else an error of ours."""
    data = bytearray(single_node_model("BlockLSTMGrad", valid_inputs("BlockLSTMGrad")).SerializeToString())
    for place, value, lose in damages:
        if lose:
            del data[place % len(data)]
        else:
            data[place % len(data)] = value
    model = onnx.ModelProto()
    try:
        model.ParseFromString(bytes(data))
    except google.protobuf.message.DecodeError:
        return
    with contextlib.suppress(ll.LstmLowerError):
        ll.lower(model)


def test_missing_file(tmp_path) -> None:
    with pytest.raises(FileNotFoundError):
        ll.lower(tmp_path / "none.onnx")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"opset": 12}, "13 to"),
        ({"opset": 99}, "13 to"),
        ({"schedule": "fast"}, "auto, scan"),
        ({"schedule": "chunk:0"}, "auto"),
        ({"schedule": "chunk:²"}, "auto"),
        ({"schedule": "chunk:" + "9" * 5000}, "auto"),
    ],
)
def test_bad_options(options: dict, text: str) -> None:
    with pytest.raises(ll.InvalidInputError, match=text):
        ll.lower(single_node_model("GRUBlockCell", valid_inputs("GRUBlockCell")), **options)


def test_feeds() -> None:
    kwargs = valid_inputs("GRUBlockCell")
    session = ll.Session(single_node_model("GRUBlockCell", kwargs, symbolic=True))
    with pytest.raises(ll.InvalidInputError, match=r"'x' requires a value, got nothing"):
        session.run({name: value for name, value in kwargs.items() if name != "x"})
    with pytest.raises(ll.InvalidInputError, match="'xx' must be one of"):
        session.run({**kwargs, "xx": np.zeros(1)})
    with pytest.raises(ll.InvalidInputError, match="output 'zz'"):
        session.run(kwargs, outputs=["zz"])
    with pytest.raises(ll.InvalidInputError, match="provider 'cuda'"):
        ll.Session(single_node_model("GRUBlockCell", kwargs), providers=["cuda"])


@pytest.mark.parametrize(("shape", "axis"), [((), 0), ((2, 3), 2), ((2, 3), -3)])
def test_an_axis_that_x_does_not_have(shape: tuple[int, ...], axis: int) -> None:
    with pytest.raises(ll.InvalidInputError, match=f"axis requires an axis of x of rank {len(shape)}, got {axis}"):
        ll.raw_ops.UniqueV2(x=np.ones(shape, np.float32), axis=np.array([axis]))
