"""Recurrent networks whose steps are loops in Python: attention, memories, agents, variational ones and others.

They join the cells in `CASES`.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tests.support.recurrent_modules import CASES, H, I, case, time_first, two_sequences, weight

__all__ = ["CASES"]


@case(two_sequences)
class AttentionDecoder(nn.Module):
    """Additive attention (Bahdanau et al., 2014)."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.GRU(I, H, batch_first=True)
        self.cell, self.query, self.score = nn.GRUCell(I + H, H), nn.Linear(H, H), nn.Linear(H, 1)
        self.out = nn.Linear(2 * H, 2)

    def forward(self, source: Any, target: Any) -> Any:
        memory, state = self.encoder(source)
        h, made = state[0], []
        for t in range(target.size(1)):
            weights = self.score(torch.tanh(memory + self.query(h).unsqueeze(1))).softmax(1)
            context = (weights * memory).sum(1)
            h = self.cell(torch.cat([target[:, t], context], 1), h)
            made.append(self.out(torch.cat([h, context], 1)))
        return torch.stack(made, 1)


@case(two_sequences)
class TacotronDecoder(nn.Module):
    """Location-sensitive attention with teacher forcing (Shen et al., 2018)."""

    def __init__(self) -> None:
        super().__init__()
        self.prenet = nn.Sequential(nn.Linear(I, H), nn.ReLU(), nn.Linear(H, H), nn.ReLU())
        self.attention, self.decoder = nn.LSTMCell(H + I, H), nn.LSTMCell(H + I, H)
        self.q, self.m, self.v = nn.Linear(H, 5, bias=False), nn.Linear(I, 5, bias=False), nn.Linear(5, 1, bias=False)
        self.location, self.dense = nn.Conv1d(2, 2, 3, padding=1, bias=False), nn.Linear(2, 5, bias=False)
        self.frame, self.gate = nn.Linear(H + I, I), nn.Linear(H + I, 1)

    def forward(self, memory: Any, frames: Any) -> Any:
        batch = memory.size(0)
        go = torch.zeros(1, batch, I)
        inputs = self.prenet(torch.cat([go, frames.transpose(0, 1)], 0))
        h1 = c1 = h2 = c2 = memory.new_zeros(batch, H)
        weights = total = memory.new_zeros(batch, memory.size(1))
        context, processed = memory.new_zeros(batch, I), self.m(memory)
        mels, gates, alignments = [], [], []
        while len(mels) < inputs.size(0) - 1:
            h1, c1 = self.attention(torch.cat((inputs[len(mels)], context), -1), (h1, c1))
            both = torch.cat((weights.unsqueeze(1), total.unsqueeze(1)), 1)
            located = self.dense(self.location(both).transpose(1, 2))
            energies = self.v(torch.tanh(self.q(h1.unsqueeze(1)) + located + processed)).squeeze(-1)
            weights = F.softmax(energies, 1)
            total = total + weights
            context = torch.bmm(weights.unsqueeze(1), memory).squeeze(1)
            h2, c2 = self.decoder(torch.cat((h1, context), -1), (h2, c2))
            both = torch.cat((h2, context), 1)
            mels += [self.frame(both)]
            gates += [self.gate(both).squeeze(1)]
            alignments += [weights]
        return torch.stack(mels, 1), torch.stack(gates, 1), torch.stack(alignments).transpose(0, 1)


@case()
class VRNN(nn.Module):
    """A variational RNN (Chung et al., 2015), whose noise is given."""

    def __init__(self) -> None:
        super().__init__()
        self.x, self.z = nn.Linear(I, H), nn.Linear(2, H)
        self.prior, self.post, self.dec = nn.Linear(H, 4), nn.Linear(2 * H, 4), nn.Linear(2 * H, I)
        self.cell = nn.GRUCell(2 * H, H)

    def forward(self, x: Any, noise: Any) -> Any:
        h, divergence, error = torch.zeros(x.size(0), H), 0, 0
        for t in range(x.size(1)):
            seen = F.relu(self.x(x[:, t]))
            mean, scale = self.post(torch.cat([seen, h], 1)).chunk(2, 1)
            own, width = self.prior(h).chunk(2, 1)
            scale, width = F.softplus(scale) + 0.1, F.softplus(width) + 0.1
            z = F.relu(self.z(mean + noise[:, t] * scale))
            guess = self.dec(torch.cat([z, h], 1))
            h = self.cell(torch.cat([seen, z], 1), h)
            ratio = (scale / width).square()
            divergence += 0.5 * (ratio + ((mean - own) / width).square() - 1 - ratio.log()).sum()
            error += F.mse_loss(guess, x[:, t], reduction="sum")
        return (divergence + error) / x.size(0)


CASES["VRNN"] = VRNN, lambda batch, steps: (torch.randn(batch, steps, I), torch.randn(batch, steps, 2))


@case()
class ScalarXLSTM(nn.Module):
    """sLSTM with exponential gates and a stabiliser (Beck et al., 2024)."""

    def __init__(self) -> None:
        super().__init__()
        self.w, self.r = nn.Linear(I, 4 * H), nn.Linear(H, 4 * H, bias=False)

    def forward(self, x: Any) -> Any:
        h, c, n, m = (x.new_zeros(x.size(0), H) for _ in range(4))
        out = []
        for t in range(x.size(1)):
            z, i, f, o = (self.w(x[:, t]) + self.r(h)).chunk(4, 1)
            stable = torch.maximum(F.logsigmoid(f) + m, i)
            i, f = torch.exp(i - stable), torch.exp(F.logsigmoid(f) + m - stable)
            c, n, m = f * c + i * torch.tanh(z), f * n + i, stable
            h = torch.sigmoid(o) * c / n.clamp(min=1e-6)
            out.append(h)
        return torch.stack(out, 1)


@case()
class MatrixXLSTM(nn.Module):
    """mLSTM, whose memory is a matrix of keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(I, H), nn.Linear(I, H), nn.Linear(I, H)
        self.i, self.f, self.o = nn.Linear(I, 1), nn.Linear(I, 1), nn.Linear(I, H)

    def forward(self, x: Any) -> Any:
        batch, steps, _ = x.shape
        q, k, v = self.q(x), self.k(x) / math.sqrt(H), self.v(x)
        memory, normal, m = x.new_zeros(batch, H, H), x.new_zeros(batch, H), x.new_zeros(batch, 1)
        out = []
        for t in range(steps):
            i, f = self.i(x[:, t]), F.logsigmoid(self.f(x[:, t]))
            stable = torch.max(f + m, i)
            i, f, m = torch.exp(i - stable), torch.exp(f + m - stable), stable
            memory = f.unsqueeze(-1) * memory + i.unsqueeze(-1) * v[:, t].unsqueeze(2) * k[:, t].unsqueeze(1)
            normal = f * normal + i * k[:, t]
            read = torch.einsum("bij,bj->bi", memory, q[:, t])
            scale = (normal * q[:, t]).sum(1, keepdim=True).abs().clamp(min=1.0)
            out.append(self.o(x[:, t]).sigmoid() * read / scale)
        return torch.stack(out, 1)


@case()
class NeuralTuringMachine(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.controller, self.read, self.write = nn.LSTMCell(I + H, H), nn.Linear(H, H + 6), nn.Linear(H, 3 * H + 6)
        self.memory, self.out = weight(5, H), nn.Linear(2 * H, 2)

    def address(self, parts: Any, memory: Any, before: Any) -> Any:
        key, beta, gate, shift, gamma = parts.split([H, 1, 1, 3, 1], 1)
        content = F.softmax(F.softplus(beta) * F.cosine_similarity(memory + 1e-6, key.tanh().unsqueeze(1), -1), 1)
        gate = gate.sigmoid()
        mixed = gate * content + (1 - gate) * before
        s = shift.softmax(1)
        moved = s[:, :1] * mixed.roll(1, 1) + s[:, 1:2] * mixed + s[:, 2:] * mixed.roll(-1, 1)
        sharp = (moved + 1e-8) ** (1 + F.softplus(gamma))
        return sharp / sharp.sum(1, keepdim=True)

    def forward(self, x: Any) -> Any:
        batch = x.size(0)
        memory = self.memory.unsqueeze(0).repeat(batch, 1, 1)
        h = c = read = x.new_zeros(batch, H)
        w_read = w_write = torch.full((batch, 5), 0.2)
        out = []
        for t in range(x.size(1)):
            h, c = self.controller(torch.cat([x[:, t], read], 1), (h, c))
            parts = self.write(h)
            w_write = self.address(parts[:, : H + 6], memory, w_write)
            erase, add = parts[:, H + 6 : 2 * H + 6].sigmoid(), parts[:, 2 * H + 6 :].tanh()
            memory = memory * (1 - w_write.unsqueeze(2) * erase.unsqueeze(1)) + w_write.unsqueeze(2) * add.unsqueeze(1)
            w_read = self.address(self.read(h), memory, w_read)
            read = torch.bmm(w_read.unsqueeze(1), memory).squeeze(1)
            out.append(self.out(torch.cat([h, read], 1)))
        return torch.stack(out, 1)


@case()
class DifferentiableNeuralComputer(nn.Module):
    """Usage, allocation and links of a memory of five places (Graves et al., 2016)."""

    def __init__(self) -> None:
        super().__init__()
        self.controller, self.interface, self.out = nn.LSTMCell(I + H, H), nn.Linear(H, 4 * H + 8), nn.Linear(2 * H, 2)

    def forward(self, x: Any) -> Any:
        batch, n = x.size(0), 5
        h = c = read = x.new_zeros(batch, H)
        memory, link = x.new_zeros(batch, n, H), x.new_zeros(batch, n, n)
        usage = precedence = w_read = w_write = x.new_zeros(batch, n)
        out = []
        for t in range(x.size(1)):
            h, c = self.controller(torch.cat([x[:, t], read], 1), (h, c))
            k_read, k_write, erase, add, rest = self.interface(h).split([H, H, H, H, 8], 1)
            free, allocate, gate = rest[:, :1].sigmoid(), rest[:, 1:2].sigmoid(), rest[:, 2:3].sigmoid()
            usage = (usage + w_write - usage * w_write) * (1 - free * w_read)
            ordered, order = torch.sort(usage, dim=1)
            products = torch.cumprod(torch.cat([torch.ones(batch, 1), ordered[:, :-1]], 1), 1)
            allocation = torch.gather((1 - ordered) * products, 1, torch.argsort(order, 1))
            content = F.softmax(F.cosine_similarity(memory + 1e-6, k_write.unsqueeze(1), 2), 1)
            w_write = gate * (allocate * allocation + (1 - allocate) * content)
            memory = memory * (1 - w_write.unsqueeze(2) * erase.sigmoid().unsqueeze(1))
            memory = memory + w_write.unsqueeze(2) * add.unsqueeze(1)
            wi, wj = w_write.unsqueeze(2), w_write.unsqueeze(1)
            link = ((1 - wi - wj) * link + wi * precedence.unsqueeze(1)) * (1 - torch.eye(n))
            precedence = (1 - w_write.sum(1, keepdim=True)) * precedence + w_write
            modes = rest[:, 3:6].softmax(1)
            content = F.softmax(F.cosine_similarity(memory + 1e-6, k_read.unsqueeze(1), 2), 1)
            forward, backward = (torch.bmm(m, w_read.unsqueeze(2)).squeeze(2) for m in (link, link.transpose(1, 2)))
            w_read = modes[:, :1] * backward + modes[:, 1:2] * content + modes[:, 2:] * forward
            read = (w_read.unsqueeze(2) * memory).sum(1)
            out.append(self.out(torch.cat([h, read], 1)))
        return torch.stack(out, 1)


@case()
class RWKV(nn.Module):
    """Time mixing in the numerically stable form (Peng et al., 2023)."""

    def __init__(self) -> None:
        super().__init__()
        self.k, self.v, self.r, self.o = nn.Linear(I, H), nn.Linear(I, H), nn.Linear(I, H), nn.Linear(H, I)
        self.decay, self.first, self.mix = weight(H), weight(H), nn.Parameter(torch.rand(I))

    def forward(self, x: Any) -> Any:
        before = F.pad(x, (0, 0, 1, -1))
        mixed = x * self.mix + before * (1 - self.mix)
        k, v, r = self.k(mixed), self.v(mixed), torch.sigmoid(self.r(mixed))
        a, b = torch.zeros_like(k[:, 0]), torch.zeros_like(k[:, 0])
        p, w, out = torch.full_like(a, -1e38), -torch.exp(self.decay), []
        for t in range(x.size(1)):
            q = torch.maximum(p, self.first + k[:, t])
            e1, e2 = torch.exp(p - q), torch.exp(self.first + k[:, t] - q)
            out.append((e1 * a + e2 * v[:, t]) / (e1 * b + e2))
            q = torch.maximum(p + w, k[:, t])
            e1, e2 = torch.exp(p + w - q), torch.exp(k[:, t] - q)
            a, b, p = e1 * a + e2 * v[:, t], e1 * b + e2, q
        return self.o(r * torch.stack(out, 1))


def tagged(batch: int, steps: int) -> tuple[Tensor, ...]:
    lengths = torch.arange(batch) % steps + 1
    return (
        torch.randint(0, 9, (batch, steps)),
        torch.randint(0, 3, (batch, steps)),
        torch.arange(steps) < lengths[:, None],
    )


@case(tagged)
class BiLSTMCRF(nn.Module):
    """The negative logarithm of a conditional random field's likelihood, sequences by a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.lstm = nn.Embedding(9, I), nn.LSTM(I, H, bidirectional=True, batch_first=True)
        self.out, self.start, self.end, self.moves = nn.Linear(2 * H, 3), weight(3), weight(3), weight(3, 3)

    def forward(self, words: Any, tags: Any, mask: Any) -> Any:
        scores = self.out(self.lstm(self.embedding(words))[0]).transpose(0, 1)
        tags, mask = tags.transpose(0, 1), mask.transpose(0, 1)
        steps, batch = tags.shape
        everyone = torch.arange(batch)
        path = self.start[tags[0]] + scores[0, everyone, tags[0]]
        alpha = self.start + scores[0]
        for i in range(1, steps):
            path = path + (self.moves[tags[i - 1], tags[i]] + scores[i, everyone, tags[i]]) * mask[i]
            following = torch.logsumexp(alpha.unsqueeze(2) + self.moves + scores[i].unsqueeze(1), 1)
            alpha = torch.where(mask[i].unsqueeze(1), following, alpha)
        last = tags[mask.long().sum(0) - 1, everyone]
        return (torch.logsumexp(alpha + self.end, 1) - path - self.end[last]).mean()


@case()
class SelectiveScan(nn.Module):
    """Mamba's recurrence step by step (Gu and Dao, 2023)."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.x, self.dt = nn.Linear(I, 2 * H), nn.Linear(H, 2 + 2 * 3), nn.Linear(2, H)
        self.conv = nn.Conv1d(H, H, 3, groups=H, padding=2)
        self.a = nn.Parameter(torch.log(torch.arange(1.0, 4.0).repeat(H, 1)))
        self.d, self.out = weight(H), nn.Linear(H, I)

    def forward(self, x: Any) -> Any:
        u, z = self.inner(x).chunk(2, -1)
        u = F.silu(self.conv(u.transpose(1, 2))[..., : x.size(1)].transpose(1, 2))
        dt, b, c = self.x(u).split([2, 3, 3], -1)
        dt = F.softplus(self.dt(dt))
        da = torch.exp(dt.unsqueeze(-1) * -torch.exp(self.a))
        db = dt.unsqueeze(-1) * b.unsqueeze(2) * u.unsqueeze(-1)
        h, ys = torch.zeros(x.size(0), H, 3), []
        for i in range(x.size(1)):
            h = da[:, i] * h + db[:, i]
            ys.append(torch.einsum("bdn,bn->bd", h, c[:, i]))
        return self.out((torch.stack(ys, 1) + u * self.d) * F.silu(z))


@case()
class ConvLSTM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gates, self.head = nn.Conv2d(2 + H, 4 * H, 3, padding=1), nn.Conv2d(H, 1, 1)

    def forward(self, x: Any) -> Any:
        batch, steps, _, rows, columns = x.size()
        h, c = (torch.zeros(batch, H, rows, columns) for _ in range(2))
        out = []
        for t in range(steps):
            i, f, o, g = torch.split(self.gates(torch.cat([x[:, t], h], 1)), H, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            out.append(h)
        return self.head(torch.stack(out, 1).flatten(0, 1)).unflatten(0, (batch, steps))


CASES["ConvLSTM"] = ConvLSTM, lambda batch, steps: (torch.randn(batch, steps, 2, 4, 5),)


@case()
class Reverse(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(I, H)

    def forward(self, x: Any) -> Any:
        h, out = x.new_zeros(x.size(0), H), []
        for t in reversed(range(x.size(1))):
            h = self.cell(x[:, t], h)
            out.insert(0, h)
        return torch.stack(out, 1)


@case()
class BothWays(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ahead, self.back, self.o = nn.GRUCell(I, H), nn.GRUCell(I, H), nn.Linear(2 * H, 2)

    def run(self, cell: Any, x: Any) -> Any:
        h, out = x.new_zeros(x.size(0), H), []
        for t in range(x.size(1)):
            h = cell(x[:, t], h)
            out.append(h)
        return torch.stack(out, 1)

    def forward(self, x: Any) -> Any:
        return self.o(torch.cat([self.run(self.ahead, x), self.run(self.back, x.flip(1)).flip(1)], -1))


@case()
class StackedCells(nn.Module):
    """Layers within a step, with a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs, self.cells = nn.Linear(I, H), nn.ModuleList([nn.GRUCell(H, H) for _ in range(3)])

    def forward(self, x: Any) -> Any:
        states, out = [torch.zeros(x.size(0), H) for _ in self.cells], []
        for t in range(x.size(1)):
            z = self.inputs(x[:, t])
            for k, cell in enumerate(self.cells):
                states[k] = cell(z, states[k])
                z = z + states[k]
            out.append(z)
        return torch.stack(out, 1), torch.stack(states)


@case()
class GRUD(nn.Module):
    """A GRU of values with gaps, which decay (Che et al., 2018)."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.gx, self.gh = nn.GRUCell(2 * I, H), weight(I), nn.Linear(I, H)
        self.register_buffer("mean", torch.randn(I))

    def forward(self, x: Any, mask: Any, delta: Any) -> Any:
        h, last, out = x.new_zeros(x.size(0), H), torch.zeros_like(x[:, 0]), []
        for t in range(x.size(1)):
            m, d = mask[:, t], delta[:, t]
            last = m * x[:, t] + (1 - m) * last
            gamma = torch.exp(-F.relu(self.gx * d))
            h = torch.exp(-F.relu(self.gh(d))) * h
            seen = m * x[:, t] + (1 - m) * (gamma * last + (1 - gamma) * self.mean)
            h = self.cell(torch.cat([seen, m], 1), h)
            out.append(h)
        return torch.stack(out, 1)


CASES["GRUD"] = (
    GRUD,
    lambda batch, steps: (
        torch.randn(batch, steps, I),
        (torch.rand(batch, steps, I) > 0.5).float(),
        torch.rand(batch, steps, I),
    ),
)


@case()
class Clockwork(nn.Module):
    """Groups of units that change each second and each fourth step."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.ModuleList([nn.RNNCell(I, 2) for _ in range(3)])

    def forward(self, x: Any) -> Any:
        states, out = [x.new_zeros(x.size(0), 2) for _ in self.cells], []
        for t in range(x.size(1)):
            for k, cell in enumerate(self.cells):
                if t % 2**k == 0:
                    states[k] = cell(x[:, t], states[k])
            out.append(torch.cat(states, 1))
        return torch.stack(out, 1)


@case()
class NeuralODE(nn.Module):
    """Explicit steps of Euler's method, three for each observation."""

    def __init__(self) -> None:
        super().__init__()
        self.field, self.update = nn.Sequential(nn.Linear(H, 5), nn.Tanh(), nn.Linear(5, H)), nn.GRUCell(I, H)

    def forward(self, x: Any) -> Any:
        h, out = torch.zeros(x.size(0), H), []
        for t in range(x.size(1)):
            for _ in range(3):
                h = h + 0.1 * self.field(h)
            h = self.update(x[:, t], h)
            out.append(h)
        return torch.stack(out, 1)


@case()
class ContinuousTime(nn.Module):
    """Times between observations are an input, steps use their number."""

    def __init__(self) -> None:
        super().__init__()
        self.rates, self.inputs, self.own = weight(H), nn.Linear(I, H), nn.Linear(H, H)

    def forward(self, x: Any, times: Any) -> Any:
        h, total = x.new_zeros(x.size(0), H), x.new_zeros(())
        for t in range(x.size(1) - 1):
            dt = (times[:, t + 1] - times[:, t]).unsqueeze(1)
            h = h + dt * (torch.tanh(self.inputs(x[:, t]) + self.own(h)) - F.softplus(self.rates) * h)
            total = total + 0.5**t * h.square().sum()
        return total


CASES["ContinuousTime"] = (
    ContinuousTime,
    lambda batch, steps: (torch.randn(batch, steps, I), torch.rand(batch, steps).cumsum(1)),
)


@case()
class LMU(nn.Module):
    """A Legendre memory unit (Voelker et al., 2019)."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.randn(5, 5) * 0.2)
        self.register_buffer("b", torch.randn(5, 1) * 0.2)
        self.ex, self.eh, self.em = weight(I, 1), weight(H, 1), weight(5, 1)
        self.wx, self.wh, self.wm = weight(H, I), weight(H, H), weight(H, 5)

    def forward(self, x: Any) -> Any:
        h, m, out = x.new_zeros(x.size(0), H), x.new_zeros(x.size(0), 5), []
        for t in range(x.size(1)):
            u = x[:, t] @ self.ex + h @ self.eh + m @ self.em
            m = m @ self.a.T + u @ self.b.T
            h = torch.tanh(F.linear(x[:, t], self.wx) + F.linear(h, self.wh) + F.linear(m, self.wm))
            out.append(h)
        return torch.stack(out, 1), h


@case()
class ConvolutionsThenCells(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tcn = nn.Sequential(nn.Conv1d(I, H, 3, padding=1), nn.ReLU(), nn.Conv1d(H, H, 3, padding=2, dilation=2))
        self.cell, self.o = nn.GRUCell(H, H), nn.Linear(H, 2)

    def forward(self, x: Any) -> Any:
        z = self.tcn(x.transpose(1, 2)).permute(2, 0, 1)
        h, out = torch.zeros(x.size(0), H), []
        for step in z:
            h = self.cell(step, h)
            out.append(h)
        y = torch.stack(out, 1)
        return self.o(y * torch.softmax(y.mean(-1, keepdim=True), 1))


@case()
class Seq2Seq(nn.Module):
    """Cells that read, and cells that write with teacher forcing."""

    def __init__(self) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(9, I), nn.Embedding(7, I)
        self.reader, self.writer, self.o = nn.LSTMCell(I, H), nn.LSTMCell(I, H), nn.Linear(H, 7)

    def forward(self, source: Any, target: Any) -> Any:
        h = c = torch.zeros(source.size(0), H)
        for t in range(source.size(1)):
            h, c = self.reader(self.source(source[:, t]), (h, c))
        loss = 0
        for t in range(target.size(1) - 1):
            h, c = self.writer(self.target(target[:, t]), (h, c))
            loss += F.cross_entropy(self.o(h), target[:, t + 1])
        return loss / (target.size(1) - 1)


CASES["Seq2Seq"] = (
    Seq2Seq,
    lambda batch, steps: (torch.randint(0, 9, (batch, steps + 1)), torch.randint(0, 7, (batch, steps))),
)


@case()
class GreedyDecoder(nn.Module):
    """Feeds back its own choice, or the teacher's."""

    def __init__(self) -> None:
        super().__init__()
        self.e, self.cell, self.o = nn.Embedding(9, H), nn.GRUCell(H, H), nn.Linear(H, 9)

    def forward(self, y: Any, teach: Any) -> Any:
        h, token, out = torch.zeros(y.size(0), H), torch.zeros(y.size(0), dtype=torch.long), []
        for t in range(y.size(1)):
            h = self.cell(self.e(token), h)
            scores = self.o(h)
            out.append(scores)
            token = torch.where(teach[:, t], y[:, t], scores.argmax(1))
        return torch.stack(out, 1)


CASES["GreedyDecoder"] = (
    GreedyDecoder,
    lambda batch, steps: (torch.randint(0, 9, (batch, steps)), torch.rand(batch, steps) > 0.5),
)


@case()
class GeneralizedAdvantages(nn.Module):
    """Advantages backwards in time, written in place (Schulman et al., 2016)."""

    def __init__(self) -> None:
        super().__init__()
        self.value = nn.Linear(I, 1)

    def forward(self, x: Any, reward: Any) -> Any:
        values = self.value(x).squeeze(-1)
        advantages, last = torch.zeros_like(reward), 0
        with torch.no_grad():
            for t in reversed(range(reward.size(1) - 1)):
                delta = reward[:, t] + 0.9 * values[:, t + 1] - values[:, t]
                last = delta + 0.8 * last
                advantages[:, t] = last
        return (values - (advantages + values.detach())).square().mean()


CASES["GeneralizedAdvantages"] = (
    GeneralizedAdvantages,
    lambda batch, steps: (torch.randn(batch, steps, I), torch.randn(batch, steps)),
)


@case(time_first)
class FastWeights(nn.Module):
    """The delta rule (Schlag et al., 2021), keys by a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.beta, self.o = nn.Linear(I, 3 * H), nn.Linear(I, 1), nn.Linear(H, 2)

    def forward(self, x: Any) -> Any:
        w, out = torch.zeros(x.size(1), H, H), []
        for step in x:
            q, k, v = self.qkv(step).chunk(3, 1)
            q, k = q.softmax(1), k.softmax(1)
            old = torch.matmul(w, k.unsqueeze(2)).squeeze(2)
            w = w + torch.sigmoid(self.beta(step)).unsqueeze(2) * (v - old).unsqueeze(2) * k.unsqueeze(1)
            out.append(torch.matmul(w, q.unsqueeze(2)).squeeze(2))
        return self.o(torch.stack(out))


@case()
class PerStepHeads(nn.Module):
    """A loop in which nothing is carried."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.o = nn.Linear(I, H), nn.Linear(H, 2)

    def forward(self, x: Any) -> Any:
        return torch.stack([self.o(torch.relu(self.body(x[:, t]))) for t in range(x.size(1))], 1)


@case()
class LastOfEach(nn.Module):
    """The state at the last step that a mask leaves, by its length."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(I, H)

    def forward(self, x: Any, lengths: Any) -> Any:
        h, out = x.new_zeros(x.size(0), H), []
        for t in range(x.size(1)):
            new = self.cell(x[:, t], h)
            h = torch.where((t < lengths).unsqueeze(1), new, h)
            out.append(h)
        states = torch.stack(out, 1)
        return h, states[torch.arange(x.size(0)), lengths - 1]


CASES["LastOfEach"] = (
    LastOfEach,
    lambda batch, steps: (torch.randn(batch, steps, I), torch.arange(batch) % steps + 1),
)


@case()
class ParallelHeads(nn.Module):
    """Independent recurrent groups of a reshaped state."""

    def __init__(self) -> None:
        super().__init__()
        self.i, self.r = nn.Linear(I, 2 * H), weight(2, H, H)

    def forward(self, x: Any) -> Any:
        batch = x.size(0)
        h, out = x.new_zeros(batch, 2, H), []
        for t in range(x.size(1)):
            h = torch.tanh(self.i(x[:, t]).view(batch, 2, H) + torch.einsum("bgh,ghk->bgk", h, self.r))
            out.append(h.reshape(batch, -1))
        return torch.stack(out, 1).mean(1)


@case()
class DropoutInSteps(nn.Module):
    """One mask for all steps (Gal and Ghahramani, 2016), given as an input."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.norm = nn.LSTMCell(I, H), nn.LayerNorm(H)

    def forward(self, x: Any, mask: Any) -> Any:
        h = c = x.new_zeros(x.size(0), H)
        out = torch.empty(x.size(1), x.size(0), H)
        for t, step in enumerate(x.unbind(1)):
            h, c = self.cell(step, (h * mask, c))
            out[t] = self.norm(h)
        return out.transpose(0, 1)


CASES["DropoutInSteps"] = (
    DropoutInSteps,
    lambda batch, steps: (torch.randn(batch, steps, I), (torch.rand(batch, H) > 0.3).float()),
)


@case()
class DenseHistory(nn.Module):
    """Attention over all states so far, of which there are more in each step."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.q = nn.GRUCell(I + H, H), nn.Linear(H, H)

    def forward(self, x: Any) -> Any:
        h = x.new_zeros(x.size(0), H)
        past = [h]
        for t in range(x.size(1)):
            memory = torch.stack(past, 1)
            weights = torch.softmax((memory * self.q(h).unsqueeze(1)).sum(-1, keepdim=True), 1)
            h = self.cell(torch.cat([x[:, t], (weights * memory).sum(1)], 1), h)
            past.append(h)
        return torch.stack(past[1:], 1)


@case()
class LiquidTimeConstants(nn.Module):
    """Three steps of an ODE solver for each observation, which all read it (Hasani et al., 2021)."""

    def __init__(self) -> None:
        super().__init__()
        self.leak, self.inputs, self.own, self.reversal = weight(H), nn.Linear(I, H), nn.Linear(H, H), weight(H)

    def forward(self, x: Any) -> Any:
        h, out = x.new_zeros(x.size(0), H), []
        for t in range(x.size(1)):
            driven = torch.sigmoid(self.inputs(x[:, t]))
            for _ in range(3):
                conductance = torch.sigmoid(self.own(h)) * driven
                h = (h + conductance * self.reversal) / (1 + F.softplus(self.leak) + conductance)
            out.append(h)
        return torch.stack(out, 1)


@case()
class RungeKutta(nn.Module):
    """Observations at given times, between which a field of two layers is integrated by four slopes a step."""

    def __init__(self) -> None:
        super().__init__()
        self.field = nn.Sequential(nn.Linear(H, 6), nn.Tanh(), nn.Linear(6, H))

    def forward(self, h: Any, times: Any) -> Any:
        states = [h]
        for before, after in zip(times[:-1], times[1:], strict=True):  # noqa: RUF007 (as people write it)
            dt = after - before
            first = self.field(h)
            second = self.field(h + dt * first / 2)
            third = self.field(h + dt * second / 2)
            fourth = self.field(h + dt * third)
            h = h + dt / 6 * (first + 2 * second + 2 * third + fourth)
            states.append(h)
        return torch.stack(states)


CASES["RungeKutta"] = RungeKutta, lambda batch, steps: (torch.randn(batch, H), torch.linspace(0, 1, steps))


@case(time_first)
class ForgetMult(nn.Module):
    """Pieces of one step, of which the first has no state before it (Bradbury et al., 2016)."""

    def __init__(self) -> None:
        super().__init__()
        self.gates = nn.Linear(I, 2 * H)

    def forward(self, x: Any) -> Any:
        z, forget = self.gates(x).chunk(2, 2)
        forget, h, out = torch.sigmoid(forget), None, []
        for piece, f in zip((forget * torch.tanh(z)).split(1, dim=0), forget.split(1, dim=0), strict=True):
            new = piece if h is None else piece + (1 - f) * h
            h = new.view(new.size()[1:])
            out.append(h)
        return torch.stack(out)


@case()
class PackedEncoder(nn.Module):
    """Packed sequences are read by a layer, and their results step by step by cells."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.cell = nn.GRU(I, H, batch_first=True), nn.GRUCell(I + H, H)

    def forward(self, x: Any, lengths: Any) -> Any:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        memory, _ = pad_packed_sequence(self.encoder(packed)[0], batch_first=True, total_length=x.size(1))
        h = x.new_zeros(x.size(0), H)
        for t in range(x.size(1)):
            h = self.cell(torch.cat([x[:, t], memory[:, t]], 1), h)
        return h


# More steps than are traced.
CASES["PackedEncoder"] = (
    PackedEncoder,
    lambda batch, steps: (torch.randn(batch, steps + 4, I), torch.arange(batch) % steps + 5),
)
