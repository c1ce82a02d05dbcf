"""Random numbers: results and gradients of the same draws, and the moments of many, beside PyTorch's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

import lstm_lower as ll
from lstm_lower.errors import UnsupportedOpError

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from lstm_lower.torch import export, given_draws  # noqa: E402
from lstm_lower.torch.aten import attention  # noqa: E402
from lstm_lower.torch.aten.tracing import TRACED  # noqa: E402
from lstm_lower.torch.importer import FIXED_AXES  # noqa: E402

ROWS = 4000


class Drawing(nn.Module):
    """Of each row, a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.tensor([0.2, 0.5, 0.7, 0.9]))

    def forward(self, x: Any) -> Any:
        return self.function(x * self.weight)


def _twice(x: Any) -> Any:
    shares = torch.full_like(x, 0.3)
    return x * (torch.bernoulli(shares) - torch.bernoulli(shares))


def _within(low: float, high: float) -> Callable[..., Any]:
    return lambda x: x * torch.empty_like(x).uniform_(low, to=high)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "bernoulli": torch.bernoulli,
    "bernoulli twice": _twice,
    "bernoulli in place": lambda x: torch.empty_like(x).bernoulli_(x.detach()) * x,
    "multinomial": lambda x: x.gather(1, torch.multinomial(x.detach() ** 2, 2)),
    "multinomial with replacement": lambda x: x.gather(1, x.multinomial(3, replacement=True)),
    "normal": lambda x: torch.normal(x, 0.5) * x,
    "normal of deviations": lambda x: torch.normal(1.0, x) + x,
    "normal of both": lambda x: torch.normal(x, x) * x,
    "permutation": lambda x: x * torch.randperm(x.shape[0]).unsqueeze(1) / x.shape[0],
    "uniform in place": _within(-1.0, 3.0),
    "integers": lambda x: x * (torch.randint(2**23, 2**23 + 3, x.shape) - 2**23) / 3,
    "integers like": lambda x: x * (torch.randint_like(x, -3, 3) + torch.randint(low=-2, high=2, size=x.shape)) / 3,
    "whole": lambda x: x * torch.empty_like(x).random_(2, 7) / 7,
    "whole to": lambda x: x * torch.empty_like(x).random_(3) / 3,
}


def _moments(results: Any, gradient: Any) -> np.ndarray[Any, Any]:
    """Of each column, its mean and mean square, and products of neighbours; gradients of the mean."""
    columns = np.asarray(results, np.float64)
    beside = (columns * np.roll(columns, 1, axis=1)).mean(0)
    rows = (columns[1:] * columns[:-1]).mean(0)
    return np.concatenate([columns.mean(0), (columns**2).mean(0), beside, rows, np.asarray(gradient, np.float64)])


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_draws_are_distributed_as_those_of_pytorch(name: str) -> None:
    module, x = Drawing(FUNCTIONS[name]), torch.ones(ROWS, 4)
    torch.manual_seed(0)
    onnxruntime.set_seed(0)

    def loss(result: Any) -> Any:
        return result.mean(0).square().sum()

    if name == "bernoulli":
        # Nothing trains what it is drawn by.
        module.function = lambda x: torch.bernoulli(x) + x
    step = ll.from_torch(module, x, loss, example_targets=(), what="gradients", dynamic_shapes=None)
    found = ll.Session(ll.lower(step)).run({"x": x.numpy(), "weight": module.weight.detach().numpy()})
    expected = module(x)
    loss(expected).backward()
    scale = 1 + np.square(expected.detach().numpy()).max()
    np.testing.assert_allclose(
        _moments(found["output"], found["grad/weight"]),
        _moments(expected.detach(), module.weight.grad),
        atol=0.1 * np.sqrt(scale),
    )


class Paths(nn.Module):
    """A sample is left out as a whole (Huang et al., 2016): two samples are often drawn as before."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        return x + self.layer(x) * x.new_empty(x.shape[0], 1).bernoulli_(0.7) / 0.7


@pytest.mark.slow
def test_few_draws_are_no_difference_and_fix_no_axis() -> None:
    for number in range(4):
        torch.manual_seed(number)
        step = ll.from_torch(Paths(), torch.randn(1, 3), "mse", what="forward")
        assert step.graph.input[0].type.tensor_type.shape.dim[0].dim_param


class Layers(nn.Module):
    """A function of layers and of weighted inputs [B, T, 4]."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.rand(4))
        self.attention = nn.MultiheadAttention(4, 2, dropout=0.2, batch_first=True)
        self.lstm = nn.LSTM(4, 4, 2, dropout=0.3, batch_first=True)
        self.transformer = nn.TransformerEncoderLayer(4, 2, 8, 0.2, batch_first=True)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Any) -> Any:
        return self.function(self, x * self.weight)


def _chosen(x: Any, places: Any) -> Any:
    return x.gather(1, places.unsqueeze(-1).expand(-1, -1, 4))


def _packed(m: Any, x: Any) -> Any:
    lengths = torch.arange(x.shape[0]) % 3 + 1
    packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    return nn.utils.rnn.pad_packed_sequence(m.lstm(packed)[0], batch_first=True)[0]


def _around(m: Any, x: Any) -> Any:
    """A code as of variational autoencoders (Kingma and Welling, 2013)."""
    return x + torch.exp(x / 2) * torch.randn_like(x)


def _of(kind: str, *operands: Callable[..., Any]) -> Callable[..., Any]:
    return lambda _, x: getattr(torch.distributions, kind)(*[f(x) for f in operands]).rsample()


def _sampled(kind: str) -> Callable[..., Any]:
    return lambda _, x: x * getattr(torch.distributions, kind)(logits=x).sample().reshape(*x.shape[:2], -1)


def _drawn_in_place(name: str, *operands: Any) -> Callable[..., Any]:
    return lambda _, x: x * getattr(torch.empty_like(x), name)(*operands)


def _in_a_loop(m: Any, x: Any) -> Any:
    def body(carried: Any, step: Any) -> Any:
        return carried + functional.dropout(step, 0.3), carried * 2

    return torch._higher_order_ops.scan(body, torch.zeros(x.shape[0], 4), x.transpose(0, 1))[1]


# Draws that both sides make in the same order, of the same shapes.
GIVEN: dict[str, Callable[..., Any]] = {
    "dropout": lambda _, x: functional.dropout(x, 0.2),
    "dropout of channels": lambda _, x: functional.dropout1d(x, 0.4),
    "alpha dropout": lambda _, x: functional.alpha_dropout(x, 0.3, training=True),
    "dropout and batch norm": lambda m, x: m.norm(functional.dropout(x, 0.5).transpose(1, 2)).mT,
    "two of one shape": lambda _, x: x * (torch.rand_like(x) - torch.rand_like(x)),
    "attention": lambda m, x: m.attention(x, x, x)[0],
    "attention without weights": lambda m, x: m.attention(x, x, x, need_weights=False)[0],
    "attention in one function": lambda _, x: functional.scaled_dot_product_attention(
        x.unsqueeze(0), x.unsqueeze(0), x.unsqueeze(0), dropout_p=0.3, is_causal=True
    ),
    "transformer": lambda m, x: m.transformer(x),
    "lstm": lambda m, x: m.lstm(x)[0],
    "bernoulli": lambda _, x: x + torch.bernoulli(x.detach().sigmoid()),
    "bernoulli in place": lambda _, x: x * torch.empty_like(x).bernoulli_(x.detach().sigmoid()),
    "stochastic depth": lambda _, x: x + x.tanh() * x.new_empty(x.shape[0], 1, 1).bernoulli_(0.7) / 0.7,
    "noise": lambda _, x: x + torch.randn(x.shape) * 0.1,
    "reparameterisation": _around,
    "normal": lambda _, x: torch.normal(x, x.abs()) * x + torch.normal(0.0, 2.0, x.shape),
    "gumbel": lambda _, x: functional.gumbel_softmax(x, hard=False),
    "hard gumbel": lambda _, x: functional.gumbel_softmax(x, hard=True),
    "rrelu": lambda _, x: functional.rrelu(x - 0.3, training=True),
    "multinomial": lambda _, x: _chosen(x, torch.multinomial(x.detach().abs().sum(-1), 2)),
    "multinomial with replacement": lambda _, x: _chosen(
        x, torch.multinomial(x.detach().abs().sum(-1), 6, replacement=True)
    ),
    "permutation": lambda _, x: x * x[torch.randperm(x.shape[0])],
    "masked patches": lambda _, x: _chosen(x, torch.rand(x.shape[:2]).argsort(1)[:, :2]),
    "whole": lambda _, x: x * torch.randint(-2, 7, x.shape) * torch.randint_like(x, 3),
    "whole in place": _drawn_in_place("random_", 2, 7),
    "whole without bounds": lambda _, x: x * torch.empty_like(x).random_() / 2**24,
    "uniform": _drawn_in_place("uniform_", -1, 2),
    "initialized anew": lambda _, x: x + nn.init.kaiming_uniform_(torch.empty(4, 4))[0],
    "exponential": _drawn_in_place("exponential_", 2.0),
    "geometric": _drawn_in_place("geometric_", 0.3),
    "cauchy": _drawn_in_place("cauchy_"),
    "log normal": _drawn_in_place("log_normal_"),
    "Normal": _of("Normal", lambda x: x, torch.exp),
    "Gumbel": _of("Gumbel", lambda x: x, torch.exp),
    "Laplace": _of("Laplace", lambda x: x, torch.exp),
    "Categorical": _sampled("Categorical"),
    "OneHotCategorical": _sampled("OneHotCategorical"),
    "Bernoulli": _sampled("Bernoulli"),
}


# In models of several, since a model costs more than what it draws.
PARTS = [list(GIVEN)[first::6] for first in range(6)]


def _loss(results: Any) -> Any:
    """A sum in which none counts for much more than another, however large the numbers are that it draws."""
    return sum((torch.tanh(result) * torch.arange(1.0, 5.0)).square().mean() for result in results)


def _sum(result: Any) -> Any:
    return (result * torch.arange(1.0, 1 + result.numel()).reshape(result.shape)).sum()


@pytest.mark.slow
@pytest.mark.parametrize("names", PARTS, ids=", ".join)
def test_the_same_draws_give_the_same_results_and_gradients(names: list[str]) -> None:
    torch.manual_seed(0)
    module, x = Layers(lambda m, x: [GIVEN[name](m, x) for name in names]), torch.rand(3, 5, 4) + 0.1
    written = export.export(module, x, loss=_loss).model
    # Behind them stand new statistics of batch normalization.
    outputs = [value.name for value in written.graph.outputs if value.name != "loss"]
    assert given_draws.given(written)
    own = {name: value.detach().numpy() for name, value in module.named_parameters()}
    step = ll.from_onnx(ir.to_proto(written), "loss", what="gradients", trainable=own.__contains__)
    feeds = {"x": x.numpy(), given_draws.PLAN: np.array(given_draws.BY_PLACE)}
    found = ll.Session(ll.lower(step)).run(
        {each.name: own.get(each.name, feeds.get(each.name)) for each in step.graph.input}
    )
    with given_draws.GivenDraws(given_draws.BY_PLACE) as numbers:
        results = module(x)
        loss = _loss(results)
    assert len(numbers.shapes) >= len(names)
    loss.backward()
    np.testing.assert_allclose(found["loss"], loss.item(), rtol=1e-5)
    for name, ours, theirs in zip(names, outputs, results, strict=False):
        np.testing.assert_allclose(found[ours], theirs.detach(), rtol=2e-4, atol=1e-5, err_msg=name)
    for key, parameter in module.named_parameters():
        if f"grad/{key}" in found:
            np.testing.assert_allclose(found[f"grad/{key}"], parameter.grad, rtol=2e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "function",
    [_packed, _in_a_loop, lambda _, x: (torch.rand(3), functional.dropout(x))[1]],
    ids=["packed", "in a loop", "a draw that nothing reads"],
)
def test_draws_without_counterparts_are_no_difference(function: Any) -> None:
    torch.manual_seed(0)
    step = ll.from_torch(Layers(function), torch.rand(3, 5, 4), _sum, example_targets=(), what="forward")
    fixed = json.loads(next(entry.value for entry in step.metadata_props if entry.key == FIXED_AXES))
    assert fixed["x"].keys() == {"2"}


def _inverted(input: Any, p: Any = 0.5) -> Any:  # noqa: A002
    return input.copy_(torch.rand(input.shape) > p)


def _by_element(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:  # noqa: A002
    return functional.dropout(input, p, training)


def _a_tenth(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:  # noqa: A002
    return torch.where(torch.rand_like(input) > 0.1, input / 0.9, 0)


def _once(input: Any) -> Any:  # noqa: A002
    return torch.linspace(-1, 1, 4).expand_as(input)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "replaced", "fault"),
    [
        (lambda _, x: x * torch.empty_like(x).bernoulli_(torch.full_like(x, 0.3)), torch.Tensor.bernoulli_, _inverted),
        (lambda _, x: functional.dropout(x, 0.2), functional.dropout, _a_tenth),
        (lambda _, x: functional.dropout1d(x, 0.2), functional.dropout1d, _by_element),
        (lambda _, x: functional.dropout(x + torch.randn_like(x)), torch.randn_like, _once),
        (lambda m, x: m.transformer(x), None, None),
    ],
    ids=["inverted", "another share", "of elements", "drawn once for all", "attention without dropout"],
)
def test_faults_of_drawing_are_found(function: Any, replaced: Any, fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    if replaced is None:
        monkeypatch.setattr(attention, "dropped", lambda x, _: x)
    else:
        monkeypatch.setitem(TRACED, replaced, fault)
    with pytest.raises(UnsupportedOpError, match="got another loss of 'loss'"):
        ll.from_torch(Layers(function), torch.rand(3, 5, 4), _sum, example_targets=(), what="forward")


@pytest.mark.slow
def test_what_is_dropped_as_a_whole_has_no_gradient() -> None:
    module, x = Drawing(lambda x: functional.dropout(x, 1.0) + x), torch.ones(3, 4)
    step = ll.from_torch(module, torch.ones(2, 4), "mse", what="gradients")
    feeds = {"x": x.numpy(), "target": np.zeros((3, 4), np.float32), "weight": module.weight.detach().numpy()}
    found = ll.Session(ll.lower(step)).run(feeds)
    module(x).square().mean().backward()
    np.testing.assert_allclose(found["grad/weight"], module.weight.grad, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: torch.poisson(x.detach()) * x, "poisson .* hand them to it as an input"),
        (lambda x: torch.binomial(torch.ones_like(x), x.detach()) * x, "binomial .* hand them to it as an input"),
        (lambda x: torch.distributions.Gamma(x, x).rsample(), "Gamma requires a formula .*; LogNormal and Weibull"),
        (lambda x: torch.distributions.Beta(x, x).rsample(), "Dirichlet or Beta requires a formula .*; Kumaraswamy"),
        (
            lambda x: x * torch.zeros(4, dtype=torch.int64).random_(),
            r"random_ requires bounds, .*random_\(0, 2\*\*24\)",
        ),
        (lambda x: x * torch.rand(4, generator=torch.Generator()), "rand.*default generator, .* leave generator= out"),
    ],
)
def test_draws_without_a_formula_are_refused(function: Any, message: str) -> None:
    with pytest.raises(UnsupportedOpError, match=message):
        ll.from_torch(Drawing(function), torch.ones(2, 4), "mse")
