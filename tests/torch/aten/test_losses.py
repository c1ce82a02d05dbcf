"""Losses within a trace next to PyTorch's, at kinks and with classes that do not count."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402
from torch.nn import functional  # noqa: E402

from lstm_lower import Session  # noqa: E402
from tests.support.aten import BEYOND_2_12, check, translated  # noqa: E402

REDUCTIONS = ["mean", "sum", "none"]


def _random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def _signs(x: Tensor) -> Tensor:
    return torch.where(x > 0, 1.0, -1.0).to(x.dtype)


def _divergence(*, log_target: bool) -> Callable[..., Tensor]:
    def loss(x: Tensor, y: Tensor, reduction: str) -> Tensor:
        # PyTorch warns of a mean over all elements.
        reduction = "batchmean" if reduction == "mean" else reduction
        return functional.kl_div(x, y, log_target=log_target, reduction=reduction)

    return loss


_ELEMENTWISE: dict[str, Callable[..., Tensor]] = {
    "mse": functional.mse_loss,
    "l1": functional.l1_loss,
    "smooth l1": functools.partial(functional.smooth_l1_loss, beta=0.7),
    "huber": functools.partial(functional.huber_loss, delta=0.7),
    "kl": _divergence(log_target=False),
    "kl of logarithms": _divergence(log_target=True),
    "poisson": functools.partial(functional.poisson_nll_loss, full=True),
    "hinge": lambda x, y, reduction: functional.hinge_embedding_loss(x, _signs(y.detach()), reduction=reduction),
    "soft margin": lambda x, y, reduction: functional.soft_margin_loss(x, _signs(y.detach()), reduction=reduction),
    "gaussian": lambda x, y, reduction: functional.gaussian_nll_loss(x, y, y * y, full=True, reduction=reduction),
}


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", _ELEMENTWISE)
def test_of_elements(name: str, reduction: str) -> None:
    function = functools.partial(_ELEMENTWISE[name], reduction=reduction)
    ahead = 0.0 if name not in ("poisson", "kl") else 3.0
    # At a margin of 1 PyTorch takes another side of the hinge's kink from 2.14 on.
    kinks = torch.tensor([[0.0, 0.7, -0.7], [0.9 if name == "hinge" else 1.0, -1.0, 0.0]])
    examples = [[kinks, torch.zeros(2, 3) + ahead], [_random(4, 5), _random(4, 5).abs() + ahead]]
    check(function, *examples, dtypes=[torch.float32] if reduction == "sum" else [torch.float64])


def test_cosines_of_vectors_that_are_shorter_than_the_least_norm() -> None:
    """Gradients flow past that norm, which is no constant to PyTorch."""
    examples = [[_random(4, 5, 3) / 9, _random(4, 1, 3)], [torch.zeros(2, 5, 3), _random(2, 1, 3) / 9]]
    check(lambda x, y: functional.cosine_similarity(x, y, -1, 0.5), *examples, dtypes=[torch.float64])


@BEYOND_2_12
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_of_two_classes(reduction: str) -> None:
    shares, labels = (
        torch.tensor([[0.0, 1.0, 0.3], [0.0, 1.0, 1e-20]]),
        torch.tensor([[0.0, 1.0, 0.7], [1.0, 0.0, 0.2]]),
    )

    def loss(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        return functional.binary_cross_entropy(x, y.detach(), w.detach(), reduction=reduction)

    def loss_of_logits(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        return functional.binary_cross_entropy_with_logits(
            x, y.detach(), w.detach(), pos_weight=w.detach(), reduction=reduction
        )

    more = [_random(4, 5).sigmoid(), _random(4, 5).sigmoid(), _random(4, 5).exp()]
    check(loss, [shares, labels, torch.tensor([[2.0, 1.0, 3.0]]).expand(2, 3).clone()], more)
    check(loss_of_logits, [shares * 100 - 50, labels, torch.ones(2, 3)], [_random(4, 5), *more[1:]])


_CLASSES: dict[str, Callable[..., Any]] = {
    "cross entropy": functional.cross_entropy,
    "cross entropy of smoothed labels": functools.partial(functional.cross_entropy, label_smoothing=0.2),
    "likelihood": functional.nll_loss,
}


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("name", _CLASSES)
def test_of_classes(name: str, weighted: bool, reduction: str) -> None:
    factors = torch.tensor([1.0, 2.0, 0.5])

    def loss(x: Tensor, y: Tensor) -> Any:
        weight = factors.to(x.dtype) if weighted else None
        return _CLASSES[name](x, y, weight, ignore_index=1, reduction=reduction)

    check(loss, [_random(4, 3), torch.tensor([2, 1, 0, 2])], [_random(2, 3), torch.tensor([1, 2])])
    if not weighted:
        images = torch.tensor([[[2, 1], [0, 2]]])
        check(loss, [_random(1, 3, 2, 2), images], [_random(1, 3, 2, 2) + 1, images], dtypes=[torch.float32])


@BEYOND_2_12
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_of_probabilities(reduction: str) -> None:
    def loss(x: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(x, y, reduction=reduction, label_smoothing=0.1)

    check(loss, [_random(4, 3), _random(4, 3).softmax(1)], [_random(2, 3), _random(2, 3).softmax(1)])


def test_margins() -> None:
    def margins(x: Tensor, y: Tensor) -> Tensor:
        return functional.multi_margin_loss(x, y, p=2, margin=0.5)

    labels = torch.tensor([[2, 0, -1], [1, -1, 0], [-1, 0, 1], [0, 1, 2]])
    check(margins, [_random(4, 3), torch.tensor([2, 1, 0, 2])], [_random(2, 3), torch.tensor([1, 2])])
    check(functional.multilabel_margin_loss, [_random(4, 3), labels], [_random(2, 3), labels[:2]])


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_temporal_classification(reduction: str) -> None:
    def loss(x: Tensor, labels: Tensor, steps: Tensor, counts: Tensor) -> Tensor:
        return functional.ctc_loss(x.log_softmax(2), labels, steps, counts, reduction=reduction)

    first = [_random(7, 2, 4), torch.tensor([[1, 2, 2], [3, 1, 0]]), torch.tensor([7, 5]), torch.tensor([3, 2])]
    second = [
        _random(9, 3, 4),
        torch.tensor([[1, 2], [3, 1], [2, 2]]),
        torch.tensor([9, 5, 6]),
        torch.tensor([2, 1, 2]),
    ]
    check(loss, first, second)


def test_class_numbers_out_of_range_are_refused() -> None:
    class Loss(torch.nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return functional.cross_entropy(x, y)

    model, _ = translated(Loss(), _random(4, 3), torch.tensor([2, 1, 0, 2]))
    for wrong in (-1, 3):
        feeds = {"x0": _random(4, 3).numpy(), "x1": torch.tensor([2, 1, 0, wrong]).numpy()}
        with pytest.raises(Exception, match=r"(?i)indices|out of"):
            Session(model).run(feeds)


@pytest.mark.parametrize("taken_apart", [False, True])
def test_losses_of_single_samples_have_the_samples_sizes(taken_apart: bool) -> None:
    """`run_decompositions` calls the loss of classes a scalar where it is kept, even of single samples."""

    def loss(x: Tensor, classes: Tensor) -> Tensor:
        each = functional.cross_entropy(x.flatten(0, 1), classes.flatten(), reduction="none").view_as(classes)
        return torch.hstack([each, each]) if taken_apart else each

    examples = [
        [_random(2, 3, 5), torch.tensor([[0, 4, 2], [1, 1, 3]])],
        [_random(1, 4, 5), torch.tensor([[3, 0, 1, 2]])],
    ]
    check(loss, *examples)
