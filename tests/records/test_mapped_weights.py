"""Weights that stay in their files until they are read: memory, and that nothing else changes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import lstm_lower as ll
from lstm_lower.records import mapped_weights, model_files


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="requires Linux")
@pytest.mark.parametrize(
    ("way", "times"), [("lower", 1), ("from_onnx", 1), ("gradient", 1), ("optimize", 1), ("export_training", 2)]
)
@pytest.mark.parametrize("where", ["external", "inside"])
def test_a_path_takes_no_more_than_its_weights_and_the_largest_of_them(way: str, times: int, where: str) -> None:
    """One of ten is on its way at a time; what exports a step holds its state beside it."""
    command = [sys.executable, "-m", "tests.support.memory_of_paths", way, where, "80"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert times - 0.2 < float(done.stdout) < times + 0.3


def mixed(path: Path) -> onnx.ModelProto:
    """A model with weights of many dtypes, large and small, packed ones too, and a Constant."""
    start = np.random.default_rng(0)
    x = start.standard_normal((500, 300))
    weights = [numpy_helper.from_array(x.astype(dtype), f"w_{dtype}") for dtype in ("float32", "float16", "int64")]
    weights += [helper.make_tensor("packed", onnx.TensorProto.UINT4, [1_000_001], bytes(500_001), raw=True)]
    weights += [helper.make_tensor("listed", onnx.TensorProto.FLOAT, [40_000], np.arange(40_000.0))]
    weights += [numpy_helper.from_array(np.ones(3, np.float32), "small")]
    weights += [helper.make_tensor("texts", onnx.TensorProto.STRING, [2], [b"a" * 70_000, b"b"])]
    nodes = [helper.make_node("Identity", [w.name], [f"{w.name}_out"]) for w in weights]
    results = [helper.make_tensor_value_info(f"{w.name}_out", w.data_type, w.dims) for w in weights]
    nodes.append(helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(x, "c")))
    results.append(helper.make_tensor_value_info("c", onnx.TensorProto.DOUBLE, x.shape))
    graph = helper.make_graph(nodes, "mixed", [], results, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    path.write_bytes(model.SerializeToString())
    return model


def test_what_is_mapped_is_what_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_weights, "_SMALLEST_FILE", 0)
    mixed(tmp_path / "model.onnx")
    mapped, read = (model_files.load(tmp_path / "model.onnx", mapped=mapped) for mapped in (True, False))
    kinds = {name: type(value.const_value) for name, value in mapped.graph.initializers.items()}
    large = {name for name, kind in kinds.items() if kind is mapped_weights.MappedTensor}
    assert large == {"w_float32", "w_float16", "w_int64", "packed"}
    assert list(mapped.graph.initializers) == list(read.graph.initializers)
    for name in large:
        one, two = (model.graph.initializers[name].const_value for model in (mapped, read))
        assert one is not None
        assert two is not None
        np.testing.assert_array_equal(one.numpy(), two.numpy())
        assert one.tobytes() == two.tobytes()
    assert model_files.to_proto(mapped) == model_files.to_proto(read)


def test_results_of_a_path_are_those_of_the_protobuf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_weights, "_SMALLEST_FILE", 0)
    model = mixed(tmp_path / "model.onnx")
    assert ll.lower(tmp_path / "model.onnx") == ll.lower(model)
    (tmp_path / "link.onnx").symlink_to(tmp_path / "model.onnx")
    os.link(tmp_path / "model.onnx", tmp_path / "other_name.onnx")
    for name in ("link.onnx", "other_name.onnx"):
        assert mapped_weights.without_weights(tmp_path / name) is None
        assert ll.lower(tmp_path / name) == ll.lower(model)


def test_damaged_files_are_read_as_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_weights, "_SMALLEST_FILE", 0)
    whole = mixed(tmp_path / "model.onnx").SerializeToString()
    for size in (1, 1000, len(whole) // 2, len(whole) - 1):
        (tmp_path / "model.onnx").write_bytes(whole[:size])
        with pytest.raises(ll.InvalidModelError, match="an ONNX model is required"):
            ll.lower(tmp_path / "model.onnx")
