"""Low-rank matrices beside weights of any kind, next to the same written in PyTorch as PEFT's layers compute it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest
import safetensors.numpy
from onnxruntime.quantization import quantize_dynamic

import lstm_lower as ll
from lstm_lower.errors import InvalidInputError
from tests.support.command_line import run, succeed
from tests.support.quantized_models import FORMATS, KINDS, data, quantized

Array = np.ndarray[Any, Any]
RANDOM = np.random.default_rng(0)
X, TARGET = RANDOM.standard_normal((5, 6, 8), np.float32), np.array([0, 1, 2, 1, 0])
RANK, ALPHA, STEPS = 2, 6.0, 10
RATE = 0.05


def _model(text: str, **weights: Array) -> onnx.ModelProto:
    model = onnx.parser.parse_model(text)
    for name, value in weights.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, name.replace("__", ".")))
    return model


def _random(*shape: int) -> Array:
    return RANDOM.uniform(-0.5, 0.5, shape).astype(np.float32)


HEAD = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]> f (float[B,6,8] x) => (float[B,3] y) '
LAYERS = {
    "up__weight": _random(8, 16), "conv__weight": _random(7, 6, 3), "conv__bias": _random(7),
    "out__weight": _random(3, 7)
}  # fmt: skip


def _layers() -> onnx.ModelProto:
    """A product of a batch of matrices, a convolution, and a Gemm of a transposed weight."""
    return _model(
        HEAD
        + """{ a = MatMul(x, up.weight)  b = Tanh(a)  c = Conv<pads = [1, 1]>(b, conv.weight, conv.bias)  d = Relu(c)
        e = ReduceMean<axes = [2], keepdims = 0>(d)  y = Gemm<transB = 1>(e, out.weight) }""".replace(
            ".weight", "__weight"
        ).replace(".bias", "__bias"),
    )


def _named(model: onnx.ModelProto, weights: dict[str, Array]) -> onnx.ModelProto:
    """With weights under names with points, which the parser does not read."""
    for node in model.graph.node:
        node.input[:] = [name.replace("__", ".") for name in node.input]
    for name, value in weights.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, name.replace("__", ".")))
    return model


def _packed(weight: Array, block: int) -> tuple[Array, Array, Array]:
    """A weight [K, N] in 4 bits as MatMulNBits reads it, its scales, and what these stand for."""
    size, out = weight.shape
    blocks = weight.T.reshape(out, size // block, block)
    scales = np.abs(blocks).max(-1) / 7
    numbers = np.clip(np.round(blocks / scales[..., None]), -8, 7)
    held = (numbers * scales[..., None]).reshape(out, size).T.astype(np.float32)
    codes = (numbers + 8).astype(np.uint8)
    return codes[..., ::2] | codes[..., 1::2] << 4, scales.astype(np.float32).reshape(-1), held


def _trained(model: onnx.ModelProto) -> tuple[dict[str, Array], list[float], ll.Trainer]:
    """First values of the matrices, and what training makes of the losses."""
    adapted = ll.lora(model, RANK, alpha=ALPHA)
    trainer = ll.Trainer(ll.from_onnx(adapted, "cross_entropy", "sgd"), learning_rate=RATE)
    first = {pair.input: trainer.state_dict()[pair.input] for pair in trainer.state.pairs if pair.role == "weight"}
    assert all(".lora_" in name for name in first)
    assert all(np.all(value == 0) == (".lora_B." in name) for name, value in first.items())
    losses = [trainer.step({"x": X, "target": TARGET}).loss for _ in range(STEPS)]
    return first, losses, trainer


def _followed(
    first: dict[str, Array], forward: Callable[[dict[str, Any]], Any], losses: list[float]
) -> dict[str, Array]:
    """Compares losses with those of PyTorch; returns its matrices."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    held = {name: torch.tensor(value, requires_grad=True) for name, value in first.items()}
    optimizer = torch.optim.SGD(held.values(), RATE)
    expected = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(forward(held), torch.tensor(TARGET))
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    assert losses[-1] < losses[0]
    return {name: value.detach().numpy() for name, value in held.items()}


def _layers_in_torch(held: dict[str, Any]) -> Any:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    f = torch.nn.functional
    weights = {name.replace("__", "."): torch.tensor(value) for name, value in LAYERS.items()}
    a, b = (
        {name: held[f"base_model.model.{name}.lora_{which}.weight"] for name in ("up", "conv", "out")} for which in "AB"
    )
    scale = ALPHA / RANK
    x = torch.tensor(X)
    x = torch.tanh(x @ weights["up.weight"] + f.linear(f.linear(x, a["up"]), b["up"]) * scale)
    added = f.conv1d(f.conv1d(x, a["conv"], padding=1), b["conv"]) * scale
    x = torch.relu(f.conv1d(x, weights["conv.weight"], weights["conv.bias"], padding=1) + added).mean(2)
    return f.linear(x, weights["out.weight"]) + f.linear(f.linear(x, a["out"]), b["out"]) * scale


def test_layers_follow_pytorch(tmp_path: Path) -> None:
    first, losses, trainer = _trained(_named(_layers(), LAYERS))
    expected = _followed(first, _layers_in_torch, losses)
    state = trainer.state_dict()
    for name, value in expected.items():
        np.testing.assert_allclose(state[name], value, rtol=1e-3, atol=1e-5)
    assert state["base_model.model.conv.lora_A.weight"].shape == (RANK, 6, 3)
    # To PEFT's files, and back into the model.
    ll.export_peft(trainer, tmp_path)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert (config["peft_type"], config["r"], config["lora_alpha"]) == ("LORA", RANK, ALPHA)
    assert config["target_modules"] == ["up", "conv", "out"]
    held = safetensors.numpy.load_file(tmp_path / "adapter_model.safetensors")
    assert held.keys() == first.keys()
    again = ll.lora(_named(_layers(), LAYERS), adapter=tmp_path)
    (result,) = ort.InferenceSession(again.SerializeToString()).run(None, {"x": X})
    np.testing.assert_allclose(result, trainer.predict({"x": X})["y"], rtol=1e-5, atol=1e-6)


def test_the_base_stays_bit_for_bit(tmp_path: Path) -> None:
    """And lies in a bundle once; what leaves it are the matrices alone."""
    weights = {
        **LAYERS,
        "up__weight": _random(8, 16),
        "conv__weight": _random(70, 6, 3),
        "conv__bias": _random(70),
        "out__weight": _random(3, 70),
    }
    model = _named(_layers(), weights)
    before = ort.InferenceSession(model.SerializeToString()).run(None, {"x": X})[0]
    adapted = ll.lora(model, RANK, targets=["conv", "o*"])
    np.testing.assert_array_equal(ort.InferenceSession(adapted.SerializeToString()).run(None, {"x": X})[0], before)
    step = ll.from_onnx(adapted, "cross_entropy", "adam")
    trainer = ll.Trainer(step)
    trainer.step({"x": X, "target": TARGET})
    ll.export_training(trainer, tmp_path / "bundle")
    ll.export_adapter(tmp_path / "bundle", trainer, tmp_path / "adapter.safetensors")
    names = {f"base_model.model.{name}.lora_{which}.weight" for name in ("conv", "out") for which in "AB"}
    assert set(safetensors.numpy.load_file(tmp_path / "adapter.safetensors")) == names
    merged = ll.merge(tmp_path / "bundle", tmp_path / "adapter.safetensors")
    held = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in merged.graph.initializer}
    for name, value in weights.items():
        np.testing.assert_array_equal(held[name.replace("__", ".")], value)


def test_a_base_of_eight_bits() -> None:
    """Integers with a scale for each column, made floats by DequantizeLinear."""
    codes = RANDOM.integers(-100, 100, (8, 3)).astype(np.int8)
    scales = RANDOM.uniform(0.001, 0.01, 3).astype(np.float32)
    model = _model(
        HEAD + """{ m = ReduceMean<axes = [1], keepdims = 0>(x)
        w = DequantizeLinear<axis = 1>(q, s)  y = MatMul(m, w) }""",
        q=codes, s=scales,
    )  # fmt: skip
    first, losses, trainer = _trained(model)
    weight = codes * scales
    assert set(first) == {"base_model.model.q.lora_A.weight", "base_model.model.q.lora_B.weight"}
    _followed(first, lambda held: _one_layer(held, "q", weight), losses)
    assert any(node.op_type == "DequantizeLinear" for node in trainer.model.graph)


def test_a_base_of_four_bits() -> None:
    """MatMulNBits, whose weight stays packed in the file."""
    codes, scales, weight = _packed(_random(64, 3), 32)
    model = _model(
        HEAD + """{ s = Constant<value = int64[2] {0, 48}>()  f = Reshape(x, s)  n = Concat<axis = 1>(f, f)
        c = Constant<value = int64[1] {0}>()  e = Constant<value = int64[1] {64}>()
        o = Constant<value = int64[1] {1}>()
        g = Slice(n, c, e, o)  y = com.microsoft.MatMulNBits<K = 64, N = 3, bits = 4, block_size = 32>(g, q, z) }""",
        q=codes, z=scales,
    )  # fmt: skip
    first, losses, trainer = _trained(model)
    flat = np.concatenate([X.reshape(5, 48)] * 2, axis=1)[:, :64]
    _followed(first, lambda held: _one_layer(held, "q", weight, flat), losses)
    _check_packed(trainer, codes)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", KINDS)
def test_networks_of_integers(kind: str, form: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """As onnxruntime's quantizers write them: what they compute stays, integers stay, and all layers are trained."""
    model = quantized(kind, form, tmp_path_factory.getbasetemp())
    before = ort.InferenceSession(model.SerializeToString()).run(None, {"x": data(kind)})[0]
    floats = ll.lora(quantized(kind, "float", tmp_path_factory.getbasetemp()), RANK)
    adapted = ll.lora(model, RANK)
    assert len(_matrices(adapted)) == len(_matrices(floats))
    trainer = ll.Trainer(ll.from_onnx(adapted, "cross_entropy", "adam"), learning_rate=0.02)
    np.testing.assert_allclose(
        trainer.predict({"x": data(kind)})["y"], before, atol=0.02 if kind in ("lstm", "crnn") else 0
    )
    classes = RANDOM.integers(0, 3, len(before))
    first = trainer.state_dict()
    losses = [trainer.step({"x": data(kind), "target": classes}).loss for _ in range(15)]
    assert losses[-1] < 0.95 * losses[0]
    assert all(np.any(trainer.state_dict()[name] != first[name]) for name in _matrices(adapted))
    held = trainer.model.graph.initializers
    for tensor in model.graph.initializer:
        if tensor.name.endswith("_quantized") and tensor.dims[1:]:
            own = held[tensor.name].const_value
            assert own is not None
            np.testing.assert_array_equal(own.numpy(), onnx.numpy_helper.to_array(tensor))


def _matrices(model: onnx.ModelProto) -> list[str]:
    return [tensor.name for tensor in model.graph.initializer if ".lora_" in tensor.name]


def _check_packed(trainer: ll.Trainer, codes: Array) -> None:
    """The base is in the step as it came, and is no state."""
    tensor = trainer.model.graph.initializers["q"].const_value
    assert tensor is not None
    np.testing.assert_array_equal(tensor.numpy(), codes)
    assert all(".lora_" in pair.input for pair in trainer.state.pairs if pair.role == "weight")


def _one_layer(held: dict[str, Any], name: str, weight: Array, x: Array | None = None) -> Any:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    f = torch.nn.functional
    a, b = (held[f"base_model.model.{name}.lora_{which}.weight"] for which in "AB")
    given = torch.tensor(X.mean(1) if x is None else x)
    return given @ torch.tensor(weight) + f.linear(f.linear(given, a), b) * (ALPHA / RANK)


# The rows of ONNX's gates in the order of PyTorch's.
ORDERS = {"LSTM": [0, 2, 3, 1], "GRU": [1, 0, 2]}


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_recurrent_layers_follow_pytorch(kind: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    order, size = ORDERS[kind], 5
    count = len(order) * size
    weights = {
        "w": _random(2, count, 8),
        "r": _random(2, count, size),
        "b": _random(2, 2 * count),
        "v": _random(2 * size, 3),
    }
    option, cell = (", linear_before_reset = 1", "") if kind == "GRU" else ("", ", k")
    model = _model(
        HEAD
        + f"""{{ t = Transpose<perm = [1, 0, 2]>(x)
        s, h{cell} = {kind}<hidden_size = {size}, direction = "bidirectional"{option}>(t, w, r, b)
        p = Transpose<perm = [1, 0, 2]>(h)  z = Constant<value = int64[2] {{0, {2 * size}}}>()
        q = Reshape(p, z)  y = MatMul(q, v) }}""",
        **weights,
    )
    module = getattr(torch.nn, kind)(8, size, bidirectional=True, batch_first=True)

    def rows(each: Any) -> Any:
        return torch.cat([each[number * size : (number + 1) * size] for number in order])

    def forward(held: dict[str, Any]) -> Any:
        values = {}
        for direction, suffix in enumerate(("", "_reverse")):
            for own, theirs in (("w", "ih"), ("r", "hh")):
                a, b = (held[f"base_model.model.{own}.lora_{which}.weight"][direction] for which in "AB")
                values[f"weight_{theirs}_l0{suffix}"] = rows(
                    torch.tensor(weights[own][direction]) + b @ a * (ALPHA / RANK)
                )
            for part, theirs in enumerate(("ih", "hh")):
                bias = weights["b"][direction][part * count : (part + 1) * count]
                values[f"bias_{theirs}_l0{suffix}"] = rows(torch.tensor(bias))
        _, last = torch.func.functional_call(module, values, (torch.tensor(X),))
        h = last[0] if kind == "LSTM" else last
        x = torch.cat([h[0], h[1]], 1)
        a, b = (held[f"base_model.model.v.lora_{which}.weight"] for which in "AB")
        return x @ torch.tensor(weights["v"]) + x @ a.T @ b.T * (ALPHA / RANK)

    first, losses, trainer = _trained(model)
    assert first["base_model.model.w.lora_B.weight"].shape == (2, count, RANK)
    _followed(first, forward, losses)
    with pytest.raises(InvalidInputError, match="export_peft requires linear layers"):
        ll.export_peft(trainer, tmp_path / "peft")


def test_what_does_not_fit(tmp_path: Path) -> None:
    model = _named(_layers(), LAYERS)
    for options, message in [
        ({"rank": 0}, "rank requires"),
        ({"alpha": -1}, "alpha requires"),
        ({"targets": ["down"]}, "targets requires names.* up, conv, out, got 'down'"),
        ({"targets": []}, "targets requires"),
    ]:
        with pytest.raises(InvalidInputError, match=message):
            ll.lora(model, **options)  # type: ignore[arg-type]
    adapted = ll.lora(model)
    with pytest.raises(InvalidInputError, match="without low-rank matrices"):
        ll.lora(adapted)
    with pytest.raises(InvalidInputError, match=r"export_peft requires a step of what ll\.lora returned"):
        ll.export_peft(ll.Trainer(ll.from_onnx(model, "cross_entropy", "sgd")), tmp_path / "peft")
    assert not (tmp_path / "peft").exists()
    ll.export_peft(ll.Trainer(ll.from_onnx(adapted, "cross_entropy", "sgd")), tmp_path / "peft")
    config = json.loads((tmp_path / "peft" / "adapter_config.json").read_text())
    for change, message in [
        ({"use_dora": True}, "'use_dora' requires"),
        ({"peft_type": "IA3"}, "type LORA"),
        ({"r": 3}, "shape"),
    ]:
        (tmp_path / "peft" / "adapter_config.json").write_text(json.dumps({**config, **change}))
        with pytest.raises(InvalidInputError, match=message):
            ll.lora(model, adapter=tmp_path / "peft")
    with pytest.raises(FileNotFoundError):
        ll.lora(model, adapter=tmp_path)


def test_the_command(tmp_path: Path) -> None:
    onnx.save(_named(_layers(), LAYERS), tmp_path / "model.onnx")
    told = json.loads(succeed("lora", tmp_path / "model.onnx", "--rank", 2, "--targets", "conv,out", "--json"))
    assert told["modules"] == {"conv": "convolution", "out": "linear"}
    assert told["numbers"] == 2 * (6 * 3 + 7) + 2 * (7 + 3)
    succeed(
        "export",
        tmp_path / "model.lora.onnx",
        "-o",
        tmp_path / "bundle",
        "--loss",
        "cross_entropy",
        "--optimizer",
        "adam",
    )
    about = json.loads((tmp_path / "bundle" / "training.json").read_text())
    assert {pair["input"] for pair in about["state"] if pair["role"] == "weight"} == {
        f"base_model.model.{name}.lora_{which}.weight" for name in ("conv", "out") for which in "AB"
    }
    assert run("lora", tmp_path / "model.onnx", "--targets", "down").exit_code == 1


def test_fused_attention_of_integers(tmp_path: Path) -> None:
    """A model with onnxruntime's Attention, as its quantizer writes it: losses are near those of floats."""
    random = np.random.default_rng(0)
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 17, "com.microsoft" : 1]>
        f (float[B,6,8] x) => (float[B,3] y) { a = com.microsoft.Attention<num_heads = 2>(x, w, b)
        p = ReduceMean<axes = [1], keepdims = 0>(a)  c = MatMul(p, v)  y = Add(c, d) }""")
    for name, shape in {"w": (8, 24), "b": (24,), "v": (8, 3), "d": (3,)}.items():
        value = random.uniform(-0.5, 0.5, shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    onnx.save(model, tmp_path / "floats.onnx")
    options = {"DefaultTensorType": onnx.TensorProto.FLOAT}
    quantize_dynamic(tmp_path / "floats.onnx", tmp_path / "integers.onnx", extra_options=options)
    integers = onnx.load(tmp_path / "integers.onnx")
    assert "QAttention" in {node.op_type for node in integers.graph.node}
    feeds = {"x": random.standard_normal((12, 6, 8)).astype(np.float32), "target": np.arange(12) % 3}
    before, lowered = (
        ort.InferenceSession(each.SerializeToString()).run(None, {"x": feeds["x"]})[0]
        for each in (integers, ll.lower(integers))
    )
    np.testing.assert_allclose(lowered, before, rtol=1e-5, atol=1e-5)
    trainers = [
        ll.Trainer(ll.from_onnx(ll.lora(each, rank=2), "cross_entropy", "adam"), learning_rate=0.03)
        for each in (integers, model)
    ]
    losses = [[trainer.step(feeds).loss for _ in range(12)] for trainer in trainers]
    np.testing.assert_allclose(losses[0], losses[1], rtol=0.01)
    assert losses[0][-1] < 0.7 * losses[0][0]
