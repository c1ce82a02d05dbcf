"""Constants and dtypes of TensorFlow's messages, without TensorFlow, and as it reads them itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lstm_lower as ll
from lstm_lower.checkpoints import values
from lstm_lower.checkpoints.messages import DataType, NodeDef, TensorProto

FLOAT = DataType.Value("DT_FLOAT")


def tensor(dtype: str, shape: list[int], **fields: Any) -> Any:
    made = TensorProto(dtype=DataType.Value(f"DT_{dtype}"), **fields)
    for size in shape:
        made.tensor_shape.dim.add(size=size)
    return made


@pytest.mark.parametrize(
    ("proto", "expected"),
    [
        (tensor("FLOAT", [2], float_val=[1, 2]), np.array([1, 2], np.float32)),
        (tensor("FLOAT", [2, 2], float_val=[1, 2]), np.array([[1, 2], [2, 2]], np.float32)),
        (tensor("FLOAT", [3], float_val=[7]), np.full(3, 7, np.float32)),
        (tensor("FLOAT", [3]), np.zeros(3, np.float32)),
        (tensor("FLOAT", [0, 4]), np.zeros((0, 4), np.float32)),
        (tensor("FLOAT", [2], tensor_content=np.float32([3, 4]).tobytes()), np.array([3, 4], np.float32)),
        (tensor("HALF", [2], half_val=[0x3C00, 0xC000]), np.array([1, -2], np.float16)),
        (tensor("BOOL", [3], bool_val=[True, False]), np.array([True, False, False])),
        (tensor("UINT8", [2], int_val=[255, 3]), np.array([255, 3], np.uint8)),
        (tensor("INT8", [2], int_val=[-1, 3]), np.array([-1, 3], np.int8)),
        (tensor("UINT64", [1], uint64_val=[2**64 - 1]), np.array([2**64 - 1], np.uint64)),
        (tensor("COMPLEX64", [2], scomplex_val=[1, 2, 3, 4]), np.array([1 + 2j, 3 + 4j], np.complex64)),
        (tensor("STRING", [2], string_val=[b"a"]), np.array([b"a", b"a"], object)),
        (tensor("INT32", [], int_val=[4]), np.array(4, np.int32)),
    ],
    ids=repr,
)
def test_value(proto: Any, expected: np.ndarray[Any, Any]) -> None:
    found = values.tensor_value(proto)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_halves_of_the_other_kind() -> None:
    found = values.tensor_value(tensor("BFLOAT16", [2], half_val=[0x3F80]))
    np.testing.assert_array_equal(found.astype(np.float32), [1, 1])


@pytest.mark.parametrize(
    ("proto", "message"),
    [
        (tensor("FLOAT", [2], float_val=[1, 2, 3]), r"c requires 2 values for shape \[2\], got 3"),
        (tensor("FLOAT", [2], tensor_content=b"abc"), r"c requires 8 bytes, got 3 for shape \[2\] of float32"),
        (tensor("STRING", [1], tensor_content=b"abc"), "c requires 1|c requires 8 bytes, got 3"),
        (tensor("FLOAT", [2**20, 2**20], float_val=[1]), "c requires at most 2 GB"),
        (tensor("FLOAT", [0, 2**62, 2**62]), "c requires a shape that numpy can hold"),
        (tensor("FLOAT", [-1]), r"c requires a shape of known sizes, got \[-1\]"),
        (tensor("RESOURCE", []), "c requires a dtype of numbers, bools or strings, got resource"),
        (TensorProto(dtype=99), "c requires a dtype of numbers, bools or strings, got DataType 99"),
    ],
)
def test_what_is_no_value(proto: Any, message: str) -> None:
    with pytest.raises(ll.InvalidModelError, match=message):
        values.tensor_value(proto, "c")


def test_an_unknown_rank() -> None:
    proto = tensor("FLOAT", [])
    proto.tensor_shape.unknown_rank = True
    with pytest.raises(ll.InvalidModelError, match="an unknown rank"):
        values.tensor_value(proto)
    assert values.shape_of(proto.tensor_shape) is None


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(
    dtype=st.integers(0, 40),
    shape=st.lists(st.integers(-2, 2**62), max_size=4),
    content=st.binary(max_size=20),
    numbers=st.lists(st.integers(-(2**31), 2**31 - 1), max_size=5),
)
def test_no_message_does_harm(dtype: int, shape: list[int], content: bytes, numbers: list[int]) -> None:
    proto = TensorProto(dtype=dtype, tensor_content=content, int_val=numbers, half_val=numbers, float_val=numbers)
    for size in shape:
        proto.tensor_shape.dim.add(size=size)
    try:
        found = values.tensor_value(proto)
    except ll.LstmLowerError:
        return
    assert found.shape == tuple(shape)


def test_placeholders_of_any_shape() -> None:
    """Without a shape they have any; in old graphs those of scalars do too."""
    node = NodeDef(op="Placeholder")
    assert values.placeholder_shape(node, 27) is None
    node.attr["shape"].shape.SetInParent()
    assert values.placeholder_shape(node, 27) == ()
    assert values.placeholder_shape(node, 21) is None
    node.attr["shape"].shape.dim.add(size=-1)
    assert values.placeholder_shape(node, 21) == (None,)


def test_dtypes_there_and_back() -> None:
    for number in DataType.values():
        onnx = values.onnx_dtype(number)
        if onnx is not None:
            assert values.tensorflow_dtype(onnx) == values.base_dtype(number)
            assert (values.dtype_text(number) == "string") == (onnx == ir.DataType.STRING)
    assert values.onnx_dtype(FLOAT + 100) == ir.DataType.FLOAT
    assert values.dtype_text(DataType.Value("DT_RESOURCE_REF")) == "resource"
    with pytest.raises(ll.UnsupportedOpError, match="a dtype that TensorFlow has is required, got INT4"):
        values.tensorflow_dtype(ir.DataType.INT4)


def test_as_tensorflow_does() -> None:
    tf = pytest.importorskip("tensorflow")
    rng = np.random.default_rng(0)
    for number in DataType.values():
        onnx = values.onnx_dtype(number)
        if onnx in (None, ir.DataType.STRING) or number > 100:
            continue
        dtype = tf.as_dtype(number)
        assert dtype.as_numpy_dtype == values.numpy_dtype(number, "x"), dtype
        for shape in ([], [3], [2, 300], [0]):
            array = rng.integers(0, 2, shape).astype(dtype.as_numpy_dtype)
            for theirs in (tf.make_tensor_proto(array), tf.make_tensor_proto(array.ravel()[:1].tolist(), dtype, [1])):
                if not array.size and theirs.tensor_shape.dim[0].size:
                    continue
                ours = TensorProto.FromString(theirs.SerializeToString())
                np.testing.assert_array_equal(values.tensor_value(ours), tf.make_ndarray(theirs))
