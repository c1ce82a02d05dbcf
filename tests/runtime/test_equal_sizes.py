"""Sizes of data that share a name: a bundle's own graphs refuse other ones, in an onnxruntime with nothing of ours."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest

import lstm_lower as ll

OPTIMISERS = (ort.GraphOptimizationLevel.ORT_DISABLE_ALL, ort.GraphOptimizationLevel.ORT_ENABLE_ALL)

CLASSES = """<ir_version: 10, opset_import: ["" : 21]>
  g (float[N, 3] x) => (float[N, 4] y) <float[3, 4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}> { y = MatMul(x, w) }"""
# Two sizes that are shared, among data as well.
SEQUENCES = """<ir_version: 10, opset_import: ["" : 21]>
  g (float[N, T, 3] x, float[N] scale, int64[T, N] order) => (float[N, T, 4] y)
  <float[3, 4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, int64[2] axes = {1, 2}> {
    factor = Unsqueeze(scale, axes)
    turned = Transpose(order)
    last = Constant<value = int64[1] {2}>()
    numbers = Unsqueeze(turned, last)
    shift = CastLike(numbers, x)
    product = MatMul(x, w)
    scaled = Mul(product, factor)
    y = Add(scaled, shift)
  }"""


def _feeds(session: ort.InferenceSession, sizes: dict[str, int]) -> dict[str, np.ndarray]:
    """Ones of what a model takes; a size may be given by its name, or by its input and axis."""
    found = {}
    for value in session.get_inputs():
        named = [sizes.get(f"{value.name}.{axis}", sizes.get(dim, dim)) for axis, dim in enumerate(value.shape)]
        found[value.name] = np.ones(named, np.int64 if "int64" in value.type else np.float32)
    return found


def _check(
    folder: Path,
    files: tuple[str, ...],
    sizes: dict[str, int],
    refused: list[dict[str, int]],
    reason: str = "Split node",
) -> None:
    for file in files:
        for level in OPTIMISERS:
            options = ort.SessionOptions()
            options.graph_optimization_level, options.log_severity_level = level, 4
            session = ort.InferenceSession(folder / file, options)
            session.run(None, _feeds(session, sizes))
            taken = {value.name for value in session.get_inputs()}
            for other in refused:
                if not {place.partition(".")[0] for place in other} & taken:
                    continue
                with pytest.raises(Exception, match=reason):
                    session.run(None, _feeds(session, {**sizes, **other}))


@pytest.mark.parametrize("loss", ["cross_entropy", "mse"])
def test_rows_of_data_and_targets(tmp_path: Path, loss: str) -> None:
    ll.export_training(ll.from_onnx(onnx.parser.parse_model(CLASSES), loss, "sgd"), tmp_path)
    others = [{"target.0": size} for size in (1, 5, 9)]
    _check(tmp_path, ("train.onnx", "eval.onnx"), {"N": 8}, others)
    # Without targets there is nothing to compare.
    assert "Split" not in {node.op_type for node in onnx.load(tmp_path / "predict.onnx").graph.node}
    # What a model declares as a number, onnxruntime compares itself.
    _check(tmp_path, ("train.onnx", "eval.onnx", "predict.onnx"), {"N": 8}, [{"x.1": 2}], "Got invalid dimensions")


def test_several_names_and_data_among_themselves(tmp_path: Path) -> None:
    ll.export_training(ll.from_onnx(onnx.parser.parse_model(SEQUENCES), "mse", "sgd"), tmp_path)
    # As many elements, but the axes changed round.
    others = [{"target.0": 1}, {"target.1": 1}, {"target.0": 3, "target.1": 2}, {"scale.0": 1}, {"order.1": 1}]
    _check(tmp_path, ("train.onnx", "eval.onnx"), {"N": 2, "T": 3}, others)
    _check(tmp_path, ("predict.onnx",), {"N": 2, "T": 3}, [{"scale.0": 1}, {"order.0": 1, "order.1": 1}])


def test_comparisons_outlast_our_own_passes(tmp_path: Path) -> None:
    ll.export_training(ll.from_onnx(onnx.parser.parse_model(CLASSES), "mse", "sgd"), tmp_path)
    for change in (ll.lower, ll.optimize):
        onnx.save(change(onnx.load(tmp_path / "train.onnx")), tmp_path / "again.onnx")
        _check(tmp_path, ("again.onnx",), {"N": 8}, [{"target.0": 1}])


def test_models_are_not_compared_outside_bundles() -> None:
    """A name that a model uses for several sizes stays as it is until a step is made of it."""
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[N] x, float[N] y) => (float[N] z) { z = Add(x, y) }'
    )
    for changed in (ll.lower(model), ll.optimize(model)):
        session = ort.InferenceSession(changed.SerializeToString())
        feeds = {"x": np.ones(3, np.float32), "y": np.ones(1, np.float32)}
        np.testing.assert_array_equal(session.run(None, feeds)[0], [2, 2, 2])
