"""A model as bytes for onnxruntime, its large weights handed over as they lie in memory or in a mapped file."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort

from lstm_lower.errors import InvalidInputError
from lstm_lower.graph.subgraphs import all_graphs
from lstm_lower.passes.formulas.indices import BEYOND
from lstm_lower.passes.training import schedules
from lstm_lower.records import model_files as model_io
from lstm_lower.runtime.providers import Resolved, attach

# Smaller weights travel inside the bytes; shapes and axes must, since onnxruntime reads them while it optimises.
_LARGE_BYTES = 1 << 20

# The others have no numpy dtype that onnxruntime takes.
_PASSED_AS_NUMPY = {
    ir.DataType.FLOAT,
    ir.DataType.DOUBLE,
    ir.DataType.FLOAT16,
    ir.DataType.INT32,
    ir.DataType.INT64,
    ir.DataType.INT8,
    ir.DataType.UINT8,
    ir.DataType.BOOL,
}

Array = np.ndarray[Any, Any]


def serialize(model: ir.Model) -> tuple[bytes, dict[str, Array]]:
    """Divides a model into bytes and large weights.

    Returns:
        The model, in which large weights are marked as external, and these weights by name; a weight in external data
        is mapped, not read.
    """
    weights: dict[str, Array] = {}
    originals: dict[ir.Value, ir.TensorProtocol] = {}
    model_io.read_attributes(model)
    try:
        for value in [value for graph in all_graphs(model) for value in graph.initializers.values()]:
            name, tensor = value.name, value.const_value
            if name is None or tensor is None:
                continue
            # onnxruntime takes the main graph's by name.
            large = tensor.dtype in _PASSED_AS_NUMPY and tensor.nbytes >= _LARGE_BYTES and value.graph is model.graph
            if not large and not isinstance(tensor, ir.ExternalTensor):
                continue
            originals[value] = tensor
            if not large:
                value.const_value = ir.Tensor(tensor.numpy(), dtype=tensor.dtype, name=name)
                continue
            weights[name] = tensor.numpy()
            value.const_value = ir.ExternalTensor(
                location="weights",
                offset=0,
                length=tensor.nbytes,
                dtype=tensor.dtype,
                shape=ir.Shape(weights[name].shape),
                name=name,
            )
        return model_io.as_proto(model).SerializeToString(), weights
    finally:
        for value, tensor in originals.items():
            value.const_value = tensor


def keeps_small_weights_outside(model: ir.Model) -> bool:
    """Whether small weights, such as shapes and axes, are external data, from which onnxruntime does not read them."""
    return any(
        isinstance(tensor := value.const_value, ir.ExternalTensor) and tensor.nbytes < _LARGE_BYTES
        for graph in all_graphs(model)
        for value in graph.initializers.values()
    )


def default_options() -> ort.SessionOptions:
    """The session options used when none are given."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    return options


def as_written() -> ort.SessionOptions:
    """Session options under which every node of a model runs; optimising, onnxruntime drops a Dropout that trains."""
    options = default_options()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return options


# What onnxruntime's kernels say of indices.
_OUT_OF_RANGE = ("out of data bounds", "Out of range value in index", "invalid index")


@contextlib.contextmanager
def failures_explained(capture: int = 0) -> Iterator[ort.RunOptions]:
    """Turns a failure of a run into one error.

    Args:
        capture: which of the runs that a provider has captured this one repeats, where it captures; a number.

    Yields:
        Options for the run, under which onnxruntime does not write the failure to its log as well.

    Raises:
        InvalidInputError: onnxruntime failed.
    """
    quiet = ort.RunOptions()
    quiet.log_severity_level = 4
    # onnxruntime 1.32 asks for it in each run, and what is not set costs an exception of 40 microseconds.
    quiet.add_run_config_entry("gpu_graph_id", str(capture))
    try:
        yield quiet
    except Exception as error:
        if (updates := schedules.ended(str(error))) is not None:
            raise InvalidInputError(
                f"the schedule of learning rates requires at most {updates} updates, as many as its table has, got one "
                "more; ll.from_torch(..., schedule_steps=N) makes a longer table, and trainer.save and resume take the "
                "state over"
            ) from error
        way = ""
        if any(words in str(error) for words in _OUT_OF_RANGE):
            way = f"; labels and indices require numbers in range, of which one below zero is told as {BEYOND}"
        raise InvalidInputError(f"onnxruntime failed on these feeds: {error}{way}") from error


def open_session(
    model: str | os.PathLike[str] | onnx.ModelProto | ir.Model,
    options: ort.SessionOptions,
    providers: Sequence[Resolved],
) -> Any:
    """Opens an onnxruntime session.

    Args:
        model: a path is opened by onnxruntime itself; the other forms as `serialize` divides them.
        options: session options; large weights are added to them, and plug-ins.
        providers: as `providers.resolve` returns them.
    """
    if isinstance(model, (str, os.PathLike)):
        return _session(os.fspath(model), options, providers)
    return open_serialized(
        *serialize(model if isinstance(model, ir.Model) else model_io.load(model)), options, providers
    )


def open_serialized(
    data: bytes, weights: Mapping[str, Array], options: ort.SessionOptions, providers: Sequence[Resolved]
) -> ort.InferenceSession:
    """Opens a session on what `serialize` returned; the large weights are added to the options."""
    if weights:
        values = [ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array)) for array in weights.values()]
        options.add_external_initializers(list(weights), values)
    return _session(data, options, providers)


def _session(source: str | bytes, options: ort.SessionOptions, providers: Sequence[Resolved]) -> ort.InferenceSession:
    # A provider that fails is not to be replaced by the processor without a word.
    return ort.InferenceSession(source, options, providers=attach(options, providers), enable_fallback=0)
