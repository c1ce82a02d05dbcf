"""The floor's matrix products in PyTorch.

The products alone differ between libraries: PyTorch's come from MKL, onnxruntime's from its own kernels. A contestant
compares fairly with the products of its own library, and the two floors together say how much of a distance lies in
the products and how much around them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx

Array = np.ndarray[Any, Any]


def products_in_pytorch(model: onnx.ModelProto, values: Mapping[str, Array], threads: int) -> Callable[[], Any]:
    """The same products, one after the other.

    Args:
        model: a floor: MatMul and Gemm nodes on two inputs of the graph each, matrices all.
        values: the inputs.
        threads: PyTorch's threads.

    Raises:
        ImportError: PyTorch is not installed.
    """
    import torch

    torch.set_num_threads(threads)
    tensors = {name: torch.from_numpy(value) for name, value in values.items()}
    pairs = []
    for node in model.graph.node:
        left, right = (tensors[name] for name in node.input)
        turned = any(attribute.name == "transA" and attribute.i for attribute in node.attribute)
        pairs.append((left.t() if turned else left, right))

    def run() -> Any:
        with torch.no_grad():
            return [torch.mm(left, right) for left, right in pairs]

    return run
