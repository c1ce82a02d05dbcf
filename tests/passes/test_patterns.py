"""Patterns of algebra, each on its example; the results are those of before, element by element."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from lstm_lower.graph.builder import Builder
from lstm_lower.passes.loops.simplifications import PATTERNS
from lstm_lower.passes.model_pass import Pass
from lstm_lower.passes.patterns import Pattern
from lstm_lower.passes.rewriting import Results, Rewriting
from lstm_lower.passes.shapes import InferShapesPass
from tests.support.loop_checks import run

EDGES = [1.5, -2.0, 0.0, np.inf, -np.inf, np.nan]


class Only(Rewriting, Pass):
    """One pattern and nothing else."""

    def __init__(self, pattern: Pattern) -> None:
        super().__init__()
        self.pattern = pattern

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        return ir.passes.PassResult(model, self.graph(model.graph))

    def where(self, node: ir.Node) -> bool:
        return self.pattern.before.op.matches(node)

    def formula(self, node: ir.Node, builder: Builder) -> Results | None:
        view = builder.facts.view(node)
        assert view is not None
        return self.pattern(view, builder)


def example(text: str) -> onnx.ModelProto:
    inputs = "float[2,3] x, float[3] z, int64[2] k"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g ({inputs}) => (float y) {{ {text} }}')
    # Its type follows.
    model.graph.output[0].ClearField("type")
    return model


def declared(model: onnx.ModelProto) -> ir.Model:
    work = ir.from_proto(model)
    InferShapesPass()(work)
    return work


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: str(pattern.example))
def test_example(pattern: Pattern) -> None:
    feeds = {"x": np.array(EDGES, np.float32).reshape(2, 3), "z": np.ones(3, np.float32), "k": np.array([7, -3])}
    before, after = (declared(example(pattern.example)) for _ in range(2))
    assert Only(pattern)(after).modified
    models = [ir.to_proto(model) for model in (before, after)]
    onnx.checker.check_model(models[1], full_check=True)
    (wanted,), (found,) = (run(model, feeds, optimised=False) for model in models)
    np.testing.assert_array_equal(found, wanted, strict=True)


@pytest.mark.parametrize(
    "other", ["Add(x, z)", "Sub(z, x)", "Mul(x, z)", "Div(x, z)", "Neg(x)", "Min(x, z)", "Max(z, x)"]
)
def test_others_stay(other: str) -> None:
    model = declared(example(f"y = {other}"))
    assert not any(Only(pattern)(model).modified for pattern in PATTERNS)
