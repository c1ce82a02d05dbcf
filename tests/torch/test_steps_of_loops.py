"""Loops in Python whose steps read states of several steps before, or functions of their number: next to autograd."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

import lstm_lower as ll

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from lstm_lower.errors import LstmLowerWarning  # noqa: E402
from lstm_lower.passes.loops.step_counts import growth, uneven  # noqa: E402
from lstm_lower.records import certificate  # noqa: E402
from lstm_lower.torch.aten.registry import line  # noqa: E402
from lstm_lower.torch.importer import FixedStepsWarning  # noqa: E402
from lstm_lower.torch.lengths import STEPS  # noqa: E402
from tests.torch.test_python_loops import EXAMPLE, check_open, compare, loss_of, open_step, sequence  # noqa: E402

I, H = 3, 4  # noqa: E741


class Dilated(nn.Module):
    """Layers whose steps read the state of one, two and four steps before, as DilatedRNN does."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.ModuleList([nn.GRUCell(size, H) for size in (I, H, H)])

    def forward(self, x: Any) -> Any:
        for layer, cell in enumerate(self.cells):
            states: list[Any] = []
            for t in range(x.size(1)):
                before = states[t - 2**layer] if t >= 2**layer else x.new_zeros(x.size(0), H)
                states.append(cell(x[:, t], before))
            x = torch.stack(states, 1)
        return x


class ThreeBefore(nn.Module):
    """Hidden and cell state of three steps before, all of which begin as one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(I, H)

    def forward(self, x: Any) -> Any:
        zeros = torch.zeros(x.size(0), H)
        states, made = [(zeros, zeros)] * 3, []
        for t in range(x.size(1)):
            states = [*states[1:], self.cell(x[:, t], states[0])]
            made.append(states[-1][0])
        return torch.stack(made, 1)


class TwoBefore(nn.Module):
    """The state of two steps before, in one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(I, H)

    def forward(self, x: Any) -> Any:
        states = [torch.zeros(x.size(0), H) for _ in range(2)]
        for t in range(x.size(1)):
            states.append(self.cell(x[:, t], states[-2]))
        return torch.stack(states[2:], 1)


class InTurn(nn.Module):
    """Two states in turn, each of which begins as a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.even, self.odd = nn.Parameter(torch.randn(H)), nn.Parameter(torch.randn(H))
        self.given, self.own = nn.Linear(I, H), nn.Linear(H, H)

    def forward(self, x: Any) -> Any:
        now, then = self.even.expand(x.size(0), -1), self.odd.expand(x.size(0), -1)
        made = []
        for t in range(x.size(1)):
            now, then = then, torch.tanh(self.given(x[:, t]) + self.own(now))
            made.append(then)
        return torch.stack(made, 1), now


class Skipping(nn.Module):
    """Reads the last state and the one before it; the first two steps have less to read."""

    def __init__(self) -> None:
        super().__init__()
        self.given, self.last, self.former = nn.Linear(I, H), nn.Linear(H, H), nn.Linear(H, H)

    def forward(self, x: Any) -> Any:
        states: list[Any] = []
        for t in range(x.size(1)):
            z = self.given(x[:, t])
            if t > 0:
                z = z + self.last(states[-1])
            if t > 1:
                z = z + self.former(states[-2])
            states.append(torch.tanh(z))
        return torch.stack(states, 1)


class LastOfAll(nn.Module):
    """Does more with the last state, before it makes a result of it as of all others."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.last, self.head = nn.GRUCell(I, H), nn.Linear(H, H), nn.Linear(H, 2)

    def forward(self, x: Any) -> Any:
        h, made = x.new_zeros(x.size(0), H), []
        for t in range(x.size(1)):
            h = self.cell(x[:, t], h)
            if t == x.size(1) - 1:
                h = torch.tanh(self.last(h))
            made.append(self.head(h))
        return torch.stack(made, 1)


class LastGated(LastOfAll):
    """The same of an LSTM whose last state a gate of its own scales, and which is returned, too."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(I, H)

    def forward(self, x: Any) -> Any:
        h, c, made = x.new_zeros(x.size(0), H), x.new_zeros(x.size(0), H), []
        for t in range(x.size(1)):
            h, c = self.cell(x[:, t], (h, c))
            h = h * torch.sigmoid(self.last(h)) if t == x.size(1) - 1 else h
            made.append(torch.relu(self.head(h)))
        return torch.stack(made, 1), h


class LastSummed(LastOfAll):
    """Sums up a loss of each step."""

    def forward(self, x: Any) -> Any:
        h, total = x.new_zeros(x.size(0), H), 0
        for t in range(x.size(1)):
            h = self.cell(x[:, t], h)
            h = torch.tanh(self.last(h)) if t == x.size(1) - 1 else h
            total = total + self.head(h).square().mean()
        return total


class BothEnds(LastOfAll):
    """Does more with the first and with the last state."""

    def forward(self, x: Any) -> Any:
        h, made = x.new_zeros(x.size(0), H), []
        for t in range(x.size(1)):
            h = self.cell(x[:, t], h)
            if t in {0, x.size(1) - 1}:
                h = torch.tanh(self.last(h))
            made.append(self.head(h))
        return torch.stack(made, 1)


CASES = Dilated, ThreeBefore, TwoBefore, InTurn, Skipping, LastOfAll, LastGated, LastSummed, BothEnds


@pytest.mark.slow
@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_batch_and_length_are_open(make: type[nn.Module]) -> None:
    check_open(make(), sequence)


def test_fewer_steps_than_stand_beside_loops_fail_in_onnxruntime_itself() -> None:
    step = open_step(LastSummed(), sequence(*EXAMPLE), dynamic_shapes={"x": [0, 1]}, check=False)
    session = onnxruntime.InferenceSession(step.SerializeToString(), providers=["CPUExecutionProvider"])
    with pytest.raises(InvalidArgument, match="'steps/Gather'"):
        session.run(None, {"x": np.zeros((2, 1, I), np.float32)})


class Far(nn.Module):
    """Reads a state of more steps before than are traced."""

    def forward(self, x: Any) -> Any:
        states = [torch.zeros(x.size(0), I)] * 9
        for t in range(x.size(1)):
            states.append(torch.tanh(x[:, t] + states[-9]))
        return torch.stack(states[9:], 1)


@pytest.mark.slow
def test_a_state_of_too_many_steps_before_fixes_the_length() -> None:
    with pytest.warns(FixedStepsWarning, match=r"a loop in Python goes over 5 steps \(test_steps_of_loops.py:\d+\)"):
        step = ll.from_torch(Far(), torch.randn(2, 5, I), loss_of, example_targets=(), what="input_gradient")
    with pytest.raises(ll.InvalidInputError, match="requires shape"):
        ll.Session(step, providers=["CPUExecutionProvider"]).run({"x": torch.randn(2, 12, I).numpy()})


def test_a_line_that_pytorch_has_written_is_none_of_a_reason() -> None:
    written = 'File "<eval_with_key>.7", line 3, in forward'
    own = f'File "{nn.modules.rnn.__file__}", line 1864, in forward'
    assert line(written) is None
    assert line(own) == "rnn.py:1864"
    for behind in (written, own):
        assert line(f'File "/models/model.py", line 12, in forward\n    x = f(x)\n{behind}') == "model.py:12"


class Timed(nn.Module):
    """Weighs each step by a number that Python computes of the step's place, and the last state by one of all."""

    def __init__(self, weight: Callable[[int, int], float], *, filled: bool) -> None:
        super().__init__()
        self.own, self.weight, self.filled = nn.Linear(I + 1, I), weight, filled

    def forward(self, x: Any) -> Any:
        h, count = torch.zeros(x.size(0), I), x.size(1)
        for t in range(count):
            weight = self.weight(t, count)
            told = torch.full((x.size(0), 1), weight) if self.filled else x[:, t, :1] * weight
            h = torch.tanh(self.own(torch.cat([x[:, t], told], 1)) + h)
        return h / math.sqrt(count)


FUNCTIONS: dict[str, Callable[[int, int], float]] = {
    "t / 10": lambda t, _: t / 10,
    "1 - 0.03 t": lambda t, _: 1 - 0.03 * t,
    "t / 7": lambda t, _: t / 7,
    "t / T": lambda t, count: t / count,
    "(t + 0.5) / T": lambda t, count: (t + 0.5) / count,
    "(T - t) / T": lambda t, count: (count - t) / count,
    "sin(t / 10)": lambda t, _: math.sin(t / 10),
    "cos(t)": lambda t, _: math.cos(t),
    "sin(2 pi t / 24)": lambda t, _: math.sin(2 * math.pi * t / 24),
    "sin(2 pi t / 25)": lambda t, _: math.sin(2 * math.pi * t / 25),
    "cos(2 pi (t + 1) / 24)": lambda t, _: math.cos(2 * math.pi * (t + 1) / 24),
    "cos(pi t / T)": lambda t, count: math.cos(math.pi * t / count),
    "sqrt(t + 1)": lambda t, _: math.sqrt(t + 1),
    "1 / sqrt(t + 1)": lambda t, _: 1 / math.sqrt(t + 1),
    "log(t + 2)": lambda t, _: math.log(t + 2),
    "exp(-t / 10)": lambda t, _: math.exp(-t / 10),
    "t ** 2": lambda t, _: 0.01 * t**2,
    "0.9 ** t": lambda t, _: 0.9**t,
    "1 - 0.9 ** (t + 1)": lambda t, _: 1 - 0.9 ** (t + 1),
}


@pytest.mark.slow
@pytest.mark.parametrize("filled", [False, True], ids=["scaled", "filled"])
@pytest.mark.parametrize("weight", FUNCTIONS.values(), ids=FUNCTIONS)
def test_a_function_of_the_step_is_one_of_any_length(weight: Callable[[int, int], float], filled: bool) -> None:
    sizes = (EXAMPLE, (3, 1), (1, 2), (2, 40), (1, 300))
    check_open(Timed(weight, filled=filled), sequence, sizes)


KEPT: dict[str, tuple[Callable[[int, int], float], str]] = {
    "no known function": (lambda t, _: math.tanh(t / 5), r"numbers of which no formula is known \(0, 0\.1974, 0\.3799"),
    "now this and now that": (lambda t, _: (t % 3) / 10, r"no formula is known \(0, 0\.1, 0\.2, \.\.\.\)"),
    "a line or a sine": (lambda t, _: math.sin(t / 10000), r"no formula is known \(0, 0\.0001, "),
    "another one of many": (lambda _, length: 1 if length < 30 else 0.5, r"another loss of 'loss' .* \[2, 1024, 3\]"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("weight", "told"), KEPT.values(), ids=KEPT)
def test_numbers_that_no_formula_makes_fix_the_length(weight: Callable[[int, int], float], told: str) -> None:
    with pytest.warns(FixedStepsWarning, match=told):
        step = ll.from_torch(Timed(weight, filled=False), sequence(2, 5), loss_of, example_targets=(), what="gradients")
    session = ll.Session(step, providers=["CPUExecutionProvider"])
    with pytest.raises(ll.InvalidInputError, match="requires shape"):
        session.run({"x": torch.randn(2, 12, I).numpy()})


def check_end(module: nn.Module, most: int) -> None:
    """A length is open up to some number of steps."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        step = ll.from_torch(module, torch.randn(2, 5, I), loss_of, example_targets=(), what="gradients")
    assert [
        f"axis 1 of 'x' up to {most} (more steps run test_steps_of_loops.py:" in f"{each.message}" for each in told
    ] == ([True] if most < 16 * 5 else [])
    session = ll.Session(step, providers=["CPUExecutionProvider"])
    for batch, steps in ((2, 5), (3, 1), (1, most)):
        compare(module, session, (torch.randn(batch, steps, I),))
    with pytest.raises(
        ll.InvalidInputError, match=rf"of at most {most} along axis 1 \(more steps run test_steps_of_loops"
    ):
        session.run({"x": torch.randn(2, most + 1, I).numpy()})


@pytest.mark.slow
def test_a_number_that_stays_as_it_is_from_some_step_on_ends_a_length() -> None:
    torch.manual_seed(0)
    check_end(Timed(lambda t, _: min(1.0, t / 50), filled=False), 51)


class Late(nn.Module):
    """Its later steps read other places than the first ones tell, or take another branch."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.rows, self.own, self.way = nn.Embedding(600, I), nn.Linear(I, I), way

    def forward(self, x: Any) -> Any:
        h = torch.zeros(x.size(0), I)
        for t in range(x.size(1)):
            place = min(t, 500)
            told = x[:, place] if self.way == "element" else x[:, t]
            told = told + self.rows(torch.tensor(place)) if self.way == "number" else told
            h = self.own(h) if self.way == "branch" and t < 700 else torch.tanh(self.own(h))
            h = told + torch.tanh(h)
        return h


@pytest.mark.slow
@pytest.mark.parametrize(("way", "most"), [("element", 501), ("number", 501), ("branch", 700)])
def test_steps_that_are_others_far_behind_end_a_length(way: str, most: int) -> None:
    torch.manual_seed(0)
    check_end(Late(way), most)


class Forgetting(nn.Module):
    """A step in between is another one, of which states, and gradients through them, soon show nothing."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.own, self.other, self.way = nn.Linear(I, I), nn.Linear(I, I), way

    def forward(self, x: Any) -> Any:
        h = torch.zeros(x.size(0), I)
        for t in range(x.size(1)):
            own = self.other if self.way == "of other weights" and t == 30 else self.own
            if self.way == "truncated" and t % 64 == 0:
                h = h.detach()
            if self.way == "begun anew" and t == 30:
                h = torch.zeros_like(h)
            h = torch.tanh(x[:, t] + own(h) * (3 if self.way == "scaled" and t == 30 else 1) / 2)
        return h


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "most"), [("truncated", 64), ("begun anew", 30), ("scaled", 30), ("of other weights", 30)]
)
def test_steps_that_are_others_in_between_end_a_length(way: str, most: int) -> None:
    torch.manual_seed(0)
    check_end(Forgetting(way), most)


def test_numbers_beside_infinite_ones_are_seen_to_be_others() -> None:
    def ran(steps: int) -> tuple[Any, None]:
        return {("masked_fill", "a.py:1"): [[-math.inf, min(t, 20)] for t in range(steps)]}, None

    assert list(uneven(ran, 6, 100)) == [(22, "a.py:1")]


def test_numbers_of_several_calls_of_a_line_are_seen_to_be_others() -> None:
    def ran(steps: int) -> tuple[Any, None]:
        return {("getitem", "a.py:1"): [[place] for t in range(steps) for place in (t, min(t, 20))]}, None

    assert list(uneven(ran, 6, 100)) == [(22, "a.py:1")]


def test_numbers_of_calls_beside_the_loop_are_seen_to_be_others() -> None:
    def ran(steps: int) -> tuple[Any, None]:
        return {("mul", "a.py:1"): [[1 if steps < 30 else 2, steps]], ("view", "a.py:2"): [[3 * steps, 4]]}, None

    assert list(uneven(ran, 6, 100)) == [(30, "a.py:1")]
    assert not list(uneven(ran, 6, 7))


@pytest.mark.parametrize("size", range(5, 19))
def test_how_much_of_a_size_a_chunk_is_shows_where_further_ones_begin(size: int) -> None:
    call, place = ("linear", "a.py:1"), ("x", 1)
    for begun in (0, 3):  # chunks count when they are whole, or as soon as they begin
        assert growth([place], size, [call], lambda sizes, more=begun: {call: (sizes[place] + more) // 4}) == 4


class Tabled(nn.Module):
    """Takes at most as many steps as it has rows for, of which those from some on may be others."""

    def __init__(self, rows: int, others: int = 9999) -> None:
        super().__init__()
        self.rows, self.own, self.others = nn.Embedding(rows, I), nn.Linear(I, I), others

    def forward(self, x: Any) -> Any:
        h = torch.zeros(x.size(0), I)
        for t in range(x.size(1)):
            h = torch.tanh(self.own(h) + x[:, t] + self.rows(torch.tensor(t)))
            h = h if t < self.others else -h
        return h


class Spelling(nn.Module):
    """A cell step by step, and a loss that is told how many steps there are."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(I, 5)

    def forward(self, x: Any, text: Any) -> Any:
        h, scores = torch.zeros(x.size(0), 5), []
        for t in range(x.size(1)):
            h = self.cell(x[:, t], h)
            scores.append(h)
        lengths = (torch.full((x.size(0),), each.size(1)) for each in (x, text))
        return {"loss": nn.functional.ctc_loss(torch.stack(scores).log_softmax(-1), text, *lengths)}


def test_a_number_of_steps_that_fills_a_tensor_follows_it() -> None:
    example = torch.randn(2, 9, I), torch.randint(1, 5, (2, 3))
    step = ll.from_torch(Spelling(), example, "loss", what="gradients")
    assert step.graph.input[0].type.tensor_type.shape.dim[1].dim_param == "x_dim_1"


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "steps"), [(2000, 1024), (600, 600), (80, 80)])
def test_the_certificate_says_how_many_steps_were_compared(rows: int, steps: int) -> None:
    torch.manual_seed(0)
    step = ll.from_torch(Tabled(rows), torch.randn(2, 5, I), loss_of, example_targets=(), what="gradients")
    also = certificate.parse({entry.key: entry.value for entry in step.metadata_props}).also
    assert [each["x"] for each in also] == [[2, steps, I], [5, 12, I]]


def test_steps_that_are_others_before_the_last_that_a_module_takes_end_a_length() -> None:
    torch.manual_seed(0)
    check_end(Tabled(100, others=60), 60)


def test_without_a_comparison_an_open_length_is_told() -> None:
    module, x = Tabled(9), torch.randn(2, 5, I)
    options: dict[str, Any] = {"example_targets": (), "what": "gradients", "check": False}
    with pytest.warns(LstmLowerWarning, match=r"taken to be like the first ones \(test_steps_of_loops.py:\d+\)"):
        step = ll.from_torch(module, x, loss_of, **options)
    compare(module, ll.Session(step, providers=["CPUExecutionProvider"]), (torch.randn(3, 8, I),))
    # Whoever names the axis answers for it.
    ll.from_torch(module, x, loss_of, dynamic_shapes={"x": [1]}, **options)


class Outside(nn.Module):
    """What the warning says: the numbers are made before the loop."""

    def __init__(self, weights: Callable[[Any, int], Any]) -> None:
        super().__init__()
        self.weights = weights

    def forward(self, x: Any) -> Any:
        h, weights = torch.zeros(x.size(0), I), self.weights(torch.arange(x.size(1)).float(), x.size(1))
        for t in range(x.size(1)):
            h = torch.tanh(x[:, t] * weights[t] + h * (1 - 0.1 * weights[t]))
        return h


MADE_BEFORE: dict[str, Callable[[Any, int], Any]] = {
    "tanh": lambda t, _: torch.tanh(t / 5),
    "0.001 t t": lambda t, _: t * t * 1e-3,
    "1 - 0.5 (t / T) ** 2": lambda t, count: 1 - 0.5 * (t / count) ** 2,
    "t (t + 1) % 5": lambda t, _: t * (t + 1) % 5 / 5,
    "backwards": lambda t, count: ((count - 1 - t) * t).flip(0) * 1e-3,
    "a table": lambda *_: torch.tensor([((7 * k) % 11) / 11 for k in range(50)]),
}


@pytest.mark.slow
@pytest.mark.parametrize("weights", MADE_BEFORE.values(), ids=MADE_BEFORE)
def test_numbers_that_are_made_before_the_loop_are_of_any_length(weights: Callable[[Any, int], Any]) -> None:
    module = Outside(weights)
    step = open_step(module, sequence(*EXAMPLE), what="input_gradient")
    session = ll.Session(step, providers=["CPUExecutionProvider"])
    for batch, steps in ((3, 40), (1, 1)):
        x = torch.randn(batch, steps, I, requires_grad=True)
        loss_of(module(x)).backward()
        got = session.run({"x": x.detach().numpy()})
        torch.testing.assert_close(torch.tensor(got["grad/x"]), x.grad, rtol=1e-4, atol=1e-6)


class Scheduled(nn.Module):
    """A schedule from one number to another over all steps, read backwards."""

    def __init__(self) -> None:
        super().__init__()
        self.own = nn.Linear(I, I)

    def forward(self, x: Any) -> Any:
        h, rates = torch.zeros(x.size(0), I), torch.linspace(0.01, 0.2, x.size(1))
        for t in reversed(range(x.size(1))):
            h = torch.tanh(x[:, t] + h - rates[t] * self.own(h))
        return h


@pytest.mark.slow
def test_a_schedule_over_all_steps_is_one_of_any_number() -> None:
    check_open(Scheduled(), sequence, ((2, 5), (3, 2), (1, 40), (2, 1)))


class Warped(nn.Module):
    """Soft dynamic time warping of a sequence and four rows that are learnt: rows of a table begin as equal values."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Parameter(torch.randn(4, I))

    def forward(self, x: Any) -> Any:
        distances = (x[:, :, None] - self.rows).square().sum(-1)
        far = x.new_full((x.size(0),), 1e4)
        before = [torch.zeros_like(far), *[far] * 4]
        for t in range(x.size(1)):
            made = [far]
            for row in range(4):
                ways = torch.stack([before[row + 1], before[row], made[row]], -1)
                made.append(distances[:, t, row] - torch.logsumexp(-ways, -1))
            before = made
        return before[-1]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::lstm_lower.torch.importer.FixedStepsWarning")
def test_steps_that_share_what_the_first_one_makes_once() -> None:
    module = Warped()
    step = ll.from_torch(module, torch.randn(2, 5, I), loss_of, example_targets=(), what="gradients")
    session = ll.Session(step, providers=["CPUExecutionProvider"])
    for batch in (2, 3):
        compare(module, session, (torch.randn(batch, 5, I),))


class Visiting(nn.Module):
    """A state with a number for each step beside one of as many numbers as steps are traced."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(I, STEPS)

    def forward(self, x: Any) -> Any:
        h, seen = torch.zeros(x.size(0), STEPS), torch.zeros(x.size(0), x.size(1))
        for t in range(x.size(1)):
            h = self.cell(x[:, t], h)
            seen = torch.tanh(seen + h.mean(1, keepdim=True))
        return h.sum(1) + seen.square().sum(1)


@pytest.mark.slow
def test_sizes_that_are_a_number_of_steps_by_chance_stay_as_they_are() -> None:
    check_open(Visiting(), sequence)


class Kept(nn.Module):
    """A state that begins as a tensor that the module keeps, and anew for each further row."""

    def __init__(self) -> None:
        super().__init__()
        self.own, self.given = nn.Linear(H, H, bias=False), nn.Linear(I, H)
        self.state = torch.zeros(H)

    def forward(self, x: Any) -> Any:
        h, rows = self.state, []
        for row in x:
            states = []
            for step in row:
                h = torch.tanh(self.own(h) + self.given(step))
                states.append(h)
            rows.append(torch.stack(states))
            h = torch.zeros_like(h)
        return torch.stack(rows)


@pytest.mark.slow
def test_states_that_begin_as_a_kept_tensor_are_as_those_that_begin_anew() -> None:
    check_open(Kept(), sequence)


class KeptPairs(nn.Module):
    """The same of complex states, whose first step makes once what others make of real and imaginary parts."""

    def __init__(self) -> None:
        super().__init__()
        self.decay, self.angle = nn.Parameter(torch.rand(H)), nn.Parameter(torch.rand(H))
        self.given = nn.Parameter(torch.randn(H, I, dtype=torch.complex64))
        self.state = torch.complex(torch.zeros(H), torch.zeros(H))

    def forward(self, x: Any) -> Any:
        h, rows = self.state, []
        rotation = torch.complex(self.decay * torch.cos(self.angle), self.decay * torch.sin(self.angle))
        for row in x:
            states = []
            for step in row:
                h = rotation * h + self.given @ step.to(h.dtype)
                states.append(h.real)
            rows.append(torch.stack(states))
            h = torch.complex(torch.zeros_like(h.real), torch.zeros_like(h.real))
        return torch.stack(rows)


@pytest.mark.slow
def test_complex_states_that_begin_as_a_kept_tensor_leave_axes_open() -> None:
    module = KeptPairs()
    step = ll.from_torch(module, torch.randn(2, 5, I), loss_of, example_targets=(), what="gradients")
    session = ll.Session(step, providers=["CPUExecutionProvider"])
    for batch, steps in ((2, 5), (3, 9), (4, 16)):
        x = torch.randn(batch, steps, I)
        module.zero_grad()
        loss = loss_of(module(x))
        loss.backward()
        got = session.run({"x": x.numpy()})
        torch.testing.assert_close(torch.tensor(got["loss"]), loss.detach())
        wanted = {name: parameter.grad for name, parameter in module.named_parameters()}
        wanted["given"] = torch.view_as_real(wanted["given"])
        for name, gradient in wanted.items():
            torch.testing.assert_close(torch.from_numpy(got[f"grad/{name}"]), gradient, rtol=1e-4, atol=1e-5)
