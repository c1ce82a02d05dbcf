"""Sparse tensors of ONNX models, initializers and constants, written out: onnx_ir has none."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import onnx
import onnx_ir as ir

from lstm_lower import budget
from lstm_lower.errors import InvalidModelError
from lstm_lower.records.files import PROTOBUF_LIMIT

Locate = Callable[[ir.ExternalTensor], object]


def written_out(model: onnx.ModelProto, label: str, locate: Locate) -> onnx.ModelProto:
    """The model itself where it holds no sparse tensors, else a copy in which they are plain ones.

    Args:
        model: a model.
        label: what it is called in errors.
        locate: finds external data.

    Raises:
        InvalidModelError: a sparse tensor is malformed.
        OverBudgetError: plain ones would take more than the budget allows.
    """
    if not any(graph.sparse_initializer for graph in _graphs(model)) and not any(
        attribute.HasField("sparse_tensor") for attribute in _attributes(model)
    ):
        return model
    work = onnx.ModelProto()
    work.CopyFrom(model)
    for graph in _graphs(work):
        for sparse in graph.sparse_initializer:
            graph.initializer.append(_dense(sparse, sparse.values.name, label, locate))
        graph.ClearField("sparse_initializer")
    for attribute in _attributes(work):
        if attribute.name == "sparse_value" and attribute.HasField("sparse_tensor"):
            dense = _dense(attribute.sparse_tensor, attribute.sparse_tensor.values.name, label, locate)
            attribute.CopyFrom(onnx.helper.make_attribute("value", dense))
    return work


def _attributes(model: onnx.ModelProto) -> Iterator[onnx.AttributeProto]:
    for owner in [*_graphs(model), *model.functions]:
        for node in owner.node:
            yield from node.attribute


def _graphs(model: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    waiting: list[onnx.GraphProto | onnx.FunctionProto] = [model.graph, *model.functions]
    while waiting:
        owner = waiting.pop()
        if isinstance(owner, onnx.GraphProto):
            yield owner
        for node in owner.node:
            for attribute in node.attribute:
                waiting += [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]


def _dense(sparse: onnx.SparseTensorProto, name: str, label: str, locate: Locate) -> onnx.TensorProto:
    where, dims = f"{label}: the sparse tensor '{name}'", tuple(sparse.dims)
    values, indices = _read(sparse.values, locate), _read(sparse.indices, locate)
    if values.dtype in (ir.DataType.UNDEFINED, ir.DataType.STRING) or indices.dtype != ir.DataType.INT64:
        got = f"{values.dtype.name} at {indices.dtype.name}"
        raise InvalidModelError(f"{where} requires numbers, and their places as INT64, got {got}")
    if not dims or min(dims) < 0:
        raise InvalidModelError(f"{where} requires sizes, got {list(dims)}")
    count = math.prod(dims)
    if count * values.dtype.bitwidth > 8 * PROTOBUF_LIMIT:
        raise InvalidModelError(
            f"{where} requires sizes of which 2 GB hold a plain tensor, got {list(dims)} of {values.dtype.name}; "
            "ScatterND and ConstantOfShape make one at run time"
        )
    budget.charge(where, size=count * values.dtype.bitwidth // 8)
    numbers, places = values.numpy(), indices.numpy()
    if numbers.ndim != 1 or places.shape not in ((len(numbers),), (len(numbers), len(dims))):
        got = f"{list(numbers.shape)} and {list(places.shape)}"
        raise InvalidModelError(f"{where} requires values [n] and places [n] or [n, {len(dims)}], got shapes {got}")
    limits = np.array(dims if places.ndim == 2 else count)
    beyond = (places < 0) | (places >= limits)
    outside = places[beyond.any(axis=-1) if places.ndim == 2 else beyond]
    if len(outside):
        raise InvalidModelError(f"{where} requires places within {list(dims)}, got {outside[0].tolist()}")
    dense = np.zeros(dims, numbers.dtype)
    if places.ndim == 2:
        dense[tuple(places.T)] = numbers
    else:
        dense.reshape(-1)[places] = numbers
    return ir.to_proto(ir.Tensor(dense, dtype=values.dtype, name=name))


def _read(tensor: onnx.TensorProto, locate: Locate) -> ir.TensorProtocol:
    read = ir.serde.deserialize_tensor(tensor)
    if isinstance(read, ir.ExternalTensor):
        locate(read)
    return read
