"""A module run as it is, at sizes of our choosing: whether it takes them, and what it computes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

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
        parameters = self.changed != [] or self._step.moves
        own = dict(self._step.named_buffers()) | (dict(self._step.named_parameters()) if parameters else {})
        with undone(self._step):
            copies = copied_weights(self._step, parameters=parameters)
            results = self._run(inputs)
        states = {id(state) for state in self._step.states().values() if not state.is_complex()}
        changed = [
            name for name, value in own.items() if id(value) not in states and not _equal(copies[id(value)], value)
        ]
        self.changed = self.changed or [name.removeprefix("module.") for name in changed]
        return results

    def moved(self) -> list[str]:
        """Names of parameters that the module changes in place, also if it does not at their present values.

        A moving average is equal to what it begins as a copy of, and bounds may be far away.
        """
        kept = {name: x for name, x in self._step.named_parameters() if x.is_floating_point()}
        with undone(self._step):
            copied_weights(self._step, parameters=True)
            own = {name: x for name, x in self._step.named_parameters() if name in kept}
            with torch.no_grad():
                for number, (name, x) in enumerate(own.items()):
                    x.copy_(_elsewhere(kept[name], number))
            versions = {name: x._version for name, x in own.items()}
            try:
                self._run(self.tensors)
            except RefusedError:
                return []
        # Made anew one by one, they take less memory than copies of all.
        return [
            name.removeprefix("module.")
            for number, (name, x) in enumerate(own.items())
            if x._version != versions[name] or not _equal(_elsewhere(kept[name], number), x)
        ]

    def _run(self, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        try:
            results: Sequence[Tensor] = self._step(*(x.clone() for x in inputs))
        except Exception as error:
            raise RefusedError from error
        return results


@contextlib.contextmanager
def undone(step: Step) -> Iterator[None]:
    """Runs a module as it is written; random numbers, and what it sets on itself, are as they were afterwards."""
    with torch.random.fork_rng(devices=[]), torch.enable_grad(), attributes_kept(step), eagerly(), Plainly():
        yield


def _elsewhere(x: Tensor, number: int) -> Tensor:
    """Other values, for each number others and always the same."""
    shares = torch.rand(2, generator=torch.Generator().manual_seed(number)).tolist()
    along = torch.linspace(0, 1, x.numel(), device=x.device).reshape(x.shape).to(x.dtype)
    other: Tensor = x.detach() * (2 + shares[0] * along) + (shares[1] + along)
    return other


def _equal(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a.detach(), b.detach(), rtol=0, atol=0, equal_nan=True)
