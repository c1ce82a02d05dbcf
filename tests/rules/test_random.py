"""Stateless random numbers: those of TensorFlow, integers and uniform ones bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import lstm_lower as ll
from lstm_lower.opdef import REGISTRY, Arranged, DType, TensorInfo

DOMAIN = "ai.onnx.converters.tensorflow"
SEEDS = [(0, 0), (1, 2), (-5, 7), (2**40 + 3, -(2**50))]
FLOATS = ["float32", "float16", "float64"]
# One of no number and one of more than a group of four words; some of a group and a part.
SHAPES = [(3, 5), (1, 1), (2, 2, 2), (0, 3), (257,)]


def model_of(dtype: str, opset: int, rank: int | None = None, op: str = "StatelessRandomUniformV2") -> onnx.ModelProto:
    """Numbers from a seed: of shape [3, 5], or of a shape of the given rank that comes at run time."""
    code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [
        helper.make_node("StatelessRandomGetKeyCounter", ["seed"], ["key", "counter"], domain=DOMAIN),
        helper.make_node("StatelessRandomGetAlg", [], ["alg"], domain=DOMAIN),
        helper.make_node(op, ["shape", "key", "counter", "alg"], ["numbers"], name="draw", domain=DOMAIN, dtype=code),
    ]
    inputs = [helper.make_tensor_value_info("seed", onnx.TensorProto.INT64, [2])]
    shape = helper.make_tensor("shape", onnx.TensorProto.INT32, [2], [3, 5])
    if rank is not None:
        inputs.append(helper.make_tensor_value_info("shape", onnx.TensorProto.INT32, [rank]))
    outputs = [helper.make_tensor_value_info("numbers", code, None)]
    graph = helper.make_graph(nodes, "random", inputs, outputs, [shape] if rank is None else [])
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


def run(model: onnx.ModelProto, feeds: dict[str, Any]) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feeds)[0]


def integers(op: str, dtype: str, **given: Any) -> Any:
    """What an op that takes a key and a counter is lowered to, run."""
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in given.items()
    ]
    code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    node = helper.make_node(op, list(given), ["y"], name="draw", domain=DOMAIN, dtype=code)
    graph = helper.make_graph([node], "one", inputs, [helper.make_tensor_value_info("y", code, None)])
    imports = [helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, 1)]
    model = ll.lower(helper.make_model(graph, opset_imports=imports, ir_version=9))
    onnx.checker.check_model(model, full_check=True)
    return run(model, given)


@pytest.mark.parametrize(
    ("word", "words"),
    [
        (0, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        (0xFFFFFFFF, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    ],
)
def test_philox_known_answers(word: int, words: list[int]) -> None:
    """The vectors of the paper's own test suite, Random123."""
    both = np.uint64(word << 32 | word)
    given = {"shape": np.array([4], np.int64), "key": np.array([both]), "counter": np.array([both, both])}
    alg = np.array(1, np.int32)
    assert integers("StatelessRandomUniformFullIntV2", "uint32", **given, alg=alg).tolist() == words


@pytest.mark.slow
@pytest.mark.parametrize(("opset", "symbolic"), [(18, False), (21, True)])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", ["StatelessRandomUniformV2", "StatelessRandomNormalV2"])
def test_numbers_are_those_of_tensorflow(op: str, dtype: str, opset: int, symbolic: bool) -> None:
    tf = pytest.importorskip("tensorflow")
    tolerance = {"float16": 2e-3, "float32": 2e-6, "float64": 1e-13}[dtype] if "Normal" in op else 0
    for shape in SHAPES if symbolic else SHAPES[:1]:
        model = ll.lower(model_of(dtype, opset, len(shape) if symbolic else None, op))
        onnx.checker.check_model(model, full_check=True)
        sizes = np.array(shape, np.int32)
        for seed in SEEDS:
            seeds = np.array(seed, np.int64)
            kernel = tf.raw_ops.StatelessRandomGetKeyCounter(seed=seeds)
            expected = getattr(tf.raw_ops, op)(shape=sizes, key=kernel.key, counter=kernel.counter, alg=1, dtype=dtype)
            numbers = run(model, {"seed": seeds} | ({"shape": sizes} if symbolic else {}))
            assert numbers.dtype == dtype
            assert numbers.shape == shape
            np.testing.assert_allclose(numbers, expected.numpy(), rtol=tolerance, atol=tolerance)


def test_older_opsets_are_refused() -> None:
    with pytest.raises(ll.UnsupportedOpError, match=r"'draw/BitwiseAnd': the operator requires opset 18"):
        ll.lower(model_of("float32", 17))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64"])
def test_integers(dtype: str) -> None:
    """Every number, or those between bounds: exactly TensorFlow's."""
    tf = pytest.importorskip("tensorflow")
    bounds = {"minval": np.array(-5, dtype), "maxval": np.array(1000, dtype)} if dtype.startswith("i") else {}
    alg = np.array(1, np.int32)
    for number, shape in enumerate(SHAPES):
        kernel = tf.raw_ops.StatelessRandomGetKeyCounter(seed=np.array(SEEDS[number % len(SEEDS)], np.int64))
        # A counter at its lower half's end carries into the upper half.
        for counter in (kernel.counter.numpy(), np.array([2**64 - 3, 5], np.uint64)):
            given = {"shape": np.array(shape, np.int64), "key": kernel.key.numpy(), "counter": counter, "alg": alg}
            expected = tf.raw_ops.StatelessRandomUniformFullIntV2(**given, dtype=dtype).numpy()
            np.testing.assert_array_equal(integers("StatelessRandomUniformFullIntV2", dtype, **given), expected)
            if bounds:  # TensorFlow's kernels for processors have no others
                expected = tf.raw_ops.StatelessRandomUniformIntV2(**given, **bounds).numpy()
                ours = integers("StatelessRandomUniformIntV2", dtype, **given, **bounds)
                np.testing.assert_array_equal(ours, expected)


def test_bounds_without_a_number_between_them_are_refused() -> None:
    call = {"shape": TensorInfo(DType.INT32, (1,)), "alg": TensorInfo(DType.INT32, ())}
    call |= {"key": TensorInfo(DType.UINT64, (1,)), "counter": TensorInfo(DType.UINT64, (2,))}
    bounds = {name: TensorInfo(DType.INT32, (), np.array(3)) for name in ("minval", "maxval")}
    definition = REGISTRY["StatelessRandomUniformIntV2"]
    message = "StatelessRandomUniformIntV2 'draw': maxval requires more than minval, 3, got 3"
    with pytest.raises(ll.InvalidModelError, match=message):
        definition.bind("draw", Arranged(call | bounds), {})
