"""Recurrent modules whose steps are loops in Python, written as people write them: each with inputs of any size.

A case is a module and the inputs for a batch of so many sequences of so many steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

I, H = 3, 4  # noqa: E741

# Name -> module, inputs for a batch and a number of steps.
CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[int, int], tuple[Tensor, ...]]]] = {}


def sequences(batch: int, steps: int) -> tuple[Tensor, ...]:
    return (torch.randn(batch, steps, I),)


def time_first(batch: int, steps: int) -> tuple[Tensor, ...]:
    return (torch.randn(steps, batch, I),)


def masked(batch: int, steps: int) -> tuple[Tensor, ...]:
    return torch.randn(batch, steps, I), torch.rand(batch, steps, 1) > 0.4


def tokens(batch: int, steps: int) -> tuple[Tensor, ...]:
    return (torch.randint(0, 9, (batch, steps)),)


def two_sequences(batch: int, steps: int) -> tuple[Tensor, ...]:
    return torch.randn(batch, steps + 2, I), torch.randn(batch, steps, I)


def sentences(batch: int, steps: int) -> tuple[Tensor, ...]:
    return (torch.randn(batch, steps, steps + 2, I),)


def case(inputs: Callable[[int, int], tuple[Tensor, ...]] = sequences) -> Callable[[type[nn.Module]], type[nn.Module]]:
    def register(module: type[nn.Module]) -> type[nn.Module]:
        CASES[module.__name__] = module, inputs
        return module

    return register


def weight(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(*shape) * 0.4)


@case()
class ElmanStack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.i, self.h, self.o = nn.Linear(I, H), nn.Linear(H, H), nn.Linear(H, 2)

    def forward(self, x: Any) -> Any:
        h, out = x.new_zeros(x.size(0), H), []
        for t in range(x.size(1)):
            h = torch.tanh(self.i(x[:, t]) + self.h(h))
            out.append(self.o(h))
        return torch.stack(out, 1)


@case()
class ElmanCat(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.Linear(I + H, H)

    def forward(self, x: Any) -> Any:
        h, out = torch.zeros(x.shape[0], H), []
        for t in range(x.shape[1]):
            h = torch.tanh(self.cell(torch.cat([x[:, t, :], h], dim=1)))
            out.append(h.unsqueeze(1))
        return torch.cat(out, dim=1), h


@case()
class ElmanPreallocated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.RNNCell(I, H)

    def forward(self, x: Any) -> Any:
        batch, steps, _ = x.shape
        out, h = torch.zeros(batch, steps, H), x.new_zeros(batch, H)
        for t in range(steps):
            h = self.cell(x[:, t], h)
            out[:, t] = h
        return out


@case(time_first)
class ElmanReadsItsOutput(nn.Module):
    """Begins from a row of zeros in front, and reads the row before the one that it writes."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(I, H)

    def forward(self, x: Any) -> Any:
        out = torch.zeros(x.size(0) + 1, x.size(1), H)
        for t in range(x.size(0)):
            out[t + 1] = self.cell(x[t], out[t].clone())
        return out[1:]


@case()
class LSTMCellLast(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.o = nn.LSTMCell(I, H), nn.Linear(H, 2)

    def forward(self, x: Any) -> Any:
        h = c = x.new_zeros(x.size(0), H)
        for step in x.unbind(1):
            h, c = self.cell(step, (h, c))
        return self.o(h)


@case(time_first)
class LSTMByProducts(nn.Module):
    """Gates by `mm` with transposed weights, a head behind the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.wi, self.wh, self.o = weight(4 * H, I), weight(4 * H, H), nn.Linear(H, 2)

    def forward(self, x: Any) -> Any:
        h = x.new_zeros(x.size(1), H)
        c, out = h, []
        for step in x:
            i, f, g, o = (torch.mm(step, self.wi.t()) + torch.mm(h, self.wh.t())).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            out.append(h)
        return self.o(torch.stack(out))


@case()
class LayerNormLSTM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.i, self.h = nn.Linear(I, 4 * H, bias=False), nn.Linear(H, 4 * H, bias=False)
        self.ni, self.nh, self.nc = nn.LayerNorm(4 * H), nn.LayerNorm(4 * H), nn.LayerNorm(H)

    def forward(self, x: Any) -> Any:
        h = x.new_zeros(x.size(0), H)
        c, out = h, []
        for t in range(x.size(1)):
            i, f, g, o = (self.ni(self.i(x[:, t])) + self.nh(self.h(h))).chunk(4, -1)
            c = torch.sigmoid(f + 1) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(self.nc(c))
            out += [h]
        return torch.stack(out, dim=1)


@case()
class PeepholeLSTM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gates = nn.Linear(I + H, 4 * H)
        self.pi, self.pf, self.po = weight(H), weight(H), weight(H)

    def forward(self, x: Any) -> Any:
        h = c = x.new_zeros(x.size(0), H)
        total = 0.0
        for t in range(x.size(1)):
            i, f, g, o = torch.split(self.gates(torch.cat((x[:, t], h), 1)), H, 1)
            i, f = torch.sigmoid(i + self.pi * c), torch.sigmoid(f + self.pf * c)
            c = f * c + i * torch.tanh(g)
            h = torch.sigmoid(o + self.po * c) * c.tanh()
            total = total + h.square().mean()
        return total / x.size(1)


@case(masked)
class ZoneoutLSTM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(I, H)

    def forward(self, x: Any, keep: Any) -> Any:
        h = x.new_zeros(x.size(0), H)
        c, out = h, []
        for t in range(x.size(1)):
            new, memory = self.cell(x[:, t], (h, c))
            h, c = torch.where(keep[:, t], h, new), 0.1 * c + 0.9 * memory
            out.append(h)
        return torch.stack(out, 1)


@case()
class MinimalGatedUnit(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.f, self.c = nn.Linear(I + H, H), nn.Linear(I + H, H)

    def forward(self, x: Any) -> Any:
        h, out = torch.zeros(x.size(0), H, dtype=x.dtype), []
        for t in range(x.size(1)):
            f = torch.sigmoid(self.f(torch.cat([h, x[:, t]], -1)))
            h = (1 - f) * h + f * torch.tanh(self.c(torch.cat([f * h, x[:, t]], -1)))
            out.append(h)
        return torch.stack(out, 1)


@case()
class IndRNN(nn.Module):
    """Two layers, one behind the other."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs = nn.ModuleList([nn.Linear(I, H), nn.Linear(H, H)])
        self.own = nn.ParameterList([weight(H), weight(H)])

    def forward(self, x: Any) -> Any:
        for layer, u in zip(self.inputs, self.own, strict=True):
            z, h, out = layer(x), x.new_zeros(x.size(0), H), []
            for t in range(z.size(1)):
                h = F.relu(z[:, t] + u * h)
                out.append(h)
            x = torch.stack(out, 1)
        return x


@case(time_first)
class SRU(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w, self.v, self.b = nn.Linear(I, 3 * H), weight(2, H), weight(2, H)
        self.highway = nn.Linear(I, H)

    def forward(self, x: Any) -> Any:
        u, f, r = self.w(x).chunk(3, -1)
        skip = self.highway(x)
        c, out = torch.zeros_like(u[0]), []
        for t in range(x.shape[0]):
            forget = torch.sigmoid(f[t] + self.v[0] * c + self.b[0])
            reset = torch.sigmoid(r[t] + self.v[1] * c + self.b[1])
            c = forget * c + (1 - forget) * u[t]
            out.append(reset * c + (1 - reset) * skip[t])
        return torch.stack(out, 0)


@case()
class QRNN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(I, 3 * H, 2)

    def forward(self, x: Any) -> Any:
        z, f, o = self.conv(F.pad(x.transpose(1, 2), (1, 0))).transpose(1, 2).chunk(3, -1)
        z, f, o = z.tanh(), f.sigmoid(), o.sigmoid()
        c, out = None, []
        for t in range(x.size(1)):
            c = (1 - f[:, t]) * z[:, t] if c is None else f[:, t] * c + (1 - f[:, t]) * z[:, t]
            out.append(o[:, t] * c)
        return torch.stack(out, 1)


@case()
class Rotating(nn.Module):
    """Linear recurrent units (Orvieto et al., 2023): complex states, whose two parts begin as one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.size, self.angle = nn.Parameter(torch.rand(H)), nn.Parameter(torch.rand(H))
        self.real, self.imaginary, self.o = nn.Linear(I, H), nn.Linear(I, H), nn.Linear(2 * H, 2)

    def forward(self, x: Any) -> Any:
        size = torch.exp(-torch.exp(self.size))
        a, b = size * torch.cos(self.angle), size * torch.sin(self.angle)
        real = imaginary = x.new_zeros(x.size(0), H)
        out = x.new_zeros(x.size(0), x.size(1), 2)
        for t in range(x.size(1)):
            u, v = self.real(x[:, t]), self.imaginary(x[:, t])
            real, imaginary = a * real - b * imaginary + u, a * imaginary + b * real + v
            out[:, t] = self.o(torch.cat([real, imaginary], 1))
        return out


@case()
class Autoregressive(nn.Module):
    """Reads its last three outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(I + 3 * H, H)

    def forward(self, x: Any) -> Any:
        past, out = [x.new_zeros(x.size(0), H)] * 3, []
        for t in range(x.size(1)):
            y = torch.tanh(self.body(torch.cat([x[:, t], *past], 1)))
            past = [*past[1:], y]
            out.append(y)
        return torch.stack(out, 1)


@case()
class Phased(nn.Module):
    """An LSTM that opens by the time (Neil et al., 2016): its last cell state is not read."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.period = nn.LSTMCell(I, H), nn.Parameter(torch.rand(H) + 0.5)

    def forward(self, x: Any) -> Any:
        h = c = x.new_zeros(x.size(0), H)
        out = []
        for t in range(x.size(1)):
            phase = torch.fmod(x[:, t, :1], self.period).abs() / self.period
            opened = torch.where(phase < 0.3, 2 * phase, 0.1 * phase)
            following, cell = self.cell(x[:, t], (h, c))
            h, c = opened * following + (1 - opened) * h, opened * cell + (1 - opened) * c
            out.append(h)
        return torch.stack(out, 1)


@case()
class LastStepApart(nn.Module):
    """Advantages, for which what is behind the last step is the last one's own (Schulman et al., 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.value = nn.GRU(I, H, batch_first=True), nn.Linear(H, 1)

    def forward(self, x: Any) -> Any:
        values, reward, done = self.value(self.body(x)[0]).squeeze(-1), x[:, :, 0], x[:, :, 1].sigmoid()
        advantages, last = torch.zeros_like(values), 0
        with torch.no_grad():
            for t in reversed(range(x.size(1))):
                if t == x.size(1) - 1:
                    lives, following = 1.0 - done[:, -1], values[:, -1]
                else:
                    lives, following = 1.0 - done[:, t + 1], values[:, t + 1]
                delta = reward[:, t] + 0.9 * following * lives - values[:, t]
                advantages[:, t] = last = delta + 0.8 * lives * last
        return (values - (advantages + values.detach())).square().mean()


@case()
class LinearAttention(nn.Module):
    """Sums of keys and values (Katharopoulos et al., 2020), which begin as a number: a step has several products."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(I, H), nn.Linear(I, H), nn.Linear(I, H)

    def forward(self, x: Any) -> Any:
        q, k, v = F.elu(self.q(x)) + 1, F.elu(self.k(x)) + 1, self.v(x)
        memory, total, out = 0, 0, []
        for t in range(x.size(1)):
            memory = memory + torch.einsum("bd,be->bde", k[:, t], v[:, t])
            total = total + k[:, t]
            weight = torch.einsum("bd,bd->b", q[:, t], total).unsqueeze(-1)
            out.append(torch.einsum("bd,bde->be", q[:, t], memory) / weight)
        return torch.stack(out, dim=1)


@case(sentences)
class WordsInSentences(nn.Module):
    """A loop within the steps of another one, whose state begins anew in each."""

    def __init__(self) -> None:
        super().__init__()
        self.word, self.sentence = nn.GRUCell(I, H), nn.GRUCell(H, H)

    def forward(self, x: Any) -> Any:
        whole, out = x.new_zeros(x.size(0), H), []
        for t in range(x.size(1)):
            h = x.new_zeros(x.size(0), H)
            for word in x[:, t].unbind(1):
                h = self.word(word, h)
            whole = self.sentence(h, whole)
            out.append(whole)
        return torch.stack(out, 1)


@case()
class RungeKutta(nn.Module):
    """Two steps of an equation between observations: eight nodes of a kind in a step, and the time as a column."""

    def __init__(self) -> None:
        super().__init__()
        self.f, self.h = nn.Sequential(nn.Linear(H + I + 1, 6), nn.Tanh(), nn.Linear(6, H)), nn.Linear(I, H)

    def slope(self, t: float, u: Any, h: Any) -> Any:
        return self.f(torch.cat([h, u, torch.full_like(h[:, :1], t)], -1))

    def forward(self, x: Any) -> Any:
        h = self.h(x[:, 0])
        out = [h]
        for i in range(x.size(1) - 1):
            for a in (0, 0.5):
                b, c = a + 0.25, a + 0.5
                u, v, w = (x[:, i] * (1 - share) + x[:, i + 1] * share for share in (a, b, c))
                k1 = self.slope(i + a, u, h)
                k2 = self.slope(i + b, v, h + k1 / 4)
                k3 = self.slope(i + b, v, h + k2 / 4)
                k4 = self.slope(i + c, w, h + k3 / 2)
                h = h + (k1 + 2 * k2 + 2 * k3 + k4) / 12
            out.append(h)
        return torch.stack(out, 1)


@case()
class KalmanFilter(nn.Module):
    """Steps hold a loop of their own (the inverse); the first one does less. Weights go by a state that is fed back."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.c, self.mixture = weight(2, H, H), weight(I, H), nn.GRUCell(I, 2)

    def forward(self, x: Any) -> Any:
        batch = x.size(0)
        mean, spread, mixture = x.new_zeros(batch, H, 1), torch.eye(H).repeat(batch, 1, 1), x.new_zeros(batch, 2)
        before, out = x.new_zeros(batch, I), []
        for t in range(x.size(1)):
            mixture = self.mixture(before, mixture)
            a = torch.einsum("bk,kij->bij", mixture.softmax(1), self.a)
            if t > 0:
                mean, spread = a @ mean, a @ spread @ a.mT + 0.1 * torch.eye(H)
            gain = spread @ self.c.T @ torch.linalg.inv(self.c @ spread @ self.c.T + torch.eye(I))
            before = x[:, t]
            mean = mean + gain @ (before.unsqueeze(-1) - self.c @ mean)
            spread = spread - gain @ self.c @ spread
            out.append(mean.squeeze(-1))
        return torch.stack(out, 1)


@case(lambda batch, steps: (torch.randn(batch, steps, I), torch.randint(1, I, (batch, 3))))
class Alignments(nn.Module):
    """Scores of labels between blanks (Graves et al., 2006): of a number that is open, written in place."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = weight(I)

    def forward(self, x: Any, labels: Any) -> Any:
        scores, count = F.log_softmax(x * self.scale, -1), 2 * labels.size(1) + 1
        placed = torch.zeros(x.size(0), count, dtype=torch.long)
        placed[:, 1::2] = labels
        a = torch.full((x.size(0), count), -20.0)
        a[:, 0] = scores[:, 0, 0]
        for t in range(1, x.size(1)):
            shifted = F.pad(a, (1, 0), value=-20.0)[:, :-1]
            a = torch.logaddexp(a, shifted) + scores[:, t].gather(1, placed)
        return a


@case(lambda batch, steps: (torch.randn(batch, steps, I), torch.randn(batch, steps, I)))
class Warping(nn.Module):
    """A table by loops over both axes, each entry from its neighbours (soft dynamic time warping)."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(I, I)

    def forward(self, x: Any, y: Any) -> Any:
        distances = torch.cdist(self.lin(x), y) ** 2
        batch, n, m = distances.shape
        table = [[torch.full((batch,), 1e5)] * (m + 1) for _ in range(n + 1)]
        table[0][0] = torch.zeros(batch)
        for i in range(n):
            for j in range(m):
                before = torch.stack([table[i][j + 1], table[i + 1][j], table[i][j]], 1)
                table[i + 1][j + 1] = distances[:, i, j] - torch.logsumexp(-before, 1)
        return table[n][m]


@case(lambda batch, steps: (torch.randn(batch, steps, I), torch.randn(batch, steps, I)))
class WarpingByRows(nn.Module):
    """The same table by its rows: each is a loop within a step, and begins anew."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(I, I)

    def forward(self, x: Any, y: Any) -> Any:
        costs = torch.cdist(self.lin(x), y)
        far = torch.full((x.size(0), 1), 1e4)
        above = torch.cat([torch.zeros(x.size(0), 1), far.expand(-1, y.size(1))], 1)
        for i in range(x.size(1)):
            row = [far[:, 0]]
            for j in range(y.size(1)):
                near = torch.stack([above[:, j], above[:, j + 1], row[-1]], 1)
                row.append(costs[:, i, j] - torch.logsumexp(-near, 1))
            above = torch.stack(row, 1)
        return above[:, -1]
