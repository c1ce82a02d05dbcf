"""Attention, losses and quantization."""

from __future__ import annotations

from lstm_lower.graph.standard.base import Attribute, Operand, Optional, Standard, counted


class Attention(Standard): ...


class LinearAttention(Standard): ...


class CausalConvWithState(Standard): ...


class RotaryEmbedding(Standard): ...


class SoftmaxCrossEntropyLoss(Standard): ...


class NegativeLogLikelihoodLoss(Standard): ...


class QuantizeLinear(Standard): ...


class DequantizeLinear(Standard):
    data = Operand(0)
    scale = Operand(1)
    zero_point = Optional(2)
    block_size = Attribute("block_size", 0)

    @property
    def axis(self) -> int | None:
        """The axis that has a scale for each element, or for each block of them."""
        return counted(self.attribute("axis", 1), self.rank())


class DynamicQuantizeLinear(Standard): ...


class MatMulInteger(Standard): ...


class ConvInteger(Standard): ...


class QLinearMatMul(Standard): ...


class QLinearConv(Standard): ...
