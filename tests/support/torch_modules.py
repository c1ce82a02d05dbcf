"""PyTorch modules of the zoo."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (PyTorch's own name for it)
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

I, H = 3, 4  # noqa: E741 (the field's name)


class Function(nn.Module):
    """A function behind a linear layer, so that there is a weight to learn."""

    def __init__(self, function: Callable[..., Any], width: int = I) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.function = function

    def forward(self, x: Tensor, *more: Tensor) -> Any:
        return self.function(self.linear(x), *more)


class Recurrent(nn.Module):
    """A recurrent layer that returns all that it has; `states` makes it take initial states."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, *states: Tensor) -> Any:
        if not states:
            return self.layer(x)
        return self.layer(x, states[0] if len(states) == 1 else states)


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 6, padding_idx=0)
        self.lstm = nn.LSTM(6, H, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * H, 5)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.lstm(self.embedding(ids))[0])


class Packed(nn.Module):
    """A layer on packed sequences."""

    def __init__(self, layer: nn.Module, *, sort: bool = True, through_data: bool = False, total: bool = False) -> None:
        super().__init__()
        self.layer = layer
        self.sort, self.through_data, self.total = sort, through_data, total
        self.head = nn.Linear((layer.proj_size or layer.hidden_size) * (2 if layer.bidirectional else 1), 2)

    def forward(self, x: Tensor, lengths: Tensor) -> Any:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=not self.sort)
        if self.through_data:
            packed = packed._replace(data=torch.tanh(packed.data))
        out, state = self.layer(packed)
        total = x.size(1) if self.total else None
        padded, sizes = pad_packed_sequence(out, batch_first=True, total_length=total)
        return self.head(padded), state, sizes


class Seq2Seq(nn.Module):
    """Encoder, decoder and attention (Luong)."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.GRU(I, H, batch_first=True)
        self.decoder = nn.GRU(I, H, batch_first=True)
        self.head = nn.Linear(2 * H, I)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        memory, state = self.encoder(source)
        out, _ = self.decoder(target, state)
        weights = torch.softmax(out @ memory.transpose(1, 2), -1)
        return self.head(torch.cat([out, weights @ memory], -1))


class Cells(nn.Module):
    """Cells in a loop over a time axis, whose number of steps the trace fixes."""

    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor) -> Tensor:
        state, outputs = None, []
        for step in x.unbind(1):
            state = self.cell(step, state)
            outputs.append(state[0] if isinstance(state, tuple) else state)
        return torch.stack(outputs, 1)


@dataclasses.dataclass
class Output:
    logits: Tensor
    hidden: Tensor | None = None


class WithDataclass(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(I, H, batch_first=True)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Output:
        out, (hidden, _) = self.lstm(input_ids)
        return Output(out if attention_mask is None else out * attention_mask.unsqueeze(-1), hidden)


class CausalAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


class MaskedEncoder(nn.Module):
    def __init__(self, *, norm_first: bool = False) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=norm_first)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.size(1))
        return self.encoder(x, mask=mask, is_causal=True)


class SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor, padding: Tensor) -> Any:
        return self.attention(x, x, x, key_padding_mask=padding)


class Decoder(nn.Module):
    """A decoder whose causal mask follows from the length."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.decoder = nn.TransformerDecoder(layer, 1)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        mask = torch.triu(torch.full((x.shape[1], x.shape[1]), float("-inf")), 1)
        decoded: Tensor = self.decoder(x, memory, tgt_mask=mask)
        return decoded


class Translator(nn.Module):
    """The whole transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.transformer = nn.Transformer(8, 2, 1, 1, 16, dropout=0.0, batch_first=True)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        return self.transformer(source, target)


class Codebook(nn.Module):
    """A moving average of what is seen, under `no_grad`, that the result depends on."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(I, I)
        self.register_buffer("average", torch.ones(I))

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        if self.training:
            with torch.no_grad():
                self.average.mul_(0.9).add_(0.1 * y.mean((0, 1)))
        return y * self.average
