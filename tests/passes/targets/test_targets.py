"""Models for a target: what it lacks is written otherwise or named, and its provider runs the whole graph."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import lstm_lower as ll
from lstm_lower.errors import InvalidInputError, InvalidModelError, UnsupportedOpError
from lstm_lower.graph import standard as std
from lstm_lower.graph.edit import captures
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.passes.loops.views.loop import scans_of
from lstm_lower.passes.targets.fixed_sizes import FixedSizesPass
from lstm_lower.passes.targets.table import TARGETS
from lstm_lower.runtime.feeds import read_arrays
from lstm_lower.runtime.placement import placement
from lstm_lower.runtime.providers import row_of
from tests.support.command_line import TRAIN, fail, succeed
from tests.support.provider_plugins import needs, runs_here

FEEDS, RECORDED = read_arrays(TRAIN.with_suffix(".npz"))
BATCH = {"batch": FEEDS["ids:0"].shape[1]}
LOOP = """
<ir_version: 8, opset_import: ["" : 18]>
g (float[T,3] x, float[3] h) => (float[3] last)
{ last = Scan<num_scan_inputs = 1, body = b (float[3] a, float[3] e) => (float[3] s)
  { p = Mul(a, e) s = Tanh(p) }>(h, x) }"""
NESTED = """
<ir_version: 8, opset_import: ["" : 18]>
g (float[4,5,3] x, float[3] h) => (float[3] last)
{ last = Scan<num_scan_inputs = 1, body = b (float[3] a, float[5,3] e) => (float[3] s)
  { s = Scan<num_scan_inputs = 1, body = c (float[3] d, float[3] f) => (float[3] t)
    { m = Mul(d, f) t = Tanh(m) }>(a, e) }>(h, x) }"""


def one(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> g {text}')


@functools.cache
def lowered(target: str, schedule: str = "auto") -> onnx.ModelProto:
    sizes = BATCH if TARGETS[target].fixed_sizes else None
    return ll.lower(TRAIN, schedule=schedule, target=target, sizes=sizes)


def error(session: ll.Session) -> float:
    """The largest error against TensorFlow's recorded results, relative to an output's largest magnitude."""
    found = session.run(FEEDS)
    pairs = [(found[name], array) for name, array in RECORDED.items()]
    return max(float(np.abs(got - array).max() / np.abs(array).max()) for got, array in pairs)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_the_processor_runs_it_too(target: str) -> None:
    assert error(ll.Session(lowered(target))) < 2e-6


@pytest.mark.parametrize(("target", "schedule"), [("ggml", "auto"), ("openvino", "auto"), ("openvino", "unroll")])
def test_the_provider_runs_every_node(target: str, schedule: str) -> None:
    needs(target)
    found = placement(lowered(target, schedule), target)
    found.require_whole()
    assert len(found.nodes[row_of(target).name]) > 100
    assert error(ll.Session(lowered(target, schedule), target)) < 2e-6


@pytest.mark.parametrize("target", ["ggml", "openvino", "webgpu"])
def test_a_session_lowers_for_its_provider(target: str) -> None:
    needs(target)
    assert error(ll.Session(TRAIN, [target])) < 2e-6


def test_loops_for_openvino_read_nothing_from_outside() -> None:
    scans = scans_of(ir.from_proto(lowered("openvino")).graph)
    assert len(scans) == 2
    assert not any(map(captures, scans))


@pytest.mark.parametrize("target", ["ggml", "cuda-graph", "webgpu"])
def test_targets_without_loops(target: str) -> None:
    nodes = list(all_nodes(ir.from_proto(lowered(target)).graph))
    assert not any(std.ControlFlow.matches(node) for node in nodes)
    with pytest.raises(InvalidInputError, match=rf"target '{target}' requires a schedule of \['unroll'\], got 'scan'"):
        ll.lower(TRAIN, schedule="scan", target=target)


def test_models_without_recurrent_ops_are_written_for_a_target_too() -> None:
    model = onnx.parser.parse_model(LOOP)
    unrolled = ll.lower(model, target="ggml", sizes={"T": 4}, verify_each=True)
    assert [node.op_type for node in unrolled.graph.node].count("Tanh") == 4
    feeds = {"x": np.arange(12, dtype=np.float32).reshape(4, 3), "h": np.ones(3, np.float32)}
    np.testing.assert_allclose(ll.Session(unrolled).run(feeds)["last"], ll.Session(model).run(feeds)["last"], rtol=1e-6)


@pytest.mark.parametrize("steps", [33, 64, 70])
def test_a_capture_joins_and_divides_few_parts_at_a_time(steps: int) -> None:
    parts = [f"p{number}" for number in range(steps)]
    model = onnx.parser.parse_model(f"""
<ir_version: 8, opset_import: ["" : 18]>
g (float[{steps},3] x, float[3] h) => (float[3] last, float[{steps},3] all, float[2,{steps}] turned)
{{ last, all = Scan<num_scan_inputs = 1, body = b (float[3] a, float[3] e) => (float[3] s, float[3] o)
  {{ p = Mul(a, e) s = Tanh(p) o = Neg(s) }}>(h, x)
  rows = Constant<value_ints = [0, 2]>() two = Gather<axis = 1>(x, rows)
  {", ".join(parts)} = Split<axis = 0, num_outputs = {steps}>(two) back = Concat<axis = -2>({", ".join(parts[::-1])})
  turned = Transpose<perm = [1, 0]>(back) }}""")
    made = ll.lower(model, target="cuda-graph", verify_each=True)
    assert max(max(len(node.input), len(node.output)) for node in made.graph.node) == 32
    feeds = {"x": np.random.default_rng(0).uniform(0.5, 1, (steps, 3)).astype(np.float32), "h": np.ones(3, np.float32)}
    found, expected = ll.Session(made).run(feeds), ll.Session(model).run(feeds)
    assert all(np.array_equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize(
    ("model", "target", "message"),
    [
        (LOOP, "ggml", r"no Scan, got 'last'; --dim or sizes=\{\.\.\.\} fixes its number of steps"),
        (LOOP, "cuda-graph", r"no open sizes, got \['T', '3'\] of 'x'; --dim or sizes=\{\.\.\.\} fixes"),
        (NESTED, "openvino", r"no loop in a loop, got 's'; schedule unroll takes them apart"),
        ("(double[3] x) => (double[3] y) { y = Exp(x) }", "openvino", "no double, got 'x'"),
        ("(float[3] x) => (float[3] y) { d = Cast<to = 11>(x) e = Exp(d) y = Cast<to = 1>(e) }", "ggml", "no double"),
        ("(float[3] x) => (float[3] y) { y = Asinh(x) }", "ggml", "no Asinh, got 'y'"),
        ("(float[3,4] x, int64[2] s) => (float[2,6] y) { y = Reshape(x, s) }", "cuda-graph",
         "no Reshape whose sizes, places or axes are computed by the device"),
        ("(float[4,4] x, float[2] s) => (float[8,8] y) { y = Resize<mode = \"nearest\">(x, , s) }", "cuda-graph",
         "no Resize whose sizes, places or axes are computed by the device"),
        ("(float[1,6,4] b, float[1,1,6] s) => (int64[K,3] y) { y = NonMaxSuppression(b, s) }", "cuda-graph",
         "no NonMaxSuppression, got 'y'"),
        ("(float[3,4] x) => (int64[2] y) { y = Shape(x) }", "cuda-graph", None),
        ("(int64[3] x) => (int64[K] y) { n = NonZero(x) y = Shape(n) }", "webgpu", "no NonZero, got 'n'"),
        ("(float[3] x) => (float[3] y) { y = Sin(x) }", "webgpu-web", "no Sin in float32, got 'y'"),
        ("(float[3] x) => (float[3] y) { y = Pow(x, x) }", "webgpu-web", "no Pow with an open .* exponent, got 'y'"),
    ],
)  # fmt: skip
def test_what_a_target_cannot_run_is_named(model: str, target: str, message: str | None) -> None:
    proto = onnx.parser.parse_model(model) if "ir_version" in model else one(model)
    if message is None:
        ll.lower(proto, target=target)
        return
    with pytest.raises(UnsupportedOpError, match=message):
        ll.lower(proto, target=target)


def test_loops_in_loops_are_taken_apart() -> None:
    model = ll.lower(onnx.parser.parse_model(NESTED), target="openvino", schedule="unroll", verify_each=True)
    assert not any(node.op_type == "Scan" for node in model.graph.node)


def test_bad_options() -> None:
    with pytest.raises(InvalidInputError, match=r"target requires one of \['coreml', 'cpu', .+ got 'abacus'"):
        ll.lower(TRAIN, target="abacus")
    with pytest.raises(InvalidInputError, match=r"names of open sizes of inputs, \['batch'\], got 'T'"):
        ll.lower(TRAIN, sizes={"T": 3})

    for size in (True, 0):
        with pytest.raises(InvalidInputError, match=f"require positive integers, got {size} for 'batch'"):
            ll.lower(TRAIN, sizes={"batch": size})


def test_sizes_without_names_are_fixed_by_their_places() -> None:
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 18]>
        g (float[N, M] x, float[N, M] z) => (float[N, M] y) { y = Add(x, z) }""")
    for value in (model.graph.input[0], model.graph.output[0]):
        value.type.tensor_type.shape.dim[1].Clear()
    x = ll.lower(model, sizes={"x.1": 3}).graph.input[0].type.tensor_type.shape.dim
    assert [x[0].dim_param, x[1].dim_value] == ["N", 3]


def test_fixed_sizes() -> None:
    work = ir.from_proto(onnx.load(TRAIN))
    step = FixedSizesPass({"batch": 3})
    step.verify_each = True
    assert step(work).modified
    assert [list(value.shape) for value in work.graph.inputs if value.name == "ids:0"] == [[20, 3]]
    model = ll.lower(TRAIN, sizes={"batch": 3})
    assert not any(size.dim_param for value in model.graph.input for size in value.type.tensor_type.shape.dim)


@pytest.mark.parametrize(
    ("text", "provider", "message"),
    [
        (
            '(int32[3] x, int32[3] n) => (int32[3] y) { y = BitShift<direction = "LEFT">(x, n) }',
            "openvino",
            "no BitShift",
        ),
        ("(double[3] x) => (double[3] y) { y = Exp(x) }", "openvino", "no double"),
        ("(double[3] x) => (double[3] y) { y = Exp(x) }", "ggml", "no double"),
    ],
)
def test_a_session_refuses_what_its_provider_would_compute_otherwise(text: str, provider: str, message: str) -> None:
    needs(provider)
    with pytest.raises(UnsupportedOpError, match=message):
        ll.Session(one(text), [provider])


EDGES = np.array([0.0, -0.0, -1.0, 0.5, 2.0, 1e4, np.inf, np.nan], np.float32)
CURVE = """
<ir_version: 8, opset_import: ["" : 18, "f" : 1]>
g (float[8] x) => (float[8] y) { y = f.curve(x) }
<domain: "f", opset_import: ["" : 18]>
curve (a) => (b) { b = Log(a) }"""
LARGEST = """
<ir_version: 8, opset_import: ["" : 18]>
g (float[8] x) => (float[1,1,4] y, int64[1,1,4] at) {
  form = Constant<value_ints = [1, 1, 8]>()
  row = Reshape(x, form)
  y, at = MaxPool<kernel_shape = [2], strides = [2]>(row) }"""
EXPONENTS = np.array([2, 3, 4, 10, 100, 2.5, 1, 0], np.float32)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("(float[8] x) => (float[8] y) { a = Neg(x) b = Floor(x) y = Max(x, a, b) }", "ggml"),
        ("(float[8] x) => (float[8] y) { l = Log(x) c = Greater(x, x) y = Where(c, l, x) }", "ggml"),
        *((f"(float[8] x) => (float[8] y) {{ y = {op}(x) }}", "webgpu") for op in ("Sin", "Cos", "Tan", "Acos", "Log")),
        ("(float[8] x, float[8] t) => (float[8] y) { y = Pow(x, t) }", "webgpu"),
        ("(float[8] x, float[8] t) => (float[8] y) { n = Cast<to=7>(t) f = Cast<to=1>(n) y = Pow(x, f) }", "webgpu"),
        ("(float[8] x, float[8] t) => (int32[8] y) { n = Cast<to = 6>(t) y = Pow(n, n) }", "webgpu"),
        (CURVE, "webgpu"),
        (LARGEST, "webgpu"),
    ],
)  # fmt: skip
def test_what_a_provider_would_compute_otherwise_is_written_otherwise(text: str, target: str) -> None:
    model = onnx.parser.parse_model(text) if "ir_version" in text else one(text)
    feeds = {"x": EDGES, "t": EXPONENTS}
    feeds = {value.name: feeds[value.name] for value in model.graph.input}
    expected = ll.Session(model).run(feeds)
    lowered_model = ll.lower(model, target=target)
    sessions = [ll.Session(lowered_model)]
    if runs_here(target):
        sessions += [ll.Session(model, [target]), ll.Session(lowered_model, [target])]
    for session in sessions:
        for name, found in session.run(feeds).items():
            np.testing.assert_allclose(found, expected[name], rtol=1e-6, atol=2e-7)


def test_loops_on_webgpu_are_unrolled_by_the_session() -> None:
    needs("webgpu")
    model = onnx.parser.parse_model(LOOP)
    with pytest.raises(
        UnsupportedOpError, match=r"no Scan, got 'last'; --dim or sizes=\{...\} fixes its number of steps"
    ):
        ll.Session(model, ["webgpu"])
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 4
    feeds = {"x": np.arange(12, dtype=np.float32).reshape(4, 3) / 8, "h": np.ones(3, np.float32)}
    found = placement(model, ["webgpu"]).nodes["WebGpuExecutionProvider"]
    assert sum(node.startswith("Tanh") for node in found) == 4
    expected = ll.Session(model).run(feeds)["last"]
    np.testing.assert_allclose(ll.Session(model, ["webgpu"]).run(feeds)["last"], expected, rtol=1e-5)


def test_logarithms_of_what_is_above_zero_stay() -> None:
    model = one("(float[3] x) => (float[3] y) { y = Log(x) }")
    once = ll.lower(model, target="webgpu")
    assert ll.lower(once, target="webgpu").graph.node == once.graph.node


def test_a_model_for_the_processor_on_openvino() -> None:
    needs("openvino")
    with pytest.raises(InvalidModelError, match=r"lower\(model, target='openvino'\) writes it for this provider"):
        ll.Session(ll.lower(TRAIN), ["openvino"])


def test_command_line(tmp_path: Path) -> None:
    path = tmp_path / "low.onnx"
    assert "0 loops" in succeed("lower", TRAIN, "-o", path, "--target", "cuda-graph", "--dim", "batch=4")
    assert error(ll.Session(path)) < 2e-6
    assert "requires a model with" in fail("lower", TRAIN, "-o", tmp_path / "x.onnx", "--target", "cuda-graph")
    assert not (tmp_path / "x.onnx").exists()
