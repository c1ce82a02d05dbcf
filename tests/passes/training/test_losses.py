"""Losses against PyTorch's functions in float64, over all options."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest

from lstm_lower.errors import InvalidInputError
from lstm_lower.graph.builder import Builder, Workspace
from lstm_lower.passes.training import losses
from tests.support.loss_cases import CASES, LossCase, normal

Array = np.ndarray[Any, Any]


def model_of(case: LossCase, dtype: ir.DataType, *, symbolic: bool, opset: int = 18) -> ir.Model:
    """A model of a prediction `x` and targets `y0`, `y1`, ... that returns the loss."""
    names = iter("abcdefghijk")
    operands = {"x": case.prediction} | {f"y{i}": target for i, target in enumerate(case.targets)}
    inputs = [
        ir.Value(
            name=name,
            type=ir.TensorType(dtype if array.dtype.kind == "f" else ir.DataType.INT64),
            shape=ir.Shape([next(names) if symbolic else size for size in array.shape]),
        )
        for name, array in operands.items()
    ]
    graph = ir.Graph(inputs, [], nodes=[], name="loss", opset_imports={"": opset})
    model = ir.Model(graph, ir_version=9)
    builder = Builder(Workspace.of(model), graph, scope="loss")
    loss = case.loss(*map(builder.wrap, inputs))
    graph.outputs.extend(builder.results([loss]))
    return model


def run(case: LossCase, dtype: ir.DataType, *, symbolic: bool, opset: int = 18) -> Array:
    model = model_of(case, dtype, symbolic=symbolic, opset=opset)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString(), options)
    arrays = [case.prediction, *case.targets]
    feeds = {
        value.name: array.astype(dtype.numpy()) if array.dtype.kind == "f" else array
        for value, array in zip(model.graph.inputs, arrays, strict=True)
    }
    result: Array = session.run(None, feeds)[0]
    return result


@pytest.mark.filterwarnings("ignore:reduction:UserWarning")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_equals_torch(case: LossCase) -> None:
    torch = pytest.importorskip("torch")
    options = {
        name: torch.tensor(value) if isinstance(value, np.ndarray) else value for name, value in case.options.items()
    }
    function = getattr(torch.nn.functional, case.function)
    exact = function(torch.tensor(case.prediction), *map(torch.tensor, case.targets), **options).numpy()
    for dtype, tolerance in ((ir.DataType.DOUBLE, 1e-12), (ir.DataType.FLOAT, 1e-6)):
        got = run(case, dtype, symbolic=dtype == ir.DataType.FLOAT)
        assert got.shape == exact.shape
        scale = max(1.0, np.abs(exact[np.isfinite(exact)]).max(initial=0))
        np.testing.assert_allclose(got, exact, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize("opset", [13, 17, 22])
def test_float64_in_any_opset(opset: int) -> None:
    """onnxruntime has no Softplus in float64, and its function in few opsets."""
    logits = np.array([[-40.0, -0.5, 0.0, 0.5, 40.0]])
    case = LossCase(losses.BCEWithLogits(reduction="none"), "", {}, logits, (np.full((1, 5), 0.25),))
    got = run(case, ir.DataType.DOUBLE, symbolic=False, opset=opset)
    np.testing.assert_allclose(got, np.log1p(np.exp(-np.abs(logits))) + np.maximum(logits, 0) - logits / 4, rtol=1e-14)


def test_half_precision_is_computed_in_float32() -> None:
    case = LossCase(losses.CrossEntropy(), "", {}, normal(4, 3), (np.array([0, 2, 1, 1]),))
    got = run(case, ir.DataType.FLOAT16, symbolic=False)
    assert got.dtype == np.float32


def test_names_and_objects_resolve() -> None:
    loss = losses.Huber(delta=2.0)
    assert losses.resolve(loss) is loss
    assert isinstance(losses.resolve("Cross_Entropy"), losses.CrossEntropy)
    assert isinstance(losses.resolve("hinge"), losses.HingeEmbedding)
    with pytest.raises(InvalidInputError, match=r"loss requires one of .*'bce'.*got 'crossentropy'"):
        losses.resolve("crossentropy")


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (losses.MSE, {"reduction": "average"}, "MSE: reduction requires"),
        (losses.Huber, {"delta": 0.0}, "Huber: delta requires"),
        (losses.CrossEntropy, {"label_smoothing": 1.5}, "CrossEntropy: label_smoothing requires"),
        (losses.NLL, {"weight": [[1.0]]}, "NLL: weight requires a number per class"),
        (losses.BCE, {"weight": "no"}, "BCE: weight requires numbers"),
        (losses.MultiMargin, {"p": 3}, "MultiMargin: p requires"),
    ],
)
def test_options_out_of_range(kind: type[losses.Loss], options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        kind(**options)


CLASSED = [case for case in CASES if case.targets[0].dtype.kind == "i" and case.loss.reduction == "mean"]


@pytest.mark.parametrize("case", CLASSED, ids=lambda case: case.id)
def test_what_is_no_class_is_refused(case: LossCase) -> None:
    """By onnxruntime itself, with its optimiser and without, and also where the number is one of those around."""
    # The axis of classes, and a label that counts.
    classes = case.prediction.shape[-1 if isinstance(case.loss, losses.CTC) else min(1, case.prediction.ndim - 1)]
    ignored = case.options.get("ignore_index", -100)
    model = ir.to_proto(model_of(case, ir.DataType.FLOAT, symbolic=True, opset=13)).SerializeToString()
    for level in (ort.GraphOptimizationLevel.ORT_DISABLE_ALL, ort.GraphOptimizationLevel.ORT_ENABLE_ALL):
        options = ort.SessionOptions()
        options.graph_optimization_level, options.log_severity_level = level, 4
        session = ort.InferenceSession(model, options)
        feeds = {"x": case.prediction.astype(np.float32)}
        feeds |= {f"y{i}": target.copy() for i, target in enumerate(case.targets)}
        session.run(None, feeds)
        for number in (-1, -classes, -classes - 1, classes, -(2**31), 2**31 - 1, -(2**63), 2**63 - 1):
            if number == ignored:
                continue
            feeds["y0"].reshape(-1)[0] = number
            with pytest.raises(Exception, match="Gather"):
                session.run(None, feeds)
