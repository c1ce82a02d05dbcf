"""Products, convolutions, poolings, normalizations, losses and images."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tests.support.fuzz.tf_programs.registry import idea
from tests.support.fuzz.tf_programs.scope import Scope, Value

raw, math, nn = tf.raw_ops, tf.math, tf.nn


def is_matrix(value: Value) -> bool:
    return value.rank > 1 and value.sample.size > 0


def is_image(value: Value) -> bool:
    return value.rank == 4 and value.sample.size > 0


def image(scope: Scope) -> Any:
    """A tensor [N, H, W, C] of a value, its sizes and the value."""
    x = scope.pick("float", lambda value: value.rank in {2, 3, 4} and value.sample.size > 2)
    # onnxruntime has no convolutions and means of windows in float64.
    tensor = x.tensor if scope.wide else tf.cast(x.tensor, "float32")
    match x.rank:
        case 4:
            return tensor, x.shape
        case 3:
            return tf.expand_dims(tensor, -1), (*x.shape, 1)
        case _:
            return tf.expand_dims(tf.expand_dims(tensor, 0), -1), (1, *x.shape, 1)


@idea(4)
def product(scope: Scope) -> None:
    x = scope.pick("float", is_matrix)
    draw = scope.draw
    turned, other = draw.random() < 1 / 3, draw.random() < 1 / 3
    inner = x.shape[-2] if turned else x.shape[-1]

    def suits(y: Value) -> bool:
        return is_matrix(y) and y.shape[-1 if other else -2] == inner and y.rank == 2

    y = scope.of_type(x, suits).tensor
    if x.rank == 2:
        scope.add(tf.matmul(x.tensor, y, transpose_a=turned, transpose_b=other) * 0.5)
    else:
        scope.add(tf.linalg.matmul(x.tensor, y, transpose_a=turned, adjoint_b=other) * 0.5)


@idea(2)
def with_weights(scope: Scope) -> None:
    x = scope.pick("float", lambda value: value.rank > 0 and value.sample.size > 0)
    units = scope.draw.randint(1, 4)
    w = scope.numbers(x, x.shape[-1], units, scale=0.5)
    scope.add(nn.bias_add(tf.tensordot(x.tensor, w, 1), scope.numbers(x, units)) if x.rank > 1 else
              tf.linalg.matvec(w, x.tensor, transpose_a=True))  # fmt: skip


@idea(2)
def einsum(scope: Scope) -> None:
    x = scope.pick("float", lambda value: value.rank in {2, 3} and value.sample.size > 0)
    letters = "abc"[: x.rank]
    y = scope.of_type(x, lambda o: o.rank == x.rank and o.shape[0] == x.shape[0] and o.sample.size > 0)
    second = "a" + "xyz"[: x.rank - 1]
    free = [*letters[1:], *second[1:]]
    kept = scope.draw.sample(free, scope.draw.randint(0, min(3, len(free))))
    batch = scope.draw.choice([["a"], []])
    scope.add(tf.einsum(f"{letters},{second}->{''.join([*batch, *kept])}", x.tensor, y.tensor) * 0.3)


@idea(1)
def self_attention(scope: Scope) -> None:
    x = scope.pick("float", lambda value: value.rank in {2, 3} and value.sample.size > 0)
    scores = tf.matmul(x.tensor, x.tensor, transpose_b=True)
    if scope.draw.random() < 1 / 2:
        scores = tf.where(tf.linalg.band_part(tf.ones_like(scores), -1, 0) > 0, scores, tf.ones_like(scores) * -1e9)
    scope.add(tf.matmul(nn.softmax(scores), x.tensor))


@idea(2)
def convolution(scope: Scope) -> None:
    x, shape = image(scope)
    draw = scope.draw
    size = [draw.randint(1, min(3, end)) for end in shape[1:3]]
    padding = draw.choice(["SAME", "VALID"])
    strides, dilations = draw.choice([(1, 1), (2, 1), (1, 2 if padding == "SAME" else 1), (1, 1)])
    units = draw.randint(1, 3)
    match draw.choice(["plain", "plain", "depthwise", "transposed", "one", "volume"]):
        case "plain":
            filters = scope.numbers(x, *size, shape[3], units, scale=0.5)
            pads = draw.choice([padding, padding, [[0, 0], [1, 0], [0, 2], [0, 0]]])
            scope.add(nn.conv2d(x, filters, strides, pads, dilations=dilations))
        case "depthwise":
            filters = scope.numbers(x, *size, shape[3], draw.randint(1, 2), scale=0.5)
            scope.add(nn.depthwise_conv2d(x, filters, [1, strides, strides, 1], padding, dilations=[dilations] * 2))
        case "transposed":
            filters = scope.numbers(x, *size, units, shape[3], scale=0.5)
            output = [
                s * strides if padding == "SAME" else (s - 1) * strides + k
                for s, k in zip(shape[1:3], size, strict=True)
            ]
            scope.add(nn.conv2d_transpose(x, filters, [shape[0], *output, units], strides, padding))
        case "one":
            sequence = tf.reshape(x, [shape[0], shape[1], shape[2] * shape[3]])
            filters = scope.numbers(x, size[0], shape[2] * shape[3], units, scale=0.4)
            scope.add(nn.conv1d(sequence, filters, strides, padding, dilations=dilations))
        case _:
            filters = scope.numbers(x, *size, 1, 1, units, scale=0.5)
            scope.add(nn.conv3d(tf.expand_dims(x, -1), filters, [1, strides, strides, 1, 1], padding))


@idea(2)
def pooling(scope: Scope) -> None:
    x, shape = image(scope)
    draw = scope.draw
    size = [draw.randint(1, min(3, end)) for end in shape[1:3]]
    strides = [draw.randint(1, 2), draw.randint(1, 2)]
    op = draw.choice([nn.max_pool2d, nn.avg_pool2d, nn.dilation2d, nn.erosion2d])
    padding = draw.choice(["SAME", "VALID"])
    if op in (nn.max_pool2d, nn.avg_pool2d):
        scope.add(op(x, size, strides, padding))
    else:
        filters, ones = scope.numbers(x, *size, shape[3], scale=0.5), [1, 1, 1, 1]
        scope.add(op(x, filters, [1, *strides, 1], padding, "NHWC", ones))


@idea(1)
def blocks(scope: Scope) -> None:
    x, shape = image(scope)
    draw = scope.draw
    match draw.choice(["depth", "batch", "channels", "patches", "volumes", "local"]):
        case "depth":
            scope.add(nn.space_to_depth(x, 2))
        case "channels":
            scope.add(nn.depth_to_space(x, 2))
        case "batch":
            scope.add(tf.space_to_batch(x, [2, 1], [[0, shape[1] % 2], [0, 0]]))
        case "patches":
            scope.add(
                tf.image.extract_patches(x, [1, 2, 2, 1], [1, 1, 2, 1], [1, 1, 1, 1], draw.choice(["SAME", "VALID"]))
            )
        case "volumes":
            volume = tf.expand_dims(x, 1)
            scope.add(tf.extract_volume_patches(volume, [1, 1, 2, 1, 1], [1, 1, 1, 2, 1], "SAME"))
        case _:
            scope.add(nn.lrn(x, draw.randint(1, 2), 1.2, 0.3, 0.6))


@idea(2)
def resized(scope: Scope) -> None:
    x, shape = image(scope)
    draw = scope.draw
    size = [draw.randint(1, end + 3) for end in shape[1:3]]
    v1 = tf.compat.v1.image
    match draw.choice(["v2", "v2", "v1", "crop", "flip", "boxes"]):
        case "v2":
            method = draw.choice(["bilinear", "nearest", "bicubic", "area", "lanczos3", "gaussian", "mitchellcubic"])
            scope.add(tf.image.resize(x, size, method, antialias=draw.random() < 1 / 3))
        case "v1":
            op = draw.choice([v1.resize_bilinear, v1.resize_nearest_neighbor, v1.resize_bicubic])
            corners = draw.random() < 1 / 2
            scope.add(op(x, size, align_corners=corners, half_pixel_centers=not corners and draw.random() < 1 / 2))
        case "crop":
            scope.add(tf.image.resize_with_crop_or_pad(x, *size))
        case "flip":
            scope.add(draw.choice([tf.image.flip_left_right, tf.image.rot90, tf.image.transpose])(x))
        case _:
            boxes = scope.numbers(x, 2, 4, scale=0.3)
            scope.add(
                tf.image.crop_and_resize(x, boxes, [0, shape[0] - 1], [2, 3], draw.choice(["bilinear", "nearest"]))
            )


@idea(2)
def normalized(scope: Scope) -> None:
    x = scope.pick("float", lambda value: value.rank > 0 and value.shape[-1] > 1)
    axis = scope.draw.randrange(-x.rank, x.rank)
    match scope.draw.choice(["softmax", "softmax", "log", "l2", "moments", "layer"]):
        case "softmax":
            scope.add(nn.softmax(x.tensor, axis))
        case "log":
            scope.add(nn.log_softmax(x.tensor, axis))
        case "l2":
            scope.add(math.l2_normalize(x.tensor, axis, 1e-3))
        case "moments":
            scope.add(*nn.moments(x.tensor, [axis % x.rank]))
        case _:
            mean, variance = nn.moments(x.tensor, [-1], keepdims=True)
            scale = scope.numbers(x, x.shape[-1])
            scope.add(nn.batch_normalization(x.tensor, mean, variance, scale, scale * 0.5, 1e-2))


@idea(1)
def batch_normalized(scope: Scope) -> None:
    x, shape = image(scope)
    if x.dtype != tf.float32 or scope.draw.random() < 1 / 4:
        mean, variance = nn.moments(x, [0, 1, 2])
        scope.add((x - mean) * math.rsqrt(variance + 0.1))
        return
    scale, offset = scope.numbers(x, shape[3]) + 1, scope.numbers(x, shape[3])
    if scope.draw.random() < 1 / 2:
        made = tf.compat.v1.nn.fused_batch_norm(x, scale, offset, epsilon=0.05)
    else:
        options = {"mean": offset * 0.3, "variance": scale * scale + 0.2, "is_training": False}
        made = tf.compat.v1.nn.fused_batch_norm(x, scale, offset, epsilon=0.05, **options)
    scope.add(made[0])


@idea(2)
def losses(scope: Scope) -> None:
    x = scope.pick("float", is_matrix)
    y = scope.like(x)
    draw = scope.draw
    logits, classes = x.tensor, x.shape[-1]
    labels = tf.constant([draw.randrange(classes) for _ in range(x.shape[0])], draw.choice(["int32", "int64"]))
    v1 = tf.compat.v1.losses
    match draw.choice(
        [
            "sparse",
            "soft",
            "sigmoid",
            "weighted",
            "huber",
            "log poisson",
            "l2",
            "cosine",
            "hinge",
            "ce",
            "pairs",
            "in top",
        ]
    ):
        case "sparse" if x.rank == 2:
            scope.add(nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        case "soft":
            scope.add(nn.softmax_cross_entropy_with_logits(nn.softmax(y.tensor), logits, axis=draw.choice([-1, 0])))
        case "sigmoid":
            scope.add(nn.sigmoid_cross_entropy_with_logits(tf.sigmoid(y.tensor), logits))
        case "weighted":
            scope.add(nn.weighted_cross_entropy_with_logits(tf.sigmoid(y.tensor), logits, 1.5))
        case "huber":
            scope.add(v1.huber_loss(y.tensor, logits, delta=0.7))
        case "log poisson":
            scope.add(nn.log_poisson_loss(tf.abs(y.tensor), logits * 0.1, compute_full_loss=draw.random() < 1 / 2))
        case "l2":
            scope.add(nn.l2_loss(logits))
        case "cosine":
            scope.add(
                v1.cosine_distance(math.l2_normalize(y.tensor, -1, 1e-3), math.l2_normalize(logits, -1, 1e-3), axis=-1)
            )
        case "hinge":
            scope.add(v1.hinge_loss(tf.cast(y.tensor > 0, y.tensor.dtype), logits))
        case "ce" if x.rank == 2:
            scope.add(v1.sparse_softmax_cross_entropy(labels, logits, weights=scope.draw.choice([1.0, 0.3])))
        case "pairs":
            scope.add(v1.mean_pairwise_squared_error(y.tensor, logits))
        case _ if x.rank == 2 and x.dtype == "float32" and not scope.wide:
            scope.add(math.in_top_k(labels, logits, 1))


@idea(1)
def solved(scope: Scope) -> None:
    x = scope.pick("float", lambda value: value.rank > 1 and value.shape[-1] == value.shape[-2] and value.shape[-1] > 0)
    size = x.shape[-1]
    good = tf.matmul(x.tensor, x.tensor, transpose_b=True) + 2 * tf.eye(size, dtype=x.tensor.dtype)
    match scope.draw.choice(["cholesky", "inverse", "solve", "determinant", "triangular"]):
        case "cholesky":
            scope.add(tf.linalg.cholesky(good))
        case "inverse":
            scope.add(tf.linalg.inv(good))
        case "solve":
            scope.add(tf.linalg.solve(good, x.tensor))
        case "determinant":
            scope.add(tf.linalg.logdet(good))
        case _:
            scope.add(tf.linalg.triangular_solve(good, x.tensor, lower=scope.draw.random() < 1 / 2))


@idea(1)
def ragged(scope: Scope) -> None:
    """Rows of different lengths, padded again, and sparse products."""
    x = scope.pick("float", lambda value: value.rank in {1, 2} and value.shape[0] > 1)
    size = x.shape[0]
    cut = scope.draw.randint(0, size)
    rows = tf.RaggedTensor.from_row_splits(x.tensor, tf.constant([0, cut, cut, size], "int64"))
    match scope.draw.choice(["pad", "sum", "map", "sparse", "product"]):
        case "pad":
            scope.add(rows.to_tensor())
        case "sum":
            scope.add(tf.reduce_sum(rows, 1))
        case "map":
            scope.add((rows * 2 + 1).to_tensor(0.5))
        case "sparse" if x.rank == 1:
            scope.add(tf.sparse.reduce_sum(rows.to_sparse(), 1))
        case _ if x.rank == 2:
            sparse = tf.sparse.from_dense(tf.reshape(x.tensor, [1, -1])[:, : x.shape[0]])
            scope.add(tf.sparse.sparse_dense_matmul(sparse, x.tensor))


@idea(1)
def drawn(scope: Scope) -> None:
    """Numbers without a state, as they are in TensorFlow."""
    x = scope.pick()
    if scope.wide or x.dtype != "float32":
        return
    seed = [scope.draw.randrange(99), 3]
    random = scope.draw.choice([tf.random.stateless_uniform, tf.random.stateless_normal])
    scope.add(x.tensor * random(tf.shape(x.tensor), seed))
