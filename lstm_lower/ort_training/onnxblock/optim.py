"""Optimizers as blocks, which make the model that updates weights."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

import onnx
from onnx import helper

from lstm_lower.errors import InvalidInputError
from lstm_lower.ops import ort_updates as ops
from lstm_lower.ops.ort_elementwise import MICROSOFT
from lstm_lower.ort_training.onnxblock.accessor import add_node
from lstm_lower.ort_training.onnxblock.blocks import Block
from lstm_lower.ort_training.onnxblock.building import ForwardBlock

# What every optimizer's model takes; further inputs are sequences with one value per weight, zeros at first.
LEARNING_RATE, STEP, PARAMETERS, GRADIENTS = "learning_rate", "step", "params", "gradients"
FIRST_MOMENTS, SECOND_MOMENTS = "first_order_moments", "second_order_moments"


class ClipGradNorm(Block):
    """Scales all gradients by one factor so that their norm is at most a limit."""

    def __init__(self, max_norm: float) -> None:
        super().__init__()
        self._max_norm = max_norm

    def build(self, gradients_name: str) -> str:
        """Adds the node; takes and returns the name of a sequence."""
        name = add_node(
            ops.InplaceClipGradNorm.op_type,
            [gradients_name],
            "clip_grad_norm_output",
            domain=MICROSOFT,
            max_norm=float(self._max_norm),
        )
        declared = helper.make_tensor_sequence_value_info(name, onnx.TensorProto.FLOAT, None)
        self.base.graph.value_info.append(declared)
        return name


class _Optimizer(ForwardBlock):
    """Inputs, the clipping of gradients, and one node of an optimizer."""

    def __init__(self, clip_grad: Block | None = None) -> None:
        super().__init__()
        self._clip_grad = clip_grad

    @property
    def slots(self) -> tuple[str, ...]:
        """Names of what is kept per weight."""
        return ()

    def build(self, parameters: tuple[Sequence[onnx.TensorProto], Sequence[onnx.TensorProto]]) -> str:
        """Adds the inputs and nodes.

        Args:
            parameters: trainable ones and others, as `TrainingBlock.parameters` gives them.

        Returns:
            The name of a flag that says that weights were updated.
        """
        trainable, _ = parameters
        if not trainable:
            raise InvalidInputError("an optimizer requires parameters that are trained, got none")
        others = [weight for weight in trainable if weight.data_type != onnx.TensorProto.FLOAT]
        if others:
            dtype = onnx.TensorProto.DataType.Name(others[0].data_type).lower()
            raise InvalidInputError(f"an optimizer requires parameters in float32, got '{others[0].name}' in {dtype}")
        inputs = [helper.make_tensor_value_info(LEARNING_RATE, onnx.TensorProto.FLOAT, [1])]
        inputs.append(helper.make_tensor_value_info(STEP, onnx.TensorProto.INT64, [1]))
        sequences = (PARAMETERS, GRADIENTS, *self.slots)
        inputs += [helper.make_tensor_sequence_value_info(name, onnx.TensorProto.FLOAT, None) for name in sequences]
        self.base.graph.input.extend(inputs)
        gradients = GRADIENTS if self._clip_grad is None else self._clip_grad(GRADIENTS)
        flag = self.updated(gradients)
        self.base.graph.output.append(helper.make_tensor_value_info(flag, onnx.TensorProto.BOOL, [1]))
        return flag

    @abc.abstractmethod
    def updated(self, gradients: str) -> str:
        """Adds the optimizer's node."""


class AdamW(_Optimizer):
    """Adam with decoupled weight decay, in the form of Hugging Face's transformers."""

    def __init__(
        self,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        clip_grad: Block | None = None,
    ) -> None:
        """Makes the optimizer.

        Args:
            bias_correction: divide means by what they lack in the first steps.
            betas: decay of the means of gradients and of their squares.
            eps: keeps the division defined.
            weight_decay: in units of the learning rate.
            clip_grad: a `ClipGradNorm`, or a block of one's own from a sequence to a sequence.
        """
        super().__init__(clip_grad)
        self._attributes: dict[str, Any] = {
            "alpha": float(betas[0]),
            "beta": float(betas[1]),
            "epsilon": float(eps),
            "weight_decay": float(weight_decay),
            "correct_bias": int(bias_correction),
            "adam_mode": 1,
        }

    @property
    def slots(self) -> tuple[str, ...]:
        return FIRST_MOMENTS, SECOND_MOMENTS

    def updated(self, gradients: str) -> str:
        operands = [LEARNING_RATE, STEP, PARAMETERS, gradients, *self.slots]
        op = ops.AdamWOptimizer.op_type
        return add_node(op, operands, "adamw.updated_flag", domain=MICROSOFT, **self._attributes)


class SGD(_Optimizer):
    """Gradient descent."""

    def updated(self, gradients: str) -> str:
        operands = [LEARNING_RATE, PARAMETERS, gradients]
        return add_node(ops.SGDOptimizerV2.op_type, operands, "update_completed", domain=MICROSOFT)
