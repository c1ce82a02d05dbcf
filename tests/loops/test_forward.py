"""Scans in the plain form, for runtimes that know no other."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

import lstm_lower as ll
from lstm_lower.passes.loops.forward import ForwardScansPass
from tests.support.loop_checks import assert_same, run, run_reference

SCAN = """<ir_version: 8, opset_import: ["" : 18]> g ({x} x, float[2] s) => (float[2] last, {all} all) {{
  last, all = Scan<num_scan_inputs = 1, {how}, body = b (float[2] h, float[2] e) => (float[2] n, float[2] o)
    {{ n = Sub(e, h) o = Identity(n) }}>(s, x)
}}"""
HOW = {
    "input axis": "scan_input_axes = [1]",
    "last axis, backwards": "scan_input_axes = [-1], scan_input_directions = [1]",
    "output axis": "scan_input_axes = [1], scan_output_axes = [-1], scan_output_directions = [1]",
}


@pytest.mark.parametrize("how", HOW)
def test_results_are_the_same(how: str) -> None:
    shape = "float[2,3]" if "output" in how else "float[3,2]"
    model = onnx.parser.parse_model(SCAN.format(x="float[2,3]", all=shape, how=HOW[how]))
    feeds = {"x": np.float32([[1, 2, 4], [0, 0, 8]]), "s": np.float32([1, 0])}
    assert_same(run(model, feeds), run_reference(model, feeds))


@pytest.mark.parametrize("how", HOW)
def test_an_unknown_rank_is_left_alone(how: str) -> None:
    model = ir.from_proto(onnx.parser.parse_model(SCAN.format(x="float", all="float", how=HOW[how])))
    for value in (model.graph.inputs[0], model.graph.outputs[1]):
        value.shape = None
    assert not ForwardScansPass()(model).modified


ENTRANCES = {
    "Session": lambda model: model,
    "lower": ll.lower,
    "optimize": ll.optimize,
    "gradient": lambda model: ll.gradient(model, "all", "x", seeds=True),
}


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize("how", HOW)
def test_no_steps_along_another_axis(how: str, entrance: str) -> None:
    """onnxruntime ends the process on them; along axis 0 it refuses them."""
    shape = "float[2,n]" if "output" in how else "float[n,2]"
    model = onnx.parser.parse_model(SCAN.format(x="float[2,n]", all=shape, how=HOW[how]))
    session = ll.Session(ENTRANCES[entrance](model))
    for x in (np.float32([[], []]), np.float32([[1, 2, 4], [0, 0, 8]])):
        feeds = {"x": x, "s": np.float32([1, 0])}
        seed = {"seed/all": x if "output" in how else x.T} if entrance == "gradient" else {}
        if x.size:
            np.testing.assert_array_equal(session.run(feeds | seed)["all"], run(model, feeds)[1])
            continue
        with pytest.raises(ll.InvalidInputError, match="Invalid dim0_offset of 0"):
            session.run(feeds | seed)
