"""Ops that draw anew in every run: what their numbers are like, since nobody can say which they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import lstm_lower as ll
from lstm_lower.opdef import DOMAIN, REGISTRY
from lstm_lower.ops.raw import RawOp

Array = np.ndarray[Any, Any]

COUNT = 200
OPSETS = [13, 18, 21]
DTYPES = [TensorProto.FLOAT16, TensorProto.FLOAT, TensorProto.DOUBLE]


def session_of(
    op: str, operands: dict[str, Array], opset: int = 18, names: tuple[str, ...] = ("a", "b"), **attributes: Any
) -> onnxruntime.InferenceSession:
    """A lowered model of a node for each name, on constants; outputs `a0`, `a1`, ..., `b0`, ..."""
    definition = REGISTRY[op]
    constants = [numpy_helper.from_array(value, name) for name, value in operands.items()]
    nodes, outputs = [], []
    for name in names:
        results = [f"{name}{number}" for number in range(len(definition.outputs))]
        nodes.append(helper.make_node(op, list(operands), results, name=name, domain=DOMAIN, **attributes))
        for result, declared in zip(results, definition.outputs, strict=True):
            dtype = attributes.get(declared.dtype) or _dtype(declared.dtype, operands)
            outputs.append(helper.make_tensor_value_info(result, dtype, None))
    graph = helper.make_graph(nodes, "draws", [], outputs, constants)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(DOMAIN, 1)]
    lowered = ll.lower(helper.make_model(graph, opset_imports=imports, ir_version=9))
    onnx.checker.check_model(lowered, full_check=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(lowered.SerializeToString(), options)


def _dtype(declared: str, operands: dict[str, Array]) -> int:
    known = {"int64": TensorProto.INT64, "int32": TensorProto.INT32, "float32": TensorProto.FLOAT}
    if declared in known:
        return int(known[declared])
    first = next(operands[name] for name in ("alpha", "value", "minval") if name in operands)
    return int(helper.np_dtype_to_tensor_dtype(first.dtype))


def apart(*draws: Array) -> None:
    """Draws that have nothing to do with each other."""
    for number, one in enumerate(draws):
        for other in draws[number + 1 :]:
            assert abs(np.corrcoef(one.ravel().astype(np.float64), other.ravel().astype(np.float64))[0, 1]) < 0.03


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("op", "mean", "deviation", "low", "high"),
    [
        ("RandomUniform", 0.5, 12**-0.5, 0, 1 - 2**-11),
        ("RandomStandardNormal", 0, 1, -7, 7),
        # The variance of a normal distribution cut off at two standard deviations is 0.7737.
        ("TruncatedNormal", 0, 0.7737**0.5, -2, 2),
    ],
)
def test_distributions(op: str, mean: float, deviation: float, low: float, high: float, dtype: int, opset: int) -> None:
    session = session_of(op, {"shape": np.array([COUNT, COUNT], np.int32)}, opset, dtype=dtype)
    (first, second), (again, _) = session.run(None, {}), session.run(None, {})
    high = 1 if op == "RandomUniform" and dtype != TensorProto.FLOAT16 else high
    for numbers in (first, second, again):
        assert numbers.dtype == helper.tensor_dtype_to_np_dtype(dtype)
        assert numbers.shape == (COUNT, COUNT)
        wide = numbers.astype(np.float64)
        assert abs(wide.mean() - mean) < 0.03 * deviation
        assert abs(wide.std() - deviation) < 0.03 * deviation
        assert low <= wide.min() <= wide.max() <= high
    apart(first, second, again)


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize(("low", "high"), [(-1, 3), (2**40, 2**40 + 4), (-(2**31), -(2**31) + 4)])
def test_integers(low: int, high: int, opset: int) -> None:
    operands = {"shape": np.array([COUNT, COUNT]), "minval": np.array(low), "maxval": np.array(high)}
    session = session_of("RandomUniformInt", operands, opset)
    (first, second), (again, _) = session.run(None, {}), session.run(None, {})
    for numbers in (first, second, again):
        values, counts = np.unique(numbers, return_counts=True)
        assert list(values) == list(range(low, high))
        assert abs(counts / COUNT**2 - 0.25).max() < 0.02
    apart(first - low, second - low, again - low)


@pytest.mark.parametrize("opset", OPSETS)
def test_orders(opset: int) -> None:
    rows = np.arange(2000).reshape(1000, 2)
    session = session_of("RandomShuffle", {"value": rows}, opset)
    (first, second), (again, _) = session.run(None, {}), session.run(None, {})
    for shuffled in (first, second, again):
        np.testing.assert_array_equal(np.sort(shuffled[:, 0]), rows[:, 0])
        np.testing.assert_array_equal(shuffled[:, 1], shuffled[:, 0] + 1)
    assert abs(np.corrcoef(first[:, 0], second[:, 0])[0, 1]) < 0.12
    assert abs(np.corrcoef(first[:, 0], again[:, 0])[0, 1]) < 0.12


@pytest.mark.parametrize("opset", OPSETS)
def test_classes_by_logarithms(opset: int) -> None:
    logits = np.log(np.array([[1, 2, 3, 4], [5, 5, 0.1, 1e-9]], np.float32))
    logits[1, 3] = -np.inf
    operands = {"logits": logits, "num_samples": np.array(COUNT**2, np.int32)}
    session = session_of("Multinomial", operands, opset, output_dtype=TensorProto.INT32)
    (first, second), (again, _) = session.run(None, {}), session.run(None, {})
    for drawn in (first, second, again):
        assert drawn.shape == (2, COUNT**2)
        for row, expected in zip(drawn, np.exp(logits), strict=True):
            found = np.bincount(row, minlength=4) / COUNT**2
            np.testing.assert_allclose(found, expected / expected.sum(), atol=0.012)
    apart(first[0], second[0], again[0])


@pytest.mark.slow
@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_gamma_numbers(dtype: str, opset: int) -> None:
    """Averages, variances and quantiles, these like those of numpy's generator."""
    alpha = np.array([[0.3, 0.9, 1], [2, 7.5, 50]], dtype)
    quantiles = [0.1, 0.5, 0.9]
    known = np.quantile(np.random.default_rng(2).standard_gamma(alpha.astype(np.float64), (10**5, 2, 3)), quantiles, 0)
    operands = {"shape": np.array([COUNT, COUNT]), "alpha": alpha}
    session = session_of("RandomGamma", operands, opset)
    (first, second), (again, _) = session.run(None, {}), session.run(None, {})
    for numbers in (first, second, again):
        assert numbers.shape == (COUNT, COUNT, 2, 3)
        assert numbers.dtype == dtype
        flat = numbers.reshape(-1, 2, 3).astype(np.float64)
        np.testing.assert_allclose(flat.mean(0), alpha, rtol=0.04)
        np.testing.assert_allclose(flat.var(0), alpha, rtol=0.06)
        np.testing.assert_allclose(np.quantile(flat, quantiles, 0), known, rtol=0.1, atol=1e-3)
    for place in np.ndindex(2, 3):
        apart(first[..., *place], second[..., *place], again[..., *place])


def test_equal_seeds_mean_equal_streams() -> None:
    operands = {"shape": np.array([COUNT], np.int32)}
    equal = session_of("RandomUniform", operands, dtype=TensorProto.FLOAT, seed=3, seed2=4).run(None, {})
    np.testing.assert_array_equal(equal[0], equal[1])
    other = session_of("RandomUniform", operands, dtype=TensorProto.FLOAT, seed=3, seed2=5).run(None, {})
    assert not np.array_equal(equal[0], other[0])


TRUE = np.array([[0, 3], [5, 1], [2, 4]])
CLASSES, SAMPLES, RUNS = 6, 4, 3000


@pytest.mark.slow
@pytest.mark.parametrize("unique", [True, False])
@pytest.mark.parametrize("op", ["UniformCandidateSampler", "LogUniformCandidateSampler"])
def test_candidates_are_like_those_of_tensorflow(op: str, unique: bool) -> None:
    """Of many runs: how often each class is among the samples, and how often that was expected."""
    tf = pytest.importorskip("tensorflow")
    attributes = {"num_true": 2, "num_sampled": SAMPLES, "unique": unique, "range_max": CLASSES}
    session = session_of(op, {"true_classes": TRUE}, 18, ("a",), **attributes)

    @tf.function
    def kernel() -> Any:
        return getattr(tf.raw_ops, op)(true_classes=TRUE, **attributes)

    results = []
    for run in (lambda: session.run(None, {}), lambda: [part.numpy() for part in kernel()]):
        samples, true, sampled = (np.stack(parts) for parts in zip(*[run() for _ in range(RUNS)], strict=True))
        assert samples.shape == sampled.shape == (RUNS, SAMPLES)
        assert samples.dtype == np.int64
        assert true.dtype == sampled.dtype == np.float32
        if unique:
            assert all(len(set(row)) == SAMPLES for row in samples)
        # Expected counts are those of the classes, in samples and true classes alike.
        everywhere = np.zeros((RUNS, CLASSES))
        np.put_along_axis(everywhere, np.broadcast_to(TRUE, true.shape).reshape(RUNS, -1), true.reshape(RUNS, -1), 1)
        np.testing.assert_allclose(np.take_along_axis(everywhere, samples, 1), sampled, rtol=1e-5)
        frequencies = np.stack([(samples == number).sum(1) for number in range(CLASSES)], 1).mean(0)
        results.append((frequencies, everywhere.mean(0), samples.mean(0)))
    (ours, expected, places), (theirs, expected_there, places_there) = results
    np.testing.assert_allclose(ours, theirs, atol=0.06)
    np.testing.assert_allclose(expected, expected_there, atol=0.03)
    # What is expected is what happens: of different samples only nearly, since the number of draws depends on them.
    np.testing.assert_allclose(ours, expected, atol=0.12 if unique else 0.06)
    # The first ones are the likeliest.
    np.testing.assert_allclose(places, places_there, atol=0.2)


def test_all_classes_at_once() -> None:
    """As many different samples as classes: drawn until the rarest has come."""
    attributes = {"num_true": 2, "num_sampled": 50, "unique": True, "range_max": 50}
    session = session_of("LogUniformCandidateSampler", {"true_classes": TRUE}, 18, ("a", "b"), **attributes)
    first = session.run(None, {})
    np.testing.assert_array_equal(np.sort(first[0]), np.arange(50))
    assert not np.array_equal(first[0], first[3])
    assert (first[1] > 0.999).all()
    assert not np.array_equal(first[0], session.run(None, {})[0])


def test_every_drawing_op_is_here() -> None:
    ours = {op.op_type for op in REGISTRY.values() if op.draws({}) and issubclass(op, RawOp)}
    assert ours == {
        "RandomUniform", "RandomStandardNormal", "TruncatedNormal", "RandomUniformInt", "RandomGamma", "RandomShuffle",
        "Multinomial",
        "UniformCandidateSampler", "LogUniformCandidateSampler",
    }  # fmt: skip


def test_more_different_samples_than_classes_are_refused() -> None:
    attributes = {"num_true": 2, "num_sampled": 7, "unique": True, "range_max": 6}
    with pytest.raises(ll.InvalidModelError, match="attribute num_sampled requires range_max, 6, or fewer different"):
        session_of("UniformCandidateSampler", {"true_classes": TRUE}, 18, ("a",), **attributes)
