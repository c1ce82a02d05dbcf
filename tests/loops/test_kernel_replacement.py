"""Operators with slow kernels: they are written in others where onnxruntime's processors are what runs them."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lstm_lower as ll
from lstm_lower.graph.dump import dump
from lstm_lower.passes.loops.kernel_replacement import LEAST, KernelReplacement
from lstm_lower.passes.shapes import InferShapesPass
from lstm_lower.passes.targets.table import TARGETS
from tests.conftest import Golden
from tests.support.examples import tried

NETWORK = """
(float[N,64,64] x, float[1] slope) => (float[N,64,64] y)
{ a = PRelu(x, slope) b = Softplus(a) y = Mish(b) }"""
# Of float[T,128] x; whether it is rewritten.
CASES = {
    "y = Softplus(x)": True,
    "y = Mish(x)": True,
    "y = PRelu(x, one)": True,
    "y = PRelu(x, single)": True,
    "y = PRelu(x, each)": False,
    "y = Elu(x)": False,
}
EDGES = np.array([0.0, -0.0, 1e-30, -1e-30, 88.0, -88.0, 104.0, -104.0, 3e38, -3e38, np.inf, -np.inf, np.nan])


def parsed(text: str, opset: int = 18) -> ir.Model:
    model = ir.from_proto(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> g {text}'))
    InferShapesPass()(model)
    return model


def of_case(nodes: str, rows: str, kind: str = "float") -> ir.Model:
    operands = f"{kind}[{rows},128] x, {kind} one, {kind}[1,1] single, {kind}[128] each"
    return parsed(f"({operands}) => ({kind}[{rows},128] y) {{ {nodes} }}")


def test_golden(golden: Golden) -> None:
    model = parsed(NETWORK)
    before = dump(model)
    assert KernelReplacement()(model).modified
    golden("loop_kernel-replacement", before=before, after=dump(model))


@pytest.mark.parametrize("nodes", CASES)
def test_which_are_rewritten(nodes: str) -> None:
    assert KernelReplacement()(of_case(nodes, "T")).modified == CASES[nodes]
    assert not KernelReplacement()(of_case(nodes, str(LEAST // 128 - 1))).modified
    assert not KernelReplacement()(of_case(nodes, "T", kind="double")).modified


def exact(nodes: str, feeds: dict[str, np.ndarray]) -> np.ndarray:
    """The operator in float64."""
    x, slope = (np.asarray(feeds[name], np.float64).reshape(-1, 128) for name in ("x", "slope"))
    if "PRelu" in nodes:
        return np.where(x < 0, slope * x, x)
    softplus = np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))
    return softplus if "Softplus" in nodes else x * np.tanh(softplus)


@tried(40)
@given(
    nodes=st.sampled_from([nodes for nodes, expected in CASES.items() if expected]),
    rows=st.sampled_from([0, 1, 3, 64]),
    seed=st.integers(0, 2**31),
    scale=st.sampled_from([0.01, 1.0, 30.0]),
    at_edges=st.booleans(),
)
def test_kernel_replacement_keeps_results(nodes: str, rows: int, seed: int, scale: float, at_edges: bool) -> None:
    model = of_case(nodes, "T")
    before = ir.from_proto(ir.to_proto(model))
    assert KernelReplacement()(model).modified
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


def test_an_optimised_model_stays_as_it_is() -> None:
    optimised = ll.optimize(parsed(NETWORK))
    assert not {"PRelu", "Softplus", "Mish"} & {node.op_type for node in optimised.graph}
    assert dump(ll.optimize(optimised)) == dump(optimised)


@pytest.mark.parametrize("target", sorted({"cuda", "cuda-graph", "directml", "openvino"} & TARGETS.keys()))
def test_for_processors_alone(target: str) -> None:
    lowered = ll.lower(ir.to_proto(parsed(NETWORK.replace("N,", "2,"))), target=target)
    assert {"PRelu", "Softplus"} <= {node.op_type for node in lowered.graph.node}
