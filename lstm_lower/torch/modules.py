"""Code of PyTorch's modules that a trace cannot follow, with ours in its place while a module is traced."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import Tensor, nn

from lstm_lower.replacement import replaced


def all_classes_scored() -> contextlib.AbstractContextManager[None]:
    """Makes the adaptive softmax (Grave et al., 2017) score every class for every row, where it looks for the rows."""

    def forward(self: Any, input_: Tensor, target_: Tensor) -> Any:
        scores = self.log_prob(input_ if target_.dim() else input_.unsqueeze(0))
        output = scores.gather(1, target_.reshape(-1, 1)).squeeze(1)
        return result(output if target_.dim() else output.squeeze(0), -output.mean())

    result = torch.nn.modules.adaptive._ASMoutput
    return replaced(nn.AdaptiveLogSoftmaxWithLoss, "forward", forward)


def cumulative_averages() -> contextlib.AbstractContextManager[None]:
    """Lets batch normalization with `momentum=None` count batches in a tensor; it makes a number of Python of it."""
    kind = nn.modules.batchnorm._BatchNorm
    before = kind.forward

    def forward(self: Any, input: Tensor) -> Tensor:  # noqa: A002
        counted = self.num_batches_tracked
        if self.momentum is not None or counted is None or not self.training:
            return before(self, input)
        with replaced(self, "momentum", 1 / (counted + 1).to(self.running_mean.dtype)):
            return before(self, input)

    return replaced(kind, "forward", forward)


def masks_unread() -> contextlib.AbstractContextManager[None]:
    """Lets transformers take a mask as it is: they look at its values only to choose between kernels."""

    def is_causal(mask: Tensor | None, is_causal: bool | None = None, size: int | None = None) -> bool:  # noqa: ARG001
        return bool(is_causal)

    return replaced(nn.modules.transformer, "_detect_is_causal_mask", is_causal)


def unchecked_distributions() -> contextlib.AbstractContextManager[None]:
    """Leaves out the checks of distributions, which branch over values only to raise."""
    return replaced(torch.distributions.Distribution, "_validate_args", value=False)
