"""Small training steps with the layers and losses that surround recurrent ones.

Each is a function of TensorFlow over fixed feeds; its gradients are taken with respect to everything it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

Array = np.ndarray[Any, Any]
Loss = Callable[..., Any]

STEPS: dict[str, tuple[Loss, list[Array]]] = {}

# Steps whose other operands than the first are filters, which have known shapes in every graph.
FILTERED: set[str] = set()


def step(*shapes: Sequence[int], integers: Array | None = None, filters: bool = False) -> Callable[[Loss], Loss]:
    """Registers a loss of float32 operands of these shapes, and of one of integers behind them."""

    def register(loss: Loss) -> Loss:
        rng = np.random.default_rng(len(STEPS))
        operands = [rng.standard_normal(tuple(shape)).astype(np.float32) for shape in shapes]
        STEPS[loss.__name__] = (loss, operands + ([] if integers is None else [integers]))
        FILTERED.update([loss.__name__] if filters else [])
        return loss

    return register


def traced(name: str, *, open_batch: bool) -> tuple[Any, list[Array]]:
    """A step as a function with its loss and gradients, and its feeds."""
    loss, feeds = STEPS[name]
    opened = range(len(feeds) if name not in FILTERED else 1) if open_batch else range(0)
    specs = [
        tf.TensorSpec([None, *feed.shape[1:]] if number in opened and feed.ndim else feed.shape, feed.dtype)
        for number, feed in enumerate(feeds)
    ]

    @tf.function(input_signature=specs)
    def run(*operands: Any) -> dict[str, Any]:
        watched = [operand for operand in operands if operand.dtype.is_floating]
        with tf.GradientTape() as tape:
            tape.watch(watched)
            result = loss(*operands)
        gradients = tape.gradient(result, watched, unconnected_gradients="zero")
        return {"loss": result} | {f"grad{n}": tf.convert_to_tensor(g) for n, g in enumerate(gradients)}

    return run, feeds


def weigh(x: Any) -> Any:
    """A loss whose gradients differ from element to element."""
    flat = tf.reshape(x, [-1])
    return tf.reduce_sum(flat * tf.sin(tf.range(tf.cast(tf.size(flat), tf.float32)) + 1))


@step((4, 3), (3,))
def softplus_and_clip(x: Any, w: Any) -> Any:
    return weigh(tf.math.softplus(30 * x * w) + tf.clip_by_value(x, -0.5, 0.5) * x)


@step((4, 3), (4, 3))
def choice_hides_what_is_no_number(x: Any, y: Any) -> Any:
    return weigh(tf.where(x > 0, tf.math.log(x), y))


@step((5, 4))
def division_without_nan(x: Any) -> Any:
    positive = tf.nn.relu(x)
    return weigh(tf.math.divide_no_nan(x, positive) + tf.math.multiply_no_nan(x, positive))


@step((3, 5))
def running_sums_and_products(x: Any) -> Any:
    sums = tf.cumsum(x, 1, exclusive=True) + tf.cumsum(x, 0, reverse=True)
    return weigh(sums + tf.math.cumprod(x, 1) + tf.math.cumulative_logsumexp(x, 1))


@step((4, 6))
def log_softmax_and_top_k(x: Any) -> Any:
    return weigh(tf.nn.log_softmax(x)) + weigh(tf.math.top_k(x, 3).values ** 2)


@step((3, 4), integers=np.array([[0], [2], [0]], np.int32))
def scatter_with_duplicates(x: Any, places: Any) -> Any:
    return weigh(tf.scatter_nd(places, x, [4, 4]) ** 2)


@step((4, 5), integers=np.array([[0, 1], [3, 2], [0, 1]], np.int32))
def gather_of_elements_twice(x: Any, places: Any) -> Any:
    return weigh(tf.gather_nd(x, places) ** 2)


@step((4, 2), integers=np.array([0, -1, 2, 2], np.int32))
def segments_with_negative_numbers(x: Any, numbers: Any) -> Any:
    reductions = [tf.math.unsorted_segment_sum, tf.math.unsorted_segment_mean, tf.math.unsorted_segment_prod]
    return tf.add_n([weigh(reduce(x, numbers, 4) ** 2) for reduce in reductions])


@step((4, 2), integers=np.array([0, 0, 3, 3], np.int32))
def segments_without_rows(x: Any, numbers: Any) -> Any:
    extremes = weigh(tf.math.segment_max(x, numbers)) + weigh(tf.math.segment_min(x, numbers))
    return weigh(tf.math.segment_mean(x, numbers) ** 2 + tf.math.segment_sum(x, numbers)) + extremes


@step((6, 3), integers=np.array([5, 0, 5, 2], np.int32))
def combined_embeddings(table: Any, ids: Any) -> Any:
    owners = tf.constant([0, 0, 2, 2])
    means = tf.sparse.segment_mean(table, ids, owners) + tf.sparse.segment_sum(table, ids, owners)
    return weigh(means**2) + weigh(tf.sparse.segment_sqrt_n(table, ids, owners, num_segments=4) ** 2)


@step((4, 3))
def reductions(x: Any) -> Any:
    parts = [tf.reduce_min(x, 1), tf.reduce_max(x, 1), tf.reduce_prod(x, 1), tf.reduce_logsumexp(x, 1)]
    parts += [tf.math.reduce_std(x, 1), tf.math.reduce_euclidean_norm(x, 1)]
    return tf.add_n([weigh(part**2) for part in parts])


@step((4, 3))
def reductions_of_equal_numbers(x: Any) -> Any:
    x = x * 0 + tf.constant([[1.0, 2, 2]])
    return weigh(tf.reduce_max(x, 1) ** 2 + tf.reduce_min(-x, 1) ** 3) + weigh(tf.reduce_prod(x - 1, 1))


@step((5, 4), (4,), (4,))
def moments_and_batch_normalization(x: Any, scale: Any, offset: Any) -> Any:
    mean, variance = tf.nn.moments(x, [0])
    return weigh(tf.nn.batch_normalization(x, mean, variance, offset, scale, 1e-3) ** 2)


@step((3, 5), (5,), (5,))
def layer_normalization(x: Any, gamma: Any, beta: Any) -> Any:
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    return weigh(((x - mean) * tf.math.rsqrt(variance + 1e-3) * gamma + beta) ** 2)


@step((3, 4), (4,))
def clipped_norms(x: Any, y: Any) -> Any:
    (first, second), norm = tf.clip_by_global_norm([x, y], 1.0)
    return weigh(first) + weigh(second * y) + norm + weigh(tf.clip_by_norm(x, 0.5)) + tf.nn.l2_loss(x)


@step((4, 3), (4, 3))
def cross_entropies(x: Any, y: Any) -> Any:
    labels = tf.nn.softmax(y)
    weighted = tf.nn.weighted_cross_entropy_with_logits(labels, x, 2.0)
    divergence = tf.math.xlogy(labels, labels) - labels * tf.nn.log_softmax(x)
    return weigh(tf.nn.sigmoid_cross_entropy_with_logits(labels, x) + weighted + divergence)


@step((4, 3))
def accurate_near_zero(x: Any) -> Any:
    small = 1e-6 * x
    zero = tf.zeros_like(x)
    rest = tf.math.xdivy(zero, zero) + tf.math.xlog1py(zero, -1 - tf.abs(x))
    return 1e6 * weigh(tf.math.expm1(small) + tf.math.log1p(small) * x) + weigh(rest)


@step((2, 3, 4), (2, 5, 4), (2, 5, 4))
def attention(q: Any, k: Any, v: Any) -> Any:
    scores = tf.einsum("bqd,bkd->bqk", q, k) / 2.0
    mask = tf.linalg.band_part(tf.ones([3, 5]), -1, 0)
    return weigh(tf.einsum("bqk,bkd->bqd", tf.nn.softmax(tf.where(mask > 0, scores, -1e9)), v) ** 2)


@step((7, 4), integers=np.array([[1, 6, 1], [0, 0, 2]], np.int64))
def embedding(table: Any, ids: Any) -> Any:
    return weigh(tf.nn.embedding_lookup(table, ids) ** 2)


@step((4, 3))
def remainders_and_ranges(x: Any) -> Any:
    rows = tf.shape(x)[0]
    turned = tf.gather(x, tf.math.floormod(tf.range(rows) - 2, rows))
    halves = tf.cast(tf.math.floordiv(tf.range(rows) - 3, -2), tf.float32)
    steps = tf.linspace(tf.reduce_min(x), tf.reduce_max(x), 3)
    return weigh(turned**2 * halves[:, None] + steps + tf.math.floormod(x, 0.7))


@step((3,), (2, 2))
def diagonals(x: Any, y: Any) -> Any:
    placed = weigh(tf.linalg.tensor_diag(x) ** 2) + weigh(tf.linalg.tensor_diag(y) ** 2)
    return placed + weigh(tf.linalg.tensor_diag_part(tf.tensordot(y, y, 0)) ** 2)


@step((2, 3, 4))
def matrix_diagonals(x: Any) -> Any:
    return weigh(tf.linalg.diag_part(x) ** 2)


@step((4, 3))
def activations(x: Any) -> Any:
    functions = [
        tf.nn.gelu,
        tf.nn.silu,
        tf.nn.selu,
        tf.nn.elu,
        tf.nn.softsign,
        tf.nn.relu6,
        tf.nn.leaky_relu,
        tf.nn.crelu,
    ]
    return tf.add_n([weigh(function(3 * x)) for function in functions])


@step((5, 4), integers=np.array([1, 3, 0, 0, 2], np.int32))
def ordering(x: Any, labels: Any) -> Any:
    hits = tf.cast(tf.math.in_top_k(labels, x, 2), tf.float32)
    values, places = tf.raw_ops.UniqueV2(x=labels, axis=[0])
    kinds = tf.cast(places + tf.gather(values, places), tf.float32)
    return weigh(tf.sort(x, 1) * (hits + kinds)[:, None])


@step((2, 9, 3), (3, 3, 4), filters=True)
def convolution_of_sequences(x: Any, w: Any) -> Any:
    same = tf.nn.conv1d(x, w, 1, "SAME")
    return weigh(same**2) + weigh(tf.nn.conv1d(x, w, 2, "VALID")) + weigh(tf.nn.max_pool1d(same, 3, 2, "SAME"))


@step((2, 7, 8, 3), (3, 2, 3, 4), (3, 3, 4, 2), filters=True)
def convolutions_and_poolings(x: Any, w: Any, v: Any) -> Any:
    y = tf.nn.relu(tf.nn.conv2d(x, w, [1, 2, 2, 1], "SAME") + 0.1)
    y = tf.nn.depthwise_conv2d(y, v, [1, 1, 1, 1], [[0, 0], [1, 0], [1, 2], [0, 0]])
    return weigh(tf.nn.max_pool2d(y, 2, 1, "SAME")) + weigh(tf.nn.avg_pool2d(y, 3, 2, "SAME") ** 2)


@step((2, 3, 4, 3), (4, 3, 5, 3), (3, 2, 2, 3), filters=True)
def transposed_convolutions(x: Any, w: Any, v: Any) -> Any:
    batch = tf.shape(x)[0]
    wide = tf.nn.conv2d_transpose(x, w, tf.stack([batch, 5, 7, 5]), 2, "SAME")
    return weigh(wide**2) + weigh(tf.nn.conv2d_transpose(x, v[:2], tf.stack([batch, 8, 11, 2]), 3, "VALID"))


@step((3, 4, 5, 2), (2,), (2,))
def fused_batch_normalization(x: Any, scale: Any, offset: Any) -> Any:
    y, mean, variance = tf.compat.v1.nn.fused_batch_norm(x, scale, offset, epsilon=1e-3)
    still, *_ = tf.compat.v1.nn.fused_batch_norm(x, scale, offset, scale, offset**2, is_training=False)
    return weigh(y**2) + weigh(still) + tf.stop_gradient(tf.reduce_sum(mean + variance))


@step((6, 3), integers=np.array([5, 0, 5, 2], np.int32))
def combined_embeddings_with_sparse_gradients(table: Any, ids: Any) -> Any:
    owners = tf.constant([0, 0, 2, 2])
    sums = tf.sparse.segment_sum(table, ids, owners, sparse_gradient=True)
    return weigh(sums**2) + weigh(tf.sparse.segment_mean(table, ids, owners, sparse_gradient=True))


@step((2, 5, 6, 3))
def gradient_penalty_through_poolings(x: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        pooled = tf.nn.max_pool2d(x**3, [3, 2], 2, "SAME")
        volume = tf.nn.max_pool3d(tf.square(x)[:, tf.newaxis], [1, 2, 2], [1, 2, 1], "VALID")
        score = tf.reduce_sum(pooled**2) + tf.reduce_sum(volume**2)
    return weigh(tape.gradient(score, x))


@step((2, 4, 6, 3))
def places_of_the_largest(x: Any) -> Any:
    total = weigh(x)
    for batch in (False, True):
        pooled, places = tf.nn.max_pool_with_argmax(x, 2, 2, "SAME", include_batch_in_index=batch)
        # As segmentation networks unpool: each number goes back to where it came from.
        shape = tf.shape(x, out_type=tf.int64)
        size = tf.reduce_prod(shape[1:])
        first = 0 if batch else tf.range(shape[0])[:, None, None, None] * size
        where = tf.reshape(places + first, [-1, 1])
        total += weigh(tf.reshape(tf.scatter_nd(where, tf.reshape(tf.sin(pooled), [-1]), [shape[0] * size]), shape))
    return total


@step((3, 4))
def derivatives_of_digamma(x: Any) -> Any:
    positive = tf.square(x) + 0.1
    with tf.GradientTape() as tape:
        tape.watch(positive)
        value = tf.reduce_sum(tf.math.digamma(positive) ** 2)
    return weigh(tape.gradient(value, positive))


@step((2, 3, 3), (2, 3, 2))
def systems_of_equations(x: Any, y: Any) -> Any:
    matrix = tf.linalg.matmul(x, x, transpose_b=True) + tf.eye(3)
    factor = tf.linalg.cholesky(matrix)
    solved = tf.linalg.triangular_solve(factor, y) + tf.linalg.solve(matrix, y, adjoint=True)
    return weigh(solved) + weigh(tf.linalg.inv(matrix)) + weigh(tf.linalg.slogdet(matrix)[1]) + weigh(tf.linalg.det(x))


@step((2, 5, 6, 3), (4, 4))
def regions_of_interest(x: Any, y: Any) -> Any:
    corners = tf.concat([tf.sigmoid(y[:, :2]) / 2, tf.sigmoid(y[:, 2:])], 1)
    chosen = tf.image.non_max_suppression(corners, y[:, 0], 3, 0.5)
    boxes, owners = tf.gather(corners, chosen), tf.math.mod(chosen, tf.shape(x)[0])
    return weigh(tf.image.crop_and_resize(x, boxes, owners, [2, 3]))


@step((2, 5, 6, 3))
def patches_of_resized_images(x: Any) -> Any:
    larger = tf.image.resize(x, [7, 8], "bicubic") + tf.image.resize(x, [7, 8], "lanczos3")
    patches = tf.image.extract_patches(larger, [1, 3, 2, 1], [1, 2, 2, 1], [1, 1, 2, 1], "SAME")
    return (
        weigh(patches) + weigh(tf.image.rgb_to_hsv(tf.sigmoid(x))) + weigh(tf.image.resize(x, [3, 4], antialias=True))
    )


@step((3, 4, 2), (7, 2), integers=np.array([[3, 0, 5, 0], [0, 0, 0, 0], [6, 2, 1, 1]]))
def rows_of_any_length(x: Any, table: Any, words: Any) -> Any:
    given = tf.where(words > 0)
    sparse = tf.SparseTensor(given, tf.gather_nd(words, given), tf.shape(words, tf.int64))
    rows = tf.RaggedTensor.from_tensor(x, tf.constant([2, 0, 4]))
    several = tf.gather(rows, [2, 0, 2])[:, :3].to_tensor(0.5)
    means = tf.nn.safe_embedding_lookup_sparse(table, sparse, combiner="mean")
    scores = tf.sparse.softmax(sparse.with_values(tf.gather(table[:, 0], sparse.values)))
    return weigh(several) + weigh(means) + weigh(tf.sparse.reduce_sum(scores * x[..., 0], 1))
