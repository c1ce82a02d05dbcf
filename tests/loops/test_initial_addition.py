"""What a loop adds to a state in its first step alone is added to the initial value."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lstm_lower.graph.dump import dump
from lstm_lower.graph.verify import verify
from lstm_lower.passes.loops.initial_addition import InitialAddition
from lstm_lower.passes.model_pass import Context
from lstm_lower.passes.shapes import InferShapesPass
from tests.conftest import Golden
from tests.support.examples import tried
from tests.support.loop_checks import assert_same, run

# `before` and `behind` are the steps of zeros around the one that has something.
PADDED = """
<ir_version: 8, opset_import: ["" : 18]>
loops (float[1,{batch},3] seed, float[{steps},{batch},3] xs, float[{batch},3] h0, float fill)
  => (float[{batch},3] last, float[{steps},{batch},3] ys)
{{
  {widths}
  seeds = Pad (seed, widths{fill})
  last, ys = Scan <num_scan_inputs = 2, scan_input_directions = [{reverse}, {reverse}],
    body = step (float[{batch},3] h, float[{batch},3] s, float[{batch},3] x)
      => (float[{batch},3] u, float[{batch},3] y)
    {{ a = Add({addends}) p = Mul(a, x) u = Tanh(p) y = Neg({read}) }}> (h0, seeds, xs)
}}"""
KNOWN = "widths = Constant <value = int64[6] {{{before}, 0, 0, {behind}, 0, 0}}> ()"
# Of an open number of steps all but one are zeros.
OPEN = """
  sizes = Shape <start = 0, end = 1> (xs)
  one = Constant <value = int64[1] {{1}}> () zero = Constant <value = int64[1] {{0}}> ()
  rest = Sub(sizes, one)
  widths = Concat <axis = 0> ({order}, zero, zero)"""
STATE = """
<ir_version: 8, opset_import: ["" : 18]>
loops (float[1,2,3] seed, float[5,2,3] xs, float[2,3] h0) => (float[2,3] last, float[5,2,3] ys, {more})
{{
  gone, last, ys = Scan <num_scan_inputs = 1,
    body = step (float[1,2,3] s, float[2,3] h, float[2,3] x) => (float[1,2,3] v, float[2,3] u, float[2,3] y) {{
      axes = Constant <value = int64[1] {{0}}> ()
      t = Squeeze(s, axes)
      a = Add(h, t)
      p = Mul(a, x)
      u = Tanh(p)
      shape = Shape(s)
      v = ConstantOfShape {value} (shape)
      y = Neg(a)
    }}> (seed, h0, xs)
  {rest}
}}"""


def padded(
    *,
    reverse: bool,
    far: int = 4,
    near: int = 0,
    is_open: bool = False,
    flipped: bool = False,
    read: str = "a",
    fill: str = "",
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A loop that walks towards or away from the zeros before and behind what a sequence has in one place."""
    order = ["rest", "zero", "zero", "zero"] if reverse else ["zero", "zero", "zero", "rest"]
    widths = {"before": far, "behind": near} if reverse else {"before": near, "behind": far}
    text = PADDED.format(
        batch="B" if is_open else 2, steps="T" if is_open else near + far + 1, reverse=int(reverse),
        widths=OPEN.format(order=", ".join(order)) if is_open else KNOWN.format(**widths),
        addends="s, h" if flipped else "h, s", read=read, fill=f", {fill}" if fill else "",
    )  # fmt: skip
    random = np.random.default_rng(0)
    shapes = {"seed": (1, 2, 3), "xs": (near + far + 1, 2, 3), "h0": (2, 3), "fill": ()}
    return onnx.parser.parse_model(text), {k: random.standard_normal(v).astype("f") for k, v in shapes.items()}


def carried(*, zeros: bool = True, final: bool = False) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A loop with a state that is zeros, or ones, from the second step on, and perhaps read behind the loop."""
    text = STATE.format(
        value="" if zeros else "<value = float[1] {1.0}>",
        more="float[1,2,3] g" if final else "float[2,3] g",
        rest="g = Neg(gone)" if final else "g = Neg(last)",
    )
    random = np.random.default_rng(0)
    shapes = {"seed": (1, 2, 3), "xs": (5, 2, 3), "h0": (2, 3)}
    return onnx.parser.parse_model(text), {k: random.standard_normal(v).astype("f") for k, v in shapes.items()}


def applied(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> bool:
    """Whether the sum was taken out; results are as before, to the last bit."""
    work = ir.from_proto(model)
    InferShapesPass()(work)
    step = InitialAddition(Context(work))
    step.verify_each = True
    step(work)
    verify(work)
    after = ir.to_proto(work)
    onnx.checker.check_model(after, full_check=True)
    assert_same(run(model, feeds, optimised=False), run(after, feeds, optimised=False))
    return not any(node.op_type == "Add" for node in _body(after).node)


def _body(model: onnx.ModelProto) -> onnx.GraphProto:
    scan = next(node for node in model.graph.node if node.op_type == "Scan")
    return next(attribute.g for attribute in scan.attribute if attribute.name == "body")


@tried(12)
@given(data=st.data())
def test_results_are_kept(data: st.DataObject) -> None:
    if data.draw(st.booleans()):
        assert applied(*carried(final=data.draw(st.booleans())))
        return
    booleans = st.booleans()
    model, feeds = padded(
        reverse=data.draw(booleans), is_open=data.draw(booleans), flipped=data.draw(booleans),
        far=data.draw(st.sampled_from([0, 1, 4])),
    )  # fmt: skip
    assert applied(model, feeds)


@pytest.mark.parametrize(
    "case",
    [
        padded(reverse=True, near=1),
        padded(reverse=False, near=2),
        padded(reverse=True, read="h"),
        padded(reverse=True, fill="fill"),
        carried(zeros=False),
    ],
    ids=["padded behind", "padded before", "state read elsewhere", "not with zeros", "carried ones"],
)
def test_others_are_left_alone(case: tuple[onnx.ModelProto, dict[str, np.ndarray]]) -> None:
    assert not applied(*case)


def test_golden(golden: Golden) -> None:
    work = ir.from_proto(padded(reverse=True)[0])
    InferShapesPass()(work)
    before = dump(work)
    assert InitialAddition()(work).modified
    golden("loop_initial-addition", before=before, after=dump(work))
