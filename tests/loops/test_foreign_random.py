"""The passes that exporters' loops gave rise to, alone and together, on random loops of that kind."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest
from hypothesis import given

import lstm_lower as ll
from lstm_lower.graph.verify import verify
from lstm_lower.passes.loops.algebraic_simplification import AlgebraicSimplification
from lstm_lower.passes.loops.batch_axis_contraction import BatchAxisContraction
from lstm_lower.passes.loops.layout_assignment import LayoutAssignment
from lstm_lower.passes.loops.loop_reversal import LoopReversal
from lstm_lower.passes.loops.output_concatenation import OutputConcatenation
from lstm_lower.passes.loops.product_fusion import ProductFusion
from lstm_lower.passes.loops.reduction_recognition import ReductionRecognition
from lstm_lower.passes.loops.vectorization import Vectorization
from lstm_lower.passes.loops.views.base import LoopPass
from lstm_lower.passes.shapes import InferShapesPass
from tests.support.examples import tried
from tests.support.loop_checks import assert_same, run, run_reference
from tests.support.loop_models import LoopModel, loop_models
from tests.support.loop_models_foreign import foreign_models

PASSES = [
    BatchAxisContraction,
    LoopReversal,
    ProductFusion,
    OutputConcatenation,
    LayoutAssignment,
    AlgebraicSimplification,
    ReductionRecognition,
    Vectorization,
]
quick = tried(8)


@pytest.mark.slow
@pytest.mark.parametrize("step", PASSES, ids=lambda step: step.name)
@quick
@given(case=foreign_models())
def test_pass_keeps_results(step: type[LoopPass], case: LoopModel) -> None:
    work = ir.from_proto(case.model)
    InferShapesPass()(work)
    step()(work)
    verify(work)
    after = ir.to_proto(work)
    onnx.checker.check_model(after, full_check=True)
    assert_same(run(case.model, case.feeds, optimised=False), run(after, case.feeds, optimised=False))


@pytest.mark.parametrize("step", PASSES, ids=lambda step: step.name)
@quick
@given(case=loop_models())
def test_pass_keeps_results_of_any_loop(step: type[LoopPass], case: LoopModel) -> None:
    work = ir.from_proto(case.model)
    InferShapesPass()(work)
    step()(work)
    verify(work)
    assert_same(run(case.model, case.feeds, optimised=False), run(ir.to_proto(work), case.feeds, optimised=False))


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["scan", "chunk:2", "unroll"])
@tried(10)
@given(case=foreign_models())
def test_pipeline_keeps_results(schedule: str, case: LoopModel) -> None:
    after = ll.optimize(case.model, schedule, verify_each=True)
    onnx.checker.check_model(after, full_check=True)
    before = run(case.model, case.feeds, optimised=False)
    assert_same(before, run(after, case.feeds, optimised=False))
    assert_same(before, run(after, case.feeds))


@pytest.mark.slow
@tried(8)
@given(case=foreign_models())
def test_pipeline_keeps_results_in_the_reference_evaluator(case: LoopModel) -> None:
    assert_same(run_reference(case.model, case.feeds), run_reference(ll.optimize(case.model), case.feeds))
