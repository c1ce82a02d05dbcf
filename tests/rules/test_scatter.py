"""Adding scatters: the same results as ScatterND, on any number of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import lstm_lower as ll
from lstm_lower.passes.targets.legalize import LegalizePass

Array = np.ndarray[Any, Any]
COMBINE = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
# Shape of the table, of the indices, and of one update.
PLACES = {
    "rows": ((5, 3), (7, 1), (3,)),
    "rows-of-matrices": ((5, 3, 2), (7, 1), (3, 2)),
    "rows-by-matrix": ((5, 3), (4, 2, 1), (3,)),
    "cells": ((5, 3), (9, 2), ()),
    "vectors-in-a-cube": ((4, 3, 2), (9, 2), (2,)),
    "vector": ((5,), (9, 1), ()),
    "one": ((5, 3), (1,), (3,)),
}


def model_of(
    table: Array, indices: Array, updates: Array, reduction: str, *, opset: int = 18, rank: bool = True
) -> Any:
    def info(name: str, value: Array) -> onnx.ValueInfoProto:
        dims = [f"{name}{axis}" for axis in range(value.ndim)]
        if name == "indices":
            dims[-1] = value.shape[-1]  # type: ignore[call-overload]
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), dims if rank else None)

    node = helper.make_node("ScatterND", ["table", "indices", "updates"], ["result"], "scatter", reduction=reduction)
    inputs = [info("table", table), info("indices", indices), info("updates", updates)]
    result = onnx.ValueInfoProto()
    result.CopyFrom(inputs[0])
    result.name = "result"
    graph = helper.make_graph([node], "scatter", inputs, [result])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def operands(place: str, dtype: Any, *, negative: bool) -> tuple[Array, Array, Array]:
    table, indices, update = PLACES[place]
    random = np.random.default_rng(3)
    depth = indices[-1]
    ids = np.stack([random.integers(-size if negative else 0, size, indices[:-1]) for size in table[:depth]], axis=-1)
    values = [random.integers(1, 4, shape).astype(dtype) for shape in (table, (*indices[:-1], *update))]
    return values[0], ids.reshape(indices), values[1]


def expected(table: Array, indices: Array, updates: Array, reduction: str) -> Array:
    result = table.copy()
    for place in np.ndindex(indices.shape[:-1]):
        where = tuple(indices[place])
        result[where] = COMBINE[reduction](result[where], updates[place])
    return result


def rewritten(model: onnx.ModelProto) -> onnx.ModelProto:
    work = ir.from_proto(model)
    assert LegalizePass()(work).modified
    result = ir.to_proto(work)
    onnx.checker.check_model(result, full_check=True)
    return result


@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize("reduction", COMBINE)
@pytest.mark.parametrize("place", PLACES)
def test_same_results(place: str, reduction: str, negative: bool) -> None:
    table, indices, updates = operands(place, np.float32, negative=negative)
    model = rewritten(model_of(table, indices, updates, reduction))
    assert "ScatterND" not in {node.op_type for node in model.graph.node}
    feeds = {"table": table, "indices": indices, "updates": updates}
    np.testing.assert_array_equal(ll.Session(model).run(feeds)["result"], expected(table, indices, updates, reduction))


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int8, np.int32, np.int64])
def test_dtypes(dtype: Any) -> None:
    table, indices, updates = operands("rows", dtype, negative=False)
    model = rewritten(model_of(table, indices, updates, "add"))
    feeds = {"table": table, "indices": indices, "updates": updates}
    np.testing.assert_array_equal(ll.Session(model).run(feeds)["result"], expected(table, indices, updates, "add"))


@pytest.mark.parametrize(("reduction", "rank"), [("none", True), ("add", False)])
def test_others_stay(reduction: str, rank: bool) -> None:
    """Those that replace, and those of open ranks."""
    work = ir.from_proto(model_of(*operands("rows", np.float32, negative=False), reduction, rank=rank))
    assert not LegalizePass()(work).modified
    assert [node.op_type for node in work.graph] == ["ScatterND"]


def test_in_a_branch() -> None:
    """At every nesting level, captured operands included."""
    table, indices, updates = operands("cells", np.float32, negative=False)
    inner = model_of(table, indices, updates, "add").graph
    then = helper.make_graph(inner.node, "then", [], inner.output)
    other = helper.make_graph(
        [helper.make_node("Identity", ["table"], ["same"])],
        "else",
        [],
        [helper.make_tensor_value_info("same", TensorProto.FLOAT, ["table0", "table1"])],
    )
    node = helper.make_node("If", ["condition"], ["chosen"], then_branch=then, else_branch=other)
    condition = helper.make_tensor_value_info("condition", TensorProto.BOOL, [])
    chosen = helper.make_tensor_value_info("chosen", TensorProto.FLOAT, ["rows", "columns"])
    graph = helper.make_graph([node], "branches", [*inner.input, condition], [chosen])
    model = rewritten(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8))
    feeds = {"table": table, "indices": indices, "updates": updates, "condition": np.ones((), bool)}
    np.testing.assert_array_equal(ll.Session(model).run(feeds)["chosen"], expected(table, indices, updates, "add"))


def test_lowered_models_hold_none() -> None:
    """The gradient of an embedding, and a user's own node beside it: no row is lost on two threads."""
    count, classes, width = 3200, 27, 128
    random = np.random.default_rng(0)
    ids = random.integers(0, classes, count).astype(np.int32)
    rows = random.integers(-4, 5, (count, width)).astype(np.float32)
    segment = helper.make_node("UnsortedSegmentSum", ["rows", "ids", "classes"], ["sum"], "sum", domain="tf")
    wide = [
        helper.make_node("Cast", ["ids"], ["wide"], to=TensorProto.INT64),
        helper.make_node("Unsqueeze", ["wide", "one"], ["places"]),
        helper.make_node("ScatterND", ["zeros", "places", "rows"], ["own"], "own", reduction="add"),
    ]
    constants = [
        onnx.numpy_helper.from_array(np.asarray(classes, np.int32), "classes"),
        onnx.numpy_helper.from_array(np.asarray([1]), "one"),
        onnx.numpy_helper.from_array(np.zeros((classes, width), np.float32), "zeros"),
    ]
    inputs = [
        helper.make_tensor_value_info("rows", TensorProto.FLOAT, ["N", width]),
        helper.make_tensor_value_info("ids", TensorProto.INT32, ["N"]),
    ]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("sum", "own")]
    graph = helper.make_graph([segment, *wide], "embedding", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("tf", 1)]
    lowered = ll.lower(helper.make_model(graph, opset_imports=opsets, ir_version=8))
    assert "ScatterND" not in {node.op_type for node in lowered.graph.node}
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    session = ort.InferenceSession(lowered.SerializeToString(), options, providers=["CPUExecutionProvider"])
    exact = np.zeros((classes, width), np.float32)
    np.add.at(exact, ids, rows)
    for _ in range(10):
        for result in session.run(None, {"rows": rows, "ids": ids}):
            np.testing.assert_array_equal(result, exact)
