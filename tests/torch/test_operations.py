"""PyTorch's operations that the exporter has no formula for, or a wrong one: values and gradients against autograd."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lstm_lower as ll
from lstm_lower.errors import InvalidInputError, LstmLowerError, UnsupportedOpError

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812
from torch.utils.checkpoint import checkpoint  # noqa: E402

from lstm_lower.torch.interface import named_tensors  # noqa: E402


class Calling(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *xs: Any) -> Any:
        return self.function(*xs)


def projected_loss(result: Any) -> Any:
    """A sum in which every element of every result has a gradient of its own."""
    tensors = [tensor for _, tensor in named_tensors("", result) if tensor.is_floating_point()]
    places = [torch.arange(1.0, 1 + tensor.numel(), dtype=tensor.dtype) for tensor in tensors]
    return sum((x * torch.sin(place).reshape(x.shape)).sum() for x, place in zip(tensors, places, strict=True))


def compare(function: Callable[..., Any], *examples: Any, rtol: float) -> None:
    """Results and gradients of inputs at the first example's size and at others'."""
    module = function if isinstance(function, nn.Module) else Calling(function)
    step = ll.from_torch(module, examples[0], projected_loss, example_targets=(), what="input_gradient")
    session = ll.Session(step, providers=["CPUExecutionProvider"])
    names = [value.name for value in step.graph.input]
    kept = [value.name for value in step.graph.output]
    for example in examples:
        tensors = example if isinstance(example, tuple) else (example,)
        got = session.run(dict(zip(names, [x.numpy() for x in tensors], strict=True)))
        leaves = [x.clone().requires_grad_(x.is_floating_point()) for x in tensors]
        result = module(*leaves)
        projected_loss(result).backward()
        wanted = [x.detach() for _, x in named_tensors("output", result)]
        wanted += [x.grad for x in leaves if x.is_floating_point()]
        found = [got[name] for name in kept if name != "loss"]
        assert len(found) == len(wanted)
        for ours, theirs in zip(found, wanted, strict=True):
            assert ours.shape == tuple(theirs.shape)
            np.testing.assert_allclose(ours, theirs.numpy(), rtol=rtol, atol=rtol)


def normal(*shape: int, dtype: Any = None) -> Any:
    return torch.randn(*shape, dtype=dtype or torch.float32, generator=torch.Generator().manual_seed(sum(shape)))


def definite(x: Any) -> Any:
    return x @ x.mT + torch.eye(x.shape[-2], dtype=x.dtype)


def equal_values(x: Any) -> Any:
    """Ones in pairs, with a gradient for each."""
    return (
        torch.stack([x, x * 2, x * 0], -1) - torch.stack([x, x * 2, x * 0], -1).detach() + torch.tensor([1.0, 1.0, 0])
    )


def complex_numbers(x: Any) -> Any:
    """Real numbers, by way of most of what complex ones can do."""
    z = torch.complex(x, x.flip(1)) + 1j * x.square()
    spectrum = torch.fft.rfft(x, dim=1)
    filtered = torch.zeros_like(spectrum.real, dtype=torch.complex64)
    filtered[:, :2] = spectrum[:, :2] * (0.5 - 1j * x.mean(1, keepdim=True))
    turned = z * torch.polar(torch.ones(()), torch.tensor(0.7)) / (2 - z.conj()) - (1j - z) ** 2
    mixed = torch.einsum("btc,bsc->bts", z, turned) @ torch.exp(1j * z.imag)
    both = torch.cat([mixed.transpose(1, 2), z.mT[..., :1]], -1).sum(1)
    return (
        torch.fft.irfft(filtered, n=x.shape[1], dim=1),
        both.abs(),
        both.angle().cos(),
        torch.where(x > 0, turned, 1.0).imag,
        torch.view_as_real(z.log()),
    )


def diagonals_in_place(x: Any) -> Any:
    """As losses of redundancy change them (Zbontar et al., Barlow Twins, 2021)."""
    products = x[:, 0].T @ x[:, 1]
    squares = torch.diagonal(products).add_(-1).pow_(2)
    wide = x[0, :2] * 2
    wide.diagonal(1).mul_(3)
    return squares.sum(), products, wide, products[:, :2].contiguous().diagonal(), wide.diagonal(-1)


GROUPS: dict[str, Callable[..., Any]] = {
    "gamma": lambda x: (
        torch.lgamma(x * 3.3),
        torch.digamma(x.abs() + 0.2),
        torch.special.multigammaln(x.exp() + 2, 2),
        torch.polygamma(1, x * 5) * 0.1,
        torch.polygamma(3, x.abs() * 9 + 0.5),
    ),
    "errors": lambda x: (
        torch.erfinv(torch.tanh(x)),
        torch.special.ndtri(torch.sigmoid(x * 2)),
        torch.special.log_ndtr(x * 5),
        torch.special.erfcx(x * 3),
        torch.erfc(x * 2),
    ),
    "elements": lambda x: (
        torch.fmax(x, x.flip(1)),
        torch.fmin(x, torch.where(x > 0, math.nan, x * 2)),
        torch.hypot(x * 1e25, x.flip(1) * 1e25) * 1e-25,
        torch.copysign(x, x.flip(1)),
        torch.logaddexp(x * 200, x.flip(1) * 200),
        torch.logcumsumexp(x * 100, 1),
        F.logsigmoid(x * 50),
    ),
    "orders": lambda x: (
        *x.cummax(1),
        x.cummin(-1)[0],
        *x.median(1),
        x.median(),
        torch.where(x > 1, math.nan, x).nanmedian(1, keepdim=True)[0],
        *x.kthvalue(2, 1),
        *((x * 2).round().detach() + x - x.detach()).mode(1),
        *((x * 2).round().detach() + x - x.detach()).mode(keepdim=True),
    ),
    "equals": lambda x: (
        equal_values(x).max(-1)[0],
        equal_values(x).min(-1).values,
        equal_values(x).median(),
        equal_values(x).cummax(-1)[0],
        F.hardtanh(equal_values(x)),
        F.relu6(equal_values(x) * 6),
        equal_values(x).clamp(max=torch.ones(())),
        (x * 0 + 2).std(1),
        torch.xlogy(x * 0, x.exp()),
        torch.sinc(x * 0),
    ),
    "adaptive maxima": lambda x: (
        *F.adaptive_max_pool2d(x.unsqueeze(1), (2, 3), return_indices=True),
        F.adaptive_max_pool1d(x.relu(), 2),
    ),
    "parts": lambda x: (
        *[part * number for number, part in enumerate(x.chunk(2, 1))],
        *x.tensor_split(3, 1),
        x.masked_select(x > 0),
    ),
    "attention": lambda x: F.scaled_dot_product_attention(
        x, x, x, attn_mask=torch.arange(x.shape[1]).unsqueeze(1) > torch.arange(x.shape[1])
    ),
    "moments": lambda x: (x[0].mT.cov(), x[0].mT.corrcoef(), x[0].mT.cov(aweights=x[1, :, 0].abs())),
    "equations": lambda x: (
        torch.linalg.inv(definite(x)),
        torch.linalg.solve(definite(x) + x[..., :1], x),
        torch.linalg.slogdet(definite(x)),
        torch.det(definite(x)),
    ),
    "triangles": lambda x: (
        torch.linalg.cholesky(definite(x)),
        torch.linalg.solve_triangular(definite(x), x, upper=True),
        torch.cholesky_solve(x, torch.linalg.cholesky(definite(x))),
    ),
    "reflections": lambda x: (
        *torch.linalg.qr(x.mT[..., :2, :] * 2),
        *torch.linalg.qr(torch.eye(3, dtype=x.dtype) + 0 * x[:, :3]),
        torch.linalg.pinv(x),
        torch.linalg.householder_product(x, x[..., 0, :].sin()),
        torch.linalg.lstsq(x.mT, x.mT.cos()).solution,
    ),
    "exponentials": lambda x: (
        torch.matrix_exp(x[:, :3]),
        torch.matrix_exp(x[0, :3] * 3),
        torch.matrix_exp(x[0, :3] * 1e-9),
    ),
    "complex numbers": complex_numbers,
    "sizes as numbers": lambda x: (
        x.flatten()[torch.arange(20) % x.shape[1]],
        (x.abs() + 1) ** (x.shape[0] - 1),
        torch.linspace(-1, x.shape[0], x.shape[1]).unsqueeze(1) * x,
        F.max_pool1d(x.mT, 3, 2, 1),
        *F.max_pool1d(x[0].mT, 2, ceil_mode=True, return_indices=True),
        F.max_pool1d(x.mT, x.shape[1]),
        F.avg_pool1d(x.mT, x.shape[1]),
        F.avg_pool2d(x.unsqueeze(1), (x.shape[1], 1)),
        F.max_pool2d(x.unsqueeze(1), x.shape[1:]),
    ),
    "labels": lambda x: F.ctc_loss(
        x.log_softmax(-1).transpose(0, 1),
        torch.ones(x.shape[0], 1, dtype=torch.int64),
        torch.full((x.shape[0],), x.shape[1]),
        torch.ones(x.shape[0], dtype=torch.int64),
        reduction="none",
    ),
}


TOLERANCES = {"complex numbers": 2e-4, "gamma": 2e-4, "errors": 2e-4, "elements": 2e-4}


@pytest.mark.parametrize("name", GROUPS)
def test_values_and_gradients_equal_torch_at_other_sizes(name: str) -> None:
    compare(GROUPS[name], normal(2, 5, 3), normal(3, 8, 3), rtol=TOLERANCES.get(name, 2e-5))


def test_diagonals_in_place() -> None:
    compare(diagonals_in_place, normal(2, 5, 3), normal(4, 5, 3), rtol=2e-5)


@pytest.mark.parametrize("name", ["gamma", "errors", "equations", "triangles"])
def test_the_same_in_float64(name: str) -> None:
    compare(GROUPS[name], normal(2, 5, 3, dtype=torch.float64), normal(3, 8, 3, dtype=torch.float64), rtol=1e-9)


@pytest.mark.parametrize(
    "options", [{"padding_idx": 1}, {"padding_idx": -1, "mode": "max"}, {"mode": "max"}, {"scale_grad_by_freq": True}]
)
def test_bags_of_rows(options: dict[str, Any]) -> None:
    table = nn.Parameter(normal(6, 4))
    scaled = options.get("scale_grad_by_freq")

    def bags(weights: Any, ids: Any) -> Any:
        if scaled:
            return F.embedding(ids, weights, **options)
        return F.embedding_bag(ids, weights, **options), F.embedding_bag(
            ids.flatten(), weights, torch.arange(ids.shape[0]) * ids.shape[1], **options
        )

    ids = torch.tensor([[1, 5, 2, 2], [1, 1, 5, 5], [5, 1, 5, 0]])
    compare(bags, (table.detach(), ids[:2]), (table.detach(), ids), rtol=1e-6)


def test_a_loss_that_the_module_returns_itself() -> None:
    class Losing(nn.Linear):
        def forward(self, x: Any) -> Any:
            y = super().forward(x)
            return {"loss": y.square().mean(), "logits": y}

    for loss in (lambda result: result["loss"], lambda result: result["logits"].square().mean()):
        step = ll.from_torch(Losing(3, 2), torch.ones(2, 3), loss, example_targets=(), what="gradients")
        assert [value.name for value in step.graph.output][:3] == ["loss", "output_loss", "logits"]
    mean = Calling(lambda x: x.mean())
    step = ll.from_torch(mean, torch.ones(2, 3), lambda result: result, example_targets=(), what="input_gradient")
    got = ll.Session(step).run({"xs_0": np.full((4, 3), 2, np.float32)})
    assert got["loss"] == got["output"] == 2
    np.testing.assert_allclose(got["grad/xs_0"], 1 / 12)


class Named(nn.Module):
    """A module whose parameters and buffers are called as inputs and operations are; one buffer is a view."""

    def __init__(self) -> None:
        super().__init__()
        self.t, self.x = nn.Parameter(normal(3, 3)), nn.Parameter(normal(3))
        self.register_buffer("mask", torch.ones(64).view(8, 8).tril().t())

    def forward(self, x: Any) -> Any:
        held = checkpoint(lambda y: torch.tanh(y @ self.t.t()), x + self.x, use_reentrant=True)
        alike = (held @ held.t()).fill_diagonal_(-1.0)
        places = torch.searchsorted(torch.tensor([-0.5, 0.0, 0.5]), held.detach().contiguous(), right=True)
        return alike, self.x[places.clamp(max=2)] * held, torch.vmap(lambda row: row * self.mask[0, 0])(held)


def test_names_views_checkpoints_and_mapped_functions() -> None:
    module = Named()
    step = ll.from_torch(module, normal(2, 3), projected_loss, example_targets=(), what="gradients")
    session = ll.Session(step, providers=["CPUExecutionProvider"])
    for x in (normal(2, 3), normal(5, 3)):
        got = session.run({"input_x": x.numpy()})
        module.zero_grad()
        projected_loss(module(x)).backward()
        for name in ("t", "x"):
            wanted = module.get_parameter(name).grad.numpy()
            np.testing.assert_allclose(got[f"grad/{name}"], wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("function", "loss", "error", "message"),
    [
        (torch.relu, lambda result: result, InvalidInputError, "loss requires a function that returns one real number"),
        (
            torch.relu,
            lambda y: torch.autograd.grad(y.sum(), y)[0].sum(),
            UnsupportedOpError,
            "torch.autograd.grad must be called outside",
        ),
        (torch.relu, lambda _: 3, InvalidInputError, "loss requires .* got 3"),
        (
            torch.fft.rfft,
            lambda result: result.abs().sum(),
            UnsupportedOpError,
            "real numbers, got 'output'",
        ),
        (
            lambda x: torch.linalg.svdvals(torch.tanh(x)).sum(),
            lambda result: result,
            UnsupportedOpError,
            "operations that torch.onnx can write, got linalg_svd",
        ),
        (
            lambda x: torch.linalg.pinv(x, rtol=0.1),
            projected_loss,
            UnsupportedOpError,
            r"torch.linalg.pinv requires a matrix of full rank and no options, got \['rtol'\]",
        ),
        (
            lambda x: (torch.view_as_complex(torch.stack([x, x], -1)) ** 0.3).real,
            projected_loss,
            UnsupportedOpError,
            "operations that torch.onnx can write, got pow",
        ),
        (
            lambda x: x.chunk(4, 1),
            projected_loss,
            UnsupportedOpError,
            "chunk requires .* got 3 of 4",
        ),
    ],
)
def test_what_has_no_number_is_refused(
    function: Callable[..., Any], loss: Callable[..., Any], error: type[LstmLowerError], message: str
) -> None:
    with pytest.raises(error, match=message):
        ll.from_torch(Calling(function), normal(2, 5), loss, example_targets=(), what="forward")


def test_a_size_that_the_exporter_takes_as_a_number_is_fixed() -> None:
    rolled = Calling(lambda x: x.roll(x.shape[1] // 2, 1))
    step = ll.from_torch(rolled, normal(2, 5, 3), projected_loss, example_targets=(), what="forward")
    assert [dim.dim_value for dim in step.graph.input[0].type.tensor_type.shape.dim] == [0, 5, 3]


def test_a_number_of_parts_that_depends_on_a_size_fixes_it() -> None:
    step = ll.from_torch(
        Calling(lambda x: torch.cat(x.split(2, 1)[::-1], 1)),
        normal(2, 5),
        projected_loss,
        example_targets=(),
        what="forward",
    )
    assert [dim.dim_value for dim in step.graph.input[0].type.tensor_type.shape.dim] == [0, 5]
