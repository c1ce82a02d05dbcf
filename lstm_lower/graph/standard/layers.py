"""Attention, losses and quantization."""

from __future__ import annotations

from lstm_lower.graph.standard.base import Attribute, Operand, Optional, Standard, counted


class Attention(Standard): ...


class LinearAttention(Standard): ...


class CausalConvWithState(Standard): ...


class RotaryEmbedding(Standard):
    cosines = Operand(1, "cosines of a rotary embedding")
    sines = Operand(2, "sines of a rotary embedding")


class ClassLoss(Standard, abstract=True):
    """A loss of scores and of class numbers, which are 0 .. C-1 or the one that is ignored."""

    labels = Operand(1)
    ignored: Attribute[int | None] = Attribute("ignore_index", None)


class SoftmaxCrossEntropyLoss(ClassLoss): ...


class NegativeLogLikelihoodLoss(ClassLoss): ...


_SCALES, _ZERO_POINTS = "scales of quantized numbers", "zero points of quantized numbers"


class QuantizeLinear(Standard):
    scale = Operand(1, _SCALES)
    zero_point = Optional(2, _ZERO_POINTS)


class DequantizeLinear(Standard):
    data = Operand(0)
    scale = Operand(1, _SCALES)
    zero_point = Optional(2, _ZERO_POINTS)
    block_size = Attribute("block_size", 0)

    @property
    def axis(self) -> int | None:
        """The axis that has a scale for each element, or for each block of them."""
        return counted(self.attribute("axis", 1), self.rank())


class DynamicQuantizeLinear(Standard): ...


class MatMulInteger(Standard): ...


class ConvInteger(Standard): ...


class QLinear(Standard, abstract=True):
    """Of quantized numbers, to quantized numbers."""

    a_scale = Operand(1, _SCALES)
    b_scale = Operand(4, _SCALES)
    y_scale = Operand(6, _SCALES)


class QLinearMatMul(QLinear): ...


class QLinearConv(QLinear): ...
