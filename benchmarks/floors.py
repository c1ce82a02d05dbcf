"""Floors: the matrix products that every implementation computes, one after the other, and nothing else.

How long a product takes depends on how its operands lie in memory, and on whether it or its transpose is computed. A
floor is what no implementation falls below: every product in the form that is fastest, which is measured first.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper

Array = np.ndarray[Any, Any]
Run = Callable[[], Any]

# Each form is run in some turns; of one product after the other, so that a run is not all overhead.
_TURNS, _RUNS, _TIMES = 3, 3, 20


class Product(NamedTuple):
    """`left @ right`, or `left.T @ right`, done `times` times."""

    left: tuple[int, int]
    right: tuple[int, int]
    times: int = 1
    turned: bool = False

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Rows, inner size, columns."""
        inner, rows = self.left if self.turned else self.left[::-1]
        return rows, inner, self.right[1]


class Form(NamedTuple):
    """How a product is computed.

    Attributes:
        swapped: its transpose is computed, of the transposed operands in the other order.
        left_turned: the first operand, whichever that is, lies in memory transposed.
        right_turned: the second one does.
    """

    swapped: bool = False
    left_turned: bool = False
    right_turned: bool = False


FORMS = tuple(itertools.starmap(Form, itertools.product((False, True), repeat=3)))


def model_of(
    products: Iterable[Product], forms: Mapping[tuple[int, int, int], Form] | None = None
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """The products as a model, and values for its inputs; operands of one size are one input.

    Args:
        products: the products.
        forms: by sizes; those that it does not have are computed as they are written.
    """
    random = np.random.default_rng(0)
    values: dict[str, Array] = {}
    nodes: list[onnx.NodeProto] = []
    for product in products:
        form = (forms or {}).get(product.sizes, Form(left_turned=product.turned))
        rows, inner, columns = product.sizes[::-1] if form.swapped else product.sizes
        left = (inner, rows) if form.left_turned else (rows, inner)
        right = (columns, inner) if form.right_turned else (inner, columns)
        names = [f"m{first}x{second}" for first, second in (left, right)]
        for name, size in zip(names, (left, right), strict=True):
            values.setdefault(name, random.standard_normal(size, np.float32))
        turned = {"transA": form.left_turned, "transB": form.right_turned}
        options: dict[str, Any] = {name: 1 for name, value in turned.items() if value}
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


def fastest_forms(
    products: Iterable[Product],
    make: Callable[[onnx.ModelProto, dict[str, Array]], Run],
    clock: Callable[[], float] = time.perf_counter,
) -> dict[tuple[int, int, int], Form]:
    """The fastest form of each product, by its sizes.

    Args:
        products: the products.
        make: makes a run of a model of some products, in the library whose floor it is.
        clock: tells seconds.
    """
    fastest = {}
    for product in {product.sizes: product for product in products}.values():
        some = product._replace(times=min(product.times, _TIMES))
        times: dict[Form, float] = {}
        for _ in range(_TURNS):
            for form in FORMS:
                # Made anew in each turn: sessions of onnxruntime would spin against each other.
                found = _least(make(*model_of([some], {product.sizes: form})), clock)
                times[form] = min(found, times.get(form, found))
        fastest[product.sizes] = min(FORMS, key=times.__getitem__)
    return fastest


def _least(run: Run, clock: Callable[[], float]) -> float:
    """Seconds of the fastest run, the first one left out."""
    run()
    seconds = []
    for _ in range(_RUNS):
        start = clock()
        run()
        seconds.append(clock() - start)
    return min(seconds)
