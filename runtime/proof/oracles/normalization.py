"""Float64 oracles of fused batch normalisation (Ioffe and Szegedy, Batch Normalization, 2015) and its gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lstm_lower.runtime.proof.oracles.numerics import Array, channels_back, channels_last, float64
from lstm_lower.runtime.proof.oracles.registry import oracle


@oracle("FusedBatchNorm", "FusedBatchNormV2")
def fused_batch_norm(
    *,
    x: npt.ArrayLike,
    scale: npt.ArrayLike,
    offset: npt.ArrayLike,
    mean: npt.ArrayLike,
    variance: npt.ArrayLike,
    epsilon: float = 1e-4,
    exponential_avg_factor: float = 1.0,
    data_format: str = "NHWC",
    is_training: bool = True,
) -> dict[str, Array]:
    """Normalised x, mean and variance for the running averages and for the gradient.

    In training with the batch's own mean and variance; what comes out beside is for the running averages. The running
    variance takes the unbiased one, n / (n - 1) times the batch's, the gradient the batch's. Outside training the
    reserve spaces have no contents in TensorFlow; here they hold the mean and variance that were used.
    """
    image = channels_last(x, data_format)
    rows = image.reshape(-1, image.shape[-1])
    used = {"mean": float64(mean), "variance": float64(variance)}
    out_mean, out_variance = used["mean"], used["variance"]
    epsilon, factor = float(np.float32(epsilon)), float(np.float32(exponential_avg_factor))
    if is_training:
        used = {"mean": rows.mean(axis=0), "variance": rows.var(axis=0)}
        unbiased = used["variance"] * len(rows) / max(len(rows) - 1, 1)
        out_mean = used["mean"] if factor == 1 else (1 - factor) * out_mean + factor * used["mean"]
        out_variance = unbiased if factor == 1 else (1 - factor) * out_variance + factor * unbiased
    y = (image - used["mean"]) / np.sqrt(used["variance"] + epsilon) * float64(scale) + float64(offset)
    return {
        "y": channels_back(y, data_format),
        "batch_mean": out_mean,
        "batch_variance": out_variance,
        "reserve_space_1": used["mean"],
        "reserve_space_2": used["variance"],
    }


@oracle("FusedBatchNormV3")
def fused_batch_norm_v3(**call: Any) -> dict[str, Array]:
    """The same with a third reserve space, of which TensorFlow's CPU kernel makes no use."""
    return fused_batch_norm(**call) | {"reserve_space_3": np.zeros(())}


@oracle("FusedBatchNormGrad", "FusedBatchNormGradV2")
def fused_batch_norm_grad(
    *,
    y_backprop: npt.ArrayLike,
    x: npt.ArrayLike,
    scale: npt.ArrayLike,
    reserve_space_1: npt.ArrayLike,
    reserve_space_2: npt.ArrayLike,
    epsilon: float = 1e-4,
    data_format: str = "NHWC",
    is_training: bool = True,
) -> dict[str, Array]:
    """Gradients of x, scale and offset.

    Of y = scale * normalised + offset; in training mean and variance, the reserve spaces, depend on x too.
    """
    dy, image = channels_last(y_backprop, data_format), channels_last(x, data_format)
    over = tuple(range(dy.ndim - 1))
    deviation = 1 / np.sqrt(float64(reserve_space_2) + float(np.float32(epsilon)))
    normalised = (image - float64(reserve_space_1)) * deviation
    d_scale, d_offset = (dy * normalised).sum(axis=over), dy.sum(axis=over)
    if is_training:
        count = max(dy[..., 0].size, 1)
        dy = dy - d_offset / count - normalised * d_scale / count
    return {
        "x_backprop": channels_back(dy * float64(scale) * deviation, data_format),
        "scale_backprop": d_scale,
        "offset_backprop": d_offset,
        "reserve_space_3": np.zeros(0),
        "reserve_space_4": np.zeros(0),
    }


@oracle("FusedBatchNormGradV3")
def fused_batch_norm_grad_v3(*, reserve_space_3: npt.ArrayLike, **call: Any) -> dict[str, Array]:
    """The same with other names for the two empty outputs; the third reserve space is not read."""
    results = fused_batch_norm_grad(**call)
    results["reserve_space_5"] = results.pop("reserve_space_3")
    return results
