"""Sparse initializers and constants, which onnx_ir does not have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import lstm_lower as ll
from lstm_lower.errors import InvalidModelError

PLAIN = np.array([[0, 1.5, 0], [0, 0, -2]], np.float32)
FORMS = {"linear": [1, 5], "places": [[0, 1], [1, 2]]}


def sparse(places: Any, name: str = "c", dims: tuple[int, ...] = (2, 3), dtype: int = TensorProto.FLOAT) -> Any:
    held = np.array(places, np.int64)
    indices = helper.make_tensor(f"{name}/places", TensorProto.INT64, held.shape, held.reshape(-1))
    return helper.make_sparse_tensor(helper.make_tensor(name, dtype, [2], [1.5, -2.0]), indices, dims)


def constant(value: Any) -> onnx.NodeProto:
    return helper.make_node("Constant", [], ["c"], sparse_value=value)


def model_of(*nodes: onnx.NodeProto, **fields: Any) -> onnx.ModelProto:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy")
    graph = helper.make_graph([*nodes, helper.make_node("Mul", ["x", "c"], ["y"])], "g", [x], [y], **fields)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def in_a_branch(value: Any) -> onnx.ModelProto:
    y = helper.make_tensor_value_info("b", TensorProto.FLOAT, [2, 3])
    branch = helper.make_graph([helper.make_node("Identity", ["d"], ["b"])], "branch", [], [y])
    value.values.name = "d"
    branch.sparse_initializer.append(value)
    yes = helper.make_node("Constant", [], ["yes"], value=helper.make_tensor("", TensorProto.BOOL, [], [True]))
    return model_of(yes, helper.make_node("If", ["yes"], ["c"], then_branch=branch, else_branch=branch))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("where", ["constant", "initializer", "branch"])
@pytest.mark.parametrize("call", [ll.lower, ll.optimize, lambda model: ll.gradient(model, "y", "x", seeds=True)])
def test_a_sparse_tensor_is_a_plain_one(call: Any, where: str, form: str) -> None:
    value = sparse(FORMS[form])
    model = {
        "constant": lambda: model_of(constant(value)),
        "initializer": lambda: model_of(sparse_initializer=[value]),
        "branch": lambda: in_a_branch(value),
    }[where]()
    before = model.SerializeToString()
    result = call(model)
    assert model.SerializeToString() == before
    onnx.checker.check_model(result, full_check=True)
    x = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
    session = ort.InferenceSession(result.SerializeToString(), providers=["CPUExecutionProvider"])
    feeds = {"x": x, "seed/y": np.ones_like(x)}
    found = session.run(None, {value.name: feeds[value.name] for value in session.get_inputs()})
    for array, expected in zip(found, (x * PLAIN, PLAIN), strict=False):
        np.testing.assert_array_equal(array, expected)


@pytest.mark.parametrize("shape", [(0,), (0, 2)])
def test_one_that_holds_nothing(shape: tuple[int, ...]) -> None:
    places = helper.make_tensor("c/places", TensorProto.INT64, shape, [])
    value = helper.make_sparse_tensor(helper.make_tensor("c", TensorProto.FLOAT, [0], []), places, (2, 3))
    session = ll.Session(model_of(constant(value)))
    np.testing.assert_array_equal(session.run({"x": np.ones((2, 3), np.float32)})["y"], np.zeros((2, 3)))


def test_one_in_a_file_and_in_a_function(tmp_path: Path) -> None:
    function = helper.make_function(
        "local", "Weight", [], ["c"], [constant(sparse(FORMS["places"]))], [helper.make_opsetid("", 18)]
    )
    model = model_of(helper.make_node("Weight", [], ["c"], domain="local"))
    model.functions.append(function)
    model.opset_import.append(helper.make_opsetid("local", 1))
    onnx.save(model, tmp_path / "model.onnx")
    session = ll.Session(tmp_path / "model.onnx")
    np.testing.assert_array_equal(session.run({"x": np.ones((2, 3), np.float32)})["y"], PLAIN)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (sparse([1, 6]), r"requires places within \[2, 3\], got 6"),
        (sparse([[0, 1], [2, 0]]), r"requires places within \[2, 3\], got \[2, 0\]"),
        (sparse([1, 2, 3]), r"requires values \[n\] and places \[n\] or \[n, 2\], got shapes \[2\] and \[3\]"),
        (sparse([1, 5], dims=(2, -3)), r"requires sizes, got \[2, -3\]"),
        (
            sparse([1, 5], dims=(1 << 20, 1 << 20)),
            r"requires sizes of which 2 GB hold .*; ScatterND and ConstantOfShape",
        ),
    ],
)
def test_a_malformed_one_is_refused(value: Any, said: str) -> None:
    with pytest.raises(InvalidModelError, match=rf"the model: the sparse tensor 'c' {said}"):
        ll.lower(model_of(sparse_initializer=[value]))
