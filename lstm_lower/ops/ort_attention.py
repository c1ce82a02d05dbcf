"""Definitions of onnxruntime's fused attention, and of what turns its queries and keys.

Signatures: onnxruntime's ContribOperators.md, version 1.32. B batch, S queries, P keys from before, N heads, G heads of
keys that several heads of queries share, E and F the sizes of heads.
"""

from __future__ import annotations

from lstm_lower.opdef import Call, TensorInfo, attr, operand
from lstm_lower.ops.ort_elementwise import MicrosoftOp
from lstm_lower.ops.raw import FLOATS


class _Attention(MicrosoftOp, abstract=True):
    """Softmax of products of queries and keys, times values."""

    class Types:
        T = FLOATS
        M = ("int32",)


class Attention(_Attention):
    """Attention of one operand to itself, with the products that make queries, keys and values of it."""

    class Inputs:
        input = operand("B S I")
        weights = operand("I W")
        bias = operand("W", optional=True)
        mask_index = operand(None, "M", optional=True)
        past = operand("2 B N P E", optional=True)
        attention_bias = operand(None, optional=True)
        past_sequence_length = operand(None, "M", optional=True)

    class Outputs:
        output = operand(None)
        present = operand(None, optional=True)

    class Attrs:
        num_heads = attr(int)
        unidirectional = attr(int, 0)
        mask_filter_value = attr(float, -10000.0)
        scale = attr(float, 0.0)
        qkv_hidden_sizes = attr(list[int], [])
        do_rotary = attr(int, 0, choices=(0,))
        rotary_embedding_dim = attr(int, 0)
        past_present_share_buffer = attr(int, 0, choices=(0,))

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """A value's size is a third of what the product makes, or as `qkv_hidden_sizes` says."""
        parts, width, dtype = call.attributes["qkv_hidden_sizes"], call.sizes.get("W"), call.types.get("T")
        size = parts[2] if len(parts) == 3 else width // 3 if isinstance(width, int) else None
        return [TensorInfo(dtype, (call.sizes.get("B"), call.sizes.get("S"), size)), TensorInfo(dtype, None)]


class MultiHeadAttention(_Attention):
    """Attention of queries to keys and values, as three operands or as one or two of all heads."""

    class Inputs:
        query = operand(None)
        key = operand(None, optional=True)
        value = operand(None, optional=True)
        bias = operand("W", optional=True)
        key_padding_mask = operand(None, "M", optional=True)
        attention_bias = operand(None, optional=True)
        past_key = operand("B N P E", optional=True)
        past_value = operand("B N P F", optional=True)
        past_sequence_length = operand(None, "M", optional=True)
        cache_indirection = operand(None, "M", optional=True)

    class Outputs:
        output = operand(None)
        present_key = operand(None, optional=True)
        present_value = operand(None, optional=True)
        qk = operand(None, optional=True)

    class Attrs:
        num_heads = attr(int)
        unidirectional = attr(int, 0)
        mask_filter_value = attr(float, -10000.0)
        scale = attr(float, 0.0)


class GroupQueryAttention(_Attention):
    """Attention of queries to no later keys, each of which several heads share; keys of before stand in a buffer."""

    class Inputs:
        query = operand("B S D")
        key = operand("B S C", optional=True)
        value = operand("B S C", optional=True)
        past_key = operand("B G P E", optional=True)
        past_value = operand("B G P E", optional=True)
        seqlens_k = operand(None, "M")
        total_sequence_length = operand(None, "M")
        cos_cache = operand("R F", optional=True)
        sin_cache = operand("R F", optional=True)
        position_ids = operand("B S", "int64", optional=True)
        attention_bias = operand(None, optional=True)
        head_sink = operand(None, optional=True)
        k_scale = operand(None, optional=True)
        v_scale = operand(None, optional=True)
        q_norm_weight = operand(None, optional=True)
        k_norm_weight = operand(None, optional=True)
        query_seqlens = operand(None, "M", optional=True)

    class Outputs:
        output = operand(None)
        present_key = operand(None, optional=True)
        present_value = operand(None, optional=True)
        output_qk = operand(None, optional=True)

    class Attrs:
        num_heads = attr(int)
        kv_num_heads = attr(int)
        scale = attr(float, 0.0)
        softcap = attr(float, 0.0)
        local_window_size = attr(int, -1)
        do_rotary = attr(int, 0)
        rotary_interleaved = attr(int, 0)
        causal = attr(int, 1, choices=(1,))
        smooth_softmax = attr(int, 0)
        sliding_window_cache = attr(int, 0, choices=(0,))
        qk_output = attr(int, 0, choices=(0,))
        k_quant_type = attr(str, "NONE", choices=("NONE",))
        v_quant_type = attr(str, "NONE", choices=("NONE",))
        kv_cache_bit_width = attr(int, 0)
        qk_norm_epsilon = attr(float, 1e-6)
        q_norm_epsilon = attr(float, 1e-6)
        k_norm_epsilon = attr(float, 1e-6)


class RotaryEmbedding(MicrosoftOp):
    """Pairs of numbers turned by angles that grow with the place; R places are known."""

    class Types:
        T = FLOATS
        M = ("int64",)

    class Inputs:
        input = operand(None)
        position_ids = operand(None, "M")
        cos_cache = operand("R F")
        sin_cache = operand("R F")

    class Outputs:
        output = operand(None)

    class Attrs:
        interleaved = attr(int, 0)
        is_packed_batching = attr(int, 0, choices=(0,))
        num_heads = attr(int, 0)
        rotary_embedding_dim = attr(int, 0)
        scale = attr(float, 1.0, choices=(1.0,))

    @classmethod
    def output_infos(cls, call: Call) -> list[TensorInfo]:
        """Just like the operand."""
        return [call.operands["input"]]
