"""The opset of a model: which versions are possible, and moving a model to one."""

from __future__ import annotations

import functools

import onnx
import onnx_ir as ir
import onnxruntime as ort
from onnx import version_converter

from lstm_lower.errors import InvalidInputError, InvalidModelError
from lstm_lower.passes.shapes import without_large_initializers

# Rules write operators in the form they have had since 13 (axes of ReduceSum, Squeeze and Split as inputs).
MIN_OPSET = 13


@functools.cache
def newest_opset() -> int:
    """The newest `ai.onnx` version that both the installed onnx and onnxruntime know.

    onnxruntime tells its newest version only by refusing a newer one, so tiny models are tried, newest first.
    """
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    result = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["x"], ["y"])], "probe", [value], [result])
    options = ort.SessionOptions()
    options.log_severity_level = 4
    for version in range(onnx.defs.onnx_opset_version(), MIN_OPSET, -1):
        opset = onnx.helper.make_opsetid("", version)
        ir_version = min(onnx.helper.find_min_ir_version_for([opset]), 10)
        model = onnx.helper.make_model(graph, opset_imports=[opset], ir_version=ir_version)
        try:
            ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        except Exception:  # noqa: BLE001, S112 (onnxruntime's exceptions have no common base)
            continue
        return version
    return MIN_OPSET


def check_opset(opset: int | None) -> None:
    """Checks a requested version.

    Raises:
        InvalidInputError: it is outside 13 .. the newest.
    """
    if opset is None:
        return
    if not isinstance(opset, int) or not MIN_OPSET <= opset <= newest_opset():
        raise InvalidInputError(f"opset requires {MIN_OPSET} to {newest_opset()}, got {opset!r}")


class ConvertOpsetPass(ir.passes.InPlacePass):
    """Moves the model to an `ai.onnx` version; composite nodes stay as they are.

    Attributes:
        opset: the version; `None` keeps the model's own, raised to 13.
    """

    def __init__(self, opset: int | None = None) -> None:
        super().__init__()
        self.opset = opset

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Converts.

        Raises:
            InvalidModelError: an operator of the model cannot be converted.
        """
        if "ai.onnx" in model.graph.opset_imports:
            model.graph.opset_imports[""] = model.graph.opset_imports.pop("ai.onnx")
        own = model.graph.opset_imports.get("", MIN_OPSET)
        target = max(own, MIN_OPSET) if self.opset is None else self.opset
        if own == target:
            return ir.passes.PassResult(model, modified=False)
        with without_large_initializers(model) as proto:
            try:
                converted = ir.from_proto(version_converter.convert_version(proto, target))
            except (RuntimeError, version_converter.ConvertError) as error:
                text = f"opset {own} cannot be converted to {target}: {str(error).splitlines()[0]}"
                raise InvalidModelError(text) from error
        _restore_initializers(converted.graph, model.graph)
        model.graph = converted.graph
        return ir.passes.PassResult(model, modified=True)


def _restore_initializers(graph: ir.Graph, original: ir.Graph) -> None:
    """Turns the inputs that stood for large initializers back into these."""
    inputs = {value.name for value in original.inputs}
    for value in list(graph.inputs):
        source = original.initializers.get(value.name or "")
        if source is None or value.name in graph.initializers:
            continue
        if value.name not in inputs:
            graph.inputs.remove(value)
        value.const_value = source.const_value
        graph.register_initializer(value)
