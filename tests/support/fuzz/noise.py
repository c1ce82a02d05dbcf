"""The same program a little otherwise: a result that moves then as far as it does after a pass is not changed by that.

Sums and products may be regrouped, so that rounding is made larger than it is: behind a comparison, a `Floor` or a
difference of equals, that shows. And where a Loop has no iterations, onnxruntime takes the sizes of its results from
what is declared, or 0 where nothing is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
import onnx.inliner
from onnx import TensorProto, helper, numpy_helper

_ERROR = {TensorProto.FLOAT16: 1e-3, TensorProto.FLOAT: 2e-6, TensorProto.DOUBLE: 1e-12}
# fmt: off
_ROUNDING = {
    "Add", "Sub", "Mul", "Div", "Sum", "Mean", "MatMul", "Gemm", "Einsum", "Conv", "Sigmoid", "Tanh", "Exp", "Log",
    "Sqrt", "Erf", "Pow", "Softmax", "LogSoftmax", "ReduceSum", "ReduceMean", "ReduceProd", "ReduceL1", "ReduceL2",
    "ReduceSumSquare", "ReduceLogSumExp", "LSTM", "GRU", "RNN", "CumSum", "CumProd", "Gelu", "Softplus",
    "LayerNormalization", "BatchNormalization", "Reciprocal", "Softsign", "Celu", "Elu", "Selu", "Mish", "Swish",
    "Sin", "Cos", "Atan", "LpNormalization", "Mod", "AveragePool", "LeakyRelu", "HardSigmoid", "HardSwish", "Cast",
}
# fmt: on


def perturbed(model: onnx.ModelProto, seed: int) -> onnx.ModelProto:
    """The model with a small relative error after every operation that rounds."""
    work = onnx.inliner.inline_local_functions(model) if model.functions else model
    work = onnx.shape_inference.infer_shapes(work)
    _perturb(work.graph, {}, np.random.default_rng(seed))
    return work


def undeclared(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without declared sizes of what its bodies hold."""
    work = onnx.inliner.inline_local_functions(model)
    for _, graph in bodies(work.graph):
        graph.ClearField("value_info")
        for dim in _dims([*graph.input, *graph.output]):
            dim.Clear()
    return work


def declared(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with sizes declared that its Loops leave open, which are true where they have no iterations."""
    work = onnx.shape_inference.infer_shapes(onnx.inliner.inline_local_functions(model))
    for node, graph in bodies(work.graph):
        for dim in _dims(graph.output if node.op_type == "Loop" else ()):
            if not dim.HasField("dim_value"):
                dim.dim_value = 7
    return work


def bodies(graph: onnx.GraphProto) -> Iterator[tuple[onnx.NodeProto, onnx.GraphProto]]:
    """Every body in a graph, with the node that it is of."""
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield node, attribute.g
                yield from bodies(attribute.g)


def _dims(values: Iterable[onnx.ValueInfoProto]) -> Iterator[Any]:
    for value in values:
        if value.type.tensor_type.HasField("shape"):
            yield from value.type.tensor_type.shape.dim


def _perturb(graph: onnx.GraphProto, outer: Mapping[str, int], random: np.random.Generator) -> None:
    types = dict(outer)
    types |= {v.name: v.type.tensor_type.elem_type for v in [*graph.value_info, *graph.output, *graph.input]}
    originals = list(graph.node)
    del graph.node[:]
    for node in originals:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _perturb(attribute.g, types, random)
        noise = []
        for index, name in enumerate(node.output):
            if node.op_type in _ROUNDING and not node.domain and types.get(name) in _ERROR:
                node.output[index] = f"{name}/exact"
                noise += _noise(f"{name}/exact", name, types[name], random)
        graph.node.extend([node, *noise])


def _noise(source: str, target: str, element: int, random: np.random.Generator) -> Iterator[onnx.NodeProto]:
    factor = 1 + _ERROR[element] * float(random.choice([-1, 1]) * random.uniform(0.5, 1))
    dtype: Any = helper.tensor_dtype_to_np_dtype(element)
    tensor = numpy_helper.from_array(np.asarray(factor, dtype))
    yield helper.make_node("Constant", [], [f"{target}/factor"], value=tensor)
    yield helper.make_node("Mul", [source, f"{target}/factor"], [target])
