"""`replace_head`: a model for other classes. `split_head`: a model in two, before its last layer and behind."""

from __future__ import annotations

import os
import typing
from typing import Literal

import onnx
import onnx_ir as ir

from lstm_lower.passes.driver import in_the_same_form, transform
from lstm_lower.passes.gradient_preparation import preparing_passes
from lstm_lower.passes.malformed import Source
from lstm_lower.passes.training.cut_at_features import CutAtFeaturesPass
from lstm_lower.passes.training.new_head import NewHeadPass

# In the order in which they run.
_HALVES: tuple[Literal["features", "head"], ...] = ("features", "head")


@in_the_same_form
def replace_head(model: Source, classes: int | None, *, seed: int = 0) -> onnx.ModelProto | ir.Model:
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


@typing.overload
def split_head(
    model: str | os.PathLike[str] | onnx.ModelProto,
) -> tuple[onnx.ModelProto, onnx.ModelProto]: ...


@typing.overload
def split_head(model: ir.Model) -> tuple[ir.Model, ir.Model]: ...


def split_head(
    model: str | os.PathLike[str] | onnx.ModelProto | ir.Model,
) -> tuple[onnx.ModelProto | ir.Model, onnx.ModelProto | ir.Model]:
    """Cuts a model before its last layer, so that what is before it runs once over the data that the layer trains on.

    `features` of each sample are kept, `from_onnx(head, loss, optimizer)` trains on them, and `merge(model, trainer)`
    is the whole model with the trained layer.

    Args:
        model: a path, a protobuf or an onnx_ir model, such as one of `replace_head`. It is not changed. A product with
            a matrix makes its first output, plus a bias or not; Softmax, LogSoftmax or Sigmoid may follow.

    Returns:
        A model that makes the output `features` of the inputs, besides outputs that do not depend on the last layer,
        and one that makes the first output of an input `features`; both in the form for inference, without dropout.
        Protobufs for a path or a protobuf, onnx_ir models for an onnx_ir model. Weights keep their names.

    Raises:
        InvalidModelError: the model is malformed.
        InvalidInputError: the model has no output.
        UnsupportedOpError: something else makes the first output, others depend on it, or features are random.
    """
    features, head = (transform(model, [*preparing_passes(), CutAtFeaturesPass(half)]) for half in _HALVES)
    return features, head
