"""Packing from and to Keras and PyTorch weights."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from lstm_lower.errors import InvalidInputError
from lstm_lower.layouts import ParamsLayout
from lstm_lower.runtime.proof.oracles.cudnn import cudnn_rnn_backprop_v3, cudnn_rnn_v3
from lstm_lower.weights import pack_keras, pack_torch, unpack_keras, unpack_torch

DATA = Path(__file__).parents[1] / "data"
RECORDED = sorted((DATA / "keras").glob("*.npz"))
MODES = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def cells_of(data: Any, name: str = "weight") -> list[list[np.ndarray]]:
    weights = [data[f"{name}_{index}"] for index in range(sum(key.startswith("weight_") for key in data) // 2)]
    return [weights[:3], weights[3:]] if len(weights) == 6 else [weights]


def check_against_keras(mode: str, data: Any) -> None:
    """A recorded or live Keras layer: forward, gradient and packing."""
    bidirectional = "weight_3" in data
    packed = pack_keras(cells_of(data), mode, bidirectional=bidirectional)
    assert packed.params.dtype == np.float32
    if "packed" in data:
        np.testing.assert_array_equal(packed.params, data["packed"])
    x, units = data["x"], packed.layout.num_units
    state = np.zeros((x.shape[0], packed.layout.pseudo_layers, units))
    call = {
        "input": x,
        "input_h": state,
        "input_c": state if mode == "lstm" else np.zeros(()),
        "params": packed.params,
        "sequence_lengths": data["lengths"],
        "rnn_mode": mode,
        "direction": "bidirectional" if bidirectional else "unidirectional",
        "time_major": False,
    }
    out = cudnn_rnn_v3(**call)
    np.testing.assert_allclose(out["output"], data["output"], rtol=0, atol=3e-6)
    grads = cudnn_rnn_backprop_v3(
        **call,
        **{name: out[name] for name in ("output", "output_h", "output_c", "reserve_space", "host_reserved")},
        output_backprop=data["output_grad"],
        output_h_backprop=np.zeros_like(state),
        output_c_backprop=np.zeros_like(out["output_c"]),
    )
    np.testing.assert_allclose(grads["input_backprop"], data["x_grad"], rtol=0, atol=1e-5)
    unpacked = unpack_keras(grads["params_backprop"], packed.layout, gradient=True)
    for got, expected in zip(unpacked, cells_of(data, "weight_grad"), strict=True):
        for part, recorded in zip(got, expected, strict=True):
            np.testing.assert_allclose(part, recorded, rtol=0, atol=2e-5)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_recorded_keras_layer(path: Path) -> None:
    with np.load(path) as data:
        check_against_keras(path.stem.split("-")[0], dict(data))


def test_there_are_recordings() -> None:
    assert len(RECORDED) == 16


@pytest.fixture(scope="module")
def recorder() -> ModuleType:
    pytest.importorskip("tensorflow")
    spec = importlib.util.spec_from_file_location("record_keras_layers", DATA / "record_keras_layers.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("ragged", [False, True])
def test_live_keras_layer(recorder: ModuleType, mode: str, ragged: bool) -> None:
    check_against_keras(mode, recorder.record(mode, bidirectional=ragged, ragged=ragged, seed=5))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("directions", [1, 2])
def test_keras_round_trip(mode: str, directions: int) -> None:
    layout = ParamsLayout(mode, 2, directions, 3, 4)
    params = np.random.default_rng(1).standard_normal(layout.size)
    cells = unpack_keras(params, layout)
    again = pack_keras(cells, mode, bidirectional=directions == 2)
    assert again.layout == layout
    for one, other in zip(unpack_keras(again.params, layout), cells, strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)
    without = pack_keras([cell[:2] for cell in cells], mode, bidirectional=directions == 2)
    biases = layout.table[0].bW.offset
    np.testing.assert_array_equal(without.params[:biases], params[:biases])
    assert not without.params[biases:].any()
    assert [len(cell) for cell in unpack_keras(params, layout, bias=False)] == [2] * 2 * directions


TORCH = [(mode, layers, two, 0) for mode in MODES for layers in (1, 2) for two in (False, True)]
TORCH += [("lstm", layers, two, 2) for layers in (1, 2) for two in (False, True)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize(("mode", "layers", "two", "proj"), TORCH)
@pytest.mark.parametrize("bias", [False, True])
def test_torch_module(mode: str, layers: int, two: bool, proj: int, bias: bool) -> None:
    torch = pytest.importorskip("torch")
    options: dict[str, Any] = {"proj_size": proj} if proj else {}
    if mode == "rnn_relu":
        options["nonlinearity"] = "relu"
    kind = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}.get(mode, torch.nn.RNN)
    module = kind(3, 4, num_layers=layers, bidirectional=two, bias=bias, **options)
    packed = pack_torch(module.state_dict(), mode)
    x = torch.randn(5, 2, 3, requires_grad=True)
    output, _ = module(x)
    loss_grad = torch.randn_like(output)
    (output * loss_grad).sum().backward()
    state = np.zeros((packed.layout.pseudo_layers, 2, packed.layout.hidden_size))
    cell = np.zeros((packed.layout.pseudo_layers, 2, 4))
    call = {
        "input": x.detach().numpy(),
        "input_h": state,
        "input_c": cell,
        "params": packed.params,
        "sequence_lengths": [5, 5],
        "rnn_mode": mode,
        "direction": "bidirectional" if two else "unidirectional",
        "num_proj": proj,
    }
    out = cudnn_rnn_v3(**call)
    np.testing.assert_allclose(out["output"], output.detach().numpy(), rtol=0, atol=1e-6)
    grads = cudnn_rnn_backprop_v3(
        **call,
        **{name: out[name] for name in ("output", "output_h", "output_c", "reserve_space", "host_reserved")},
        output_backprop=loss_grad.numpy(),
        output_h_backprop=state * 0,
        output_c_backprop=cell * 0,
    )
    unpacked = unpack_torch(grads["params_backprop"], packed.layout, bias=bias)
    parameters = dict(module.named_parameters())
    assert set(unpacked) == set(parameters)
    for name, parameter in parameters.items():
        np.testing.assert_allclose(unpacked[name], parameter.grad.numpy(), rtol=0, atol=2e-5)
    restored = {
        name: torch.tensor(value) for name, value in unpack_torch(packed.params, packed.layout, bias=bias).items()
    }
    module.load_state_dict(restored)
    assert pack_torch({f"m.{k}": v for k, v in module.state_dict().items()}, mode, prefix="m.")[1] == packed.layout


KERNEL, RECURRENT = np.zeros((3, 16)), np.zeros((4, 16))
STATE = {"weight_ih_l0": KERNEL.T, "weight_hh_l0": RECURRENT.T}


@pytest.mark.parametrize(
    ("cells", "options", "message"),
    [
        ([], {}, "cells requires a positive multiple of 1, got 0"),
        ([[KERNEL, RECURRENT]], {"bidirectional": True}, "cells requires a positive multiple of 2, got 1"),
        ([[KERNEL]], {}, r"cells\[0\] requires kernel \[in, G\*N\]"),
        ([[KERNEL.T, RECURRENT]], {}, r"cells\[0\] kernel requires shape \[16, 16\], got shape \[16, 3\]"),
        ([[KERNEL, np.zeros((4, 12))]], {}, r"cells\[0\] recurrent_kernel requires shape \[4, 16\]"),
        ([[KERNEL, RECURRENT, np.zeros(12)]], {}, r"cells\[0\] bias requires shape \[16\], got shape \[12\]"),
        ([[KERNEL, RECURRENT], [KERNEL, RECURRENT]], {}, r"cells\[1\] kernel requires shape \[4, 16\]"),
    ],
)
def test_bad_keras_weights(cells: Any, options: dict, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        pack_keras(cells, "lstm", **options)


def test_keras_gru_must_reset_after() -> None:
    with pytest.raises(InvalidInputError, match="reset_after=True"):
        pack_keras([[np.zeros((3, 12)), np.zeros((4, 12)), np.zeros(12)]], "gru")


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({}, "state requires names like weight_ih_l0"),
        ({**STATE, "fc.weight": KERNEL}, r"got \['fc.weight'\]"),
        ({"weight_ih_l0": KERNEL.T}, "matrices weight_ih_l0 and weight_hh_l0"),
        ({**STATE, "weight_ih_l1": RECURRENT.T}, "a matrix weight_hh_l1, got none"),
        ({**STATE, "weight_hr_l1": KERNEL.T}, "weight_ih_l1"),
        ({**STATE, "bias_ih_l0": np.zeros(3)}, r"bias_ih_l0 requires shape \[16\]"),
    ],
)
def test_bad_torch_weights(state: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        pack_torch(state, "lstm")


def test_what_a_framework_lacks_is_refused() -> None:
    projected, skipping = (
        ParamsLayout("lstm", 1, 1, 3, 4, num_proj=2),
        ParamsLayout("lstm", 1, 1, 4, 4, skip_input=True),
    )
    for layout in (projected, skipping):
        with pytest.raises(InvalidInputError, match="Keras has neither"):
            unpack_keras(np.zeros(layout.size), layout)
    with pytest.raises(InvalidInputError, match="PyTorch does not have it"):
        unpack_torch(np.zeros(skipping.size), skipping)
    with pytest.raises(InvalidInputError, match="params requires length"):
        unpack_torch(np.zeros(3), projected)
