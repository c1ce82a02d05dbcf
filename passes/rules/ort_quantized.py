"""Lowering of what onnxruntime's quantizers write: ONNX's own operators on integers, or on what integers stand for."""

from __future__ import annotations

from typing import Any

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr
from lstm_lower.opdef import DType, OpDef
from lstm_lower.ops import ort_quantized as ops
from lstm_lower.passes.rules.ort_arrays import attributes
from lstm_lower.passes.rules.ort_attention import attended
from lstm_lower.passes.rules.ort_fused import embedded
from lstm_lower.passes.rules.registry import Node, lowers


@lowers(ops.DynamicQuantizeMatMul)
def dynamic_quantize_mat_mul(n: Node, b: Builder) -> Expr:
    """The product of integers that onnxruntime's kernel makes."""
    quantized, scale, zero = b.ops(std.DynamicQuantizeLinear, n.A, outputs=3)
    product = b.op(std.MatMulInteger, quantized, n.B, zero, n.get("b_zero_point", None))
    return _scaled(n, product, scale * n.b_scale)


@lowers(ops.MatMulIntegerToFloat)
def mat_mul_integer_to_float(n: Node, b: Builder) -> Expr:
    """The product of integers, then the scale of both."""
    product = b.op(std.MatMulInteger, n.A, n.B, n.get("a_zero_point", None), n.get("b_zero_point", None))
    return _scaled(n, product, n.a_scale * n.b_scale)


def _scaled(n: Node, product: Expr, scale: Expr) -> Expr:
    y, bias = product.cast(scale.dtype) * scale, n.get("bias", None)
    return y if bias is None else y + bias


@lowers(ops.QuantizeLinear)
def quantize_linear(n: Node, b: Builder) -> Expr:
    """ONNX's operator."""
    return b.op(std.QuantizeLinear, n.x, n.y_scale, n.get("y_zero_point", None), **attributes(n))


@lowers(ops.DequantizeLinear)
def dequantize_linear(n: Node, b: Builder) -> Expr:
    """ONNX's operator."""
    return b.op(std.DequantizeLinear, n.x, n.x_scale, n.get("x_zero_point", None), **attributes(n))


@lowers(ops.QGemm)
def q_gemm(n: Node, b: Builder) -> Expr:
    """Of numbers; the bias has one scale with the product."""
    column = 0 if n.transB else 1
    weight = b.op(std.DequantizeLinear, n.B, n.b_scale, n.b_zero_point, axis=column)
    bias: Expr | None = n.get("C", None)
    if bias is not None:
        bias = bias.cast(DType.FLOAT) * (n.a_scale * n.b_scale * n.alpha)
    y = b.op(std.Gemm, _numbers(n, "A", "a"), weight, bias, **attributes(n))
    scale = n.get("y_scale", None)
    return y if scale is None else _quantized(y, scale, n.get("y_zero_point", None), n)


_BINARY: dict[type[OpDef], type[std.Standard]] = {ops.QLinearAdd: std.Add, ops.QLinearMul: std.Mul}


@lowers(*_BINARY)
def binary(n: Node, b: Builder) -> Expr:
    """Of numbers."""
    result = b.op(_BINARY[n.op], _numbers(n, "A", "A"), _numbers(n, "B", "B"))
    return _quantized(result, n.C_scale, n.get("C_zero_point", None), n)


_UNARY: dict[type[OpDef], type[std.Standard]] = {
    ops.QLinearAveragePool: std.AveragePool,
    ops.QLinearGlobalAveragePool: std.GlobalAveragePool,
    ops.QLinearLeakyRelu: std.LeakyRelu,
    ops.QLinearSigmoid: std.Sigmoid,
    ops.QLinearSoftmax: std.Softmax,
}
_LAYOUT = ("channels_last", "opset")


@lowers(*_UNARY)
def unary(n: Node, b: Builder) -> Expr:
    """Of numbers."""
    x = _numbers(n, "X", "X")
    given = {name: value for name, value in attributes(n).items() if name not in _LAYOUT}
    if n.op is ops.QLinearSoftmax and n.opset < 13 and n.axis not in (-1, len(x.shape or ()) - 1):
        raise n.unsupported("axis", "the last axis in versions before opset 13", n.axis)
    return _quantized(b.op(_UNARY[n.op], x, **given), n.Y_scale, n.get("Y_zero_point", None), n)


@lowers(ops.QLinearConcat)
def concat(n: Node, b: Builder) -> Expr:
    """Of numbers: each array has a scale of its own."""
    given = n.all_moved("inputs")
    each = [b.op(std.DequantizeLinear, *given[at : at + 3]) for at in range(0, len(given), 3)]
    return b.op(std.QuantizeLinear, b.concat(each, n.axis), n.Y_scale, n.Y_zero_point)


@lowers(ops.QLinearWhere)
def where(n: Node, b: Builder) -> Expr:
    """Of numbers."""
    chosen = b.op(std.Where, n.condition, _numbers(n, "X", "x"), _numbers(n, "Y", "y"))
    return b.op(std.QuantizeLinear, chosen, n.z_scale, n.z_zero_point)


@lowers(ops.QLinearConv)
def q_linear_conv(n: Node, b: Builder) -> Expr:
    """ONNX's operator."""
    names = ("x", "x_scale", "x_zero_point", "w", "w_scale", "w_zero_point", "y_scale", "y_zero_point")
    given: dict[str, Any] = {name: value for name, value in attributes(n).items() if name not in _LAYOUT}
    return b.op(std.QLinearConv, *(n.operand(name) for name in names), n.get("B", None), **given)


@lowers(ops.QAttention)
def q_attention(n: Node, b: Builder) -> list[Expr | None]:
    """Of numbers; the weight may have a scale for each column."""
    scale, zero = n.weight_scale, n.get("weight_zero_point", None)
    weight = b.op(std.DequantizeLinear, n.weight, scale, zero, axis=1)
    return attended(n, b, _numbers(n, "input", "input") @ weight + n.bias, "weight")


@lowers(ops.QEmbedLayerNormalization)
def q_embed_layer_normalization(n: Node, b: Builder) -> list[Expr]:
    """Of numbers."""
    without = n.get("segment_ids", None) is None
    kinds = None if without else _numbers(n, "segment_embedding", "segment_embedding")
    words, positions, gamma, beta = (
        _numbers(n, f"{name}_quant", name) for name in ("word_embedding", "position_embedding", "gamma", "beta")
    )
    return embedded(n, b, (words, positions, kinds), gamma, beta)[:2]


def _numbers(n: Node, name: str, prefix: str) -> Expr:
    """What integers stand for."""
    integers, zero = n.operand(name), n.get(f"{prefix}_zero_point", None)
    return integers.builder.op(std.DequantizeLinear, integers, n.operand(f"{prefix}_scale"), zero)


def _quantized(x: Expr, scale: Expr, zero: Expr | None, n: Node) -> Expr:
    """Integers of the result's dtype, which a zero point says."""
    zero = x.builder.constant(0, n.call.outputs[0].dtype or DType.UINT8) if zero is None else zero
    return x.builder.op(std.QuantizeLinear, x, scale, zero)
