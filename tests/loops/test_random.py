"""Every loop pass, alone and together, on random loops: results do not change, in two runtimes."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lstm_lower as ll
from lstm_lower.graph.verify import verify
from lstm_lower.passes.shapes import InferShapesPass
from tests.support.examples import named, tried
from tests.support.loop_checks import assert_same, run, run_reference
from tests.support.loop_models import LoopModel, loop_models
from tests.support.loop_models_foreign import foreign_models
from tests.support.loop_passes import alone, loop_passes

# Loops of any kind, and such as exporters write.
KINDS = [pytest.param(loop_models(), id="any"), pytest.param(foreign_models(), id="exported")]


@pytest.mark.slow
@pytest.mark.parametrize("models", KINDS)
@tried(8)
@given(data=st.data())
def test_each_pass_keeps_results(models: st.SearchStrategy[LoopModel], data: st.DataObject) -> None:
    case = data.draw(models)
    before = run(case.model, case.feeds, optimised=False)
    for step in loop_passes():
        work, called = ir.from_proto(case.model), alone(step)
        InferShapesPass()(work)
        called.verify_each = True
        with named(step.name):
            if not called(work).modified:
                continue
            verify(work)
            after = ir.to_proto(work)
            onnx.checker.check_model(after, full_check=True)
            assert_same(before, run(after, case.feeds, optimised=False))


@pytest.mark.slow
@pytest.mark.parametrize("models", KINDS)
@tried(6)
@given(data=st.data())
def test_every_schedule_keeps_results(models: st.SearchStrategy[LoopModel], data: st.DataObject) -> None:
    case = data.draw(models)
    before = run(case.model, case.feeds, optimised=False)
    static = all(dim.dim_value for value in case.model.graph.input for dim in value.type.tensor_type.shape.dim)
    for schedule in ("auto", "scan", "unroll", "chunk:1", "chunk:2", "chunk:3"):
        with named(schedule):
            after = ll.optimize(case.model, schedule, verify_each=True)
            onnx.checker.check_model(after, full_check=True)
            assert [value.name for value in after.graph.output] == [value.name for value in case.model.graph.output]
            assert_same(before, run(after, case.feeds, optimised=False))
            if schedule == "auto":
                assert_same(before, run(after, case.feeds))
            if schedule == "unroll" and static:
                assert not any(node.op_type == "Scan" for node in after.graph.node)


@pytest.mark.slow
@pytest.mark.parametrize("models", KINDS)
@tried(4)
@given(data=st.data())
def test_pipeline_keeps_results_in_the_reference_evaluator(
    models: st.SearchStrategy[LoopModel], data: st.DataObject
) -> None:
    case = data.draw(models)
    assert_same(run_reference(case.model, case.feeds), run_reference(ll.optimize(case.model), case.feeds))
