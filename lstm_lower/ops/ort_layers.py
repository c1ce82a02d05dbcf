"""Definitions of the gradients of layers, and of the losses, in onnxruntime-training.

Signatures: the operator schemas of onnxruntime-training 1.19. A gradient op has its forward op's attributes.
onnxruntime writes some of these ops in ONNX's own domain, which knows no such ops: `passes.training_graphs` moves them.
"""

from __future__ import annotations

from lstm_lower.opdef import Call, TensorInfo, attr, operand
from lstm_lower.ops.ort_elementwise import TrainingOp
from lstm_lower.ops.raw import FLOATS

# Ops that onnxruntime has in ONNX's own domain, where ONNX has no such ops.
IN_ONNX_DOMAIN = frozenset({"AveragePoolGrad", "MaxPoolGrad", "SimplifiedLayerNormalization"})


class Window:
    """Where a window lies on an image."""

    auto_pad = attr(str, "NOTSET")
    dilations = attr(list[int], [])
    kernel_shape = attr(list[int], [])
    pads = attr(list[int], [])
    strides = attr(list[int], [])


class ConvGrad(TrainingOp):
    """Gradients of Conv: of its image, its weights and its bias."""

    class Inputs:
        dY = operand(None)
        X = operand("*X")
        W = operand("C *W")

    class Outputs:
        dX = operand("*X")
        dW = operand("C *W")
        dB = operand("C")

    class Attrs(Window):
        group = attr(int, 1)


class ConvTransposeGrad(TrainingOp):
    """Gradients of ConvTranspose: of its image, its weights and its bias."""

    class Inputs:
        dY = operand(None)
        X = operand("*X")
        W = operand("*W")

    class Outputs:
        dX = operand("*X")
        dW = operand("*W")
        dB = operand("C")

    class Attrs(Window):
        group = attr(int, 1)
        output_padding = attr(list[int], [])
        output_shape = attr(list[int], [])

    @classmethod
    def verify(cls, call: Call) -> None:
        """Binds C, the channels of the result."""
        shape = call.operands["W"].shape
        if shape is not None and len(shape) > 1 and isinstance(shape[1], int):
            call.sizes["C"] = shape[1] * call.attributes["group"]


class _PoolGrad(TrainingOp, abstract=True):
    """A gradient whose shape nothing but the graph's own declaration says."""

    class Outputs:
        dX = operand(None)

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """Of the dtype of `dY`."""
        return [TensorInfo(call.types.get("T"), None)]


class MaxPoolGrad(_PoolGrad):
    """Gradient of MaxPool: each element is added where the largest one was found."""

    class Inputs:
        dY = operand("*S")
        Indices = operand("*S", "int64")

    class Attrs(Window):
        ceil_mode = attr(int, 0)
        storage_order = attr(int, 0, choices=(0,))


class AveragePoolGrad(_PoolGrad):
    """Gradient of AveragePool."""

    class Inputs:
        dY = operand(None)

    class Attrs(Window):
        ceil_mode = attr(int, 0)
        count_include_pad = attr(int, 0)


class ResizeGrad(TrainingOp):
    """Gradient of Resize."""

    class Types:
        T = FLOATS
        T1 = FLOATS

    class Inputs:
        dY = operand(None)
        X = operand("*X")
        roi = operand(None, "T1", optional=True)
        scales = operand(None, "float32", optional=True)

    class Outputs:
        dX = operand("*X")

    class Attrs:
        coordinate_transformation_mode = attr(str, "half_pixel")
        cubic_coeff_a = attr(float, -0.75)
        exclude_outside = attr(int, 0)
        extrapolation_value = attr(float, 0.0)
        mode = attr(str, "nearest")
        nearest_mode = attr(str, "round_prefer_floor")


class _NormAttrs:
    """Of normalizations over the axes from one on."""

    axis = attr(int, -1)
    epsilon = attr(float, 1e-5)
    stash_type = attr(int, 1)


class LayerNormalizationGrad(TrainingOp):
    """Gradients of LayerNormalization."""

    class Types:
        T = FLOATS
        U = FLOATS

    class Inputs:
        dY = operand("*S")
        X = operand("*S")
        scale = operand("*W")
        mean = operand(None, "U")
        inv_std_dev = operand(None, "U")

    class Outputs:
        dX = operand("*S")
        dscale = operand("*W")
        dbias = operand("*W")

    class Attrs(_NormAttrs):
        pass


class SimplifiedLayerNormalization(TrainingOp):
    """x over its root mean square, times a scale."""

    class Types:
        T = FLOATS
        U = FLOATS

    class Inputs:
        X = operand("*S")
        scale = operand("*W")

    class Outputs:
        Y = operand("*S")
        inv_std_var = operand(None, "U")

    class Attrs(_NormAttrs):
        pass

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """Statistics are float32, or doubles where the operand is."""
        found = call.operands["X"]
        axis = call.attributes["axis"]
        rank = None if found.shape is None else len(found.shape)
        start = axis if rank is None or axis >= 0 else axis + rank
        shape = None
        if found.shape is not None:
            shape = tuple(dim if index < start else 1 for index, dim in enumerate(found.shape))
        dtype = found.dtype if found.dtype is not None and found.dtype.bitwidth == 64 else None
        from lstm_lower.dtypes import DTYPES

        return [
            TensorInfo(call.types.get("T"), found.shape),
            TensorInfo(DTYPES["float32"] if dtype is None else dtype, shape),
        ]


class SimplifiedLayerNormalizationGrad(TrainingOp):
    """Gradients of SimplifiedLayerNormalization."""

    class Types:
        T = FLOATS
        U = FLOATS

    class Inputs:
        dY = operand("*S")
        X = operand("*S")
        scale = operand("*W")
        inv_std_var = operand(None, "U")

    class Outputs:
        dX = operand("*S")
        dscale = operand("*W")

    class Attrs(_NormAttrs):
        pass


class BatchNormInternal(TrainingOp):
    """Batch normalization in training, which also gives the statistics that its gradient takes."""

    class Inputs:
        X = operand("N C *S")
        scale = operand("C")
        B = operand("C")
        input_mean = operand("C")
        input_var = operand("C")

    class Outputs:
        Y = operand("N C *S")
        running_mean = operand("C")
        running_var = operand("C")
        saved_mean = operand("C")
        saved_inv_std = operand("C")

    class Attrs:
        epsilon = attr(float, 1e-5)
        momentum = attr(float, 0.9)
        training_mode = attr(int, 1, choices=(1,))


class BatchNormalizationGrad(TrainingOp):
    """Gradients of batch normalization in training."""

    class Inputs:
        dY = operand("N C *S")
        X = operand("N C *S")
        scale = operand("C")
        mean = operand("C")
        inv_std = operand("C")

    class Outputs:
        dX = operand("N C *S")
        dscale = operand("C")
        dB = operand("C")

    class Attrs:
        epsilon = attr(float, 1e-5)


class SoftmaxCrossEntropyLossGrad(TrainingOp):
    """Gradient of the scores of SoftmaxCrossEntropyLoss, from the logarithms of the probabilities."""

    class Types:
        T = FLOATS
        Tind = ("int32", "int64")

    class Inputs:
        dY = operand(None)
        log_prob = operand("B C *S")
        label = operand("B *S", "Tind")
        weight = operand("C", optional=True)

    class Outputs:
        d_logits = operand("B C *S")

    class Attrs:
        ignore_index = attr(int, -1)
        reduction = attr(str, "mean", choices=("none", "sum", "mean"))


class SoftmaxCrossEntropyLossInternal(TrainingOp):
    """SoftmaxCrossEntropyLoss whose ignored class is an operand."""

    class Types:
        T = FLOATS
        Tind = ("int32", "int64")
        I = ("int64",)  # noqa: E741 (onnxruntime's name)

    class Inputs:
        scores = operand("B C *S")
        labels = operand("B *S", "Tind")
        weights = operand("C", optional=True)
        ignore_index = operand(None, "I", optional=True)

    class Outputs:
        output = operand(None)
        log_prob = operand("B C *S")

    class Attrs:
        reduction = attr(str, "mean", choices=("none", "sum", "mean"))

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """A scalar, or a number for each label."""
        dtype = call.types.get("T")
        shape = call.operands["labels"].shape if call.attributes["reduction"] == "none" else ()
        return [TensorInfo(dtype, shape), TensorInfo(dtype, call.operands["scores"].shape)]


class SoftmaxCrossEntropyLossInternalGrad(SoftmaxCrossEntropyLossGrad):
    """Gradient of the scores of SoftmaxCrossEntropyLossInternal."""

    class Inputs:
        dY = operand(None)
        log_prob = operand("B C *S")
        label = operand("B *S", "Tind")
        weight = operand("C", optional=True)
        ignore_index = operand(None, "int64", optional=True)

    class Attrs:
        reduction = attr(str, "mean", choices=("none", "sum", "mean"))
