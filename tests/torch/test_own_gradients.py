"""Functions with a gradient of their own, `torch.autograd.Function`, against autograd at several sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lstm_lower as ll
from lstm_lower.errors import InvalidInputError, UnsupportedOpError

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.autograd import Function  # noqa: E402


class Spike(Function):
    """A step, whose gradient is that of a smooth one (Neftci, Mostafa and Zenke, 2019)."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return (x > 0).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        (x,) = ctx.saved_tensors
        return dy / (1 + 5 * x.abs()) ** 2


class Reversed(Function):
    """Reversal of a gradient (Ganin and Lempitsky, 2015)."""

    @staticmethod
    def forward(ctx: Any, x: Any, scale: float) -> Any:
        ctx.scale = scale
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        return -ctx.scale * dy, None


class Limited(Function):
    """A gradient that is not linear in what comes in."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Any) -> Any:
        return x.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        return dy.clamp(-0.1, 0.1)


class Several(Function):
    """Results of which one has no gradient; what is broadcast is summed."""

    @staticmethod
    def forward(ctx: Any, x: Any, w: Any) -> Any:
        ctx.save_for_backward(x, w)
        ctx.rows = x.shape[0]
        best = x.argmax(-1)
        ctx.mark_non_differentiable(best)
        return x * w, (x * 2).sum(-1), best, "text"

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Any, dsum: Any, _best: Any, _text: Any) -> Any:
        x, w = ctx.saved_tensors
        assert ctx.needs_input_grad[1]
        return dy * w + dsum[:, None] * 3, (x * dy).sum(0) * ctx.rows


class Cubed(Function):
    """A gradient that is not the true one, which itself has gradients."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def vjp(ctx: Any, dy: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 2.5 * dy * Cubed.apply(x) / x


class Inverted(Function):
    """A gradient that is found by differentiation, of something else."""

    @staticmethod
    def forward(ctx: Any, x: Any, function: Callable[[Any], Any]) -> Any:
        ctx.save_for_backward(x)
        ctx.function = function
        return function(x)

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            y = ctx.function(x) * 2
        return torch.autograd.grad(y, x, dy)[0], None


def _several(m: Module, x: Any) -> Any:
    products, sums, best, _ = Several.apply(x * m.w, m.w)
    return products + (sums * (best + 1))[:, None]


def _penalty(m: Module, x: Any) -> Any:
    x = x.detach().requires_grad_()
    y = Cubed.apply(torch.tanh(x * m.w) / 2 + 0.6)
    (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    return y + slope**2


def _steps(m: Module, x: Any) -> Any:
    """A loop that becomes a Scan; in a step something reads results without their gradients."""
    potential, total = torch.zeros(3), torch.zeros(())
    for step in range(6):
        reset = Spike.apply(potential - 0.5).detach()
        potential = 0.9 * potential * (1 - reset) + x * m.w * (step + 1)
        total = total + Spike.apply(potential - 0.5)
    return total


def _layers(m: Module, x: Any) -> Any:
    """Two layers of spiking cells, whose reset is what the step before made, made again."""
    first, second, total = torch.zeros(3), torch.zeros(3), torch.zeros(())
    for step in range(4):
        reset = Spike.apply(first - 1).clone().detach()
        first = 0.9 * first + x * m.w * (step + 1) - reset
        spikes = Spike.apply(first - 1)
        reset = Spike.apply(second - 1).clone().detach()
        second = m.w.clamp(0, 1) * second + spikes * m.w - reset
        total = total + second * Spike.apply(second - 1)
    return total


def _branches(m: Module, x: Any) -> Any:
    return torch.cond(x.sum() > 0, lambda x: Spike.apply(x) * x, lambda x: Limited.apply(x * x), (x * m.w,))


def _statistics(m: Module, x: Any) -> Any:
    """Of these, which stand behind the result, PyTorch takes no gradient."""
    result, mean, deviation = torch.native_layer_norm(x * m.w, (3,), None, None, 0.1)
    return result * mean * deviation


def _without_gradients(m: Module, x: Any) -> Any:
    with torch.no_grad():
        held = Cubed.apply(x * m.w)
    return held * m.w + Spike.apply((x * m.w).detach())


FORMULAS: dict[str, Callable[..., Any]] = {
    "spike": lambda m, x: Spike.apply(x * m.w) * m.w,
    "reversed": lambda m, x: Reversed.apply(x * m.w, 0.5) + m.w,
    "limited": lambda m, x: Limited.apply(x * m.w) * Limited.apply(m.w),
    "several": _several,
    "cubed": lambda m, x: Cubed.apply(x * m.w + 3),
    "inverted": lambda m, x: Inverted.apply(x * m.w, torch.sin),
    "penalty": _penalty,
    "steps": _steps,
    "layers": _layers,
    "branches": _branches,
    "without gradients": _without_gradients,
    "statistics": _statistics,
}


class Module(nn.Module):
    """Weights for a formula."""

    def __init__(self, formula: Callable[..., Any]) -> None:
        super().__init__()
        self.formula, self.w = formula, nn.Parameter(torch.tensor([0.5, -1.0, 1.5]))

    def forward(self, x: Any) -> Any:
        return self.formula(self, x)


def _loss(result: Any) -> Any:
    return (result * torch.sin(result + 0.3)).sum()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::lstm_lower.torch.importer.FixedStepsWarning")
# PyTorch's own, of `cond`.
@pytest.mark.filterwarnings("ignore:The .grad attribute", "ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize("name", FORMULAS)
def test_gradients_are_torchs(name: str) -> None:
    generator = torch.Generator().manual_seed(3)
    example, x = (torch.randn(rows, 3, generator=generator) for rows in (3, 5))
    step = ll.from_torch(Module(FORMULAS[name]), example, _loss, example_targets=(), what="gradients")
    lowered = ll.Session(step)
    for given in (example, x):
        got = lowered.run({"x": given.numpy()})
        module = Module(FORMULAS[name])
        expected = _loss(module(given))
        expected.backward()
        assert float(got["loss"]) == pytest.approx(expected.item(), rel=1e-5)
        np.testing.assert_allclose(got["grad/w"], module.w.grad, rtol=1e-5, atol=1e-5)


class Smooth(Spike):
    """The same by `setup_context`."""

    @staticmethod
    def forward(x: Any) -> Any:
        return (x > 0).to(x.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        del output
        ctx.save_for_backward(*inputs)


# As packages keep them in a module: bound to PyTorch's own `apply` long before anything is traced.
spike, smooth = Spike.apply, Smooth.apply


def unrecorded(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return spike(x) * x


@pytest.mark.parametrize("function", [spike, smooth, unrecorded, lambda x: torch.no_grad()(smooth)(x) * spike(x)])
def test_an_apply_that_was_kept_has_the_same_gradient(function: Any) -> None:
    class Kept(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (function(self.linear(x)) - 0.3).square().mean() + self.linear(x).square().mean()

    module, x = Kept(), torch.randn(4, 3, generator=torch.Generator().manual_seed(1))
    step = ll.from_torch(module, x, "output", what="gradients", check=False)
    found = ll.Session(ll.lower(step)).run({"x": x.numpy()})
    module(x).backward()
    for name, parameter in module.named_parameters():
        np.testing.assert_allclose(found[f"grad/{name}"], parameter.grad, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_a_step_trains_and_is_evaluated() -> None:
    """What evaluates it has nothing of a gradient."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 8), Module(lambda _, x: Spike.apply(x)), nn.Dropout(0.0), nn.Linear(8, 1))
    x, y = torch.randn(16, 4), torch.randn(16, 1)
    step = ll.from_torch(module, x, nn.MSELoss(), torch.optim.SGD(module.parameters(), lr=0.1))
    trainer = ll.Trainer(step)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(module(x), y)
        loss.backward()
        optimizer.step()
        got = trainer.step({"input": x.numpy(), "target": y.numpy()}).loss
        assert got == pytest.approx(loss.item(), rel=1e-5)
    assert trainer.evaluate((x.numpy(), y.numpy()))["loss"] == pytest.approx(
        nn.functional.mse_loss(module(x), y).item(), rel=1e-5
    )


class Tied(nn.Module):
    """A recurrent layer, whose weights PyTorch reads from a list, and a matrix that stands in two places."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.cells = nn.Embedding(7, 4), nn.GRU(4, 4, batch_first=True)
        self.scores = nn.Linear(4, 7, bias=False)
        self.scores.weight = self.embedding.weight

    def forward(self, words: Any) -> Any:
        return self.scores(self.cells(self.embedding(words))[0][:, -1])


@pytest.mark.slow
def test_hooks_on_parameters() -> None:
    """They see a gradient once, when it is complete, one behind the other."""
    torch.manual_seed(0)
    module = Tied()
    for weight in module.parameters():
        weight.register_hook(lambda dx: dx.clamp(-0.01, 0.01))
    module.embedding.weight.register_hook(lambda dx: dx / dx.norm())
    module.cells.weight_hh_l0.register_hook(lambda dx: dx * torch.arange(4))
    words, target = torch.randint(0, 7, (3, 5)), torch.randint(0, 7, (3,))
    loss = nn.functional.cross_entropy
    loss(module(words), target).backward()
    step = ll.from_torch(module, words, loss, example_targets=target, what="gradients")
    got = ll.Session(step).run({"words": words.numpy(), "target": target.numpy()})
    for name, weight in module.named_parameters():
        np.testing.assert_allclose(got[f"grad/{name}"], weight.grad, rtol=1e-5, atol=1e-7, err_msg=name)


class Hooked(nn.Module):
    """As MuZero halves gradients between steps (Schrittwieser et al., 2020)."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.cell = nn.GRU(3, 4), nn.GRUCell(4, 4)

    def forward(self, x: Any) -> Any:
        y, hidden = self.layer(x)
        if y.requires_grad and not torch.zeros_like(y).requires_grad:
            y.register_hook(lambda dx: dx * y)
            y.register_hook(lambda dx: dx + 1)
        hidden = hidden[0]
        for _ in range(2):
            hidden = self.cell(y.mean(0), hidden)
            hidden.register_hook(lambda dx: dx * 0.5)
        return hidden, y


def test_hooks_on_results() -> None:
    torch.manual_seed(0)
    module, x = Hooked(), torch.randn(5, 2, 3)

    def loss(results: Any) -> Any:
        scores = results[1].exp() * torch.arange(-2.0, 2.0)
        scores.register_hook(torch.sign)
        return results[0].square().sum() + scores.square().sum()

    step = ll.from_torch(module, x[:, :1], loss, example_targets=(), what="gradients")
    loss(module(x)).backward()
    got = ll.Session(step).run({"x": x.numpy()})
    for name, weight in module.named_parameters():
        np.testing.assert_allclose(got[f"grad/{name}"], weight.grad, rtol=1e-5, atol=1e-6, err_msg=name)


def _fourth(m: Module, x: Any) -> Any:
    x = x.detach().requires_grad_()
    y = Powered.apply(x * m.w)
    for _ in range(4):
        (y,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    return y


class Powered(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x**5

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 5 * dy * Powered.apply(x) / x


class Dirty(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        return dy * 2


class TooFew(Function):
    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        return x * y

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        return dy


@pytest.mark.parametrize(
    ("formula", "error", "message"),
    [
        (lambda m, x: Dirty.apply(x * m.w), UnsupportedOpError, "Dirty requires a forward that leaves its operands"),
        (
            _fourth,
            UnsupportedOpError,
            "requires derivatives of at most 3 orders, got one more; a backward that is written",
        ),
        (lambda m, x: TooFew.apply(x, m.w), InvalidInputError, "backward of TooFew requires .* 2 arguments .*got 1"),
        (
            lambda m, x: torch.func.vmap(Limited.apply)(x * m.w),
            UnsupportedOpError,
            "Limited, a torch.autograd.Function, requires to be called outside of vmap",
        ),
        (
            lambda m, x: Reversed.apply(torch.complex(x, x * m.w), 1.0).abs(),
            UnsupportedOpError,
            "requires operands of real numbers, got complex ones; torch.view_as_real",
        ),
        (
            lambda m, x: nn.modules.normalization.CrossMapLRN2d(3)((x * m.w).reshape(1, -1, 1, 1)),
            UnsupportedOpError,
            "CrossMapLRN2d requires sums over neighbouring channels, got .*; nn.LocalResponseNorm",
        ),
    ],
)
def test_what_is_not_taken(formula: Callable[..., Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ll.from_torch(Module(formula), torch.ones(2, 3), _loss, example_targets=(), what="gradients")
