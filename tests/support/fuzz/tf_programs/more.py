"""What fewer programs have: state, spectra, colours, systems, sparse rows, counting, and functions with odd edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tests.support.fuzz.tf_programs.registry import idea
from tests.support.fuzz.tf_programs.scope import Scope, Value

raw, math, nn, linalg = tf.raw_ops, tf.math, tf.nn, tf.linalg


def filled(value: Value) -> bool:
    return value.rank > 0 and value.sample.size > 0


@idea(3)
def spectrum(scope: Scope) -> None:
    x = scope.pick("float", filled)
    draw, signal = scope.draw, tf.signal
    match draw.choice(["rfft", "round trip", "dct", "frame", "fft", "idct"]):
        case "rfft":
            scope.add(tf.abs(signal.rfft(x.tensor) + 0.3), math.real(signal.rfft(x.tensor, [x.shape[-1] + 1])))
        case "round trip":
            scope.add(
                signal.irfft(
                    signal.rfft(x.tensor) * tf.cast(0.5, "complex128" if x.tensor.dtype == tf.float64 else "complex64"),
                    [x.shape[-1]],
                )
            )
        case "dct":
            scope.add(signal.dct(x.tensor, type=draw.choice([2, 3]), norm=draw.choice([None, "ortho"])))
        case "idct":
            scope.add(signal.idct(x.tensor, norm="ortho"))
        case "frame":
            frames = signal.frame(x.tensor, 2, 1, pad_end=True)
            scope.add(frames, signal.overlap_and_add(frames, 1))
        case _:
            pair = tf.complex(x.tensor, 0.5 * x.tensor)
            made = draw.choice([signal.fft, signal.ifft])(pair)
            scope.add(math.real(made), math.imag(tf.math.conj(made) * pair))


@idea(2)
def system(scope: Scope) -> None:
    x = scope.pick("float", lambda value: value.rank > 1 and value.sample.size > 0)
    draw = scope.draw
    square = tf.matmul(x.tensor, x.tensor, transpose_a=True)
    good = square + 2 * tf.eye(x.shape[-1], dtype=square.dtype)
    match draw.choice(["norm", "expm", "normalize", "lstsq", "det", "power", "cholesky solve", "lu", "tri", "adjoint"]):
        case "norm":
            scope.add(linalg.norm(x.tensor, draw.choice([1, 2, np.inf, "euclidean"]), draw.choice([-1, 0])))
        case "expm":
            scope.add(linalg.expm(good * 0.1))
        case "normalize":
            scope.add(*linalg.normalize(x.tensor + 0.01, axis=-1))
        case "lstsq":
            scope.add(linalg.lstsq(good, tf.reduce_sum(square, -1, keepdims=True), l2_regularizer=0.1))
        case "det":
            scope.add(linalg.det(good * 0.3), linalg.slogdet(good)[1])
        case "power":
            scope.add(linalg.matvec(good, tf.reduce_sum(x.tensor, -2)))
        case "cholesky solve":
            scope.add(linalg.cholesky_solve(linalg.cholesky(good), square))
        case "tri":
            scope.add(linalg.tensor_diag_part(square) if x.rank == 2 else linalg.trace(square))
        case "adjoint":
            scope.add(linalg.adjoint(x.tensor) * 2)
        case _:
            scope.add(linalg.inv(good, adjoint=draw.random() < 1 / 2))


@idea(2)
def colours(scope: Scope) -> None:
    x = scope.pick("float", lambda value: value.rank > 2 and value.sample.size > 0)
    image = tf.sigmoid(tf.stack([x.tensor, x.tensor * 0.5 + 0.1, tf.sin(x.tensor)], -1))
    image = image if scope.wide else tf.cast(image, "float32")
    ops = tf.image
    match scope.draw.choice(["hsv", "gray", "contrast", "saturation", "standard", "gamma", "yiq", "variation", "ssim"]):
        case "hsv":
            scope.add(ops.rgb_to_hsv(image)[..., 1:])
        case "gray":
            scope.add(ops.rgb_to_grayscale(image))
        case "contrast":
            scope.add(ops.adjust_contrast(image, 1.3))
        case "saturation":
            scope.add(ops.adjust_saturation(tf.stop_gradient(image), 0.6))
        case "standard":
            scope.add(ops.per_image_standardization(image))
        case "gamma":
            scope.add(ops.adjust_gamma(image, 0.8))
        case "yiq":
            scope.add(ops.yiq_to_rgb(ops.rgb_to_yuv(image)))
        case "variation" if x.rank == 3:
            scope.add(ops.total_variation(image))
        case _:
            scope.add(*ops.image_gradients(image)) if x.rank == 3 else None


@idea(2)
def sparse_rows(scope: Scope) -> None:
    """Looking up and adding up lists of rows of different lengths."""
    x = scope.pick("float", lambda value: value.rank == 2 and value.sample.size > 0)
    draw = scope.draw
    rows = sorted({(draw.randrange(3), draw.randrange(3)) for _ in range(draw.randint(1, 4))})
    ids = tf.SparseTensor(rows, [draw.randrange(x.shape[0]) for _ in rows], [3, 3])
    table = x.tensor if x.handle is None else x.handle
    weights = None
    if draw.random() < 1 / 2:
        weights = tf.SparseTensor(rows, tf.cast(scope.numbers(x, len(rows)), x.tensor.dtype), [3, 3])
    if draw.random() < 1 / 4:
        array = tf.sparse.from_dense(x.tensor)
        scope.add(tf.sparse.to_dense(tf.sparse.slice(array, [0, 0], [2, 2])))
        scope.add(tf.sparse.to_dense(tf.sparse.concat(draw.choice([0, 1]), [array, array])))
        scope.add(tf.sparse.to_dense(tf.sparse.add(array, tf.sparse.from_dense(tf.sin(x.tensor)))))
        return
    combiner = draw.choice(["sum", "mean", "sqrtn"])
    if draw.random() < 1 / 2:
        scope.add(nn.safe_embedding_lookup_sparse(table, ids, weights, combiner=combiner))
    else:
        scope.add(nn.embedding_lookup_sparse(table, ids, weights, combiner=combiner))


@idea(1)
def connectionist(scope: Scope) -> None:
    x = scope.pick("float", lambda value: value.rank == 3 and value.shape[2] > 1 and value.sample.size > 0)
    draw = scope.draw
    if x.dtype != "float32" or scope.wide:
        return
    steps, batch, classes = x.shape
    labels = tf.constant([[draw.randrange(1, classes)] for _ in range(batch)], "int32")
    lengths = tf.fill([batch], steps)
    dense = draw.random() < 1 / 2
    given = labels if dense else tf.sparse.from_dense(labels)
    scope.add(nn.ctc_loss(given, x.tensor, tf.fill([batch], 1) if dense else None, lengths, blank_index=0))


@idea(2)
def searched(scope: Scope) -> None:
    x = scope.pick("float", filled)
    draw = scope.draw
    flat = tf.reshape(x.tensor, [-1])
    match draw.choice(["search", "histogram", "unique", "confusion", "mesh", "difference", "setdiff", "top", "invert"]):
        case "search":
            scope.add(tf.searchsorted(tf.sort(flat), flat * 0.9, side=draw.choice(["left", "right"])))
        case "histogram":
            scope.add(tf.histogram_fixed_width(flat, tf.cast([-2.0, 2.0], flat.dtype), 4))
        case "unique":
            scope.add(*tf.unique_with_counts(tf.cast(flat * 2, "int32")))
        case "confusion":
            classes = tf.cast(tf.abs(flat) * 2, "int32") % 3
            scope.add(math.confusion_matrix(classes, tf.reverse(classes, [0]), 3))
        case "mesh":
            scope.add(*tf.meshgrid(flat[:3], flat[:2], indexing=draw.choice(["ij", "xy"])))
        case "setdiff":
            whole = tf.cast(flat * 2, "int32")
            scope.add(*raw.ListDiff(x=whole, y=whole[:1]))
        case "top":
            values, places = (
                math.approx_max_k(flat, 1) if draw.random() < 1 / 9 else math.top_k(flat, tf.size(flat) // 2 + 1)
            )
            scope.add(values, places)
        case "invert":
            scope.add(math.invert_permutation(tf.argsort(flat, stable=True)))
        case _:
            scope.add(flat[1:] - flat[:-1])


@idea(3)
def edges(scope: Scope) -> None:
    """Functions at zero, at halves, at ties and at bounds."""
    x = scope.pick("float", filled)
    halves = tf.stop_gradient(tf.round(x.tensor * 2) / 2 - x.tensor) + x.tensor
    y = halves - 0.5
    axis = scope.draw.randrange(x.rank)
    table = {
        "round": lambda: tf.round(halves), "rint": lambda: math.rint(y), "abs": lambda: tf.abs(halves),
        "sign": lambda: tf.sign(halves), "relu": lambda: nn.relu(halves), "relu6": lambda: nn.relu6(halves * 6),
        "clip": lambda: tf.clip_by_value(halves, -0.5, 0.5), "max": lambda: tf.maximum(halves, 0.5),
        "min": lambda: tf.minimum(halves, tf.reverse(halves, [axis])), "top": lambda: tf.reduce_max(halves, axis),
        "arg": lambda: tf.argmax(halves, axis),
        "last": lambda: tf.argmin(halves, axis),
        "sort": lambda: tf.sort(halves, axis),
        "order": lambda: tf.argsort(halves, axis, stable=True),
        "mod": lambda: halves % 1.5,
        "floor": lambda: halves // 0.5,
        "negative mod": lambda: halves % -1.5, "product": lambda: tf.reduce_prod(halves, axis),
        "cumprod": lambda: math.cumprod(halves, axis),
        "square": lambda: math.pow(halves, 2.0),
        "cube": lambda: halves**3,
        "no nan": lambda: math.divide_no_nan(y, halves), "xlogy": lambda: math.xlogy(tf.abs(halves), tf.abs(halves)),
        "norm": lambda: math.reduce_euclidean_norm(halves, axis), "selu": lambda: nn.selu(halves),
        "elu": lambda: nn.elu(halves), "leaky": lambda: nn.leaky_relu(halves), "softsign": lambda: nn.softsign(halves),
        "segments": lambda: math.segment_max(halves, tf.zeros([x.shape[0]], "int32")),
        "top k": lambda: math.top_k(halves, x.shape[-1])[0],
        "places": lambda: math.top_k(halves, x.shape[-1])[1], "to integer": lambda: tf.cast(halves * 3, "int32"),
        "log sum": lambda: tf.reduce_logsumexp(halves * 90, axis), "softmax": lambda: nn.softmax(halves * 90, axis),
        "softplus": lambda: nn.softplus(halves * 60),
        "entropy": lambda: nn.sigmoid_cross_entropy_with_logits(tf.sigmoid(y), halves * 60),
        "quantized": lambda: tf.quantization.fake_quant_with_min_max_args(halves, -1, 1, 3),
        "atan2": lambda: tf.atan2(halves, tf.abs(y) + 0.5), "where": lambda: tf.where(halves > 0, halves, y),
        "saturated": lambda: tf.cast(tf.saturate_cast(halves * 200, scope.draw.choice(["uint8", "int8"])), "int32"),
        "wrapped": lambda: tf.cast(tf.cast(tf.cast(halves * 100, "int32"), "int8") * 3, "int32"),
        "pool": lambda: nn.max_pool2d(tf.reshape(halves, [1, x.shape[0], -1, 1]), 2, 1, "SAME"),
        "expm1": lambda: math.expm1(halves),
        "exact": lambda: tf.cast(halves == tf.reverse(halves, [axis]), "int32"),
        "sinc": lambda: tf.sin(halves) / (halves + 0.25),
        "variance": lambda: math.reduce_std(halves, axis),
    }  # fmt: skip
    made = table[scope.draw.choice(list(table))]()
    scope.add(made)


@idea(2)
def numbers_of_bits(scope: Scope) -> None:
    """Small integers, which wrap."""
    x = scope.pick("integer", filled)
    dtype = scope.draw.choice(["int8", "uint8", "int16", "uint16", "int32", "int64", "uint32"])
    y = tf.cast(x.tensor, dtype)
    z = tf.cast(x.tensor * 7 + 3, dtype)
    made = scope.draw.choice([lambda: y + z, lambda: y * z, lambda: y - z, lambda: tf.maximum(y, z),
                              lambda: y // (z | 1),
                              lambda: tf.bitwise.bitwise_xor(y, z), lambda: tf.bitwise.invert(y), lambda: y % (z | 1),
                              lambda: tf.bitwise.left_shift(y, tf.cast(tf.abs(x.tensor) % 3, dtype)),
                              lambda: tf.bitwise.right_shift(z, tf.cast(tf.abs(x.tensor) % 3, dtype))])()  # fmt: skip
    scope.add(tf.cast(made, "int32"), tf.reduce_sum(tf.cast(made, "int64"), 0))


@idea(1)
def batched(scope: Scope) -> None:
    """Products of batches that broadcast, and gathers by rows."""
    x = scope.pick("float", lambda value: value.rank > 2 and value.sample.size > 0)
    y = tf.reverse(x.tensor[:1], [-1])
    draw = scope.draw
    match draw.choice(["broadcast", "ellipsis", "gather", "tensordot"]):
        case "broadcast":
            scope.add(tf.matmul(x.tensor, y, transpose_b=True) * 0.3)
        case "ellipsis":
            scope.add(tf.einsum("...ij,...kj->...ik", x.tensor, y) * 0.3, tf.einsum("...i->...", x.tensor))
        case "gather":
            where = tf.zeros([x.shape[0], x.shape[1], 2], "int32")
            scope.add(tf.gather(x.tensor, where, axis=2, batch_dims=2))
        case _:
            scope.add(tf.tensordot(x.tensor, x.tensor, [[0, 1], [0, 1]]) * 0.2)


@idea(2)
def halves(scope: Scope) -> None:
    """A short way through 16 bits."""
    x = scope.pick("float", filled)
    if scope.wide:
        return
    y = tf.cast(tf.round(x.tensor * 8) / 8, scope.draw.choice(["float16", "float16", "bfloat16"]))
    made = scope.draw.choice([lambda: y + y, lambda: y * 2, lambda: nn.relu(y), lambda: tf.maximum(y, y[:1]),
                              lambda: -y,
                              lambda: tf.reshape(y, [-1]), lambda: tf.concat([y, y], 0),
                              lambda: tf.reduce_max(y, 0)])()  # fmt: skip
    scope.add(tf.cast(made, x.tensor.dtype))


@idea(1)
def checked(scope: Scope) -> None:
    """Assertions, scopes and orders that change nothing."""
    x = scope.pick("float", filled)
    with tf.name_scope("checked"), tf.control_dependencies([tf.debugging.assert_greater(tf.size(x.tensor), -1)]):
        made: Any = tf.identity_n([x.tensor, x.tensor * 2])
    scope.add(*made, tf.ensure_shape(x.tensor, [None] * x.rank))
