"""Definitions of what onnxruntime's quantizers write, and its optimizers fuse of that: integers that stand for numbers.

Signatures: onnxruntime's ContribOperators.md, version 1.32. Integers less a zero point, times a scale, are numbers;
without a zero point it is 0. `S` is any axes.
"""

from __future__ import annotations

from lstm_lower.opdef import Call, TensorInfo, attr, operand
from lstm_lower.ops.ort_elementwise import MicrosoftOp
from lstm_lower.ops.ort_layers import Window
from lstm_lower.ops.raw import FLOATS

_BYTES = ("int8", "uint8")


class DynamicQuantizeMatMul(MicrosoftOp):
    """A product of numbers, quantized by their own range, with a weight of integers."""

    class Types:
        T1 = FLOATS
        T2 = _BYTES

    class Inputs:
        A = operand(None, "T1")
        B = operand(None, "T2")
        b_scale = operand(None, "T1")
        b_zero_point = operand(None, "T2", optional=True)
        bias = operand("N", "T1", optional=True)

    class Outputs:
        Y = operand(None, "T1")


class MatMulIntegerToFloat(MicrosoftOp):
    """The numbers that a product of integers stands for."""

    class Types:
        T1 = _BYTES
        T2 = _BYTES
        T3 = FLOATS

    class Inputs:
        A = operand(None, "T1")
        B = operand(None, "T2")
        a_scale = operand(None, "T3")
        b_scale = operand(None, "T3")
        a_zero_point = operand(None, "T1", optional=True)
        b_zero_point = operand(None, "T2", optional=True)
        bias = operand("N", "T3", optional=True)

    class Outputs:
        Y = operand(None, "T3")


class QuantizeLinear(MicrosoftOp):
    """ONNX's operator, also for integers of 16 bits."""

    class Types:
        T1 = FLOATS
        T2 = (*_BYTES, "int16", "uint16")

    class Inputs:
        x = operand("*S", "T1")
        y_scale = operand(None, "T1")
        y_zero_point = operand(None, "T2", optional=True)

    class Outputs:
        y = operand("*S", "T2")

    class Attrs:
        axis = attr(int, 1)


class DequantizeLinear(MicrosoftOp):
    """ONNX's operator, also for integers of 16 bits."""

    class Types:
        T1 = (*_BYTES, "int16", "uint16", "int32")
        T2 = FLOATS

    class Inputs:
        x = operand("*S", "T1")
        x_scale = operand(None, "T2")
        x_zero_point = operand(None, "T1", optional=True)

    class Outputs:
        y = operand("*S", "T2")

    class Attrs:
        axis = attr(int, 1)


class QGemm(MicrosoftOp):
    """A Gemm of integers, of which `C` has the scale of the product; without `y_scale` the result is numbers."""

    class Types:
        TA = _BYTES
        TB = _BYTES
        T = ("float32",)
        TY = ("float32", *_BYTES)

    class Inputs:
        A = operand(None, "TA")
        a_scale = operand(None, "T")
        a_zero_point = operand(None, "TA")
        B = operand(None, "TB")
        b_scale = operand(None, "T")
        b_zero_point = operand(None, "TB")
        C = operand(None, "int32", optional=True)
        y_scale = operand(None, "T", optional=True)
        y_zero_point = operand(None, "TY", optional=True)

    class Outputs:
        Y = operand(None, "TY")

    class Attrs:
        alpha = attr(float, 1.0)
        transA = attr(int, 0)
        transB = attr(int, 0)


class _OfIntegers(MicrosoftOp, abstract=True):
    class Types:
        T = _BYTES


class _Binary(_OfIntegers, abstract=True):
    class Inputs:
        A = operand(None)
        A_scale = operand(None, "float32")
        A_zero_point = operand(None, optional=True)
        B = operand(None)
        B_scale = operand(None, "float32")
        B_zero_point = operand(None, optional=True)
        C_scale = operand(None, "float32")
        C_zero_point = operand(None, optional=True)

    class Outputs:
        C = operand(None)


class QLinearAdd(_Binary):
    """Sums."""


class QLinearMul(_Binary):
    """Products of elements."""


class _Unary(_OfIntegers, abstract=True):
    class Inputs:
        X = operand("*S")
        X_scale = operand(None, "float32")
        X_zero_point = operand(None, optional=True)
        Y_scale = operand(None, "float32")
        Y_zero_point = operand(None, optional=True)

    class Outputs:
        Y = operand("*S")


class QLinearSigmoid(_Unary):
    """The logistic function."""


class QLinearLeakyRelu(_Unary):
    """Negative numbers times `alpha`."""

    class Attrs:
        alpha = attr(float, 0.01)


class QLinearSoftmax(_Unary):
    """Softmax; `opset` says of which version of ONNX's operator."""

    class Attrs:
        axis = attr(int, -1)
        opset = attr(int)


class _Reduced(_OfIntegers, abstract=True):
    class Inputs:
        X = operand(None)
        X_scale = operand(None, "float32")
        X_zero_point = operand(None, optional=True)
        Y_scale = operand(None, "float32")
        Y_zero_point = operand(None, optional=True)

    class Outputs:
        Y = operand(None)


class QLinearGlobalAveragePool(_Reduced):
    """Means of images."""

    class Attrs:
        channels_last = attr(int, 0, choices=(0,))


class QLinearAveragePool(_Reduced):
    """Means of windows."""

    class Attrs(Window):
        ceil_mode = attr(int, 0)
        channels_last = attr(int, 0, choices=(0,))
        count_include_pad = attr(int, 0)


class QLinearConcat(_OfIntegers):
    """Arrays joined along an axis; of each there are the integers, the scale and the zero point."""

    class Types:
        T = (*_BYTES, "float32")
        TY = _BYTES

    class Inputs:
        Y_scale = operand(None, "float32")
        Y_zero_point = operand(None, "TY")
        inputs = operand(None, variadic=True, mixed=True)

    class Outputs:
        Y = operand(None, "TY")

    class Attrs:
        axis = attr(int)


class QLinearWhere(_OfIntegers):
    """Choices between elements."""

    class Inputs:
        condition = operand(None, "bool")
        X = operand(None)
        x_scale = operand(None, "float32")
        x_zero_point = operand(None)
        Y = operand(None)
        y_scale = operand(None, "float32")
        y_zero_point = operand(None)
        z_scale = operand(None, "float32")
        z_zero_point = operand(None)

    class Outputs:
        Z = operand(None)


class QLinearConv(_OfIntegers):
    """ONNX's operator."""

    class Types:
        T1 = _BYTES
        T2 = _BYTES
        T3 = _BYTES

    class Inputs:
        x = operand(None, "T1")
        x_scale = operand(None, "float32")
        x_zero_point = operand(None, "T1")
        w = operand(None, "T2")
        w_scale = operand(None, "float32")
        w_zero_point = operand(None, "T2")
        y_scale = operand(None, "float32")
        y_zero_point = operand(None, "T3")
        B = operand(None, "int32", optional=True)

    class Outputs:
        y = operand(None, "T3")

    class Attrs(Window):
        channels_last = attr(int, 0, choices=(0,))
        group = attr(int, 1)


class QAttention(MicrosoftOp):
    """Attention of numbers that integers stand for; B batch, S queries, P keys from before, N heads, E their size."""

    class Types:
        T1 = _BYTES
        T2 = _BYTES
        T3 = FLOATS
        T4 = ("int32",)

    class Inputs:
        input = operand("B S I", "T1")
        weight = operand("I W", "T2")
        bias = operand("W", "T3")
        input_scale = operand(None, "T3")
        weight_scale = operand(None, "T3")
        mask_index = operand(None, "T4", optional=True)
        input_zero_point = operand(None, "T1", optional=True)
        weight_zero_point = operand(None, "T2", optional=True)
        past = operand("2 B N P E", "T3", optional=True)

    class Outputs:
        output = operand(None, "T3")
        present = operand(None, "T3", optional=True)

    class Attrs:
        num_heads = attr(int)
        unidirectional = attr(int, 0)
        mask_filter_value = attr(float, -10000.0)
        scale = attr(float, 0.0)
        do_rotary = attr(int, 0, choices=(0,))
        past_present_share_buffer = attr(int, 0, choices=(0,))

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """A value's size is a third of what the product makes."""
        width, dtype = call.sizes.get("W"), call.types.get("T3")
        size = width // 3 if isinstance(width, int) else None
        return [TensorInfo(dtype, (call.sizes.get("B"), call.sizes.get("S"), size)), TensorInfo(dtype, None)]


class QEmbedLayerNormalization(MicrosoftOp):
    """Layer normalization of the sum of vectors that integers stand for; B batch, S places."""

    class Types:
        T1 = ("int32",)
        T2 = _BYTES
        T = ("float32",)

    class Inputs:
        input_ids = operand("B S", "T1", indexes="V")
        segment_ids = operand("B S", "T1", optional=True, indexes="G")
        word_embedding_quant = operand("V H", "T2")
        position_embedding_quant = operand("P H", "T2")
        segment_embedding = operand("G H", "T2", optional=True)
        gamma_quant = operand("H", "T2")
        beta_quant = operand("H", "T2")
        mask = operand("B S", "T1", optional=True)
        word_embedding_scale = operand(None, "T")
        position_embedding_scale = operand(None, "T")
        segment_embedding_scale = operand(None, "T", optional=True)
        gamma_scale = operand(None, "T")
        beta_scale = operand(None, "T")
        word_embedding_zero_point = operand(None, "T2")
        position_embedding_zero_point = operand(None, "T2")
        segment_embedding_zero_point = operand(None, "T2", optional=True)
        gamma_zero_point = operand(None, "T2")
        beta_zero_point = operand(None, "T2")

    class Outputs:
        layernorm_out = operand("B S H", "T")
        mask_index_out = operand("B", "T1")

    class Attrs:
        epsilon = attr(float, 1e-12)
