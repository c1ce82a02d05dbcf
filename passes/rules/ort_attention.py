"""Lowering of onnxruntime's fused attention: products of heads, masks, softmax."""

from __future__ import annotations

import math

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Builder, Expr, concat, detached, tanh
from lstm_lower.opdef import DType
from lstm_lower.ops import ort_attention as ops
from lstm_lower.passes.formulas.sizes import Size, up_to
from lstm_lower.passes.rules.registry import Node, lowers

# What no score is below: a masked key has no weight, and a query without keys the same for all.
_LOWEST = -3.4028234663852886e38


@lowers(ops.Attention)
def attention(n: Node, b: Builder) -> list[Expr | None]:
    """One product makes queries, keys and values."""
    bias = n.get("bias", None)
    _check_absent(n, "past_sequence_length")
    joined = n.operand("input") @ n.weights
    return attended(n, b, joined if bias is None else joined + bias, "weights")


def attended(n: Node, b: Builder, joined: Expr, weights: str) -> list[Expr | None]:
    """Attention of queries, keys and values that a product has made, with the keys and values of before.

    Args:
        n: the node, with the attributes of Attention.
        b: a builder.
        joined: all three beside each other.
        weights: name of the operand that made them.
    """
    sizes = n.get("qkv_hidden_sizes", None) or [_width(n, joined) // 3] * 3
    ends = [sum(sizes[: i + 1]) for i in range(3)]
    q, k, v = (
        _heads(n, weights, joined.slice(end - size, end, axis=2), n.num_heads, size)
        for size, end in zip(sizes, ends, strict=True)
    )
    past = n.get("past", None)
    if past is not None:
        k, v = (concat([past.slice(i, i + 1, axis=0).squeeze(0), new], 2) for i, new in enumerate((k, v)))
    output = _joined(_weights(n, b, q, k, n.get("mask_index", None)) @ v, sizes[2])
    return [output, b.concat([k.unsqueeze(0), v.unsqueeze(0)], 0) if n.used("present") else None]


@lowers(ops.MultiHeadAttention)
def multi_head_attention(n: Node, b: Builder) -> list[Expr]:
    """Keys and values of before come first."""
    _check_absent(n, "past_sequence_length", "cache_indirection")
    q, k, v = _three(n)
    past = n.get("past_key", None), n.get("past_value", None)
    k, v = (new if old is None else concat([old, new], 2) for old, new in zip(past, (k, v), strict=True))
    weights = _weights(n, b, q, k, n.get("key_padding_mask", None))
    return [_joined(weights @ v), k, v, weights]


def _three(n: Node) -> list[Expr]:
    """Queries, keys and values of all heads, [B, N, S, E] each, out of three, two or one operand."""
    query, key, value = n.query, n.get("key", None), n.get("value", None)
    bias: Expr | None = n.get("bias", None)
    if len(_shape(n, "query")) == 5:
        found = [_part(query, i) for i in range(3)]
    elif key is not None and len(_shape(n, "key")) == 5:
        found = [_split(n, "query", query), *(_part(key, i) for i in range(2))]
    elif key is None or value is None:
        raise n.unsupported("key", "keys and values, or a query that holds them", "none")
    else:
        found = [
            x if len(_shape(n, name)) == 4 else _split(n, name, x)
            for name, x in (("query", query), ("key", key), ("value", value))
        ]
    if bias is None:
        return found
    # Heads that came as such, those of cross attention, have had theirs.
    own = [len(_shape(n, name)) != 4 if n.get(name, None) is not None else True for name in ("query", "key", "value")]
    sizes = [n.num_heads * _width(n, x) for x in found]
    parts, start = [], 0
    for x, size, biased in zip(found, sizes, own, strict=True):
        added = bias.slice(start, start + size, axis=0).reshape(n.num_heads, 1, size // n.num_heads)
        parts.append(x + added if biased else x)
        start += size
    return parts


def _part(packed: Expr, index: int) -> Expr:
    """One of the operands that stand beside each other within a head, [B, S, N, 3, E]."""
    return packed.slice(index, index + 1, axis=3).squeeze(3).transpose(0, 2, 1, 3)


def _split(n: Node, name: str, x: Expr) -> Expr:
    return _heads(n, name, x, n.num_heads, _width(n, x, name))


def _shape(n: Node, name: str) -> tuple[object, ...]:
    shape = n.operand(name).shape
    if shape is None:
        raise n.unsupported(name, "a known rank", "none")
    return tuple(shape)


def _width(n: Node, x: Expr, name: str = "") -> int:
    """The size of the last axis, of which heads are made."""
    size = None if x.shape is None else x.shape[-1]
    if not isinstance(size, int):
        raise n.unsupported(name or n.op.inputs[0].name, "a known size of its last axis", size)
    return size


def _heads(n: Node, name: str, x: Expr, count: int, size: int) -> Expr:
    """The heads of an operand's rows, [B, N, S, E]."""
    if count < 1 or size % count:
        raise n.unsupported(name, "heads of one size", f"{size} for {count} of them")
    return x.reshape(0, 0, count, size // count).transpose(0, 2, 1, 3)


def _joined(x: Expr, size: int | None = None) -> Expr:
    """The rows of heads, [B, S, N * E]."""
    shape = x.shape
    assert shape is not None
    if size is None:
        heads, width = shape[1], shape[3]
        assert isinstance(heads, int)
        assert isinstance(width, int)
        size = heads * width
    return x.transpose(0, 2, 1, 3).reshape(0, 0, size)


def _check_absent(n: Node, *names: str) -> None:
    for name in names:
        if n.get(name, None) is not None:
            raise n.unsupported(name, "nothing", "an operand")


def _weights(n: Node, b: Builder, q: Expr, k: Expr, mask: Expr | None) -> Expr:
    """The weights of keys, [B, N, S, T]: where the mask is 0 a score has `mask_filter_value` added."""
    scores = _scores(n, q, k)
    if mask is not None:
        ends = [b.constant(value, scores.dtype) for value in (0, n.mask_filter_value)]
        scores = scores + b.where(_kept(n, b, mask, k), *ends)
    if n.unidirectional:
        # The last query sees the last key.
        before = _difference(k, q)
        scores = _causal(scores, up_to(b, q.size(2)).unsqueeze(1) + before, up_to(b, k.size(2)))
    return b.op(std.Softmax, scores, axis=-1)


def _scores(n: Node, q: Expr, k: Expr) -> Expr:
    """Products of queries and keys, times the scale, with what the node adds to them."""
    scale = n.scale or 1 / math.sqrt(_width(n, q))
    scores, added = (q * scale) @ k.transpose(0, 1, 3, 2), n.get("attention_bias", None)
    return scores if added is None else scores + added


def _difference(k: Expr, q: Expr) -> Expr:
    keys, queries = k.size(2), q.size(2)
    if isinstance(keys, int) and isinstance(queries, int):
        return k.builder.ints(keys - queries)
    b = k.builder
    return b.sizes([keys]) - b.sizes([queries])


def _causal(scores: Expr, queries: Expr, keys: Expr) -> Expr:
    """Keys behind a query have no weight."""
    return scores.builder.where(keys > queries, _LOWEST, scores)


def _kept(n: Node, b: Builder, mask: Expr, k: Expr) -> Expr:
    """Which keys count, [B, 1, 1 or S, T]: by a mask that is positive there, or by where each row of keys ends."""
    name = "key_padding_mask" if n.op is ops.MultiHeadAttention else "mask_index"
    rank = len(_shape(n, name))
    if rank in (2, 3):
        return (mask.unsqueeze(1, 2) if rank == 2 else mask.unsqueeze(1)) > 0
    batch, rows = (None if x.shape is None else x.shape[0] for x in (k, mask))
    twice = isinstance(batch, int) and rows == 2 * batch
    if rank == 1 and rows is not None and (rows == batch or twice):
        places = up_to(b, k.size(2))
        bounds = [x.cast(DType.INT64).unsqueeze(1, 2, 3) for x in (mask.split(2, axis=0) if twice else [mask])]
        kept = places < bounds[0]
        # Behind the ends stand the places where rows begin.
        return kept & ~(places < bounds[1]) if twice else kept
    got = f"{[rows]} for a batch of {'open size' if batch is None else batch}" if rank == 1 else f"{rank} axes"
    raise n.unsupported(name, "a mask of two or three axes, or as many numbers as the batch has rows, or twice", got)


@lowers(ops.GroupQueryAttention)
def group_query_attention(n: Node, b: Builder) -> list[Expr]:
    """Row b has `seqlens_k + 1` keys, of which the last are those of its queries; queries behind them are padding."""
    _check_absent(n, "position_ids", "head_sink", "k_scale", "v_scale", "q_norm_weight", "k_norm_weight")
    _check_absent(n, "query_seqlens")
    if n.num_heads % n.kv_num_heads:
        raise n.unsupported("attribute num_heads", f"a multiple of kv_num_heads = {n.kv_num_heads}", n.num_heads)
    if n.smooth_softmax > 0:
        raise n.unsupported("attribute smooth_softmax", "0", n.smooth_softmax)
    q, k, v = _grouped(n)
    size = _width(n, q)
    lengths = n.seqlens_k.reshape(-1, 1).cast(DType.INT64) + 1
    queries = b.sizes([q.size(2)])
    old = lengths - lengths.minimum(queries)
    places = old + up_to(b, q.size(2))
    if n.do_rotary:
        q, k = (_turned(x, _angles(n, places), size, interleaved=bool(n.rotary_interleaved)) for x in (q, k))
    past = n.get("past_key", None), n.get("past_value", None)
    if past[0] is not None and past[1] is not None:
        k, v = (_appended(n, b, before, new, old) for before, new in zip(past, (k, v), strict=True))
    shared = n.num_heads // n.kv_num_heads
    keys, values = (_repeated(x, shared, n.num_heads) for x in (k, v))
    if n.get("attention_bias", None) is not None and past[0] is not None:
        raise n.unsupported("attention_bias", "no keys of before", "some")
    scores = _scores(n, q, keys)
    if n.softcap:
        scores = tanh(scores / n.softcap) * n.softcap
    own, others = places.unsqueeze(1, 3), up_to(b, k.size(2))
    scores = _causal(scores, own, others)
    if n.local_window_size > 0:
        scores = b.where(others < own + (1 - n.local_window_size), _LOWEST, scores)
    output = _joined(b.op(std.Softmax, scores, axis=-1) @ values, n.num_heads * size)
    return [output, k, v]


def _grouped(n: Node) -> list[Expr]:
    """Queries, keys and values, [B, N or G, S, E]."""
    key, value, groups = n.get("key", None), n.get("value", None), n.kv_num_heads
    width = _width(n, n.query, "query")
    if key is not None and value is not None:
        others = (_heads(n, "key", x, groups, _width(n, x, "key")) for x in (key, value))
        return [_heads(n, "query", n.query, n.num_heads, width), *others]
    if width % (n.num_heads + 2 * groups):
        raise n.unsupported("query", "heads of one size", f"{width} for {n.num_heads + 2 * groups} of them")
    size = width // (n.num_heads + 2 * groups)
    bounds = [0, n.num_heads * size, (n.num_heads + groups) * size, width]
    counts = (n.num_heads, groups, groups)
    return [
        _heads(n, "query", n.query.slice(start, end, axis=2), count, end - start)
        for start, end, count in zip(bounds, bounds[1:], counts, strict=False)
    ]


def _repeated(x: Expr, times: int, heads: int) -> Expr:
    """Each head as often as queries share it."""
    if times == 1:
        return x
    b, size = x.builder, x.shape[3] if x.shape is not None else None
    assert isinstance(size, int)
    sizes: list[Size] = [1, 1, times, 1, 1]
    wide = b.op(std.Expand, x.unsqueeze(2), b.sizes(sizes))
    whole = b.sizes([x.size(0), heads, x.size(2), size])
    return b.op(std.Reshape, wide, whole)


def _appended(n: Node, b: Builder, before: Expr, new: Expr, old: Expr) -> Expr:
    """Keys behind those of before, of which row b has `old`, as many as the longest row or the buffer has."""
    total = n.total_sequence_length.reshape(1).cast(DType.INT64)
    count = total.maximum(b.sizes([before.size(2)]))
    joined = concat([before, new], 2)
    places = up_to(b, count)
    moved = places - old + b.sizes([before.size(2)])
    last = b.sizes([joined.size(2)]) - 1
    found = b.where(places < old, places, moved.minimum(last))
    # [B, T, G, E], so that each row gathers by its own numbers.
    rows = b.op(std.GatherND, joined.transpose(0, 2, 1, 3), found.unsqueeze(2), batch_dims=1)
    filled = (places < old + b.sizes([new.size(2)])).unsqueeze(1, 3)
    return b.where(filled, rows.transpose(0, 2, 1, 3), 0)


@lowers(ops.RotaryEmbedding)
def rotary_embedding(n: Node, b: Builder) -> Expr:
    """Places are given one by one, or count from one that is given."""
    x, places = n.operand("input"), n.position_ids
    rank = len(_shape(n, "input"))
    width = _width(n, x)
    known = n.cos_cache.shape
    half = known[1] if known is not None else None
    if not isinstance(half, int):
        raise n.unsupported("cos_cache", "a known number of angles", half)
    size = width if rank == 4 else width // n.num_heads if n.num_heads else 2 * half
    heads = x if rank == 4 else _heads(n, "input", x, width // size, width)
    if len(_shape(n, "position_ids")) == 1:
        places = (places + up_to(b, heads.size(2))).unsqueeze(0)
    y = _turned(heads, _angles(n, places), size, interleaved=bool(n.interleaved))
    return y if rank == 4 else _joined(y, width)


def _angles(n: Node, places: Expr) -> list[Expr]:
    """Cosines and sines at the places, [B, 1, S, F]; tables of a model are no weights."""
    tables = {name: n.operand(name) for name in ("cos_cache", "sin_cache")}
    fixed = (detached(x) if n.moved(name).value.is_initializer() else x for name, x in tables.items())
    return [x.take(places).unsqueeze(1) for x in fixed]


def _turned(x: Expr, angles: list[Expr], size: int, *, interleaved: bool) -> Expr:
    """Pairs turned: neighbours, or the first half of numbers with the second; what has no angle stays."""
    cosine, sine = angles
    half = cosine.shape[-1] if cosine.shape is not None else None
    assert isinstance(half, int)
    turning, rest = x.slice(0, 2 * half, axis=3), x.slice(2 * half, size, axis=3)
    if interleaved:
        pairs = turning.reshape(0, 0, 0, half, 2)
        a, c = (pairs.slice(i, i + 1, axis=4).squeeze(4) for i in range(2))
        parts = [(a * cosine - c * sine).unsqueeze(4), (a * sine + c * cosine).unsqueeze(4)]
        turned = concat(parts, 4).reshape(0, 0, 0, 2 * half)
    else:
        a, c = turning.slice(0, half, axis=3), turning.slice(half, 2 * half, axis=3)
        turned = concat([a * cosine - c * sine, a * sine + c * cosine], 3)
    return turned if 2 * half == size else concat([turned, rest], 3)
