"""The passes that people may use by name: what each requires, what holds after it, and an example that runs.

`ll.optimize(model, passes=[...])` takes the names, or passes that are made with options of their own. `pass_reference`
writes docs/passes.md from it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import onnx_ir as ir

from lstm_lower.errors import InvalidInputError, InvalidModelError, nearest
from lstm_lower.graph.dump import dump
from lstm_lower.passes.branches import ConstantBranchPass
from lstm_lower.passes.inline import InlineFunctionsPass
from lstm_lower.passes.loops.algebraic_simplification import AlgebraicSimplification
from lstm_lower.passes.loops.closed_bodies import ClosedBodies
from lstm_lower.passes.loops.code_sinking import CodeSinking
from lstm_lower.passes.loops.common_subexpression_elimination import CommonSubexpressionElimination
from lstm_lower.passes.loops.dead_code_elimination import DeadCodeElimination
from lstm_lower.passes.loops.forward import ForwardScansPass
from lstm_lower.passes.loops.induction_variables import InductionVariables
from lstm_lower.passes.loops.invariant_hoisting import InvariantHoisting
from lstm_lower.passes.loops.loop_invariant_code_motion import LoopInvariantCodeMotion
from lstm_lower.passes.loops.loop_reversal import LoopReversal
from lstm_lower.passes.loops.loop_to_scan import LoopToScan
from lstm_lower.passes.loops.loop_unrolling import LoopUnrolling
from lstm_lower.passes.loops.reduction_recognition import ReductionRecognition
from lstm_lower.passes.loops.rerolling import LoopRerolling
from lstm_lower.passes.loops.sigmoid_recognition import SigmoidRecognition
from lstm_lower.passes.loops.trip_count import TripCount
from lstm_lower.passes.model_pass import Pass
from lstm_lower.passes.trace import Trace


@dataclasses.dataclass(frozen=True)
class Entry:
    """A pass that people may use.

    Attributes:
        make: makes it.
        does: what it does.
        requires: what it looks for; other models stay as they are.
        ensures: what holds after it.
        example: a model that it changes, in onnx's text.
    """

    make: Callable[[], Pass]
    does: str
    requires: str
    ensures: str
    example: str

    @property
    def name(self) -> str:
        """Its name."""
        return self.make().name


def _scan(body: str, attributes: str = "") -> str:
    """A model with one Scan along `x`, of the state `h` and the element `e`."""
    return f"""<ir_version: 9, opset_import: ["": 18]>
g (float[6,2,3] x, float[3,3] w, float[2,3] h0) => (float[2,3] last, float[6,2,3] all) {{
  last, all = Scan <num_scan_inputs = 1{attributes}, body = step (h, e) => (n, o) {{
{body}
  }}> (h0, x)
}}"""


_STRAIGHT = """<ir_version: 9, opset_import: ["": 18]>
g (float[2,3] x) => (float[2,3] y) {
  zero = Constant <value = float {0.0}> ()
  a = Exp (x)
  b = Exp (x)
  unread = Neg (a)
  c = Mul (a, b)
  y = Add (c, zero)
}"""

_LOOP = """<ir_version: 9, opset_import: ["": 18]>
g (float[6,2,3] x, float[2,3] h0) => (float[2,3] last) {
  steps = Constant <value = int64 {6}> ()
  first = Constant <value = int64 {0}> ()
  true = Constant <value = bool {1}> ()
  last, place = Loop <body = step (int64 i, bool go, float[2,3] h, int64 p) => (bool more, float[2,3] n, int64 q) {
    one = Constant <value = int64 {1}> ()
    e = Gather (x, p)
    n = Add (h, e)
    q = Add (p, one)
    more = Identity (go)
  }> (steps, true, h0, first)
}"""

_WHILE = """<ir_version: 9, opset_import: ["": 18]>
g (float[2,3] h0, int64 limit) => (float[2,3] last) {
  first = Constant <value = int64 {0}> ()
  steps = Constant <value = int64 {9223372036854775807}> ()
  begins = Less (first, limit)
  last, count = Loop <body = step (int64 i, bool go, float[2,3] h, int64 p) => (bool more, float[2,3] n, int64 q) {
    one = Constant <value = int64 {1}> ()
    n = Tanh (h)
    q = Add (p, one)
    more = Less (q, limit)
  }> (steps, begins, h0, first)
}"""

_COUNTED = """<ir_version: 9, opset_import: ["": 18]>
g (float[6,2,3] x, float[2,3] h0) => (float[2,3] last) {
  steps = Constant <value = int64 {6}> ()
  true = Constant <value = bool {1}> ()
  last = Loop <body = step (int64 i, bool go, float[2,3] h) => (bool more, float[2,3] n) {
    e = Gather (x, i)
    n = Add (h, e)
    more = Identity (go)
  }> (steps, true, h0)
}"""

_STEPS = """<ir_version: 9, opset_import: ["": 18]>
g (float[4,2,3] x, float[3,3] w, float[3,3] u, float[2,3] h0) => (float[2,3] last) {
  axis = Constant <value = int64[1] {0}> ()
  s0, s1, s2, s3 = Split <num_outputs = 4> (x)
  e0 = Squeeze (s0, axis) a0 = MatMul (e0, u) b0 = MatMul (h0, w) c0 = Add (a0, b0) h1 = Tanh (c0)
  e1 = Squeeze (s1, axis) a1 = MatMul (e1, u) b1 = MatMul (h1, w) c1 = Add (a1, b1) h2 = Tanh (c1)
  e2 = Squeeze (s2, axis) a2 = MatMul (e2, u) b2 = MatMul (h2, w) c2 = Add (a2, b2) h3 = Tanh (c2)
  e3 = Squeeze (s3, axis) a3 = MatMul (e3, u) b3 = MatMul (h3, w) c3 = Add (a3, b3) last = Tanh (c3)
}"""

_FUNCTION = """<ir_version: 9, opset_import: ["": 18, "mine": 1]>
g (float[2] x) => (float[2] y) { y = mine.leaky <alpha = 0.5> (x) }
<domain: "mine", opset_import: ["": 18]> leaky <alpha> (a) => (b) { b = LeakyRelu <alpha: float = @alpha> (a) }"""

_BRANCH = """<ir_version: 9, opset_import: ["": 18]>
g (float[2] x) => (float[2] y) {
  true = Constant <value = bool {1}> ()
  y = If (true) <then_branch = a () => (float[2] t) { t = Exp (x) }, else_branch = b () => (float[2] e) { e = Neg (x) }>
}"""

_CELL = """    a = MatMul (e, w)
    b = Add (a, h)
    n = Tanh (b)
    o = Identity (n)"""

_SUMMED = """<ir_version: 9, opset_import: ["": 18]>
g (float[6,2,3] x, float[6,2,3] dy, float[3,3] dw0) => (float[3,3] dw) {
  dw = Scan <num_scan_inputs = 2, body = step (d, e, g) => (n) {
    t = Transpose <perm = [1, 0]> (e)
    p = MatMul (t, g)
    n = Add (d, p)
  }> (dw0, x, dy)
}"""

_REVERSED = """<ir_version: 9, opset_import: ["": 18]>
g (float[6,2,3] x, float[2,3] h0) => (float[2,3] last) {
  begin = Constant <value = int64[1] {-1}> ()
  end = Constant <value = int64[1] {-9223372036854775807}> ()
  axis = Constant <value = int64[1] {0}> ()
  backward = Slice (x, begin, end, axis, begin)
  last = Scan <num_scan_inputs = 1, body = step (h, e) => (n) { s = Add (h, e) n = Tanh (s) }> (h0, backward)
}"""

ENTRIES = (
    Entry(
        InlineFunctionsPass,
        "puts the model's own functions where they are called",
        "functions that fit the model's opset and do not call each other in a circle",
        "the model has no functions",
        _FUNCTION,
    ),
    Entry(
        ConstantBranchPass,
        "puts the branch that runs in the place of an `If`",
        "an `If` whose condition is known",
        "none is left",
        _BRANCH,
    ),
    Entry(
        CommonSubexpressionElimination,
        "merges equal nodes, and Scans that carry the same recurrence",
        "nodes of the same operator, attributes and operands that draw no random numbers",
        "no two equal nodes where one is visible to the other",
        _STRAIGHT,
    ),
    Entry(
        AlgebraicSimplification,
        "drops zeros, ones and moves that cancel, and folds constants",
        "any model; infinities and NaN are kept",
        "no such rule applies to any node",
        _STRAIGHT,
    ),
    Entry(
        DeadCodeElimination,
        "removes nodes, outputs of loops, states and sequences that nothing reads",
        "any model",
        "everything that is computed is read",
        _STRAIGHT,
    ),
    Entry(
        TripCount,
        "computes in advance how often a `Loop` runs that ends when a counter reaches a limit",
        "a condition made of comparisons of counters with what the loop does not change",
        "the `Loop` has a trip count, and its condition always holds",
        _WHILE,
    ),
    Entry(
        InductionVariables,
        "computes a counter from the step's number",
        "a carried integer to which every step adds the same number",
        "the counter is not carried",
        _LOOP,
    ),
    Entry(
        LoopToScan,
        "makes a `Scan` of a `Loop`, and scan inputs of the elements that it gathers",
        "a number of steps known in advance and at least one, a condition that always holds",
        "the loop is a `Scan`, which all other passes know",
        _COUNTED,
    ),
    Entry(
        LoopRerolling,
        "makes a `Scan` of equal steps that stand one after the other",
        "four or more steps with the same operators and weights, each on the results of the one before",
        "these steps are one `Scan`",
        _STEPS,
    ),
    Entry(
        LoopUnrolling,
        "writes a loop as its steps",
        "a `Scan` of a known number of steps",
        "there is no such `Scan`",
        _scan("    n = Add (h, e)\n    o = Neg (n)").replace("6", "2"),
    ),
    Entry(
        InvariantHoisting,
        "moves what is the same in every step before the loop",
        "any `Scan`",
        "no body computes what is the same in every step",
        _scan("    t = Exp (w)\n    a = MatMul (h, t)\n    n = Add (a, e)\n    o = Identity (n)"),
    ),
    Entry(
        LoopInvariantCodeMotion,
        "moves what needs no carried state before the loop, for all steps at once",
        "any `Scan`",
        "a body holds only what needs the carried state, or what no rule writes for all steps at once",
        _scan(_CELL),
    ),
    Entry(
        CodeSinking,
        "moves what only leaves the loop behind it, for all steps at once",
        "any `Scan`; what has to leave the loop in its place is not larger, or a product is spared",
        "products of which only results are read stand behind the loop",
        _scan("    a = Add (h, e)\n    n = Tanh (a)\n    o = MatMul (n, w)"),
    ),
    Entry(
        ReductionRecognition,
        "makes one reduction of a carried sum, and one product of a carried sum of products",
        "a state of which the steps read nothing but to add to it",
        "the state is gone",
        _SUMMED,
    ),
    Entry(
        LoopReversal,
        "walks backwards along a sequence instead of forwards along its reverse",
        "a `Scan` along a reversed sequence, or one whose results are reversed",
        "no sequence is reversed for a loop",
        _REVERSED,
    ),
    Entry(
        ForwardScansPass,
        "writes Scans that run backwards, or along another axis, as forward ones, for runtimes that know no others",
        "a `Scan` of sequences of known rank",
        "every such `Scan` runs forward along axis 0",
        _scan(_CELL, ", scan_input_directions = [1], scan_output_directions = [1]"),
    ),
    Entry(
        ClosedBodies,
        "passes what a body reads from outside in as constant state, for runtimes that capture nothing",
        "any `Scan`; the values are of known rank",
        "no body reads a tensor from outside",
        _scan(_CELL),
    ),
    Entry(
        SigmoidRecognition,
        "writes `1 / (1 + exp(-x))` as `Sigmoid`",
        "the formula stands in a loop's body, and all that reads it scales, adds or moves it",
        "none is left",
        _scan(
            "    one = Constant <value = float {1.0}> ()\n    m = Neg (e)\n    p = Exp (m)\n    q = Add (p, one)\n"
            "    s = Div (one, q)\n    n = Mul (s, h)\n    o = Identity (n)"
        ),
    ),
)


class ForeignPass(Pass):
    """A pass of `onnx_ir`'s own form among ours."""

    def __init__(self, step: ir.passes.PassBase) -> None:
        super().__init__()
        self.step, self.name = step, type(step).__name__

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Runs it.

        Raises:
            InvalidModelError: it makes another model, and does not change the one that it is given.
        """
        result = self.step(model)
        if result.model is not model:
            raise InvalidModelError(f"a pass requires to work in place, got {self.name}, which makes another model")
        return result


class InOrder(Pass):
    """Passes in an order of one's own, each of which runs once.

    Attributes:
        steps: the passes.
        trace: what they did.
    """

    preserves = True

    def __init__(self, steps: Sequence[Pass], trace: Trace | None = None) -> None:
        super().__init__()
        self.steps, self.trace = steps, trace or Trace()

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Runs them."""
        self.context.trace = self.trace
        modified = False
        for step in self.steps:
            before, count = dump(model) if self.trace.dump else None, len(self.trace.changes)
            step.verify_each = self.verify_each
            if not step.share(self.context)(model).modified:
                continue
            modified = True
            # One that is made of passes itself has told of these.
            if len(self.trace.changes) == count:
                self.trace.changed(step.name, 1, before, dump(model) if self.trace.dump else None)
        return ir.passes.PassResult(model, modified)


def chosen(
    passes: Sequence[str | ir.passes.PassBase], further: Mapping[str, Callable[[], Pass]], trace: Trace | None = None
) -> InOrder:
    """Passes that were chosen by name, or made by whoever chose them.

    Args:
        passes: names in `ENTRIES` or `further`, or passes.
        further: name -> what makes the pass.
        trace: collects what they did.

    Raises:
        InvalidInputError: there is no pass of a name, or something is no pass.
    """
    if isinstance(passes, str) or not isinstance(passes, Sequence):
        raise InvalidInputError(f"passes requires a list of names or passes, got {passes!r}")
    by_name = {entry.name: entry.make for entry in ENTRIES} | dict(further)
    return InOrder([_pass(each, by_name) for each in passes], trace)


def _pass(given: str | ir.passes.PassBase, by_name: Mapping[str, Callable[[], Pass]]) -> Pass:
    if isinstance(given, Pass):
        return given
    if isinstance(given, ir.passes.PassBase):
        return ForeignPass(given)
    if not isinstance(given, str):
        raise InvalidInputError(f"passes requires names or passes of onnx_ir's form, got {given!r}")
    if given not in by_name:
        raise InvalidInputError(
            f"passes requires some of {', '.join(sorted(by_name))}, got {given!r}{nearest(given, by_name)}"
        )
    return by_name[given]()
