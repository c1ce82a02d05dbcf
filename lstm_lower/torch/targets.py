"""Targets of a step and its module beside each other: the example's, or others as large as results ask for."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from torch import Tensor

from lstm_lower.graph.values import declared_shape
from lstm_lower.passes.training.losses import Loss
from lstm_lower.runtime.proof.certification import NotComparedError
from lstm_lower.torch import losses
from lstm_lower.torch.trials import resized

# Targets that nobody gave an example of lie between these: what probabilities, counts and plain numbers may be.
_LOWEST, _HIGHEST = 0.25, 0.75


@dataclasses.dataclass
class Targets:
    """Targets of a step.

    Attributes:
        step: the step.
        formula: our formula of its loss, or an output's name.
        measure: the loss in PyTorch; `None` where the module returns it.
        values: the targets.
        example: those of the example where sizes are others than its, or nothing.
        predicted: the shape of the example's prediction.
    """

    step: ir.Model
    formula: Loss | str
    measure: Callable[..., Any] | None
    values: Sequence[Tensor]
    example: Sequence[Tensor] = ()
    predicted: Sequence[int] = ()

    @property
    def shapes(self) -> list[Sequence[int]]:
        """Their shapes."""
        return [x.shape for x in self.values]

    def resized(self, values: Sequence[Tensor]) -> Targets:
        """The same where sizes are others than the example's."""
        return dataclasses.replace(self, values=values, example=self.values)

    def fit(self, beside: Mapping[str, Tensor], prediction: Tensor | None = None) -> None:
        """Makes them as large as a step declares, where nobody gave them.

        Args:
            beside: inputs and outputs of the step, whose sizes tell those of targets.
            prediction: the first result.

        Raises:
            NotComparedError: nothing tells their sizes.
        """
        # A formula follows the results, whose sizes are open where a step declares them so.
        if isinstance(self.formula, Loss) and (not self.values or (prediction is not None and self.example)):
            fitting = self._fitting(self.formula, beside, prediction)
            # The step may declare less than the module returns; where it does not, draws that are given change nothing.
            self.values = self.values if [x.shape for x in fitting] == self.shapes else fitting

    def loss(self, result: Any, shape: Sequence[int]) -> Any:
        """The loss of a result, with targets as large as predictions where it refuses others and the example's are so.

        Args:
            result: what the module returns.
            shape: of the prediction.
        """
        assert self.measure is not None
        if not self.example:
            self.predicted = shape
        try:
            return self.measure(result, *(x.clone() for x in self.values))
        except Exception:
            pairs = zip(self.example, self.values, strict=False)
            fitting = [resized(x, shape) if x.shape == self.predicted else y for x, y in pairs]
            if not self.example or [x.shape for x in fitting] == self.shapes:
                raise
            self.values = fitting
            return self.measure(result, *(x.clone() for x in fitting))

    def _fitting(self, loss: Loss, beside: Mapping[str, Tensor], prediction: Tensor | None) -> Sequence[Tensor]:
        """Targets like examples, or else with numbers that the step's loss takes.

        Their sizes are those that the loss says of results, or that the step declares; what neither tells stays.
        """
        inputs = {str(value.name): value for value in self.step.graph.inputs}
        values = {**{str(value.name): value for value in self.step.graph.outputs}, **inputs}
        sizes = {
            dim: size
            for name, x in beside.items()
            for dim, size in zip((name in values and declared_shape(values[name])) or (), x.shape, strict=False)
            if isinstance(dim, str)
        }
        said = [] if prediction is None else losses.target_shapes(loss, prediction)
        fitting: list[Tensor] = []
        for number in itertools.count():
            value = inputs.get(f"target_{number}") or (inputs.get("target") if number == 0 else None)
            if value is None:
                break
            declared = declared_shape(value) or ()
            told = [
                said[number] if number < len(said) and len(said[number]) == len(declared) else (),
                [sizes.get(dim) if isinstance(dim, str) else dim for dim in declared],
                self.example[number].shape if self.example else (),
            ]
            known = ([size for size in each if isinstance(size, int)] for each in zip(*filter(None, told), strict=True))
            shape = [size for each in known for size in each[:1]]
            if len(shape) < len(declared) or value.dtype is None:
                raise NotComparedError(f"example_targets are required, whose shapes '{value.name}' does not tell")
            if self.example:
                fitting.append(resized(self.example[number], shape))
            else:
                assert prediction is not None
                fitting.append(_of_numbers(value.dtype, shape, prediction))
        return fitting


def _of_numbers(dtype: ir.DataType, shape: Sequence[int], prediction: Tensor) -> Tensor:
    if dtype.is_floating_point():
        shares = torch.rand(list(shape), generator=torch.Generator().manual_seed(1))
        return (_LOWEST + (_HIGHEST - _LOWEST) * shares).to(torch.from_numpy(np.zeros(0, dtype.numpy())).dtype)
    classes = prediction.shape[1] if prediction.dim() > 1 else prediction.numel()
    return (torch.arange(int(np.prod(shape))) % max(classes, 1)).reshape(list(shape)).to(torch.int64)
