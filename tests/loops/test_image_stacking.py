"""Small images before a transposed convolution with large weights: one below the other in one image."""

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
from lstm_lower.passes.loops import image_stacking
from lstm_lower.passes.loops.image_stacking import ImageStacking
from lstm_lower.passes.shapes import InferShapesPass
from tests.conftest import Golden
from tests.support.examples import tried

LAYER = """
<ir_version: 8, opset_import: ["" : 18]>
layer (float[N,256,4,4] x, float[256,128,4,4] w, float[128] b) => (float[N,128,8,8] y)
{ y = ConvTranspose <strides = [2, 2], pads = [1, 1, 1, 1]> (x, w, b) }"""


def parsed(text: str) -> ir.Model:
    model = ir.from_proto(onnx.parser.parse_model(text))
    InferShapesPass()(model)
    return model


def test_golden(golden: Golden) -> None:
    model = parsed(LAYER)
    before = dump(model)
    assert ImageStacking()(model).modified
    golden("loop_image-stacking", before=before, after=dump(model))


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
    assert ImageStacking()(model).modified is stacked
    assert not ImageStacking()(model).modified


def test_an_optimised_model_stays_as_it_is() -> None:
    optimised = ll.optimize(parsed(LAYER), verify_each=True)
    assert any("Pad" in node.op_type for node in optimised.graph)
    assert dump(ll.optimize(optimised)) == dump(optimised)


@tried(60)
@given(
    data=st.data(), dimensions=st.integers(1, 3), number=st.integers(0, 3), is_open=st.booleans(), bias=st.booleans()
)
def test_image_stacking_keeps_results(
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
        f'<ir_version: 8, opset_import: ["" : 18]> f ({operands}) => (float[{result}] y) {{ '
        f"y = ConvTranspose <strides = {strides}, dilations = {dilations}, pads = {before + after}, "
        f"output_padding = {more}> ({'x, w, b' if bias else 'x, w'}) }}"
    )
    original = ir.from_proto(ir.to_proto(model))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(image_stacking, "MANY", 0)
        assert ImageStacking()(model).modified is (is_open or number > 1)
    random = np.random.default_rng(0)
    shapes = {"x": [number, 2, *sizes], "w": [2, 3, *kernel], **({"b": [3]} if bias else {})}
    feeds = {name: random.standard_normal(dims).astype(np.float32) for name, dims in shapes.items()}
    expected, found = (ll.Session(ir.to_proto(m)).run(feeds)["y"] for m in (original, model))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5, strict=True)
