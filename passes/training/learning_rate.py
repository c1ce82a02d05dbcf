"""A learning rate that is a constant of the graph becomes an input."""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from lstm_lower.errors import InvalidInputError, InvalidModelError
from lstm_lower.graph.standard.base import constant_of
from lstm_lower.passes.base import Pass
from lstm_lower.passes.training.step import TrainingStep
from lstm_lower.records import state as training_state


@dataclasses.dataclass
class LearningRateInputPass(Pass):
    """Makes a scalar constant the input `learning_rate`, with the constant as its default.

    Attributes:
        value: name of the constant (an initializer or a Constant node's output) or of an input.
    """

    value: str

    def __post_init__(self) -> None:
        super().__init__()
        if not isinstance(self.value, str):
            raise InvalidInputError(f"learning_rate_input requires a name, got {self.value!r}")

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Edits the graph.

        Raises:
            InvalidModelError: there is no such value, or it is no floating-point scalar constant.
        """
        step = TrainingStep(model, training_state.of(model))
        name = self.value
        if name not in step.inputs:
            old = _find(model, name)
            constant = constant_of(old)
            if old is None or constant is None or constant.size != 1 or constant.dtype.kind != "f":
                what = "none" if old is None else "another value"
                raise InvalidModelError(f"learning rate '{name}' requires a scalar constant of that name, got {what}")
            new = step.add_input("learning_rate" if name != "learning_rate" else "learning_rate_input", constant)
            old.replace_all_uses_with(new)
            assert new.name is not None
            name = new.name
        step.state = dataclasses.replace(step.state, learning_rate=name)
        step.save()
        return ir.passes.PassResult(model, modified=True)


def _find(model: ir.Model, name: str) -> ir.Value | None:
    if name in model.graph.initializers:
        return model.graph.initializers[name]
    return next((value for node in model.graph for value in node.outputs if value.name == name), None)
