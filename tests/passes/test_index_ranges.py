"""Indices out of range still fail after our passes, in every form that an opset has."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.helper
import onnx.parser
import onnxruntime as ort
import pytest

import lstm_lower as ll

DOMAIN = "ai.onnx.converters.tensorflow"


def _runs(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray] | None:
    """The outputs, or `None` where onnxruntime refuses the feeds."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options)
    try:
        return session.run(None, feeds)  # type: ignore[no-any-return]
    except Exception:  # noqa: BLE001
        return None


def _parsed(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}')


@pytest.mark.parametrize("place", [[0, 4], [0, -5], [3, 0], [-4, 0]])
def test_a_place_beyond_an_axis_is_no_other_row(place: list[int]) -> None:
    """A scatter over two axes is one over rows, in which a place beyond the first row would be in the second."""
    model = _parsed("""g (float[3, 4, 2] x, int64[1, 2] places, float[1, 2] updates) => (float[3, 4, 2] y)
      { y = ScatterND <reduction = "add"> (x, places, updates) }""")
    feeds = {"x": np.zeros((3, 4, 2), np.float32), "updates": np.ones((1, 2), np.float32)}
    for made in (model, ll.lower(model)):
        assert _runs(made, {**feeds, "places": np.array([place])}) is None
        found = _runs(made, {**feeds, "places": np.array([[-1, -2]])})
        assert found is not None
        np.testing.assert_array_equal(np.argwhere(found[0]), [[2, 2, 0], [2, 2, 1]])


@pytest.mark.parametrize("number", [1, -2])
def test_the_only_element_of_an_axis_is_no_other_element(number: int) -> None:
    model = _parsed(f"""g (float[3] x) => (float[3] y) <int64[1] axes = {{0}}, int64 number = {{{number}}}>
      {{ wide = Unsqueeze(x, axes)  y = Gather <axis = 0> (wide, number) }}""")
    for made in (model, ll.lower(model), ll.optimize(model)):
        assert _runs(made, {"x": np.zeros(3, np.float32)}) is None


def test_indices_of_onnx_count_from_the_end() -> None:
    model = _parsed("g (float[3] x, int64[1] i) => (float[1] y) { y = Gather(x, i) }")
    for made in (model, ll.lower(model), ll.optimize(model)):
        found = _runs(made, {"x": np.arange(3, dtype=np.float32), "i": np.array([-1])})
        assert found is not None
        assert found[0] == 2


@pytest.mark.parametrize("opset", [13, 16, 18])
@pytest.mark.parametrize(
    ("op", "bad"),
    [("UnsortedSegmentSum", 4), ("UnsortedSegmentMax", 4), ("SegmentSum", -1), ("SegmentMin", -1), ("ScatterNd", -1)],
)
def test_before_there_are_adding_scatters(op: str, bad: int, opset: int) -> None:
    """Older opsets compare numbers of rows with each other, which takes any."""
    scattered = op == "ScatterNd"
    names = ["ids", "rows"] if scattered else ["rows", "ids"]
    names += [] if op.startswith("Segment") else ["number"]
    node = onnx.helper.make_node(op, names, ["y"], domain=DOMAIN)
    kind, values = onnx.TensorProto, onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [node],
        "g",
        [values("ids", kind.INT32, [2, 1] if scattered else [2]), values("rows", kind.FLOAT, [2, 3])],
        [values("y", kind.FLOAT, None)],
        [onnx.numpy_helper.from_array(np.array([4, 3] if scattered else 4, np.int32), "number")]
        if len(names) > 2
        else [],
    )
    imports = [onnx.helper.make_opsetid("", opset), onnx.helper.make_opsetid(DOMAIN, 1)]
    lowered = ll.lower(onnx.helper.make_model(graph, opset_imports=imports, ir_version=8))
    feeds = {"rows": np.ones((2, 3), np.float32)}
    for ids, fits in (([0, 3], True), ([bad, 3], False)):
        found = _runs(lowered, {**feeds, "ids": np.array(ids, np.int32).reshape(-1, *([1] if scattered else []))})
        assert (found is not None) == fits
