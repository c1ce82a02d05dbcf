"""Cells in a loop of Python, which the exporter writes out step by step: a loop again, with autograd's gradients."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import lstm_lower as ll

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

from torch import nn  # noqa: E402

from lstm_lower.torch.importer import FIXED_AXES, FixedStepsWarning  # noqa: E402

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
    with pytest.warns(FixedStepsWarning, match=r"axis 1 of 'x'.* cannot be of another size"):
        step = ll.from_torch(module, x, "mse", example_targets=target, what="gradients")
    kinds = [node.op_type for node in step.graph.node]
    assert kinds.count("Scan") == 2
    assert "Softmax" not in kinds
    x, target = torch.randn(3, STEPS, 3), torch.randn(3, STEPS, 2)
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

    with pytest.warns(FixedStepsWarning, match=r"axis 1 of 'x' cannot be of another size"):
        step = ll.from_torch(Square(), torch.randn(2, STEPS, STEPS), "mse", what="gradients")
    fixed = next(entry.value for entry in step.metadata_props if entry.key == FIXED_AXES)
    assert json.loads(fixed)["x"] == {
        "1": f"a loop in Python goes over {STEPS} steps",
        "2": "forward works for this size alone",
    }


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
