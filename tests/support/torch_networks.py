"""Whole recurrent PyTorch networks of the zoo, each written as its field writes it."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (PyTorch's own name for it)
from torch import Tensor, nn

I, H = 3, 4  # noqa: E741 (the field's name)


class TextReader(nn.Module):
    """Convolutions, then a recurrent layer along the width of the picture (CRNN; Shi et al., 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, H, 3, padding=1), nn.BatchNorm2d(H), nn.ReLU(), nn.MaxPool2d((2, 1)), nn.Conv2d(H, H, (4, 1))
        )
        self.recurrent = nn.LSTM(H, H, bidirectional=True)
        self.head = nn.Linear(2 * H, 6)

    def forward(self, image: Tensor) -> Tensor:
        x = self.features(image).squeeze(2).permute(2, 0, 1)
        return self.head(self.recurrent(x)[0]).log_softmax(-1)


class VariationalAutoencoder(nn.Module):
    """Kingma and Welling, 2014; the noise is an input."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.GRU(I, H, batch_first=True)
        self.moments = nn.Linear(H, 4)
        self.decoder = nn.Sequential(nn.Linear(2, H), nn.SELU(), nn.Linear(H, I))

    def forward(self, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_variance = self.moments(self.encoder(x)[1][0]).chunk(2, -1)
        code = mean + noise * torch.exp(0.5 * log_variance)
        divergence = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp(), -1)
        return F.mse_loss(self.decoder(code), x.mean(1)), divergence.mean()


class Triplets(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.recurrent = nn.GRU(I, H, batch_first=True)
        self.loss = nn.TripletMarginLoss(margin=0.5, swap=True)

    def code(self, x: Tensor) -> Tensor:
        return F.normalize(self.recurrent(x)[0].mean(1), dim=-1)

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return self.loss(self.code(anchor), self.code(positive), self.code(negative))


class NormalizedCells(nn.Module):
    """An LSTM's cell in a loop, normalized and with one mask of dropout for all steps (Gal and Ghahramani, 2016)."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(I, H)
        self.norm = norm

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        h = c = x.new_zeros(x.shape[0], H)
        made = []
        for step in range(x.shape[1]):
            h, c = self.cell(x[:, step], (h * mask, c))
            h = self.norm(h)
            made.append(h)
        return torch.stack(made, 1)


class DroppingCells(nn.Module):
    """A GRU's cell in a loop, with a Dropout that drops nothing, as in evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(I, H)
        self.dropout = nn.Dropout(0.0)
        self.head = nn.Linear(H, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(x.shape[0], H)
        made = []
        for step in x.unbind(1):
            h = self.cell(self.dropout(step), h)
            made.append(self.head(self.dropout(h)))
        return torch.stack(made, 1)


class TeacherForcing(nn.Module):
    """A decoder with additive attention (Bahdanau et al., 2015) that is told the words before."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, I)
        self.encoder = nn.GRU(I, H, batch_first=True, bidirectional=True)
        self.decoder = nn.GRUCell(I + 2 * H, H)
        self.keys, self.query = nn.Linear(2 * H, H, bias=False), nn.Linear(H, H)
        self.energy = nn.Parameter(torch.randn(H))
        self.head = nn.Linear(3 * H, 11)

    def forward(self, source: Tensor, words: Tensor) -> Tensor:
        memory, last = self.encoder(self.words(source))
        keys, state = self.keys(memory), torch.tanh(last.sum(0))
        losses = []
        for step in range(words.shape[1] - 1):
            weights = F.softmax(torch.tanh(keys + self.query(state).unsqueeze(1)) @ self.energy, -1)
            context = torch.bmm(weights.unsqueeze(1), memory).squeeze(1)
            state = self.decoder(torch.cat([self.words(words[:, step]), context], -1), state)
            scores = self.head(torch.cat([state, context], -1))
            losses.append(F.cross_entropy(scores, words[:, step + 1], label_smoothing=0.1))
        return torch.stack(losses)


class Pointer(nn.Module):
    """Probabilities of places in the input (Vinyals et al., 2015), of those within lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent = nn.LSTM(I, H, batch_first=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        out, (state, _) = self.recurrent(x)
        scores = torch.einsum("bth,bh->bt", out, state[-1])
        outside = torch.arange(x.shape[1]) >= lengths.unsqueeze(1)
        return F.log_softmax(scores.masked_fill(outside, float("-inf")), -1).masked_fill(outside, 0.0)


class LearntStart(nn.Module):
    """Initial states that are learnt, and weights shared by two places."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, H)
        self.recurrent = nn.LSTM(H, H, batch_first=True)
        self.h, self.c = nn.Parameter(torch.randn(1, 1, H)), nn.Parameter(torch.randn(1, 1, H))
        self.head = nn.Linear(H, 11, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids: Tensor) -> Tensor:
        start = (self.h.expand(-1, ids.shape[0], -1).contiguous(), self.c.repeat(1, ids.shape[0], 1))
        return self.head(self.recurrent(self.words(ids), start)[0])


class MixtureDensity(nn.Module):
    """The likelihood of a mixture of normal distributions (Bishop, 1994)."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent = nn.RNN(I, H, batch_first=True)
        self.head = nn.Linear(H, 9)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        shares, means, deviations = self.head(self.recurrent(x)[0]).split(3, -1)
        normal = torch.distributions.Normal(means, F.softplus(deviations) + 0.1, validate_args=False)
        return -torch.logsumexp(shares.log_softmax(-1) + normal.log_prob(target), -1)


class RandomField(nn.Module):
    """The likelihood of tags in a linear chain (Lafferty et al., 2001), by the forward algorithm."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.LSTM(I, H, batch_first=True)
        self.transitions = nn.Parameter(torch.randn(H, H))

    def forward(self, x: Tensor, tags: Tensor) -> Tensor:
        scores = self.scores(x)[0]
        alpha = scores[:, 0]
        for step in range(1, x.shape[1]):
            alpha = torch.logsumexp(alpha.unsqueeze(2) + self.transitions, 1) + scores[:, step]
        path = scores.gather(2, tags.unsqueeze(2)).sum((1, 2)) + self.transitions[tags[:, :-1], tags[:, 1:]].sum(1)
        return alpha.logsumexp(1) - path


class Quantiles(nn.Module):
    """A forecaster of three quantiles with the pinball loss."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent = nn.GRU(I, H, 2, batch_first=True)
        self.head = nn.Linear(H, 3)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        off = target - self.head(self.recurrent(x)[0][:, -1])
        shares = torch.tensor([0.1, 0.5, 0.9])
        return torch.maximum(shares * off, (shares - 1) * off).sum(-1)
