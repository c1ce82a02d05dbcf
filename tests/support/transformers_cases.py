"""Models of the package `transformers` for the zoo, small and untrained: modules as many people have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

WORDS, WIDTH = 50, 16
_SIZES = {
    "hidden_size": WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "vocab_size": WORDS,
    "max_position_embeddings": 64,
}
_GPT2 = {"n_embd": WIDTH, "n_layer": 2, "n_head": 2, "vocab_size": WORDS, "n_positions": 64}
_DISTIL = {
    "dim": WIDTH,
    "n_layers": 2,
    "n_heads": 2,
    "hidden_dim": 32,
    "vocab_size": WORDS,
    "max_position_embeddings": 64,
}
_OPT = {**_SIZES, "ffn_dim": 32, "word_embed_proj_dim": WIDTH}
_T5 = {"d_model": WIDTH, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2, "vocab_size": WORDS}
_SOUND = {
    "hidden_size": WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "conv_dim": (8, 8),
    "conv_stride": (5, 2),
    "conv_kernel": (10, 3),
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
}
_IMAGE = {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
          "image_size": 16, "patch_size": 4}  # fmt: skip


class Named(nn.Module):
    """A model with its inputs in order, always as it is evaluated: it drops nothing."""

    def __init__(self, model: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.names = model.eval(), names

    def train(self, mode: bool = True) -> Named:
        """Stays as it is."""
        del mode
        return self

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """The first of the model's results."""
        result: Tensor = self.model(**dict(zip(self.names, (x, y), strict=False)))[0]
        return result


def _text(b: int, t: int) -> tuple[Tensor, ...]:
    mask = torch.ones(b, t, dtype=torch.int64)
    mask[0, t - 2 :] = 0
    return torch.randint(3, WORDS, (b, t)), mask


def _pairs(b: int, t: int) -> tuple[Tensor, ...]:
    return torch.randint(3, WORDS, (b, t)), torch.randint(3, WORDS, (b, t + 1))


def _sounds(b: int, t: int) -> tuple[Tensor, ...]:
    return torch.randn(b, 40 * t + 100), torch.ones(())


def _images(b: int, _: int) -> tuple[Tensor, ...]:
    return torch.randn(b, 3, 16, 16), torch.ones(())


_MASKED = ("input_ids", "attention_mask")
_MODELS: dict[str, tuple[str, str, dict[str, Any], tuple[str, ...], Any]] = {
    "bert": ("BertModel", "BertConfig", _SIZES, _MASKED, _text),
    "roberta": ("RobertaModel", "RobertaConfig", {**_SIZES, "pad_token_id": 1}, _MASKED, _text),
    "albert": ("AlbertModel", "AlbertConfig", {**_SIZES, "embedding_size": 8}, _MASKED, _text),
    "electra": ("ElectraModel", "ElectraConfig", {**_SIZES, "embedding_size": 8}, _MASKED, _text),
    "distilbert": ("DistilBertModel", "DistilBertConfig", _DISTIL, _MASKED, _text),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {**_GPT2, "use_cache": False}, _MASKED, _text),
    "gpt_neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", {**_SIZES, "use_cache": False}, _MASKED, _text),
    "llama": ("LlamaForCausalLM", "LlamaConfig", {**_SIZES, "use_cache": False}, _MASKED, _text),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", {**_SIZES, "num_key_value_heads": 2, "use_cache": False},
              _MASKED, _text),
    "mistral": ("MistralForCausalLM", "MistralConfig", {**_SIZES, "num_key_value_heads": 1, "use_cache": False,
                "sliding_window": 4}, _MASKED, _text),
    "opt": ("OPTForCausalLM", "OPTConfig", {**_OPT, "use_cache": False}, _MASKED, _text),
    "t5": ("T5ForConditionalGeneration", "T5Config", {**_T5, "use_cache": False}, ("input_ids", "decoder_input_ids"),
           _pairs),
    "mamba": ("MambaForCausalLM", "MambaConfig", {"vocab_size": WORDS, "hidden_size": WIDTH, "state_size": 4,
              "num_hidden_layers": 2, "conv_kernel": 3, "use_cache": False}, _MASKED, _text),
    "wav2vec2": ("Wav2Vec2Model", "Wav2Vec2Config", _SOUND, ("input_values",), _sounds),
    "vit": ("ViTModel", "ViTConfig", _IMAGE, ("pixel_values",), _images),
}  # fmt: skip


def models() -> dict[str, tuple[Callable[[], nn.Module], Callable[[int, int], tuple[Tensor, ...]]]]:
    """Name -> what makes a model, and its inputs; none where the package is not installed."""
    try:
        import transformers
    except ImportError:
        return {}
    transformers.logging.set_verbosity_error()

    def make(kind: str, config: str, sizes: dict[str, Any], names: tuple[str, ...]) -> nn.Module:
        return Named(getattr(transformers, kind)(getattr(transformers, config)(**sizes)), names)

    return {
        f"transformers_{name}": (lambda made=made: make(*made), inputs) for name, (*made, inputs) in _MODELS.items()
    }
