"""Stateless random numbers: bit for bit those of TensorFlow."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import lstm_lower as ll
from lstm_lower.opdef import REGISTRY, Arranged, DType, TensorInfo
from lstm_lower.runtime.proof.oracles.random import key_and_counter, normal, philox, uniform
from lstm_lower.runtime.proof.oracles.registry import ORACLES

DOMAIN = "ai.onnx.converters.tensorflow"
SEEDS = [(0, 0), (1, 2), (-5, 7), (2**40 + 3, -(2**50))]


def model_of(dtype: int, opset: int, rank: int | None = None, op: str = "StatelessRandomUniformV2") -> onnx.ModelProto:
    """Numbers from a seed: of shape [3, 5], or of a shape of the given rank that comes at run time."""
    nodes = [
        helper.make_node("StatelessRandomGetKeyCounter", ["seed"], ["key", "counter"], domain=DOMAIN),
        helper.make_node("StatelessRandomGetAlg", [], ["alg"], domain=DOMAIN),
        helper.make_node(
            op, ["shape", "key", "counter", "alg"], ["numbers"],
            name="draw", domain=DOMAIN, dtype=dtype,
        ),
    ]  # fmt: skip
    inputs = [helper.make_tensor_value_info("seed", TensorProto.INT64, [2])]
    shape = helper.make_tensor("shape", TensorProto.INT32, [2], [3, 5])
    if rank is not None:
        inputs.append(helper.make_tensor_value_info("shape", TensorProto.INT32, [rank]))
    outputs = [helper.make_tensor_value_info("numbers", dtype, None)]
    graph = helper.make_graph(nodes, "random", inputs, outputs, [shape] if rank is None else [])
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


def run(model: onnx.ModelProto, feeds: dict[str, Any]) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feeds)[0]


def test_philox_known_answers() -> None:
    # The vectors of the paper's own test suite, Random123.
    ones = 0xFFFFFFFF
    zeros = [int(word) for word in philox([0, 0, 0, 0], [0, 0])]
    assert zeros == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    full = [int(word) for word in philox([ones] * 4, [ones] * 2)]
    assert full == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]


@pytest.mark.slow
@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("opset", [18, 21])
@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE])
@pytest.mark.parametrize("seed", SEEDS)
def test_lowered_equals_oracle(seed: tuple[int, int], dtype: int, opset: int, symbolic: bool) -> None:
    seeds = np.array(seed, np.int64)
    exact = key_and_counter(seed=seeds)
    for shape in [(3, 5)] if not symbolic else [(1, 1), (2, 2, 2), (0, 3), (257,)]:
        model = ll.lower(model_of(dtype, opset, len(shape) if symbolic else None))
        onnx.checker.check_model(model, full_check=True)
        sizes = np.array(shape, np.int32)
        feeds = {"seed": seeds} | ({"shape": sizes} if symbolic else {})
        expected = uniform(shape=sizes, **exact, dtype=dtype)["output"]
        numbers = run(model, feeds)
        assert numbers.shape == shape
        np.testing.assert_array_equal(numbers.astype(np.float64), expected)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_oracle_equals_tensorflow(seed: tuple[int, int], dtype: str) -> None:
    tf = pytest.importorskip("tensorflow")
    kernel = tf.raw_ops.StatelessRandomGetKeyCounter(seed=np.array(seed, np.int64))
    exact = key_and_counter(seed=np.array(seed, np.int64))
    np.testing.assert_array_equal(kernel.key.numpy(), exact["key"])
    np.testing.assert_array_equal(kernel.counter.numpy(), exact["counter"])
    # A counter at its lower half's end carries into the upper half.
    for counter in (exact["counter"], np.array([2**64 - 3, 5], np.uint64)):
        numbers = tf.raw_ops.StatelessRandomUniformV2(shape=[31], key=exact["key"], counter=counter, alg=1, dtype=dtype)
        code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        expected = uniform(shape=[31], key=exact["key"], counter=counter, dtype=code)["output"]
        np.testing.assert_array_equal(numbers.numpy().astype(np.float64), expected)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@pytest.mark.parametrize("seed", SEEDS)
def test_normal_numbers(seed: tuple[int, int], dtype: str, symbolic: bool) -> None:
    code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    exact = key_and_counter(seed=np.array(seed, np.int64))
    tolerance = {"float16": 2e-3, "float32": 2e-6, "float64": 1e-13}[dtype]
    for shape in [(3, 5)] if not symbolic else [(1, 1), (2, 2, 2), (0, 3), (257,)]:
        sizes = np.array(shape, np.int32)
        expected = normal(shape=sizes, **exact, dtype=code)["output"]
        model = ll.lower(model_of(code, 18, len(shape) if symbolic else None, "StatelessRandomNormalV2"))
        onnx.checker.check_model(model, full_check=True)
        numbers = run(model, {"seed": np.array(seed, np.int64)} | ({"shape": sizes} if symbolic else {}))
        assert numbers.dtype == dtype
        np.testing.assert_allclose(numbers, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_normal_oracle_equals_tensorflow(seed: tuple[int, int], dtype: str) -> None:
    tf = pytest.importorskip("tensorflow")
    exact = key_and_counter(seed=np.array(seed, np.int64))
    numbers = tf.raw_ops.StatelessRandomNormalV2(shape=[1001], **exact, alg=1, dtype=dtype).numpy()
    expected = normal(shape=[1001], **exact, dtype=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))["output"]
    tolerance = {"float16": 2e-3, "float32": 2e-6, "float64": 1e-13}[dtype]
    np.testing.assert_allclose(numbers, expected, rtol=tolerance, atol=tolerance)


def test_older_opsets_are_refused() -> None:
    with pytest.raises(ll.UnsupportedOpError, match=r"StatelessRandomUniformV2 'draw': the node requires opset 18"):
        ll.lower(model_of(TensorProto.FLOAT, 17))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64"])
@pytest.mark.parametrize("seed", SEEDS)
def test_integers(seed: tuple[int, int], dtype: str) -> None:
    """Every number, or those between bounds: exactly TensorFlow's."""
    code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    exact = key_and_counter(seed=np.array(seed, np.int64))
    bounds = {"minval": np.array(-5, dtype), "maxval": np.array(1000, dtype)} if dtype.startswith("i") else {}
    for shape in [(3, 5), (1,), (0, 2), (257,)]:
        sizes = np.array(shape, np.int64)
        calls = {"StatelessRandomUniformFullIntV2": {}} | ({"StatelessRandomUniformIntV2": bounds} if bounds else {})
        for op, operands in calls.items():
            expected = ORACLES[op](shape=sizes, **exact, **operands, dtype=code)["output"]
            given = {"shape": sizes, **exact, "alg": np.array(1, np.int32), **operands}
            inputs = [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
                for name, value in given.items()
            ]
            node = helper.make_node(op, list(given), ["y"], name="draw", domain=DOMAIN, dtype=code)
            graph = helper.make_graph([node], "one", inputs, [helper.make_tensor_value_info("y", code, None)])
            imports = [helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, 1)]
            model = ll.lower(helper.make_model(graph, opset_imports=imports, ir_version=9))
            onnx.checker.check_model(model, full_check=True)
            np.testing.assert_array_equal(run(model, given), expected)
            assert expected.dtype == dtype


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64"])
def test_integer_oracles_equal_tensorflow(dtype: str) -> None:
    tf = pytest.importorskip("tensorflow")
    code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    exact = key_and_counter(seed=np.array([3, -7], np.int64))
    full = tf.raw_ops.StatelessRandomUniformFullIntV2(shape=[101], **exact, alg=1, dtype=dtype)
    ours = ORACLES["StatelessRandomUniformFullIntV2"](shape=[101], **exact, dtype=code)["output"]
    np.testing.assert_array_equal(full.numpy(), ours)
    if dtype.startswith("i"):  # TensorFlow's CPU kernel has no others
        bounds = {"minval": np.array(-5, dtype), "maxval": np.array(1000, dtype)}
        kernel = tf.raw_ops.StatelessRandomUniformIntV2(shape=[101], **exact, alg=1, **bounds)
        ours = ORACLES["StatelessRandomUniformIntV2"](shape=[101], **exact, **bounds, dtype=code)["output"]
        np.testing.assert_array_equal(kernel.numpy(), ours)


def test_bounds_without_a_number_between_them_are_refused() -> None:
    call = {"shape": TensorInfo(DType.INT32, (1,)), "alg": TensorInfo(DType.INT32, ())}
    call |= {"key": TensorInfo(DType.UINT64, (1,)), "counter": TensorInfo(DType.UINT64, (2,))}
    bounds = {name: TensorInfo(DType.INT32, (), np.array(3)) for name in ("minval", "maxval")}
    definition = REGISTRY["StatelessRandomUniformIntV2"]
    message = "StatelessRandomUniformIntV2 'draw': maxval requires more than minval, 3, got 3"
    with pytest.raises(ll.InvalidModelError, match=message):
        definition.bind("draw", Arranged(call | bounds), {})
