"""The pipeline as a whole: a fixed point, reached without walking the model more often than needed."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest
from hypothesis import assume, given

import lstm_lower as ll
from benchmarks.lowering import unrolled_network
from lstm_lower.errors import InvalidModelError
from lstm_lower.graph.dump import dump
from lstm_lower.passes.loops.algebraic_simplification import AlgebraicSimplification
from lstm_lower.passes.loops.common_subexpression_elimination import CommonSubexpressionElimination
from lstm_lower.passes.loops.dead_code_elimination import DeadCodeElimination
from lstm_lower.passes.loops.loop_unrolling import LoopUnrolling
from lstm_lower.passes.pipeline import MOST_ROUNDS, OptimizePass, Trace
from lstm_lower.passes.shapes import InferShapesPass
from tests.support.examples import tried
from tests.support.loop_models import LoopModel, loop_models


@pytest.mark.slow
@tried(15)
@given(case=loop_models())
def test_a_model_without_loops_is_at_its_fixed_point_after_one_run(case: LoopModel) -> None:
    model = ir.from_proto(case.model)
    InferShapesPass()(model)
    LoopUnrolling()(model)
    assume(not any(node.op_type in ("Scan", "If") for node in model.graph))
    OptimizePass()(model)
    for step in (AlgebraicSimplification(), CommonSubexpressionElimination(), DeadCodeElimination()):
        assert not step(model).modified, step.name


def test_passes_that_nothing_has_changed_for_do_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: Counter[str] = Counter()

    def counted(step: type[AlgebraicSimplification | CommonSubexpressionElimination | DeadCodeElimination]) -> None:
        run = step.run
        monkeypatch.setattr(step, "run", lambda self, model: runs.update([step.name]) or run(self, model))

    for step in (AlgebraicSimplification, CommonSubexpressionElimination, DeadCodeElimination):
        counted(step)
    model = ll.lower(unrolled_network(nodes=60, composites=6), optimize=False)
    assert OptimizePass()(model).modified
    assert runs == {"algebraic-simplification": 1, "common-subexpression-elimination": 1, "dead-code-elimination": 1}


# A state that every step overwrites with the same numbers; a loop within a Loop whose number of steps is not known; a
# branch whose result is a loop's by another name.
SETTLED = {
    "overwritten": """g (float[2] h0) => (float[2] h) <float[2] w = {1, 2}, int64[3] steps = {0, 1, 2}> {
      h = Scan <num_scan_inputs = 1, body = b (float[2] s, int64 i) => (float[2] t) { t = Identity(w) }> (h0, steps)
    }""",
    "nested": """g (float[1,3] x, int64 n) => (float[N,1,3] y, float[0,3] z) <float[2,1] w = {1, 2}> {
      going = Constant <value = bool {1}> ()
      y = Loop <body = b (int64 i, bool c) => (bool d, float[1,3] p) {
        d = Identity(c)
        q = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [1], scan_output_directions = [1],
            body = e (float[2] r) => (float[1] s) { s = ReduceLogSumExp <axes = [0], keepdims = 0> (w) }> (w)
        p = Mul(x, q)
      }> (n, going)
      zero = Constant <value = int64[1] {0}> ()  z = Slice(x, zero, zero, zero)
    }""",
    "named": """g (float[2] x, float[3,2] k, bool c) => (float[3,2] y) {
      y = If (c) <then_branch = t () => (float[3,2] z) {
        h, s = Scan <num_scan_inputs = 1, body = b (float[2] u, float[2] i) => (float[2] v, float[2] w) {
          v = Mul(u, i) w = Identity(v)
        }> (x, k)
        z = Identity(s)
      }, else_branch = e () => (float[3,2] q) { q = Neg(k) }>
    }""",
}


@pytest.mark.parametrize("name", SETTLED)
def test_one_run_settles_all(name: str) -> None:
    text = SETTLED[name]
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 17]>\n{text}')
    trace = Trace()
    rounds: list[int] = []
    trace.watch = lambda _name, number, _model: rounds.append(number)
    once = ll.optimize(model, trace=trace)
    assert max(rounds, default=0) < MOST_ROUNDS
    assert ll.optimize(once) == once


def test_a_pipeline_may_serve_several_models() -> None:
    lowered = [ll.lower(unrolled_network(nodes=60, composites=6), optimize=False) for _ in range(2)]
    pipeline = OptimizePass()
    first, second = (dump(pipeline(model).model) for model in lowered)
    assert first == second


def test_long_sums() -> None:
    """A sum of as many terms as there are steps is no deeper a recursion than any other."""
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([2]))
    nodes = [ir.Node("", "Tanh", [x], name="first")]
    for index in range(3000):
        nodes.append(ir.Node("", "Add", [nodes[-1].outputs[0], x], name=f"add{index}"))
    for node in nodes:
        node.outputs[0].name = f"{node.name}:0"
    graph = ir.Graph([x], [nodes[-1].outputs[0]], nodes=nodes, name="sums", opset_imports={"": 18})
    model = ir.Model(graph, ir_version=8)
    InferShapesPass()(model)
    OptimizePass()(model)
    assert len(model.graph) == len(nodes)
    assert np.prod(model.graph.outputs[0].shape.numpy()) == 2


def test_the_verifier_finds_the_one_that_is_not_like_the_others() -> None:
    model = unrolled_network(nodes=60, composites=6)
    cell = [node for node in model.graph if node.op_type == "LSTMBlockCell"][1]
    wrong = ir.Value(name="wrong", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(["B", 9]))
    model.graph.inputs.append(wrong)
    cell.replace_input_with(1, wrong)
    with pytest.raises(InvalidModelError, match=rf"LSTMBlockCell '{cell.name}': h_prev requires"):
        ll.lower(model)
