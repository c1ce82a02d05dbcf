"""Losses of PyTorch that its exporter loses options of, or cannot trace: the same of other operations."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from lstm_lower.replacement import replaced
from lstm_lower.torch.functions import node, stopped
from lstm_lower.torch.nodes import DOMAIN


def _cross_entropy(
    input: Tensor,  # noqa: A002
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    """Of classes with labels smoothed (Szegedy et al., 2016), which the exporter leaves out; of their probabilities."""
    reduction = _chosen(reduction, size_average, reduce)
    if not target.is_floating_point() and not label_smoothing and reduction != "none":
        return NotImplemented
    axis = min(1, input.dim() - 1)
    logarithms = torch.log_softmax(input, axis)
    share = label_smoothing / input.shape[axis]
    weighted = logarithms
    if weight is not None:
        weighted = logarithms * weight.reshape([-1] + [1] * (input.dim() - axis - 1))
    if target.is_floating_point():
        each = -(weighted * (target * (1 - label_smoothing) + share)).sum(axis)
        return each.mean() if reduction == "mean" else _reduced(each, reduction)
    kept = target != ignore_index
    classes = torch.where(kept, target, 0)
    named = weighted.gather(axis, classes.unsqueeze(axis)).squeeze(axis)
    each = torch.where(kept, -(1 - label_smoothing) * named - share * weighted.sum(axis), 0.0)
    return _of_classes(each, kept, None if weight is None else weight[classes], reduction)


def _of_classes(each: Tensor, kept: Tensor, weights: Tensor | None, reduction: str) -> Tensor:
    """The losses of labels, reduced; a mean is one over the weights of those that are kept."""
    if reduction != "mean":
        return _reduced(each, reduction)
    counted = torch.ones_like(each) if weights is None else weights
    return each.sum() / torch.where(kept, counted, 0.0).sum()


def _nll_loss(
    input: Tensor,  # noqa: A002
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Any:
    """The loss of each element, which the exporter says to be one number; of images, which it takes apart before."""
    reduction = _chosen(reduction, size_average, reduce)
    if reduction != "none" and input.dim() <= 2:
        return NotImplemented
    axis = min(1, input.dim() - 1)
    kept = target != ignore_index
    classes = torch.where(kept, target, 0)
    named = -input.gather(axis, classes.unsqueeze(axis)).squeeze(axis)
    weights = None if weight is None else weight[classes]
    each = torch.where(kept, named if weights is None else named * weights, 0.0)
    return _of_classes(each, kept, weights, reduction)


def _binary_cross_entropy(
    input: Tensor,  # noqa: A002
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Probabilities of 0 and 1, which a sigmoid may round to, have a loss of at most 100, and a slope."""
    least = 1e-12
    inner = input * (1 - input) >= least
    p, edge = torch.where(inner, input, 0.5), stopped(input)
    bounded = -target * edge.log().clamp(min=-100.0) - (1 - target) * torch.log1p(-edge).clamp(min=-100.0)
    each = torch.where(
        inner,
        -target * p.log() - (1 - target) * torch.log1p(-p),
        bounded + (input - edge) * (edge - stopped(target)) / least,
    )
    return _reduced(each if weight is None else each * weight, _chosen(reduction, size_average, reduce))


def _gaussian_nll_loss(
    input: Tensor,  # noqa: A002
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """Without the look at variances below zero, which a trace cannot take; the least one stops no gradient."""
    if not isinstance(var, Tensor):
        var = torch.full_like(input, var)
    if var.dim() == input.dim() - 1:
        var = var.unsqueeze(-1)
    var = var + stopped(var.clamp(min=eps) - var)
    each = 0.5 * (torch.log(var) + (input - target) ** 2 / var)
    return _reduced(each + 0.5 * math.log(2 * math.pi) if full else each, reduction)


def _multilabel_margin_loss(
    input: Tensor,  # noqa: A002
    target: Tensor,
    size_average: bool | None = None,  # noqa: ARG001
    reduce: bool | None = None,  # noqa: ARG001
    reduction: str = "mean",
) -> Tensor:
    """Targets are classes up to the first negative one, which the exporter overlooks."""
    named = (target < 0).to(torch.int64).cumsum(-1) == 0
    # -1 ends them; what is less is looked up, and refused.
    classes = torch.where(target == -1, 0, target)
    wanted = torch.zeros_like(input).scatter_add(-1, classes, named.to(input.dtype)) > 0
    excess = torch.relu(1 - input.gather(-1, classes).unsqueeze(-1) + input.unsqueeze(-2))
    counted = torch.where(named.unsqueeze(-1) & ~wanted.unsqueeze(-2), excess, 0.0)
    return _reduced(counted.sum((-1, -2)) / input.shape[-1], reduction)


def _ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """One node, since PyTorch cannot trace it."""
    lengths = [x if isinstance(x, Tensor) else torch.tensor(x) for x in (input_lengths, target_lengths)]
    shape = log_probs.shape[1:-1] if reduction == "none" else ()
    attributes = {"blank": blank, "reduction": reduction, "zero_infinity": int(zero_infinity)}
    return node(f"{DOMAIN}::CTC", [log_probs, targets, *lengths], attributes, [(log_probs, shape)])[0]


def all_classes_scored() -> contextlib.AbstractContextManager[None]:
    """Makes the adaptive softmax (Grave et al., 2017) score every class for every row, where it looks for the rows."""

    def forward(self: Any, input_: Tensor, target_: Tensor) -> Any:
        scores = self.log_prob(input_ if target_.dim() else input_.unsqueeze(0))
        output = scores.gather(1, target_.reshape(-1, 1)).squeeze(1)
        return result(output if target_.dim() else output.squeeze(0), -output.mean())

    result = torch.nn.modules.adaptive._ASMoutput
    return replaced(torch.nn.AdaptiveLogSoftmaxWithLoss, "forward", forward)


def _chosen(reduction: str, size_average: bool | None, reduce: bool | None) -> str:
    """The reduction, which two older options may stand for."""
    if size_average is None and reduce is None:
        return reduction
    if reduce is False:
        return "none"
    return "sum" if size_average is False else "mean"


def _reduced(each: Tensor, reduction: str) -> Tensor:
    return each if reduction == "none" else each.sum() if reduction == "sum" else each.mean()


LOSSES: dict[Any, Callable[..., Any]] = {
    functional.binary_cross_entropy: _binary_cross_entropy,
    functional.cross_entropy: _cross_entropy,
    functional.ctc_loss: _ctc_loss,
    functional.gaussian_nll_loss: _gaussian_nll_loss,
    functional.multilabel_margin_loss: _multilabel_margin_loss,
    functional.nll_loss: _nll_loss,
}
