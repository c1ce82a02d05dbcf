"""Recurrent layers next to PyTorch's: outputs, last states and gradients, with batch and length open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn.utils import rnn  # noqa: E402

from tests.support.aten import check  # noqa: E402

# onnxruntime has no kernels in float64; formulas take their place with gradients.
ONE = [torch.float32]


def _random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


_LAYERS: dict[str, Callable[[], nn.Module]] = {
    "lstm": lambda: nn.LSTM(4, 3),
    "lstm in two directions": lambda: nn.LSTM(4, 3, 2, bidirectional=True),
    "lstm of batches": lambda: nn.LSTM(4, 3, batch_first=True, bias=False),
    "projected lstm": lambda: nn.LSTM(4, 3, proj_size=2),
    "gru": lambda: nn.GRU(4, 3, bidirectional=True),
    "rnn": lambda: nn.RNN(4, 3),
    "rnn of rectifiers": lambda: nn.RNN(4, 3, nonlinearity="relu", bias=False),
}


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("name", _LAYERS)
def test_layers(name: str) -> None:
    check(_LAYERS[name](), [_random(5, 2, 4)], [_random(3, 6, 4)], dtypes=ONE)


def test_given_states() -> None:
    first = [_random(5, 2, 4), _random(1, 2, 3), _random(1, 2, 3) + 1]
    second = [_random(3, 6, 4), _random(1, 6, 3), _random(1, 6, 3) + 1]
    lstm, gru = nn.LSTM(4, 3), nn.GRU(4, 3)
    check(lambda x, h, c: lstm(x, (h, c)), first, second, dtypes=ONE)
    check(gru, first[:2], second[:2], dtypes=ONE)


class _Packed(nn.Module):
    def __init__(self, layer: nn.Module, *, whole: bool = False, **options: Any) -> None:
        super().__init__()
        self.layer, self.whole, self.options = layer, whole, options

    def forward(self, x: Tensor, lengths: Tensor) -> list[Tensor]:
        packed = rnn.pack_padded_sequence(x, lengths, **self.options)
        out, last = self.layer(packed)
        behind = {"total_length": x.shape[0], "padding_value": -1.0} if self.whole else {}
        padded, sizes = rnn.pad_packed_sequence(out, **behind)
        return [padded, *(last if isinstance(last, tuple) else [last]), sizes]


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("sorted_", [True, False])
@pytest.mark.parametrize("name", ["lstm in two directions", "projected lstm", "gru"])
def test_packed_sequences(name: str, sorted_: bool) -> None:
    lengths = [[5, 3], [4, 4, 1]] if sorted_ else [[3, 5], [1, 4, 4]]
    module = _Packed(_LAYERS[name](), enforce_sorted=sorted_)
    first, second = ([_random(max(x), len(x), 4), torch.tensor(x)] for x in lengths)
    check(module, first, second, dtypes=ONE)


def test_packed_sequences_of_a_total_length() -> None:
    module = _Packed(nn.GRU(4, 3), whole=True)
    check(module, [_random(6, 2, 4), torch.tensor([5, 3])], [_random(6, 3, 4), torch.tensor([6, 4, 1])], dtypes=ONE)


def test_data_of_packed_sequences() -> None:
    class Data(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.head = nn.LSTM(4, 3), nn.Linear(3, 2)

        def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
            packed = rnn.pack_padded_sequence(x, lengths)
            changed = rnn.PackedSequence(packed.data * 2, packed.batch_sizes)
            return self.head(self.layer(changed)[0].data)

    check(Data(), [_random(5, 2, 4), torch.tensor([5, 3])], [_random(4, 3, 4), torch.tensor([4, 4, 1])], dtypes=ONE)


@pytest.mark.parametrize("cell", [nn.LSTMCell(4, 3), nn.GRUCell(4, 3), nn.RNNCell(4, 3, nonlinearity="relu")])
def test_cells(cell: nn.Module) -> None:
    check(cell, [_random(2, 4)], [_random(5, 4)])
