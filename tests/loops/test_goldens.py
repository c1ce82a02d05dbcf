"""Each loop pass alone on one small loop that shows what it does, kept as text before and after."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from lstm_lower.graph.dump import dump
from lstm_lower.graph.verify import verify
from lstm_lower.passes.loops.algebraic_simplification import AlgebraicSimplification
from lstm_lower.passes.loops.code_sinking import CodeSinking
from lstm_lower.passes.loops.common_subexpression_elimination import CommonSubexpressionElimination
from lstm_lower.passes.loops.concat_fusion import ConcatFusion
from lstm_lower.passes.loops.dead_code_elimination import DeadCodeElimination
from lstm_lower.passes.loops.gemm_opening import GemmOpening
from lstm_lower.passes.loops.invariant_hoisting import InvariantHoisting
from lstm_lower.passes.loops.kernel_selection import KernelSelection
from lstm_lower.passes.loops.loop_invariant_code_motion import LoopInvariantCodeMotion
from lstm_lower.passes.loops.loop_unrolling import LoopUnrolling, SingleStepUnrolling
from lstm_lower.passes.loops.product_distribution import ProductDistribution
from lstm_lower.passes.loops.reassociation import Reassociation
from lstm_lower.passes.loops.reduction_recognition import ReductionRecognition
from lstm_lower.passes.loops.strip_mining import StripMining
from lstm_lower.passes.loops.views.loop_pass import LoopPass
from lstm_lower.passes.shapes import InferShapesPass
from tests.conftest import Golden

# One state [B, H] and one sequence [T, B, H]; each body makes the state's update `u` and an output `y`.
STEP = {
    "gemm-opening": "u = Gemm <transB = 1, beta = 0.5> (s, w, k) y = Neg(x)",
    "invariant-hoisting": "wr = Relu(w) p = MatMul(s, wr) u = Add(p, x) y = Neg(s)",
    "loop-invariant-code-motion": "t = Tanh(x) wr = Relu(w) p = MatMul(t, wr) u = Add(s, p) y = Mul(s, p)",
    "code-sinking": "u = Tanh(s) p = MatMul(u, w) y = Add(p, x)",
    "product-distribution": "c = Concat <axis = 1> (x, s) y = MatMul(c, wide) u = Tanh(y)",
    "reassociation": "a = Mul(s, x) b = Mul(a, k) c = Mul(b, x) u = Tanh(c) y = Neg(u)",
    "concat-fusion": """
      a = Mul(s, x) t = Tanh(s) b = Mul(t, x) c = Concat<axis=1> (a, b) y = MatMul(c, wide) u = Tanh(y)""",
    "common-subexpression-elimination": "a = Tanh(s) b = Tanh(s) u = Add(a, b) y = Mul(a, x)",
    "algebraic-simplification": """
      a = Identity(s) z = Constant <value = float[1] {1.0}> () b = Mul(a, z) u = Add(b, x) y = Neg(u)""",
    "dead-code-elimination": "d = Tanh(s) u = Identity(s) y = Add(s, x)",
    "loop-unrolling": "u = Add(s, x) y = Neg(u)",
    "strip-mining": "u = Add(s, x) y = Neg(u)",
    "kernel-selection": "a = Add(s, x) u = MatMul(a, w) y = Neg(a)",
}
ACCUMULATOR = "t = Transpose <perm = [1, 0]> (x) p = MatMul(t, x) u = Add(s, p) y = Neg(x)"


def model(step: str, *, batch: int = 2, units: int = 3, length: int = 2, square: bool = False) -> ir.Model:
    """A model of one Scan with a body of the given nodes."""
    state = f"float[{units},{units}]" if square else f"float[{batch},{units}]"
    text = f"""
    <ir_version: 8, opset_import: ["" : 18]>
    loops (float[{length},{batch},{units}] sequence, {state} first, float[{units},{units}] w,
           float[{2 * units},{units}] wide, float[{units}] k) => ({state} last, float[{length},{batch},{units}] made)
    {{
      last, made = Scan <num_scan_inputs = 1, body = step ({state} s, float[{batch},{units}] x)
        => ({state} u, float[{batch},{units}] y) {{ {step} }}> (first, sequence)
    }}"""
    work = ir.from_proto(onnx.parser.parse_model(text))
    work.graph[0].name = "loop"
    InferShapesPass()(work)
    return work


def check(golden: Golden, work: ir.Model, step: LoopPass) -> None:
    before = dump(work)
    assert step(work).modified
    verify(work)
    onnx.checker.check_model(ir.to_proto(work), full_check=True)
    golden(f"loop_{step.name}", before=before, after=dump(work))


@pytest.mark.parametrize(
    "step",
    [
        GemmOpening,
        InvariantHoisting,
        LoopInvariantCodeMotion,
        CodeSinking,
        ProductDistribution,
        Reassociation,
        ConcatFusion,
        CommonSubexpressionElimination,
        AlgebraicSimplification,
        DeadCodeElimination,
        LoopUnrolling,
    ],
    ids=lambda s: s.name,
)
def test_pass(golden: Golden, step: type[LoopPass]) -> None:
    check(golden, model(STEP[step.name]), step())


def test_reduction_recognition(golden: Golden) -> None:
    check(golden, model(ACCUMULATOR, square=True), ReductionRecognition())


def test_schedule(golden: Golden) -> None:
    check(golden, model(STEP["strip-mining"], length=4), StripMining(kind="chunk", steps=2))


def test_schedule_of_single_steps(golden: Golden) -> None:
    """A block of one step has no axis of its own: inputs are read, and outputs written, as they are."""
    work = model(STEP["strip-mining"], length=4)
    before = dump(work)
    assert StripMining(kind="chunk", steps=1)(work).modified
    assert SingleStepUnrolling()(work).modified
    golden("loop_strip-mining_single", before=before, after=dump(work))


def test_single_steps(golden: Golden) -> None:
    check(golden, model(STEP["loop-unrolling"], length=1), SingleStepUnrolling())


def test_number_added_to_a_part(golden: Golden) -> None:
    """As a forget gate's bias: it becomes part of the bias of all gates."""
    part = """p = MatMul(s, w) q = Add(k, p) f, g = Split <axis = 1, num_outputs = 2> (q)
      one = Constant <value = float {1.0}> () h = Add(one, f) u = Concat <axis = 1> (h, g) y = Neg(u)"""
    work = model(part, units=4)
    before = dump(work)
    assert Reassociation()(work).modified
    golden("loop_reassociation_split", before=before, after=dump(work))


MOVED = """
<ir_version: 8, opset_import: ["" : 18]>
loops (float[4,3] xs, float[1,3] before, float[3] first) => (float[3] last, float[4,3] made)
<int64[1] zero = {0}, int64[1] minus_one = {-1}>
{
  joined = Concat <axis = 0> (before, xs) moved = Slice(joined, zero, minus_one, zero)
  last, made = Scan <num_scan_inputs = 2, body = step (float[3] s, float[3] x, float[3] m) => (float[3] u, float[3] y)
    { a = Mul(s, m) u = Add(a, x) y = Neg(u) }> (first, xs, moved)
}"""


def test_blocks_of_a_sequence_that_is_another_one_moved_by_a_step(golden: Golden) -> None:
    work = ir.from_proto(onnx.parser.parse_model(MOVED))
    InferShapesPass()(work)
    before = dump(work)
    assert StripMining(kind="chunk", steps=2)(work).modified
    golden("loop_strip-mining_moved", before=before, after=dump(work))


def test_orient(golden: Golden) -> None:
    check(golden, model(STEP["kernel-selection"], batch=16, units=256), KernelSelection())
