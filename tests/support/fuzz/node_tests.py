"""ONNX's own node tests: as published, with their shapes asked for, with constant inputs, and as bodies of Scans."""

from __future__ import annotations

import functools
import importlib
import pkgutil
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnx.backend.test.case.node
from onnx import helper, numpy_helper

Array = np.ndarray[Any, Any]
Feeds = dict[str, Any]


@functools.cache
def cases(modules: tuple[str, ...] = ()) -> dict[str, Any]:
    """onnx's tests by name: all, or those of modules and of whatever was asked for before."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # making the tests divides by zero here and there
        if not modules:
            from onnx.backend.test.loader import load_model_tests

            return {case.name: case for case in load_model_tests(kind="node")}
        for module in modules:
            importlib.import_module(f"onnx.backend.test.case.node.{module}")
        return {case.name: case for case in onnx.backend.test.case.node._NodeTestCases}


# Where the tests of an operator stand; the longest names first.
_MODULES = sorted((module.name for module in pkgutil.iter_modules(onnx.backend.test.case.node.__path__)), key=len)[::-1]


def module_of(start: str) -> str | None:
    """The module that an operator's name, or what a test's name begins with, leads to."""
    plain = start.lower().replace("_", "")
    return next((name for name in _MODULES if plain.startswith(name.replace("_", ""))), None)


def case(name: str) -> Any:
    """One test; making those of its module is quicker than making all, where its name says which that is."""
    module = module_of(name.removeprefix("test_"))
    found = {} if module is None else cases((module,))
    return found[name] if name in found else cases()[name]


def names(*modules: str) -> list[str]:
    """All tests by name, or those of some modules, which are quicker to make than all."""
    return sorted(cases(modules))


def forms(name: str, *modules: str) -> Iterator[tuple[str, onnx.ModelProto, Feeds]]:
    """A test in all forms that it has: what the form is, the model, its feeds."""
    case = cases(modules)[name]
    model, (arrays, _) = case.model, case.data_sets[0]
    feeds = {value.name: array for value, array in zip(model.graph.input, arrays, strict=False)}
    yield "published", model, feeds
    graph = model.graph
    tensors = all(value.type.HasField("tensor_type") for value in [*graph.input, *graph.output])
    if not tensors or len(feeds) != len(graph.input):
        return
    yield "shapes", _with_shapes(model), feeds
    yield "symbolic", _with_shapes(_symbolic(model)), feeds
    if all(isinstance(array, np.ndarray) and array.dtype.kind in "fiub" for array in feeds.values()) and feeds:
        yield "constants", _constant(model, feeds), {}
        yield "body", *_body(model, feeds, list(feeds))
        yield "body, captured", *_body(model, feeds, list(feeds)[:1])
        yield "body, open", *_body(model, feeds, list(feeds), known=False)


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy that may hold operators of `ai.onnx`, and initializers that are no inputs."""
    work = onnx.ModelProto()
    work.CopyFrom(model)
    work.ir_version = max(work.ir_version, 8)
    if all(entry.domain for entry in work.opset_import):
        work.opset_import.append(helper.make_opsetid("", 17))
    return work


def _with_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Also gives the shape and size of every output."""
    work = _copy(model)
    for value in list(work.graph.output):
        shape, size = f"{value.name}/shape", f"{value.name}/size"
        work.graph.node.append(helper.make_node("Shape", [value.name], [shape]))
        work.graph.node.append(helper.make_node("Size", [value.name], [size]))
        work.graph.output.append(helper.make_tensor_value_info(shape, onnx.TensorProto.INT64, [None]))
        work.graph.output.append(helper.make_tensor_value_info(size, onnx.TensorProto.INT64, []))
    return work


def _symbolic(model: onnx.ModelProto) -> onnx.ModelProto:
    """Every size of inputs and outputs open."""
    work = _copy(model)
    for value in [*work.graph.input, *work.graph.output]:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            dim.dim_param = f"{value.name}_{axis}"
    return work


def _constant(model: onnx.ModelProto, feeds: Feeds) -> onnx.ModelProto:
    """Every input a constant."""
    work = _copy(model)
    del work.graph.input[:]
    work.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in feeds.items())
    return work


def _body(
    model: onnx.ModelProto, feeds: Feeds, scanned: list[str], *, known: bool = True
) -> tuple[onnx.ModelProto, Feeds]:
    """The test as the body of a Scan of two steps over some of its inputs; the others are captured.

    Args:
        model: the test.
        feeds: its inputs.
        scanned: inputs that the Scan walks along.
        known: whether sizes are declared.
    """
    work = _copy(model)
    graph = work.graph
    body = helper.make_graph(
        graph.node,
        "body",
        [_info(value, known) for value in graph.input if value.name in scanned],
        [_info(value, known, rank_known=True) for value in graph.output],
        graph.initializer,
    )
    outer = {name: f"{name}/steps" if name in scanned else name for name in feeds}
    results = [f"{value.name}/steps" for value in graph.output]
    scan = helper.make_node("Scan", [outer[name] for name in scanned], results, body=body, num_scan_inputs=len(scanned))
    fed: Feeds = {}
    inputs = []
    for value in graph.input:
        array = feeds[value.name]
        fed[outer[value.name]] = _steps(array) if value.name in scanned else array
        shape: list[int | str] = list(fed[outer[value.name]].shape)
        if not known:
            shape = [f"{value.name}_{axis}" for axis in range(len(shape))]
        element = value.type.tensor_type.elem_type
        inputs.append(helper.make_tensor_value_info(outer[value.name], element, shape))
    outputs = [
        helper.make_tensor_value_info(
            name, value.type.tensor_type.elem_type, [None] * (1 + len(value.type.tensor_type.shape.dim))
        )
        for name, value in zip(results, graph.output, strict=True)
    ]
    work.graph.CopyFrom(helper.make_graph([scan], "steps", inputs, outputs))
    return work, fed


def _info(value: onnx.ValueInfoProto, known: bool, *, rank_known: bool = False) -> onnx.ValueInfoProto:
    dims = value.type.tensor_type.shape.dim
    shape = [dim.dim_value for dim in dims] if known else [None] * len(dims) if rank_known else None
    return helper.make_tensor_value_info(value.name, value.type.tensor_type.elem_type, shape)


def _steps(array: Array) -> Array:
    """Two steps: a value, and another that differs if it is of floats."""
    return np.stack([array, (array / 2).astype(array.dtype) if array.dtype.kind == "f" else array])
