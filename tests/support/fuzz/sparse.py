"""The same model with sparse tensors, which onnxruntime and we take for plain ones."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.support.fuzz.noise import bodies

_TYPES = ("float16", "float32", "float64", "int64", "int32")


def sparsely_written(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which constants and initializers are sparse, with places in one form and the other in turns."""
    work = onnx.ModelProto()
    work.CopyFrom(model)
    linear = True
    for graph in [work.graph, *(inner for owner in [work.graph, *work.functions] for _, inner in bodies(owner))]:
        fed = {value.name for value in graph.input}
        for tensor in [one for one in graph.initializer if one.name not in fed and _fits(one)]:
            graph.sparse_initializer.append(_sparse(tensor, linear=linear))
            graph.initializer.remove(tensor)
            linear = not linear
    for attribute in _constants(work):
        if _fits(attribute.t):
            made = helper.make_attribute("sparse_value", _sparse(attribute.t, linear=linear))
            attribute.CopyFrom(made)
            linear = not linear
    return work


def _constants(model: onnx.ModelProto) -> Iterator[onnx.AttributeProto]:
    owners = [model.graph, *model.functions]
    for graph in [*owners, *(inner for owner in owners for _, inner in bodies(owner))]:
        for node in graph.node:
            if node.op_type == "Constant" and node.attribute[0].name == "value":
                yield node.attribute[0]


def _fits(tensor: onnx.TensorProto) -> bool:
    return len(tensor.dims) > 0 and 0 not in tensor.dims and numpy_helper.to_array(tensor).dtype.name in _TYPES


def _sparse(tensor: onnx.TensorProto, *, linear: bool) -> onnx.SparseTensorProto:
    array = numpy_helper.to_array(tensor)
    # Zeros with a sign are numbers.
    places = np.argwhere((array != 0) | np.signbit(array)).astype(np.int64)
    values = numpy_helper.from_array(array[tuple(places.T)], tensor.name)
    if linear:
        places = np.ravel_multi_index(tuple(places.T), array.shape).astype(np.int64)
    return helper.make_sparse_tensor(values, numpy_helper.from_array(places, "places"), array.shape)
