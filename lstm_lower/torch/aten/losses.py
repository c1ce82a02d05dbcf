"""Losses, by the formulas that losses of training steps have."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr
from lstm_lower.passes.formulas.indices import from_front
from lstm_lower.passes.training import losses
from lstm_lower.passes.training.losses import Loss
from lstm_lower.torch.aten.layers import rank_of
from lstm_lower.torch.aten.registry import AtenCall, Formula, translates
from lstm_lower.torch.aten.tracing import operator, traces

aten = torch.ops.aten

# PyTorch's numbers of reductions.
_REDUCTIONS = ("none", "mean", "sum")


def _elementwise(kind: type[Loss], *names: str) -> Formula:
    """A loss of operands of one dtype, which are broadcast; options behind the reduction have names here."""

    def formula(n: AtenCall, x: Expr, y: Expr, reduction: int = 1, *options: Any, **named: Any) -> Expr:
        x, y = n.promoted(x, y)
        given = dict(zip(names, options, strict=False)) | named
        return kind(reduction=_REDUCTIONS[reduction], **given).value(x, y)

    return formula


_LOSSES: dict[Any, tuple[type[Loss], tuple[str, ...]]] = {
    aten.huber_loss: (losses.Huber, ("delta",)),
    aten.kl_div: (losses.KLDiv, ("log_target",)),
    aten.l1_loss: (losses.L1, ()),
    aten.mse_loss: (losses.MSE, ()),
    aten.smooth_l1_loss: (losses.SmoothL1, ("beta",)),
}
for _overload, (_kind, _names) in _LOSSES.items():
    translates(_overload.default)(_elementwise(_kind, *_names))


@translates(aten.binary_cross_entropy.default)
def _binary_cross_entropy(n: AtenCall, x: Expr, y: Expr, weight: Expr | None = None, reduction: int = 1) -> Expr:
    return losses.BCE(weight, reduction=_REDUCTIONS[reduction]).value(x, y.cast(x.dtype))


@translates(aten.binary_cross_entropy_with_logits.default)
def _binary_cross_entropy_with_logits(
    n: AtenCall, x: Expr, y: Expr, weight: Expr | None = None, positive: Expr | None = None, reduction: int = 1
) -> Expr:
    loss = losses.BCEWithLogits(weight, positive, reduction=_REDUCTIONS[reduction])
    return loss.value(x, y.cast(x.dtype))


@translates(aten.poisson_nll_loss.default)
def _poisson_nll_loss(n: AtenCall, x: Expr, y: Expr, log_input: bool, full: bool, eps: float, reduction: int) -> Expr:
    return losses.PoissonNLL(log_input, full, eps, reduction=_REDUCTIONS[reduction]).value(x, y.cast(x.dtype))


# Whole losses of classes are not kept: `run_decompositions` says that each is a scalar where sizes are open.
@translates(aten.nll_loss_forward.default, aten.nll_loss2d_forward.default)
def _nll_loss_forward(
    n: AtenCall, x: Expr, target: Expr, weight: Expr | None, reduction: int, ignored: int
) -> list[Expr | None]:
    return [losses.NLL(weight, ignored, reduction=_REDUCTIONS[reduction]).value(x, target), None]


@translates(aten.multi_margin_loss.default)
def _multi_margin_loss(
    n: AtenCall,
    x: Expr,
    target: Expr,
    p: float = 1,
    margin: float = 1,
    weight: Expr | None = None,
    reduction: int = 1,
) -> Expr:
    return losses.MultiMargin(weight, int(p), margin, reduction=_REDUCTIONS[reduction]).value(x, target)


@translates(aten.multilabel_margin_loss.default)
def _multilabel_margin_loss(n: AtenCall, x: Expr, target: Expr, reduction: int = 1) -> Expr:
    """Targets are classes up to the first negative one."""
    b, axis = n.b, rank_of(x) - 1
    places = b.constant(axis)
    named = b.op(std.CumSum, (target < 0).cast(target.dtype), places).equals(0)
    # -1 ends them; what is less is looked up, and refused.
    classes = from_front(b.where(target.equals(-1), 0, target))
    marks = b.op(std.ScatterElements, b.zeros_like(x), classes, named.cast(x.dtype), axis=axis, reduction="add")
    wanted = marks > 0
    own = b.op(std.GatherElements, x, classes, axis=axis)
    excess = b.op(std.Relu, 1 - own.unsqueeze(-1) + x.unsqueeze(-2))
    counted = b.where(named.unsqueeze(-1) & ~wanted.unsqueeze(-2), excess, 0)
    each = counted.sum([axis, axis + 1]) / b.sizes([x.size(axis)]).reshape().cast(x.dtype)
    return losses.MSE(reduction=_REDUCTIONS[reduction]).reduced(each)


@traces(functional.gaussian_nll_loss)
def _gaussian_nll_loss(
    input: Tensor,
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
    var = var + (var.clamp(min=eps) - var).detach()
    each = 0.5 * (torch.log(var) + (input - target) ** 2 / var)
    return _reduced(each + 0.5 * math.log(2 * math.pi) if full else each, reduction)


@traces(functional.hinge_embedding_loss)
def _hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Any:
    """The loss of `losses.HingeEmbedding`, of which PyTorch's own takes reductions for their numbers."""
    if size_average is not None or reduce is not None:
        return NotImplemented
    below = margin - input
    apart = torch.where(below < 0, 0.0, below)
    return _reduced(torch.where(target == -1, 0.0, input) + torch.where(target == 1, 0.0, apart), reduction)


@traces(torch.cosine_similarity)
def _cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The least norm stops no gradient, which PyTorch's own formula forgets when it is taken apart."""
    held = torch.broadcast_tensors(x1, x2)  # type: ignore[no-untyped-call]
    norms = (torch.linalg.vector_norm(x, 2, dim, keepdim=True) for x in held)
    x, y = (x / (norm + (norm.clamp(min=eps) - norm).detach()) for x, norm in zip(held, norms, strict=True))
    return (x * y).sum(dim)


def _reduced(each: Tensor, reduction: str) -> Tensor:
    return each if reduction == "none" else each.sum() if reduction == "sum" else each.mean()


# PyTorch's own looks at the lengths' values.
@operator(
    "ctc_loss(Tensor scores, Tensor targets, Tensor steps, Tensor lengths, int blank, str reduction, bool zero)"
    " -> Tensor"
)
def _CTC(  # noqa: N802
    scores: Tensor, targets: Tensor, steps: Tensor, lengths: Tensor, blank: int, reduction: str, zero: bool
) -> Tensor:
    return scores.new_empty(scores.shape[1:-1] if reduction == "none" else ())


@traces(functional.ctc_loss)
def _traced_ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Any:
    steps, lengths = (x if isinstance(x, Tensor) else torch.tensor(x) for x in (input_lengths, target_lengths))
    return _CTC(log_probs, targets, steps, lengths, blank, reduction, zero_infinity)


@translates(_CTC)
def _ctc_loss(
    n: AtenCall, scores: Expr, targets: Expr, steps: Expr, lengths: Expr, blank: int, reduction: str, zero: bool
) -> Expr:
    return losses.CTC(blank=blank, zero_infinity=zero, reduction=reduction).value(scores, targets, steps, lengths)
