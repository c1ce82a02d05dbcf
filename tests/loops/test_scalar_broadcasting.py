"""Scalars beside sizes of 1 at the end of a shape: onnxruntime repeats them fast in another rank."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lstm_lower as ll
from lstm_lower.graph.dump import dump
from lstm_lower.passes.loops.scalar_broadcasting import LEAST, ScalarBroadcasting
from lstm_lower.passes.shapes import InferShapesPass
from tests.conftest import Golden
from tests.support.examples import tried

STEP = """
<ir_version: 8, opset_import: ["" : 18]>
step (float[64,64,1,1] w, float[64,64,1,1] g, float rate, bool[64,64,1,1] known) => (float[64,64,1,1] new)
{
  tiny = Constant <value = float {1e-3}> ()
  moved = Mul(rate, g) safe = Add(moved, tiny) chosen = Where(known, safe, rate) new = Sub(w, chosen)
}"""

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


def parsed(text: str) -> ir.Model:
    model = ir.from_proto(onnx.parser.parse_model(text))
    InferShapesPass()(model)
    return model


def test_golden(golden: Golden) -> None:
    model = parsed(STEP)
    before = dump(model)
    assert ScalarBroadcasting()(model).modified
    golden("loop_scalar-broadcasting", before=before, after=dump(model))


def model_of(op: str, shape: str, scalar: str, *, scalar_first: bool = False) -> ir.Model:
    operands = "s, x" if scalar_first else "x, s"
    sizes = f"float[{scalar}]" if scalar else "float"
    kind = "bool" if op == "Greater" else "float"
    header = f'<ir_version: 8, opset_import: ["" : 18]> f (float[{shape}] x, {sizes} s) => ({kind}[{shape}] y)'
    return parsed(f"{header} {{ y = {op}({operands}) }}")


@pytest.mark.parametrize(("shape", "scalar", "rank"), RANKS, ids=str)
def test_ranks(shape: str, scalar: str, rank: int) -> None:
    model = model_of("Mul", shape, scalar)
    assert ScalarBroadcasting()(model).modified == (rank != len(scalar.replace(",", "")))
    read = model.graph.node(-1).inputs[1]
    assert read is not None
    assert read.shape is not None
    assert read.shape.dims == (1,) * rank
    assert not ScalarBroadcasting()(model).modified


@tried(40)
@given(
    op=st.sampled_from(["Add", "Sub", "Mul", "Div", "Pow", "Max", "Greater"]),
    sizes=st.tuples(st.sampled_from([64, 4096]), st.lists(st.sampled_from([1, 1, 2, 3]), max_size=3)),
    scalar_rank=st.integers(0, 4),
    scalar_first=st.booleans(),
    is_open=st.booleans(),
)
def test_scalar_broadcasting_keeps_results(
    op: str, sizes: tuple[int, list[int]], scalar_rank: int, scalar_first: bool, is_open: bool
) -> None:
    first, rest = sizes
    scalar = [1] * min(scalar_rank, len(rest) + 1)
    shape = ",".join(map(str, ["N" if is_open else first, *rest]))
    model = model_of(op, shape, ",".join(map(str, scalar)), scalar_first=scalar_first)
    before = ir.from_proto(ir.to_proto(model))
    ScalarBroadcasting()(model)
    random = np.random.default_rng(0)
    feeds = {"x": random.uniform(0.5, 1.5, [first, *rest]), "s": random.uniform(0.5, 1.5, scalar)}
    feeds = {name: np.asarray(value, np.float32) for name, value in feeds.items()}
    expected, found = (ll.Session(ir.to_proto(m)).run(feeds)["y"] for m in (before, model))
    np.testing.assert_array_equal(found, expected, strict=True)


def test_only_large_tensors() -> None:
    text = STEP.replace("64,64", f"{LEAST // 64 - 1},64")
    assert not ScalarBroadcasting()(parsed(text)).modified


def test_an_optimised_model_stays_as_it_is() -> None:
    optimised = ll.optimize(parsed(STEP))
    assert ScalarBroadcasting()(parsed(STEP)).modified
    assert dump(ll.optimize(optimised)) == dump(optimised)
