"""Losses with PyTorch's options: ours, PyTorch's function, and operands."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from lstm_lower.passes.training import losses

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(5)


@dataclasses.dataclass(frozen=True)
class LossCase:
    """A loss and its operands.

    Attributes:
        loss: ours.
        function: name in `torch.nn.functional`.
        options: that function's.
        prediction: float64.
        targets: float64 or int64.
    """

    loss: losses.Loss
    function: str
    options: dict[str, Any]
    prediction: Array
    targets: tuple[Array, ...]

    @property
    def id(self) -> str:
        shown = [f"{name}={value if np.ndim(value) == 0 else 'given'}" for name, value in self.options.items()]
        shapes = "x".join(map(str, self.prediction.shape))
        return "-".join([type(self.loss).__name__, self.targets[0].dtype.kind, shapes, *shown])


def normal(*shape: int, scale: float = 2.0) -> Array:
    return RNG.standard_normal(shape) * scale


def uniform(*shape: int) -> Array:
    return RNG.uniform(0.02, 0.98, shape)


def log_softmax(x: Array, axis: int) -> Array:
    return x - np.log(np.exp(x).sum(axis, keepdims=True))


def _elementwise() -> Iterator[LossCase]:
    def case(kind: type[losses.Loss], function: str, x: Array, y: Array, **options: Any) -> Iterator[LossCase]:
        for reduction in ("mean", "sum", "none"):
            chosen = options | {"reduction": reduction}
            yield LossCase(kind(**chosen), function, chosen, x, (y,))

    x, y = normal(3, 4), normal(3, 4)
    yield from case(losses.MSE, "mse_loss", x, y)
    yield from case(losses.L1, "l1_loss", x, y)
    for beta in (1.0, 0.3, 0.0):
        yield from case(losses.SmoothL1, "smooth_l1_loss", x, y, beta=beta)
    for delta in (1.0, 0.4):
        yield from case(losses.Huber, "huber_loss", x, y, delta=delta)
    edges = uniform(3, 4)
    edges[0, :2] = 0, 1
    sure = uniform(3, 4)
    sure[0, :2] = 1, 1
    weight = uniform(4)
    yield from case(losses.BCE, "binary_cross_entropy", edges, sure)
    yield from case(losses.BCE, "binary_cross_entropy", uniform(3, 4), sure, weight=weight)
    logits = normal(3, 4, scale=30)
    logits[0, 0] = 0
    name = "binary_cross_entropy_with_logits"
    yield from case(losses.BCEWithLogits, name, logits, sure)
    yield from case(losses.BCEWithLogits, name, logits, sure, weight=weight, pos_weight=weight * 3)
    shares = uniform(3, 4)
    shares[1, 1] = 0
    for reduction in ("mean", "sum", "none", "batchmean"):
        for log_target in (False, True):
            target = np.log(uniform(3, 4)) if log_target else shares
            options = {"reduction": reduction, "log_target": log_target}
            yield LossCase(losses.KLDiv(**options), "kl_div", options, log_softmax(x, 1), (target,))
    counts = RNG.integers(0, 6, (3, 4)).astype(np.float64)
    yield from case(losses.PoissonNLL, "poisson_nll_loss", normal(3, 4, scale=1), counts, full=True)
    yield from case(losses.PoissonNLL, "poisson_nll_loss", uniform(3, 4), counts, log_input=False, eps=1e-6)
    signs = np.where(normal(3, 4) > 0, 1.0, -1.0)
    yield from case(losses.HingeEmbedding, "hinge_embedding_loss", x, signs, margin=0.7)


def _classes() -> Iterator[LossCase]:
    for shape in ((5,), (4, 5), (3, 5, 2), (2, 5, 3, 2)):
        axis = 0 if len(shape) == 1 else 1
        x = normal(*shape, scale=5)
        numbers = RNG.integers(0, 5, (*shape[:axis], *shape[axis + 1 :]))
        if numbers.ndim:
            numbers.flat[0] = 1
            numbers.flat[1] = 3
        probabilities = np.exp(log_softmax(normal(*shape), axis))
        weight = uniform(5)
        for reduction in ("mean", "sum", "none"):
            for more in ({}, {"weight": weight, "ignore_index": 3}):
                options = {"reduction": reduction, **more}
                yield LossCase(losses.NLL(**options), "nll_loss", options, log_softmax(x, axis), (numbers,))
                for smoothing in (0.0, 0.2):
                    chosen = options | {"label_smoothing": smoothing}
                    yield LossCase(losses.CrossEntropy(**chosen), "cross_entropy", chosen, x, (numbers,))
                    given = {name: value for name, value in chosen.items() if name != "ignore_index"}
                    loss = losses.CrossEntropy(target="probabilities", **given)
                    yield LossCase(loss, "cross_entropy", given, x, (probabilities,))
            if len(shape) <= 2:
                for margin in ({}, {"p": 2, "margin": 0.5, "weight": weight}):
                    options = {"reduction": reduction, **margin}
                    yield LossCase(losses.MultiMargin(**options), "multi_margin_loss", options, x, (numbers,))


def _ctc() -> Iterator[LossCase]:
    scores = log_softmax(normal(7, 3, 5), 2)
    labels = np.array([[1, 1, 2], [3, 0, 0], [4, 2, 4]])
    steps, counts = np.array([7, 5, 3]), np.array([3, 1, 3])
    labels[1, 1:] = -7
    short = np.array([3, 5, 2])
    joined = np.concatenate([row[:count] for row, count in zip(labels, counts, strict=True)])
    for reduction in ("mean", "sum", "none"):
        for lengths, zero in ((steps, False), (short, False), (short, True)):
            options = {"reduction": reduction, "blank": 0, "zero_infinity": zero}
            yield LossCase(losses.CTC(**options), "ctc_loss", options, scores, (labels.clip(0), lengths, counts))
    options = {"blank": 4}
    targets = np.where(joined == 4, 0, joined), steps, counts
    yield LossCase(losses.CTC(blank=4), "ctc_loss", options, scores, targets)
    alone = labels[0, :2], np.asarray(6), np.asarray(2)
    yield LossCase(losses.CTC(), "ctc_loss", {"blank": 0}, scores[:, 0], alone)


CASES = [*_elementwise(), *_classes(), *_ctc()]
