"""Losses as blocks. Each takes the name of a prediction and the name of targets, which become an input of the model."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

from lstm_lower.errors import InvalidInputError
from lstm_lower.graph import standard as std
from lstm_lower.ort_training.onnxblock import blocks
from lstm_lower.ort_training.onnxblock.accessor import add_node, current
from lstm_lower.ort_training.onnxblock.blocks import Array, Block

_REDUCTIONS: dict[str, Callable[[], Block]] = {
    "mean": lambda: blocks.ReduceMean(keepdims=False),
    "sum": lambda: blocks.ReduceSum(keepdims=False),
}


def _check_reduction(loss: str, reduction: str) -> str:
    if reduction not in _REDUCTIONS:
        raise InvalidInputError(
            f"{loss}: reduction requires one of {sorted(_REDUCTIONS)}, of which gradients can be taken, got "
            f"{reduction!r}"
        )
    return reduction


def _is_read(name: str) -> bool:
    """Whether a node of the model reads or makes a value of this name."""
    nodes = current().model.graph.node
    return any(name in node.input or name in node.output for node in nodes)


class _Elementwise(Block):
    """A loss of each element of the prediction and the target in its place, reduced."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self._reduce = _REDUCTIONS[_check_reduction(type(self).__name__, reduction)]()

    def build(self, loss_input_name: str, target_name: str = "target") -> Any:
        """Adds the loss.

        Args:
            loss_input_name: the prediction.
            target_name: the targets; an input like the prediction unless the model has the name already.

        Returns:
            The loss's name.
        """
        if not _is_read(target_name):
            target_name = blocks.InputLike(loss_input_name)(target_name)
        return self._reduce(self.each(loss_input_name, target_name))

    @abc.abstractmethod
    def each(self, prediction: str, target: str) -> str:
        """Adds the loss of each element."""


class MSELoss(_Elementwise):
    """The squared error."""

    def each(self, prediction: str, target: str) -> str:
        return str(blocks.Pow(2.0)(blocks.Sub()(prediction, target)))


class L1Loss(_Elementwise):
    """The absolute error."""

    def each(self, prediction: str, target: str) -> str:
        return str(blocks.Abs()(blocks.Sub()(prediction, target)))


class BCEWithLogitsLoss(_Elementwise):
    """The binary cross entropy of logits.

    In terms of softplus, log(1 + exp(x)), so that large logits lose no digits: `-log(sigmoid(x))` is `softplus(-x)`.
    """

    def __init__(self, weight: Array | None = None, reduction: str = "mean", pos_weight: Array | None = None) -> None:
        """Makes the loss.

        Args:
            weight: factors of elements.
            reduction: `mean` or `sum`.
            pos_weight: factors of the targets.
        """
        super().__init__(reduction)
        self._weight, self._positive = weight, pos_weight

    def each(self, prediction: str, target: str) -> str:
        positive = blocks.Mul()(target, blocks.Softplus()(blocks.Neg()(prediction)))
        if self._positive is not None:
            positive = blocks.Mul()(positive, blocks.add_constant(self._positive, "bceloss.pos_weight"))
        one = blocks.add_constant(np.float32(1), "bceloss.one")
        negative = blocks.Mul()(blocks.Sub()(one, target), blocks.Softplus()(prediction))
        loss = blocks.Add()(positive, negative)
        if self._weight is not None:
            loss = blocks.Mul()(blocks.add_constant(self._weight, "bceloss.weight"), loss)
        return str(loss)


class CrossEntropyLoss(Block):
    """The cross entropy of scores and class numbers."""

    def __init__(self, weight: Array | None = None, reduction: str = "mean", ignore_index: int | None = None) -> None:
        """Makes the loss.

        Args:
            weight: factors of classes.
            reduction: `mean` or `sum`.
            ignore_index: a class number whose elements do not count.
        """
        super().__init__()
        self._attributes: dict[str, Any] = {"reduction": _check_reduction(type(self).__name__, reduction)}
        if ignore_index is not None:
            self._attributes["ignore_index"] = ignore_index
        self._weight = weight

    def build(self, scores_input_name: str, labels_name: str = "labels") -> str:
        """Adds the loss.

        Args:
            scores_input_name: scores; classes are axis 1, as in SoftmaxCrossEntropyLoss.
            labels_name: class numbers, int64; an input of the scores' shape without the last axis unless the model has
                the name already.

        Returns:
            The loss's name.
        """
        if not _is_read(labels_name):
            labels = onnx.ValueInfoProto()
            labels.CopyFrom(blocks.declaration(scores_input_name))
            labels.name = labels_name
            labels.type.tensor_type.elem_type = onnx.TensorProto.INT64
            del labels.type.tensor_type.shape.dim[-1]
            self.base.graph.input.append(labels)
        operands = [scores_input_name, labels_name]
        if self._weight is not None:
            operands.append(blocks.add_constant(self._weight, "celoss.weight"))
        return add_node(std.SoftmaxCrossEntropyLoss.op_type, operands, "loss", **self._attributes)
