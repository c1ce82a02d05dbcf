"""`replace_head`: a model for other classes."""

from __future__ import annotations

import os
import typing

import onnx
import onnx_ir as ir

from lstm_lower.passes.driver import transform
from lstm_lower.passes.gradient_preparation import preparing_passes
from lstm_lower.passes.training.new_head import NewHeadPass


@typing.overload
def replace_head(
    model: str | os.PathLike[str] | onnx.ModelProto, classes: int | None, *, seed: int = 0
) -> onnx.ModelProto: ...


@typing.overload
def replace_head(model: ir.Model, classes: int | None, *, seed: int = 0) -> ir.Model: ...


def replace_head(
    model: str | os.PathLike[str] | onnx.ModelProto | ir.Model, classes: int | None, *, seed: int = 0
) -> onnx.ModelProto | ir.Model:
    """Puts a new linear layer in place of a model's last one, for transfer learning.

    `from_onnx(replace_head(model, 5), loss, optimizer, trainable="head.*")` trains it alone.

    Args:
        model: a path, a protobuf or an onnx_ir model. It is not changed. A product with a matrix makes its first
            output, plus a bias or not; Softmax, LogSoftmax or Sigmoid may follow, and stay. One that is written out,
            exp(x) / sum(exp(x)), becomes the operator.
        classes: the size of the first output's last axis; `None` keeps it open until training starts, when it is given:
            `Trainer(step, sizes={"classes": 5})`, `load(bundle, { sizes: { classes: 5 } })` in JavaScript. The weights
            are inputs of the model until then.
        seed: of the new weights, `head.weight` `[features, classes]` and `head.bias`, drawn as PyTorch's Linear does.

    Returns:
        A protobuf for a path or a protobuf, an onnx_ir model for an onnx_ir model.

    Raises:
        InvalidModelError: the model is malformed.
        InvalidInputError: an argument does not fit the model.
        UnsupportedOpError: something else makes the first output, or others depend on it.
    """
    return transform(model, [*preparing_passes(), NewHeadPass(classes, seed)])
