"""What onnxruntime's own kernels lack or compute wrongly is written otherwise, whichever way a model goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import parser

import lstm_lower as ll
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.passes.targets.stock import STOCK, InlineForKernelsPass, StockKernelsPass
from lstm_lower.runtime import session
from tests.support.opset_models import run_ort

RANDOM = np.random.default_rng(0)
LAYERS = {"LSTM": 4, "GRU": 3, "RNN": 1}

# A model for each row: inputs, node, and the output to differentiate.
ROWS = {
    "ScatterND": (
        "float[9,4] x, int64[40,1] i, float[40,4] u",
        "float[9,4] y",
        'y = ScatterND <reduction = "add"> (x, i, u)',
    ),
    "BatchNormalization": (
        "float[5,2] x",
        "float[5,2] y",
        "c = Constant <value = float[2] {1, 2}> () y, m, v = BatchNormalization <training_mode = 1> (x, c, c, c, c)",
    ),
    "Bernoulli": ("float[3] x", "float[3] y", "b = Bernoulli (x) y = Add (x, b)"),
    "DFT": ("float[2,30,1] x", "float[2,30,2] y", "y = DFT <axis = 1> (x)"),
    "STFT": (
        "float[1,40,1] x",
        "float[?,?,?,?] y",
        "s = Constant <value = int64 {5}> () l = Constant <value = int64 {10}> () y = STFT (x, s, , l)",
    ),
    "ReduceMean": (
        "float[0,4] x",
        "float[4] y",
        "a = Constant <value = int64[1] {0}> () y = ReduceMean <keepdims = 0> (x, a)",
    ),
    **{
        op: (
            f"float[2,5,3] x, float[1,{4 * gates},3] w, float[1,{4 * gates},4] r, float[2,1,4] h",
            "float[2,5,1,4] y, float[2,1,4] z",
            f"y, z = {op} <layout = 1, hidden_size = 4> (x, w, r, , , h)",
        )
        for op, gates in LAYERS.items()
    },
}
DOORS: dict[str, Callable[[onnx.ModelProto], onnx.ModelProto]] = {
    "lower": ll.lower,
    "optimize": ll.optimize,
    "gradient": lambda model: ll.gradient(model, "y", "x", seeds=True),
    "session": lambda model: ir.to_proto(session._loadable(model, [])[1]),
}


def model_of(row: str, *, called: bool) -> onnx.ModelProto:
    """The row's node in the main graph, or in a function that it calls."""
    inputs, outputs, nodes = ROWS[row]
    names = [", ".join(part.split()[-1] for part in text.split(", ")) for text in (inputs, outputs)]
    header = f'<ir_version: 8, opset_import: ["" : 18, "mine" : 1]> g ({inputs}) => ({outputs})'
    if not called:
        return parser.parse_model(f"{header} {{ {nodes} }}")
    function = f'<domain: "mine", opset_import: ["" : 18]> f ({names[0]}) => ({names[1]}) {{ {nodes} }}'
    return parser.parse_model(f"{header} {{ {names[1]} = mine.f ({names[0]}) }} {function}")


def faults(model: ir.Model) -> list[str]:
    facts = Facts.of(model)
    views = [view for node in all_nodes(model.graph) if (view := facts.view(node)) is not None]
    return [fault for view in views if (fault := STOCK.fault(view)) is not None]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("row", ROWS)
def test_every_way_ends_without_it(row: str, door: str) -> None:
    for called in (False, True):
        if called and row == "ReduceMean":
            continue  # a mean alone is no reason to write functions where they are called
        model = model_of(row, called=called)
        assert called or faults(ir.from_proto(model))
        made = ir.from_proto(DOORS[door](model))
        assert not made.functions
        assert not faults(made)


def test_every_row_has_a_model() -> None:
    kinds = {lack.op.op_type or lack.op.__name__ for lack in STOCK.lacks}
    assert kinds <= {*ROWS, "Recurrent"}


@pytest.mark.parametrize("door", ["lower", "optimize", "session"])
@pytest.mark.parametrize("op", LAYERS)
def test_layers_with_the_batch_first(op: str, door: str) -> None:
    """onnxruntime has no kernel for them; what they are, the same layer on turned sequences tells."""
    model = model_of(op, called=False)
    gates = LAYERS[op]
    feeds: dict[str, Any] = {
        "x": RANDOM.standard_normal((2, 5, 3)).astype(np.float32),
        "w": RANDOM.standard_normal((1, 4 * gates, 3)).astype(np.float32),
        "r": RANDOM.standard_normal((1, 4 * gates, 4)).astype(np.float32),
        "h": RANDOM.standard_normal((2, 1, 4)).astype(np.float32),
    }
    usual = model_of(op, called=False)
    usual.graph.node[0].attribute[0].i = 0
    for value, order in zip((*usual.graph.input, *usual.graph.output), ORDERS, strict=True):
        dims = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for dim, axis in zip(value.type.tensor_type.shape.dim, order, strict=True):
            dim.dim_value = dims[axis]
    y, z = run_ort(usual, feeds | {name: feeds[name].swapaxes(0, 1) for name in "xh"})
    found = run_ort(DOORS[door](model), feeds)
    np.testing.assert_allclose(found[0], y.transpose(2, 0, 1, 3), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[1], z.transpose(1, 0, 2), rtol=1e-5, atol=1e-6)


# Of x, w, r, h, y and z: the axes of the form with the batch first that those of the other one are.
ORDERS = ((1, 0, 2), (0, 1, 2), (0, 1, 2), (1, 0, 2), (1, 2, 0, 3), (1, 0, 2))


def test_the_mean_of_nothing_is_no_number() -> None:
    found = ll.Session(model_of("ReduceMean", called=False)).run({"x": np.zeros((0, 4), np.float32)})
    assert np.isnan(found["y"]).all()


def test_a_model_without_any_is_left_alone() -> None:
    text = '<ir_version: 8, opset_import: ["" : 18]> g (float[3] x) => (float[3] y) { y = Neg (x) }'
    model = ir.from_proto(parser.parse_model(text))
    assert not InlineForKernelsPass()(model).modified
    assert not StockKernelsPass()(model).modified
