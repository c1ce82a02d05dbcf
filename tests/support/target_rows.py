"""The example of each row about onnxruntime's own kernels: a model, its feeds, what is right, and what is computed."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
from onnx import helper, parser

from lstm_lower.passes.targets.cpu import CPU
from lstm_lower.passes.targets.target import Lack
from lstm_lower.runtime.proof import reference

Array = np.ndarray[Any, Any]
Feeds = dict[str, Array]

ROWS = {lack.name: lack for lack in CPU.lacks}
# Those that serve the installed version.
SERVING = {lack.name: lack for lack in CPU.rows(slow=True)}
# An error over the largest magnitude that is no rounding.
_WRONG = 2e-5
LEVELS = (ort.GraphOptimizationLevel.ORT_DISABLE_ALL, ort.GraphOptimizationLevel.ORT_ENABLE_ALL)


def example(row: Lack, *, called: bool = False) -> onnx.ModelProto:
    """A row's example; `called`, in a function that the main graph calls."""
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> g {row.example}')
    if not called:
        return model
    graph = model.graph
    names = [value.name for value in graph.input], [value.name for value in graph.output]
    constants = [helper.make_node("Constant", [], [each.name], value=each) for each in graph.initializer]
    body = helper.make_function("mine", "f", *names, [*constants, *graph.node], [helper.make_opsetid("", 21)])
    del graph.initializer[:]
    del graph.node[:]
    graph.node.append(helper.make_node("f", *names, domain="mine"))
    model.functions.append(body)
    model.opset_import.append(helper.make_opsetid("mine", 1))
    return model


def feeds_of(model: onnx.ModelProto) -> Feeds:
    """Numbers around zero; integers are 0 and 1, and open sizes 0."""
    random = np.random.default_rng(0)
    feeds = {}
    for value in model.graph.input:
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        drawn = random.integers(0, 2, shape) if dtype.kind in "iu" else random.standard_normal(shape)
        feeds[value.name] = np.asarray(drawn, dtype)
    return feeds


def right(model: onnx.ModelProto, feeds: Feeds) -> Array:
    """The first output as ONNX means it, in float64."""
    with warnings.catch_warnings():
        # The mean of nothing.
        warnings.simplefilter("ignore", RuntimeWarning)
        return reference.evaluate(ir.from_proto(model), feeds)[model.graph.output[0].name]


def run(model: onnx.ModelProto, feeds: Feeds, output: str, level: Any = LEVELS[1]) -> Array:
    """An output in onnxruntime, of the model as it is, on two threads."""
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    options.intra_op_num_threads = 2
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run([output], feeds)[0]


def seconds(model: onnx.ModelProto, feeds: Feeds, runs: int = 30) -> float:
    """The shortest time of a run, on one thread."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    session.run(None, feeds)
    times = []
    for _ in range(runs):
        begin = time.perf_counter()
        session.run(None, feeds)
        times.append(time.perf_counter() - begin)
    return min(times)


def is_wrong(got: Array, expected: Array) -> bool:
    """Whether a result is another one than that in float64, beyond rounding."""
    if got.shape != expected.shape:
        return True
    scale = float(np.abs(expected[np.isfinite(expected)]).max(initial=1.0))
    rounding = 2e-3 if got.dtype == np.float16 else _WRONG
    return not np.allclose(got.astype(np.float64), expected, rtol=0, atol=rounding * scale, equal_nan=True)
