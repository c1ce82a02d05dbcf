"""What `from_torch` compares with autograd: what differs is refused by name, what is right passes and is recorded."""

from __future__ import annotations

import functools
import json
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

import lstm_lower as ll
from lstm_lower.errors import InvalidInputError, LstmLowerWarning, UnsupportedOpError
from lstm_lower.graph import standard as std
from lstm_lower.passes.gradients.registry import differentiates, rule_of
from lstm_lower.passes.training import losses
from lstm_lower.records import certificate
from lstm_lower.runtime.proof import certification, step_parts, step_runs

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.autograd import Function  # noqa: E402
from torch.nn import functional  # noqa: E402

from lstm_lower.torch import autograd_comparison, optimizers  # noqa: E402
from lstm_lower.torch.importer import FIXED_AXES, FixedStepsWarning  # noqa: E402
from lstm_lower.torch.variation import OtherRounding  # noqa: E402


class Spike(Function):
    """A step, with a gradient all the same."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return (x > 0).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        (x,) = ctx.saved_tensors
        return dy / (1 + x**2)


class Net(nn.Module):
    def __init__(self, function: Callable[[Any], Any] = torch.tanh) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.function = nn.Linear(4, 3), nn.Linear(3, 2), function

    def forward(self, x: Any) -> Any:
        return self.b(self.function(self.a(x)))


@pytest.fixture
def of_tanh(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """What replaces the gradient of tanh. Rules are loaded first, or the true one could not be registered any more."""
    assert rule_of(std.Tanh) is not None

    def replace(rule: Any) -> None:
        for rules in (differentiates._rules, differentiates._found):
            monkeypatch.setitem(rules, std.Tanh, rule)

    return replace


def compared(step: onnx.ModelProto) -> certificate.Certificate:
    found = certificate.parse({entry.key: entry.value for entry in step.metadata_props})
    assert found is not None
    return found


def test_loss_outputs_gradients_and_updates_are_compared() -> None:
    net = Net()
    x, y = torch.randn(5, 4), torch.randn(5, 2)
    step = ll.from_torch(net, x, "mse", torch.optim.Adam(net.parameters(), 0.1), example_targets=y)
    found = compared(step)
    names = ["a.weight", "a.bias", "b.weight", "b.bias"]
    assert {kind: list(each) for kind, each in found.errors.items()} == {
        "loss": ["loss"],
        "output": ["output"],
        "gradient": names,
        "update": names,
    }
    assert found.worst()[2] < 1e-5
    assert found.framework == f"PyTorch {torch.__version__}"
    assert found.sizes == {"x": [5, 4], "target": [5, 2]}
    assert not found.not_compared
    assert "certificate: 1 loss, 1 output, 4 gradients, 4 updates compared with PyTorch" in repr(ll.Trainer(step))
    unchecked = ll.from_torch(net, x, "mse", check=False)
    assert all(entry.key != certificate.METADATA_KEY for entry in unchecked.metadata_props)


def test_what_is_open_is_compared_at_other_sizes() -> None:
    step = ll.from_torch(Net(), torch.randn(5, 4), "mse", what="gradients")
    assert compared(step).also == [{"x": [11, 4], "target": [11, 2]}]
    assert "at x [5, 4], target [5, 2], and at x [11, 4], target [11, 2]; " in compared(step).described()


class Talkative(Net):
    """Says how many rows there are, and warns of them."""

    def forward(self, x: Any) -> Any:
        sys.stdout.write(f"{len(x)}")
        warnings.warn("rows", stacklevel=1)
        return super().forward(x)


def test_what_is_run_at_other_sizes_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    """Where warnings are errors it is compared all the same."""
    step = ll.from_torch(Talkative(), torch.randn(5, 4), functional.mse_loss, example_targets=torch.randn(5, 2))
    assert compared(step).also == [{"x": [11, 4], "target": [11, 2]}]
    loss = lambda y, t: functional.mse_loss(y, t) / 2  # noqa: E731
    traced = ll.from_torch(Net(), torch.randn(5, 4), loss, example_targets=torch.randn(5, 2))
    assert compared(traced).also == [{"x": [11, 4], "target": [11, 2]}]
    assert not capsys.readouterr().out


class Turning(nn.Module):
    """A product of complex numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = nn.Parameter(torch.randn(4, 3, dtype=torch.complex64))

    def forward(self, x: Any) -> Any:
        return (x.to(torch.complex64) @ self.turn).abs()


def test_updates_of_complex_weights_are_compared() -> None:
    module = Turning()
    optimizer = torch.optim.Adam(module.parameters(), 0.1)
    found = compared(ll.from_torch(module, torch.randn(5, 4), "mse", optimizer))
    assert found.errors["update"].keys() == {"turn"}
    assert not found.not_compared


class Spelling(nn.Linear):
    """Takes as many texts as sequences, which its trace does not say."""

    def forward(self, x: Any, text: Any) -> Any:
        scores = super().forward(x).log_softmax(-1).transpose(0, 1)
        lengths = (each.new_full((each.shape[0],), each.shape[1], dtype=torch.int64) for each in (x, text))
        return {"objective": functional.ctc_loss(scores, text, *lengths)}


def test_sizes_that_are_equal_stay_so_where_the_module_does_not_take_others() -> None:
    example = torch.randn(3, 30, 4), torch.randint(1, 5, (3, 2))
    step = ll.from_torch(Spelling(4, 5), example, "objective")
    assert compared(step).also[-1] == {"x": [7, 62, 4], "text": [7, 8]}


def test_a_size_at_which_the_loss_is_infinite_shows_nothing() -> None:
    """Nine frames hold no sixteen letters."""
    example = torch.randn(3, 9, 4), torch.arange(8).expand(3, 8) % 4 + 1
    step = ll.from_torch(Spelling(4, 5), example, "objective", what="gradients")
    assert [dim.dim_param for dim in step.graph.input[1].type.tensor_type.shape.dim] == ["text_dim_0", "text_dim_1"]
    assert {each["text"][1] for each in compared(step).also} == {8}


def test_gradients_of_an_impossible_text_are_no_numbers() -> None:
    net, example = Spelling(4, 5), (torch.randn(3, 3, 4), torch.arange(8).expand(3, 8) % 4 + 1)
    step = ll.from_torch(net, example, "objective", what="gradients")
    assert compared(step).errors["gradient"].keys() == {"weight", "bias"}
    loss, (weight, _) = net(*example)["objective"], net.parameters()
    loss.backward()
    assert bool(loss.isinf())
    assert bool(weight.grad.isnan().all())


def test_an_axis_is_fixed_for_which_a_gradient_alone_is_wrong(of_tanh: Callable[[Any], None]) -> None:
    def of_five(op: Any, b: Any, dys: Any) -> Any:
        y = b.op(std.Tanh, b.operand(op))
        return [dys[0] * (1 - y * y) * (y.sizes().take(0).cast(y.dtype) / 5)]

    of_tanh(of_five)
    with pytest.warns(FixedStepsWarning, match=r"axis 0 of 'x' \(a step with another gradient of 'a.weight'"):
        step = ll.from_torch(Net(), torch.randn(5, 4), "mse", what="gradients")
    fixed = next(entry.value for entry in step.metadata_props if entry.key == FIXED_AXES)
    assert "a step with another gradient of 'a.weight'" in json.loads(fixed)["x"]["0"]
    assert not compared(step).also


_LIBRARIES = []


class Widened(nn.Module):
    """PyTorch rounds the size in numbers, so that a trace has that of the example."""

    def __init__(self, part: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.part = nn.Conv1d(4, 4, 3, stride=2), part

    def forward(self, x: Any) -> Any:
        y = self.layer(nn.functional.interpolate(x, scale_factor=1.5, mode="area"))
        return y.chunk(self.part)[0]


@pytest.mark.slow
@pytest.mark.parametrize("part", [1, 2])
@pytest.mark.parametrize("loss", ["mse", "cross_entropy", lambda y, target: (y - target).abs().sum()])
def test_an_axis_is_fixed_whose_size_results_do_not_follow(loss: Any, part: int) -> None:
    """Targets are of the sizes of PyTorch's results, whatever the step declares."""
    net, x = Widened(part), torch.randn(3, 4, 5)
    targets = torch.rand_like(net(x)) if callable(loss) else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FixedStepsWarning)
        step = ll.from_torch(net, x, loss, example_targets=targets)
    fixed = next(entry.value for entry in step.metadata_props if entry.key == FIXED_AXES)
    assert "for 'x' of shape [3, 4, 12]" in json.loads(fixed)["x"]["2"]
    assert compared(step).also[0]["x"] == [7, 4, 5]


@pytest.mark.slow
def test_targets_of_traced_losses_are_as_large_as_results() -> None:
    loss = lambda y, target: (y - target).square().sum()  # noqa: E731
    step = ll.from_torch(nn.Conv1d(4, 4, 3, stride=2), torch.randn(3, 4, 7), loss, example_targets=torch.rand(3, 4, 3))
    assert compared(step).also == [{"input": [7, 4, 16], "target": [7, 4, 7]}]


@pytest.mark.slow
def test_sizes_that_no_loss_says_are_those_of_the_example() -> None:
    targets = torch.randint(1, 4, (2, 3)), torch.tensor([9, 8]), torch.tensor([3, 2])
    scores = nn.Sequential(nn.Linear(4, 5), nn.LogSoftmax(-1))
    step = ll.from_torch(scores, torch.randn(9, 2, 4), "ctc", example_targets=targets)
    assert compared(step).also[0]["target_0"] == [6, 3]


@functools.cache
def registered(kind: str) -> Callable[[Any], Any]:
    """An operator that keeps the gradient of `Spike` from a trace."""
    library = torch.library.Library(f"certificate_{kind}", "DEF")
    _LIBRARIES.append(library)
    library.define("spike(Tensor x) -> Tensor")
    library.impl("spike", Spike.apply, kind)
    if kind in ("Autograd", "AutogradCPU"):
        library.impl("spike", lambda x: (x > 0).to(x.dtype), "CompositeExplicitAutograd")
    operator: Callable[[Any], Any] = getattr(torch.ops, f"certificate_{kind}").spike
    return operator


@pytest.mark.parametrize("kind", ["CompositeImplicitAutograd", "AutogradCPU"])
def test_gradients_that_a_trace_does_not_see_are_refused(kind: str) -> None:
    net = Net(registered(kind))
    with pytest.raises(UnsupportedOpError, match=r"'a\.weight' \(no gradient in the step\), 'a\.bias'.*::spike\)"):
        ll.from_torch(net, torch.randn(5, 4), "mse", what="gradients")


def test_functions_with_a_gradient_of_their_own_are_not_blamed() -> None:
    spike = registered("CompositeImplicitAutograd")
    with pytest.raises(UnsupportedOpError, match=r"torch\.library registers \(certificate_\w+::spike\): call"):
        ll.from_torch(Net(lambda x: spike(Spike.apply(x))), torch.randn(5, 4), "mse", what="gradients")


class Spiking(torch.nn.Module):
    """A layer behind whose results is nothing but spikes."""

    def __init__(self, spike: Callable[[Any], Any]) -> None:
        super().__init__()
        self.layer, self.spike = torch.nn.Linear(4, 3), spike

    def forward(self, x: Any) -> Any:
        return self.spike(self.layer(x))


def test_weights_whose_gradients_no_trace_sees_are_refused_with_the_operator() -> None:
    x = torch.randn(5, 4)
    with pytest.raises(UnsupportedOpError, match=r"varies with none of .*torch.library registers .*::spike\): call"):
        ll.from_torch(Spiking(registered("Autograd")), x, "mse", what="gradients")
    assert ll.from_torch(Spiking(Spike.apply), x, "mse", what="gradients")


def test_a_wrong_gradient_is_refused(of_tanh: Callable[[Any], None]) -> None:
    of_tanh(lambda op, b, dys: [dys[0] * b.op(std.Tanh, b.operand(op))])
    with pytest.raises(UnsupportedOpError, match=r"another gradient of 'a\.weight' \(a difference of .*check=False"):
        ll.from_torch(Net(), torch.randn(5, 4), "mse")
    assert ll.from_torch(Net(), torch.randn(5, 4), "mse", check=False)


class Alike(nn.Module):
    """Classes along an axis of results that are alike: all gradients are sums of what cancels, noise in practice."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        return self.b(self.a(x.isnan().to(x.dtype) + 0.3).tanh()).unsqueeze(0)


def test_noise_in_place_of_gradients_decides_nothing(of_tanh: Callable[[Any], None]) -> None:
    alike = Alike()
    optimizer = torch.optim.SGD(alike.parameters(), 0.1)
    found = compared(ll.from_torch(alike, torch.randn(7, 4), "cross_entropy", optimizer))
    assert "gradient 'b.bias'" in found.not_compared
    assert "b.bias" in found.errors["update"]
    rule = rule_of(std.Tanh)
    assert rule is not None
    of_tanh(lambda op, b, dys: [1.001 * rule(op, b, dys)])
    with pytest.raises(UnsupportedOpError, match=r"another gradient of 'a\.weight'"):
        ll.from_torch(alike, torch.randn(7, 4), lambda y: y.square().mean(), example_targets=())


class Spread(nn.Linear):
    """Beside scores zero, of which PyTorch's kernel keeps how it has rounded a mean."""

    def forward(self, x: Any) -> Any:
        return super().forward(x), x.clamp(0.2, -0.2).std()


def test_what_pytorch_itself_rounds_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def loss(results: Any) -> Any:
        return sum(x.square().sum() for x in results)

    rows = next(rows for rows in range(3, 99) if Spread(3, 2)(torch.zeros(rows, 3))[1] > 0)
    module, x = Spread(3, 2), torch.randn(rows, 3)
    loss(module(x)).backward()
    before = [(weight.clone(), weight.grad.clone()) for weight in module.parameters()]
    found = compared(ll.from_torch(module, x, loss, example_targets=(), what="gradients"))
    assert list(found.not_compared) == ["output 'output_1'"]
    assert all(
        torch.equal(x.grad, dx) and torch.equal(x, y) for x, (y, dx) in zip(module.parameters(), before, strict=True)
    )
    of_step = autograd_comparison._Beside._of_step

    def further(beside: Any) -> Any:
        results = of_step(beside)
        return results | {"output": {name: y + 1e-6 * (name == "output_1") for name, y in results["output"].items()}}

    monkeypatch.setattr(autograd_comparison._Beside, "_of_step", further)
    with pytest.raises(UnsupportedOpError, match="another output of 'output_1'"):
        ll.from_torch(module, x, loss, example_targets=(), what="gradients")


def saturated(x: Any) -> Any:
    return 1 - torch.tanh(6 + x.cos())


def same_in_a_row(x: Any) -> Any:
    return functional.layer_norm((x.cos() * 0 + 0.3) @ torch.full((4, 4), 0.3), [4])


@pytest.mark.parametrize("function", [saturated, same_in_a_row])
def test_what_operators_round_decides_nothing(function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Rounding(Net):
        def forward(self, x: Any) -> Any:
            return self.a(x), function(x)

    of_step = autograd_comparison._Beside._of_step

    def otherwise(beside: Any) -> Any:
        results = of_step(beside)
        results["output"]["output_1"] = results["output"]["output_1"] + 1.2e-7
        return results

    monkeypatch.setattr(autograd_comparison._Beside, "_of_step", otherwise)
    ll.from_torch(
        Rounding(), torch.zeros(3, 4), lambda found: found[0].square().sum(), example_targets=(), what="gradients"
    )


def test_another_rounding_moves_nothing_that_is_exact() -> None:
    x = torch.randn(5, 4, requires_grad=True)

    def exact() -> list[Any]:
        return [x.relu(), x[:, ::2], x.round() * 3, torch.stack([x, x]).amax(0), x > 0, x.double(), x.argsort()]

    def rounded() -> list[Any]:
        y = x @ x.T
        return [y, x.exp(), torch.autograd.grad(y.sum(), x)[0], torch.autograd.grad((x * 2).sum(), x)[0]]

    same, other = exact(), rounded()
    with OtherRounding(1):
        # Zeros that lie nowhere in memory.
        assert torch._efficientzerotensor(3).shape == (3,)
        assert all(map(torch.equal, exact(), same))
        for a, b in zip(rounded(), other, strict=True):
            assert not torch.equal(a, b)
            torch.testing.assert_close(a, b, rtol=2e-5, atol=2e-5)


def test_a_wrong_update_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = optimizers._rule
    monkeypatch.setattr(
        optimizers, "_rule", lambda kind, options, *rest: rule(kind, {**options, "weight_decay": 0.1}, *rest)
    )
    net = Net()
    with pytest.raises(UnsupportedOpError, match=r"another update of 'a\.weight'"):
        ll.from_torch(net, torch.randn(5, 4), "mse", torch.optim.SGD(net.parameters(), 0.1))


def test_a_weight_that_decays_without_a_slope_is_refused() -> None:
    """PyTorch's gradient of what is rounded is zero, and there is none in the step."""
    net = Net(lambda y: y * net.scale.round())
    net.scale = nn.Parameter(torch.rand(3))
    decays = torch.optim.AdamW(net.parameters(), 0.1, weight_decay=0.5)
    with pytest.raises(UnsupportedOpError, match=r"another update of 'scale' \(no update in the step\)"):
        ll.from_torch(net, torch.randn(5, 4), "mse", decays)
    assert ll.from_torch(net, torch.randn(5, 4), "mse", torch.optim.Adam(net.parameters(), 0.1))


@pytest.mark.parametrize("make", [torch.optim.AdamW, torch.optim.SGD])
def test_updates_of_many_weights_are_compared_a_few_at_a_time(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autograd_comparison, "_AT_ONCE", 20)
    net = Net()
    groups = [{"params": list(net.a.parameters()), "weight_decay": 0.3}, {"params": list(net.b.parameters())}]
    step = ll.from_torch(net, torch.randn(5, 4), "mse", make(groups, 0.1))
    assert compared(step).errors["update"].keys() == {"a.weight", "a.bias", "b.weight", "b.bias"}
    assert max(compared(step).errors["update"].values()) < 1e-5
    rule = optimizers._rule
    monkeypatch.setattr(
        optimizers, "_rule", lambda kind, options, *rest: rule(kind, {**options, "weight_decay": 0.3}, *rest)
    )
    with pytest.raises(UnsupportedOpError, match=r"another update of 'b\.bias'[^']*, 'b\.weight'[^']*; write"):
        ll.from_torch(net, torch.randn(5, 4), "mse", make(groups, 0.1))


def test_a_large_table_has_its_gradient_in_zeros_that_are_new_in_each_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_parts, "_LARGE", 1)
    made: list[tuple[int, ...]] = []
    zeros = step_runs.new_zeros
    monkeypatch.setattr(step_runs, "new_zeros", lambda shape, dtype: made.append(tuple(shape)) or zeros(shape, dtype))
    net = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 3))
    step = ll.from_torch(net, torch.tensor([[1, 2, 2], [5, 1, 0]]), "mse", torch.optim.SGD(net.parameters(), 0.1))
    assert made == [(9, 4), (9, 4)]
    assert compared(step).errors["gradient"]["0.weight"] < 1e-5
    assert len(compared(step).also) == 1


class Twice(torch.autograd.Function):
    """What hands on one half of a weight's gradient, and adds the other one itself."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.weight = weight
        return x * weight

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        half = (dy * x).sum(0) / 2
        held = ctx.weight.grad
        ctx.weight.grad = half if held is None else held + half
        return dy * ctx.weight, half


def test_gradients_that_functions_add_up_themselves_count() -> None:
    weight = nn.Parameter(torch.tensor([1.0, 2.0]))
    x = torch.randn(3, 2)
    loss = Twice.apply(x, weight).sum()  # type: ignore[no-untyped-call]
    whole = x.sum(0).numpy()
    found = autograd_comparison._gradients(loss, {"weight": weight}, autograd_comparison._added)["weight"]
    np.testing.assert_allclose(found, whole, rtol=1e-6)  # type: ignore[arg-type]
    assert weight.grad is None


def test_what_comes_after_a_gradient_has_been_taken_counts_too() -> None:
    weight = nn.Parameter(torch.tensor([1.0, 2.0]))
    x = weight.view_as(weight)
    # The weight's own gradient is added before what follows from its view.
    x.register_hook(lambda dy: torch.enable_grad()(lambda: weight.sum().backward())() or dy)
    found = autograd_comparison._gradients(x.sum(), {"weight": weight}, autograd_comparison._added)["weight"]
    np.testing.assert_array_equal(found, [2.0, 2.0])  # type: ignore[arg-type]


def test_a_gradient_that_has_been_let_go_is_the_steps_own_where_more_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    gradients, added = autograd_comparison._gradients, []

    def more(loss: Any, wanted: Any, taken: Any) -> Any:
        found = gradients(loss, wanted, taken)
        added.extend(name for name, x in found.items() if isinstance(x, certification.Agreed))
        return {name: taken(name, np.zeros(wanted[name].shape, np.float32), x) for name, x in found.items()}

    monkeypatch.setattr(autograd_comparison, "_gradients", more)
    net = Net()
    step = ll.from_torch(net, torch.randn(5, 4), "mse", torch.optim.SGD(net.parameters(), 0.1))
    assert sorted(added) == sorted([*dict(net.named_parameters())] * 2)
    assert set(compared(step).errors["gradient"].values()) == {0.0}
    assert len(compared(step).also) == 1


class Odd(nn.Module):
    """What has other gradients than its operations, or none, or noise in their place."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.kind = kind
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 2)
        self.norm, self.drop = nn.BatchNorm1d(4), nn.Dropout(0.4)
        self.gate = nn.Parameter(torch.zeros(4))
        if kind == "hook":
            self.a.weight.register_hook(lambda dx: 3 * dx)
        if kind == "tied":
            self.c = nn.Linear(4, 4)
            self.c.weight = self.a.weight
        if kind == "frozen":
            self.a.weight.requires_grad_(False)  # noqa: FBT003

    def forward(self, x: Any) -> Any:
        y = self.a(x)
        if self.kind == "straight":
            y = y + (y.round() - y).detach()
        if self.kind == "norm":
            y = self.norm(y)
        if self.kind == "dropout":
            y = self.drop(self.drop(y).tanh()) + torch.randn_like(y)
        if self.kind == "gate":
            y = x[:, :4] + self.gate * y
        if self.kind == "tied":
            y = self.c(y.relu())
        if self.kind == "ties":
            y = torch.stack([y, y, -y]).amax(0).relu()
        if self.kind == "kink":
            y = (y - y.detach()).relu() + y
        if self.kind == "checkpoint":
            y = torch.utils.checkpoint.checkpoint(self.a, y, use_reentrant=True)
            y = torch.utils.checkpoint.checkpoint(lambda z: self.drop(z.tanh()), y, use_reentrant=False)
        return self.b(y)


_KINDS = ["straight", "norm", "dropout", "gate", "tied", "ties", "kink", "checkpoint", "hook", "frozen"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", _KINDS)
def test_what_is_right_passes(kind: str) -> None:
    odd = Odd(kind)
    optimizer = torch.optim.SGD([x for x in odd.parameters() if x.requires_grad], 0.1, momentum=0.9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = compared(ll.from_torch(odd, torch.zeros(6, 4), "cross_entropy", optimizer))
    assert not found.not_compared
    assert {"a.bias", "b.weight"} <= found.errors["update"].keys()
    assert ("a.weight" in found.errors["gradient"]) == (kind != "frozen")
    assert found.worst()[2] < 1e-3


def test_the_optimizer_and_the_module_stay_as_they_were() -> None:
    net = Net()
    x = torch.randn(5, 4)
    optimizer = torch.optim.Adam(net.parameters(), 0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)
    net(x).sum().backward()
    optimizer.step()
    scheduler.step()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    gradients = [parameter.grad.clone() for parameter in net.parameters()]
    moments = optimizer.state_dict()["state"][0]["exp_avg"].clone()
    ll.from_torch(net, x, "mse", scheduler)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert all(torch.equal(x.grad, dx) for x, dx in zip(net.parameters(), gradients, strict=True))
    assert torch.equal(optimizer.state_dict()["state"][0]["exp_avg"], moments)
    assert scheduler.last_epoch == 1


def test_a_loss_of_ours_is_compared_with_its_counterpart_beside_examples_of_targets() -> None:
    step = ll.from_torch(Net(), torch.randn(5, 4), losses.MSE(), example_targets=torch.randn(5, 2), what="gradients")
    assert {"loss", "gradient"} <= compared(step).errors.keys()


def test_what_is_not_compared_is_said() -> None:
    found = compared(ll.from_torch(Net(), torch.randn(5, 4), "mse", "adam"))
    assert found.not_compared == {"updates of weights": "the optimizer is none of PyTorch's"}
    with pytest.warns(LstmLowerWarning, match="nothing was compared .example_targets are required.*; check=False"):
        found = compared(ll.from_torch(nn.LSTM(4, 3), torch.randn(5, 2, 4), "ctc"))
    assert "example_targets are required" in found.not_compared["the step"]
    ll.from_torch(nn.LSTM(4, 3), torch.randn(5, 2, 4), "ctc", check=False)


class FewRows(nn.Linear):
    """The example has as many as there may be."""

    def forward(self, x: Any) -> Any:
        if x.size(0) > 5:
            raise ValueError("at most 5 rows")
        return super().forward(x)


def test_sizes_at_which_nothing_could_be_compared_are_told() -> None:
    with pytest.warns(LstmLowerWarning, match="of other sizes nothing was compared .PyTorch takes none"):
        found = compared(ll.from_torch(FewRows(4, 3), torch.randn(5, 4), "mse", what="gradients"))
    assert list(found.not_compared) == ["other sizes"]


class Weighted(nn.Module):
    """An input of its own has the name of a step's target."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Any, target: Any) -> Any:
        return self.layer(x) * target


def test_an_input_that_is_named_as_targets_are_is_none() -> None:
    inputs = torch.randn(5, 4), torch.randn(5, 3)
    found = compared(ll.from_torch(Weighted(), inputs, lambda y: y.mean(), example_targets=(), what="gradients"))
    assert set(found.errors["gradient"]) == {"layer.weight", "layer.bias"}
    for loss in ("mse", lambda y, z: (y * z).mean()):
        with pytest.raises(InvalidInputError, match="without an input 'target', got one; give that input another name"):
            ll.from_torch(Weighted(), inputs, loss, example_targets=(torch.randn(5, 3),))


class Overwritten(nn.Module):
    """PyTorch runs it forward, and has no gradient of it: what the exponential keeps is written over."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        y = self.layer(x).exp()
        return y.sum(1, keepdim=True) * y.add_(1)


def test_a_step_that_pytorch_cannot_make_backward_is_told() -> None:
    with pytest.warns(LstmLowerWarning, match="Overwritten: of the step nothing was compared .PyTorch fails with"):
        ll.from_torch(Overwritten(), torch.randn(5, 4), "mse", what="gradients")
