"""PyTorch's operations whose translation needs care: values and gradients against autograd."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lstm_lower as ll
from lstm_lower.errors import InvalidInputError, LstmLowerError, UnsupportedOpError

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812
from torch.utils.checkpoint import checkpoint  # noqa: E402

from lstm_lower.torch.importer import FIXED_AXES, FixedStepsWarning  # noqa: E402
from lstm_lower.torch.interface import named_tensors  # noqa: E402
from tests.support.torch_operations import GROUPS, diagonals_in_place  # noqa: E402


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
    """Results and gradients of inputs at the first example's size and at others'; of one example sizes are fixed."""
    module = function if isinstance(function, nn.Module) else Calling(function)
    shapes = "auto" if len(examples) > 1 else None  # which is traced in less than half of the time
    options = {"example_targets": (), "what": "input_gradient", "dynamic_shapes": shapes}
    step = ll.from_torch(module, examples[0], projected_loss, **options)
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


# Formulas of single numbers, which are the same at all sizes.
BY_ELEMENT = {"gamma", "errors", "exponentials"}
TOLERANCES = {"complex numbers": 2e-4, "gamma": 2e-4, "errors": 2e-4, "elements": 2e-4}


@pytest.mark.slow
@pytest.mark.parametrize("name", GROUPS)
def test_values_and_gradients_equal_torch_at_other_sizes(name: str) -> None:
    others = () if name in BY_ELEMENT else (normal(3, 8, 3),)
    compare(GROUPS[name], normal(2, 5, 3), *others, rtol=TOLERANCES.get(name, 2e-5))


def _bounded(x: Any) -> Any:
    y = (x * 1).clamp_(0, 1) + x.clamp(min=-1) + torch.clamp_min(x, 0) + x.clamp(max=x.shape[0])
    return y + torch.clamp_max(x, torch.ones(3))


def _saturated(x: Any) -> Any:
    """Losses of probabilities and of scores, however large."""
    target, weight = (x.flip(0) > 0).to(x.dtype), torch.tensor([1.0, 2, 3], dtype=x.dtype)
    return (
        F.binary_cross_entropy(torch.where(x.abs() > 1, (x > 0).to(x.dtype) + 0 * x, x.sigmoid()), target, weight),
        F.binary_cross_entropy_with_logits(x, target, pos_weight=weight),
        F.multilabel_soft_margin_loss(x, target, reduction="none"),
    )


def _margins(x: Any) -> Any:
    return F.multilabel_margin_loss(x, torch.tensor([1, 0, -1]).expand(x.shape[0], 3))


def _turned(x: Any) -> Any:
    y = x.flip(0)
    return torch.atan2(x, y), torch.angle(torch.complex(y, x))


def _norms(x: Any) -> Any:
    return x.norm(3, dim=1), torch.linalg.vector_norm(x, 0.5, dim=0, keepdim=True), torch.linalg.vector_norm(x, 3.0)


@pytest.mark.slow
@pytest.mark.parametrize("function", [_norms, _turned, _bounded, _saturated, _margins])
def test_where_slopes_change(function: Callable[..., Any]) -> None:
    special = torch.tensor([[0.0, 1, 200], [-200, 0.5, 0], [-1, 1, 0], [0, 0, 0]])
    compare(function, normal(3, 3), special, rtol=2e-5)


@pytest.mark.slow
def test_norms_in_float64() -> None:
    compare(_norms, normal(3, 3, dtype=torch.float64), torch.eye(3, dtype=torch.float64) * 0.3, rtol=1e-12)


def test_slopes_of_probabilities_that_round_to_0_and_1() -> None:
    x, target = torch.tensor([[0.0, 0, 1, 1, 0.25, 1e-20]]), torch.tensor([[0.0, 1, 0, 1, 1, 1]])
    loss = nn.BCELoss(reduction="sum")
    step = ll.from_torch(nn.Identity(), torch.rand(2, 6), loss, example_targets=torch.rand(2, 6), what="input_gradient")
    got = ll.Session(step, providers=["CPUExecutionProvider"]).run({"input": x.numpy(), "target": target.numpy()})
    expected = loss(x.requires_grad_(), target)
    expected.backward()
    assert got["loss"] == pytest.approx(expected.item())
    np.testing.assert_allclose(got["grad/input"], x.grad, rtol=1e-6)


@pytest.mark.slow
def test_numbers_that_stand_first() -> None:
    compare(lambda x: torch.mul(0.3, x) + torch.sub(2, torch.div(1.5, 3 + x.abs())), torch.randn(2, 3), rtol=1e-5)
    compare(lambda x: torch.add(2, x, alpha=3) * torch.mul(0.5, torch.arange(3)), torch.randn(4, 3), rtol=1e-5)


@pytest.mark.slow
def test_diagonals_in_place() -> None:
    compare(diagonals_in_place, normal(2, 5, 3), normal(4, 5, 3), rtol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gamma", "errors", "equations", "triangles"])
def test_the_same_in_float64(name: str) -> None:
    others = (normal(3, 8, 3, dtype=torch.float64),) if name == "equations" else ()
    compare(GROUPS[name], normal(2, 5, 3, dtype=torch.float64), *others, rtol=1e-9)


@pytest.mark.slow
def test_recurrent_layers_in_float64() -> None:
    def both(x: Any, lengths: Any) -> Any:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return lstm(packed)[1], gru(x)[0]

    lstm, gru = (kind(3, 4, bidirectional=True, batch_first=True).double() for kind in (nn.LSTM, nn.GRU))
    module = Calling(both)
    module.lstm, module.gru = lstm, gru
    x = [
        (normal(size, steps, 3, dtype=torch.float64), torch.tensor([2, 5, 3][:size]))
        for size, steps in ((2, 5), (3, 8))
    ]
    compare(module, *x, rtol=1e-9)


@pytest.mark.slow
def test_an_adaptive_softmax() -> None:
    module = nn.AdaptiveLogSoftmaxWithLoss(4, 9, [3, 6], div_value=1.5)
    compare(module, (normal(4, 4), torch.tensor([0, 4, 8, 4])), (normal(2, 4), torch.tensor([7, 1])), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"include_last_offset": True},
        {"padding_idx": 1},
        {"padding_idx": -1, "mode": "max"},
        {"mode": "max"},
        {"scale_grad_by_freq": True},
    ],
)
@pytest.mark.filterwarnings("ignore::lstm_lower.torch.importer.FixedStepsWarning")
def test_bags_of_rows(options: dict[str, Any]) -> None:
    table = nn.Parameter(normal(6, 4))
    scaled, ends = options.get("scale_grad_by_freq"), int("include_last_offset" in options)

    def bags(weights: Any, ids: Any) -> Any:
        if scaled:
            return F.embedding(ids, weights, **options)
        return F.embedding_bag(ids, weights, **options), F.embedding_bag(
            ids.flatten(), weights, torch.arange(ids.shape[0] + ends) * ids.shape[1], **options
        )

    ids = torch.tensor([[1, 5, 2, 2], [1, 1, 5, 5], [5, 1, 5, 0]])
    compare(bags, (table.detach(), ids[:2]), (table.detach(), ids), rtol=1e-6)


@pytest.mark.slow
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


@pytest.mark.slow
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


def hidden_by_lengths(x: Any, lengths: Any) -> Any:
    steps, largest = int(lengths.max()), float(x.abs().max().item())
    assert isinstance(int("3"), int)
    hidden = torch.arange(steps) >= lengths.unsqueeze(1)
    parts = [torch.empty(0), x.tanh().masked_fill(hidden.unsqueeze(2), 0.0) / largest]
    return torch.cat([*parts, torch.ones(len(x), 1, 3, dtype=torch.int32)], dim=1)


@pytest.mark.slow
def test_numbers_of_tensors_stay_open() -> None:
    examples = [(torch.randn(b, t, 3), torch.arange(b).clamp(max=t - 1) * -1 + t) for b, t in ((3, 7), (5, 4), (2, 1))]
    compare(hidden_by_lengths, *examples, rtol=1e-5)
    assert not {"int", "float", "len"} & set(globals())


@pytest.mark.parametrize(
    ("function", "loss", "error", "message"),
    [
        (torch.relu, lambda result: result, InvalidInputError, "loss requires a function that returns one real number"),
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
            r"linalg_svd, which test_operations\.py:\d+ calls, requires a translation, got none; write it with",
        ),
        (
            lambda x: torch.linalg.pinv(x, rtol=0.1),
            projected_loss,
            UnsupportedOpError,
            r"linalg_pinv, which test_operations\.py:\d+ calls, requires a matrix of full rank and no options; without",
        ),
        (
            lambda x: (torch.view_as_complex(torch.stack([x, x], -1)) ** 0.3).real,
            projected_loss,
            UnsupportedOpError,
            r"pow, which test_operations\.py:\d+ calls, requires a whole exponent .*; exp\(exponent \* log\(x\)\) is",
        ),
        (
            lambda x: F.elu(x, float(x.mean())),
            projected_loss,
            UnsupportedOpError,
            r"elu, which test_operations\.py:\d+ calls, requires operands that its translation takes, got T",
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


@pytest.mark.slow
def test_a_size_that_an_attribute_is_of_is_fixed() -> None:
    grouped = Calling(lambda x: F.conv1d(x, x.mean((0, 2)).reshape(-1, 1, 1), groups=x.shape[1]))
    with pytest.warns(FixedStepsWarning, match="axis 1 of 'xs_0'"):
        step = ll.from_torch(grouped, normal(2, 5, 3), projected_loss, example_targets=(), what="forward")
    assert [dim.dim_value for dim in step.graph.input[0].type.tensor_type.shape.dim] == [0, 5, 0]
    fixed = json.loads(next(entry.value for entry in step.metadata_props if entry.key == FIXED_AXES))
    assert re.fullmatch(r"conv1d, which test_operations\.py:\d+ calls, requires it as a number", fixed["xs_0"]["1"])


@pytest.mark.slow
def test_a_number_of_parts_that_depends_on_a_size_fixes_it() -> None:
    swapped = Calling(lambda x: torch.cat(x.split(2, 1)[::-1], 1))
    with pytest.warns(FixedStepsWarning, match="axis 1 of 'xs_0'"):
        step = ll.from_torch(swapped, normal(2, 5), projected_loss, example_targets=(), what="forward")
    assert [dim.dim_value for dim in step.graph.input[0].type.tensor_type.shape.dim] == [0, 5]


def test_joined_batches_are_taken_apart_at_any_size() -> None:
    compare(lambda x: torch.cat([x, x.square(), -x]).split(x.size(0)), normal(2, 3), normal(5, 3), rtol=1e-6)


@pytest.mark.slow
def test_gradients_of_scattered_extremes_are_shared_as_in_pytorch() -> None:
    def examples(count: int) -> tuple[Any, ...]:
        generator = torch.Generator().manual_seed(count)
        x, src = (torch.randint(-1, 2, (rows, 4), generator=generator).float() for rows in (5, count))
        return x, torch.randint(0, 4, (count, 4), generator=generator), src

    def scattered(x: Any, index: Any, src: Any) -> Any:
        rows = torch.cat([x, x[:1] - torch.inf])
        ways = itertools.product(("amax", "amin"), (True, False))
        return [rows.scatter_reduce(0, index, src, way, include_self=included)[:5] for way, included in ways]

    compare(scattered, examples(9), examples(14), rtol=1e-6)


def _attending(x: Any) -> Any:
    return F.scaled_dot_product_attention(x, x, torch.ones_like(x), dropout_p=0.5, is_causal=True)


def _attending_inside(x: Any) -> Any:
    x = x.flatten(0, 1)
    ones = torch.zeros(24, 8), torch.cat([torch.zeros(16), torch.ones(8)])
    options = {"bias_k": None, "bias_v": None, "add_zero_attn": False, "dropout_p": 0.5, "need_weights": False}
    outer = {"out_proj_weight": torch.eye(8), "out_proj_bias": torch.zeros(8)}
    return F.multi_head_attention_forward(x, x, x, 8, 2, *ones, **options, **outer)[0]


@pytest.mark.slow
@pytest.mark.parametrize("function", [_attending, _attending_inside])
def test_attention_drops_weights(function: Callable[..., Any]) -> None:
    step = ll.from_torch(Calling(function), torch.randn(2, 4, 9, 8), projected_loss, example_targets=(), what="forward")
    x = normal(4, 4, 25, 8).numpy()
    got = ll.Session(step).run({step.graph.input[0].name: x})["output"]
    # Without it each is 1; a sum of a few weights of 1 / n or of none is far from that.
    assert got.std() > 0.1
    assert got.mean() == pytest.approx(1, abs=0.1)


def _named(x: Any) -> Any:
    apart = torch.median(x, axis=1, keepdims=True).values + torch.squeeze(input=x[:, :1], axis=1).unsqueeze(1)
    along = x.cumprod(axis=1) + torch.std(x, axis=1, keepdims=True) + x.clamp_max(max=0.5)
    return apart + along + torch.erf(input=x) + torch.atan2(input=x, other=x.exp()) + x.max(axis=1, keepdims=True)[0]


def _normalized(x: Any) -> Any:
    return torch._native_batch_norm_legit(x, x[0, :, 0], None, training=True, momentum=0.1, eps=1e-5)


def _extremes_and_averages(x: Any) -> Any:
    averages = F.adaptive_avg_pool3d(torch.ones(1, 4, 5, 3) * x.mean(), (2, 3, 3))
    return *x.aminmax(), *x.aminmax(dim=1, keepdim=True), averages, torch.linalg.cholesky(x[0].T @ x[0] + torch.eye(3))


def _mapped(x: Any) -> Any:
    return _named(x), *_extremes_and_averages(x), torch.vmap(F.relu6)(x.relu() * 6) + torch.vmap(F.hardtanh)(x)


@pytest.mark.slow
@pytest.mark.parametrize(
    "function",
    [
        _mapped,
        _normalized,
        lambda x: (torch.combinations(x[:, 0, 0]), torch.combinations(x[0, :, 0], 3, with_replacement=True)),
        lambda x: (torch.select_copy(x, 1, -2), torch.slice_copy(x, 1, 1, -1, 2), *torch.split_copy(x, 2, 1)),
    ],
)
@pytest.mark.filterwarnings("ignore::lstm_lower.torch.importer.FixedStepsWarning")
def test_values_and_gradients_of_further_functions(function: Callable[..., Any]) -> None:
    compare(function, normal(2, 5, 3), normal(3, 5, 3), rtol=1e-5)
