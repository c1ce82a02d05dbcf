"""Lowering of what onnxruntime's optimizers fuse: layers with what stands around them, and compressed weights."""

from __future__ import annotations

from typing import Any

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr, concat
from lstm_lower.opdef import DType
from lstm_lower.ops import ort_fused as ops
from lstm_lower.passes.formulas.indices import from_front
from lstm_lower.passes.rules.ort_arrays import attributes
from lstm_lower.passes.rules.registry import Node, lowers, rank_of

# Activation -> the names of its parameters, in the order in which a convolution has them.
_ACTIVATIONS: dict[type[std.Standard], tuple[str, ...]] = {
    std.Elu: ("alpha",),
    std.HardSigmoid: ("alpha", "beta"),
    std.LeakyRelu: ("alpha",),
    std.Relu: (),
    std.Selu: ("alpha", "gamma"),
    std.Sigmoid: (),
    std.Softplus: (),
    std.Softsign: (),
    std.Tanh: (),
    std.ThresholdedRelu: ("alpha",),
}


_NAMED = {op.op_type: op for op in _ACTIVATIONS}


@lowers(ops.SkipLayerNormalization)
def skip_layer_normalization(n: Node, _: Builder) -> list[Expr]:
    """The sum leaves the op, too."""
    return _normalized(n, _added(n), n.gamma, n.get("beta", None))


@lowers(ops.SkipSimplifiedLayerNormalization)
def skip_simplified_layer_normalization(n: Node, _: Builder) -> list[Expr | None]:
    """Without the mean, which onnxruntime's kernels do not make either."""
    if n.used("mean"):
        raise n.unsupported("mean", "nothing that reads it", "a reader")
    total = _added(n)
    inverse = _inverse_root(total, n.epsilon)
    return [total * inverse * n.gamma, None, inverse, total]


def _added(n: Node) -> Expr:
    total: Expr = n.operand("input") + n.skip
    bias: Expr | None = n.get("bias", None)
    return total if bias is None else total + bias


def _inverse_root(x: Expr, epsilon: float) -> Expr:
    """The inverse of the root mean square of the last axis."""
    return x.builder.op(std.Reciprocal, ((x * x).reduce(std.ReduceMean, -1) + epsilon).sqrt())


def _normalized(n: Node, total: Expr, gamma: Expr, beta: Expr | None) -> list[Expr]:
    mean = total.reduce(std.ReduceMean, -1)
    center = total - mean
    inverse = _inverse_root(center, n.epsilon)
    y = center * inverse * gamma
    return [y if beta is None else y + beta, mean, inverse, total]


@lowers(ops.EmbedLayerNormalization)
def embed_layer_normalization(n: Node, b: Builder) -> list[Expr]:
    """Places count from zero without `position_ids`, and words of the mask are those whose entry is 1."""
    kinds = None if n.get("segment_ids", None) is None else n.segment_embedding
    return embedded(n, b, (n.word_embedding, n.position_embedding, kinds), n.gamma, n.beta)


def embedded(n: Node, b: Builder, tables: tuple[Expr, Expr, Expr | None], gamma: Expr, beta: Expr) -> list[Expr]:
    """The normalized sum of rows of tables, the number of words that count, the sum.

    Args:
        n: the node, with the indices.
        b: a builder.
        tables: of words, places and, where there are indices of them, segments.
        gamma: factors of what is normalized.
        beta: what is added to it.
    """
    words, positions, kinds = tables
    ids, mask = from_front(n.input_ids), n.get("mask", None)
    places, segments = n.get("position_ids", None), n.get("segment_ids", None)
    total = words.take(ids)
    total = total + (positions.slice(0, ids.size(1), axis=0) if places is None else positions.take(from_front(places)))
    if kinds is not None:
        total = total + kinds.take(from_front(segments))
    if mask is None:
        count = b.fill(0, [n.size("B")], DType.INT32)
    else:
        one = b.constant(1, DType.INT32)
        count = mask.equals(one).cast(DType.INT32).sum(1)
    return [_normalized(n, total, gamma, beta)[0], count, total]


@lowers(ops.FusedConv)
def fused_conv(n: Node, b: Builder) -> Expr:
    """The convolution, what is added to it, the activation."""
    y, other = b.op(std.Conv, n.X, n.W, n.get("B", None), **_of_layer(n)), n.get("Z", None)
    y = y if other is None else y + other
    values = n.activation_params
    if n.activation == std.Clip.op_type:
        low, high = (b.constant(value, y.dtype) for value in _as_many(n, 2))
        return b.op(std.Clip, y, low, high)
    if not n.activation:
        return y
    op = _NAMED[n.activation]
    names = _ACTIVATIONS[op] if values else ()
    return b.op(op, y, **dict(zip(names, _as_many(n, len(names)), strict=True)))


def _of_layer(n: Node) -> dict[str, Any]:
    """The attributes of the layer in front of the activation."""
    return {name: value for name, value in attributes(n).items() if not name.startswith("activation")}


def _as_many(n: Node, count: int) -> list[float]:
    values: list[float] = n.activation_params
    if len(values) != count:
        raise n.unsupported("activation_params", f"{count} numbers for {n.activation}", values)
    return values


@lowers(ops.FusedGemm)
def fused_gemm(n: Node, b: Builder) -> Expr:
    """The product, then the activation with the parameters that the node has."""
    given = attributes(n)
    y = b.op(std.Gemm, n.A, n.B, n.get("C", None), **_of_layer(n))
    if not n.activation:
        return y
    if n.activation not in _NAMED:
        raise n.unsupported("activation", f"one of {sorted(_NAMED)}", repr(n.activation))
    op = _NAMED[n.activation]
    named = {name: getattr(n, f"activation_{name}") for name in _ACTIVATIONS[op] if f"activation_{name}" in given}
    return b.op(op, y, **named)


@lowers(ops.MatMulNBits)
def mat_mul_n_bits(n: Node, _: Builder) -> Expr:
    """The weight is made anew in each run; a runtime folds it where it is a constant."""
    if n.get("g_idx", None) is not None:
        raise n.unsupported("g_idx", "no groups of its own", "some")
    dtype, count, packed = n.A.dtype, -(-n.K // n.block_size), n.get("zero_points", None)
    quantized = _numbers(n.moved("B"), n.bits, dtype, 2, n.block_size)
    if packed is None:
        zero: Expr | int = 2 ** (n.bits - 1)
    elif packed.dtype == DType.UINT8:
        rows = packed.reshape(n.N, -(-count * n.bits // 8))
        zero = _numbers(rows, n.bits, dtype, 1, count).unsqueeze(2)
    else:
        zero = packed.reshape(n.N, count, 1)
    blocks = (quantized - zero) * n.scales.reshape(n.N, count, 1)
    weight = blocks.reshape(n.N, count * n.block_size).slice(0, n.K, axis=1)
    y, bias = n.A @ weight.mT, n.get("bias", None)
    return y if bias is None else y + bias


@lowers(ops.GatherBlockQuantized)
def gather_block_quantized(n: Node, b: Builder) -> Expr:
    """Only the rows that are read are unpacked."""
    bytes_, count = n.call.sizes.get("L"), n.call.sizes.get("Q")
    if not isinstance(bytes_, int) or not isinstance(count, int):
        raise n.unsupported("data", "a table of known size", [bytes_, count])
    size, rank = bytes_ * 8 // n.bits, rank_of(n, "indices", n.indices)

    def rows(table: Expr) -> Expr:
        return table.take(n.indices)

    def spread(values: Expr) -> Expr:
        """One number of each block for all numbers of that."""
        wide = b.op(std.Expand, values.unsqueeze(-1), b.ints(*[1] * (rank + 1), n.block_size))
        return wide.reshape(*[0] * rank, count * n.block_size).slice(0, size, axis=-1)

    packed, dtype = n.get("zero_points", None), n.scales.dtype
    numbers = _numbers(rows(n.moved("data")), n.bits, dtype, rank, size)
    if packed is None:
        return (numbers - 2 ** (n.bits - 1)) * spread(rows(n.scales))
    points = spread(_numbers(rows(packed), n.bits, dtype, rank, count))
    return (numbers - points) * spread(rows(n.scales))


@lowers(ops.DynamicQuantizeLSTM)
def dynamic_quantize_lstm(n: Node, b: Builder) -> list[Expr]:
    """A layer of ONNX's own with the weights that the integers stand for."""

    def weight(name: str) -> Expr:
        scale, zero = (spread(f"{name}_{part}") for part in ("scale", "zero_point"))
        columns = (n.operand(name).cast(n.X.dtype) - zero) * scale
        return b.op(std.Transpose, columns, perm=[0, 2, 1])

    def spread(name: str) -> Expr:
        """`[D]` or `[D, 4*H]` for all rows."""
        value = n.operand(name).cast(n.X.dtype)
        return value.unsqueeze(1, 2) if rank_of(n, name, value) == 1 else value.unsqueeze(1)

    operands = [n.get(name, None) for name in ("B", "sequence_lens", "initial_h", "initial_c", "P")]
    return b.ops(std.LSTM, n.X, weight("W"), weight("R"), *operands, outputs=3, **attributes(n))


def _numbers(packed: Expr, bits: int, dtype: DType, axes: int, count: int) -> Expr:
    """The first `count` numbers in each row of bytes, the lowest bits first; rows stand along `axes` axes."""
    parts, rest = [], packed.cast(dtype)
    for _ in range(8 // bits - 1):
        # Floats hold bytes exactly, and all runtimes round them down.
        above = (rest / 2**bits).floor()
        parts.append((rest - above * 2**bits).unsqueeze(-1))
        rest = above
    every = concat([*parts, rest.unsqueeze(-1)], -1)
    return every.reshape(*[0] * axes, -1).slice(0, count, axis=-1)
