"""Whole PyTorch networks of the zoo without recurrent layers, each written as its field writes it."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (PyTorch's own name for it)
from torch import Tensor, nn

I, H = 3, 4  # noqa: E741 (the field's name)


class WaveNet(nn.Module):
    """Gated dilated convolutions that look back only (van den Oord et al., 2016)."""

    def __init__(self) -> None:
        super().__init__()
        self.filters = nn.ModuleList(nn.Conv1d(I, 2 * I, 2, dilation=2**k) for k in range(3))
        self.mixes = nn.ModuleList(nn.Conv1d(I, I, 1) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        x = x.transpose(1, 2)
        skipped = torch.zeros_like(x)
        for dilated, mix in zip(self.filters, self.mixes, strict=True):
            signal, gate = dilated(F.pad(x, (dilated.dilation[0], 0))).chunk(2, 1)
            made = mix(torch.tanh(signal) * torch.sigmoid(gate))
            skipped, x = skipped + made, x + made
        return F.relu(skipped)


class Adversaries(nn.Module):
    """The losses of a generator and of a discriminator, which is not to learn from the generator's."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(I, H), nn.LeakyReLU(0.2), nn.Linear(H, I))
        self.discriminator = nn.Sequential(nn.Linear(I, H), nn.LeakyReLU(0.2), nn.Linear(H, 1))

    def forward(self, noise: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        made = self.generator(noise)
        seen, faked = self.discriminator(real), self.discriminator(made.detach())
        loss = F.binary_cross_entropy_with_logits(seen, torch.ones_like(seen)) + F.softplus(faked).mean()
        return F.softplus(-self.discriminator(made)).mean(), loss


class Siamese(nn.Module):
    """One network on two inputs; contrastive loss (Hadsell et al., 2006) and that of cosines."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(I, H), nn.Tanh(), nn.Linear(H, 2))

    def forward(self, a: Tensor, b: Tensor, same: Tensor) -> tuple[Tensor, Tensor]:
        a, b = self.net(a), self.net(b)
        apart = F.pairwise_distance(a, b)
        contrastive = (same * apart**2 + (1 - same) * F.relu(1 - apart) ** 2).mean()
        return contrastive, F.cosine_embedding_loss(a, b, 2 * same - 1)


class Recommender(nn.Module):
    """Weighted bags of ids, and a bilinear form of two of them."""

    def __init__(self) -> None:
        super().__init__()
        self.bags = nn.EmbeddingBag(11, H, mode="sum")
        self.score = nn.Bilinear(H, H, 1)

    def forward(self, users: Tensor, items: Tensor, weights: Tensor) -> Tensor:
        return self.score(self.bags(users, per_sample_weights=weights), self.bags(items))


class Autoencoder(nn.Module):
    """Strided convolutions and their transposes, in groups."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv1d(H, 2 * H, 4, stride=2, padding=1, groups=2)
        self.norm = nn.GroupNorm(4, 2 * H)
        self.up = nn.ConvTranspose1d(2 * H, H, 4, stride=2, padding=1, groups=2)

    def forward(self, x: Tensor) -> Tensor:
        return self.up(F.elu(self.norm(self.down(x))))


class SqueezeExcitation(nn.Module):
    """A residual block whose channels are weighted (Hu et al., 2018)."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(H, H, 3, padding=1, bias=False), nn.Conv2d(H, H, 3, padding=1, bias=False)
        self.norms = nn.ModuleList([nn.InstanceNorm2d(H, affine=True), nn.BatchNorm2d(H)])
        self.weigh = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(H, 2), nn.Hardswish(), nn.Linear(2, H)
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.norms[1](self.two(F.mish(self.norms[0](self.one(x)))))
        return F.relu(x + y * torch.sigmoid(self.weigh(y))[:, :, None, None])


class MaskedAttention(nn.Module):
    """Keys and values of other widths, with both masks."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, kdim=3, vdim=5, add_bias_kv=True, batch_first=True)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, padded: Tensor) -> Any:
        causal = torch.ones(query.shape[1], key.shape[1], dtype=torch.bool).triu(1)
        return self.attention(query, key, value, key_padding_mask=padded, attn_mask=causal)


class PaddedEncoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(8), enable_nested_tensor=False)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        padded = torch.arange(x.shape[1])[None, :] >= lengths[:, None]
        out = self.encoder(x, src_key_padding_mask=padded)
        return out.masked_fill(padded.unsqueeze(-1), 0.0).sum(1) / lengths.unsqueeze(-1)


class TemporalConvolutions(nn.Module):
    """Weight-normalized, residual, dilated (Bai et al., 2018)."""

    def __init__(self) -> None:
        super().__init__()
        normed = nn.utils.parametrizations.weight_norm
        self.layers = nn.ModuleList(normed(nn.Conv1d(I if k == 0 else H, H, 2, dilation=2**k)) for k in range(2))
        self.shortcut = nn.Conv1d(I, H, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = x.mT
        y = x
        for layer in self.layers:
            y = F.relu(layer(F.pad(y, (layer.dilation[0], 0))))
        return F.relu(y + self.shortcut(x))[..., -1]


class GraphConvolution(nn.Module):
    """Means of the neighbours' messages along edges."""

    def __init__(self) -> None:
        super().__init__()
        self.own, self.other = nn.Linear(I, H), nn.Linear(I, H)

    def forward(self, x: Tensor, source: Tensor, target: Tensor) -> Tensor:
        messages = self.other(x)[source]
        sums = x.new_zeros(x.shape[0], H).index_add(0, target, messages)
        most = x.new_full((x.shape[0], H), -9.0).scatter_reduce(
            0, target[:, None].expand_as(messages), messages, "amax"
        )
        counts = torch.zeros(x.shape[0]).scatter_add(0, target, torch.ones(target.shape[0])).clamp(min=1)
        return torch.relu(self.own(x)) + sums / counts[:, None] + most


class Ranking(nn.Module):
    """The order of scores: sorted, the best, and a listwise loss (Cao et al., 2007)."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(I, 1)

    def forward(self, x: Tensor, relevance: Tensor) -> tuple[Tensor, Tensor]:
        scores = self.score(x).squeeze(-1)
        ordered = scores.gather(1, relevance.argsort(1, descending=True))
        tails = ordered.flip(1).logcumsumexp(1).flip(1)
        return (tails - ordered).sum(1), scores.topk(2, 1)[0].diff(dim=1)


class SpatialTransformer(nn.Module):
    """Jaderberg et al., 2015."""

    def __init__(self) -> None:
        super().__init__()
        self.locate = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * I, 6))

    def forward(self, x: Tensor) -> Tensor:
        theta = self.locate(x).view(-1, 2, 3) + torch.eye(2, 3)
        grid = F.affine_grid(theta, list(x.shape), align_corners=False)
        return F.grid_sample(x, grid, padding_mode="border", align_corners=False)


class Capsules(nn.Module):
    """Routing by agreement (Sabour et al., 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, I, H) / 2)

    def forward(self, x: Tensor) -> Tensor:
        votes = torch.einsum("bti,oih->btoh", x, self.weight)
        logits = torch.zeros(votes.shape[:-1])
        for _ in range(2):
            summed = (logits.softmax(-1).unsqueeze(-1) * votes).sum(1)
            squared = (summed**2).sum(-1, keepdim=True)
            out = squared / (1 + squared) * summed / torch.sqrt(squared + 1e-8)
            logits = logits + torch.einsum("btoh,boh->bto", votes, out)
        return out


class OrdinaryDifferentialEquation(nn.Module):
    """Steps of Runge and Kutta through a learnt field (Chen et al., 2018)."""

    def __init__(self) -> None:
        super().__init__()
        self.field = nn.Sequential(nn.Linear(I, H), nn.Tanh(), nn.Linear(H, I))

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(4):
            k1 = self.field(x)
            k2 = self.field(x + 0.05 * k1)
            k3 = self.field(x + 0.05 * k2)
            k4 = self.field(x + 0.1 * k3)
            x = x + 0.1 / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return x


class RotaryLanguageModel(nn.Module):
    """Rotated queries and keys (Su et al., 2021), grouped heads, gated layer, root-mean-square norms."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 8)
        self.query, self.keys, self.values = nn.Linear(8, 8), nn.Linear(8, 4), nn.Linear(8, 4)
        self.gate, self.up, self.down = nn.Linear(8, 12), nn.Linear(8, 12), nn.Linear(12, 8)
        self.norms = nn.ModuleList(nn.RMSNorm(8, eps=1e-6) for _ in range(3))
        self.register_buffer("rates", 1.0 / 100 ** (torch.arange(0, 4, 2) / 4), persistent=False)

    def rotated(self, x: Tensor) -> Tensor:
        angles = torch.outer(torch.arange(x.shape[2], dtype=torch.float32), self.rates)
        cos, sin = torch.cat([angles.cos()] * 2, -1), torch.cat([angles.sin()] * 2, -1)
        left, right = x.chunk(2, -1)
        return x * cos + torch.cat([-right, left], -1) * sin

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        b, t, _ = x.shape
        y = self.norms[0](x)
        query = self.rotated(self.query(y).view(b, t, 2, 4).transpose(1, 2))
        keys = self.rotated(self.keys(y).view(b, t, 1, 4).transpose(1, 2)).repeat_interleave(2, 1)
        values = self.values(y).view(b, t, 1, 4).transpose(1, 2).expand(-1, 2, -1, -1)
        mixed = F.scaled_dot_product_attention(query, keys, values, is_causal=True)
        x = x + mixed.transpose(1, 2).reshape(b, t, 8)
        y = self.norms[1](x)
        x = x + self.down(F.silu(self.gate(y)) * self.up(y))
        return self.norms[2](x) @ self.words.weight.t() / math.sqrt(8)


class LinearBiases(nn.Module):
    """Attention that is the weaker the farther away (Press et al., 2022)."""

    def __init__(self) -> None:
        super().__init__()
        self.three = nn.Linear(8, 24)
        self.places = nn.Parameter(torch.randn(1, 32, 8) / 10)

    def forward(self, x: Tensor) -> Tensor:
        b, t, _ = x.shape
        x = x + self.places[:, :t]
        query, keys, values = self.three(x).view(b, t, 3, 2, 4).permute(2, 0, 3, 1, 4)
        apart = torch.arange(t)[None, :] - torch.arange(t)[:, None]
        bias = torch.where(apart > 0, float("-inf"), apart * torch.tensor([0.5, 0.25])[:, None, None])
        return ((query @ keys.mT / 2 + bias).softmax(-1) @ values).transpose(1, 2).flatten(2)


class Experts(nn.Module):
    """The two best of four experts (Shazeer et al., 2017), with the loss that keeps all of them busy."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(I, 4, bias=False)
        self.experts = nn.Parameter(torch.randn(4, I, H))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        shares = self.gate(x).softmax(-1)
        best, chosen = shares.topk(2, -1)
        weights = torch.zeros_like(shares).scatter(-1, chosen, best / best.sum(-1, keepdim=True))
        busy = F.one_hot(chosen, 4).float().mean((0, 1, 2)) @ shares.mean((0, 1))
        return torch.einsum("bte,bti,eih->bth", weights, x, self.experts), busy


class UNet(nn.Module):
    """Down, up, and across (Ronneberger et al., 2015)."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.down = nn.Conv2d(I, H, 3, padding=1, padding_mode="reflect"), nn.Conv2d(H, H, 2, stride=2)
        self.leave = nn.Conv2d(2 * H, 1, 1)
        self.slopes = nn.PReLU(H)

    def forward(self, x: Tensor) -> Tensor:
        fine = self.slopes(self.enter(x))
        coarse = F.interpolate(torch.tanh(self.down(fine)), size=fine.shape[2:], mode="bilinear", align_corners=False)
        return self.leave(torch.cat([fine, coarse], 1))


class Patches(nn.Module):
    """Overlapping parts of a picture, each changed, and put together again."""

    def __init__(self) -> None:
        super().__init__()
        self.change = nn.Linear(4 * I, 4 * I)

    def forward(self, x: Tensor) -> Tensor:
        parts = F.unfold(x, 2).transpose(1, 2)
        return F.fold(self.change(parts).transpose(1, 2), (6, 6), 2)


class ForgetMultiply(nn.Module):
    """A linear recurrence without a loop, by sums of logarithms."""

    def __init__(self) -> None:
        super().__init__()
        self.gates = nn.Linear(I, 2 * H)

    def forward(self, x: Tensor) -> Tensor:
        forget, made = self.gates(x).chunk(2, -1)
        decayed = F.logsigmoid(forget).cumsum(1)
        return torch.exp(decayed) * (torch.exp(-decayed) * torch.tanh(made) * torch.sigmoid(-forget)).cumsum(1)


class Spectrum(nn.Module):
    """Magnitudes of a short-time Fourier transform behind a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        spectrum = torch.fft.rfft(self.linear(x), dim=-1)
        return torch.log(spectrum.real**2 + spectrum.imag**2 + 1)


class Statistics(nn.Module):
    """Many reductions at once (Corso et al., 2020), and distances from their medians."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(I, H)

    def forward(self, x: Tensor) -> Tensor:
        x = self.linear(x)
        kinds = [x.mean(1), x.amax(1), x.amin(1), x.std(1, correction=0), x.norm(p=1, dim=1), x.sort(1)[0][:, 1]]
        return torch.cat(kinds, -1).clamp(-3, 3)
