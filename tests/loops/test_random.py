"""Every loop pass, alone and together, on random Scans: results do not change, in two runtimes."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest
from hypothesis import given

import lstm_lower as ll
from lstm_lower.graph.verify import verify
from lstm_lower.passes.loops.algebraic_simplification import AlgebraicSimplification
from lstm_lower.passes.loops.code_sinking import CodeSinking
from lstm_lower.passes.loops.common_subexpression_elimination import CommonSubexpressionElimination
from lstm_lower.passes.loops.concat_fusion import ConcatFusion
from lstm_lower.passes.loops.dead_code_elimination import DeadCodeElimination
from lstm_lower.passes.loops.loop_invariant_code_motion import LoopInvariantCodeMotion
from lstm_lower.passes.loops.product_distribution import ProductDistribution
from lstm_lower.passes.loops.reassociation import Reassociation
from lstm_lower.passes.loops.reduction_recognition import ReductionRecognition
from lstm_lower.passes.loops.views.base import LoopPass
from lstm_lower.passes.shapes import InferShapesPass
from tests.support.examples import tried
from tests.support.loop_checks import assert_same, run, run_reference
from tests.support.loop_models import LoopModel, loop_models

PASSES = [
    CommonSubexpressionElimination,
    DeadCodeElimination,
    ProductDistribution,
    ConcatFusion,
    LoopInvariantCodeMotion,
    Reassociation,
    AlgebraicSimplification,
    ReductionRecognition,
    CodeSinking,
]
quick = tried(8)


@pytest.mark.slow
@pytest.mark.parametrize("step", PASSES, ids=lambda step: step.name)
@quick
@given(case=loop_models())
def test_pass_keeps_results(step: type[LoopPass], case: LoopModel) -> None:
    work = ir.from_proto(case.model)
    InferShapesPass()(work)
    step()(work)
    verify(work)
    after = ir.to_proto(work)
    onnx.checker.check_model(after, full_check=True)
    assert_same(run(case.model, case.feeds, optimised=False), run(after, case.feeds, optimised=False))


@pytest.mark.slow
@tried(20)
@given(case=loop_models())
def test_pipeline_keeps_results(case: LoopModel) -> None:
    after = ll.optimize(case.model, verify_each=True)
    onnx.checker.check_model(after, full_check=True)
    before = run(case.model, case.feeds, optimised=False)
    assert_same(before, run(after, case.feeds, optimised=False))
    assert_same(before, run(after, case.feeds))
    assert [value.name for value in after.graph.output] == [value.name for value in case.model.graph.output]


@tried(8)
@given(case=loop_models())
def test_pipeline_keeps_results_in_the_reference_evaluator(case: LoopModel) -> None:
    assert_same(run_reference(case.model, case.feeds), run_reference(ll.optimize(case.model), case.feeds))


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["unroll", "chunk:1", "chunk:2", "chunk:3"])
@tried(8)
@given(case=loop_models())
def test_every_schedule_keeps_results(schedule: str, case: LoopModel) -> None:
    after = ll.optimize(case.model, schedule, verify_each=True)
    onnx.checker.check_model(after, full_check=True)
    assert_same(run(case.model, case.feeds, optimised=False), run(after, case.feeds, optimised=False))
    static = all(dim.dim_value for value in case.model.graph.input for dim in value.type.tensor_type.shape.dim)
    if schedule == "unroll" and static:
        assert not any(node.op_type == "Scan" for node in after.graph.node)
