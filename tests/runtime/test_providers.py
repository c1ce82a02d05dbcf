"""Providers by name: the table's rows, plug-ins on machines that have and have not got their devices, precision."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnx.helper as oh
import onnx.numpy_helper as nh
import onnxruntime as ort
import pytest

import lstm_lower as ll
from lstm_lower.errors import InvalidInputError
from lstm_lower.passes.targets.table import TARGETS
from lstm_lower.runtime import buffers, providers
from lstm_lower.runtime.processor import features
from lstm_lower.runtime.providers import ROWS, row_of
from tests.support.command_line import run, succeed
from tests.support.provider_plugins import PLUGINS, needs, runs_here

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (8, 64)).astype(np.float32)
W = RNG.uniform(-1, 1, (64, 16)).astype(np.float32)
# What neither rounding to bfloat16 nor to halves leaves.
CLOSE = 1e-5


def product() -> onnx.ModelProto:
    """`tanh(x @ w)`, the weight constant: some providers keep constants in fewer digits."""
    nodes = [oh.make_node("MatMul", ["x", "w"], ["xw"]), oh.make_node("Tanh", ["xw"], ["y"])]
    forms = [oh.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in (("x", ["N", 64]), ("y", ["N", 16]))]
    graph = oh.make_graph(nodes, "product", forms[:1], forms[1:], [nh.from_array(W, "w")])
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", 18)], ir_version=8)


def error(session: ll.Session) -> float:
    expected = np.tanh(X.astype(np.float64) @ W.astype(np.float64))
    return float(np.abs(session.run({"x": X})["y"] - expected).max())


@pytest.mark.parametrize("short", PLUGINS)
def test_a_plugin_computes_in_float32(short: str) -> None:
    needs(short)
    session = ll.Session(product(), [short])
    assert session.ort.get_providers() == [row_of(short).name, "CPUExecutionProvider"]
    assert error(session) < CLOSE


@pytest.mark.parametrize(("short", "precision"), [("openvino", "bfloat16"), ("ggml", "float16")])
def test_a_lower_precision_is_asked_for_by_name(short: str, precision: str) -> None:
    needs_precision(short, precision)
    assert CLOSE < error(ll.Session(product(), [short], precision=precision)) < 0.1


def needs_precision(short: str, precision: str) -> None:
    needs(short)
    units, there = row_of(short).units.get(precision), features()
    if units and there is not None and there.isdisjoint(units):
        pytest.skip(f"{short} computes in {precision} on processors with {' or '.join(units)}")


def trained(precision: str, rate: float, steps: int) -> tuple[list[float], np.ndarray]:
    """Losses of a step on OpenVINO, and its weight afterwards."""
    trainer = ll.Trainer(ll.from_onnx(product(), "mse", "sgd"), ["openvino"], learning_rate=rate, precision=precision)
    x, target = trainer.inputs
    losses = [float(trainer.step({x: X, target: X[:, :16]}).loss) for _ in range(steps)]
    return losses, trainer.state_dict()["w"]


def test_steps_in_bfloat16_follow_those_in_float32() -> None:
    needs_precision("openvino", "bfloat16")
    expected, _ = trained("float32", 0.5, 40)
    losses, _ = trained("bfloat16", 0.5, 40)
    assert expected[-1] < 0.7 * expected[0]
    assert losses == pytest.approx(expected, rel=0.02)


def test_weights_stay_in_float32_where_products_are_in_bfloat16() -> None:
    """Updates far below a digit of bfloat16 add up."""
    needs_precision("openvino", "bfloat16")
    _, expected = trained("float32", 1e-4, 50)
    _, weight = trained("bfloat16", 1e-4, 50)
    assert np.abs(expected - W).max() < 2**-10 * np.abs(W).max()
    np.testing.assert_allclose(weight - W, expected - W, rtol=0.1, atol=0.05 * np.abs(expected - W).max())


@pytest.mark.parametrize("short", PLUGINS)
def test_a_machine_without_the_device_is_named(short: str) -> None:
    pytest.importorskip(row_of(short).plugin.package)  # type: ignore[union-attr]
    with pytest.raises(
        InvalidInputError, match=rf"provider '{short}' requires a device of type FPGA .+, got CPU by \w+"
    ):
        ll.Session(product(), [(short, {"device_type": "FPGA"})])
    if short == "webgpu":
        # Whether a driver has a device shows when one opens.
        return
    makers = {device.device.vendor for device in ort.get_ep_devices()}
    if short == "openvino" and not any("Intel" in maker for maker in makers):
        with pytest.raises(InvalidInputError, match=r"type CPU among Intel's .+ got CPU by \w+; providers=\['cpu'\]"):
            ll.Session(product(), [short])
    else:
        assert runs_here(short)


@pytest.mark.skipif(sys.platform != "linux", reason="drivers for Vulkan are named so on Linux")
def test_a_machine_without_a_driver_for_vulkan(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime_ep_webgpu")
    onnx.save(product(), tmp_path / "product.onnx")
    words = ["-c", "from lstm_lower.cli.main import app; app(['run', 'product.onnx', '-p', 'webgpu', '--dim', 'N=2'])"]
    none = {"PATH": "", "COLUMNS": "200", "VK_DRIVER_FILES": "/dev/null", "VK_ICD_FILENAMES": "/dev/null"}
    environment = {**none, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 1
    expected = (
        "error: provider 'webgpu' requires one of the GPUs with a driver for Vulkan, Metal or Direct3D 12 (on Linux,"
    )
    expected += " libvulkan.so.1 and a driver for Vulkan: docs/providers.md), and opens none on this machine, got "
    assert expected + "'Failed to get a WebGPU adapter" in done.stderr
    assert done.stderr.endswith("; providers=['cpu'] runs here\n")


def test_a_gpu_comes_before_what_stands_beside_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    row = row_of("webgpu")
    assert row.plugin is not None
    found = [SimpleNamespace(device=SimpleNamespace(type=SimpleNamespace(name=kind))) for kind in ("CPU", "GPU")]
    monkeypatch.setattr(providers, "_offered", lambda _: found)
    monkeypatch.setattr(providers, "_open", lambda *_: None)
    assert providers.devices(row, row.plugin, {}) == ([found[1]], {})
    assert providers.devices(row, row.plugin, {"device_type": "cpu", "a": 1}) == ([found[0]], {"a": "1"})
    found.pop()
    assert providers.devices(row, row.plugin, {}) == ([found[0]], {})


def test_buffers_on_a_device_of_a_plugin() -> None:
    needs("webgpu")
    session = ll.Session(product(), ["webgpu"])
    (device,) = buffers.input_devices(session.ort).values()
    assert device.kind == "WebGPU_Buf"
    for dtype in (np.float32, np.float16, np.int64, np.int32, np.uint8, np.bool_):
        for shape in ((), (3,), (5, 7), (0, 3)):
            array = RNG.integers(0, 2, shape).astype(dtype)
            copied = buffers.host_copy(buffers.buffer(array, device))
            assert (copied.dtype, copied.shape) == (array.dtype, shape)
            np.testing.assert_array_equal(copied, array)
    with pytest.raises(
        InvalidInputError, match=r"in whose memory onnxruntime makes buffers, got 'WebGPU_Buf': .+\['cpu'\]"
    ):
        buffers.buffer(np.zeros(3, object), device)


@pytest.mark.parametrize("short", PLUGINS)
def test_a_plugin_trains_as_the_processor_does(short: str) -> None:
    needs(short)
    step = ll.from_onnx(product(), "mse", "adam")
    losses = {}
    for provider in ("cpu", short):
        trainer = ll.Trainer(step, [provider], learning_rate=0.05)
        x, target = trainer.inputs
        losses[provider] = [float(trainer.step({x: X, target: X[:, :16] + k}).loss) for k in range(6)]
        scores = trainer.evaluate({x: X, target: X[:, :16]})
        losses[provider].append(scores["loss"])
    assert losses[short] == pytest.approx(losses["cpu"], rel=1e-5)


def test_random_numbers_on_webgpu_are_the_processors() -> None:
    needs("webgpu")
    text = """<ir_version: 8, opset_import: ["" : 18]>
      g (float[N,64] x) => (float[N,64] y) <float r = {0.5}, bool t = {1}>
      { d = Dropout(x, r, t) y = Mul(d, w) }"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(nh.from_array(W[:, 0], "w"))
    step = ll.from_onnx(model, "mse", "sgd")
    losses = {}
    for provider in ("cpu", "webgpu"):
        trainer = ll.Trainer(step, [provider], learning_rate=0.05)
        x, target = trainer.inputs
        losses[provider] = [float(trainer.step({x: X, target: X}).loss) for _ in range(3)]
    assert losses["webgpu"] == pytest.approx(losses["cpu"], rel=1e-5)
    assert len(set(losses["cpu"])) == 3


def test_precision_is_one_that_a_provider_offers() -> None:
    expected = r"requires one of \['float32'\], which \['cpu'\] offer, got 'bfloat16', which \['openvino'\] offer"
    with pytest.raises(InvalidInputError, match=expected):
        ll.Session(product(), ["cpu"], precision="bfloat16")
    with pytest.raises(InvalidInputError, match=r"which \['cpu'\] offer, got 'float8'$"):
        ll.Session(product(), precision="float8")
    assert error(ll.Session(product(), precision="float32")) < CLOSE


def installed(monkeypatch: pytest.MonkeyPatch, flags: str | None, *shorts: str) -> None:
    """Makes some providers be there, on a processor with some features."""

    def named(provider: Any) -> tuple[providers.Row, dict[str, Any]]:
        name, options = provider if isinstance(provider, tuple) else (provider, {})
        if row_of(name).short not in shorts:
            raise InvalidInputError(f"provider '{name}' is not here")
        return row_of(name), options

    monkeypatch.setattr(providers, "_named", named)
    monkeypatch.setattr(providers, "features", lambda: None if flags is None else frozenset(flags.split()))
    monkeypatch.setattr(providers, "processor", lambda: "a processor")


@pytest.mark.parametrize("flags", ["avx512f amx_bf16", "avx512_bf16", None])
def test_a_precision_alone_chooses_its_provider(flags: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, flags, "cpu", "openvino", "ggml")
    ((name, options),) = providers.resolve(None, "bfloat16")
    assert name == "OpenVINOExecutionProvider"
    assert '"bf16"' in options["load_config"]
    assert providers.resolve(None, "float32") == [("CPUExecutionProvider", {})]


def test_a_precision_without_units_for_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "avx512f", "cpu", "openvino")
    expected = r"requires a processor with amx_bf16 or avx512_bf16 among the flags of /proc/cpuinfo, got a processor"
    for wanted in ("openvino", None):
        with pytest.raises(InvalidInputError, match=expected):
            providers.resolve(wanted, "bfloat16")
    assert providers.resolve("openvino")
    assert providers.resolve(("openvino", {"device_type": "GPU"}), "bfloat16"), "whose units these are not"
    with pytest.raises(InvalidInputError, match="got none on this machine: provider 'cuda' is not here"):
        providers.resolve(None, "tf32")


@pytest.mark.parametrize("precision", [None, "float32", "bfloat16"])
def test_openvino_is_told_its_precision_beside_what_it_is_told(precision: str | None, tmp_path: Path) -> None:
    row = row_of("openvino")
    hint = "bf16" if precision == "bfloat16" else "f32"
    assert json.loads(row.configure({}, precision)["load_config"])["CPU"] == {"INFERENCE_PRECISION_HINT": hint}
    text = json.dumps({"CPU": {"INFERENCE_NUM_THREADS": 2}})
    (tmp_path / "config.json").write_text(text)
    for given in (text, str(tmp_path / "config.json")):
        config = json.loads(row.configure({"load_config": given}, precision)["load_config"])
        assert config["CPU"] == {"INFERENCE_PRECISION_HINT": hint, "INFERENCE_NUM_THREADS": 2}
    own = json.dumps({"CPU": {"INFERENCE_PRECISION_HINT": "bf16"}})
    assert json.loads(row.configure({"load_config": own})["load_config"])["CPU"]["INFERENCE_PRECISION_HINT"] == "bf16"


@pytest.mark.parametrize("given", ["{", "[1]", "nowhere.json", '{"CPU": 1}', 5])
def test_a_configuration_that_is_none(given: Any) -> None:
    with pytest.raises(InvalidInputError, match="option 'load_config' requires JSON, or a file of it"):
        row_of("openvino").configure({"load_config": given})


def test_cuda_multiplies_with_all_digits() -> None:
    assert row_of("cuda").configure({"device_id": 1}) == {"device_id": 1, "use_tf32": "0"}
    assert row_of("cuda").configure({}, "tf32") == {"use_tf32": "1"}
    assert row_of("CUDAExecutionProvider").configure({"use_tf32": "1"}) == {"use_tf32": "1"}


def test_models_are_lowered_for_every_provider_but_the_processor() -> None:
    assert {row.short for row in ROWS if row.target not in TARGETS} == {"cpu"}
    for short, target in (("cuda", "cuda"), ("cuda-graph", "cuda-graph")):
        resolved = [(row_of(short).name, row_of(short).configure({}))]
        assert providers.target_of(resolved) == target
        assert providers.target_of(providers.uncaptured(resolved)) == "cuda"


def test_what_is_resolved_may_be_resolved_again() -> None:
    for short in ("cpu", *filter(runs_here, PLUGINS)):
        once = providers.resolve([short])
        assert providers.resolve(once) == once == [(row_of(short).name, row_of(short).configure({}))]


def test_session_options_open_several_sessions() -> None:
    needs("ggml")
    options = ort.SessionOptions()
    for wanted in (["ggml"], ["ggml"], None):
        session = ll.Session(product(), wanted, options)
        assert session.ort.get_providers()[0] == "ggml"
        assert error(session) < CLOSE
    with pytest.raises(InvalidInputError, match="session options that hold providers require the same, or None, got"):
        ll.Session(product(), ["ggml"], options, precision="float16")


@pytest.mark.parametrize("short", ["ggml", "webgpu"])
def test_command_line(short: str, tmp_path: Path) -> None:
    needs(short)
    path = tmp_path / "product.onnx"
    onnx.save(product(), path)
    assert " ms" in succeed("run", path, "-p", short, "--dim", "N=2")
    assert "passed" in succeed("check", path, "-p", short)
    if short == "webgpu":
        return
    # Halves are further from float64 than float32's tolerance allows.
    assert run("check", path, "-p", "ggml", "--precision", "float16").exit_code == 1
