"""Ideas: operators of newer opsets: deformed convolutions, spectra of windows, linear attention, optional values."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper

from tests.support.fuzz.control import body_of, own
from tests.support.fuzz.ideas import idea
from tests.support.fuzz.scope import Refused, Scope, Value


def _image(s: Scope) -> Value:
    return s.pick(lambda v: v.is_float and v.rank == 4 and v.sample.size > 0)


@idea(1)
def deformed(s: Scope) -> Value:
    """A DeformConv in groups, with and without masks; what lies beyond the border is zero."""
    if s.growth.opset < 19:
        raise Refused("opset")
    image = _image(s)
    batch, channels = image.shape[:2]
    kernel = [s.random.randint(1, 2) for _ in range(2)]
    group, offset_group = s.random.choice([1, channels]), s.random.choice([1, channels])
    pads, strides, dilations = ([s.random.randint(least, 2) for _ in range(2)] for least in (0, 1, 1))
    sizes = [
        (size + 2 * pad - dilation * (width - 1) - 1) // stride + 1
        for size, width, pad, stride, dilation in zip(image.shape[2:], kernel, pads, strides, dilations, strict=True)
    ]
    if min(sizes) < 1:
        raise Refused("too small")
    places = offset_group * kernel[0] * kernel[1]
    each = s.random.randint(1, 2)
    weight = s.like(image.dtype, (each * group, channels // group, *kernel))
    # Off the grid, on which an image of numbers on one has kinks.
    offset = s.one("Add", s.like(image.dtype, (batch, 2 * places, *sizes)), s.constant(0.3, image.dtype))
    bias = s.like(image.dtype, (each * group,)) if s.chance(0.4) else None
    mask = s.like(image.dtype, (batch, places, *sizes)) if s.chance(0.5) else None
    fields: dict[str, Any] = {"pads": [*pads, *pads], "strides": strides, "dilations": dilations}
    fields |= {"group": group, "offset_group": offset_group, "kernel_shape": kernel}
    return s.one("DeformConv", image, weight, offset, bias, mask, **fields)


@idea(1)
def spectra(s: Scope) -> Value:
    """An STFT, windowed or not, one-sided or not."""
    if s.growth.opset < 17:
        raise Refused("opset")
    signal = s.pick(lambda v: v.dtype in (np.float32, np.float64) and v.rank == 2 and v.sample.size > 0)
    length = s.random.randint(1, min(4, signal.shape[1]))
    frames = s.one("Unsqueeze", signal, s.ints([-1]))
    window = s.like(signal.dtype, (length,)) if s.chance(0.6) else None
    step, size = s.constant(s.random.randint(1, 2), np.int64), s.constant(length, np.int64)
    return s.one("STFT", frames, step, window, size, onesided=s.random.randint(0, 1))


@idea(0.5)
def mel_weights(s: Scope) -> Value:
    """Weights of mel bins."""
    if s.growth.opset < 17:
        raise Refused("opset")
    whole = [s.constant(number, np.int64) for number in (s.random.randint(2, 4), 16, 8000)]
    return s.one("MelWeightMatrix", *whole, s.constant(0, np.float32), s.constant(4000, np.float32))


@idea(1)
def linear_attention(s: Scope) -> list[Value]:
    """A LinearAttention and a convolution that is causal, each with the state that it leaves."""
    if s.growth.opset < 27 or s.growth.dtype == np.float16:
        raise Refused("opset")
    dtype, batch, steps, size = s.growth.dtype, s.random.randint(1, 2), s.random.randint(1, 4), 2
    if s.chance(0.5):
        value = s.like(dtype, (batch, size, steps))
        width = s.random.randint(2, 3)
        past = s.like(dtype, (batch, size, width - 1)) if s.chance(0.5) else None
        bias = s.like(dtype, (size,)) if s.chance(0.5) else None
        fields = {"activation": "silu"} if s.chance(0.5) else {}
        return s.emit("CausalConvWithState", [value, s.like(dtype, (size, 1, width)), bias, past], 2, **fields)
    heads = s.random.randint(1, 2)
    rule = s.random.choice(["linear", "gated", "delta", "gated_delta"])
    operands: list[Value | None] = [s.like(dtype, (batch, steps, heads * size)) for _ in range(3)]
    operands.append(s.like(dtype, (batch, heads, size, size)) if s.chance(0.5) else None)
    operands.append(s.like(dtype, (batch, steps, heads)) if "gated" in rule else None)
    operands.append(s.like(dtype, (batch, steps, heads)) if "delta" in rule else None)
    return s.emit("LinearAttention", operands, 2, q_num_heads=heads, kv_num_heads=heads, update_rule=rule)


@idea(0.7)
def optional_held(s: Scope) -> list[Value]:
    """A tensor that an Optional holds, asked for."""
    value = s.pick(lambda v: v.sample.size > 0)
    if s.growth.opset < 15:
        raise Refused("opset")
    held = s.emit("Optional", [value], known=[value.sample])[0]
    made = s.emit("OptionalHasElement", [held], known=[np.array(1, bool)])
    made += s.emit("OptionalGetElement", [held], known=[value.sample])
    s.drop(held)
    return made


@idea(0.7)
def optional_branches(s: Scope) -> list[Value]:
    """An If that makes an optional value, which holds something by one branch only; and one that reads it."""
    if s.growth.opset < 16 or s.growth.smooth:
        raise Refused("opset")
    value = s.pick(lambda v: v.is_float and v.sample.size > 0)
    total = s.one("ReduceSum", s.one("Abs", value), keepdims=0)
    condition = s.one("Greater", total, s.constant(s.random.choice([0, 3]), value.dtype))
    holds = bool(condition.sample)
    kind = helper.np_dtype_to_tensor_dtype(value.dtype)
    type_ = helper.make_tensor_type_proto(kind, [None] * value.rank)
    yes, no = body_of(s), body_of(s)
    inner = yes.one("Neg", value)
    full = yes.emit("Optional", [inner], known=[inner.sample])[0]
    empty = no.emit("Optional", [], known=[inner.sample], type=type_)[0]
    graphs = {
        name: helper.make_graph(
            body.nodes,
            body.growth.fresh("graph"),
            [],
            [helper.make_value_info(result.name, helper.make_optional_type_proto(type_))],
            body.initializers,
        )
        for name, body, result in (("then_branch", yes, full), ("else_branch", no, empty))
    }
    held = s.emit("If", [condition], known=[inner.sample], **graphs)[0]
    there = s.emit("OptionalHasElement", [held], known=[np.array(holds)])[0]
    taken, missing = body_of(s), body_of(s)
    got = taken.emit("OptionalGetElement", [held], known=[inner.sample])[0]
    other = own(missing, missing.like(value.dtype, value.shape))
    branches = {
        name: helper.make_graph(
            body.nodes,
            body.growth.fresh("graph"),
            [],
            [helper.make_tensor_value_info(result.name, kind, [None] * value.rank)],
            body.initializers,
        )
        for name, body, result in (("then_branch", taken, got), ("else_branch", missing, other))
    }
    read = s.emit("If", [there], known=[inner.sample if holds else other.sample], **branches)[0]
    s.drop(held)
    return [there, read]


@idea(0.7)
def ngrams(s: Scope) -> Value:
    """Counts of words and of pairs of them."""
    if s.growth.smooth:
        raise Refused("no derivative")
    value = s.pick(lambda v: v.dtype.kind == "i" and v.rank in (1, 2) and v.sample.size > 0)
    fields: dict[str, Any] = {"ngram_counts": [0, 3], "ngram_indexes": [0, 1, 2, 3, 4], "weights": [1.0, 2, 3, 4, 5]}
    fields |= {"pool_int64s": [0, 1, 2, 0, 1, 1, 2], "max_skip_count": s.random.randint(0, 1)}
    mode = s.random.choice(["TF", "IDF", "TFIDF"])
    return s.one("TfIdfVectorizer", value, mode=mode, min_gram_length=1, max_gram_length=2, **fields)


@idea(0.7)
def few_reductions(s: Scope) -> Value:
    """The least along axes, and the logarithm of a sum."""
    value = s.pick(lambda v: v.is_float and v.rank > 0 and v.sample.size > 0)
    axes = s.random.sample(range(value.rank), s.random.randint(1, value.rank))
    op = s.random.choice(["ReduceMin", "ReduceLogSum"])
    if op == "ReduceLogSum":
        value = s.one("Add", s.one("Abs", value), s.constant(0.5, value.dtype))
    if s.growth.opset < 18:
        return s.one(op, value, axes=axes, keepdims=s.random.randint(0, 1))
    return s.one(op, value, s.ints(axes), keepdims=s.random.randint(0, 1))
