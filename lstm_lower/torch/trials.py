"""A module run as it is, at sizes of our choosing: whether it takes them, and what it computes."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from lstm_lower.records.lengths import Place
from lstm_lower.torch.aten.changes import written
from lstm_lower.torch.aten.storage import memory
from lstm_lower.torch.control_flow import Plainly
from lstm_lower.torch.interface import Step, attributes_kept, copied_weights
from lstm_lower.torch.modes import Args, FunctionMode, Kwargs, OperatorMode
from lstm_lower.torch.wrappers import eagerly


class RefusedError(Exception):
    """The module itself does not take inputs of such sizes; its error is the cause."""


class Writes(OperatorMode):
    """Finds which tensors are written into, and undoes it afterwards.

    Attributes:
        written: names of those that are.
    """

    def __init__(self, watched: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._watched = watched
        self._data = {name: x.data for name, x in watched.items()}
        self._versions = {name: x._version for name, x in watched.items()}
        self._names: dict[int, list[str]] = {}
        for name, x in watched.items():
            self._names.setdefault(memory(x), []).append(name)
        # Values before the first write: most modules write into none.
        self._before: dict[str, Tensor] = {}
        self.written: list[str] = []

    def on_call(self, func: Any, args: Args, kwargs: Kwargs) -> Any:
        """Keeps what a call is about to change."""
        for x in tree_leaves(written(func, args, kwargs)):
            for name in self._names.get(memory(x), ()) if isinstance(x, Tensor) else ():
                self._before.setdefault(name, self._data[name].clone())
        return func(*args, **kwargs)

    def __exit__(self, *error: object) -> None:
        """Puts values back, and takes down whose they are."""
        super().__exit__(*error)
        for name, x in self._watched.items():
            replaced = memory(x) != memory(self._data[name])
            if replaced or name in self._before or x._version != self._versions[name]:
                self.written.append(name)
            if replaced:
                x.data = self._data[name]
            if name in self._before:
                self._data[name].copy_(self._before[name])


def resized(x: Tensor, shape: Sequence[int]) -> Tensor:
    """An input with values like an example's, each part of it repeated, so that what is sorted stays so."""
    if x.numel() == 0 or list(shape) == list(x.shape):
        return x
    repeated = x
    for axis, size in enumerate(shape):
        repeated = repeated.index_select(axis, torch.arange(size, device=x.device) * x.shape[axis] // size)
    if not x.is_floating_point():
        return repeated
    shares = torch.rand(list(shape), generator=torch.Generator().manual_seed(0), dtype=x.dtype).to(x.device)
    # A constant may well be just of the right shape; whole numbers are often flags.
    constant, whole = (bool((x == each).all()) for each in (x.flatten()[0], x.round()))
    return shares if constant else repeated if whole else repeated * (1 - shares / 5)


def of_fewer(inputs: Sequence[Tensor], shares: Iterable[Fraction]) -> list[Tensor]:
    """Inputs whose positive whole numbers, such as lengths and places, are less by the least share of some sizes."""
    share = min(shares, default=Fraction(1))
    less = (torch.int32, torch.int64) if share < 1 else ()
    part, whole = share.as_integer_ratio()
    return [torch.where(x > 0, (x * part // whole).clamp(1), x) if x.dtype in less else x for x in inputs]


# Which axes have one size: one, the same axis of several inputs, or all.
FORMS = ALONE, SAME_AXIS, SAME_SIZE = range(3)


class Trials:
    """Runs of a module on inputs like an example. The module stays as it is.

    Attributes:
        sizes: input and axis -> its size in the example.
        results_count: how many tensors the module returns there, once it has run.
    """

    def __init__(self, step: Step, names: Sequence[str], tensors: Sequence[Tensor]) -> None:
        """Of a module, and perhaps its loss, the names of its inputs, and the example."""
        self._step, self._inputs = step, dict(zip(names, tensors, strict=True))
        self.sizes = {(name, axis): size for name, x in self._inputs.items() for axis, size in enumerate(x.shape)}
        self.results_count = 0

    def group(self, form: int, place: Place, sizes: Collection[int]) -> list[Place]:
        """Axes of some sizes that may have one size with an axis."""
        return [
            each
            for each, size in self.sizes.items()
            if each == place or (size in sizes and (form == SAME_SIZE or (form == SAME_AXIS and each[1] == place[1])))
        ]

    def at(self, sizes: Mapping[Place, int]) -> list[Tensor]:
        """The example where some axes have other sizes."""
        return [
            resized(x, [sizes.get((name, axis), size) for axis, size in enumerate(x.shape)])
            for name, x in self._inputs.items()
        ]

    def takes(self, sizes: Mapping[Place, int]) -> bool:
        """Whether the module runs where some axes have other sizes."""
        with contextlib.suppress(RefusedError):
            self.results(self.at(sizes))
            return True
        return False

    def results(self, inputs: Sequence[Tensor], mode: FunctionMode | OperatorMode | None = None) -> Sequence[Tensor]:
        """What the module computes, under a mode.

        Raises:
            RefusedError: it fails.
        """
        with undone(self._step, parameters=bool(self._step.changed)), mode or contextlib.nullcontext():
            return self._run(inputs)

    def moved(self, mode: FunctionMode) -> list[str]:
        """Names of parameters, and of complex buffers, that the module writes into, run under a mode.

        That their values are others afterwards does not show it: a moving average is equal to what it begins as a copy
        of, and bounds may be far away.

        Raises:
            RefusedError: it fails.
        """
        with undone(self._step):
            complex_ones = {name: x for name, x in self._step.named_buffers() if x.is_complex()}
            with Writes({**dict(self._step.named_parameters()), **complex_ones}) as writes, mode:
                self.results_count = len(self._run([*self._inputs.values()]))
        return [name.removeprefix("module.") for name in writes.written]

    def _run(self, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        try:
            results: Sequence[Tensor] = self._step(*(x.clone() for x in inputs))
        except Exception as error:
            raise RefusedError from error
        return results


@contextlib.contextmanager
def undone(module: nn.Module, *, parameters: bool = False) -> Iterator[None]:
    """Runs a module as it is written, quietly, on copies of its buffers and perhaps of its parameters.

    Random numbers, and what it sets on itself, are as before afterwards.
    """
    drawn = torch.random.fork_rng(devices=[])
    with quiet(), drawn, torch.enable_grad(), attributes_kept(module), eagerly(), Plainly():
        copied_weights(module, parameters=parameters)
        yield


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps the notes of PyTorch and of a module to itself; what they cannot do is raised."""
    logger = logging.getLogger("torch")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        nowhere, unwarned = io.StringIO(), warnings.catch_warnings(action="ignore")
        with unwarned, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            yield
    finally:
        logger.setLevel(level)
