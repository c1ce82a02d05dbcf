"""How much memory a model's weights take on their way through a function that is given its path.

`python -m tests.support.memory_of_paths lower external 500` prints how much memory at most `ll.lower` takes for a model
of 500 MB, as a multiple of its weights: `lower`, `from_onnx`, `gradient`, `optimize`, or `export_training` of a step of
it; `external` or `inside`.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

import lstm_lower as ll

_COUNT, _ROWS, _MEGABYTE = 10, 256, 1e6
_WAYS: dict[str, Callable[[Path], Any]] = {
    "lower": ll.lower,
    "from_onnx": lambda path: ll.from_onnx(path, "y", "sgd"),
    "gradient": lambda path: ll.gradient(path, "y"),
    "optimize": ll.optimize,
    "export_training": lambda path: ll.export_training(
        ll.from_onnx(path, "y", "sgd"), path.parent / "bundle", files=["init", "train"], external_data=True
    ),
}


def write(folder: Path, where: str, megabytes: float) -> Path:
    """A model of ten products, whose weights lie in external data or inside its file."""
    columns = int(megabytes * _MEGABYTE / 4 / _ROWS / _COUNT)
    tensors, nodes = [], []
    with (folder / "weights").open("wb") as file:
        for number in range(_COUNT):
            values = np.random.default_rng(number).standard_normal((_ROWS, columns), dtype=np.float32)
            tensor = onnx.TensorProto(name=f"w{number}", data_type=1, dims=values.shape)
            if where == "external":
                tensor.data_location = onnx.TensorProto.EXTERNAL
                places = {"location": "weights", "offset": file.tell(), "length": values.nbytes}
                for key, value in places.items():
                    tensor.external_data.add(key=key, value=str(value))
                file.write(values.tobytes())
            else:
                tensor.raw_data = values.tobytes()
            tensors.append(tensor)
            nodes.append(helper.make_node("MatMul", ["x", f"w{number}"], [f"h{number}"]))
    nodes.append(helper.make_node("Sum", [f"h{number}" for number in range(_COUNT)], ["sum"]))
    nodes.append(helper.make_node("ReduceMean", ["sum"], ["y"], keepdims=0))
    ends = [helper.make_tensor_value_info("x", 1, ["rows", _ROWS])], [helper.make_tensor_value_info("y", 1, [])]
    graph = helper.make_graph(nodes, "products", *ends, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return folder / "model.onnx"


def ratio(way: str, where: str, megabytes: float) -> float:
    """The memory that is taken at most, over the weights; what a first call imports is not counted."""
    with tempfile.TemporaryDirectory() as folder:
        _WAYS[way](write(Path(folder), where, 0.1))
        path = write(Path(folder), where, megabytes)
        # From here on the kernel looks for the most anew.
        Path("/proc/self/clear_refs").write_text("5")
        before = _most()
        _WAYS[way](path)
    return (_most() - before) / _MEGABYTE / megabytes


def _most() -> int:
    """The most memory that the process has taken, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


if __name__ == "__main__":
    sys.stdout.write(f"{ratio(sys.argv[1], sys.argv[2], float(sys.argv[3])):.2f}\n")
