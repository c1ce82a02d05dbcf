"""SymbolicGradient: the gradient of a function of the graph, which TensorFlow itself finds only when it runs."""

from __future__ import annotations

from lstm_lower.errors import UnsupportedOpError
from lstm_lower.graph import standard as std
from lstm_lower.graph.builder import Expr
from lstm_lower.passes.gradients.reverse import pullback
from lstm_lower.tensorflow.regions import Op
from lstm_lower.tensorflow.structure import GRADIENT
from lstm_lower.tensorflow.translator import Scope, Translator, handles
from lstm_lower.tensorflow.values import Value


@handles(GRADIENT)
def _symbolic_gradient(t: Translator, op: Op, scope: Scope) -> list[Value]:
    """Runs the function once more, and differentiates what that emits.

    Raises:
        UnsupportedOpError: the function changes variables, or takes or returns what is no tensor of numbers.
    """
    (region,) = op.regions
    inputs = t.inputs(op, scope)
    given, dys = inputs[: len(region.params)], inputs[len(region.params) :]
    b = scope.builder
    # What the function emits is what there is to differentiate: all of it here, and each argument a value of its own.
    around, b.emitted = b.emitted, []
    operands = [b.op(std.Identity, Expr(b, x.value)) for x in given]
    inner = Scope(b, b, scope, dict(zip(region.params, operands, strict=True)))
    t.run(region, inner)
    if inner.cells:
        raise UnsupportedOpError(f"{op}: requires a function that changes no variable, got one that does")
    results = [t.tensor(name, inner, op) for name in region.results if name is not None]
    gradients = pullback(b, results, operands, [Expr(b, dy.value) for dy in dys])
    b.emitted = around + b.emitted
    return [*gradients]
