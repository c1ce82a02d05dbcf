"""Definitions of what onnxruntime's optimizers fuse: layers with what stands around them, and compressed weights.

Signatures: onnxruntime's ContribOperators.md, version 1.32. `S` is any axes, H the size of the last one.
"""

from __future__ import annotations

from lstm_lower.opdef import Call, TensorInfo, attr, operand
from lstm_lower.ops.ort_elementwise import MicrosoftOp
from lstm_lower.ops.ort_layers import Window
from lstm_lower.ops.raw import FLOATS


class _Skip(MicrosoftOp, abstract=True):
    """A sum that is normalized; of the statistics onnxruntime's kernels for processors make none."""

    class Types:
        T = FLOATS
        U = ("float32",)

    class Outputs:
        output = operand("*S H")
        mean = operand("*S 1", "U", optional=True)
        inv_std_var = operand("*S 1", "U", optional=True)
        input_skip_bias_sum = operand("*S H", optional=True)

    class Attrs:
        epsilon = attr(float, 1e-12)


class SkipLayerNormalization(_Skip):
    """Layer normalization of a sum, of which `skip` may be repeated along the first axis."""

    class Inputs:
        input = operand("*S H")
        skip = operand(None)
        gamma = operand("H")
        beta = operand("H", optional=True)
        bias = operand("H", optional=True)


class SkipSimplifiedLayerNormalization(_Skip):
    """Division of a sum by its root mean square; `skip` may be repeated along the first axis."""

    class Inputs:
        input = operand("*S H")
        skip = operand(None)
        gamma = operand("H")
        bias = operand("H", optional=True)


class EmbedLayerNormalization(MicrosoftOp):
    """Layer normalization of the sum of a word's, a place's and a segment's vector; B batch, S places."""

    class Inputs:
        input_ids = operand("B S", "int32", indexes="V")
        segment_ids = operand("B S", "int32", optional=True, indexes="G")
        word_embedding = operand("V H")
        position_embedding = operand("P H")
        segment_embedding = operand("G H", optional=True)
        gamma = operand("H")
        beta = operand("H")
        mask = operand("B S", "int32", optional=True)
        position_ids = operand("A S", "int32", optional=True, indexes="P")

    class Outputs:
        output = operand("B S H")
        mask_index = operand("B", "int32", optional=True)
        embedding_sum = operand("B S H", optional=True)

    class Attrs:
        epsilon = attr(float, 1e-12)
        mask_index_type = attr(int, 0)


class FusedConv(MicrosoftOp):
    """An activation of a convolution, to which `Z` was added."""

    class Inputs:
        X = operand(None)
        W = operand("C *W")
        B = operand("C", optional=True)
        Z = operand(None, optional=True)

    class Outputs:
        Y = operand(None)

    class Attrs(Window):
        group = attr(int, 1)
        activation = attr(str, "", choices=("", "Relu", "Tanh", "Sigmoid", "LeakyRelu", "Clip", "HardSigmoid"))
        activation_params = attr(list[float], [])

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """As large as `Z`, where there is one; else the convolution tells."""
        added = call.operands.get("Z")
        return [TensorInfo(call.types.get("T"), None if added is None else added.shape)]


class FusedGemm(MicrosoftOp):
    """An activation of a Gemm."""

    class Inputs:
        A = operand(None)
        B = operand(None)
        C = operand(None, optional=True)

    class Outputs:
        Y = operand(None)

    class Attrs:
        alpha = attr(float, 1.0)
        beta = attr(float, 1.0)
        transA = attr(int, 0)
        transB = attr(int, 0)
        activation = attr(str, "")
        activation_alpha = attr(float, 0.0)
        activation_beta = attr(float, 0.0)
        activation_gamma = attr(float, 0.0)


class MatMulNBits(MicrosoftOp):
    """A product with a weight [N, K] of few bits.

    Each block of numbers along K is less a zero point, half of their range without one, and times a scale; a byte holds
    its first number in the lowest bits.
    """

    class Types:
        T1 = FLOATS
        T3 = ("uint8", *FLOATS)

    class Inputs:
        A = operand("*S K", "T1")
        B = operand("N Q L", "uint8")
        scales = operand(None, "T1")
        zero_points = operand(None, "T3", optional=True)
        g_idx = operand(None, "int32", optional=True)
        bias = operand("N", "T1", optional=True)

    class Outputs:
        Y = operand("*S N", "T1")

    class Attrs:
        K = attr(int)
        N = attr(int)
        block_size = attr(int)
        bits = attr(int, 4, choices=(2, 4, 8))
        accuracy_level = attr(int, 0)
        weight_prepacked = attr(int, 0, choices=(0,))


class GatherBlockQuantized(MicrosoftOp):
    """Rows of a table [V, K] of few bits, as `MatMulNBits` has its weight; L bytes hold a row."""

    class Types:
        T2 = FLOATS
        Tind = ("int32", "int64")

    class Inputs:
        data = operand("V L", "uint8")
        indices = operand("*I", "Tind", indexes="V")
        scales = operand("V Q", "T2")
        zero_points = operand("V Z", "uint8", optional=True)

    class Outputs:
        output = operand(None, "T2")

    class Attrs:
        bits = attr(int, 4, choices=(2, 4, 8))
        block_size = attr(int, 128)
        gather_axis = attr(int, 0, choices=(0,))
        quantize_axis = attr(int, 1, choices=(1, -1))

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """As many numbers behind the indices' axes as a row's bytes hold."""
        places, size = call.operands["indices"].shape, call.sizes.get("L")
        numbers = size * 8 // call.attributes["bits"] if isinstance(size, int) else None
        return [TensorInfo(call.types.get("T2"), None if places is None else (*places, numbers))]


class DynamicQuantizeLSTM(MicrosoftOp):
    """An LSTM layer whose weights are integers, with a scale and a zero point for each column or for all.

    onnxruntime's kernel rounds what is multiplied with them to 8 bits in every step, too; that is not part of its
    meaning here, as of a MatMulNBits.
    """

    class Types:
        T = ("float32",)
        T2 = ("int8", "uint8")

    class Inputs:
        X = operand("T B I")
        W = operand("D I 4*H", "T2")
        R = operand("D H 4*H", "T2")
        B = operand("D 8*H", optional=True)
        sequence_lens = operand("B", "int32", optional=True)
        initial_h = operand("D B H", optional=True)
        initial_c = operand("D B H", optional=True)
        P = operand("D 3*H", optional=True)
        W_scale = operand(None)
        W_zero_point = operand(None, "T2")
        R_scale = operand(None)
        R_zero_point = operand(None, "T2")

    class Outputs:
        Y = operand("T D B H", optional=True)
        Y_h = operand("D B H", optional=True)
        Y_c = operand("D B H", optional=True)

    class Attrs:
        activation_alpha = attr(list[float], [])
        activation_beta = attr(list[float], [])
        activations = attr(list[str], [])
        clip = attr(float, 0.0)
        direction = attr(str, "forward", choices=("forward", "reverse", "bidirectional"))
        hidden_size = attr(int)
        input_forget = attr(int, 0)
