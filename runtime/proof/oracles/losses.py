"""Float64 oracles of the losses that return their gradient beside the loss.

The two softmax losses; CTC has a file of its own.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lstm_lower.errors import InvalidInputError
from lstm_lower.runtime.proof.oracles.numerics import Array, float64
from lstm_lower.runtime.proof.oracles.registry import oracle


def log_softmax(logits: Array) -> Array:
    """Logarithm of the softmax over the last axis."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


@oracle("SoftmaxCrossEntropyWithLogits")
def softmax_cross_entropy(*, features: npt.ArrayLike, labels: npt.ArrayLike) -> dict[str, Array]:
    """-sum(labels log softmax(features)) per row, and softmax(features) - labels."""
    logits, targets = np.broadcast_arrays(float64(features), float64(labels))
    log_probabilities = log_softmax(logits)
    return {
        "loss": -(targets * log_probabilities).sum(axis=1),
        "backprop": np.exp(log_probabilities) - targets,
    }


@oracle("SparseSoftmaxCrossEntropyWithLogits")
def sparse_softmax_cross_entropy(*, features: npt.ArrayLike, labels: npt.ArrayLike) -> dict[str, Array]:
    """The same with one class number per row.

    Raises:
        InvalidInputError: it is no class.
    """
    log_probabilities, classes = log_softmax(float64(features)), np.asarray(labels)
    hot = classes[:, None] == np.arange(log_probabilities.shape[1])
    loss = -np.where(hot, log_probabilities, 0).sum(axis=1)
    backprop = np.exp(log_probabilities) - hot
    if not hot.any(axis=1).all():
        raise InvalidInputError(f"labels require classes from 0 to {hot.shape[1] - 1}, got {classes.tolist()}")
    return {"loss": loss, "backprop": backprop}
