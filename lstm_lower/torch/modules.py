"""Code of PyTorch's modules that a trace cannot follow, with ours in its place while a module is traced."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import Tensor, nn

from lstm_lower.replacement import all_replaced, replaced

_normalized = nn.modules.batchnorm._BatchNorm.forward


def traceable_modules() -> contextlib.AbstractContextManager[None]:
    """Puts ours in place, and leaves out the checks of distributions, which branch over values only to raise."""
    return all_replaced(
        (nn.AdaptiveLogSoftmaxWithLoss, "forward", _all_classes_scored),
        (nn.modules.batchnorm._BatchNorm, "forward", _normalized_by_averages),
        (nn.modules.transformer, "_detect_is_causal_mask", _is_causal),
        (torch.distributions.Distribution, "_validate_args", False),
    )


def _all_classes_scored(self: Any, input_: Tensor, target_: Tensor) -> Any:
    """Makes the adaptive softmax (Grave et al., 2017) score every class for every row, where it looks for the rows."""
    scores = self.log_prob(input_ if target_.dim() else input_.unsqueeze(0))
    output = scores.gather(1, target_.reshape(-1, 1)).squeeze(1)
    result = torch.nn.modules.adaptive._ASMoutput
    return result(output if target_.dim() else output.squeeze(0), -output.mean())


def _normalized_by_averages(self: Any, input: Tensor) -> Tensor:  # noqa: A002
    """Lets batch normalization with `momentum=None` count batches in a tensor; it makes a number of Python of it."""
    counted = self.num_batches_tracked
    if self.momentum is not None or counted is None or not self.training:
        return _normalized(self, input)
    with replaced(self, "momentum", 1 / (counted + 1).to(self.running_mean.dtype)):
        return _normalized(self, input)


def _is_causal(mask: Tensor | None, is_causal: bool | None = None, size: int | None = None) -> bool:  # noqa: ARG001
    """Lets transformers take a mask as it is: they look at its values only to choose between kernels."""
    return bool(is_causal)
