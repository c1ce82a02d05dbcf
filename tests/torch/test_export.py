"""PyTorch modules as ONNX models: equal results at the example's sizes and at others."""

from __future__ import annotations

import contextlib
import json
import math
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest

import lstm_lower as ll

torch = pytest.importorskip("torch")

from lstm_lower.errors import InvalidInputError, LstmLowerWarning, UnsupportedOpError  # noqa: E402
from lstm_lower.records.lengths import by_input  # noqa: E402
from lstm_lower.torch.aten.registry import TRANSLATIONS  # noqa: E402
from lstm_lower.torch.export import Exported, export  # noqa: E402
from lstm_lower.torch.importer import FIXED_AXES, FixedStepsWarning  # noqa: E402
from lstm_lower.torch.interface import named_tensors  # noqa: E402
from tests.support.torch_zoo import CASES, Case  # noqa: E402

BY_NAME = {case.name: case for case in CASES}

# What needs care in a trace or its translation; the whole zoo is run by `python -m tests.torch_zoo`.
MENDED = [
    ("lstm_dropout", "eval"),
    ("lstm_projected_of_packed", "eval"),
    ("lstm_packed_data", "train"),
    ("rnn_relu", "eval"),
    ("gru_packed_total", "train"),
    ("batch_norm_1d", "train"),
    ("instance_norm_kept", "train"),
    ("embedding_bag_offsets", "eval"),
    ("cumprod", "eval"),
    ("scatter_mean", "eval"),
    ("scatter_mean_alone", "eval"),
    ("adaptive_thirds", "eval"),
    ("interpolate_area", "eval"),
    ("avg_pool_divided", "eval"),
    ("distribution", "eval"),
    ("dataclass", "eval"),
]


def run(exported: Exported, inputs: tuple[Any, ...]) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(ir.to_proto(exported.model).SerializeToString(), options)
    names = [value.name for value in exported.model.graph.inputs]
    return list(session.run(None, dict(zip(names, [x.numpy() for x in inputs], strict=True))))


def results(module: Any, inputs: tuple[Any, ...], states: dict[str, str]) -> list[np.ndarray]:
    tensors = [tensor for _, tensor in named_tensors("output", module(*inputs))]
    kept = dict(module.named_buffers())
    return [tensor.detach().numpy() for tensor in [*tensors, *(kept[name] for name in states)]]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:LSTM with projections:UserWarning")
@pytest.mark.parametrize(("case", "mode"), [(BY_NAME[name], mode) for name, mode in MENDED], ids=str)
def test_equals_torch_at_other_sizes(case: Case, mode: str) -> None:
    torch.manual_seed(1)
    module = case.make().train(mode == "train")
    before = {name: value.clone() for name, value in module.state_dict().items()}
    exported = export(module, case.inputs(2, 5))
    for sizes in ((2, 5), (3, 8)):
        assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
        inputs = case.inputs(*sizes)
        # The model shares its weights with the module, which changes them.
        found = run(exported, inputs)
        for got, value in zip(found, results(module, inputs, exported.states), strict=True):
            assert got.dtype == value.dtype
            np.testing.assert_allclose(got, value, rtol=1e-5, atol=2e-6)
        module.load_state_dict(before)


@pytest.mark.slow
def test_names_are_those_of_forward_fields_and_parameters() -> None:
    exported = export(
        BY_NAME["dataclass"].make(), {"attention_mask": torch.ones(2, 5), "input_ids": torch.zeros(2, 5, 3)}
    )
    graph = exported.model.graph
    assert [value.name for value in graph.inputs] == ["attention_mask", "input_ids"]
    assert [value.name for value in graph.outputs] == ["logits", "hidden"]
    assert list(graph.initializers) == [
        f"lstm.{kind}_{side}_l0" for kind in ("weight", "bias") for side in ("ih", "hh")
    ]


class Pair(NamedTuple):
    x: Any
    y: Any


class AddingPair(torch.nn.Module):
    def forward(self, pair: Pair) -> Any:
        return pair.x + pair.y


def test_a_named_tuple_is_one_argument() -> None:
    exported = export(AddingPair(), Pair(torch.ones(2, 3), torch.zeros(2, 3)))
    assert [value.name for value in exported.model.graph.inputs] == ["pair_x", "pair_y"]


class Deciding(torch.nn.Module):
    def __init__(self, most: int = 4) -> None:
        super().__init__()
        self.most = most

    def forward(self, x: Any) -> Any:
        assert x.shape[1] <= 64
        if x.size(0) > 70:
            raise ValueError
        return x * 2 if x.size(1) > self.most else x


def fixed_axes(step: Any) -> Any:
    return json.loads(next(entry.value for entry in step.metadata_props if entry.key == FIXED_AXES))


def fixed_in_step(module: Any, inputs: Any, dynamic_shapes: Any = "auto") -> Any:
    """The axes that a step has fixed which was compared with its module."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FixedStepsWarning)
        step = ll.from_torch(
            module,
            inputs,
            lambda y: y.float().square().mean(),
            example_targets=(),
            dynamic_shapes=dynamic_shapes,
            what="forward",
        )
    return fixed_axes(step)


@pytest.mark.slow
def test_axes_that_code_decides_by_are_fixed() -> None:
    module, x = Deciding(30), torch.zeros(2, 40, 3)
    exported = export(module, x)
    assert list(exported.fixed) == [("x", 1)]
    assert "decides by it: return x * 2 if" in exported.fixed["x", 1]
    assert exported.left_open == exported.fixed
    decides = r"axis 1 of 'x' \(test_export.py:\d+ decides by it: return x \* 2 if .* another size; dynamic_shapes that"
    with pytest.warns(FixedStepsWarning, match=decides):
        ll.from_torch(module, x, "mse", what="forward", check=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ll.from_torch(module, x, "mse", what="forward", dynamic_shapes={"x": [0]}, check=False)
    with pytest.raises(InvalidInputError, match="axes that forward leaves open, got 'x', axis 1"):
        export(module, x, {"x": [0, 1]})
    # Of the four sizes for which the code decides otherwise the first is told.
    fixed = fixed_in_step(Deciding(), torch.zeros(2, 5, 3))
    assert "decides by it: return x * 2 if" in fixed["x"]["1"]
    assert fixed["x"]["1"].endswith(
        ": a step with another loss of 'loss' (a difference of 3.0e+00) for 'x' of shape [2, 1, 3]"
    )


class Pairs(torch.nn.Module):
    """Joins each row with the next; of an odd number the last one has none."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(6, 2)

    def forward(self, x: Any) -> Any:
        if x.size(0) % 2:
            x = x[1:]
        return self.layer(x.view(-1, 6))


def test_the_line_that_decides_is_told_where_a_step_of_other_sizes_fails() -> None:
    with pytest.warns(
        FixedStepsWarning, match=r"\(test_export.py:\d+ decides by it: if x.size\(0\) % 2:: a step that fails"
    ):
        ll.from_torch(Pairs(), torch.randn(4, 3), "mse", what="gradients")


class Halves(torch.nn.Module):
    """Its second half has one row in the example; PyTorch's own formula of the weight runs the trace once more."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(3, 2, bias=False))

    def forward(self, x: Any) -> Any:
        return torch.tanh(self.layer(x)).chunk(2)[1] * 1.1


@pytest.mark.slow
def test_a_formula_of_open_sizes_that_is_1_in_the_example_is_open() -> None:
    torch.manual_seed(0)
    module = Halves()
    step = ll.from_torch(module, torch.randn(3, 3), torch.mean, example_targets=(), what="gradients", check=False)
    assert fixed_axes(step).keys() == {"x"}
    assert fixed_axes(step)["x"].keys() == {"1"}
    session = ll.Session(step, providers=["CPUExecutionProvider"])
    state = {name: value.detach().numpy() for name, value in module.named_parameters()}
    for batch in (3, 5, 6, 8):
        x = torch.randn(batch, 3)
        module.zero_grad()
        loss = module(x).mean()
        loss.backward()
        got = session.run({"x": x.numpy(), **state})
        np.testing.assert_allclose(got["loss"], loss.item(), rtol=1e-5)
        for name, parameter in module.named_parameters():
            np.testing.assert_allclose(got[f"grad/{name}"], parameter.grad.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("decides", [lambda size: size // 2 == 2, lambda size: size == 4, lambda size: size - 3 == 1])
def test_sizes_by_which_pytorchs_formulas_decide_are_fixed(monkeypatch: pytest.MonkeyPatch, decides: Any) -> None:
    monkeypatch.delitem(TRANSLATIONS, torch.ops.aten.tanh.default)
    formulas = {torch.ops.aten.tanh.default: lambda x: x * 2 if decides(x.shape[0]) else x * 3}
    monkeypatch.setattr("lstm_lower.torch.aten.decompositions._table", lambda: formulas)
    exported = export(torch.nn.Tanh(), torch.zeros(4, 3))
    assert exported.fixed == {("input", 0): "a formula of PyTorch's own decides by it"}
    assert exported.left_open == exported.fixed


@pytest.mark.slow
def test_a_size_that_pytorchs_formula_of_a_bilinear_layer_takes_as_it_is() -> None:
    torch.manual_seed(0)
    layer = torch.nn.Bilinear(2, 2, 3)

    class Cut(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Any) -> Any:
            y = self.layer(x[..., 4:], x[..., 4:])
            # PyTorch's formula of the layer is taken where something else has to be taken apart.
            return y.scatter(-2, y.detach().argsort(1), 0.5)

    module, x, y = Cut(), torch.randn(5, 6), torch.randn(5, 3)
    step = ll.from_torch(module, torch.randn(4, 6), "mse", what="gradients")
    assert {name: set(axes) for name, axes in fixed_axes(step).items()} == {"x": {"1"}}
    torch.nn.functional.mse_loss(module(x), y).backward()
    got = ll.Session(step).run({"x": x.numpy(), "target": y.numpy()})
    np.testing.assert_allclose(got["grad/layer.weight"], layer.weight.grad, rtol=1e-4, atol=1e-6)


class Joined(torch.nn.Module):
    """States of all steps side by side, and a branch that takes as many of them as the example has."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = torch.nn.GRUCell(4, 2), torch.nn.Linear(10, 10)

    def forward(self, x: Any) -> Any:
        h, found = x.new_zeros(x.size(0), 2), []
        for step in x.unbind(1):
            h = self.cell(step, h)
            found.append(h)
        states = torch.cat(found, -1)
        # No run of the example's comes by the first branch.
        return torch.cond(states.mean() > 1, self.head, lambda a: a.sin(), (states,))


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # PyTorch asks for it itself
def test_a_length_of_which_no_fewer_steps_have_a_trace_is_fixed() -> None:
    module, x, y = Joined(), torch.randn(3, 5, 4), torch.randn(3, 10)
    with pytest.warns(FixedStepsWarning, match=r"of other numbers PyTorch makes no") as told:
        step = ll.from_torch(module, x, "mse", what="gradients")
    assert {each.filename for each in told} == {__file__}
    torch.nn.functional.mse_loss(module(x), y).backward()
    got = ll.Session(step).run({"x": x.numpy(), "target": y.numpy()})
    np.testing.assert_allclose(got["grad/cell.weight_hh"], module.cell.weight_hh.grad, rtol=1e-4, atol=1e-7)


class Paired(torch.nn.Module):
    """Each step reads two numbers of a sequence, so that it has an even number of them, and one of no known formula."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = torch.nn.GRUCell(2, 3)

    def forward(self, x: Any) -> Any:
        steps = x.reshape(x.size(0), x.size(1) // 2, 2)
        h = x.new_zeros(x.size(0), 3)
        for t in range(x.size(1) // 2):
            h = self.cell(steps[:, t], h) * math.tanh(t + 1)
        return h


@pytest.mark.slow
def test_an_axis_of_which_forward_takes_multiples_is_told() -> None:
    with pytest.warns(FixedStepsWarning, match=r"axis 1 of 'x' \(a loop in Python goes over 5 steps.*; ll\.scan"):
        step = ll.from_torch(Paired(), torch.randn(2, 10), torch.mean, example_targets=(), what="gradients")
    assert list(fixed_axes(step)["x"]) == ["1"]


class Reader(torch.nn.Module):
    """A picture as a sequence of its columns."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.lstm = torch.nn.Conv2d(3, 2, 3), torch.nn.LSTM(2, 3)

    def forward(self, image: Any) -> Any:
        return self.lstm(self.conv(image).mean(2).permute(2, 0, 1))[0]


def _sizes(exported: Exported) -> dict[str, list[int]]:
    return {name: sorted(axes) for name, axes in by_input(exported.fixed).items()}


@pytest.mark.slow
def test_of_pictures_the_batch_alone_is_open() -> None:
    convolution, picture = torch.nn.Conv2d(3, 2, 3), torch.zeros(2, 3, 8, 9)
    exported = export(convolution, picture)
    assert _sizes(exported) == {"input": [1, 2, 3]}
    assert set(exported.fixed.values()) == {"pictures keep the example's sizes unless dynamic_shapes names their axes"}
    assert _sizes(export(convolution, picture, {"input": [0, 2, 3]})) == {"input": [1]}
    distance = torch.nn.functional.mse_loss
    options: dict[str, Any] = {"example_targets": [torch.zeros(2, 2, 6, 7)], "target_names": ["target"]}
    both = export(convolution, picture, loss=distance, **options)
    assert _sizes(both) == {"input": [1, 2, 3], "target": [1, 2, 3]}
    assert _sizes(export(Reader(), picture)) == {"image": [1]}
    # One axis of convolution is a sequence's.
    assert _sizes(export(torch.nn.Conv1d(3, 2, 3), picture[..., 0])) == {"input": [1]}


class Gated(torch.nn.Module):
    """A branch of which nothing is seen at first: the gate is zero."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.layer = torch.nn.Parameter(torch.zeros(3)), torch.nn.LSTM(3, 3, batch_first=True)
        torch.nn.init.zeros_(self.layer.bias_hh_l0)

    def forward(self, x: Any) -> Any:
        y = self.layer(x)[0]
        return x + self.gate * (y * 2 if x.size(1) > 4 else y)


@pytest.mark.slow
def test_what_is_behind_a_zero_is_compared() -> None:
    module = Gated()
    fixed = fixed_in_step(module, torch.randn(2, 6, 3))
    assert "decides by it" in fixed["x"]["1"] or "a step with another loss" in fixed["x"]["1"]
    assert not module.gate.any()


@pytest.mark.slow
def test_what_the_trace_does_not_say_shows_where_model_and_module_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("decided_axes", "bounds_of"):
        monkeypatch.setattr(f"lstm_lower.torch.export.{name}", lambda *_: {})
    fixed = fixed_in_step(Deciding(), torch.zeros(2, 3, 3))
    assert list(fixed["x"]) == ["1"]
    assert "a step with another loss of 'loss'" in fixed["x"]["1"]
    with pytest.raises(InvalidInputError, match="'x', axis 1: a step with another loss"):
        fixed_in_step(Deciding(), torch.zeros(2, 3, 3), {"x": [0, 1]})


class One(torch.nn.Module):
    """Decides by whether there is more than one step, which matters, or does not."""

    def __init__(self, *, matters: bool) -> None:
        super().__init__()
        self.matters = matters

    def forward(self, x: Any) -> Any:
        return x.cumsum(1) + 1 if x.size(1) > 1 else x + (2 if self.matters else 1)


@pytest.mark.slow
@pytest.mark.parametrize("matters", [True, False])
def test_one_run_tells_whether_a_size_of_1_matters(*, matters: bool) -> None:
    fixed = fixed_in_step(One(matters=matters), torch.randn(2, 5, 3), {"x": [0]} if matters else {"x": [0, 1]})
    assert set(fixed["x"]) == ({"1", "2"} if matters else {"2"})
    if matters:
        with pytest.raises(InvalidInputError, match=r"'x', axis 1: .* for 'x' of shape \[2, 1, 3\]"):
            fixed_in_step(One(matters=True), torch.randn(2, 5, 3), {"x": [0, 1]})


class Sizes(torch.nn.Module):
    """Its lengths are sorted and fit its steps, it draws numbers, and where it trains it changes what it keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Any, lengths: Any) -> Any:
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        self.seen += 1
        return torch.nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)[0] * torch.rand(3)


class Padding(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.nn.functional.pad(x, (2, 2), mode="reflect") if x.size(-1) > 2 else x


@pytest.mark.slow
def test_a_size_set_apart_for_which_the_model_fails_stays_open(capfd: pytest.CaptureFixture[str]) -> None:
    assert list(fixed_in_step(Padding(), torch.randn(2, 3, 5), {"x": [0, 2]})["x"]) == ["1"]
    exported = export(Padding(), torch.randn(2, 3, 5), {"x": [0, 2]})
    assert "onnxruntime" not in capfd.readouterr().err
    with pytest.raises(ort.capi.onnxruntime_pybind11_state.InvalidArgument, match="reflect"):
        run(exported, (torch.randn(2, 3, 2),))


@pytest.mark.slow
def test_random_numbers_and_lengths_fix_no_axis() -> None:
    module = Sizes()
    exported = export(module, (torch.randn(3, 5, 3), torch.tensor([5, 3, 2])))
    assert exported.fixed == {("x", 2): "forward works for this size alone"}
    assert not module.seen


class Doubling(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x * (2 if x.size(1) > 1 else 1)


@pytest.mark.slow
def test_what_cannot_be_compared_fixes_what_is_decided() -> None:
    with (
        pytest.warns(FixedStepsWarning, match="axis 1 of 'x'"),
        pytest.warns(LstmLowerWarning, match="nothing was compared"),
    ):
        step = ll.from_torch(Doubling(), torch.ones(4, 2, 5), "ctc", what="forward")
    assert fixed_axes(step)["x"]["1"] == "forward decides by it, and cannot be compared here"


def sines_for_tangents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Translates one operator as if it were another."""
    aten = torch.ops.aten
    monkeypatch.setitem(TRANSLATIONS, aten.tanh.default, TRANSLATIONS[aten.sin.default])


def test_a_model_unlike_its_module_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    sines_for_tangents(monkeypatch)
    with pytest.raises(UnsupportedOpError, match="got another loss of 'loss'"):
        fixed_in_step(torch.nn.Tanh(), torch.randn(2, 5))


NEARLY_ZERO: dict[str, Callable[[Any], Any]] = {
    "mean": lambda y: y.exp().mean(),
    "scaled": lambda y: -(3 * y.exp().sum(0) / 50).reshape(-1).mean(),
    "a mean for each channel": lambda y: y.exp().mean(0),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", NEARLY_ZERO)
@pytest.mark.parametrize("faulty", [False, True])
def test_what_is_nearly_zero_beside_its_terms_is_compared_by_these(
    monkeypatch: pytest.MonkeyPatch, kind: str, faulty: bool
) -> None:
    torch.manual_seed(0)
    example, function = torch.randn(50, 300), NEARLY_ZERO[kind]

    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("middle", function(example.tanh()) * (1 + 1e-6))

        def forward(self, x: Any) -> Any:
            return function(x.tanh()) - self.middle

    if faulty:
        sines_for_tangents(monkeypatch)
    with pytest.raises(UnsupportedOpError, match="got another loss of 'loss'") if faulty else contextlib.nullcontext():
        assert list(fixed_in_step(Module(), example, None)["x"]) == ["0", "1"]


def test_no_axis_is_open_that_is_not_asked_for() -> None:
    exported = export(torch.nn.Tanh(), torch.zeros(2, 5), {"input": [1]})
    assert list(exported.fixed) == [("input", 0)]


class Adding(torch.nn.Module):
    def forward(self, a: Any, b: Any) -> Any:
        return a + b


@pytest.mark.slow
def test_an_axis_that_is_repeated_fixes_no_other() -> None:
    exported = export(Adding(), (torch.zeros(2, 5), torch.zeros(1, 5)))
    assert list(exported.fixed) == [("b", 0)]


@pytest.mark.slow
def test_a_tensor_given_twice_is_two_inputs() -> None:
    x = torch.zeros(2, 5)
    assert [value.name for value in export(Adding(), (x, x)).model.graph.inputs] == ["a", "b"]


class Hooking(torch.nn.Module):
    def __init__(self, place: str) -> None:
        super().__init__()
        self.place, self.weight = place, torch.nn.Parameter(torch.ones(2))

    def forward(self, x: Any) -> Any:
        y = self.weight * x
        z = y.exp() if self.place == "behind a use" else 0
        handle = y.register_hook(lambda gradient: gradient * 2 if self.place != "looks" else None)
        if self.place == "removed":
            handle.remove()
        return (y.mul_(2) if self.place == "in place" else y) + z


def hooked(kind: str) -> torch.nn.Module:
    module = torch.nn.Linear(2, 2)
    if kind == "accumulated":
        module.weight.register_post_accumulate_grad_hook(lambda _: None)
    elif kind == "module":
        module.register_full_backward_hook(lambda *_: None)
    else:
        module.weight.register_hook({"looks": lambda _: None, "shape": lambda dx: dx[0]}[kind])
    return torch.nn.Sequential(module)


class Looking(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x * 2 if x.sum() > 0 else x


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Looking(), "Looking requires a forward that torch.export can trace, got: GuardOnDataDependent"),
        (Hooking("behind a use"), "a hook on a tensor in forward requires that nothing has read the tensor"),
        (Hooking("removed"), r"a hook on a tensor in forward requires to stay, got handle.remove\(\)"),
        (Hooking("in place"), "a hook on a tensor in forward requires a tensor that stays as it is"),
        (hooked("accumulated"), "'0.weight' requires gradients .*got a hook"),
        (hooked("module"), "'0' requires gradients .*got a hook"),
        (
            hooked("shape"),
            "a hook of '0.weight' requires a result .* of the same shape and dtype, or None, got something else",
        ),
        (torch.nn.Embedding(3, 3, max_norm=1.0), "embedding requires no max_norm"),
    ],
)
def test_what_a_trace_does_not_hold_is_refused(module: Any, message: str) -> None:
    example = torch.zeros(2, 2).long() if isinstance(module, torch.nn.Embedding) else torch.zeros(2, 2)
    with pytest.raises(UnsupportedOpError, match=message):
        export(module, example)


class Squeezing(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return (x @ torch.ones(2, 2)).squeeze_(1).squeeze_(0)


@pytest.mark.slow
def test_axes_are_squeezed_in_place() -> None:
    example = torch.randn(1, 2)
    np.testing.assert_allclose(run(export(Squeezing(), example), (example,))[0], Squeezing()(example), rtol=1e-6)


def test_arguments_that_do_not_fit() -> None:
    with pytest.raises(InvalidInputError, match=r"example_inputs requires what Linear.forward takes, .*, got: missing"):
        export(torch.nn.Linear(2, 2), ())
    with pytest.raises(InvalidInputError, match=r"dynamic_shapes requires names of .'input'., got 'x'"):
        export(torch.nn.Linear(2, 2), torch.zeros(1, 2), {"x": [0]})


@pytest.mark.slow
def test_triton_is_not_imported_behind_tensorflow(tmp_path: Path) -> None:
    """TensorFlow and triton hold an LLVM each, and the process ends while the second is read in."""
    (tmp_path / "tensorflow.py").touch()
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton/__init__.py").write_text("import os; os._exit(3)")
    code = "import tensorflow, torch, lstm_lower as ll; "
    code += "ll.from_torch(torch.nn.Linear(2, 1), torch.zeros(3, 2), torch.nn.MSELoss(), 'adam')"
    folders = os.pathsep.join([str(tmp_path), *sys.path])
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": folders}, check=True)
