"""Models of one node, in every form that its operator has."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import helper

from tests.support import operator_forms
from tests.support.operator_forms import Draw
from tests.support.operator_forms_layers import LAYERS

FORMS = {**operator_forms.FORMS, **LAYERS}


@dataclasses.dataclass
class Case:
    """A model of one node.

    Attributes:
        model: with the operands as inputs, as constants or as the shape of an input.
        feeds: values for its inputs.
    """

    model: onnx.ModelProto
    feeds: dict[str, np.ndarray[Any, Any]]


@st.composite
def cases(draw: Draw, op: str) -> Case:
    """A model of one node in one of its forms; dimensions of inputs are sizes, names or open."""
    form = FORMS[op](draw)
    opset = draw(st.integers(max(form.since, 13), min(form.until, max(form.since, 22))))
    inputs, initializers, nodes, names = [], [], [], []
    feeds: dict[str, np.ndarray[Any, Any]] = {}

    def feed(name: str, array: np.ndarray[Any, Any]) -> None:
        how = draw(st.sampled_from(["sizes", "names", "open"]))
        dims = [{"sizes": d, "names": f"{'abcd'[d] if d < 4 else 'e'}", "open": None}[how] for d in array.shape]
        inputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), dims))
        feeds[name] = array

    for index, array in enumerate(form.operands):
        name = "" if array is None else f"in{index}"
        names.append(name)
        if array is None:
            continue
        how = draw(st.sampled_from(["constant", "shape", "input"])) if index in form.small else "input"
        sizes = array.dtype == np.int64 and array.ndim == 1 and (array >= 0).all() and (array < 50).all()
        if how == "shape" and sizes and array.size and array.prod() < 1000:
            feed(f"{name}_sized", np.zeros(array, np.float32))
            nodes.append(helper.make_node("Shape", [f"{name}_sized"], [name]))
        elif how == "input":
            feed(name, array)
        else:
            initializers.append(onnx.numpy_helper.from_array(array, name))
    outputs = [f"out{index}" for index in range(form.outputs)]
    nodes.append(helper.make_node(form.op, names, outputs, **form.attributes))
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(nodes, "form", inputs, results, initializers)
    return Case(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), feeds)
