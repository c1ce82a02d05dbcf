"""Float64 oracles of onnxruntime's fused ops, row by row and head by head."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx.reference

from lstm_lower.ops import ort_attention, ort_fused
from lstm_lower.runtime.proof.oracles.numerics import Values, ints, sigmoid
from lstm_lower.runtime.proof.oracles.ort_ops import register_all
from lstm_lower.runtime.proof.oracles.recurrent_operators import LSTM

_ACTIVATIONS: dict[str, Callable[..., Any]] = {
    "": np.positive,
    "Clip": np.clip,
    "Elu": lambda x, alpha=1.0: np.where(x > 0, x, alpha * np.expm1(x)),
    "HardSigmoid": lambda x, alpha=0.2, beta=0.5: np.clip(alpha * x + beta, 0, 1),
    "LeakyRelu": lambda x, alpha=0.01: np.where(x > 0, x, alpha * x),
    "Relu": lambda x: np.maximum(x, 0),
    "Selu": lambda x, alpha=1.67326319217681884765625, gamma=1.05070102214813232421875: (
        gamma * np.where(x > 0, x, alpha * np.expm1(x))
    ),
    "Sigmoid": sigmoid,
    "Softplus": lambda x: np.logaddexp(x, 0),
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "Tanh": np.tanh,
    "ThresholdedRelu": lambda x, alpha=1.0: np.where(x > alpha, x, 0),
}


def _normalized(total: Values, gamma: Values, beta: Any, epsilon: float) -> tuple[Values, ...]:
    mean = np.mean(total, -1, keepdims=True)
    inverse = 1 / np.sqrt(np.var(total, -1, keepdims=True) + epsilon)
    return (total - mean) * inverse * gamma + beta, mean, inverse


def _skip(input: Values, skip: Values, gamma: Values, epsilon: float, beta: Any = 0.0, bias: Any = 0.0) -> Any:
    total = input + skip + bias
    return *_normalized(total, gamma, beta, epsilon), total


def _skip_simplified(input: Values, skip: Values, gamma: Values, epsilon: float, bias: Any = 0.0) -> Any:
    total = input + skip + bias
    inverse = 1 / np.sqrt(np.mean(total**2, -1, keepdims=True) + epsilon)
    return total * inverse * gamma, None, inverse, total


def _embedded(
    input_ids: Values,
    word_embedding: Values,
    position_embedding: Values,
    gamma: Values,
    beta: Values,
    epsilon: float,
    segment_ids: Values | None = None,
    segment_embedding: Values | None = None,
    mask: Values | None = None,
    position_ids: Values | None = None,
) -> Any:
    batch, steps = input_ids.shape
    total = np.zeros((batch, steps, len(gamma)))
    for row, step in np.ndindex(batch, steps):
        place = step if position_ids is None else int(np.broadcast_to(position_ids, (batch, steps))[row, step])
        total[row, step] = word_embedding[int(input_ids[row, step])] + position_embedding[place]
        if segment_ids is not None and segment_embedding is not None:
            total[row, step] += segment_embedding[int(segment_ids[row, step])]
    count = np.zeros(batch, np.int32) if mask is None else np.count_nonzero(mask == 1, axis=1).astype(np.int32)
    return _normalized(total, gamma, beta, epsilon)[0], count, total


def _convolved(X: Values, W: Values, activation: str, activation_params: Any, **given: Any) -> Values:
    operands = [X, W, *([given["B"]] if "B" in given else [])]
    kept = {k: v for k, v in given.items() if k not in ("B", "Z") and v not in ([], "NOTSET")}
    names = ["x", "w", "b"][: len(operands)]
    node = onnx.helper.make_node("Conv", names, ["y"], **kept)
    values = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.DOUBLE, None) for name in (*names, "y")]
    graph = onnx.helper.make_graph([node], "conv", values[:-1], values[-1:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)])
    (y,) = onnx.reference.ReferenceEvaluator(model).run(None, dict(zip(names, operands, strict=True)))
    return np.asarray(_ACTIVATIONS[activation](y + given.get("Z", 0.0), *activation_params))


def _gemm(
    A: Values, B: Values, alpha: float, beta: float, transA: int, transB: int, activation: str, **given: Any
) -> Any:
    y = alpha * ((A.T if transA else A) @ (B.T if transB else B)) + beta * given.get("C", 0.0)
    named = {name: given[f"activation_{name}"] for name in ("alpha", "beta", "gamma")}
    return _ACTIVATIONS[activation](y, **{name: value for name, value in named.items() if value})


def _bits(packed: Values, bits: int) -> list[int]:
    """The numbers in a row of bytes."""
    return [int(byte) >> shift & (1 << bits) - 1 for byte in packed for shift in range(0, 8, bits)]


def _quantized(A: Values, B: Values, scales: Values, K: int, N: int, block_size: int, bits: int, **given: Any) -> Any:
    zeros, weight = given.get("zero_points"), np.zeros((N, K))
    scales = scales.reshape(N, -1)
    for row in range(N):
        numbers = _bits(B[row].reshape(-1), bits)
        if zeros is None:
            points: list[float] = [2 ** (bits - 1)] * scales.shape[1]
        elif given["packed"]:
            points = [*_bits(zeros.reshape(N, -1)[row], bits)]
        else:
            points = [*zeros.reshape(N, -1)[row]]
        for k in range(K):
            block = k // block_size
            weight[row, k] = (numbers[k] - points[block]) * scales[row, block]
    return A @ weight.T + given.get("bias", 0.0)


def _mat_mul_n_bits(**given: Any) -> Values:
    zeros = given.get("zero_points")
    return np.asarray(_quantized(packed=zeros is not None and zeros.dtype == np.uint8, **given))


def _gathered(data: Values, indices: Values, scales: Values, bits: int, block_size: int, **given: Any) -> Values:
    zeros, size = given.get("zero_points"), data.shape[1] * 8 // bits
    table = np.zeros((len(data), size))
    for row, packed in enumerate(data):
        points = [2 ** (bits - 1)] * scales.shape[1] if zeros is None else _bits(zeros[row], bits)
        for place, number in enumerate(_bits(packed, bits)):
            block = place // block_size
            table[row, place] = (number - points[block]) * scales[row, block]
    return np.asarray(table[indices])


def _lstm(**given: Any) -> tuple[Any, ...]:
    """The layer that the evaluator has, of weights that are computed column by column."""
    names = {x.name for x in ort_fused.DynamicQuantizeLSTM.inputs}
    operands = {name: value for name, value in given.items() if name in names and value is not None}
    for name in ("W", "R"):
        stored, scale, zero = (operands.pop(f"{name}{part}") for part in ("", "_scale", "_zero_point"))
        operands[name] = np.zeros((len(stored), stored.shape[2], stored.shape[1]))
        for direction, column in np.ndindex(operands[name].shape[:2]):
            place = direction if scale.ndim == 1 else (direction, column)
            numbers = stored[direction, :, column].astype(np.float64) - float(zero[place])
            operands[name][direction, column] = numbers * scale[place]
    return tuple(LSTM.layer(operands, {name: value for name, value in given.items() if name not in names}))


register_all(
    {
        ort_fused.DynamicQuantizeLSTM: _lstm,
        ort_fused.GatherBlockQuantized: _gathered,
        ort_fused.SkipLayerNormalization: _skip,
        ort_fused.SkipSimplifiedLayerNormalization: _skip_simplified,
        ort_fused.EmbedLayerNormalization: _embedded,
        ort_fused.FusedConv: _convolved,
        ort_fused.FusedGemm: _gemm,
        ort_fused.MatMulNBits: _mat_mul_n_bits,
    }
)


def _attend(q: Values, k: Values, v: Values, scale: float, added: Callable[[int, int], float], cap: float = 0) -> Any:
    """What the queries of one head see, and the weights; `added` is minus infinity for a key that one may not see."""
    result, weights = np.zeros((len(q), v.shape[1])), np.zeros((len(q), len(k)))
    for s, query in enumerate(q):
        raw = np.array([query @ key * (scale or 1 / math.sqrt(len(query))) for key in k])
        raw = np.tanh(raw / cap) * cap if cap else raw
        scores = np.array([score + added(s, t) for t, score in enumerate(raw)])
        if np.all(np.isinf(scores)):
            scores = np.zeros(len(k))
        weights[s] = np.exp(scores - scores.max())
        weights[s] /= weights[s].sum()
        result[s] = weights[s] @ v
    return result, weights


def _masked(mask: Values | None, filtered: float, batch: int) -> Callable[[int, int, int], float]:
    """What is added to the score of a row's query and key."""

    def added(row: int, query: int, key: int) -> float:
        if mask is None:
            return 0.0
        if mask.ndim == 1:
            start = mask[batch + row] if len(mask) == 2 * batch else 0
            return 0.0 if start <= key < mask[row] else filtered
        return 0.0 if (mask[row, key] if mask.ndim == 2 else mask[row, query, key]) > 0 else filtered

    return added


def _many_heads(q: Values, k: Values, v: Values, mask: Values | None, bias: Values | None, given: Any) -> Any:
    """Attention of all heads, [B, N, S, E] each; the result and the weights."""
    batch, count, steps, _ = q.shape
    masked, before = _masked(mask, given["mask_filter_value"], batch), k.shape[2] - steps
    result, weights = np.zeros((batch, steps, count * v.shape[3])), np.zeros((batch, count, steps, k.shape[2]))
    whole = np.zeros_like(weights) + (0.0 if bias is None else bias)
    for row, head in np.ndindex(batch, count):

        def added(s: int, t: int, row: int = row, head: int = head) -> float:
            hidden = given["unidirectional"] and t > before + s
            return -math.inf if hidden else masked(row, s, t) + float(whole[row, head, s, t])

        found, weights[row, head] = _attend(q[row, head], k[row, head], v[row, head], given["scale"], added)
        result[row, :, head * v.shape[3] : (head + 1) * v.shape[3]] = found
    return result, weights


def _heads(x: Values, count: int) -> Values:
    return np.stack(np.split(x, count, axis=2), axis=1)


def _attention(input: Values, weights: Values, bias: Any = 0.0, **given: Any) -> Any:
    joined, sizes = input @ weights + bias, given["qkv_hidden_sizes"] or [weights.shape[1] // 3] * 3
    parts = np.split(joined, np.cumsum(sizes)[:2], axis=2)
    q, k, v = (_heads(part, given["num_heads"]) for part in parts)
    if "past" in given:
        k, v = (np.concatenate([old, new], 2) for old, new in zip(given["past"], (k, v), strict=True))
    result, _ = _many_heads(q, k, v, given.get("mask_index"), given.get("attention_bias"), given)
    return result, np.stack([k, v]) if k.shape == v.shape else None


def _multi_head(query: Values, num_heads: int, **given: Any) -> Any:
    key, value, bias = given.get("key"), given.get("value"), given.get("bias")
    if query.ndim == 5:
        q, k, v = (query[..., i, :].swapaxes(1, 2) for i in range(3))
    elif key is not None and key.ndim == 5:
        q, k, v = _heads(query, num_heads), *(key[..., i, :].swapaxes(1, 2) for i in range(2))
    else:
        q, k, v = (x if x.ndim == 4 else _heads(x, num_heads) for x in (query, given["key"], given["value"]))
    if bias is not None:
        sizes = [num_heads * x.shape[3] for x in (q, k, v)]
        parts = [part.reshape(num_heads, 1, -1) for part in np.split(bias, np.cumsum(sizes)[:2])]
        direct = (False, key is not None and key.ndim == 4, value is not None and value.ndim == 4)
        q, k, v = (x if came else x + part for x, part, came in zip((q, k, v), parts, direct, strict=True))
    for name, place in (("past_key", 1), ("past_value", 2)):
        if name in given:
            k, v = (np.concatenate([given[name], x], 2) if place == i else x for i, x in ((1, k), (2, v)))
    result, weights = _many_heads(q, k, v, given.get("key_padding_mask"), given.get("attention_bias"), given)
    return result, k, v, weights


def _turned(x: Values, places: Values, cosines: Values, sines: Values, *, interleaved: bool) -> Values:
    """Heads [S, E], each pair of numbers as one complex one."""
    half = cosines.shape[1]
    result = x.copy()
    first, second = (
        (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if interleaved else (slice(half), slice(half, 2 * half))
    )
    at = ints(places)
    turned = (x[:, first] + 1j * x[:, second]) * (cosines[at] + 1j * sines[at])
    result[:, first], result[:, second] = turned.real, turned.imag
    return result


def _rotary(input: Values, position_ids: Values, cos_cache: Values, sin_cache: Values, **given: Any) -> Values:
    count = given["num_heads"] or input.shape[-1] // (2 * cos_cache.shape[1])
    x = input if input.ndim == 4 else _heads(input, count)
    places = position_ids if position_ids.ndim == 2 else np.tile(position_ids + np.arange(x.shape[2]), (len(x), 1))
    turned = np.stack(
        [
            [_turned(head, places[row], cos_cache, sin_cache, interleaved=given["interleaved"]) for head in heads]
            for row, heads in enumerate(x)
        ]
    )
    return turned if input.ndim == 4 else turned.swapaxes(1, 2).reshape(input.shape)


def _grouped(query: Values, seqlens_k: Values, total_sequence_length: Values, **given: Any) -> Any:
    heads, groups = given["num_heads"], given["kv_num_heads"]
    if "key" in given:
        q, k, v = _heads(query, heads), _heads(given["key"], groups), _heads(given["value"], groups)
    else:
        every = _heads(query, heads + 2 * groups)
        q, k, v = np.split(every, [heads, heads + groups], axis=1)
    batch, _, steps, size = q.shape
    past = [given.get(name, np.zeros((batch, groups, 0, size))) for name in ("past_key", "past_value")]
    capacity = max(past[0].shape[2], int(total_sequence_length)) if "past_key" in given else steps
    present = np.zeros((2, batch, groups, capacity, size))
    output = np.zeros((batch, steps, heads * size))
    for row in range(batch):
        total = int(seqlens_k.reshape(-1)[row]) + 1
        old = total - min(total, steps)
        if given["do_rotary"]:
            tables = given["cos_cache"], given["sin_cache"]
            for x in (q[row], k[row]):
                for head in range(len(x)):
                    turned = _turned(x[head], old + np.arange(steps), *tables, interleaved=given["rotary_interleaved"])
                    x[head] = turned
        for side, new in enumerate((k, v)):
            present[side, row, :, :old] = past[side][row, :, :old]
            room = min(steps, capacity - old)
            present[side, row, :, old : old + room] = new[row][:, :room]
        for head in range(heads):

            def added(s: int, t: int, old: int = old, row: int = row, head: int = head) -> float:
                window = given["local_window_size"]
                hidden = t > old + s or (window > 0 and t <= old + s - window)
                bias = given.get("attention_bias")
                return (
                    -math.inf
                    if hidden
                    else 0.0
                    if bias is None
                    else float(np.broadcast_to(bias, (batch, heads, steps, capacity))[row, head, s, t])
                )

            keys, values = (present[side, row, head * groups // heads] for side in range(2))
            found, _ = _attend(q[row, head], keys, values, given["scale"], added, given["softcap"])
            output[row, :, head * size : (head + 1) * size] = found
    return output, *present


register_all(
    {
        ort_attention.Attention: _attention,
        ort_attention.MultiHeadAttention: _multi_head,
        ort_attention.GroupQueryAttention: _grouped,
        ort_attention.RotaryEmbedding: _rotary,
    }
)
