"""What tf2onnx must be told so that it leaves our ops alone."""

from __future__ import annotations

from typing import Any

from lstm_lower import opdef
from lstm_lower.extras import needed_by

DOMAIN = opdef.DOMAIN

# Ops of which tf2onnx loses an output, refuses valid operands, or computes in another dtype (1.17).
_CONVERTED_BADLY = frozenset({
    "Conv2DBackpropInput", "Conv3DBackpropInputV2", "CudnnRNN", "DynamicStitch", "FloorDiv", "FloorMod",
    "FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3", "LSTMBlockCell", "ParallelDynamicStitch", "ScatterNd",
    "SegmentMax", "SegmentMean", "SegmentMin", "SegmentProd", "SegmentSum", "Select", "SelectV2",
    "SoftmaxCrossEntropyWithLogits", "SparseSegmentMean", "SparseSegmentMeanWithNumSegments", "SparseSegmentSqrtN",
    "SparseSegmentSqrtNWithNumSegments", "SparseSegmentSum", "SparseSegmentSumWithNumSegments",
    "SparseSoftmaxCrossEntropyWithLogits", "UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentProd",
    "UnsortedSegmentSum",
})  # fmt: skip


def tf2onnx_ops() -> dict[str, Any]:
    """The arguments that make any of tf2onnx's converters keep those of our ops that it has no good handler for.

    They are lowered afterwards::

        model, _ = tf2onnx.convert.from_keras(keras_model, **lstm_lower.tf2onnx_ops())
        lowered = lstm_lower.lower(model)

    `extra_opset` is among them: without it tf2onnx silently ignores `custom_ops`.

    Raises:
        MissingPackageError: tf2onnx is not installed.
    """
    with needed_by("tf2onnx_ops"):
        from tf2onnx import convert, handler, utils  # noqa: F401 (handlers register themselves with `convert`)

    handled = {op for versions in handler.tf_op.get_opsets().values() for ops in versions for op in ops}
    ours = {op.op_type for op in opdef.REGISTRY.values() if op.domain == DOMAIN}
    kept = sorted(ours & _CONVERTED_BADLY | ours - handled)
    return {"custom_ops": dict.fromkeys(kept, DOMAIN), "extra_opset": [utils.make_opsetid(DOMAIN, 1)]}
