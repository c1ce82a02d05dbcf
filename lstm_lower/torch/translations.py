"""ATen operators that functions of PyTorch come down to, and that its exporter writes with a loss of digits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from onnxscript import opset18 as op


def _log_sigmoid(x: Any) -> Any:
    """The exporter takes the logarithm of a sigmoid, which may be 0."""
    return op.Neg(op.Softplus(op.Neg(x)))


TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.aten.log_sigmoid.default: _log_sigmoid,
    torch.ops.aten.log_sigmoid_forward.default: _log_sigmoid,
}
