"""Operators that onnx defines as functions, and those with formulas of ours: on onnx's own node tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import defs, parser
from onnx.reference import ReferenceEvaluator
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidGraph
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NoKernel

import lstm_lower as ll
from lstm_lower.graph.operator_versions import form, misfit
from lstm_lower.passes.decompositions.decompose import DecomposePass
from lstm_lower.passes.shapes import InferShapesPass
from tests.support.fuzz import node_tests

Array = np.ndarray[Any, Any]

# Drawn at random; made of sequences; and a loop that onnx.reference, which alone runs halves, joins wrongly.
ELSEWHERE = {"Bernoulli", "SequenceMap", "Range"}
SCHEMAS = [s for s in defs.get_all_schemas_with_history() if s.domain == "" and not s.deprecated]
FUNCTIONS = {s.name for s in SCHEMAS if s.has_function or s.has_context_dependent_function} - ELSEWHERE
FORMULAS = {"LSTM", "GRU", "RNN", "BatchNormalization", "InstanceNormalization", "LpNormalization", "LRN"}
# Beyond these the number of forms is large; every so manieth test has to do.
EVERY = {
    "Attention": 8,
    "LayerNormalization": 3,
    "RMSNormalization": 3,
    "CastLike": 8,
    "SoftmaxCrossEntropyLoss": 4,
    "NegativeLogLikelihoodLoss": 3,
}
NEWEST_OF_ONNXRUNTIME = 24


def versions(op: str) -> list[int]:
    """The opsets in which the operator is a function, and of those in which nothing changes the newest."""
    found = {
        max(since, body)
        for since, body in (
            (schema.since_version, body)
            for schema in SCHEMAS
            if schema.name == op
            for body in [*schema.function_opset_versions, *schema.context_dependent_function_opset_versions]
        )
    }
    known = {version for version in found if version >= 13} | {NEWEST_OF_ONNXRUNTIME}
    return sorted(version for version in known if version >= min(found, default=13))


def cases(op: str) -> list[tuple[onnx.ModelProto, list[Array], list[Array]]]:
    """Models of one node with their inputs and outputs."""
    module = node_tests.module_of(op)
    assert module is not None
    found = []
    for case in node_tests.cases((module,)).values():
        nodes = case.model.graph.node
        if len(nodes) == 1 and nodes[0].op_type == op and not nodes[0].domain:
            found.append((case.model, *[[_array(x) for x in arrays] for arrays in case.data_sets[0]]))
    return found[:: EVERY.get(op, 1)]


def _array(given: Any) -> Array:
    return np.asarray(onnx.numpy_helper.to_array(given) if isinstance(given, onnx.TensorProto) else given)


def run(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[Array]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return session.run(None, feeds)
    except (RuntimeError, NoKernel, Fail, InvalidGraph):  # types and versions without kernels
        with np.errstate(all="ignore"):
            return ReferenceEvaluator(model).run(None, feeds)


@pytest.mark.parametrize("op", sorted(FUNCTIONS | FORMULAS))
def test_node_tests(op: str) -> None:
    done = 0
    for version in versions(op):
        for published, inputs, outputs in cases(op):
            model = onnx.ModelProto()
            model.CopyFrom(published)
            model.opset_import[0].version, model.ir_version = version, 10
            work = ir.from_proto(model)
            schema = form(op, version)
            if schema is None or misfit(work.graph.node(0), schema) is not None:
                continue  # a form of another opset
            InferShapesPass()(work)
            assert DecomposePass(lambda node: node.op_type == op)(work).modified
            after = ir.to_proto(work)
            onnx.checker.check_model(after, full_check=True)
            found = run(after, dict(zip([x.name for x in model.graph.input], inputs, strict=False)))
            for result, wanted in zip(found, outputs, strict=True):
                close = 2e-3 if wanted.dtype.itemsize < 4 else 1e-5
                exact = wanted.dtype.kind not in "fV" and wanted.dtype.name != "bfloat16"
                left, right = (x if exact else np.asarray(x, np.float64) for x in (result, wanted))
                np.testing.assert_allclose(left, right, rtol=0 if exact else close, atol=0 if exact else close)
            done += 1
    assert done


@pytest.mark.parametrize(
    ("node", "axes"),
    [
        ("LayerNormalization (x, w, b)", 2),
        ("InstanceNormalization (x, v, u)", 2),
        ("GroupNormalization <num_groups = 1> (x, v, u)", (1, 2)),
        ("MeanVarianceNormalization <axes = [1, 2]> (x)", (1, 2)),
        ("BatchNormalization <training_mode = 1> (x, v, u, v, u)", (0, 2)),
    ],
)
def test_digits_do_not_cancel(node: str, axes: int | tuple[int, ...]) -> None:
    """Far from 0 the mean of squares would tell nothing of a variance any more."""
    text = f"""<ir_version: 10, opset_import: ["": 21]>
      g (float[2,3,50] x, float[50] w, float[50] b, float[3] v, float[3] u)
      => (float[2,3,50] y) {{ y = {node} }}"""
    work = ir.from_proto(parser.parse_model(text))
    DecomposePass(lambda _: True)(work)
    x = (np.random.default_rng(0).standard_normal((2, 3, 50)) + 3000).astype(np.float32)
    ones, zeros = {"w": 50, "v": 3}, {"b": 50, "u": 3}
    feeds = {name: np.ones(size, np.float32) for name, size in ones.items()}
    feeds |= {name: np.zeros(size, np.float32) for name, size in zeros.items()}
    wide = x.astype(np.float64)
    wanted = (wide - wide.mean(axes, keepdims=True)) / np.sqrt(wide.var(axes, keepdims=True) + 1e-5)
    (found,) = run(ir.to_proto(work), {"x": x, **feeds})
    np.testing.assert_allclose(found, wanted, atol=1e-3)


def test_what_is_no_function_stays() -> None:
    model = parser.parse_model('<ir_version: 9, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Elu(x) }')
    assert not DecomposePass(lambda _: True)(ir.from_proto(model)).modified


def test_within_bodies_and_again() -> None:
    """Bodies of functions hold functions; the predicate is asked of them too."""
    text = """<ir_version: 9, opset_import: ["": 18]>
      g (float[3, 4] x, float[4] s) => (float[4] t, float[3, 4] y) {
        t, y = Scan <num_scan_inputs = 1, body = b (float[4] a, float[4] e) => (float[4] c, float[4] d)
          { c = Softmax <axis = 0> (e) d = Mish (a) }> (s, x)
      }"""
    model = parser.parse_model(text)
    work = ir.from_proto(model)
    DecomposePass(lambda node: node.op_type in ("Softmax", "Mish"))(work)
    after = ir.to_proto(work)
    assert {"Softmax", "Mish"} & {node.op_type for node in after.graph.node[-1].attribute[0].g.node} == set()
    feeds = {"x": np.ones((3, 4), np.float32), "s": np.ones(4, np.float32)}
    for left, right in zip(run(after, feeds), run(model, feeds), strict=True):
        np.testing.assert_allclose(left, right, atol=1e-6)


@pytest.mark.parametrize("opset", [13, 16])
def test_a_body_keeps_what_it_reads_from_outside(opset: int) -> None:
    """Also where that has the name that the function has for something of its own."""
    model = parser.parse_model("""<ir_version: 10, opset_import: ["": 18]>
      g (float[2] x, float[2] z, float[2] seqlen, float[1] cond_bool) => (float[a, b] y) {
        given = SequenceConstruct (x, z)
        made = SequenceMap (given) <body = b (float[2] e) => (float[2] r) {
          yes = Constant <value = bool {1}> ()
          w = If (yes) <then_branch = p () => (float[2] m) { m = Mul (e, seqlen) },
            else_branch = o () => (float[2] k) { k = Neg (e) }>
          r = Add (w, cond_bool)
        }>
        y = ConcatFromSequence <axis = 0, new_axis = 1> (made)
      }""")
    x, z, seqlen, cond_bool = (np.arange(size, dtype=np.float32) + size for size in (2, 2, 2, 1))
    found = run(ll.lower(model, opset), {"x": x, "z": z, "seqlen": seqlen, "cond_bool": cond_bool})
    np.testing.assert_array_equal(found[0], np.stack([x, z]) * seqlen + cond_bool)
