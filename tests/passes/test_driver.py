"""One driver: the same model and the same errors from `lower`, the command line and an onnx_ir pipeline."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import parser

import lstm_lower as ll
from lstm_lower.errors import OverBudgetError
from lstm_lower.graph.names import Names
from lstm_lower.graph.structure import nesting
from lstm_lower.graph.verify import WrongShapeWarning
from lstm_lower.passes.composites import LowerCompositesPass
from lstm_lower.passes.driver import run_passes
from lstm_lower.passes.lower import lowering_passes
from lstm_lower.passes.model_pass import Pass
from lstm_lower.passes.opset.conversion import ConvertOpsetPass
from lstm_lower.passes.pipeline import optimizing_passes
from lstm_lower.passes.tidy import RemoveUnreadWeightsPass, SortPass, StandardImportsPass, UniqueNamesPass
from lstm_lower.passes.trace import Trace
from tests.support.command_line import run as command
from tests.support.functions import doubling_chain
from tests.support.models import single_node_model
from tests.support.nesting import nested_choices
from tests.support.op_inputs import valid_inputs

SHADOWING = """<ir_version: 9, opset_import: ["": 18]>
g (float[2] x, float[3,2] s, bool c) => (float[2] y, float[3,2] z) <float[2] w = {1, 2}> {
  u, z = Scan <num_scan_inputs = 1, body = b (float[2] x, float[2] w) => (float[2] h, float[2] o) {
    [n] k = Mul(w, w) [m] h = Add(x, k) [o] o = Neg(h) }> (x, s)
  v, q = Scan <num_scan_inputs = 1, body = b (float[2] x, float[2] s) => (float[2] h, float[2] o) {
    [n] k = Exp(s) [m] h = Add(x, k) [o] o = Neg(h) }> (w, s)
  t = If (c) <then_branch = a () => (float[2] n) <float[2] w = {3, 4}> { n = Add(w, u) },
              else_branch = b () => (float[2] h) { h = Add(x, v) }>
  r = ReduceSum <keepdims = 0> (q)
  y = Add(t, r)
}"""


def test_all_three_give_the_same(tmp_path) -> None:
    proto = single_node_model("BlockLSTMGrad", valid_inputs("BlockLSTMGrad"))
    expected = ir.to_proto(ir.from_proto(ll.lower(proto))).SerializeToString(deterministic=True)
    model = ir.from_proto(proto)
    ir.passes.Sequential(*lowering_passes())(model)
    assert ir.to_proto(model).SerializeToString(deterministic=True) == expected
    onnx.save(proto, tmp_path / "in.onnx")
    command("lower", str(tmp_path / "in.onnx"), "-o", str(tmp_path / "out.onnx"))
    written = ir.to_proto(ir.from_proto(onnx.load(tmp_path / "out.onnx")))
    assert written.SerializeToString(deterministic=True) == expected


def test_all_three_refuse_the_same() -> None:
    proto = doubling_chain(60)
    with pytest.raises(OverBudgetError) as expected:
        ll.lower(proto)
    with pytest.raises(ir.passes.PassError) as wrapped:
        ir.passes.Sequential(*lowering_passes())(ir.from_proto(proto))
    assert repr(wrapped.value.__cause__) == repr(expected.value)
    with pytest.raises(ll.InvalidInputError, match="schedule"):
        lowering_passes(schedule="fast", optimize=False)


@pytest.mark.parametrize("schedule", ["auto", "scan", "unroll", "chunk:2"])
@pytest.mark.parametrize("condition", [False, True])
def test_names_that_shadow(schedule: str, condition: bool) -> None:
    """As onnx accepts them: of inputs and initializers of subgraphs, and of nodes side by side."""
    proto = parser.parse_model(SHADOWING)
    onnx.checker.check_model(proto, full_check=True)
    feeds = {"x": np.array([1, -2], np.float32), "c": np.array(condition)}
    feeds["s"] = np.arange(6, dtype=np.float32).reshape(3, 2) / 6
    expected = ll.Session(proto).run(feeds)
    before = proto.SerializeToString(deterministic=True)
    for model in (ll.optimize(proto, schedule, verify_each=True), ll.lower(proto, schedule=schedule)):
        onnx.checker.check_model(model, full_check=True)
        for name, value in ll.Session(model).run(feeds).items():
            np.testing.assert_allclose(value, expected[name], rtol=1e-6)
    assert proto.SerializeToString(deterministic=True) == before


FUNCTION_OF_CHOICES = """<ir_version: 9, opset_import: ["": 18, "mine": 1]>
g (float[2] x, bool c) => (float[2] y, float[2] kept) <float[2] kept = {5, 6}> {
  a = mine.choose(x, c)
  b = mine.choose(a, c)
  y = If (c) <then_branch = b () => (float[2] o) <float[2] w = {3, 4}> { o = Add(w, b) },
              else_branch = b () => (float[2] o) <float[2] w = {1, 2}> { o = Mul(w, b) }>
}
<domain: "mine", opset_import: ["": 18]> choose (a, c) => (r) {
  r = If (c) <then_branch = b () => (float[2] o) <float[2] w = {3, 4}> { o = Sub(w, a) },
              else_branch = b () => (float[2] o) <float[2] w = {1, 2}> { o = Div(w, a) }>
}"""


@pytest.mark.parametrize("wrapped", [False, True])
def test_names_of_initializers_stay_in_the_model_given(wrapped: bool) -> None:
    proto = parser.parse_model(FUNCTION_OF_CHOICES)
    before = proto.SerializeToString(deterministic=True)
    model = ir.from_proto(proto) if wrapped else proto
    for run in (ll.optimize, ll.lower):
        result = run(model)
        (ir.to_proto(result) if wrapped else result).SerializeToString()
        assert proto.SerializeToString(deterministic=True) == before


def test_collecting_names_changes_nothing() -> None:
    model = ir.from_proto(parser.parse_model(SHADOWING))
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    names = Names.of(model)
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before
    assert names.fresh("k") == "k_1"
    UniqueNamesPass().ensures(run_passes(model, [UniqueNamesPass()]))
    with pytest.raises(ir.passes.PostconditionError, match="got 'x' once more"):
        UniqueNamesPass().ensures(model)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (LowerCompositesPass(), "BlockLSTM 'node' requires lowering"),
        (StandardImportsPass(), "only ai.onnx is required"),
        (RemoveUnreadWeightsPass(), "initializers require readers, got none of w"),
    ],
)
def test_postconditions_can_fail(step: Pass, message: str) -> None:
    model = ir.from_proto(single_node_model("BlockLSTM", valid_inputs("BlockLSTM"), constants=("w",)))
    next(iter(model.graph)).name = "node"
    if isinstance(step, RemoveUnreadWeightsPass):
        next(iter(model.graph)).replace_input_with(4, model.graph.inputs[0])
    with pytest.raises(ir.passes.PostconditionError, match=message):
        step.ensures(model)


class Faulty(Pass):
    def call(self, model: ir.Model) -> ir.passes.PassResult:
        node = next(iter(model.graph))
        node.outputs[0].name = model.graph.inputs[0].name
        return ir.passes.PassResult(model, modified=True)


def test_a_faulty_pass_is_named() -> None:
    step = Faulty()
    step.verify_each = True
    with pytest.raises(ir.passes.PostconditionError, match=r"faulty left a malformed model: .* a name of its own"):
        run_passes(doubling_chain(0), [step])


class Silent(Pass):
    def call(self, model: ir.Model) -> ir.passes.PassResult:
        list(model.graph)[1].replace_input_with(0, model.graph.inputs[0])
        return ir.passes.PassResult(model, modified=False)


def test_a_pass_says_what_it_changed() -> None:
    step = Silent()
    step.verify_each = True
    text = "g (float[2] x) => (float[2] y) { h = Neg(x) y = Exp(h) }"
    with pytest.raises(ir.passes.PostconditionError, match=r"^silent changed the model and says that it did not$"):
        run_passes(parser.parse_model(f'<ir_version: 9, opset_import: ["": 18]> {text}'), [step])


class Forgetful(Pass):
    preserves = True

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        node = next(iter(model.graph))
        assert self.context.space.facts.shape(node.outputs[0]) == (2, 3)
        node.replace_input_with(0, model.graph.inputs[1])
        return ir.passes.PassResult(model, modified=True)


def test_what_a_pass_keeps_is_checked() -> None:
    step = Forgetful()
    step.verify_each = True
    text = "g (float[2,3] x, float[3,2] other) => (float[a, b] y) { h = Neg(x) y = Exp(h) }"
    with pytest.raises(ir.passes.PostconditionError, match=r"'h' of Neg .* requires shape \[3, 2\], got \[2, 3\]"):
        run_passes(parser.parse_model(f'<ir_version: 9, opset_import: ["": 18]> {text}'), [step])


@pytest.mark.parametrize("verify_each", [False, True])
@pytest.mark.parametrize(
    ("step", "imports", "node", "message"),
    [
        (StandardImportsPass(), '"": 1000000', "Neg(x)", "opset of 1 to"),
        (LowerCompositesPass(), '"": 18, "tf": 1', "tf.TanhGrad(x, u)", "'u' requires a known dtype"),
        (ConvertOpsetPass(15), '"": 18', "Softmax <axis = 5> (x)", "axis"),
    ],
)
def test_a_pass_alone_blames_a_malformed_model(
    step: Pass, imports: str, node: str, message: str, verify_each: bool
) -> None:
    step.verify_each = verify_each
    text = f"<ir_version: 9, opset_import: [{imports}]> g (float[2] x) => (float[2] y) {{ y = {node} }}"
    with pytest.raises(ir.passes.PassError) as wrapped:
        ir.passes.Sequential(step)(ir.from_proto(parser.parse_model(text)))
    assert type(wrapped.value.__cause__) is ll.InvalidModelError
    assert message in str(wrapped.value.__cause__)


def test_a_pass_alone_asks_for_the_dtypes_that_it_needs() -> None:
    model = ir.from_proto(
        parser.parse_model('<ir_version: 9, opset_import: ["": 18, "tf": 1]> g (x, y) => (z) { z = tf.TanhGrad(x, y) }')
    )
    with pytest.raises(ir.passes.PassError) as wrapped:
        ir.passes.Sequential(LowerCompositesPass())(model)
    assert repr(wrapped.value.__cause__) == repr(ll.InvalidModelError("'x' requires a known dtype, got an unknown one"))


CONTRADICTION = """g (float[2] x) => (float[9, 2] y) <int64 n = {3}, bool go = {1}> {
  last, y = Loop <body = b (int64 i, bool c, float[2] h) => (bool k, float[2] m, float[2] o) {
    k = Identity(c) m = Neg(h) o = Exp(h) }> (n, go, x)
}"""


@pytest.mark.parametrize("verify_each", [False, True])
def test_a_wrong_shape_that_a_pass_brings_to_light_is_put_right(*, verify_each: bool) -> None:
    model = parser.parse_model(f'<ir_version: 9, opset_import: ["": 18]> {CONTRADICTION}')
    with pytest.warns(WrongShapeWarning, match=r"\[9, 2\].*made with \[3, 2\]"):
        optimized = ll.optimize(model, verify_each=verify_each)
    onnx.checker.check_model(optimized, full_check=True)
    assert [dim.dim_value for dim in optimized.graph.output[0].type.tensor_type.shape.dim] == [3, 2]


@pytest.mark.parametrize("imports", ['["": 11, "tf": 1]', '["tf": 1]'])
def test_models_are_verified_once_they_are_of_an_opset_that_can_be(imports: str) -> None:
    text = "g (float[2] x, float[2] y) => (double[2] z) { z = tf.TanhGrad(x, y) }"
    with pytest.raises(ll.InvalidModelError, match="requires type FLOAT, which follows"):
        ll.lower(parser.parse_model(f"<ir_version: 8, opset_import: {imports}> {text}"))


def test_every_pass_promises_what_verify_each_checks() -> None:
    steps = [step for passes in (lowering_passes, optimizing_passes) for step in passes(verify_each=True)[1:]]
    assert all(step.verify_each for step in steps)
    assert all(step.name for step in steps)


def test_an_order_is_found_for_the_optimiser() -> None:
    text = SHADOWING.replace("  t = If", "  y = Add(t, r)\n  t = If").replace("  y = Add(t, r)\n}", "}")
    proto = parser.parse_model(text)
    assert SortPass()(ir.from_proto(proto)).modified
    onnx.checker.check_model(ll.optimize(proto), full_check=True)


@pytest.mark.slow
def test_deep_nesting() -> None:
    model = nested_choices(300)
    for result in (ll.lower(model, verify_each=True), ll.optimize(model)):
        assert nesting(result) == 301
    with pytest.raises(ll.InvalidModelError, match=r"recursion limit of \d+ allows, got 3001 levels; sys.setrec"):
        ll.optimize(nested_choices(3000))


def test_notes_say_why_nothing_was_done() -> None:
    def notes(model: onnx.ModelProto | ir.Model) -> list[str]:
        trace = Trace()
        ll.optimize(model, trace=trace)
        return trace.notes

    assert notes(nested_choices(1)) == ["nothing to do: the model has no loops"]
    composite = single_node_model("BlockLSTM", valid_inputs("BlockLSTM"))
    (note,) = notes(composite)
    assert note == "1 BlockLSTM: recurrent ops have loops only after lowering; run lower first"
    assert notes(parser.parse_model(SHADOWING)) == []
    assert notes(ll.optimize(ll.lower(composite))) == ["nothing to do: the model has no loops that could be better"]


def test_the_collector_stays_as_the_host_has_it() -> None:
    thresholds = gc.get_threshold()
    seen: list[tuple[bool, tuple[int, int, int]]] = []

    class Look(Pass):
        def call(self, model: ir.Model) -> ir.passes.PassResult:
            seen.append((gc.isenabled(), gc.get_threshold()))
            return ir.passes.PassResult(model, modified=False)

    model = nested_choices(1)
    threads = [threading.Thread(target=run_passes, args=(model, [Look()] * 20)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(enabled and now[0] == thresholds[0] for enabled, now in seen)
    assert gc.get_threshold() == thresholds


@pytest.mark.parametrize(
    "convert",
    [ll.lower, ll.optimize, lambda model: ll.gradient(model, "y", ["x"], seeds=True)],
    ids=["lower", "optimize", "gradient"],
)
def test_a_model_may_import_its_operators_by_their_name(convert: Callable[[onnx.ModelProto], onnx.ModelProto]) -> None:
    head = '<ir_version: 9, opset_import: ["" : 20]>'
    text = head + "g (float[3] x) => (float[3] y) { a = Exp(x) b = Exp(x) y = Mul(a, b) }"
    model = onnx.parser.parse_model(text)
    expected = convert(model)
    model.opset_import[0].domain = "ai.onnx"
    assert convert(model) == expected
