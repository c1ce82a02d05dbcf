"""Inputs for whole networks of the zoo."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from tests.support import torch_feedforward_networks as forward
from tests.support import torch_further_networks as further
from tests.support import torch_networks as nets
from tests.support.torch_networks import H, I

Inputs = Callable[[int, int], tuple[Tensor, ...]]


def _lengths(b: int, t: int) -> Tensor:
    return torch.tensor([max(1, t - index) for index in range(b)])


def _words(b: int, t: int) -> Tensor:
    return torch.randint(0, 11, (b, t))


def _batches(*shape: int) -> Inputs:
    """Inputs whose length the module's own loop fixes."""
    return lambda b, _: (torch.randn(b, *shape),)


def _with_masks(more: int) -> Inputs:
    return lambda b, _: (torch.randn(b + more, 5, I), torch.rand(b + more, H))


def _masked(b: int, t: int) -> tuple[Tensor, ...]:
    return torch.randn(b, t, 8), torch.randn(b, t, 3), torch.randn(b, t, 5), torch.arange(t).expand(b, t) > t - 2


# Name -> a new module, and its inputs of a batch size and a length.
NETWORKS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "text_reader": (nets.TextReader, lambda b, t: (torch.randn(b, 1, 8, t + 2),)),
    "wavenet": (forward.WaveNet, lambda b, t: (torch.randn(b, t, I),)),
    "variational_autoencoder": (nets.VariationalAutoencoder, lambda b, t: (torch.randn(b, t, I), torch.randn(b, 2))),
    "adversaries": (forward.Adversaries, lambda b, t: (torch.randn(b, I), torch.randn(b + t, I))),
    "triplets": (nets.Triplets, lambda b, t: tuple(torch.randn(b, t, I) for _ in range(3))),
    "siamese": (
        forward.Siamese,
        lambda b, t: (torch.randn(b * t, I), torch.randn(b * t, I), (torch.arange(b * t) % 2).float()),
    ),
    "recommender": (forward.Recommender, lambda b, t: (_words(b, t), _words(b, t + 1), torch.rand(b, t))),
    "autoencoder": (forward.Autoencoder, lambda b, t: (torch.randn(b, H, 2 * t),)),
    "squeeze_excitation": (forward.SqueezeExcitation, lambda b, t: (torch.randn(b + 1, H, t, t + 1),)),
    "cells_batch_norm": (
        lambda: nets.NormalizedCells(nn.BatchNorm1d(H)),
        _with_masks(2),
    ),
    "cells_layer_norm": (
        lambda: nets.NormalizedCells(nn.LayerNorm(H)),
        _with_masks(0),
    ),
    "cells_dropout": (nets.DroppingCells, _batches(5, I)),
    "teacher_forcing": (nets.TeacherForcing, lambda b, t: (_words(b, t), _words(b, 5))),
    "masked_attention": (forward.MaskedAttention, _masked),
    "padded_encoder": (forward.PaddedEncoder, lambda b, t: (torch.randn(b, t, 8), _lengths(b, t))),
    "temporal_convolutions": (forward.TemporalConvolutions, lambda b, t: (torch.randn(b, t, I),)),
    "pointer": (nets.Pointer, lambda b, t: (torch.randn(b, t, I), _lengths(b, t))),
    "graph_convolution": (
        forward.GraphConvolution,
        lambda b, t: (torch.randn(t, I), torch.randint(0, t, (b * t,)), torch.randint(0, t, (b * t,))),
    ),
    "ranking": (forward.Ranking, lambda b, t: (torch.randn(b, t, I), torch.rand(b, t))),
    "spatial_transformer": (forward.SpatialTransformer, lambda b, t: (torch.randn(b, I, t + 2, t + 3),)),
    "capsules": (forward.Capsules, lambda b, t: (torch.randn(b, t, I),)),
    "learnt_start": (nets.LearntStart, lambda b, t: (_words(b, t),)),
    "mixture_density": (nets.MixtureDensity, lambda b, t: (torch.randn(b, t, I), torch.randn(b, t, 1))),
    "random_field": (nets.RandomField, lambda b, _: (torch.randn(b, 5, I), torch.randint(0, H, (b, 5)))),
    "differential_equation": (forward.OrdinaryDifferentialEquation, lambda b, t: (torch.randn(b, t, I),)),
    "rotary_language_model": (forward.RotaryLanguageModel, lambda b, t: (_words(b, t),)),
    "linear_biases": (forward.LinearBiases, lambda b, t: (torch.randn(b, t, 8),)),
    "experts": (forward.Experts, lambda b, t: (torch.randn(b, t, I),)),
    "u_net": (forward.UNet, lambda b, t: (torch.randn(b, I, t + 2, t + 3),)),
    "patches": (forward.Patches, _batches(I, 6, 6)),
    "forget_multiply": (forward.ForgetMultiply, lambda b, t: (torch.randn(b, t, I),)),
    "spectrum": (forward.Spectrum, lambda b, t: (torch.randn(b, t, 16),)),
    "statistics": (forward.Statistics, lambda b, t: (torch.randn(b, t, I),)),
    "auto_correlation": (further.AutoCorrelation, lambda b, t: (torch.randn(b, t + 6, 6),)),
    "prob_sparse": (further.ProbSparse, lambda b, t: (torch.randn(b, t + 4, 6),)),
    "diagonal_states": (further.DiagonalStates, lambda b, t: (torch.randn(b, t + 3, 4),)),
    "fourier_layer": (further.FourierLayer, _batches(2, 8, 8)),
    "sparse_process": (further.SparseProcess, lambda b, _: (torch.randn(b, 4),)),
    "orthogonal_layers": (further.OrthogonalLayers, lambda b, t: (torch.randn(b, t, 4),)),
    "edge_attention": (
        further.EdgeAttention,
        lambda b, t: (torch.randn(b + 3, 4), torch.randint(0, b + 3, (2, 4 * t))),
    ),
    "spline": (further.Spline, _batches(4)),
    "selective_states": (further.SelectiveStates, lambda b, t: (torch.randn(b, t, 4),)),
    "sampled_offsets": (further.SampledOffsets, lambda b, t: (torch.randn(b, 3, t + 4, t + 5),)),
    "quantiles": (nets.Quantiles, lambda b, t: (torch.randn(b, t, I), torch.randn(b, 1))),
}
