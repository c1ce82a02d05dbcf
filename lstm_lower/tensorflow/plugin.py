"""What tf2onnx must be told so that it leaves our ops alone."""

from __future__ import annotations

from typing import Any

from lstm_lower import opdef
from lstm_lower.extras import needed_by
from lstm_lower.runtime.proof.oracles.registry import ORACLES

DOMAIN = opdef.DOMAIN


def custom_ops() -> dict[str, str]:
    """Op -> domain, for the ops defined in TensorFlow's name that tf2onnx does not convert well.

    It has no handler for most of them, and for the others one that loses an output, refuses valid operands, or computes
    in another dtype. Since files hold them as nodes, each has an oracle; the others are tf2onnx's own to convert.
    """
    ours = (op for op in opdef.REGISTRY.values() if op.domain == DOMAIN)
    return {op.op_type: DOMAIN for op in ours if op in ORACLES}


def tf2onnx_ops() -> dict[str, Any]:
    """The arguments that make any of tf2onnx's converters keep our ops as nodes.

    They are lowered afterwards::

        model, _ = tf2onnx.convert.from_keras(keras_model, **lstm_lower.tf2onnx_ops())
        lowered = lstm_lower.lower(model)

    `extra_opset` is among them: without it tf2onnx silently ignores `custom_ops`.

    Raises:
        MissingPackageError: tf2onnx is not installed.
    """
    with needed_by("tf2onnx_ops"):
        from tf2onnx import utils

    return {"custom_ops": custom_ops(), "extra_opset": [utils.make_opsetid(DOMAIN, 1)]}
