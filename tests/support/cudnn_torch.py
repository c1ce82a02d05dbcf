"""PyTorch's recurrent layers as a reference for the cuDNN ops, with a packing of their weights of its own.

Nothing of the package under test is used here: two packers that share code share their mistakes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from tests.support.cudnn_cases import UNITS, Case

MODES = {
    "lstm": (nn.LSTM, {}),
    "gru": (nn.GRU, {}),
    "rnn_tanh": (nn.RNN, {}),
    "rnn_relu": (nn.RNN, {"nonlinearity": "relu"}),
}
SUFFIXES = ("", "_reverse")


def _layers(case: Case) -> list[nn.Module]:
    kind, options = MODES[case.mode]
    layers = []
    for layer in range(case.layers):
        width = case.input_size if layer == 0 else case.directions * case.hidden
        if case.proj:
            options = {"proj_size": case.proj}
        layers.append(kind(width, UNITS, bidirectional=case.bidirectional, dtype=torch.float64, **options))
    return layers


def _tensors(case: Case, layers: list[nn.Module]) -> list[tuple[torch.Tensor, bool]]:
    """The layers' parameters in the order of the buffer; False for those that the buffer does not hold."""
    order = []
    for index, layer in enumerate(layers):
        for suffix in SUFFIXES[: case.directions]:
            order.append((getattr(layer, f"weight_ih_l0{suffix}"), index > 0 or not case.skip))
            order.append((getattr(layer, f"weight_hh_l0{suffix}"), True))
            if case.proj:
                order.append((getattr(layer, f"weight_hr_l0{suffix}"), True))
    for layer in layers:
        for suffix in SUFFIXES[: case.directions]:
            order += [(getattr(layer, f"bias_{side}_l0{suffix}"), True) for side in ("ih", "hh")]
    return order


def _load(case: Case, layers: list[nn.Module], params: np.ndarray[Any, Any]) -> None:
    rest = torch.tensor(params, dtype=torch.float64)
    with torch.no_grad():
        for tensor, held in _tensors(case, layers):
            if held:
                tensor.copy_(rest[: tensor.numel()].reshape(tensor.shape))
                rest = rest[tensor.numel() :]
            else:
                gates = tensor.shape[0] // UNITS
                tensor.copy_(torch.eye(UNITS, dtype=torch.float64).repeat(gates, 1))
    assert rest.numel() == 0


def reference(case: Case, operands: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Forward outputs and gradients of every operand, in the case's own order of axes."""
    leaves = {}
    for name in ("input", "input_h", *(("input_c",) if case.mode == "lstm" else ())):
        leaves[name] = torch.tensor(case.major(operands[name]), dtype=torch.float64, requires_grad=True)
    layers = _layers(case)
    _load(case, layers, operands["params"])
    masks = None
    if case.masks:
        shape = (case.layers - 1, case.steps, case.batch, case.directions * case.hidden)
        masks = torch.tensor(operands["reserve_space"], dtype=torch.float64).reshape(shape)
    lengths = torch.tensor(case.lengths.astype(np.int64))
    live = lengths > 0
    x = leaves["input"]
    finals: dict[str, list[torch.Tensor]] = {"input_h": [], "input_c": []}
    for index, layer in enumerate(layers):
        if index and masks is not None:
            x = x * masks[index - 1]
        rows = slice(index * case.directions, (index + 1) * case.directions)
        states = tuple(leaf[rows] for name, leaf in leaves.items() if name != "input")
        inner = tuple(state[:, live].contiguous() for state in states)
        packed = nn.utils.rnn.pack_padded_sequence(x[:, live], lengths[live], enforce_sorted=False)
        out, last = layer(packed, inner if len(inner) == 2 else inner[0])
        out, _ = nn.utils.rnn.pad_packed_sequence(out, total_length=case.steps)
        x = torch.zeros((case.steps, case.batch, out.shape[-1]), dtype=torch.float64)
        x = x.index_put((torch.arange(case.steps)[:, None], torch.nonzero(live)[None, :, 0]), out)
        for name, state, final in zip(finals, states, last if len(inner) == 2 else (last,), strict=False):
            finals[name].append(state.index_copy(1, torch.nonzero(live)[:, 0], final))
    ends = {name: torch.cat(parts) for name, parts in finals.items() if parts}
    loss = (x * torch.tensor(case.major(operands["output_backprop"]))).sum()
    for name, end in ends.items():
        loss = loss + (end * torch.tensor(case.major(operands[f"output{name[5:]}_backprop"]))).sum()
    loss.backward()  # type: ignore[no-untyped-call]
    forward = {"output": case.major(x.detach().numpy())}
    forward |= {f"output{name[5:]}": case.major(end.detach().numpy()) for name, end in ends.items()}
    backward = {f"{name}_backprop": case.major(leaf.grad.numpy()) for name, leaf in leaves.items()}
    held = [tensor.grad.reshape(-1) for tensor, held in _tensors(case, layers) if held]
    backward["params_backprop"] = torch.cat(held).numpy()
    return forward, backward
