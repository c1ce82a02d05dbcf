"""Definitions of onnxruntime-training's ops that move, look up and sum.

Signatures: the operator schemas of onnxruntime-training 1.19. `shape` is the shape of the forward op's operand.
"""

from __future__ import annotations

from lstm_lower.dims import Dim
from lstm_lower.opdef import Call, DType, TensorInfo, attr, operand
from lstm_lower.ops.ort_elementwise import MicrosoftOp, TrainingOp
from lstm_lower.ops.raw import EVERYTHING, FLOATS, count_axis, length_of, numbers, said, shape_of

_INDEX = ("int32", "int64")


class BroadcastGradientArgs(TrainingOp):
    """The axes over which the gradients of two operands that were broadcast are summed."""

    class Types:
        T = ("int64",)

    class Inputs:
        s0 = operand("M")
        s1 = operand("N")

    class Outputs:
        r0 = operand(None)
        r1 = operand(None)

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """Vectors whose lengths depend on the values."""
        return [TensorInfo(call.types["T"], (None,))] * 2


class _Looking(TrainingOp, abstract=True):
    """The gradient of a look-up: zeros of the operand's shape into which rows are added."""

    class Types:
        T = FLOATS
        Tind = _INDEX

    class Outputs:
        dX = operand(None)

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """As `shape` says."""
        return [TensorInfo(call.types.get("T"), said(call, "shape"))]


class GatherGrad(_Looking):
    """Gradient of Gather."""

    class Inputs:
        shape = operand("R", "int64")
        indices = operand(None, "Tind")
        dY = operand(None)

    class Attrs:
        axis = attr(int, 0)


class GatherElementsGrad(_Looking):
    """Gradient of GatherElements."""

    class Inputs:
        dY = operand("*S")
        shape = operand("R", "int64")
        indices = operand("*S", "Tind")

    class Attrs:
        axis = attr(int, 0)


class GatherNDGrad(_Looking):
    """Gradient of GatherND."""

    class Inputs:
        shape = operand("R", "int64")
        indices = operand(None, "Tind")
        dY = operand(None)

    class Attrs:
        batch_dims = attr(int, 0)


class SliceGrad(_Looking):
    """Gradient of Slice."""

    class Inputs:
        dY = operand(None)
        shape = operand("R", "int64")
        starts = operand("A", "Tind")
        ends = operand("A", "Tind")
        axes = operand("A", "Tind", optional=True)
        steps = operand("A", "Tind", optional=True)


class ConcatTraining(TrainingOp):
    """Arrays joined along an axis, and the size that each has there."""

    class Types:
        T = EVERYTHING

    class Inputs:
        inputs = operand(None, variadic=True)

    class Outputs:
        concat_result = operand(None)
        per_input_length = operand(None, "int64")

    class Attrs:
        axis = attr(int)

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """The sum of the sizes."""
        infos = call.lists["inputs"]
        shapes = [info.shape for info in infos]
        result = None
        if shapes and all(shape is not None for shape in shapes):
            known = [shape for shape in shapes if shape is not None]
            axis = count_axis(call, "attribute axis", call.attributes["axis"], len(known[0]))
            sizes = [shape[axis] if axis < len(shape) else None for shape in known]
            whole: list[Dim] = list(known[0])
            whole[axis] = sum(dim for dim in sizes if isinstance(dim, int))
            if not all(isinstance(dim, int) for dim in sizes):
                whole[axis] = None
            result = tuple(whole)
        return [TensorInfo(call.types.get("T"), result), TensorInfo(DType.INT64, (len(infos),))]


class SplitTraining(TrainingOp):
    """An array divided along an axis into parts of given sizes."""

    class Types:
        T = EVERYTHING

    class Inputs:
        input = operand(None)
        split = operand("N", "int64")

    class Outputs:
        outputs = operand(None, variadic=True)

    class Attrs:
        axis = attr(int, 0)

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """One for each size."""
        shape, sizes = shape_of(call, "input"), numbers(call, "split")
        count = length_of(call, "split")
        if count is None:
            raise call.error("split", "a known length", "none")
        if shape is None:
            return [TensorInfo(call.types.get("T"), None)] * count
        axis = count_axis(call, "attribute axis", call.attributes["axis"], len(shape))
        infos = []
        for index in range(count):
            part = list(shape)
            part[axis] = None if sizes is None else sizes[index]
            infos.append(TensorInfo(call.types.get("T"), tuple(part)))
        return infos


class ReduceSumTraining(TrainingOp):
    """A sum over axes."""

    class Types:
        T = (*FLOATS, "int32", "int64")

    class Inputs:
        data = operand(None)
        axes = operand("A", "int64")

    class Outputs:
        reduced = operand(None)

    class Attrs:
        keepdims = attr(int, 1, choices=(0, 1))
        noop_with_empty_axes = attr(int, 0, choices=(0, 1))


class FusedMatMul(MicrosoftOp):
    """alpha times the product of matrices, each transposed first where so asked."""

    class Inputs:
        A = operand(None)
        B = operand(None)

    class Outputs:
        Y = operand(None)

    class Attrs:
        alpha = attr(float, 1.0)
        transA = attr(int, 0, choices=(0, 1))
        transB = attr(int, 0, choices=(0, 1))
        transBatchA = attr(int, 0, choices=(0, 1))
        transBatchB = attr(int, 0, choices=(0, 1))


class TransposeMatMul(FusedMatMul):
    """FusedMatMul under the name that it had before."""

    class Attrs:
        alpha = attr(float, 1.0)
        transA = attr(int, 0, choices=(0, 1))
        transB = attr(int, 0, choices=(0, 1))


class ReduceAllL2(TrainingOp):
    """The Euclidean norm over all elements of all operands."""

    class Inputs:
        X = operand(None, variadic=True)

    class Outputs:
        Y = operand("")
