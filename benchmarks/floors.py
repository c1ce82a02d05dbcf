"""Floors: the matrix products that every implementation computes, one after the other, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper

Array = np.ndarray[Any, Any]


class Product(NamedTuple):
    """`left @ right`, or `left.T @ right`, done `times` times."""

    left: tuple[int, int]
    right: tuple[int, int]
    times: int = 1
    turned: bool = False


def model_of(products: Iterable[Product]) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """The products as a model, and values for its inputs; operands of one size are one input."""
    random = np.random.default_rng(0)
    values: dict[str, Array] = {}
    nodes: list[onnx.NodeProto] = []
    for product in products:
        names = [f"m{rows}x{columns}" for rows, columns in (product.left, product.right)]
        for name, size in zip(names, (product.left, product.right), strict=True):
            values.setdefault(name, random.standard_normal(size, np.float32))
        options: dict[str, Any] = {"transA": 1} if product.turned else {}
        for _ in range(product.times):
            nodes.append(helper.make_node("Gemm" if options else "MatMul", names, [f"p{len(nodes)}"], **options))
    element = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "floor",
        [helper.make_tensor_value_info(name, element, value.shape) for name, value in values.items()],
        [helper.make_tensor_value_info(node.output[0], element, None) for node in nodes],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), values
