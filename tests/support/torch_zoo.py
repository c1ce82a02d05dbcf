"""PyTorch modules of many kinds, with inputs of any batch size and length."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (PyTorch's own name for it)
from torch import Tensor, nn

from tests.support.torch_modules import (
    CausalAttention,
    Cells,
    Codebook,
    Decoder,
    Function,
    H,
    I,
    MaskedEncoder,
    Packed,
    Recurrent,
    SelfAttention,
    Seq2Seq,
    Tagger,
    Translator,
    WithDataclass,
)
from tests.support.torch_network_cases import NETWORKS


@dataclasses.dataclass(frozen=True)
class Case:
    """A module of the zoo.

    Attributes:
        name: of the case.
        make: a new module.
        inputs: example inputs of a batch size and a length.
    """

    name: str
    make: Callable[[], nn.Module]
    inputs: Callable[[int, int], tuple[Tensor, ...]]

    def __str__(self) -> str:
        return self.name


def sequence(width: int = I, *, time_first: bool = False) -> Callable[[int, int], tuple[Tensor, ...]]:
    return lambda b, t: (torch.randn(t, b, width) if time_first else torch.randn(b, t, width),)


def image(channels: int, *rest: int, dims: int = 2) -> Callable[[int, int], tuple[Tensor, ...]]:
    return lambda b, t: (torch.randn(b, channels, *(rest or [t + 3] * dims)),)


def ids(b: int, t: int) -> tuple[Tensor, ...]:
    return (torch.randint(0, 11, (b, t)),)


def with_lengths(b: int, t: int) -> tuple[Tensor, ...]:
    return torch.randn(b, t, I), torch.tensor([max(1, t - index) for index in range(b)])


def short_lengths(b: int, t: int) -> tuple[Tensor, ...]:
    """Lengths in any order, none of which reaches the last step."""
    return torch.randn(b, t, I), torch.tensor([1 + index % (t - 1) for index in range(b)])


def states(directions: int, count: int) -> Callable[[int, int], tuple[Tensor, ...]]:
    return lambda b, t: (torch.randn(t, b, I), *(torch.randn(directions, b, H) for _ in range(count)))


def _recurrent() -> list[Case]:
    found = []
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        name = kind.__name__.lower()
        forms: list[tuple[str, dict[str, Any]]] = [
            ("plain", {}),
            ("deep", {"num_layers": 3, "bidirectional": True, "batch_first": True}),
            ("unbiased", {"bias": False, "batch_first": True}),
            ("dropout", {"num_layers": 2, "dropout": 0.5}),
        ]
        for form, options in forms:
            make = lambda kind=kind, options=options: Recurrent(kind(I, H, **options))
            found.append(Case(f"{name}_{form}", make, sequence(time_first=not options.get("batch_first"))))
        make = lambda kind=kind: Recurrent(kind(I, H, 2, bidirectional=True))
        found.append(Case(f"{name}_states", make, states(4, 2 if kind is nn.LSTM else 1)))
        found.append(
            Case(f"{name}_unbatched", lambda kind=kind: Recurrent(kind(I, H)), lambda b, t: (torch.randn(t, I),))
        )
        for form, more in (("packed", {}), ("packed_unsorted", {"sort": True}), ("packed_total", {"total": True})):
            made = lambda kind=kind, more=more: Packed(
                kind(I, H, 2, batch_first=True, bidirectional=True), **({"sort": False} | more)
            )
            found.append(Case(f"{name}_{form}", made, with_lengths))
        cell = getattr(nn, f"{kind.__name__}Cell")
        found.append(Case(f"{name}_cell", lambda cell=cell: cell(I, H), lambda b, t: (torch.randn(b, I),)))
        found.append(Case(f"{name}_cells", lambda cell=cell: Cells(cell(I, H)), sequence()))
    relu = lambda: Recurrent(nn.RNN(I, H, 2, nonlinearity="relu", bidirectional=True))
    projected = lambda: Recurrent(nn.LSTM(I, H, 2, proj_size=2, bidirectional=True, batch_first=True))
    return [
        *found,
        Case("rnn_relu", relu, sequence(time_first=True)),
        Case("lstm_projected", projected, sequence()),
        Case("lstm_projected_packed", lambda: Recurrent(nn.LSTM(I, H, proj_size=2)), sequence(time_first=True)),
        Case("lstm_packed_data", lambda: Packed(nn.LSTM(I, H, batch_first=True), through_data=True), with_lengths),
        Case("lstm_packed_short", lambda: Packed(nn.LSTM(I, H, batch_first=True)), short_lengths),
        Case("lstm_packed_short_total", lambda: Packed(nn.LSTM(I, H, batch_first=True), total=True), short_lengths),
        Case(
            "lstm_projected_of_packed", lambda: Packed(nn.LSTM(I, H, proj_size=H - 1, batch_first=True)), short_lengths
        ),
        Case("tagger", Tagger, ids),
        Case("seq2seq", Seq2Seq, lambda b, t: (torch.randn(b, t, I), torch.randn(b, t + 2, I))),
        Case("dataclass", WithDataclass, lambda b, t: (torch.randn(b, t, I), torch.ones(b, t))),
    ]


def _layers() -> list[Case]:
    plain: list[tuple[str, Callable[[], nn.Module], Callable[[int, int], tuple[Tensor, ...]]]] = [
        ("linear", lambda: nn.Linear(I, H), sequence()),
        ("mlp", lambda: nn.Sequential(nn.Linear(I, 8), nn.ReLU(), nn.Dropout(0.0), nn.Linear(8, 2)), sequence()),
        ("bilinear", lambda: nn.Bilinear(I, I, H), lambda b, t: (torch.randn(b, I), torch.randn(b, I))),
        ("conv1d", lambda: nn.Conv1d(I, H, 3, padding=1), image(I, dims=1)),
        ("conv1d_causal", lambda: nn.Sequential(nn.ConstantPad1d((2, 0), 0.0), nn.Conv1d(I, H, 3)), image(I, dims=1)),
        ("conv2d", lambda: nn.Conv2d(I, H, 3, stride=2, padding=1, groups=1), image(I)),
        ("conv2d_same", lambda: nn.Conv2d(I, H, 3, padding="same", dilation=2), image(I)),
        ("conv2d_depthwise", lambda: nn.Conv2d(I, I, 3, groups=I, padding_mode="reflect", padding=1), image(I)),
        ("conv3d", lambda: nn.Conv3d(I, H, 2), image(I, dims=3)),
        ("conv_transpose", lambda: nn.ConvTranspose2d(I, H, 3, stride=2, output_padding=1), image(I)),
        ("max_pool", lambda: nn.Sequential(nn.Conv2d(I, H, 2), nn.MaxPool2d(2)), image(I)),
        ("avg_pool", lambda: nn.Sequential(nn.Conv2d(I, H, 2), nn.AvgPool2d(2, ceil_mode=False)), image(I)),
        ("adaptive_pool", lambda: nn.Sequential(nn.Conv2d(I, H, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten()), image(I)),
        (
            "batch_norm_1d",
            lambda: nn.Sequential(nn.Linear(I, H), nn.BatchNorm1d(H)),
            lambda b, t: (torch.randn(b + 2, I),),
        ),
        ("batch_norm_2d", lambda: nn.Sequential(nn.Conv2d(I, H, 2), nn.BatchNorm2d(H, affine=False)), image(I)),
        ("batch_norm_plain", lambda: nn.BatchNorm2d(I, track_running_stats=False), image(I)),
        ("layer_norm", lambda: nn.LayerNorm(I), sequence()),
        (
            "layer_norm_plain",
            lambda: nn.Sequential(nn.Linear(I, H), nn.LayerNorm(H, elementwise_affine=False)),
            sequence(),
        ),
        ("group_norm", lambda: nn.GroupNorm(2, H), image(H)),
        ("instance_norm", lambda: nn.InstanceNorm2d(I, affine=True), image(I)),
        ("instance_norm_kept", lambda: nn.InstanceNorm1d(I, track_running_stats=True), image(I, dims=1)),
        ("rms_norm", lambda: nn.RMSNorm(I), sequence()),
        ("local_response_norm", lambda: nn.Sequential(nn.Conv2d(I, H, 2), nn.LocalResponseNorm(2)), image(I)),
        ("weight_norm", lambda: nn.utils.parametrizations.weight_norm(nn.Linear(I, H)), sequence()),
        ("spectral_norm", lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(I, H)), sequence()),
        ("codebook", Codebook, sequence()),
        ("embedding", lambda: nn.Embedding(11, H), ids),
        ("embedding_padded", lambda: nn.Embedding(11, H, padding_idx=-2), ids),
        (
            "embedding_bag_offsets",
            lambda: nn.EmbeddingBag(11, H, mode="sum"),
            lambda b, t: (torch.randint(0, 11, (b * t,)), torch.arange(b) * t),
        ),
        ("embedding_bag", lambda: nn.EmbeddingBag(11, H, mode="mean"), ids),
        ("encoder", MaskedEncoder, sequence(8)),
        ("encoder_norm_first", lambda: MaskedEncoder(norm_first=True), sequence(8)),
        ("transformer_decoder", Decoder, lambda b, t: (torch.randn(b, t, 8), torch.randn(b, t + 1, 8))),
        ("transformer", Translator, lambda b, t: (torch.randn(b, t, 8), torch.randn(b, t + 1, 8))),
        ("attention", SelfAttention, lambda b, t: (torch.randn(b, t, 8), torch.arange(t).expand(b, t) > t - 2)),
        ("causal_attention", CausalAttention, sequence(8)),
        ("unfold", lambda: nn.Sequential(nn.Unfold(2), nn.Conv1d(12, 2, 1)), image(I)),
        ("pixel_shuffle", lambda: nn.Sequential(nn.Conv2d(I, 8, 1), nn.PixelShuffle(2)), image(I)),
        ("upsample", lambda: nn.Sequential(nn.Conv2d(I, H, 1), nn.Upsample(scale_factor=2, mode="bilinear")), image(I)),
        ("prelu", lambda: nn.PReLU(I), image(I)),
        ("glu", lambda: nn.Sequential(nn.Linear(I, 8), nn.GLU()), sequence()),
    ]
    return [Case(name, make, inputs) for name, make, inputs in plain]


def _classes(x: Tensor) -> Tensor:
    return torch.arange(x.shape[1]) % x.shape[2]


def _alternating(x: Tensor) -> Tensor:
    return (torch.arange(x.shape[1]) % 2).reshape(1, -1, 1).expand_as(x)


def _partly_without_gradients(x: Tensor) -> Tensor:
    with torch.no_grad():
        scale = x.abs().amax(-1, keepdim=True) + 1
    return x / scale


ACTIVATIONS = [
    "relu",
    "gelu",
    "silu",
    "sigmoid",
    "tanh",
    "elu",
    "selu",
    "celu",
    "leaky_relu",
    "softplus",
    "softsign",
    "mish",
    "hardswish",
    "hardsigmoid",
    "hardtanh",
    "relu6",
    "logsigmoid",
    "tanhshrink",
    "softshrink",
    "hardshrink",
    "threshold",
]

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "einsum": lambda x: torch.einsum("bti,bsi->bts", x, x),
    "cumsum": lambda x: x.cumsum(1),
    "cumprod": lambda x: x.cumprod(1),
    "logcumsumexp": lambda x: x.logcumsumexp(1),
    "topk": lambda x: x.topk(2, -1)[0],
    "sort": lambda x: x.sort(-1)[0],
    "gather": lambda x: x.gather(1, torch.zeros_like(x[:, :1]).long()),
    "scatter_add": lambda x: torch.zeros_like(x).scatter_add(1, torch.zeros_like(x).long(), x),
    "scatter_mean": lambda x: x[:, :2].scatter_reduce(1, _alternating(x), x, "mean"),
    "scatter_mean_alone": lambda x: x[:, :2].scatter_reduce(1, _alternating(x), x, "mean", include_self=False),
    "adaptive_thirds": lambda x: F.adaptive_avg_pool1d(x.mT, 3),
    "interpolate_area": lambda x: F.interpolate(x.mT, size=2, mode="area"),
    "avg_pool_divided": lambda x: F.avg_pool2d(x.unsqueeze(1), 2, 1, 1, divisor_override=3),
    "distribution": lambda x: torch.distributions.Normal(x, x.exp()).log_prob(x * 2),
    "index_select": lambda x: x.index_select(2, torch.tensor([2, 0])),
    "index_put": lambda x: x.index_put((torch.tensor([0]),), x[:1] * 2, accumulate=True),
    "take_last": lambda x: x[:, -1],
    "flip": lambda x: x.flip(1),
    "roll": lambda x: x.roll(1, 1),
    "where": lambda x: torch.where(x > 0, x, x * 0.1),
    "masked_fill": lambda x: x.masked_fill(x < 0, -1.0),
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "norm": lambda x: x.norm(dim=-1),
    "normalize": lambda x: F.normalize(x, dim=-1),
    "var": lambda x: x.var(-1),
    "std": lambda x: x.std(1, keepdim=True),
    "logsumexp": lambda x: x.logsumexp(-1),
    "amax": lambda x: x.amax(1),
    "max": lambda x: x.max(1)[0],
    "prod": lambda x: x.prod(-1),
    "mean": lambda x: x.mean((0, 1)),
    "pad_reflect": lambda x: F.pad(x, (1, 1), mode="reflect"),
    "pad_replicate": lambda x: F.pad(x, (2, 1), mode="replicate"),
    "pad_circular": lambda x: F.pad(x, (1, 2), mode="circular"),
    "interpolate": lambda x: F.interpolate(x, size=7, mode="linear", align_corners=True),
    "interpolate_nearest": lambda x: F.interpolate(x, scale_factor=2, mode="nearest"),
    "grid_sample": lambda x: F.grid_sample(x.unsqueeze(1), torch.tanh(x[..., :2]).unsqueeze(1), align_corners=False),
    "tril": lambda x: (x @ x.transpose(1, 2)).tril(),
    "outer": lambda x: x.unsqueeze(-1) * x.unsqueeze(-2),
    "cdist": lambda x: torch.cdist(x, x + 1),
    "cosine_similarity": lambda x: F.cosine_similarity(x, x + 1, dim=-1),
    "chunk": lambda x: torch.cat(x.chunk(3, -1)[::-1], -1),
    "view": lambda x: x.reshape(x.size(0), -1).view(-1, x.size(1), I),
    "repeat": lambda x: x.repeat(1, 2, 1),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 1),
    "one_hot": lambda x: F.one_hot(x.argmax(-1), I) * x,
    "pow": lambda x: (x.abs() + 1) ** 2.5,
    "erf": lambda x: x.erf() + x.atan2(x + 3) + x.log1p().nan_to_num() + x.expm1(),
    "lerp": lambda x: torch.lerp(x, x * 2, 0.3),
    "baddbmm": lambda x: torch.baddbmm(x @ x.mT, x, x.mT, beta=0.5, alpha=2),
    "dropout_off": lambda x: F.dropout(x, 0.0),
    "gumbel_free": lambda x: F.log_softmax(x, -1) + F.softmax(x, 1),
    "detach": lambda x: x * x.detach() + x.sigmoid().detach(),
    "no_grad": _partly_without_gradients,
    "straight_through": lambda x: x + (x.round() - x).detach(),
    "cross_entropy_smoothed": lambda x: F.cross_entropy(x[0], _classes(x), label_smoothing=0.2, ignore_index=1),
    "cross_entropy_weighted": lambda x: F.cross_entropy(
        x[0], _classes(x), torch.arange(1.0, 1 + I), label_smoothing=0.2, reduction="none"
    ),
    "cross_entropy_shares": lambda x: F.cross_entropy(x[0], x[0].detach().softmax(-1), label_smoothing=0.2),
    "nll_each": lambda x: F.nll_loss(x[0], _classes(x), torch.arange(1.0, 1 + I), ignore_index=1, reduction="none"),
    "multiple": lambda x: {"first": x + 1, "second": [x * 2, x * 3]},
}


def _functions() -> list[Case]:
    found = [Case(name, lambda name=name: Function(getattr(F, name) if name != "threshold" else _threshold), sequence())
             for name in ACTIVATIONS]  # fmt: skip
    return [*found, *(Case(name, lambda f=f: Function(f), sequence()) for name, f in FUNCTIONS.items())]


def _threshold(x: Tensor) -> Tensor:
    return F.threshold(x, 0.1, -2.0)


CASES = [*_recurrent(), *_layers(), *_functions(), *(Case(name, *made) for name, made in NETWORKS.items())]
