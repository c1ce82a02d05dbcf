"""Definitions of onnxruntime-training's accumulators and optimizers, which change operands in place.

Signatures: the operator schemas of onnxruntime-training 1.19. What is changed is an output here, too. Optimizers take
sequences of tensors, one for each weight.
"""

from __future__ import annotations

from lstm_lower.opdef import Call, DType, TensorInfo, attr, operand
from lstm_lower.ops.ort_elementwise import TrainingOp


class InPlaceAccumulator(TrainingOp):
    """The sum of an accumulator and a value; the accumulator alone where the signal says so."""

    class Inputs:
        old_sum = operand("*S")
        value = operand("*S")
        update_signal = operand(None, "bool", optional=True)

    class Outputs:
        new_sum = operand("*S")


class InPlaceAccumulatorV2(TrainingOp):
    """The sum of an accumulator and a value; the value alone where the flag says so."""

    class Inputs:
        accumulation_buffer = operand("*S")
        value = operand("*S")
        overwrite_flag = operand(None, "bool", optional=True)

    class Outputs:
        updated_flag = operand("1", "bool")
        accumulation_buffer_out = operand("*S")


class _Optimizer(TrainingOp, abstract=True):
    """An op that changes weights."""

    class Types:
        pass

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """A flag, and sequences."""
        return [TensorInfo(DType.BOOL, (1,)), *(TensorInfo(None, None) for _ in cls.outputs[1:])]


class InplaceClipGradNorm(TrainingOp):
    """Gradients times one factor, so that the norm of all their elements together is at most `max_norm`."""

    class Inputs:
        gradients = operand(None, "float32", sequence=True)

    class Outputs:
        clipped_gradients = operand(None, "float32", sequence=True)

    class Attrs:
        max_norm = attr(float, 1.0)
        norm_type = attr(str, "fro", choices=("fro",))

    class Types:
        pass

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """A sequence."""
        return [TensorInfo(None, None)]


class SGDOptimizerV2(_Optimizer):
    """weight - rate * gradient."""

    class Inputs:
        learning_rate = operand(None, "float32")
        weights = operand(None, "float32", sequence=True)
        gradients = operand(None, "float32", sequence=True)
        update_signal = operand(None, "bool", optional=True)

    class Outputs:
        update_completed = operand("1", "bool")
        updated_weights = operand(None, "float32", sequence=True)


class AdamWOptimizer(_Optimizer):
    """Adam with weight decay apart (Loshchilov and Hutter, 2019), as PyTorch (mode 0) or as Hugging Face has it (1)."""

    class Inputs:
        learning_rate = operand(None, "float32")
        step = operand(None, "int64")
        weights = operand(None, "float32", sequence=True)
        gradients = operand(None, "float32", sequence=True)
        momentums_1 = operand(None, "float32", sequence=True)
        momentums_2 = operand(None, "float32", sequence=True)
        update_signal = operand(None, "bool", optional=True)

    class Outputs:
        updated_flag = operand("1", "bool")
        updated_weights = operand(None, "float32", sequence=True)
        updated_momentums_1 = operand(None, "float32", sequence=True)
        updated_momentums_2 = operand(None, "float32", sequence=True)

    class Attrs:
        adam_mode = attr(int, 0, choices=(0, 1))
        alpha = attr(float, 0.9)
        beta = attr(float, 0.999)
        correct_bias = attr(int, 1, choices=(0, 1))
        epsilon = attr(float, 1e-8)
        weight_decay = attr(float, 0.0)
