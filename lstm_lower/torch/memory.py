"""What a module remembers from one call to the next in other places than parameters and buffers."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lstm_lower.errors import UnsupportedOpError, some
from lstm_lower.replacement import all_replaced
from lstm_lower.torch.interface import ModuleOperands, copied_weights, named_tensors

# The least number that is drawn between 0 and 1, and the largest.
_EXTREMES = (0.0, 1 - 2.0**-53)


class Memory:
    """A module before its first call.

    A step has buffers as its state. What else a module keeps, such as `self.hidden`, is as it was before in each step:
    right for a cache or a flag, wrong where the next result depends on it.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._attributes = self._held()
        self._buffers = [(part._buffers, dict(part._buffers)) for part in module.modules()]
        copied_weights(module)
        self._drawn = _drawn()
        # The global generators are what modules draw from.
        self._random = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002

    def check(self, result: Any, operands: ModuleOperands) -> None:
        """Calls the module a second time, with the buffers and random numbers of the first.

        Args:
            result: what the first call returned.
            operands: its example inputs.

        Raises:
            UnsupportedOpError: the second result is another one, by something that the first call left in the module,
                or by random numbers that a step cannot draw.
        """
        first = [tensor.detach().clone() for _, tensor in named_tensors("", result)]
        if _drawn() != self._drawn:
            self._check_draws(operands)
        changed = [name for name, value in self._held().items() if self._attributes.get(name) != value]
        if not changed or _all_alike(first, self._again(operands)):
            return
        # Layers of PyTorch keep lists of their weights, which say nothing here.
        public = [name for name in changed if not name.rpartition(".")[2].startswith("_")]
        raise UnsupportedOpError(
            f"{type(self._module).__name__} requires results that follow from inputs, parameters and buffers, got "
            f"others in a second call with the same inputs, since forward changes {some(public or changed)}; a buffer "
            "(self.register_buffer(name, tensor)) in its place is a part of a step's state, and an input with an "
            "output is one of your own"
        )

    def _check_draws(self, operands: ModuleOperands) -> None:
        """Refuses numbers of Python and numpy on which results depend; many are drawn in vain."""
        found: list[list[Tensor]] = []
        for number, share in enumerate(_EXTREMES, 1):
            with _drawing(share), contextlib.suppress(Exception):
                found.append(self._again(operands))
            others = _drawn() != self._drawn
            self._restore()
            if others or len(found) < number or not _all_alike(found[0], found[-1]):
                raise UnsupportedOpError(
                    f"{type(self._module).__name__} requires random numbers of PyTorch, got results that may depend on "
                    "those of Python's random or of numpy, of which each step would have the one that was drawn now; "
                    "draw them by torch.rand, and choose by torch.where in place of a branch; checks of beartype, "
                    "which draw, too, are off in `python -O`"
                )

    def _restore(self) -> None:
        python, numpy, own = self._random
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
        torch.set_rng_state(own)

    def _again(self, operands: ModuleOperands) -> list[Tensor]:
        """What another call returns."""
        for held, before in self._buffers:
            held.update(before)
        copied_weights(self._module)
        self._restore()
        args, kwargs = operands.filled([tensor.clone() for tensor in operands.tensors])
        return [tensor.detach().clone() for _, tensor in named_tensors("", self._module(*args, **kwargs))]

    def _held(self) -> dict[str, Any]:
        """Name -> the identity of an attribute, and of what a container holds."""
        return {
            f"{path}.{key}" if path else key: _identities(value)
            for path, part in self._module.named_modules()
            for key, value in vars(part).items()
            if key not in ("_parameters", "_buffers", "_modules")
        }


def _identities(value: Any) -> Any:
    """Numbers as they are; what may be changed by what it holds, too."""
    if isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Tensor):
        return id(value), value._version
    if isinstance(value, dict):
        return id(value), tuple((id(key), id(part)) for key, part in value.items())
    return (id(value), tuple(map(id, value))) if isinstance(value, (list, tuple, set)) else id(value)


def _all_alike(first: list[Tensor], second: list[Tensor]) -> bool:
    return len(first) == len(second) and all(map(_alike, first, second))


def _alike(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return not a.is_floating_point() or torch.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)


def _drawn() -> tuple[Any, ...]:
    """What the next numbers follow from."""
    numpy: Any = np.random.get_state()  # noqa: NPY002
    kind, keys, *rest = numpy
    return random.getstate(), kind, keys.tobytes(), *rest


def _drawing(share: float) -> contextlib.AbstractContextManager[None]:
    """Lets equally distributed numbers between two bounds lie as far from the lower one as is said."""

    def between(low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Any:
        found = low + (high - low) * share
        return found if size is None else np.broadcast_to(found, size).copy()

    def shaped(*shape: int) -> Any:
        return between(size=shape or None)

    def sized(size: Any = None) -> Any:
        return between(size=size)

    return all_replaced(
        (random, "random", lambda: share),
        (random, "uniform", between),
        (np.random, "rand", shaped),
        (np.random, "random", sized),
        (np.random, "random_sample", sized),
        (np.random, "uniform", between),
    )
