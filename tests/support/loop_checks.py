"""Running a model before and after the loop optimiser, and comparing."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
from onnx.reference import ReferenceEvaluator

from lstm_lower.passes.loops.forward import ForwardScansPass
from lstm_lower.passes.shapes import InferShapesPass


def run(model: onnx.ModelProto, feeds: dict[str, np.ndarray], *, optimised: bool = True) -> list[np.ndarray]:
    """Runs a model in onnxruntime, at its default optimisation level or at none."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    if not optimised:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    wanted = {x.name for x in session.get_inputs()}
    return session.run(None, {name: value for name, value in feeds.items() if name in wanted})


def run_reference(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Runs a model in onnx's reference evaluator, which walks forward along axis 0 only."""
    work = ir.from_proto(model)
    InferShapesPass()(work)
    ForwardScansPass()(work)
    wanted = {value.name for value in work.graph.inputs}
    evaluator = ReferenceEvaluator(ir.to_proto(work))
    return evaluator.run(None, {name: value for name, value in feeds.items() if name in wanted})


def assert_same(before: list[np.ndarray], after: list[np.ndarray], *, tolerance: float = 2e-5) -> None:
    """Compares results up to the rounding that regrouping costs."""
    assert len(before) == len(after)
    for left, right in zip(before, after, strict=True):
        assert left.shape == right.shape
        scale = 1.0 + float(np.abs(left).max(initial=0.0))
        np.testing.assert_allclose(right, left, rtol=0, atol=tolerance * scale)
