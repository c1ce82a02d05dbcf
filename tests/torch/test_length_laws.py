"""Lengths of loops in Python of which a step is several rows, or one less: recurrent modules next to autograd."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import pytest

import lstm_lower as ll

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from lstm_lower.torch.importer import FixedStepsWarning  # noqa: E402
from tests.torch.test_python_loops import EXAMPLE, OTHERS, check_open, compare, loss_of, open_step, sequence  # noqa: E402

I, H = 3, 4  # noqa: E741


class Rows(nn.Module):
    """Steps of all sequences are rows of one matrix, as in CleanRL; how many sequences there are, the state says."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.lstm, self.head = nn.Linear(I, 5), nn.LSTM(5, H), nn.Linear(H, 2)

    def forward(self, x: Any, done: Any, h: Any, c: Any) -> Any:
        count = h.shape[1]
        hidden = torch.relu(self.net(x)).reshape((-1, count, 5))
        state, made = (h, c), []
        for row, ends in zip(hidden, done.reshape((-1, count)), strict=True):
            kept = (1.0 - ends).view(1, -1, 1)
            row, state = self.lstm(row.unsqueeze(0), (kept * state[0], kept * state[1]))
            made += [row]
        return self.head(torch.flatten(torch.cat(made), 0, 1))


class Halved(nn.Module):
    """Two frames are one step, as in Tacotron."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.GRUCell(2 * I, H), nn.Linear(H, 2)

    def forward(self, x: Any) -> Any:
        steps = x.view(x.size(0), x.size(1) // 2, -1)
        h, made = x.new_zeros(x.size(0), H), []
        for t in range(steps.size(1)):
            h = self.cell(steps[:, t], h)
            made.append(self.head(h))
        return torch.stack(made, 1)


class Samples(nn.Module):
    """Two samples are one step, and the last one is none, as in SampleRNN."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.words = nn.GRUCell(2, H), nn.Embedding(9, H)

    def forward(self, samples: Any) -> Any:
        before = samples[:, :-1]
        count = before.size(1) // 2
        frames = before.reshape(samples.size(0), count, 2).float()
        h, states = torch.zeros(samples.size(0), H), []
        for t in range(count):
            h = self.cell(frames[:, t], h)
            states.append(h)
        return torch.stack(states, 1).repeat_interleave(2, 1) + self.words(before)


class Advantages(nn.Module):
    """Backwards over rewards, of which there is one less than of observations."""

    def __init__(self) -> None:
        super().__init__()
        self.value = nn.Linear(I, 1)

    def forward(self, observed: Any, rewards: Any) -> Any:
        values = self.value(observed).squeeze(-1)
        advantage, made = 0, []
        for step in reversed(range(rewards.size(0))):
            advantage = rewards[step] + 0.9 * values[step + 1] - values[step] + 0.8 * advantage
            made.insert(0, advantage)
        return torch.stack(made)


class Upsampled(nn.Module):
    """Each frame is four samples, as in WaveRNN."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(I + 1, H)

    def forward(self, frames: Any, wave: Any) -> Any:
        repeated = frames.repeat_interleave(4, 1)
        h, made = frames.new_zeros(frames.size(0), H), []
        for t in range(wave.size(1)):
            h = self.cell(torch.cat([repeated[:, t], wave[:, t : t + 1]], 1), h)
            made.append(h)
        return torch.stack(made, 1)


class Late(nn.Module):
    """Reads two steps before any other, and refuses fewer."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(I, I)

    def forward(self, x: Any) -> Any:
        h = x[:, 0] + x[:, 2]
        for t in range(x.size(1)):
            h = self.cell(x[:, t], h)
        return h


class LastValid(nn.Module):
    """Reads the state behind each sequence's last step, whose number is an input: fewer steps have smaller numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(I, H)

    def forward(self, x: Any, lengths: Any) -> Any:
        h, made = x.new_zeros(x.size(0), H), []
        for t in range(x.size(1)):
            h = self.cell(x[:, t], h)
            made.append(h)
        places = (lengths - 1).view(-1, 1, 1).expand(-1, 1, H)
        return torch.stack(made, 1).gather(1, places).squeeze(1)


class Growing(nn.Module):
    """Puts each state behind the states before, from the first one on and from none."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(I, H)

    def forward(self, x: Any) -> Any:
        h, states, gates = x.new_zeros(x.size(0), H), None, x.new_zeros(x.size(0), 0, H)
        for t in range(x.size(1)):
            h = self.cell(x[:, t], h)
            states = h.unsqueeze(1) if states is None else torch.cat([states, h.unsqueeze(1)], 1)
            gates = torch.cat([gates, torch.sigmoid(h)[:, None]], dim=1)
        return states, gates


class Mixed(nn.Module):
    """Predicts from what it is told or has predicted itself; the mask has a column more than is read."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out = nn.GRUCell(I, H), nn.Linear(H, I)

    def forward(self, x: Any, mask: Any) -> Any:
        h, made = x.new_zeros(x.size(0), H), []
        for t in range(x.size(1) - 1):
            told = x[:, t]
            if t > 0:
                told = mask[:, t - 1, None] * told + (1 - mask[:, t - 1, None]) * made[-1]
            h = self.cell(told, h)
            made.append(self.out(h))
        return torch.stack(made, 1)


class MixedExactly(Mixed):
    """Of a mask that has no column more."""


class Segments(nn.Module):
    """Goes over segments of two steps with a memory of the last four, as Transformer-XL does."""

    def __init__(self) -> None:
        super().__init__()
        self.key, self.out = nn.Linear(I, H), nn.Linear(H, H)

    def forward(self, x: Any) -> Any:
        memory, made = x.new_zeros(x.size(0), 4, H), []
        for segment in self.key(x).split(2, dim=1):
            keys = torch.cat([memory, segment], 1)
            made.append(self.out(torch.softmax(segment @ keys.mT, -1) @ keys))
            memory = torch.cat([memory, made[-1]], 1)[:, -4:].detach()
        return torch.cat(made, 1)


class Pairs(nn.Module):
    """Each step of the second layer reads two states of the first one, as a pyramid of listeners does."""

    def __init__(self) -> None:
        super().__init__()
        self.lower, self.upper = nn.GRUCell(I, H), nn.GRUCell(2 * H, H)

    def forward(self, x: Any) -> Any:
        h, g, states, made = x.new_zeros(x.size(0), H), x.new_zeros(x.size(0), H), [], []
        for t in range(x.size(1)):
            h = self.lower(x[:, t], h)
            states.append(h)
        for t in range(0, x.size(1), 2):
            g = self.upper(torch.cat([states[t], states[t + 1]], -1), g)
            made.append(g)
        return torch.stack(made, 1)


class Marked(nn.Module):
    """Reads the state at a place that flags say, numbers of which the whole part is taken."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(I, H)

    def forward(self, x: Any, flags: Any) -> Any:
        h, made = x.new_zeros(x.size(0), H), []
        for t in range(x.size(1)):
            h = torch.where(flags[:, t, None].bool(), self.cell(x[:, t], h), h)
            made.append(h)
        return torch.stack(made, 1).gather(1, (flags.long().sum(1) - 1).view(-1, 1, 1).expand(-1, 1, H))


class Returns(Advantages):
    """Backwards over rewards, under `no_grad` and into a tensor like these."""

    def forward(self, observed: Any, rewards: Any) -> Any:
        values = self.value(observed).squeeze(-1)
        with torch.no_grad():
            made, advantage = torch.zeros_like(rewards), 0
            for step in reversed(range(rewards.size(0))):
                advantage = rewards[step] + 0.9 * values[step + 1] - values[step] + 0.8 * advantage
                made[step] = advantage
        return made * values[:-1]


class Joined(nn.Module):
    """Results of all steps side by side; another input is longer by one, by chance."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(I, 2)

    def forward(self, x: Any, further: Any, targets: Any) -> Any:
        h, made = x.new_zeros(x.size(1), 2), []
        for step in x.unbind(0):
            h = self.cell(step, h)
            made.append(h)
        return torch.cat(made, -1) * targets + further.sum()


class Filled(nn.Module):
    """Goes over chunks of three steps, the last of which is filled up, as a gated delta rule does."""

    def __init__(self) -> None:
        super().__init__()
        self.key, self.value = nn.Linear(I, H), nn.Linear(I, H)

    def forward(self, x: Any) -> Any:
        length = x.size(1)
        missing = (3 - length % 3) % 3
        x = nn.functional.pad(x, (0, 0, 0, missing))
        keys, values = (part(x).reshape(x.size(0), -1, 3, H) for part in (self.key, self.value))
        state, made = x.new_zeros(x.size(0), H, H), torch.zeros_like(values)
        for chunk in range((length + missing) // 3):
            made[:, chunk] = (keys[:, chunk] @ keys[:, chunk].mT).tril() @ values[:, chunk] + keys[:, chunk] @ state
            state = torch.tanh(state + keys[:, chunk].mT @ values[:, chunk])
        return made.reshape(x.size(0), -1, H)[:, :length]


class FilledIfNeeded(Filled):
    """Of chunks one of which is filled up where one is not whole; what this adds is one whole chunk more."""

    def forward(self, x: Any) -> Any:
        missing = -x.size(1) % 3
        return super().forward(nn.functional.pad(x, (0, 0, 0, missing)) if missing else x)


class Whole(nn.Module):
    """Goes over chunks of two steps, and leaves out a last one of one step."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(2 * I, H)

    def forward(self, x: Any) -> Any:
        h, made = x.new_zeros(x.size(0), H), []
        for chunk in range(x.size(1) // 2):
            h = self.cell(x[:, 2 * chunk : 2 * chunk + 2].flatten(1), h)
            made.append(h)
        return torch.stack(made, 1)


class Doubled(Filled):
    """Does something else with many chunks."""

    def forward(self, x: Any) -> Any:
        return super().forward(x) * (2 if x.size(1) > 40 else 1)


class Tenth(Filled):
    """Does something else with the tenth chunk."""

    def forward(self, x: Any) -> Any:
        h, x = 0, nn.functional.pad(x, (0, 0, 0, -x.size(1) % 3))
        for chunk in range(x.size(1) // 3):
            h = h + torch.tanh(self.key(x[:, 3 * chunk])) * (5 if chunk == 9 else 1)
        return h


class Pieces(nn.Module):
    """Goes over pieces of three steps, of which the last is what is left."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.cell = nn.Linear(I, H), nn.GRUCell(H, H)

    def forward(self, x: Any) -> Any:
        h, made = x.new_zeros(x.size(0), H), []
        for piece in x.split(3, 1):
            y = torch.tanh(self.read(piece))
            h = self.cell(y.sum(1), h)
            made.append(y * h[:, None])
        return torch.cat(made, 1)


class LastFilled(Pieces):
    """Fills up the last piece alone."""

    def forward(self, x: Any) -> Any:
        h, made = x.new_zeros(x.size(0), H), []
        for piece in x.split(3, 1):
            filled = nn.functional.pad(piece, (0, 0, 0, 3 - piece.size(1)))
            h = self.cell(torch.tanh(self.read(filled)).sum(1), h)
            made.append(h)
        return torch.stack(made, 1)


class TwoSizes(Pieces):
    """Goes over pieces of three steps, and over what each step makes of them."""

    def forward(self, x: Any) -> Any:
        h, made = x.new_zeros(x.size(0), H), []
        for t in range(x.size(1)):
            h = self.cell(self.read(x[:, t]), h)
            made.append(h)
        for piece in torch.stack(made, 1).split(3, 1):
            h = torch.tanh(h + piece.amax(1))
        return h


class Inner(Pieces):
    """Has a loop over the steps of each chunk, whose states are joined with those of all others."""

    def forward(self, x: Any) -> Any:
        h, made = x.new_zeros(x.size(0), H), []
        g = h
        for start in range(0, x.size(1), 3):
            g = torch.tanh(self.read(x[:, start : start + 3]).sum(1) + g)
            for t in range(start, start + 3):
                h = self.cell(self.read(x[:, t]) * g, h)
                made.append(h)
        return torch.stack(made, 1)


class Truncated(Pieces):
    """Lets gradients flow through three steps."""

    def forward(self, x: Any) -> Any:
        h, made = x.new_zeros(x.size(0), H), []
        for t in range(x.size(1)):
            h = self.cell(self.read(x[:, t]), h.detach() if t % 3 == 0 else h)
            made.append(h)
        return torch.stack(made, 1)


class Behind(Pieces):
    """Lets gradients flow through three steps, and ends them behind each third one."""

    def forward(self, x: Any) -> Any:
        h, made = x.new_zeros(x.size(0), H), []
        for t in range(x.size(1)):
            h = self.cell(self.read(x[:, t]), h)
            made.append(h)
            if (t + 1) % 3 == 0:
                h = h.detach()
        return torch.stack(made, 1)


class BehindHeads(Pieces):
    """Both states of an LSTM, which end behind what each step makes of them."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.LSTMCell(I, H), nn.Linear(H, 2)

    def forward(self, x: Any) -> Any:
        h, c, total = x.new_zeros(x.size(0), H), x.new_zeros(x.size(0), H), x.new_zeros(x.size(0))
        for t in range(x.size(1)):
            h, c = self.cell(x[:, t], (h, c))
            total = total + self.head(h).logsumexp(-1)
            if t % 3 == 2:
                h, c = h.detach(), c.detach()
        return total / x.size(1), h


class BehindGates(Pieces):
    """Reads the state by a gate, and does more behind each third step, which alone has results."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.head = nn.Linear(I + H, H), nn.Linear(H, 2)

    def forward(self, x: Any) -> Any:
        h, made = x.new_zeros(x.size(0), H), []
        for t in range(x.size(1)):
            gate = torch.sigmoid(self.gate(torch.cat([x[:, t], h], 1)))
            h = gate * h + (1 - gate) * torch.tanh(self.read(x[:, t]))
            if (t + 1) % 3 == 0:
                made.append(self.head(h))
                h = h.detach()
        return torch.stack(made, 1)


class Starts(Pieces):
    """Goes over the places where chunks of three steps begin, of which a trace makes numbers."""

    def forward(self, x: Any) -> Any:
        h, made = x.new_zeros(x.size(0), H), []
        for start in range(0, x.size(1), 3):
            y = torch.tanh(self.read(x[:, start : start + 3]))
            h = self.cell(y.sum(1), h)
            made.append(y * h[:, None])
        return torch.cat(made, 1)


class Carried(Pieces):
    """Goes over chunks of three steps by a layer, whose states go on without gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(I, H, batch_first=True), nn.Linear(H, 2)

    def forward(self, x: Any) -> Any:
        state, made = None, []
        for start in range(0, x.size(1), 3):
            y, (h, c) = self.lstm(x[:, start : start + 3], state)
            state = h.detach(), c.detach()
            made.append(self.head(y))
        return torch.cat(made, 1)


class InnerSteps(Pieces):
    """Has a loop over as many steps as each chunk has."""

    def forward(self, x: Any) -> Any:
        h, made = x.new_zeros(x.size(0), H), []
        for start in range(0, x.size(1), 3):
            chunk = self.read(x[:, start : start + 3])
            for t in range(chunk.size(1)):
                h = self.cell(chunk[:, t], h)
                made.append(h)
            h = h.detach()
        return torch.stack(made, 1)


def flags(batch: int, steps: int) -> Any:
    return (torch.arange(steps) <= torch.arange(batch)[:, None]).float()


Inputs = Callable[[int, int], tuple[Any, ...]]
CASES: dict[type[nn.Module], Inputs] = {
    Rows: lambda b, t: (
        torch.randn(t * b, I),
        (torch.rand(t * b) < 0.3).float(),
        torch.randn(1, b, H),
        torch.randn(1, b, H),
    ),
    Halved: lambda b, t: (torch.randn(b, 2 * t, I),),
    Samples: lambda b, t: (torch.randint(0, 9, (b, 2 * t + 1)),),
    Advantages: lambda b, t: (torch.randn(t + 1, b, I), torch.randn(t, b)),
    Upsampled: lambda b, t: (torch.randn(b, t, I), torch.rand(b, 4 * t)),
    Mixed: lambda b, t: (torch.randn(b, t + 1, I), torch.rand(b, t)),
    MixedExactly: lambda b, t: (torch.randn(b, t + 1, I), torch.rand(b, t - 1)),
    Segments: lambda b, t: (torch.randn(b, 2 * t, I),),
    Pairs: lambda b, t: (torch.randn(b, 2 * t, I),),
    Marked: lambda b, t: (torch.randn(b, t, I), flags(b, t)),
    Returns: lambda b, t: (torch.randn(t + 1, b, I), torch.randn(t, b)),
    Joined: lambda b, t: (torch.randn(t, b, I), torch.randn(EXAMPLE[1] + 1), torch.randn(b, 2 * t)),
    LastValid: lambda b, t: (torch.randn(b, t, I), t - torch.arange(b) % 2),
    **dict.fromkeys((Late, Growing, Filled, FilledIfNeeded, Whole), sequence),
}


@functools.cache
def opened(make: type[nn.Module]) -> tuple[nn.Module, Any]:
    module = make()
    return module, open_step(module, CASES[make](*EXAMPLE))


@pytest.mark.slow
@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_batch_and_length_are_open(make: type[nn.Module]) -> None:
    module, step = opened(make)
    session = ll.Session(step, providers=["CPUExecutionProvider"])
    for batch, steps in (EXAMPLE, *OTHERS):
        compare(module, session, CASES[make](batch, steps))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "steps", "apart"),
    [
        *itertools.product([Filled, FilledIfNeeded, Whole, Pieces, LastFilled], [4, 5, 6, 9], [1]),
        *itertools.product([TwoSizes, Inner], [6, 9], [3]),
        *itertools.product([Starts, Truncated], [6, 7, 9], [3]),
        *itertools.product([Carried, InnerSteps, Behind, BehindHeads, BehindGates], [8, 9], [3]),
    ],
)
def test_chunks_are_open_whatever_the_example_is_of_them(make: type[nn.Module], steps: int, apart: int) -> None:
    sizes = [(2, steps), *((3, steps + more) for more in range(0, 8 * apart, apart))]
    check_open(make(), sequence, sizes)


@pytest.mark.parametrize(
    ("make", "sizes", "told"),
    [
        (Rows, [(11, I), (11,), (1, 2, H), (1, 2, H)], r"'x' requires a size of axis 1 of 'h' \* steps along axis 0"),
        (Halved, [(2, 11, I)], r"'x' requires a size of 2 \* steps along axis 1 \(for 1 or more steps\), got shape"),
        (Samples, [(2, 12)], r"'samples' requires a size of 2 \* steps \+ 1 along axis 1"),
        (Samples, [(2, 1)], r"'samples' requires a size of 2 \* steps \+ 1 along axis 1 \(for 1 or more steps\)"),
        (Advantages, [(6, 2, I), (6, 2)], r"'rewards' .* 5 along axis 0 \(steps, as 'observed' has 5 steps\)"),
        (Upsampled, [(2, 6, I), (2, 23)], r"'wave' .* 24 along axis 1 \(4 \* steps, as 'frames' has 6 steps\)"),
        (
            Late,
            [(2, 2, I)],
            r"'x' requires a size of steps along axis 1 \(for 3 or more steps\), got shape",
        ),
        (
            Filled,
            [(2, 3, I)],
            r"'x' requires a size of 3 \* steps - 2 to 3 \* steps along axis 1 \(for 2 or more steps",
        ),
    ],
)
def test_sizes_that_are_no_number_of_steps_are_refused(
    make: type[nn.Module], sizes: list[tuple[int, ...]], told: str
) -> None:
    _, step = opened(make)
    session = ll.Session(step, providers=["CPUExecutionProvider"])
    dtypes = (x.numpy().dtype for x in CASES[make](*EXAMPLE))
    shapes = zip(session.inputs, sizes, dtypes, strict=True)
    feeds = {name: torch.ones(shape).numpy().astype(dtype) for name, shape, dtype in shapes}
    with pytest.raises(ll.InvalidInputError, match=told):
        session.run(feeds)
    with pytest.raises(ll.InvalidInputError, match=told):
        ll.Trainer(step, optimizer="sgd", providers=["CPUExecutionProvider"]).step(feeds)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "told"), [(Doubled, r"\d+ decides by it"), (Tenth, r"\d+ otherwise\); an example beyond")]
)
def test_chunks_of_which_later_ones_are_others_fix_or_end_a_length(make: type[nn.Module], told: str) -> None:
    module = make()
    with pytest.warns(FixedStepsWarning, match=f"test_length_laws.py:{told}"):
        step = ll.from_torch(module, torch.randn(2, 5, I), loss_of, example_targets=(), what="gradients")
    compare(module, ll.Session(step, providers=["CPUExecutionProvider"]), (torch.randn(4, 5, I),))


class Levels(nn.Module):
    """As many steps as the deepest node has levels: by a loop in Python, or by one of any length."""

    def __init__(self, *, scans: bool) -> None:
        super().__init__()
        self.own, self.scans = nn.Linear(I, I), scans

    def forward(self, x: Any, level: Any) -> Any:
        def step(h: Any, number: Any) -> Any:
            h = torch.where((level >= number).unsqueeze(1), torch.tanh(self.own(h) + x), h)
            return h, h.sum()

        h, count = torch.zeros_like(x), int(level.max()) + 1
        if self.scans:
            return ll.scan(step, h, torch.arange(count))[0]
        for number in range(count):
            h, _ = step(h, number)
        return h


def levels(count: int, most: int) -> tuple[Any, ...]:
    return torch.randn(count, I), torch.arange(count) % (most + 1)


def test_a_number_of_steps_that_values_say_is_refused_with_a_way_on() -> None:
    with pytest.raises(
        ll.UnsupportedOpError, match=r"\(test_length_laws.py:\d+\); .*ll\.scan\(cell, state, torch\.arange"
    ):
        ll.from_torch(Levels(scans=False), levels(5, 2), loss_of, example_targets=(), what="gradients")


def test_a_scan_takes_the_number_of_steps_that_values_say() -> None:
    torch.manual_seed(0)
    module = Levels(scans=True)
    step = ll.from_torch(module, levels(5, 2), loss_of, example_targets=(), what="gradients")
    session = ll.Session(step, providers=["CPUExecutionProvider"])
    for count, most in ((5, 2), (9, 6), (3, 0), (4, 1)):
        compare(module, session, levels(count, most))


class Noisy(nn.Module):
    """Draws numbers in each step, and returns them."""

    def __init__(self) -> None:
        super().__init__()
        self.own = nn.Linear(I, I)

    def forward(self, x: Any, given: Any = None) -> Any:
        h, states, drawn = torch.zeros(x.size(0), I), [], []
        for t in range(x.size(1)):
            noise = torch.rand(x.size(0), I) if given is None else given[:, t]
            h = torch.tanh(self.own(h) + x[:, t] * noise)
            states.append(h * noise)
            drawn.append(noise)
        return torch.stack(states, 1), torch.stack(drawn, 1)


def test_steps_that_draw_have_an_open_length_and_gradients_of_what_they_drew() -> None:
    torch.manual_seed(0)
    module = Noisy()
    step = ll.from_torch(module, torch.randn(2, 5, I), loss_of, example_targets=(), what="gradients")
    x = torch.randn(3, 9, I)
    got = ll.Session(step, providers=["CPUExecutionProvider"]).run({"x": x.numpy()})
    drawn = torch.tensor(got["output_1"])
    assert len(drawn.unique()) == drawn.numel()
    loss_of(module(x, drawn)).backward()
    for name, parameter in module.named_parameters():
        torch.testing.assert_close(torch.tensor(got[f"grad/{name}"]), parameter.grad, rtol=1e-4, atol=1e-6)


class Weighed(nn.Module):
    """Weighs steps by numbers for which there is no formula of the length."""

    def forward(self, x: Any) -> Any:
        weights = torch.tensor([0.3 * t * t + 1 / (t + 1.5) for t in range(x.size(1))])
        h = x[:, 0]
        for t in range(x.size(1)):
            h = torch.tanh(h + x[:, t])
        return h * (x * weights.unsqueeze(1)).sum(1)


@pytest.mark.slow
def test_a_constant_that_fixes_a_length_is_told_by_its_line() -> None:
    with pytest.warns(
        FixedStepsWarning, match=r"\(test_length_laws.py:\d+\); they differ at test_length_laws.py:\d+\)"
    ):
        ll.from_torch(Weighed(), torch.randn(2, 5, I), loss_of, example_targets=(), what="input_gradient")


class Listed(nn.Module):
    """Returns a list of as many states as there are steps."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.drop = nn.GRUCell(I, H), nn.Dropout(0.0)

    def forward(self, x: Any) -> Any:
        h, states = x.new_zeros(x.size(0), H), []
        for t in range(x.size(1)):
            h = self.cell(self.drop(x[:, t]), h)
            states.append(h)
        return [h, *states]


def test_a_list_of_as_many_results_as_steps_fixes_the_length() -> None:
    module, x = Listed(), torch.randn(2, 5, I)
    with pytest.warns(FixedStepsWarning, match=r"axis 1 of 'x' \(.* takes it as a number: for t in range"):
        step = ll.from_torch(module, x, loss_of, example_targets=(), what="gradients")
    session = ll.Session(step, providers=["CPUExecutionProvider"])
    assert sum(name.startswith("output") for name in session.outputs) == 1 + 5
    compare(module, session, (torch.randn(3, 5, I),))


class Recalling(Mixed):
    """Reads all steps before in each, which no loop does."""

    def forward(self, x: Any, mask: Any) -> Any:
        made = [self.cell(x[:, 0])]
        for t in range(1, x.size(1) - 1):
            made.append(self.cell(x[:, t], torch.stack(made, 1).amax(1) * mask[:, t - 1, None]))
        return torch.stack(made, 1)


def test_sizes_that_grow_together_and_cannot_are_told() -> None:
    module, inputs = Recalling(), CASES[MixedExactly](*EXAMPLE)
    with pytest.warns(FixedStepsWarning, match="axis 1 of 'x' .*, axis 1 of 'mask'"):
        step = ll.from_torch(module, inputs, loss_of, example_targets=(), what="gradients")
    compare(module, ll.Session(step, providers=["CPUExecutionProvider"]), (*inputs,))
