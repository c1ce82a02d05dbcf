"""onnxruntime at its two levels, and onnx's reference evaluator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx.reference import ReferenceEvaluator

from lstm_lower.runtime.proof.reference_operators import Loop


def open_session(model: onnx.ModelProto, *, optimised: bool = False) -> Any:
    """Opens a model with onnxruntime's optimiser off or at its default level, on one thread."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    if not optimised:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    data = model.SerializeToString()
    # Wrong in themselves: the first keeps the factors that it joins with a product as float32, those of doubles too;
    # the second takes a size of 0 in a Reshape's target for one that is to be found out; the third takes a Dropout of
    # halves out from between casts that do not fit each other then; the fourth, an Expand to no elements.
    wrong = ["MatMulScaleFusion", "ReshapeFusion", "EliminateDropout", "ExpandElimination"]
    return ort.InferenceSession(
        data, options, providers=["CPUExecutionProvider"], enable_fallback=0, disabled_optimizers=wrong
    )


def run(model: onnx.ModelProto, feeds: Mapping[str, Any], *, optimised: bool = False) -> list[Any]:
    """All outputs: arrays, or lists of arrays for sequences."""
    return run_open(open_session(model, optimised=optimised), feeds)


def run_open(session: Any, feeds: Mapping[str, Any]) -> list[Any]:
    """Runs with those of the feeds that the model has inputs for."""
    wanted = {value.name for value in [*session.get_inputs(), *session.get_overridable_initializers()]}
    return session.run(None, {name: np.copy(value) for name, value in feeds.items() if name in wanted})


def evaluated(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> list[Any] | None:
    """What onnx's reference evaluator makes of a model; `None` where it does not come to an end."""
    try:
        with np.errstate(all="ignore"):
            return list(evaluator(model).run(None, {name: np.copy(value) for name, value in feeds.items()}))
    except Exception:  # noqa: BLE001 (it lacks forms of operators, and fails at some)
        return None


def evaluator(model: onnx.ModelProto) -> ReferenceEvaluator:
    """onnx's reference evaluator of a model, but for its Loop."""
    return ReferenceEvaluator(model, new_ops=[Loop])
