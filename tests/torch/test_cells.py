"""Cells in a loop of Python, which a trace holds step by step: a loop again, with autograd's gradients."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import lstm_lower as ll

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from lstm_lower.passes.driver import run_passes  # noqa: E402
from lstm_lower.passes.gradient_preparation import preparing_passes  # noqa: E402
from lstm_lower.passes.loops.rerolling import LoopRerolling  # noqa: E402
from lstm_lower.torch.axes import BY_ITSELF  # noqa: E402
from lstm_lower.torch.export import export  # noqa: E402
from lstm_lower.torch.importer import FIXED_AXES  # noqa: E402

STEPS = 6


class Decoder(nn.Module):
    """Two cells, one of which looks at all steps of the input, and a layer on what they make."""

    def __init__(self) -> None:
        super().__init__()
        self.lower = nn.LSTMCell(3, 4)
        self.upper = nn.GRUCell(4 + 3, 4)
        self.output = nn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        h = c = u = torch.zeros(x.shape[0], 4)
        made = []
        for step in x.unbind(1):
            h, c = self.lower(step, (h, c))
            weights = torch.softmax((x * u[:, None, :3]).sum(-1), -1)
            u = self.upper(torch.cat([h, (weights[..., None] * x).sum(1)], -1), u)
            made.append(self.output(u))
        return torch.stack(made, 1)


@pytest.mark.slow
def test_cells_become_a_loop() -> None:
    torch.manual_seed(0)
    module = Decoder()
    x, target = torch.randn(2, STEPS, 3), torch.randn(2, STEPS, 2)
    step = ll.from_torch(module, x, "mse", example_targets=target, what="gradients")
    kinds = [node.op_type for node in step.graph.node]
    assert kinds.count("Scan") == 2
    assert "Softmax" not in kinds
    x, target = torch.randn(3, 2 * STEPS, 3), torch.randn(3, 2 * STEPS, 2)
    session = ll.Session(step, providers=["CPUExecutionProvider"])
    got = session.run({"x": x.numpy(), "target": target.numpy()})
    loss = nn.functional.mse_loss(module(x), target)
    loss.backward()
    np.testing.assert_allclose(got["loss"], loss.item(), rtol=1e-5)
    for name, parameter in module.named_parameters():
        np.testing.assert_allclose(got[f"grad/{name}"], parameter.grad.numpy(), rtol=1e-4, atol=1e-6, err_msg=name)


@pytest.mark.slow
def test_a_size_that_a_module_needs_is_no_number_of_steps() -> None:
    class Square(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.GRUCell(STEPS, 2)

        def forward(self, x: Any) -> Any:
            h = x.new_zeros(x.shape[0], 2)
            for step in x.unbind(1):
                h = self.cell(step, h)
            return h

    step = ll.from_torch(Square(), torch.randn(2, STEPS, STEPS), "mse", what="gradients")
    fixed = next(entry.value for entry in step.metadata_props if entry.key == FIXED_AXES)
    assert json.loads(fixed)["x"] == {"2": "forward works for this size alone"}


@pytest.mark.slow
def test_states_of_packed_sequences_have_their_sizes() -> None:
    """PyTorch, which does not check them, ends the process where there are too few."""

    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.LSTM(4, 6, proj_size=3, bidirectional=True)

        def forward(self, x: Any, lengths: Any, hidden: Any, memory: Any) -> Any:
            packed = nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
            return self.layer(packed, (hidden, memory))[1]

    inputs = (torch.ones(5, 2, 4), torch.tensor([3, 5]), torch.ones(2, 2, 3), torch.ones(2, 2, 6))
    step = ll.from_torch(Packed(), inputs, lambda result: result[0].sum(), example_targets=(), what="forward")
    shapes = [[dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in step.graph.input]
    assert shapes[2:4] == [[2, 0, 3], [2, 0, 6]]


class Loops(nn.Module):
    """Goes along an axis in one way or another."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.cell = kind, nn.GRUCell(3, 4)

    def forward(self, x: Any, mask: Any) -> Any:
        h = x.new_zeros(x.shape[0], 4)
        if self.kind == "mask":
            for t in range(x.size(1)):
                h = torch.where(mask[:, t], self.cell(x[:, t], h), h)
        if self.kind == "unbind":
            for step in x.unbind(1):
                h = self.cell(step, h)
        if self.kind == "list":
            return torch.stack([self.cell(x[:, t], h) for t in range(x.shape[1])], 1)
        if self.kind == "split":
            for step in x.split(1, dim=1):
                h = self.cell(step[:, 0], h)
        if self.kind == "number":
            steps = range(x.size(1))
            return sum((self.cell(x[:, t], h) for t in steps), h)
        if self.kind == "table":
            return x @ torch.ones(3, 2) + torch.arange(5.0)[:, None]
        return h


@pytest.mark.parametrize("kind", ["mask", "unbind", "list", "split", "number"])
def test_lengths_of_loops_are_open(kind: str) -> None:
    inputs = (torch.randn(2, 5, 3), torch.ones(2, 5, 1, dtype=torch.bool))
    exported = export(Loops(kind), inputs)
    assert exported.fixed["x", 2] == BY_ITSELF
    assert not exported.fixed.keys() & {("x", 0), ("x", 1)}
    assert not exported.left_open


def test_a_size_that_forward_needs_is_no_number_of_steps() -> None:
    inputs = (torch.randn(2, 5, 3), torch.ones(2, 5, 1, dtype=torch.bool))
    exported = export(Loops("table"), inputs)
    assert exported.fixed["x", 1] == BY_ITSELF
    assert not exported.left_open


def test_a_layer_behind_the_steps_is_none_of_them() -> None:
    """Its product follows from theirs; the weight that each step transposes tells them apart."""

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wi, self.wh = nn.Parameter(torch.randn(16, 4)), nn.Parameter(torch.randn(16, 4))
            self.output = nn.Linear(4, 2)

        def forward(self, x: Any) -> Any:
            h, made = x.new_zeros(x.shape[0], 4), []
            c = h
            for step in x.unbind(1):
                i, f, g, o = (step.mm(self.wi.t()) + h.mm(self.wh.t())).chunk(4, 1)
                c = f.sigmoid() * c + i.sigmoid() * g.tanh()
                h = o.sigmoid() * c.tanh()
                made.append(h)
            return self.output(torch.stack(made, 1))

    model = export(Layer(), torch.randn(2, 8, 4)).model
    kinds = [node.op_type for node in run_passes(model, [*preparing_passes(), LoopRerolling()]).graph]
    assert (kinds.count("Scan"), kinds.count("MatMul")) == (1, 1)


class OneStep(nn.Module):
    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Any) -> Any:
        states = self.cell(x)
        return torch.cat(states, 1) if isinstance(states, tuple) else states


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "make",
    [nn.LSTMCell, nn.GRUCell, nn.RNNCell, lambda *sizes, bias: nn.RNNCell(*sizes, bias=bias, nonlinearity="relu")],
    ids=["lstm", "gru", "tanh", "relu"],
)
def test_cells_compute_what_autograd_does(make: Any, bias: bool) -> None:
    module = OneStep(make(3, 4, bias=bias))
    options: dict[str, Any] = {"example_targets": (), "what": "gradients"}
    step = ll.from_torch(module, torch.randn(2, 3), lambda y: y.square().sum(), **options)
    metadata = {entry.key: entry.value for entry in step.metadata_props}
    assert "PyTorch" in metadata["lstm_lower.certificate"]
