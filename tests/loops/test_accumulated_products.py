"""States that each add up one part of a product become one, which the product adds to."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lstm_lower.graph.dump import dump
from lstm_lower.graph.verify import verify
from lstm_lower.passes.loops.dead_code_elimination import DeadCodeElimination
from lstm_lower.passes.loops.invariant_hoisting import InvariantHoisting
from lstm_lower.passes.loops.kernel_selection import KernelSelection
from lstm_lower.passes.shapes import InferShapesPass
from tests.conftest import Golden
from tests.support.examples import tried
from tests.support.loop_checks import assert_same, run

# Sums of a product's rows: weights [2, 4] and a bias [4] or [1, 4].
MODEL = """
<ir_version: 8, opset_import: ["" : 18]>
loops (float[5,3,6] xs, float[5,6,4] gs, float[2,4] w0, float{bias} b0) => (float[2,4] w, float{bias} b{also})
{{
  {initial}
  w, b{also} = Scan <num_scan_inputs = 2, body = step (float[2,4] s, float{bias} t, float[3,6] x, float[6,4] g)
    => (float[2,4] s2, float{bias} t2{more}) {{
      zero = Constant <value = int64[1] {{0}}> () two = Constant <value = int64[1] {{2}}> ()
      three = Constant <value = int64[1] {{3}}> () sizes = Constant <value = int64[2] {{2, 1}}> ()
      {body}
    }}> ({states}, xs, gs)
}}"""
PRODUCT = "p = MatMul(x, g)"
SPLIT = "u, v = Split <axis = 0> (p, sizes)"
FLAT = "f = Squeeze(v, zero)"
ADDED = {"[4]": "s2 = Add(s, u) t2 = Add(f, t)", "[1,4]": "s2 = Add(s, u) t2 = Add(v, t)"}


def case(
    body: str, *, bias: str = "[4]", zeros: bool = False, more: bool = False
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """The model, and values for its inputs."""
    initial = "z = Sub(w0, w0) y = Sub(b0, b0)"
    if zeros:
        initial = "k = Shape(w0) z = ConstantOfShape(k) l = Shape(b0) y = ConstantOfShape(l)"
    also, steps = (", float[5,3,4] also", ", float[3,4] o") if more else ("", "")
    text = MODEL.format(
        bias=bias, initial=initial, body=body, also=also, more=steps, states="z, y" if zeros else "w0, b0"
    ).replace("w, b, float[5,3,4] also = Scan", "w, b, also = Scan")
    random = np.random.default_rng(0)
    shape = tuple(int(size) for size in bias[1:-1].split(","))
    shapes = {"xs": (5, 3, 6), "gs": (5, 6, 4), "w0": (2, 4), "b0": shape}
    return onnx.parser.parse_model(text), {k: random.standard_normal(v).astype(np.float32) for k, v in shapes.items()}


def applied(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> tuple[bool, list[str]]:
    """Whether the pass changed something, and the operators of the body; results are as before."""
    work = ir.from_proto(model)
    InferShapesPass()(work)
    InvariantHoisting()(work)
    step = KernelSelection()
    step.verify_each = True
    modified = step(work).modified
    DeadCodeElimination()(work)
    verify(work)
    after = ir.to_proto(work)
    onnx.checker.check_model(after, full_check=True)
    for optimised in (False, True):
        assert_same(run(model, feeds, optimised=optimised), run(after, feeds, optimised=optimised))
    (scan,) = (node for node in after.graph.node if node.op_type == "Scan")
    body = next(attribute.g for attribute in scan.attribute if attribute.name == "body")
    return modified, [node.op_type for node in body.node if node.op_type != "Constant"]


@tried(12)
@given(data=st.data())
def test_results_are_kept(data: st.DataObject) -> None:
    bias = data.draw(st.sampled_from(["[4]", "[1,4]"]))
    flat = FLAT if bias == "[4]" else ""
    model, feeds = case(f"{PRODUCT} {SPLIT} {flat} {ADDED[bias]}", bias=bias, zeros=data.draw(st.booleans()))
    assert applied(model, feeds) == (True, ["Gemm"])


ALONE = {
    "no product": f"q = MatMul(x, g) p = Tanh(q) {SPLIT} {FLAT} {ADDED['[4]']} o = Tanh(p)",
    "a product read besides": f"{PRODUCT} {SPLIT} {FLAT} {ADDED['[4]']} o = Tanh(p)",
    "a part read twice": f"{PRODUCT} {SPLIT} {FLAT} {ADDED['[4]']} r = Tanh(u) o = Concat <axis = 0> (r, v)",
    "a state read besides": f"{PRODUCT} {SPLIT} {FLAT} {ADDED['[4]']} o = Concat <axis = 0> (s, v)",
    "a sum read besides": f"{PRODUCT} {SPLIT} {FLAT} {ADDED['[4]']} r = Tanh(s2) o = Concat <axis = 0> (r, v)",
}


@pytest.mark.parametrize("form", ALONE)
def test_left_alone(form: str) -> None:
    assert not applied(*case(ALONE[form], more=True))[0]


def test_one_part_alone_is_left() -> None:
    model, feeds = case(f"{PRODUCT} {SPLIT} {FLAT} s2 = Add(s, u) t2 = Sub(t, f)")
    assert not applied(model, feeds)[0]


def test_golden(golden: Golden) -> None:
    work = ir.from_proto(case(f"{PRODUCT} {SPLIT} {FLAT} {ADDED['[4]']}", zeros=True)[0])
    InferShapesPass()(work)
    before = dump(work)
    assert KernelSelection()(work).modified
    golden("loop_kernel-selection_total", before=before, after=dump(work))
