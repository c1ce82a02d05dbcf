"""What lays out, cuts, joins and makes arrays, next to PyTorch, at two sizes."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402, N812 (PyTorch's own name for it)

from tests.support.aten import ARRAYS, check_together, drawn  # noqa: E402


def _assigned(x: Any) -> Any:
    y = x.clone()
    y[:, 0] = 3.0
    y[:, 1:3] = x[:, :2] * 2
    y[..., -1] *= 2
    return y


def _diagonal_changed(x: Any) -> Any:
    y = x * 1
    y.diagonal(0, 1, 2).add_(1)
    return y


FUNCTIONS: dict[str, Any] = {
    "view": lambda x: (x.reshape(x.shape[0] * x.shape[1], -1).view(-1), x.flatten(1), x.unflatten(1, (1, -1))),
    "expand": lambda x: x[:, :1].expand(-1, x.shape[1], -1) * 1.0,
    "expand_as": lambda x: x[:1].expand_as(x) * 2.0,
    "permute": lambda x: (x.permute(2, 0, 1) + 0, x.mT + 0, x.movedim(0, 1) + 0, x.rot90(1, [1, 2]) + 0),
    "squeeze": lambda x: x[:1, :, None].squeeze(0).squeeze() + 0,
    "cat": lambda x: (torch.cat([x, x * 2, x[:, :1]], 1), torch.stack([x, x * 2], -1), torch.block_diag(x[0], x[1])),
    "tensor_split": lambda x: x.tensor_split(3, 1),
    "unbind": lambda x: x[:, :2].unbind(1),
    "select": lambda x: x[:, -1] * x[:, 1],
    "slice": lambda x: (x[:, 1:-1:2], x[-3:, :100], x[:, x.shape[1] // 2 :], x.narrow(1, 1, x.shape[1] - 2)),
    "slice_scatter": lambda x: (
        torch.slice_scatter(x, x[:, :2] * 2, 1, 1, 3),
        torch.slice_scatter(x, x[:, :2] * 2, 1, 1, 5, 2),
        torch.slice_scatter(x, x[:, :2] * 2, 1, -2),
        torch.select_scatter(x, x[:, 0] * 3, 1, -1),
    ),
    "assignment": _assigned,
    "pad": lambda x: (
        F.pad(x, (1, 2)),
        F.pad(x, (0, 0, 1, -1), value=2.0),
        F.pad(x, (0, 0, x.shape[1], 0)),
        F.pad(x, (1, 1), mode="reflect"),
        F.pad(x, (1, 0), mode="replicate"),
        F.pad(x, (1, 1), mode="circular"),
    ),
    "roll": lambda x: (x.roll((x.shape[1] // 2, 1), (1, 2)), x.roll(x.shape[1] // 3), x.roll(-1, 1), x.roll(9, 1)),
    "flip": lambda x: x.flip(1, 2) + 0,
    "triangles": lambda x: (x.tril(), x.triu(1), x.tril(-1), (x > 0).tril(), x.int().triu()),
    "diagonal_changed": _diagonal_changed,
    "diag_embed": lambda x: (
        torch.diag_embed(x),
        torch.diag_embed(x, 1),
        torch.diag_embed(x, -1, 0, 2),
        torch.diag(x[0, :, 0], 1),
    ),
    "as_strided": lambda x: x.as_strided((2, 3), (1, 2), 1) + 0,
    "unfold": lambda x: x.unfold(1, 2, 1) * x.unfold(1, 2, 1),
    "repeat": lambda x: (x.repeat(2, 1, 3), x.repeat(2, 1, 1, 2), x.repeat_interleave(2, 1)),
    "meshgrid": lambda x: torch.meshgrid(x[0, 0], x[0, :, 1], indexing="xy"),
    "filled": lambda x: (
        torch.full_like(x, 2)
        + torch.zeros(x.shape[1], x.shape[2])
        + torch.eye(x.shape[1], x.shape[2])
        + x.new_ones(x.shape[1], 1)
        + x
    ),
    "numbers": lambda x: (
        x + torch.arange(x.shape[2]),
        torch.arange(1, x.shape[1]),
        torch.arange(0, x.shape[1], 2),
        torch.arange(0.5, 2.5, 0.25),
        torch.arange(x.shape[1], dtype=torch.float32),
        torch.linspace(-1, x.shape[0], x.shape[1]) + x.sum(),
    ),
    "places": lambda x: (
        torch.triu_indices(x.shape[1], x.shape[1], 1),
        torch.tril_indices(x.shape[1], x.shape[2]),
        torch.combinations(x[0, :, 0]),
    ),
    "gradient": lambda x: torch.gradient(x, dim=1),
    "fill_diagonal": lambda x: x[0].clone().fill_diagonal_(1.0),
}

CASES: dict[str, Any] = {
    **{name: (function, *ARRAYS) for name, function in FUNCTIONS.items()},
    "chunk": (lambda x: (*x.chunk(3, 1), *x.split(2, 0)), (drawn(4, 6, 3),)),
    "diagonal": (
        lambda x: (
            x.diagonal(0, 1, 2),
            x.diagonal(-1, 1, 2),
            x.diagonal(1, 0, 1),
            x.diagonal(2, -1, 0),
            x[0].diagonal_scatter(x[1, 0], -1),
        ),
        ARRAYS[0],
    ),
    "repeat_by_tensor": (lambda x: x.repeat_interleave(torch.tensor([1, 2, 0, 3]), 0), ARRAYS[0], (drawn(4, 6, 2),)),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name: str) -> None:
    function, *examples = CASES[name]
    check_together(function, *examples, dtypes=(torch.float32,))


def test_windows() -> None:
    check_together(
        lambda x: (
            torch.hamming_window(x.shape[1], periodic=False),
            torch.hann_window(x.shape[1]),
            torch.hamming_window(5),
            torch.blackman_window(6),
        ),
        *ARRAYS,
        dtypes=(torch.float32,),
    )
