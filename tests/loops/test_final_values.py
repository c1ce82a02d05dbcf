"""What is read of a loop after its last step alone is not made at every step."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lstm_lower.graph.dump import dump
from lstm_lower.graph.verify import verify
from lstm_lower.passes.loops.final_values import FinalValues
from lstm_lower.passes.model_pass import Context
from lstm_lower.passes.shapes import InferShapesPass
from tests.conftest import Golden
from tests.support.examples import tried
from tests.support.loop_checks import assert_same, run

LAST = """
<ir_version: 8, opset_import: ["" : 18]>
loops (float[4,2,3] xs, float[2,3] h0) => (float[2,3] last, float[n,m] z, float[a,b,c] w)
{{
  last, ys = Scan <num_scan_inputs = 1, scan_input_directions = [{reverse}], scan_output_directions = [{backwards}],
    scan_output_axes = [{stacked}], body = step (float[2,3] h, float[2,3] x) => (float[2,3] u, float[2,3] y)
    {{ a = Add(h, x) u = Tanh(a) y = {made} }}> (h0, xs)
  place = Constant <value = int64{rank} {place}> ()
  e = Gather <axis = {axis}> (ys, place)
  z = Neg(e)
  w = {whole}
}}"""
COPIES = """
<ir_version: 8, opset_import: ["" : 18]>
loops (float[4,2,3] xs, float[2,3] h0, float[1,2,3] k0, float[3,2] m0)
  => (float[2,3] last, float[1,2,3] k, float[3,2] m)
{{
  last, k, m = Scan <num_scan_inputs = 1, body = step (float[2,3] h, float[1,2,3] p, float[3,2] q, float[2,3] x)
    => (float[2,3] u, float[1,2,3] v, float[3,2] w)
    {{ a = Add(h, x) u = Tanh(a) axes = Constant <value = int64[1] {{0}}> ()
       v = Unsqueeze(u, axes) w = Transpose <perm = [1, 0]> ({source}) }}> (h0, k0, m0, xs)
}}"""
Case = tuple[onnx.ModelProto, dict[str, np.ndarray]]


def last(
    *, reverse: bool = False, stacked: int = 0, place: int | None = None, made: str = "Identity(u)",
    axis: int | None = None, whole: str = "Neg(xs)", vector: bool = False,
) -> Case:  # fmt: skip
    """A loop of whose sequence one element is read, the last that it makes if nothing else is said."""
    place = (0 if reverse else -1) if place is None else place
    text = LAST.format(
        reverse=int(reverse), backwards=int(reverse), stacked=stacked, made=made, whole=whole,
        place=f"{{{place}}}", axis=stacked if axis is None else axis, rank="[1]" if vector else "",
    )  # fmt: skip
    text = text.replace("float[n,m] z", "float[d,e,f] z") if vector else text
    random = np.random.default_rng(0)
    return onnx.parser.parse_model(text), {
        name: random.standard_normal(shape).astype("f") for name, shape in {"xs": (4, 2, 3), "h0": (2, 3)}.items()
    }


def copies(source: str) -> Case:
    """A loop with two states that no step reads."""
    random = np.random.default_rng(0)
    shapes = {"xs": (4, 2, 3), "h0": (2, 3), "k0": (1, 2, 3), "m0": (3, 2)}
    feeds = {name: random.standard_normal(shape).astype("f") for name, shape in shapes.items()}
    return onnx.parser.parse_model(COPIES.format(source=source)), feeds


def applied(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> onnx.NodeProto:
    """The loop afterwards; results are as before, to the last bit."""
    work = ir.from_proto(model)
    InferShapesPass()(work)
    step = FinalValues(Context(work))
    step.verify_each = True
    step(work)
    verify(work)
    after = ir.to_proto(work)
    onnx.checker.check_model(after, full_check=True)
    assert_same(run(model, feeds, optimised=False), run(after, feeds, optimised=False))
    return next(node for node in after.graph.node if node.op_type == "Scan")


@tried(12)
@given(data=st.data())
def test_results_are_kept(data: st.DataObject) -> None:
    if data.draw(st.booleans()):
        scan = applied(*copies(data.draw(st.sampled_from(["u", "a"]))))
        assert len(scan.output) < 3
        return
    stacked = data.draw(st.sampled_from([0, 1, 2]))
    whole = data.draw(st.sampled_from(["Neg(xs)", "Neg(ys)"]))
    scan = applied(*last(reverse=data.draw(st.booleans()), stacked=stacked, whole=whole))
    # The sequence is only made where it is read as a whole.
    assert len(scan.output) == 1 + (whole == "Neg(ys)")


@pytest.mark.parametrize(
    "case",
    [last(place=0), last(reverse=True, place=-1), last(made="Neg(u)"), last(axis=1), last(vector=True)],
    ids=["first", "first of a walk backwards", "no state", "another axis", "a sequence of one"],
)
def test_others_are_left_alone(case: Case) -> None:
    assert len(applied(*case).output) == 2


def test_a_state_that_is_computed_stays() -> None:
    assert len(applied(*copies("a")).output) == 2
    assert len(applied(*copies("u")).output) == 1


def test_golden(golden: Golden) -> None:
    work = ir.from_proto(last()[0])
    InferShapesPass()(work)
    before = dump(work)
    assert FinalValues()(work).modified
    golden("loop_final-values", before=before, after=dump(work))
