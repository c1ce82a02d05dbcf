"""Axes that a trace alone fixes: a loop in Python is written out step by step, a size is taken as a number.

PyTorch records where the module's code did so. Whether nobody else needs the size, a run of the module tells.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lstm_lower.torch.axes import BY_ITSELF, OF_PICTURES, Axes
from lstm_lower.torch.interface import Step
from lstm_lower.torch.pytorch_errors import is_users
from lstm_lower.torch.trials import RefusedError, Trials

# Input and axis.
Place = tuple[str, int]


@dataclasses.dataclass(frozen=True)
class TracedSteps:
    """A module with its trace and its example.

    Attributes:
        step: the module.
        program: its trace.
        names: of its inputs.
        tensors: the example.
    """

    step: Step
    program: torch.export.ExportedProgram
    names: Sequence[str]
    tensors: Sequence[Tensor]

    def left_open(self, fixed: Axes) -> Axes:
        """Fixed axes that forward itself leaves open, and where its code, or PyTorch's, fixes them.

        The module runs where there are more of them: of one axis, of the same axis of all inputs of this size, or of
        all axes of this size.

        Args:
            fixed: input -> axis that has the example's size -> why, as far as the trace tells.
        """
        told = [(name, axis, why) for name, axes in fixed.items() for axis, why in axes.items() if why != OF_PICTURES]
        said = self._said() if any(why == BY_ITSELF for _, _, why in told) else {}
        found: Axes = {}
        for name, axis, why in told:
            larger = self._larger(name, axis)
            if larger is None:
                continue
            if why == BY_ITSELF:
                why = said.get((name, axis), f"forward takes {larger}, too, and its trace this size alone")
            found.setdefault(name, {})[axis] = why
        return found

    def _said(self) -> dict[Place, str]:
        """What the module's code does with the sizes that PyTorch has fixed on its behalf."""
        fakes = [node.meta["val"] for node in self.program.graph.nodes if node.op == "placeholder"]
        environment = next((x.fake_mode.shape_env for x in fakes if getattr(x, "fake_mode", None)), None)
        found: dict[Place, str] = {}
        if environment is None:
            return found
        axes = self._axes_of_symbols(environment)
        for guard in environment.guards:
            where, symbols = guard.sloc.framework_loc, guard.expr.free_symbols & axes.keys()
            if where is None or len(symbols) != 1:
                continue
            place = axes[symbols.pop()]
            path = Path(where.filename)
            if is_users(path) and path.is_file():
                code = (where.line or "").strip()
                found.setdefault(place, f"{path.name}:{where.lineno} takes it as a number: {code}")
        return found

    def _axes_of_symbols(self, environment: Any) -> dict[Any, Place]:
        """Symbol -> input and axis whose size it is."""
        found = {}
        for symbol, sources in environment.var_to_sources.items():
            for source in sources:
                number, axis = getattr(getattr(source, "base", None), "index", None), getattr(source, "idx", None)
                if isinstance(number, int) and isinstance(axis, int):
                    found[symbol] = self.names[number], axis
        return found

    def _size(self, name: str, axis: int) -> int:
        return self.tensors[list(self.names).index(name)].shape[axis]

    def _larger(self, name: str, axis: int) -> int | None:
        """A larger size with which the module runs, perhaps one of several axes of this size; some take multiples."""
        size = self._size(name, axis)
        equal = [
            (other, number)
            for other, x in zip(self.names, self.tensors, strict=True)
            for number, count in enumerate(x.shape)
            if count == size
        ]
        groups = ([(name, axis)], [place for place in equal if place[1] == axis], equal)
        # One of size 1 may be repeated, and of size 3 by accident, too.
        sizes = (size + 1, size + 2, 2 * size) if size > 1 else (2,)
        tried = ((larger, group) for larger in sizes for group in groups)
        return next((larger for larger, group in tried if self._runs(dict.fromkeys(group, larger))), None)

    def _runs(self, sizes: Mapping[Place, int]) -> bool:
        """Whether the module runs where some axes have other sizes."""
        trials = Trials(self.step, self.tensors)
        shapes = (
            [sizes.get((name, axis), size) for axis, size in enumerate(x.shape)]
            for name, x in zip(self.names, self.tensors, strict=True)
        )
        try:
            trials.results([trials.resized(number, shape) for number, shape in enumerate(shapes)])
        except RefusedError:
            return False
        return True
