"""Small files that stand for any amount of work are refused, and say what allows it; damaged ones end in our errors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import lstm_lower as ll
from lstm_lower.budget import VARIABLE
from lstm_lower.checkpoints.bundle import open_checkpoint
from lstm_lower.checkpoints.checksums import crc32c, masked
from lstm_lower.checkpoints.messages import GraphDef
from lstm_lower.errors import InvalidInputError, InvalidModelError, LstmLowerError, OverBudgetError
from lstm_lower.runtime.feeds import read_arrays

FLOAT = 1


def graph(tmp_path: Path, functions: int, calls: int = 1, first: str = "Relu") -> Path:
    """A graph that calls the last of some functions, each of which calls the one before so many times in a row."""
    proto = GraphDef()
    proto.node.add(name="x", op="Placeholder").attr["dtype"].type = FLOAT
    for number in range(functions):
        function = proto.library.function.add()
        function.signature.name = f"F{number}"
        function.signature.input_arg.add(name="a", type=FLOAT)
        function.signature.output_arg.add(name="r", type=FLOAT)
        before = "a"
        for place in range(calls if number else 1):
            op = f"F{number - 1}" if number else first
            node = function.node_def.add(name=f"n{place}", op=op, input=[before])
            if op == "Relu":
                node.attr["T"].type = FLOAT
            before = f"n{place}:{'activations' if op == 'Relu' else 'r'}:0"
        function.ret["r"] = before
    proto.node.add(name="out", op=f"F{functions - 1}", input=["x"])
    (tmp_path / "graph.pb").write_bytes(proto.SerializeToString())
    return tmp_path / "graph.pb"


def imported(path: Path) -> onnx.ModelProto:
    return ll.from_tensorflow(path, ["x:0"], ["out:0"], shapes={"x:0": [2]})


def test_functions_that_call_each_other_three_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = graph(tmp_path, 28, 3)
    with pytest.raises(OverBudgetError, match=r"'F27' requires at most 1,000,000 nodes, got 19,063,993,712,466"):
        imported(path)
    path = graph(tmp_path, 4, 3)
    monkeypatch.setenv(VARIABLE, "nodes=65")
    with pytest.raises(OverBudgetError, match=r"'F3' .*got 66; LSTM_LOWER_BUDGET=nodes=66 allows it"):
        imported(path)
    monkeypatch.setenv(VARIABLE, "nodes=93,seconds=900")  # each copy of a node counts, calls too: 1 + 3 + 9 + 27 + ...
    assert len(imported(path).graph.node) == 27


def test_functions_within_functions(tmp_path: Path) -> None:
    assert imported(graph(tmp_path, 60)).graph.node
    with pytest.raises(OverBudgetError, match=r"depth of 64, got 65"):
        imported(graph(tmp_path, 70))
    with pytest.raises(InvalidModelError, match=r"'F0' requires an end, got one that calls itself"):
        imported(graph(tmp_path, 1, first="F0"))


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 2.0]])
def test_a_constant_of_a_few_numbers(tmp_path: Path, values: list[float]) -> None:
    proto = GraphDef()
    proto.node.add(name="x", op="Placeholder").attr["dtype"].type = FLOAT
    constant = proto.node.add(name="c", op="Const")
    constant.attr["dtype"].type = FLOAT
    tensor = constant.attr["value"].tensor
    tensor.dtype = FLOAT
    tensor.tensor_shape.dim.add().size = (1 << 29) - 1
    tensor.float_val.extend(values)
    proto.node.add(name="out", op="AddV2", input=["x", "c"]).attr["T"].type = FLOAT
    (tmp_path / "graph.pb").write_bytes(proto.SerializeToString())
    with pytest.raises(OverBudgetError, match=r"at most 268,435,456 bytes, got 2,147,483"):
        imported(tmp_path / "graph.pb")


def test_sparse_tensors_are_charged_together(monkeypatch: pytest.MonkeyPatch) -> None:
    ones = [
        helper.make_sparse_tensor(
            helper.make_tensor(name, TensorProto.FLOAT, [1], [1.0]),
            helper.make_tensor(f"{name}_places", TensorProto.INT64, [1], [0]),
            [100],
        )
        for name in ("a", "b")
    ]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [100]) for name in ("x", "y")]
    proto = helper.make_graph([helper.make_node("Sum", ["x", "a", "b"], ["y"])], "g", infos[:1], infos[1:])
    proto.sparse_initializer.extend(ones)
    model = helper.make_model(proto, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    monkeypatch.setenv(VARIABLE, "bytes=800")
    assert ll.lower(model).graph.node
    monkeypatch.setenv(VARIABLE, "bytes=799")
    with pytest.raises(OverBudgetError, match=r"'b' requires at most 799 bytes, got 800"):
        ll.lower(model)


def varint(number: int) -> bytes:
    return bytes([number & 127 | 128]) + varint(number >> 7) if number > 127 else bytes([number])


def block(entries: bytes) -> bytes:
    content = entries + bytes(4) + (1).to_bytes(4, "little") + b"\0"
    return content + masked(crc32c(content)).to_bytes(4, "little")


def test_names_that_begin_as_the_one_before(tmp_path: Path) -> None:
    long, names = 20_000, 20_000
    entries = b"\0\0\2\x08\1" + b"\0" + varint(long) + b"\0" + b"a" * long
    entries += b"".join(varint(long) + b"\3\0" + number.to_bytes(3, "big") for number in range(names))
    first, second = block(entries), block(b"")
    handle = varint(0) + varint(len(first) - 5)
    index = block(b"\0\1" + varint(len(handle)) + b"\xff" + handle)
    ends = [varint(len(first)), varint(len(second) - 5), varint(len(first + second)), varint(len(index) - 5)]
    footer = b"".join(ends).ljust(40, b"\0") + (0xDB4775248B80FB57).to_bytes(8, "little")
    (tmp_path / "model.index").write_bytes(first + second + index + footer)
    with pytest.raises(OverBudgetError, match=r"names begin as others do requires at most 268,435,456 bytes"):
        open_checkpoint(tmp_path / "model")


@pytest.mark.parametrize("given", ["nodes", "nodes=many", "memory=3", "nodes=-1"])
def test_a_malformed_budget(given: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VARIABLE, given)
    with pytest.raises(InvalidInputError, match=r"LSTM_LOWER_BUDGET requires nodes=N,bytes=N,depth=N,seconds=N"):
        imported(graph(tmp_path, 1))
    with pytest.raises(InvalidInputError, match=r"LSTM_LOWER_BUDGET requires"):
        ll.lower(onnx.ModelProto())


def test_what_is_no_input_is_not_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "feeds.npz", x=np.ones(2, np.float32), other=np.array([None], object))
    feeds, recorded = read_arrays(tmp_path / "feeds.npz")
    assert (set(feeds), dict(recorded)) == ({"x", "other"}, {})
    np.testing.assert_array_equal(feeds["x"], 1)
    with pytest.raises(InvalidInputError, match=r"feeds\.npz: a \.npz file of arrays is required.*Object arrays"):
        feeds["other"]


def damaged_header(whole: bytes, place: int) -> bytes:
    return whole[:place] + b" " + whole[place + 1 :]


@pytest.mark.parametrize("read", [lambda folder, trainer: trainer.fit(folder), lambda folder, _: read_arrays(folder)])
def test_damaged_headers_of_arrays(tmp_path: Path, read: Callable[[Path, Any], Any]) -> None:
    """numpy reads them with Python's own parser, which has errors of its own."""
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 18]>
        g (float[N, 2] x) => (float[N, 1] y) <float[2, 1] w = {1, 2}> { y = MatMul(x, w) }""")
    trainer = ll.Trainer(ll.from_onnx(model, "mse", "sgd"))
    np.save(tmp_path / "x.npy", np.ones((4, 2), np.float32))
    np.save(tmp_path / "target.npy", np.ones((4, 1), np.float32))
    whole = (tmp_path / "x.npy").read_bytes()
    for place in range(128):
        (tmp_path / "x.npy").write_bytes(damaged_header(whole, place))
        with contextlib.suppress(LstmLowerError):
            read(tmp_path, trainer)


@pytest.mark.parametrize("record", ["?**", "**/x", "a\\0?", "[", "?" * 300])
def test_a_strange_record_of_the_latest_checkpoint(tmp_path: Path, record: str) -> None:
    (tmp_path / "checkpoint").write_text(f'model_checkpoint_path: "{record}"')
    with pytest.raises(
        LstmLowerError, match=r"checkpoint requires a prefix|checkpoint: model_checkpoint_path requires"
    ):
        open_checkpoint(tmp_path)
