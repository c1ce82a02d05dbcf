"""Programs of `torch.export` as models: inputs, weights, open sizes and arithmetic."""

from __future__ import annotations

import warnings

import numpy as np
import onnx_ir as ir
import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from lstm_lower import Session, UnsupportedOpError  # noqa: E402
from lstm_lower.torch.aten.translate import translate  # noqa: E402


class _Arithmetic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, -2.0, 0.5, 3.0]))
        self.register_buffer("steps", torch.tensor([1, 2, 3, 4]))

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return (x * self.weight + 2 * y - self.steps) / 3, -x * x.shape[0]


def _translated(module: nn.Module, *example: Tensor) -> ir.Model:
    axes = tuple({0: torch.export.Dim.AUTO} for _ in example)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's of its own code
        program = torch.export.export(module, example, dynamic_shapes=axes, strict=False)
    return translate(program, ["x", "y"][: len(example)], ["a", "b"])


def test_arithmetic_at_another_size() -> None:
    module = _Arithmetic()
    model = _translated(module, torch.randn(3, 4), torch.arange(3)[:, None])
    x, y = torch.randn(5, 4), torch.arange(5)[:, None]
    results = Session(model).run({"x": x.numpy(), "y": y.numpy()})
    for name, expected in zip(("a", "b"), module(x, y), strict=True):
        np.testing.assert_allclose(results[name], expected.detach().numpy(), rtol=1e-6)


def test_equal_sizes_are_one_dimension() -> None:
    model = _translated(_Arithmetic(), torch.randn(3, 4), torch.arange(3)[:, None])
    assert [str(value.shape) for value in model.graph.inputs] == ["[x_dim_0,4]", "[x_dim_0,1]"]


def test_weights_are_not_copied() -> None:
    module = _Arithmetic()
    model = _translated(module, torch.randn(3, 4), torch.arange(3)[:, None])
    held = model.graph.initializers["weight"].const_value
    assert held is not None
    assert held.numpy().ctypes.data == module.weight.data_ptr()


def test_an_operator_without_translation_is_refused_by_name() -> None:
    class Unwritten(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.nonzero_static(x, size=3)

    with pytest.raises(
        UnsupportedOpError, match=r"nonzero_static, which test_translate\.py:\d+ calls, requires a translation"
    ):
        _translated(Unwritten(), torch.randn(3, 4))
