"""Malformed models through the entrances that do more than run passes: our errors and no others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, parser

import lstm_lower as ll
from lstm_lower.records.model_files import load
from lstm_lower.runtime.feeds import random_feeds
from lstm_lower.runtime.proof.check import check

SLICED = """<ir_version: 8, opset_import: ["" : 17]>
g (float[4, 5] x) => (float[p, q] y) <int64[1] starts = {0}, int64[2] ends = {2, 3}, int64[2] axes = {0, 1}>
{ z = Slice (x, starts, ends, axes) y = Neg (z) }"""


def sliced(*, negative: bool = False) -> onnx.ModelProto:
    """A Slice from one start to two ends; one of its own if `negative`, of an operand whose open size is called -1."""
    model = parser.parse_model(SLICED)
    if negative:
        model.graph.node[0].input[1] = "axes"
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    return model


def untyped() -> onnx.ModelProto:
    """A weight of elements that onnx does not have."""
    model = sliced()
    model.graph.initializer[0].data_type = 2**31 - 1
    return model


def elsewhere() -> ir.Model:
    """A weight in external data without a place."""
    model = ir.from_proto(sliced())
    tensor = ir.ExternalTensor("", 0, 8, ir.DataType.INT64, shape=ir.Shape([1]), name="w")
    model.graph.register_initializer(ir.Value(name="w", const_value=tensor))
    return model


ENTRANCES: dict[str, Callable[[ir.Model], object]] = {
    "lower": ll.lower,
    "optimize": ll.optimize,
    "Session": ll.Session,
    "Trainer": ll.Trainer,
    "check": check,
    "random_feeds": random_feeds,
}


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize("make", [sliced, untyped, elsewhere])
def test_only_our_errors(entrance: str, make: Callable[[], onnx.ModelProto | ir.Model]) -> None:
    model = make()
    with pytest.raises(ll.LstmLowerError):
        ENTRANCES[entrance](model if isinstance(model, ir.Model) else load(model))


def test_a_node_whose_operands_do_not_fit_is_named() -> None:
    with pytest.raises(ll.InvalidModelError, match=r"Slice.*operands and attributes that fit each other"):
        random_feeds(ir.from_proto(sliced()))


def test_an_axis_twice_is_refused() -> None:
    model = parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
    g (float[2,3] x) => (float[a,b,c,d] y) <int64[2] axes = {0, 0}> { y = Unsqueeze(x, axes) }""")
    with pytest.raises(ll.InvalidModelError, match=r"Unsqueeze.*operands and attributes that fit each other"):
        ll.lower(model)


def test_negative_sizes_stand_for_open_ones() -> None:
    model = sliced(negative=True)
    assert {name: array.shape for name, array in random_feeds(ir.from_proto(model)).items()} == {"x": (4, 5)}
    for result in (ll.optimize(model), ll.lower(model), ll.lower(ir.from_proto(model))):
        sizes = (result if isinstance(result, ir.Model) else ir.from_proto(result)).graph.inputs[0].shape
        assert sizes == ir.Shape([None, 5])


def test_sizes_named_by_a_question_mark_need_not_agree() -> None:
    text = """<ir_version: 9, opset_import: ["" : 18]> g (float[n, m] x, float[k] b) => (float[n, m] y) {
        y = Mul (x, b)
    }"""
    model = onnx.parser.parse_model(text)
    for value in (*model.graph.input, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            dim.dim_param = "?"
    feeds = {"x": np.ones((2, 3), np.float32), "b": np.full(3, 2, np.float32)}
    made = ll.Session(ll.gradient(model, "y", wrt=["b"], seeds=True)).run({**feeds, "seed/y": feeds["x"]})
    np.testing.assert_array_equal(made["grad/b"], [2, 2, 2])


def test_negative_sizes_inside_loops_and_old_models() -> None:
    """onnx's inference, which the checker and the version converter run, aborts the process on a Slice of -2 rows."""
    body = """g (float[3] c, float[3, 4, 5] xs) => (float[3] last, float[3, ?, ?] ys)
    <int64[1] zero = {0}, int64[1] two = {2}> { last, ys = Scan <num_scan_inputs = 1,
      body = step (float[3] h, float[4, 5] x) => (float[3] n, float[?, ?] y)
             { y = Slice (x, zero, two, zero) n = Identity (h) }> (c, xs) }"""
    for opset in (11, 17):
        model = parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> {body}')
        inner = model.graph.node[0].attribute[1].g
        inner.input[1].type.tensor_type.shape.dim[0].dim_value = -2
        for result in (ll.lower(model), ll.lower(model, 18), ll.optimize(model)):
            onnx.checker.check_model(result, full_check=True)


@pytest.mark.parametrize("size", [2**31, 2**62])
def test_sizes_that_nobody_meant(size: int) -> None:
    model = sliced(negative=True)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = size
    with pytest.raises(ll.InvalidInputError, match="do not fit into memory: more than"):
        random_feeds(load(model))


def test_a_branch_that_the_caller_gives() -> None:
    """Of a function, which may name an attribute of its own in place of a graph; outside of functions none may."""
    node = helper.make_node("If", ["c"], ["y"])
    branch = onnx.AttributeProto(name="then_branch", type=onnx.AttributeProto.GRAPH, ref_attr_name="branch")
    node.attribute.append(branch)
    inputs = [helper.make_tensor_value_info("c", TensorProto.BOOL, [])]
    result = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [])]
    model = helper.make_model(helper.make_graph([node], "g", inputs, result))
    for entrance in ENTRANCES.values():
        with pytest.raises(ll.InvalidModelError, match="a reference to attribute branch outside of functions"):
            entrance(load(model))
