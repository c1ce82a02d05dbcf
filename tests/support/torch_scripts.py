"""Modules of PyTorch as scripts of onnxruntime-training export them: by tracing, weights under PyTorch's names."""

from __future__ import annotations

import io
import math
import warnings
from typing import Any

import onnx
import torch
from torch import nn


class Perceptron(nn.Module):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(torch.relu(self.fc1(x)))  # type: ignore[no-any-return]


class Classifier(nn.Module):
    """A bidirectional LSTM, whose last states are read; sequences may have lengths of their own."""

    def __init__(self, *, lengths: bool = False) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 5, 2 if lengths else 1, bidirectional=True, batch_first=True)
        self.fc = nn.Linear(10, 4)
        self.has_lengths = lengths

    def forward(self, x: torch.Tensor, lengths: torch.Tensor | None = None) -> torch.Tensor:
        taken: Any = x
        if self.has_lengths:
            assert lengths is not None
            taken = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        _, (hidden, _) = self.lstm(taken)
        return self.fc(torch.cat([hidden[-2], hidden[-1]], 1))  # type: ignore[no-any-return]


class AdamW(torch.optim.Optimizer):
    """Adam with decoupled weight decay as Hugging Face's transformers had it, of which onnxruntime-training took it.

    Epsilon is beside the root before the root is corrected, and weights decay behind the step (Loshchilov and Hutter,
    2019, algorithm 2).
    """

    def __init__(self, weights: Any, lr: float, eps: float = 1e-6, weight_decay: float = 0.0) -> None:
        super().__init__(weights, {"lr": lr, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        assert closure is None
        for group in self.param_groups:
            for weight in group["params"]:
                kept = self.state[weight]
                kept["step"] = step = kept.get("step", 0) + 1
                zeros = torch.zeros_like(weight)
                kept["m"] = m = kept.get("m", zeros) * 0.9 + weight.grad * 0.1
                kept["v"] = v = kept.get("v", zeros) * 0.999 + weight.grad**2 * 0.001
                rate = group["lr"] * math.sqrt(1 - 0.999**step) / (1 - 0.9**step)
                weight -= rate * m / (v.sqrt() + group["eps"])
                weight -= group["lr"] * group["weight_decay"] * weight


def exported(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> onnx.ModelProto:
    """The module's graph with open batch, nothing folded."""
    stream = io.BytesIO()
    names = ["input", "lengths"][: len(inputs)]
    with warnings.catch_warnings():
        # The exporter is one of PyTorch's older ones.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            inputs,
            stream,
            dynamo=False,
            input_names=names,
            output_names=["output"],
            dynamic_axes={name: {0: "batch"} for name in (*names, "output")},
            training=torch.onnx.TrainingMode.TRAINING,
            do_constant_folding=False,
        )
    return onnx.load_from_string(stream.getvalue())
