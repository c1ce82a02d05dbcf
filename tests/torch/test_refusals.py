"""What `from_torch` and `to_torch` refuse, each by a name, and the ways on that their errors tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

import lstm_lower as ll  # noqa: E402
from lstm_lower.errors import InvalidInputError, LstmLowerError, LstmLowerWarning, UnsupportedOpError  # noqa: E402

LINEAR = nn.Linear(3, 2)
X = torch.zeros(2, 3)
FIXED = torch.export.Dim.STATIC


class Applying(nn.Module):
    """Hands a layer's result to a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.function = function

    def forward(self, x: Any, other: Any = None) -> Any:
        return self.function(self.layer(x), other)


class Held:
    """Hides a tensor."""

    def __init__(self) -> None:
        self.tensor = torch.zeros(2)


class Weighing(nn.Linear):
    """A loss with weights of its own."""

    def forward(self, result: Any, target: Any) -> Any:
        return (super().forward(result) - target).mean()


class Centring(nn.Module):
    """A loss that follows the mean of what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("centre", torch.zeros(()))

    def forward(self, result: Any, target: Any) -> Any:
        self.centre.data.lerp_(result.detach().mean(), 0.1)
        return (result - self.centre - target).square().mean()


def broken(*_: Any) -> Any:
    raise KeyError("nothing")


def scripted() -> Any:
    with pytest.warns((DeprecationWarning, FutureWarning), match="deprecated"):
        return torch.jit.trace(LINEAR, X)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (lambda: nn.Linear, "got the class Linear; make one of it"),
        (lambda: torch.export.export(LINEAR, (X,)), r"got an ExportedProgram; program.module\(\)"),
        (lambda: "model.pt", "requires an nn.Module, got str"),
        (lambda: torch.relu, "requires an nn.Module, got .*; the forward of an nn.Module may call it"),
        (lambda: nn.ModuleList([LINEAR]), "a module with a forward, got ModuleList; that of nn.Sequential"),
        (scripted, r"got TorchScript \(the whole\).*ll.from_onnx"),
        (lambda: nn.Sequential(nn.LazyLinear(2)), "known shapes, got '0.weight', '0.bias' of lazy modules"),
        (lambda: nn.Linear(3, 2, device="meta"), "weights with numbers, got 'weight', 'bias' on the device meta"),
        (torch.inference_mode()(lambda: nn.Linear(3, 2)), "got 'weight', 'bias' made under torch.inference_mode"),
        (lambda: Applying(broken), r"Applying.forward runs with .*KeyError: 'nothing' \(test_refusals.py:"),
        (lambda: Applying(lambda y, _: y.detach().numpy()), "forward that returns tensors, got ndarray"),
    ],
)
@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_modules(module: Callable[[], Any], message: str) -> None:
    with pytest.raises(LstmLowerError, match=message):
        ll.from_torch(module(), X, "mse")


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (X.to(torch.int64), r"forward runs with in PyTorch, got 'x' int64 \[2, 3\].*same dtype"),
        (X.double(), "got 'x' float64"),
        (torch.zeros(2, 4), r"got 'x' float32 \[2, 4\].*cannot be multiplied"),
        (
            (X, X, X),
            r"forward takes, \(x: .*too many positional arguments; what the loss takes goes to example_targets",
        ),
        (X.numpy(), "got an array of NumPy; torch.from_numpy"),
        (X.shape, r"got the numbers 2, 3; torch.zeros\(2, 3\) is an example"),
        (None, "requires a tensor, several in a tuple, or a mapping of them by name, got None"),
        ((X, Held()), "got Held under '1', which holds tensors that would be constants"),
        ((X, {"y": {torch.zeros(2)}}), "got set under '1_y'"),
        (X.to_sparse(), r"dense tensors, got a sparse_coo one; take x.to_dense\(\)"),
        (X.to("meta"), r"tensors with numbers, got one of shape \[2, 3\] without any"),
    ],
)
def test_example_inputs(inputs: Any, message: str) -> None:
    with pytest.raises(LstmLowerError, match=message):
        ll.from_torch(Applying(lambda y, _: y), inputs, "mse")


@pytest.mark.parametrize(
    ("loss", "targets", "message"),
    [
        (nn.MSELoss, None, r"got the class MSELoss; make one of it: MSELoss\(\)"),
        (torch.zeros(()), None, r"got a tensor of shape \[\]"),
        ("mse", "abc", "example_targets requires a tensor, or several in a tuple, got 'abc'"),
        ("mse", {"y": X}, r"example_targets requires a tensor, .* got a dict of a tensor of shape \[2, 3\]"),
        (lambda y, t: (y * t).sum(), torch.zeros(2, 2) * 1j, r"one real number as a tensor, got a complex tensor"),
        ("mse", (X, X), "example_targets requires 1 of MSE, got 2"),
        ("mse", torch.zeros(2, 5), r"mse_loss runs with in PyTorch, got a result float32 \[2, 2\], 'target' float32"),
        (nn.CrossEntropyLoss(), torch.zeros(2), "CrossEntropyLoss runs with .*target dtype to be Long"),
        (functional.cross_entropy, torch.tensor([0, 7]), "Target 7 is out of bounds"),
        (lambda y: y.sum(), X, "takes 1 positional argument but 2 were given"),
        (lambda y, t: y - t, torch.zeros(2, 2), "returns one real number as a tensor"),
        (
            Centring(),
            X[:, :2],
            "loss requires no state of its own, got a forward of Centring that changes centre",
        ),
        (Weighing(2, 1), torch.zeros(2, 1), "no parameters of its own, got weight, bias of Weighing"),
    ],
)
def test_losses(loss: Any, targets: Any, message: str) -> None:
    with pytest.raises(LstmLowerError, match=message):
        ll.from_torch(LINEAR, X, loss, example_targets=targets)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"input": [7]}, "axes of 'input', 0 to 1, got 7"),
        ({"input": [-1]}, "got -1; write 1"),
        ({"input": 0}, r"got 0; write \[0\]"),
        ({"input": [True]}, "got True"),
        ({"input": "auto"}, "axes in a list, or axis -> Dim or name, for 'input', got 'auto'"),
        ({"input": (None,)}, "one entry for each of the 2 axes of 'input'"),
        ({"input": {0: 5}}, "the example's size 2 for an axis that is not open, got 5"),
        ({"input": {0: 0.5}}, "a Dim, a name, None or a size for axis 0 of 'input', got 0.5"),
        ({"x": [0]}, r"names of \['input'\], got 'x'"),
        (({0: "b"},), r"a mapping of inputs to axes, such as {'input': \[0\]}"),
    ],
)
def test_dynamic_shapes(shapes: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        ll.from_torch(LINEAR, X, "mse", dynamic_shapes=shapes)


@pytest.mark.parametrize(
    ("shapes", "sizes"),
    [
        ({"input": {0: None, 1: FIXED}}, [2, 3]),
        ({"input": {0: torch.export.Dim("b"), 1: 3}}, ["input_dim_0", 3]),
        ({"input": (torch.export.Dim.AUTO, None)}, ["input_dim_0", 3]),
    ],
)
def test_dynamic_shapes_as_torch_export_has_them(shapes: Any, sizes: list[Any]) -> None:
    step = ll.from_torch(LINEAR, X, "mse", dynamic_shapes=shapes, what="forward")
    assert [dim.dim_param or dim.dim_value for dim in step.graph.input[0].type.tensor_type.shape.dim] == sizes


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        (torch.optim.Adam, r"got the class Adam; make one of it: Adam\(module.parameters\(\), ...\)"),
        (torch.optim.LBFGS(LINEAR.parameters()), "got LBFGS, which fails .*what='gradients'"),
        ([torch.optim.SGD(LINEAR.parameters())], "got a list of an object of SGD; one alone, not in a list"),
        ({"lr": 0.1}, "one of torch.optim, a scheduler of one, .* got a dict of 0.1"),
    ],
)
def test_optimizers(optimizer: Any, message: str) -> None:
    with pytest.raises(LstmLowerError, match=message):
        ll.from_torch(LINEAR, X, "mse", optimizer)


def test_arguments_that_are_none_of_its_own() -> None:
    with pytest.raises(
        InvalidInputError, match=r"from_torch requires module, .*got: got an unexpected keyword argument"
    ):
        ll.from_torch(LINEAR, X, "mse", dynamic_shape=None)  # type: ignore[call-arg]


@pytest.mark.slow
@pytest.mark.parametrize(("module", "dtype"), [(nn.Conv1d(3, 2, 1), torch.float64)], ids=str)
def test_dtypes_without_kernels(module: nn.Module, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    name = str(dtype).removeprefix("torch.")
    x = torch.zeros(1, 3, 2, dtype=dtype)
    # Whatever plug-ins others have registered in this process.
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(
        UnsupportedOpError, match=rf"got Conv '.*' of {name}, for which it has no kernel; use module.float"
    ):
        ll.from_torch(module.to(dtype), x, "mse", "sgd")
    # Another device may have one, and then its session says so.
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: ["AnyDevice", "CPUExecutionProvider"])
    with pytest.warns(LstmLowerWarning, match=r"Conv1d.*nothing was compared \(onnxruntime fails"):
        step = ll.from_torch(module, x, "mse", what="forward")
    with pytest.raises(LstmLowerError, match=f"kernels for every node, got Conv '.*' of {name}"):
        ll.Session(step, providers="cpu")


@pytest.mark.slow
def test_targets_that_pytorch_repeats() -> None:
    target = torch.tensor([[1.0], [2.0]])
    step = ll.from_torch(LINEAR, X, nn.MSELoss(), example_targets=target, what="gradients")
    got = ll.Session(step).run({"input": X.numpy(), "target": target.numpy()})
    expected = ((LINEAR(X) - target) ** 2).mean()
    assert got["loss"] == pytest.approx(expected.item(), rel=1e-6)
    gradient = torch.autograd.grad(expected, LINEAR.bias)[0]
    np.testing.assert_allclose(got["grad/bias"], gradient, rtol=1e-5)


class Parted(nn.Module):
    def __init__(self, *, compiled: bool) -> None:
        super().__init__()
        layer = nn.Linear(3, 2)
        self.layer = torch.compile(layer) if compiled else layer

    def forward(self, x: Any) -> Any:
        return self.layer(x)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.*:DeprecationWarning")
def test_wrapped_modules_give_and_take_their_own_names() -> None:
    for wrapped in (nn.DataParallel(LINEAR), torch.compile(LINEAR)):
        trainer = ll.Trainer(ll.from_torch(wrapped, X, "mse", "sgd"))
        assert list(trainer.state_dict())[:2] == ["weight", "bias"]
        trainer.step({"input": np.ones((4, 3), np.float32), "target": np.zeros((4, 2), np.float32)})
        other = nn.Linear(3, 2)
        trainer.to_torch(torch.compile(other))
        np.testing.assert_array_equal(other.weight.detach(), trainer.state_dict()["weight"])
    trainer = ll.Trainer(ll.from_torch(Parted(compiled=True), X, "mse", "sgd"))
    plain = Parted(compiled=False)
    trainer.to_torch(plain)
    trainer.to_torch(Parted(compiled=True))
    np.testing.assert_array_equal(plain.layer.weight.detach(), next(iter(trainer.state_dict().values())))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "message"),
    [
        (None, "requires an nn.Module that has the weights weight, bias, got NoneType"),
        (nn.Linear, "got the class Linear"),
        (LINEAR.state_dict(), "got OrderedDict"),
        (nn.Linear(3, 2, device="meta"), "room for 'weight', got one without numbers"),
    ],
)
def test_what_no_weights_can_be_copied_into(module: Any, message: str) -> None:
    trainer = ll.Trainer(ll.from_torch(LINEAR, X, "mse", "sgd"))
    with pytest.raises(InvalidInputError, match=message):
        trainer.to_torch(module)


def _pairs(result: Any, labels: Any) -> tuple[Any, Any]:
    same = labels[:, None] == labels[None]
    return same & ~torch.eye(len(labels), dtype=torch.bool), torch.cdist(result, result)


def _mined(result: Any, labels: Any) -> Any:
    """As losses of `pytorch-metric-learning` are."""
    mask, distances = _pairs(result, labels)
    first, second = torch.where(mask)
    return distances[first, second].mean() if len(first) > 0 else result.sum() * 0


def _checked(result: Any, labels: Any) -> Any:
    """As `gpytorch` checks its inputs."""
    assert torch.equal(labels, labels + 0), "others"
    return result.sum()


def _weighed(result: Any, labels: Any) -> Any:
    mask, distances = _pairs(result, labels)
    return torch.where(mask, distances, 0.0).sum() / mask.sum()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "way"), [(_mined, r"weigh all .*torch\.where\(mask"), (_checked, "leave the check out")]
)
def test_losses_over_what_values_select_are_told_a_way_on(loss: Any, way: str) -> None:
    module = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    x, labels = torch.randn(6, 4), torch.arange(6) % 3
    with pytest.raises(UnsupportedOpError, match=way):
        ll.from_torch(module, x, loss, optimizer, example_targets=labels)
    trainer = ll.Trainer(ll.from_torch(module, x, _weighed, optimizer, example_targets=labels))
    got = trainer.step({"input": x.numpy(), "target": labels.numpy()}).loss
    assert got == pytest.approx(_mined(module(x), labels).item(), rel=1e-5)


class Unpadded(nn.Module):
    """A padded result beside the sequences that it is of."""

    def __init__(self, *, total: bool) -> None:
        super().__init__()
        self.total, self.layer, self.both = total, nn.GRU(3, 4, batch_first=True), nn.Bilinear(4, 3, 2)

    def forward(self, x: Any, lengths: Any) -> Any:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        length = x.size(1) if self.total else None
        padded = nn.utils.rnn.pad_packed_sequence(self.layer(packed)[0], batch_first=True, total_length=length)[0]
        return self.both(padded, x)


@pytest.mark.slow
def test_padded_results_of_unknown_length_are_told_a_way_on() -> None:
    inputs = torch.ones(2, 4, 3), torch.tensor([4, 2])
    with pytest.raises(UnsupportedOpError, match="give pad_packed_sequence the total_length beside tensors of this"):
        ll.from_torch(Unpadded(total=False), inputs, "mse", "sgd")
    trainer = ll.Trainer(ll.from_torch(Unpadded(total=True), inputs, "mse", "sgd"))
    x, target = np.ones((3, 6, 3), np.float32), np.zeros((3, 6, 2), np.float32)
    assert np.isfinite(trainer.step({"x": x, "lengths": np.array([6, 5, 1]), "target": target}).loss)


class Written(nn.Linear):
    """A result that is written place by place, or joined."""

    joined = False

    def forward(self, x: Any) -> Any:
        y = super().forward(x)
        if self.joined:
            return torch.cat([y[:1], y[1:] * 2])
        out = torch.zeros_like(y)
        out[:1], out[1:] = y[:1], y[1:] * 2
        return out


def test_a_trace_that_pytorch_does_not_take_apart_is_told_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any) -> None:
        # As an interpreted `vmap` whose function fails, of which PyTorch does not end the level.
        torch._C._functorch._vmap_increment_nesting(2, "error")
        raise AttributeError("no constant")

    monkeypatch.setattr(torch.export.ExportedProgram, "run_decompositions", failing)
    module, x = Written(3, 2), torch.ones(4, 3)
    with pytest.raises(UnsupportedOpError, match=r"run_decompositions takes apart, got AttributeError.*torch\.cat"):
        ll.from_torch(module, x, "mse", "sgd")
    assert torch._C._functorch.maybe_current_level() is None
    module.joined = True
    assert ll.from_torch(module, x, "mse", "sgd")


@torch.library.custom_op("lstm_lower_tests::halved", mutates_args=())
def halved(x: torch.Tensor) -> torch.Tensor:
    return x / 2


@halved.register_fake
def _halved(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Deciding(nn.Linear):
    """Steps of a solver between times, by their order."""

    def __init__(self, *, held: bool) -> None:
        super().__init__(3, 3)
        self.register_buffer("times", torch.linspace(0, 1, 3) if held else None)

    def forward(self, x: Any, times: Any = None) -> Any:
        times = times if self.times is None else self.times
        times = -times if times[0] > times[1] else times
        for step in times.diff():
            x = x + step * super().forward(x).tanh()
        return x


def test_times_that_are_fed_are_told_a_way_on() -> None:
    x = torch.ones(2, 3)
    with pytest.raises(UnsupportedOpError, match=r"make what a solver goes by .* a buffer"):
        ll.from_torch(Deciding(held=False), (x, torch.linspace(0, 1, 3)), "mse", "sgd")
    assert ll.from_torch(Deciding(held=True), x, "mse", "sgd")


class Overwriting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.own = nn.Linear(3, 2)

    def forward(self, x: Any) -> Any:
        y = self.own(x).clone()
        y[0:] = 0
        return y


def test_a_loss_that_varies_with_no_weight_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"loss that varies with weights, got 'loss', which varies with none"):
        ll.from_torch(Overwriting(), X, "mse", "sgd")


def test_operators_of_others_are_said_to_be_theirs() -> None:
    with pytest.raises(UnsupportedOpError, match=r"^halved.*torch\.library registers it for lstm_lower_tests: call"):
        ll.from_torch(Applying(lambda y, _: halved(y)), X, "mse", what="forward")
    assert ll.from_torch(Applying(lambda y, _: y / 2), X, "mse", what="forward")


class Queue(nn.Module):
    """Keeps what it has seen at a place that goes around."""

    def __init__(self, index: Callable[[Any], Any], *, reads: bool) -> None:
        super().__init__()
        self.own, self.index, self.reads = nn.Linear(3, 2), index, reads
        self.register_buffer("kept", torch.zeros(4, 2))
        self.register_buffer("place", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Any) -> Any:
        y, place = self.own(x), self.index(self.place)
        if self.reads:
            y = y + self.kept[place]
        else:
            self.kept[place] = y.detach().mean(0)
        self.place.copy_((self.place + 1) % 4)
        return y + self.kept.mean()


@pytest.mark.parametrize("reads", [True, False])
def test_a_place_by_a_tensor_of_no_axes_is_refused_with_a_way_on(reads: bool) -> None:
    with pytest.raises(UnsupportedOpError, match=r"x\[i.view\(1\)\]"):
        ll.from_torch(Queue(lambda place: place, reads=reads), torch.randn(5, 3), "mse", "sgd")
    # The way on is one.
    ll.from_torch(Queue(lambda place: place.view(1), reads=reads), torch.randn(5, 3), "mse", "sgd")
