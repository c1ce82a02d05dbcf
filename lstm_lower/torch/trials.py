"""A module run as it is, at sizes of our choosing: whether it takes them, and what it computes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lstm_lower.torch.control_flow import Plainly
from lstm_lower.torch.interface import Step, attributes_kept, copied_weights
from lstm_lower.torch.wrappers import eagerly


class RefusedError(Exception):
    """The module itself does not take inputs of such sizes; its error is the cause."""


class Trials:
    """Runs of a module on inputs like an example. The module stays as it is.

    Attributes:
        tensors: the example.
        changed: names of parameters, and of complex buffers, that it changes in place while it runs; `None` before a
            run has told.
    """

    def __init__(self, step: Step, tensors: Sequence[Tensor]) -> None:
        """Of a module, and perhaps its loss, and the example."""
        self._step, self.tensors = step, tensors
        self.changed: list[str] | None = None

    def resized(self, number: int, shape: Sequence[int]) -> Tensor:
        """An input with values like the example's, each part of it repeated, so that what is sorted stays so."""
        x = self.tensors[number]
        if x.numel() == 0 or list(shape) == list(x.shape):
            return x
        resized = x
        for axis, size in enumerate(shape):
            resized = resized.index_select(axis, torch.arange(size, device=x.device) * x.shape[axis] // size)
        if not x.is_floating_point():
            return resized
        shares = torch.rand(list(shape), generator=torch.Generator().manual_seed(0), dtype=x.dtype).to(x.device)
        # A constant may well be just of the right shape.
        return shares if bool((x == x.flatten()[0]).all()) else resized * (1 - shares / 5)

    def results(self, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """What the module computes.

        Raises:
            RefusedError: it fails.
        """
        # What it changes are copies; of parameters only until it is known that there are none.
        own = dict(self._step.named_buffers()) | ({} if self.changed == [] else dict(self._step.named_parameters()))
        with (
            torch.random.fork_rng(devices=[]),
            torch.enable_grad(),
            attributes_kept(self._step),
            eagerly(),
            Plainly(),
        ):
            copies = copied_weights(self._step, parameters=self.changed != [])
            try:
                results: Sequence[Tensor] = self._step(*(x.clone() for x in inputs))
            except Exception as error:
                raise RefusedError from error
        buffers = {id(buffer) for buffer in self._step.buffers() if not buffer.is_complex()}
        changed = [
            name for name, value in own.items() if id(value) not in buffers and not _equal(copies[id(value)], value)
        ]
        self.changed = self.changed or [name.removeprefix("module.") for name in changed]
        return results


def _equal(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a.detach(), b.detach(), rtol=0, atol=0, equal_nan=True)
