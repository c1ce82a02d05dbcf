"""Operators that onnxruntime's kernels take long for: which are written otherwise, that results stay, and where."""

from __future__ import annotations

import math

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import lstm_lower as ll
from lstm_lower.graph.dump import dump
from lstm_lower.passes.loops.common_subexpression_elimination import CommonSubexpressionElimination
from lstm_lower.passes.shapes import InferShapesPass
from lstm_lower.passes.targets import slow_kernels
from lstm_lower.passes.targets.legalize import LegalizePass
from lstm_lower.passes.targets.slow_kernels import LEAST, LEAST_BESIDE_SCALARS
from lstm_lower.passes.targets.table import TARGETS
from tests.conftest import Golden
from tests.support.examples import tried

HEADER = '<ir_version: 8, opset_import: ["" : 18]> g '
NETWORK = """
(float[N,64,64] x, float[1] slope) => (float[N,64,64] y)
{ a = PRelu(x, slope) b = Softplus(a) y = Mish(b) }"""
RELU = """
(float[N,64,64] x, float[N,64,64] dy, float[N,64,64] h) => (float[N,64,64] dx, float[N,64,64] bounded)
{
  zero = Constant <value = float {0.0}> ()
  y = Relu(x) off = LessOrEqual(y, zero) dx = Where(off, zero, dy)
  t = Tanh(h) low = Greater(x, zero) high = Less(x, h) inside = And(low, high) bounded = Where(inside, t, zero)
}"""
LAYER = """
(float[N,256,4,4] x, float[256,128,4,4] w, float[128] b) => (float[N,128,8,8] y)
{ y = ConvTranspose <strides = [2, 2], pads = [1, 1, 1, 1]> (x, w, b) }"""
STEP = """
(float[64,64,1,1] w, float[64,64,1,1] g, float rate, bool[64,64,1,1] known) => (float[64,64,1,1] new)
{
  tiny = Constant <value = float {1e-3}> ()
  moved = Mul(rate, g) safe = Add(moved, tiny) chosen = Where(known, safe, rate) new = Sub(w, chosen)
}"""
NETWORKS = {"kernels": NETWORK, "selections": RELU, "images": LAYER, "scalars": STEP}


def parsed(text: str) -> ir.Model:
    model = ir.from_proto(onnx.parser.parse_model(HEADER + text))
    InferShapesPass()(model)
    return model


def is_rewritten(model: ir.Model) -> bool:
    step = LegalizePass(slow=True)
    step.verify_each = True
    return step(model).modified


def of_kernel(nodes: str, rows: str, kind: str = "float") -> ir.Model:
    operands = f"{kind}[{rows},128] x, {kind} one, {kind}[1,1] single, {kind}[128] each"
    return parsed(f"({operands}) => ({kind}[{rows},128] y) {{ {nodes} }}")


@pytest.mark.parametrize("network", NETWORKS)
def test_goldens(network: str, golden: Golden) -> None:
    model = parsed(NETWORKS[network])
    before = dump(model)
    assert is_rewritten(model)
    # As in the pipeline.
    CommonSubexpressionElimination()(model)
    golden(f"slow_{network}", before=before, after=dump(model))


@pytest.mark.parametrize("network", NETWORKS)
def test_an_optimised_model_stays_as_it_is(network: str) -> None:
    optimised = ll.optimize(parsed(NETWORKS[network]), verify_each=True)
    assert dump(optimised) != dump(parsed(NETWORKS[network]))
    assert dump(ll.optimize(optimised)) == dump(optimised)


@pytest.mark.parametrize("target", sorted(TARGETS.keys() - {"cpu"}))
def test_for_processors_alone(target: str) -> None:
    model = ir.to_proto(parsed(RELU.replace("N,", "2,")))
    lowered = ll.lower(model, target=target)
    assert not any(node.op_type == "IsNaN" for node in lowered.graph.node)
    random = np.random.default_rng(0)
    feeds = {name: random.normal(size=(2, 64, 64)).astype(np.float32) for name in ("x", "dy", "h")}
    expected, got = (ll.Session(m).run(feeds) for m in (model, lowered))
    for name, array in expected.items():
        np.testing.assert_array_equal(got[name], array)


# Of float[T,128] x; whether it is rewritten.
KERNELS = {
    "y = Softplus(x)": True,
    "y = Mish(x)": True,
    "y = PRelu(x, one)": True,
    "y = PRelu(x, single)": True,
    "y = PRelu(x, each)": False,
    "y = Elu(x)": False,
}
EDGES = np.array([0.0, -0.0, 1e-30, -1e-30, 88.0, -88.0, 104.0, -104.0, 3e38, -3e38, np.inf, -np.inf, np.nan])


@pytest.mark.parametrize("nodes", KERNELS)
def test_which_kernels_are_rewritten(nodes: str) -> None:
    assert is_rewritten(of_kernel(nodes, "T")) == KERNELS[nodes]
    assert not is_rewritten(of_kernel(nodes, str(LEAST // 128 - 1)))
    assert not is_rewritten(of_kernel(nodes, "T", kind="double"))


def exact(nodes: str, feeds: dict[str, np.ndarray]) -> np.ndarray:
    """The operator in float64."""
    x, slope = (np.asarray(feeds[name], np.float64).reshape(-1, 128) for name in ("x", "slope"))
    if "PRelu" in nodes:
        return np.where(x < 0, slope * x, x)
    softplus = np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))
    return softplus if "Softplus" in nodes else x * np.tanh(softplus)


@tried(40)
@given(
    nodes=st.sampled_from([nodes for nodes, expected in KERNELS.items() if expected]),
    rows=st.sampled_from([0, 1, 3, 64]),
    seed=st.integers(0, 2**31),
    scale=st.sampled_from([0.01, 1.0, 30.0]),
    at_edges=st.booleans(),
)
def test_kernels_keep_results(nodes: str, rows: int, seed: int, scale: float, at_edges: bool) -> None:
    model = of_kernel(nodes, "T")
    before = ir.from_proto(ir.to_proto(model))
    assert is_rewritten(model)
    random = np.random.default_rng(seed)
    x = random.choice(EDGES, (rows, 128)) if at_edges else random.normal(scale=scale, size=(rows, 128))
    feeds = {"x": x, "one": random.normal(), "single": random.normal(size=(1, 1)), "each": np.zeros(128)}
    feeds = {name: np.asarray(value, np.float32) for name, value in feeds.items()}
    kernel, ours = (ll.Session(ir.to_proto(m)).run(feeds)["y"].astype(np.float64) for m in (before, model))
    if "PRelu" in nodes or at_edges:
        np.testing.assert_allclose(ours, kernel, rtol=0 if "PRelu" in nodes else 1e-6, atol=1e-37)
    else:
        right = exact(nodes, {**feeds, "slope": np.zeros((1, 128))})
        error, allowed = np.abs(ours - right), np.abs(kernel - right)
        assert (error <= allowed + 3e-7 * np.abs(right) + 1e-37).all()


# A rectangle of float[T,128] x, y, float[128] v, bool[T,128] m; whether it is written as a product.
SELECTIONS = {
    "c = Less(x, y) z = Where(c, x, zero)": True,
    "c = Less(x, v) z = Where(c, zero, y)": True,
    "c = GreaterOrEqual(x, zero) n = Not(c) z = Where(n, y, zeros)": True,
    "c = Less(x, y) d = Greater(x, zero) e = Or(c, d) z = Where(e, x, zero)": True,
    # Both operands are numbers, a number is no zero, or it is one for all.
    "c = Less(x, y) z = Where(c, x, y)": False,
    "c = Less(x, y) z = Where(c, x, one)": False,
    "c = Less(x, y) z = Where(c, one, zero)": False,
    "c = Less(x, y) z = Where(c, v, zero)": False,
    # What decides is not known to be a comparison of numbers, or is one of few.
    "z = Where(m, x, zero)": False,
    "c = Less(x, y) e = And(c, m) z = Where(e, x, zero)": False,
    "c = Less(v, zero) z = Where(c, x, zero)": False,
    "c = Equal(x, y) z = Where(c, x, zero)": False,
    "s = Shape(x) o = Expand(one, s) w = Less(v, zero) f = Expand(w, s) z = Where(f, x, zero)": False,
}
WILD = np.array([0.0, -0.0, 1.0, -1.0, 2.5, np.inf, -np.inf, np.nan, 3e38, -3e38], np.float32)


def of_selection(nodes: str, rows: str = "T", kind: str = "float") -> ir.Model:
    shape = f"[{rows},128]"
    return parsed(f"""({kind}{shape} x, {kind}{shape} y, {kind}[128] v, bool{shape} m) => ({kind}{shape} z)
{{ zero = Constant <value = {kind} {{0.0}}> () zeros = Constant <value = {kind}[1,1] {{0.0}}> ()
  one = Constant <value = {kind} {{1.0}}> () {nodes} }}""")


@pytest.mark.parametrize("nodes", SELECTIONS)
def test_which_selections_are_rewritten(nodes: str) -> None:
    model = of_selection(nodes, rows=str(LEAST // 128))
    assert is_rewritten(model) == SELECTIONS[nodes]
    assert not is_rewritten(model)


def test_only_large_tensors_of_floats() -> None:
    nodes = "c = Less(x, y) z = Where(c, x, zero)"
    assert is_rewritten(of_selection(nodes, rows=str(LEAST // 128), kind="double"))
    assert not is_rewritten(of_selection(nodes, rows=str(LEAST // 128 - 1)))
    halves = "(float16[64,128] x, float16 zero) => (float16[64,128] z) { c = Less(x, x) z = Where(c, x, zero) }"
    assert not is_rewritten(parsed(halves))


@tried(40)
@given(
    nodes=st.sampled_from([nodes for nodes, expected in SELECTIONS.items() if expected]),
    kind=st.sampled_from(["float", "double"]),
    rows=st.sampled_from([0, 1, 3, 64]),
    seed=st.integers(0, 2**31),
    wild=st.booleans(),
)
def test_selections_keep_results(nodes: str, kind: str, rows: int, seed: int, wild: bool) -> None:
    model = of_selection(nodes, kind=kind)
    before = ir.from_proto(ir.to_proto(model))
    # An open size counts as 64.
    assert is_rewritten(model)
    random, dtype = np.random.default_rng(seed), np.float32 if kind == "float" else np.float64
    feeds = {
        name: (random.choice(WILD, shape) if wild else random.normal(size=shape)).astype(dtype)
        for name, shape in (("x", (rows, 128)), ("y", (rows, 128)), ("v", (128,)))
    }
    feeds["m"] = random.random((rows, 128)) < 0.5
    expected, found = (ll.Session(ir.to_proto(m)).run(feeds)["z"] for m in (before, model))
    np.testing.assert_array_equal(found, expected, strict=True)


def test_a_gradient_through_a_root_at_zero_stays_zero() -> None:
    """The gradient of a root is infinite at zero, and that of ReLU hands nothing of it on, as in PyTorch."""
    model = parsed("(float[64,128] x) => (float loss) { y = Relu(x) r = Sqrt(y) loss = ReduceSum<keepdims = 0>(r) }")
    lowered = ll.optimize(ir.to_proto(ll.gradient(model, of="loss", wrt=["x"])))
    assert any(node.op_type == "If" for node in lowered.graph.node)
    x = np.zeros((64, 128), np.float32)
    x[0, :4] = -1, 4, np.nan, np.inf
    gradient = ll.Session(lowered).run({"x": x})["grad/x"]
    expected = np.zeros_like(x)
    expected[0, :4] = 0, 0.25, np.nan, 0
    np.testing.assert_array_equal(gradient, expected)


@pytest.mark.parametrize(
    ("changed", "stacked"),
    [
        ("N,256,4,4", True),
        ("8,256,4,4", True),
        ("1,256,4,4", False),
        ("N,256,1,1", False),
        ("N,256,8,8", False),
        ("N,256,4,W", False),
        ("N,256,H,4", False),
    ],
)
def test_only_known_small_images_of_a_batch(changed: str, stacked: bool) -> None:
    model = parsed(LAYER.replace("N,256,4,4", changed).replace("float[N,128,8,8] y", "float[A,B,C,D] y"))
    assert is_rewritten(model) is stacked
    assert not is_rewritten(model)


@tried(60)
@given(
    data=st.data(), dimensions=st.integers(1, 3), number=st.integers(0, 3), is_open=st.booleans(), bias=st.booleans()
)
def test_stacked_images_keep_results(
    data: st.DataObject, dimensions: int, number: int, is_open: bool, bias: bool
) -> None:
    def each(first: int, last: int) -> list[int]:
        return data.draw(st.lists(st.integers(first, last), min_size=dimensions, max_size=dimensions))

    sizes, kernel, strides, dilations = each(1, 4), each(1, 4), each(1, 3), each(1, 2)
    before, after = each(0, 2), each(0, 2)
    # onnxruntime has no kernel for more elements at the end of windows that are spread.
    more = [
        min(extra, stride - 1) if max(dilations) == 1 else 0 for extra, stride in zip(each(0, 2), strides, strict=True)
    ]
    windows = zip(sizes, kernel, strides, dilations, before, after, more, strict=True)
    assume(all((n - 1) * s + (k - 1) * d + 1 - p - q + extra > 0 for n, k, s, d, p, q, extra in windows))
    assume(math.prod(sizes) > 1)
    shape = ",".join(map(str, ["N" if is_open else number, 2, *sizes]))
    operands = f"float[{shape}] x, float[2,3,{','.join(map(str, kernel))}] w" + ", float[3] b" * bias
    result = ",".join("ABCDE"[: 2 + dimensions])
    model = parsed(
        f"({operands}) => (float[{result}] y) {{ "
        f"y = ConvTranspose <strides = {strides}, dilations = {dilations}, pads = {before + after}, "
        f"output_padding = {more}> ({'x, w, b' if bias else 'x, w'}) }}"
    )
    original = ir.from_proto(ir.to_proto(model))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(slow_kernels, "MANY", 0)
        assert is_rewritten(model) is (is_open or number > 1)
    random = np.random.default_rng(0)
    shapes = {"x": [number, 2, *sizes], "w": [2, 3, *kernel], **({"b": [3]} if bias else {})}
    feeds = {name: random.standard_normal(dims).astype(np.float32) for name, dims in shapes.items()}
    expected, found = (ll.Session(ir.to_proto(m)).run(feeds)["y"] for m in (original, model))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5, strict=True)


# The shape of a tensor, the shape of a scalar, and the rank in which the scalar is read.
RANKS = [
    ("64,64,1,1", "", 3),
    ("64,64,1,1", "1", 3),
    ("64,64,1,1", "1,1", 3),
    ("64,64,1,1", "1,1,1", 3),
    ("64,64,1", "", 2),
    ("4096,1", "1", 2),
    ("N,64,64,1", "", 2),
    ("64,64", "", 0),
    ("64,1,64", "1", 1),
    ("64,63,1,1", "", 0),
    ("N,M,1,1", "", 0),
    ("1,1,1", "", 0),
]


def beside_scalar(op: str, shape: str, scalar: str, *, scalar_first: bool = False) -> ir.Model:
    operands = "s, x" if scalar_first else "x, s"
    sizes = f"float[{scalar}]" if scalar else "float"
    kind = "bool" if op == "Greater" else "float"
    header = f"(float[{shape}] x, {sizes} s) => ({kind}[{shape}] y)"
    return parsed(f"{header} {{ y = {op}({operands}) }}")


@pytest.mark.parametrize(("shape", "scalar", "rank"), RANKS, ids=str)
def test_ranks(shape: str, scalar: str, rank: int) -> None:
    model = beside_scalar("Mul", shape, scalar)
    assert is_rewritten(model) == (rank != len(scalar.replace(",", "")))
    read = model.graph.node(-1).inputs[1]
    assert read is not None
    assert read.shape is not None
    assert read.shape.dims == (1,) * rank
    assert not is_rewritten(model)


@tried(40)
@given(
    op=st.sampled_from(["Add", "Sub", "Mul", "Div", "Pow", "Max", "Greater"]),
    sizes=st.tuples(st.sampled_from([64, 4096]), st.lists(st.sampled_from([1, 1, 2, 3]), max_size=3)),
    scalar_rank=st.integers(0, 4),
    scalar_first=st.booleans(),
    is_open=st.booleans(),
)
def test_scalars_keep_results(
    op: str, sizes: tuple[int, list[int]], scalar_rank: int, scalar_first: bool, is_open: bool
) -> None:
    first, rest = sizes
    scalar = [1] * min(scalar_rank, len(rest) + 1)
    shape = ",".join(map(str, ["N" if is_open else first, *rest]))
    model = beside_scalar(op, shape, ",".join(map(str, scalar)), scalar_first=scalar_first)
    before = ir.from_proto(ir.to_proto(model))
    is_rewritten(model)
    random = np.random.default_rng(0)
    feeds = {"x": random.uniform(0.5, 1.5, [first, *rest]), "s": random.uniform(0.5, 1.5, scalar)}
    feeds = {name: np.asarray(value, np.float32) for name, value in feeds.items()}
    expected, found = (ll.Session(ir.to_proto(m)).run(feeds)["y"] for m in (before, model))
    np.testing.assert_array_equal(found, expected, strict=True)


def test_only_large_tensors_beside_scalars() -> None:
    text = STEP.replace("64,64", f"{LEAST_BESIDE_SCALARS // 64 - 1},64")
    assert not is_rewritten(parsed(text))
