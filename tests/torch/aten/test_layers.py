"""Layers with weights next to PyTorch's: values, gradients and what they keep, with all axes open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from lstm_lower import UnsupportedOpError  # noqa: E402
from tests.support.aten import check, translated  # noqa: E402


def _random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


_CONVOLUTIONS: dict[str, tuple[nn.Module, tuple[int, ...], tuple[int, ...]]] = {
    "1d": (nn.Conv1d(4, 6, 3, stride=2, padding=1, dilation=2), (2, 4, 9), (3, 4, 12)),
    "2d": (nn.Conv2d(4, 6, (3, 2), padding=(1, 0)), (2, 4, 7, 8), (1, 4, 9, 5)),
    "2d in groups": (nn.Conv2d(4, 6, 3, groups=2, bias=False), (2, 4, 7, 8), (3, 4, 5, 5)),
    "2d of a single image": (nn.Conv2d(4, 6, 3), (4, 7, 8), (4, 5, 9)),
    "3d": (nn.Conv3d(2, 3, 2), (2, 2, 4, 5, 3), (1, 2, 3, 4, 5)),
    "same": (nn.Conv1d(4, 6, 4, padding="same", dilation=3), (2, 4, 11), (3, 4, 12)),
    "valid": (nn.Conv2d(4, 6, 3, padding="valid", stride=2), (2, 4, 7, 8), (3, 4, 6, 6)),
    "depthwise": (nn.Conv2d(4, 8, 3, groups=4), (2, 4, 7, 8), (3, 4, 5, 5)),
    "transposed 1d": (nn.ConvTranspose1d(4, 6, 3, stride=2, padding=1, output_padding=1), (2, 4, 5), (3, 4, 7)),
    "transposed 2d": (nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2, dilation=2), (2, 4, 3, 4), (1, 4, 5, 3)),
    "transposed 3d": (nn.ConvTranspose3d(2, 3, 2, stride=2, bias=False), (2, 2, 3, 2, 3), (1, 2, 2, 3, 2)),
    "transposed of a single image": (nn.ConvTranspose2d(4, 6, 3), (4, 3, 4), (4, 5, 3)),
}


@pytest.mark.parametrize("name", _CONVOLUTIONS)
def test_convolutions(name: str) -> None:
    module, first, second = _CONVOLUTIONS[name]
    # onnxruntime has no kernels in float64.
    check(module, [_random(*first)], [_random(*second)], dtypes=[torch.float32])


_PRODUCTS: dict[str, tuple[nn.Module, tuple[int, ...], tuple[int, ...]]] = {
    "of a matrix": (nn.Linear(4, 3), (5, 4), (2, 4)),
    "of a vector": (nn.Linear(4, 3), (4,), (4,)),
    "of sequences": (nn.Linear(4, 3, bias=False), (2, 5, 4), (3, 2, 4)),
}


@pytest.mark.parametrize("name", _PRODUCTS)
def test_products(name: str) -> None:
    module, first, second = _PRODUCTS[name]
    check(module, [_random(*first)], [_random(*second)])


@pytest.mark.parametrize("bias", [True, False])
def test_bilinear_forms(bias: bool) -> None:
    module = nn.Bilinear(3, 4, 5, bias=bias)
    check(module, [_random(2, 6, 3), _random(2, 6, 4)], [_random(3, 2, 3), _random(3, 2, 4)])


_NORMALIZATIONS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], tuple[int, ...]]] = {
    "batch of vectors": (lambda: nn.BatchNorm1d(4), (6, 4), (3, 4)),
    "batch of sequences": (lambda: nn.BatchNorm1d(4, affine=False), (3, 4, 5), (2, 4, 6)),
    "batch of images": (lambda: nn.BatchNorm2d(4, momentum=0.3), (2, 4, 3, 5), (3, 4, 2, 2)),
    "batch without statistics": (lambda: nn.BatchNorm2d(4, track_running_stats=False), (2, 4, 3, 5), (3, 4, 2, 2)),
    "batch in evaluation": (lambda: nn.BatchNorm2d(4).eval(), (2, 4, 3, 5), (3, 4, 2, 2)),
    "batch in evaluation without weights": (lambda: nn.BatchNorm1d(4, affine=False).eval(), (2, 4), (3, 4)),
    "instance": (lambda: nn.InstanceNorm2d(4), (2, 4, 3, 5), (3, 4, 2, 2)),
    "instance with statistics": (
        lambda: nn.InstanceNorm1d(4, affine=True, track_running_stats=True),
        (2, 4, 3),
        (3, 4, 5),
    ),
    "group": (lambda: nn.GroupNorm(2, 4), (2, 4, 3, 5), (3, 4, 2, 2)),
    "group without weights": (lambda: nn.GroupNorm(2, 4, affine=False), (2, 4), (3, 4)),
    "layer": (lambda: nn.LayerNorm(4), (2, 3, 4), (5, 2, 4)),
    "layer of two axes": (lambda: nn.LayerNorm((3, 4), bias=False), (2, 3, 4), (5, 3, 4)),
    "layer without weights": (lambda: nn.LayerNorm(4, elementwise_affine=False), (2, 4), (5, 4)),
    "root mean square": (lambda: nn.RMSNorm(4), (2, 3, 4), (5, 2, 4)),
    "root mean square without weights": (
        lambda: nn.RMSNorm((3, 4), 1e-3, elementwise_affine=False),
        (2, 3, 4),
        (5, 3, 4),
    ),
    "local response": (lambda: nn.LocalResponseNorm(2), (2, 4, 3, 5), (3, 4, 2, 2)),
}


@pytest.mark.parametrize("name", _NORMALIZATIONS)
def test_normalizations(name: str) -> None:
    make, first, second = _NORMALIZATIONS[name]
    module = make()
    with torch.no_grad():
        for place, weight in enumerate(module.parameters()):
            weight.copy_(1 + 0.1 * place + 0.2 * _random(*weight.shape))
    # onnxruntime has no means of windows in float64.
    dtypes = [torch.float32] if name == "local response" else [torch.float32, torch.float64]
    check(module, [_random(*first)], [_random(*second)], tolerance=3e-5, dtypes=dtypes)


class _Kept(nn.Module):
    """What a layer keeps after a step."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        out = self.layer(x)
        layer: Any = self.layer
        return out, layer.running_mean + 0, layer.running_var + 0


@pytest.mark.parametrize("layer", [nn.BatchNorm2d(4, momentum=0.3), nn.InstanceNorm2d(4, track_running_stats=True)])
def test_running_statistics(layer: nn.Module) -> None:
    check(_Kept(layer), [_random(2, 4, 3, 5)], [_random(3, 4, 2, 2)], tolerance=3e-5)


def test_statistics_of_normalizations() -> None:
    def statistics(x: Tensor) -> Any:
        return torch.native_layer_norm(x, [4], None, None, 1e-5)

    check(statistics, [_random(2, 3, 4)], gradients=False)


_EMBEDDINGS: dict[str, nn.Module] = {
    "plain": nn.Embedding(7, 3),
    "with padding": nn.Embedding(7, 3, padding_idx=2),
    "with padding from the end": nn.Embedding(7, 3, padding_idx=-5),
    "by frequency": nn.Embedding(7, 3, scale_grad_by_freq=True),
}


@pytest.mark.parametrize("name", _EMBEDDINGS)
def test_embeddings(name: str) -> None:
    check(_EMBEDDINGS[name], [torch.tensor([[1, 2, 2], [0, 6, 2]])], [torch.tensor([[4], [2], [2], [2]])])


def test_negative_rows_are_refused() -> None:
    from lstm_lower import Session

    model, _ = translated(nn.Embedding(7, 3), torch.tensor([1, 2]))
    with pytest.raises(Exception, match=r"(?i)indices|out of"):
        Session(model).run({"x0": torch.tensor([1, -1]).numpy()})


def test_embeddings_that_change_their_rows_are_refused() -> None:
    with pytest.raises(UnsupportedOpError, match="embedding requires no max_norm, got one"):
        translated(nn.Embedding(7, 3, max_norm=1.0), torch.tensor([1, 2]))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 2])
def test_bags_in_rows(mode: str, padding: int | None) -> None:
    module = nn.EmbeddingBag(7, 3, mode=mode, padding_idx=padding)
    check(module, [torch.tensor([[1, 2, 2], [0, 6, 3]])], [torch.tensor([[4, 5], [2, 2], [2, 1]])])


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("with_last", [True, False])
def test_bags_with_offsets(mode: str, with_last: bool) -> None:
    module = nn.EmbeddingBag(7, 3, mode=mode, include_last_offset=with_last)
    ends = [[0, 2, 2, 6], [0, 3, 4]]
    check(
        module,
        [torch.tensor([1, 2, 2, 0, 6, 3]), torch.tensor(ends[0])],
        [torch.tensor([1, 2, 5, 4]), torch.tensor(ends[1])],
    )


def test_bags_with_factors() -> None:
    def bags(table: Tensor, rows: Tensor, factors: Tensor) -> Tensor:
        return functional.embedding_bag(rows, table, per_sample_weights=factors, mode="sum")

    rows, others = torch.tensor([[1, 2], [0, 1]]), torch.tensor([[1, 2, 3]])
    check(bags, [_random(4, 3), rows, _random(2, 2)], [_random(5, 3), others, _random(1, 3)])


def test_dropout_of_all_and_of_nothing() -> None:
    check(nn.Dropout(1.0), [_random(2, 3)], [_random(4, 5)])
    check(nn.Dropout(0.0), [_random(2, 3)], [_random(4, 5)])
    check(nn.Dropout(0.5).eval(), [_random(2, 3)], [_random(4, 5)])
