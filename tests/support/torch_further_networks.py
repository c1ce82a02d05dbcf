"""Networks of rarer operations: spectra, factors of matrices, scatters, splines, running sums."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (PyTorch's own name for it)
from torch import Tensor, nn
from torch.nn.utils import parametrizations


class AutoCorrelation(nn.Module):
    """A forecaster's attention to lags, found by their correlation (Wu et al., Autoformer, 2021)."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(6, 6) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        steps = x.shape[1]
        trend = F.avg_pool1d(F.pad(x.mT, (2, 2), mode="replicate"), 5, 1).mT
        season = x - trend
        query, key = (torch.fft.rfft(part(season), dim=1) for part in (self.query, self.key))
        correlation = torch.fft.irfft(query * key.conj(), n=steps, dim=1).mean(-1)
        weights, lags = correlation.topk(2, dim=1)
        values, total = self.value(season), trend
        for place in range(2):
            moved = (torch.arange(steps) + lags[:, place : place + 1]) % steps
            shifted = values.gather(1, moved.unsqueeze(-1).expand_as(values))
            total = total + weights.softmax(-1)[:, place, None, None] * shifted
        return total


class ProbSparse(nn.Module):
    """Attention of the few queries that differ most from uniform, and a pooling (Zhou et al., Informer, 2021)."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(6, 6) for _ in range(3))
        self.convolution = nn.Conv1d(6, 6, 3, padding=1, padding_mode="circular")

    def forward(self, x: Tensor) -> Tensor:
        scores = self.query(x) @ self.key(x).mT
        values = self.value(x)
        active = (scores.amax(-1) - scores.mean(-1)).topk(3, dim=1)[1].unsqueeze(-1)
        attended = scores.gather(1, active.expand(-1, -1, scores.shape[-1])).softmax(-1) @ values
        context = values.mean(1, keepdim=True).expand_as(values).clone()
        context = context.scatter(1, active.expand_as(attended), attended)
        pooled: Tensor = F.max_pool1d(F.elu(self.convolution(context.mT)), 3, 2, 1)
        return pooled.mT


class DiagonalStates(nn.Module):
    """A long convolution whose kernel is that of a diagonal state space (Gu et al., S4D, 2022)."""

    def __init__(self) -> None:
        super().__init__()
        self.rate, self.frequency = nn.Parameter(torch.zeros(4, 3)), nn.Parameter(torch.arange(12.0).reshape(4, 3))
        self.readout, self.step = nn.Parameter(torch.randn(4, 3, 2)), nn.Parameter(-torch.rand(4) - 1)

    def forward(self, x: Tensor) -> Tensor:
        steps = x.shape[1]
        state = -self.rate.exp() + 1j * self.frequency
        moved = state * self.step.exp().unsqueeze(1)
        weights = torch.view_as_complex(self.readout) * (torch.exp(moved) - 1) / state
        kernel = torch.einsum("hn,hnl->hl", weights, torch.exp(moved.unsqueeze(-1) * torch.arange(steps))).real
        product = torch.fft.rfft(x.mT, n=2 * steps) * torch.fft.rfft(kernel, n=2 * steps)
        return F.gelu(torch.fft.irfft(product, n=2 * steps)[..., :steps]).mT


class FourierLayer(nn.Module):
    """Few frequencies of an image, mixed, beside a convolution (Li et al., Fourier neural operator, 2021)."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.beside = nn.Parameter(torch.randn(2, 3, 4, 3, 2) / 4), nn.Conv2d(2, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = torch.fft.rfft2(x)[:, :, :4, :3]
        mixed = torch.zeros(x.shape[0], 3, 8, 5, dtype=torch.complex64)
        mixed[:, :, :4, :3] = torch.einsum("bixy,ioxy->boxy", kept, torch.view_as_complex(self.weight))
        return F.gelu(torch.fft.irfft2(mixed, s=(8, 8)) + self.beside(x))


class SparseProcess(nn.Module):
    """A Gaussian process on inducing points, with its variational distribution (Hensman et al., 2013)."""

    def __init__(self) -> None:
        super().__init__()
        self.points, self.lengths = nn.Parameter(torch.randn(5, 4)), nn.Parameter(torch.zeros(4))
        self.mean, self.factor = nn.Parameter(torch.randn(5)), nn.Parameter(torch.eye(5))

    def _kernel(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.exp(-(((a.unsqueeze(1) - b) / self.lengths.exp()) ** 2).sum(-1) / 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        root = torch.linalg.cholesky(self._kernel(self.points, self.points) + 1e-2 * torch.eye(5))
        known = torch.linalg.solve_triangular(root, self._kernel(self.points, x), upper=False)
        factor = self.factor.tril().abs() + torch.eye(5)
        variance = 1 - known.square().sum(0) + (known.T @ factor).square().sum(1)
        normal = torch.distributions.MultivariateNormal
        learnt = normal(self.mean, scale_tril=factor)
        return (
            known.T @ self.mean,
            variance,
            torch.distributions.kl_divergence(learnt, normal(torch.zeros(5), torch.eye(5))),
        )


class OrthogonalLayers(nn.Module):
    """Layers whose weights are orthogonal, in each of the three ways of PyTorch."""

    def __init__(self) -> None:
        super().__init__()
        made = parametrizations.orthogonal
        self.layers = nn.Sequential(
            made(nn.Linear(4, 4), orthogonal_map="matrix_exp"),
            nn.Tanh(),
            made(nn.Linear(4, 4), orthogonal_map="cayley"),
            nn.Tanh(),
            made(nn.Linear(4, 3), orthogonal_map="householder"),
        )

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.layers(x)
        return result


class EdgeAttention(nn.Module):
    """Attention over the edges of a graph, by scatters (Velickovic et al., 2018)."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.score = nn.Linear(4, 6), nn.Parameter(torch.randn(2, 6) / 2)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        nodes, (source, target) = self.project(x), edges.unbind()
        scores = F.leaky_relu((nodes[source] * self.score[0] + nodes[target] * self.score[1]).sum(-1), 0.2)
        most = scores.new_full((x.shape[0],), -torch.inf).scatter_reduce(0, target, scores, "amax")
        shares = (scores - most[target]).exp()
        total = scores.new_zeros(x.shape[0]).index_add(0, target, shares)
        weighted = nodes[source] * (shares / total[target]).unsqueeze(-1)
        return F.elu(torch.zeros_like(nodes).index_add(0, target, weighted))


class Spline(nn.Module):
    """A monotonic map by rational quadratics, with the logarithm of its slope (Durkan et al., 2019)."""

    def __init__(self) -> None:
        super().__init__()
        self.widths, self.heights, self.slopes = (nn.Parameter(torch.randn(4, 5 + more) / 3) for more in (0, 0, 1))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = torch.sigmoid(x)
        widths, heights, slopes = self.widths.softmax(-1), self.heights.softmax(-1), F.softplus(self.slopes)
        lefts, lows = (F.pad(sizes.cumsum(-1), (1, 0)) for sizes in (widths, heights))
        bins = (torch.searchsorted(lefts, x.T.contiguous(), right=True) - 1).clamp(0, 4).T.unsqueeze(-1)
        left, width, low, height, start, end = (
            table.expand(x.shape[0], -1, -1).gather(-1, bins).squeeze(-1)
            for table in (lefts, widths, lows, heights, slopes, slopes[:, 1:])
        )
        share, slope = (x - left) / width, height / width
        rest = share * (1 - share)
        below = slope + (start + end - 2 * slope) * rest
        y = low + height * (slope * share**2 + start * rest) / below
        steep = slope**2 * (end * share**2 + 2 * slope * rest + start * (1 - share) ** 2)
        return y, steep.log() - 2 * below.log()


class SelectiveStates(nn.Module):
    """States whose decay depends on the input, all steps by running sums (Gu and Dao, Mamba, 2023)."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.convolution = nn.Linear(4, 12), nn.Conv1d(6, 6, 3, groups=6, padding=2)
        self.chosen, self.decay, self.out = nn.Linear(6, 7), nn.Parameter(torch.rand(6, 3)), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        steps = x.shape[1]
        x, gate = self.into(x).chunk(2, -1)
        x = F.silu(self.convolution(x.mT)[..., :steps].mT)
        size, taken, read = self.chosen(x).split([1, 3, 3], -1)
        size = F.softplus(size).unsqueeze(-1)
        kept = -(size * self.decay.exp()).cumsum(1)
        states = (size * taken.unsqueeze(2) * x.unsqueeze(-1) * (-kept).exp()).cumsum(1) * kept.exp()
        result: Tensor = self.out((states * read.unsqueeze(2)).sum(-1) * F.silu(gate))
        return result


class SampledOffsets(nn.Module):
    """An image read at learnt offsets, as deformable convolutions read it (Dai et al., 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.offsets, self.mix = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(6, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        rows, columns = (torch.linspace(-1, 1, size) for size in x.shape[2:])
        grid = torch.stack(torch.meshgrid(rows, columns, indexing="ij")[::-1], -1)
        offsets = torch.tanh(self.offsets(x)).permute(0, 2, 3, 1).chunk(2, -1)
        read = [F.grid_sample(x, grid + part / 3, padding_mode="border", align_corners=True) for part in offsets]
        result: Tensor = self.mix(torch.cat(read, 1))
        return result
