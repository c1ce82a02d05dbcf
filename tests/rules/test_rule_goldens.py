"""The shape of what each rule of the block family emits, for one smallest case: before and after."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from lstm_lower.graph.dump import dump
from lstm_lower.passes.composites import LowerCompositesPass
from lstm_lower.passes.shapes import InferShapesPass
from tests.support.models import single_node_model
from tests.support.op_inputs import OPS, valid_inputs


@pytest.mark.parametrize("op", OPS)
def test_rule(op: str, golden) -> None:
    kwargs = valid_inputs(op, T=2, B=1, I=1, H=1, use_peephole=True) if "GRU" not in op else valid_inputs(op)
    constants = ("seq_len_max",) if "seq_len_max" in kwargs else ()
    model = ir.from_proto(single_node_model(op, kwargs, constants=constants))
    before = dump(model)
    lowered = LowerCompositesPass()(InferShapesPass()(model)).model
    golden(f"rule_{op}", before=before, lowered=dump(lowered))
