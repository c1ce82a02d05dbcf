"""PyTorch's losses as ours; those without a counterpart are traced with the module."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from torch import Tensor, nn
from torch.nn import functional

from lstm_lower.graph.builder import Builder, Expr, Workspace
from lstm_lower.passes.training import losses
from lstm_lower.passes.training.losses import Loss, Target
from lstm_lower.torch.interface import named_tensors, numbers

# Ours -> PyTorch's module and function.
_LOSSES: dict[type[Loss], tuple[type[nn.Module], Callable[..., Any]]] = {
    losses.BCE: (nn.BCELoss, functional.binary_cross_entropy),
    losses.BCEWithLogits: (nn.BCEWithLogitsLoss, functional.binary_cross_entropy_with_logits),
    losses.CrossEntropy: (nn.CrossEntropyLoss, functional.cross_entropy),
    losses.CTC: (nn.CTCLoss, functional.ctc_loss),
    losses.HingeEmbedding: (nn.HingeEmbeddingLoss, functional.hinge_embedding_loss),
    losses.Huber: (nn.HuberLoss, functional.huber_loss),
    losses.KLDiv: (nn.KLDivLoss, functional.kl_div),
    losses.L1: (nn.L1Loss, functional.l1_loss),
    losses.MSE: (nn.MSELoss, functional.mse_loss),
    losses.MultiMargin: (nn.MultiMarginLoss, functional.multi_margin_loss),
    losses.NLL: (nn.NLLLoss, functional.nll_loss),
    losses.PoissonNLL: (nn.PoissonNLLLoss, functional.poisson_nll_loss),
    losses.SmoothL1: (nn.SmoothL1Loss, functional.smooth_l1_loss),
}


def _options(kind: type[Loss]) -> list[str]:
    """The options that a loss of ours and PyTorch's module both have, by the same names."""
    parameters = inspect.signature(_LOSSES[kind][0]).parameters
    return [field.name for field in dataclasses.fields(kind) if field.name in parameters]


def formula_of(loss: Any) -> Loss | None:
    """Our formula of a loss, or `None` for one that is a function of PyTorch's own operations."""
    if isinstance(loss, Loss):
        return loss
    for kind, (module, function) in _LOSSES.items():
        if type(loss) is module:
            options = ((name, getattr(loss, name)) for name in _options(kind))
            plain: dict[str, Any] = {name: numbers(x) if isinstance(x, Tensor) else x for name, x in options}
            return kind(**plain)
        if loss is function:
            return kind()
    return None


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
        return _LOSSES[losses.BY_NAME[loss.lower()]][1]
    return None if isinstance(loss, (str, Loss)) else loss


def counterpart(loss: Loss) -> nn.Module | None:
    """PyTorch's module of a formula of ours, if there is one."""
    if type(loss) not in _LOSSES:
        return None
    options = {name: getattr(loss, name) for name in _options(type(loss))}
    module, _ = _LOSSES[type(loss)]
    return module(**{name: torch.as_tensor(x) if isinstance(x, np.ndarray) else x for name, x in options.items()})


def of_first(loss: Callable[..., Any]) -> Callable[..., Any]:
    """A loss of the first tensor that a module returns."""
    return lambda result, *targets: loss(named_tensors("", result)[0][1], *targets)


def target_shapes(loss: Loss, prediction: Tensor) -> list[tuple[Any, ...]]:
    """Shapes of targets as a formula of ours says them of a prediction."""
    graph = ir.Graph([], [], nodes=[], opset_imports={"": 18})
    space = Workspace.of(ir.Model(graph, ir_version=8))
    value = space.value("prediction", ir.TensorType(ir.DataType.FLOAT), list(prediction.shape))
    return [target.shape for target in loss.targets(Builder(space, graph).wrap(value))]


def by_element(loss: Loss) -> bool:
    """Whether a loss compares a prediction with a target element by element."""
    return type(loss).targets is Loss.targets
