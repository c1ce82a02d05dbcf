"""Cells in a loop of Python, which the exporter writes out step by step: a loop again, with autograd's gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lstm_lower as ll

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

from torch import nn  # noqa: E402

from lstm_lower.torch.importer import FixedStepsWarning  # noqa: E402

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
