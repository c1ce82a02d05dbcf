"""PyTorch's losses as ours; those without a counterpart are traced with the module."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from torch import Tensor, nn
from torch.nn import functional

from lstm_lower.graph.builder import Expr
from lstm_lower.passes.training import losses
from lstm_lower.passes.training.losses import Loss, Target
from lstm_lower.torch.interface import as_tensors, numbers

# Module -> ours, and its options, which both have by the same names.
_MODULES: dict[type[nn.Module], tuple[type[Loss], tuple[str, ...]]] = {
    nn.BCELoss: (losses.BCE, ("weight",)),
    nn.BCEWithLogitsLoss: (losses.BCEWithLogits, ("weight", "pos_weight")),
    nn.CrossEntropyLoss: (losses.CrossEntropy, ("weight", "ignore_index", "label_smoothing")),
    nn.CTCLoss: (losses.CTC, ("blank", "zero_infinity")),
    nn.HingeEmbeddingLoss: (losses.HingeEmbedding, ("margin",)),
    nn.HuberLoss: (losses.Huber, ("delta",)),
    nn.KLDivLoss: (losses.KLDiv, ("log_target",)),
    nn.L1Loss: (losses.L1, ()),
    nn.MSELoss: (losses.MSE, ()),
    nn.MultiMarginLoss: (losses.MultiMargin, ("p", "margin", "weight")),
    nn.NLLLoss: (losses.NLL, ("weight", "ignore_index")),
    nn.PoissonNLLLoss: (losses.PoissonNLL, ("log_input", "full", "eps")),
    nn.SmoothL1Loss: (losses.SmoothL1, ("beta",)),
}

_FUNCTIONS: dict[Any, type[Loss]] = {
    functional.binary_cross_entropy: losses.BCE,
    functional.binary_cross_entropy_with_logits: losses.BCEWithLogits,
    functional.cross_entropy: losses.CrossEntropy,
    functional.ctc_loss: losses.CTC,
    functional.hinge_embedding_loss: losses.HingeEmbedding,
    functional.huber_loss: losses.Huber,
    functional.kl_div: losses.KLDiv,
    functional.l1_loss: losses.L1,
    functional.mse_loss: losses.MSE,
    functional.multi_margin_loss: losses.MultiMargin,
    functional.nll_loss: losses.NLL,
    functional.poisson_nll_loss: losses.PoissonNLL,
    functional.smooth_l1_loss: losses.SmoothL1,
}


def formula_of(loss: Any) -> Loss | None:
    """Our formula of a loss, or `None` for one that is a function of PyTorch's own operations."""
    if isinstance(loss, Loss):
        return loss
    if isinstance(loss, nn.Module):
        if type(loss) not in _MODULES:
            return None
        kind, options = _MODULES[type(loss)]
        chosen = {name: getattr(loss, name) for name in options}
        return kind(reduction=str(loss.reduction), **{name: _plain(value) for name, value in chosen.items()})
    function = _FUNCTIONS.get(loss) if callable(loss) else None
    return None if function is None else function()


def _plain(value: Any) -> Any:
    return numbers(value) if isinstance(value, Tensor) else value


@dataclasses.dataclass(frozen=True, eq=False)
class WithExamples(Loss):
    """A loss whose targets are as examples of them are.

    Attributes:
        loss: the loss.
        examples: the targets' dtypes and numbers of axes.
    """

    loss: Loss = dataclasses.field(default_factory=losses.MSE)
    examples: Sequence[Tensor] = ()

    def targets(self, prediction: Expr) -> list[Target]:
        """Where an example has as many axes as the loss says, these are of the sizes that the loss says."""
        own = self.loss.targets(prediction)
        found = []
        for index, example in enumerate(self.examples):
            dtype = ir.DataType.from_numpy(numbers(example[:0] if example.dim() else example).dtype)
            said = own[index].shape if index < len(own) else ()
            same = len(said) == example.dim()
            found.append(Target(dtype, said if same else (None,) * example.dim()))
        return found

    def __call__(self, prediction: Expr, *targets: Expr) -> Expr:
        return self.loss(prediction, *targets)

    def value(self, prediction: Expr, *targets: Expr) -> Expr:
        return self.loss.value(prediction, *targets)


def in_torch(loss: Any) -> Callable[..., Any] | None:
    """What computes a loss in PyTorch, if anything does."""
    if isinstance(loss, str) and loss.lower() in losses.BY_NAME:
        kinds = {kind: function for function, kind in _FUNCTIONS.items()}
        function: Callable[..., Any] = kinds[losses.BY_NAME[loss.lower()]]
        return function
    return None if isinstance(loss, (str, Loss)) else loss


def counterpart(loss: Loss) -> nn.Module | None:
    """PyTorch's module of a formula of ours, if there is one."""
    for module, (kind, names) in _MODULES.items():
        if type(loss) is kind:
            options = {name: getattr(loss, name) for name in names}
            tensors = {name: torch.as_tensor(x) for name, x in options.items() if isinstance(x, np.ndarray)}
            return module(reduction=loss.reduction, **{**options, **tensors})
    return None


def by_element(loss: Loss) -> bool:
    """Whether a loss compares a prediction with a target element by element."""
    return type(loss).targets is Loss.targets


def tensors_of(examples: Any) -> list[Tensor]:
    """Example targets: one, or several in a tuple or list.

    Raises:
        InvalidInputError: they are none.
    """
    return [] if examples is None else as_tensors("example_targets", examples)
