"""Matrix products, convolutions and layers."""

from __future__ import annotations

from lstm_lower.graph.standard.base import Attribute, Operand, Optional, Standard


class Product(Standard, abstract=True):
    """A product of matrices."""

    linear = (0, 1)
    a = Operand(0)
    b = Operand(1)


class MatMul(Product): ...


class Gemm(Product):
    """`alpha * a' @ b' + beta * c` of matrices."""

    c = Optional(2)
    alpha = Attribute("alpha", 1.0)
    beta = Attribute("beta", 1.0)
    trans_a = Attribute("transA", 0)
    trans_b = Attribute("transB", 0)


class Einsum(Standard): ...


class Recurrent(Standard, abstract=True):
    """ONNX's own recurrent layers: x `[T, B, I]`, or `[B, T, I]` where `layout` is 1."""

    x = Operand(0)
    layout = Attribute("layout", 0)


class LSTM(Recurrent): ...


class GRU(Recurrent): ...


class RNN(Recurrent): ...


class Conv(Standard): ...


class ConvTranspose(Standard): ...


class MaxPool(Standard): ...


class AveragePool(Standard): ...


class LpPool(Standard): ...


class BatchNormalization(Standard):
    training_mode = Attribute("training_mode", 0)


class GroupNormalization(Standard): ...


class InstanceNormalization(Standard): ...


class QuantizeLinear(Standard): ...


class DequantizeLinear(Standard): ...


class Resize(Standard): ...


class Upsample(Standard): ...


class RoiAlign(Standard): ...


class GridSample(Standard): ...


class AffineGrid(Standard): ...


class DFT(Standard): ...
