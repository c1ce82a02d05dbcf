"""Losses as formulas on expressions, under PyTorch's names and with PyTorch's options.

    CrossEntropy(label_smoothing=0.1)
    resolve("cross_entropy")

`hinge` is PyTorch's `hinge_embedding_loss`, whose targets are 1 and -1 and have the prediction's shape; the hinge loss
of class numbers is `multi_margin`.
"""

from __future__ import annotations

from lstm_lower.errors import InvalidInputError
from lstm_lower.passes.training.losses.base import Loss, Reduction, Target
from lstm_lower.passes.training.losses.classes import NLL, CrossEntropy, MultiMargin
from lstm_lower.passes.training.losses.ctc import CTC
from lstm_lower.passes.training.losses.elementwise import (
    BCE,
    L1,
    MSE,
    BCEWithLogits,
    HingeEmbedding,
    Huber,
    KLDiv,
    PoissonNLL,
    SmoothL1,
)

__all__ = [
    "BCE",
    "CTC",
    "L1",
    "MSE",
    "NLL",
    "BCEWithLogits",
    "CrossEntropy",
    "HingeEmbedding",
    "Huber",
    "KLDiv",
    "Loss",
    "MultiMargin",
    "PoissonNLL",
    "Reduction",
    "SmoothL1",
    "Target",
    "resolve",
]

BY_NAME: dict[str, type[Loss]] = {
    "bce": BCE,
    "bce_with_logits": BCEWithLogits,
    "cross_entropy": CrossEntropy,
    "ctc": CTC,
    "hinge": HingeEmbedding,
    "hinge_embedding": HingeEmbedding,
    "huber": Huber,
    "kl_div": KLDiv,
    "l1": L1,
    "mse": MSE,
    "multi_margin": MultiMargin,
    "nll": NLL,
    "poisson_nll": PoissonNLL,
    "smooth_l1": SmoothL1,
}


def resolve(loss: Loss | str) -> Loss:
    """A loss by name, with PyTorch's defaults; an object as it is.

    Raises:
        InvalidInputError: the name is not known.
    """
    if isinstance(loss, Loss):
        return loss
    if str(loss).lower() not in BY_NAME:
        raise InvalidInputError(f"loss requires one of {sorted(BY_NAME)} or a Loss, got {loss!r}")
    return BY_NAME[loss.lower()]()
