"""Gradients of a real file's weights, against central differences in float64.

    python -m tests.real_gradients MODEL.onnx [--of OUTPUT] [--dim NAME=SIZE ...] [--feed NAME=NUMBER ...]

Of the sum of an output times random numbers (that of probabilities alone is constant), along a random direction for
each weight by itself. Prints a line for each and exits with 1 if one is off by more than the differences are uncertain
by.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

import lstm_lower as ll
from lstm_lower.passes.differentiate import gradient_passes
from lstm_lower.passes.driver import run_passes
from lstm_lower.runtime.proof.reference import evaluate
from tests.support.differences import initializers_as_inputs

Array = np.ndarray[Any, Any]
STEPS = (1e-5, 1e-6)


def main() -> int:
    """Checks the file; 1 if a gradient is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--of")
    parser.add_argument("--dim", action="append", default=[])
    parser.add_argument("--feed", action="append", default=[])
    given = parser.parse_args()
    source = onnx.load(given.model)
    of = given.of or source.graph.output[0].name
    # Of a weight that is no initializer the name is known to the gradients only.
    # Without the optimiser, which computes at once what becomes of several weights.
    model = ir.to_proto(run_passes(source, gradient_passes(of, seeds=True, optimize=False)))
    names = [value.name.removeprefix("grad/") for value in model.graph.output[len(source.graph.output) :]]
    opened, feeds = initializers_as_inputs(model, names)
    drawn = _feeds(opened, dict(text.split("=") for text in given.dim), dict(text.split("=") for text in given.feed))
    feeds = drawn | feeds  # weights are the file's own
    seed = np.random.default_rng(2).standard_normal(ll.Session(source).run(_narrow(source, feeds))[of].shape)
    feeds[f"seed/{of}"] = seed
    work = ir.from_proto(opened)

    def run(feeds: dict[str, Any]) -> dict[str, Array]:
        return evaluate(work, feeds)

    made = run(feeds)
    wrong = 0
    for name in names:
        direction = np.random.default_rng(0).standard_normal(feeds[name].shape)
        analytic = float((made[f"grad/{name}"] * direction).sum())
        found = [
            float((run({**feeds, name: feeds[name] + step * direction})[of] * seed).sum())
            - float((run({**feeds, name: feeds[name] - step * direction})[of] * seed).sum())
            for step in STEPS
        ]
        fine, coarse = (difference / (2 * step) for difference, step in zip(found[::-1], STEPS[::-1], strict=True))
        off = not abs(analytic - fine) <= 2 * abs(fine - coarse) + 1e-6 * max(1.0, abs(fine))  # NaN is off
        wrong += off
        print(f"{'WRONG ' if off else 'right '} {name}: {analytic:.9g}, differences {fine:.9g}")  # noqa: T201
    return wrong > 0


def _feeds(model: onnx.ModelProto, dims: dict[str, str], numbers: dict[str, str]) -> dict[str, Any]:
    """Random feeds of a model's inputs that are no weights."""
    rng = np.random.default_rng(1)
    feeds: dict[str, Any] = {}
    for value in model.graph.input:
        if value.name.startswith("seed/"):
            continue
        tensor = value.type.tensor_type
        sizes = [dim.dim_value or int(dims.get(dim.dim_param or f"{value.name}.{place}", 2))
                 for place, dim in enumerate(tensor.shape.dim)]  # fmt: skip
        if value.name in numbers:
            feeds[value.name] = np.full(sizes, float(numbers[value.name])).astype(
                onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
            )
        elif tensor.elem_type in (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE):
            feeds[value.name] = rng.standard_normal(sizes) / 3
        else:
            feeds[value.name] = np.zeros(sizes, onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    return feeds


def _narrow(model: onnx.ModelProto, feeds: dict[str, Any]) -> dict[str, Array]:
    """The feeds of the file as it is."""
    inputs = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
    weights = {tensor.name for tensor in model.graph.initializer}
    return {
        name: feeds[name].astype(onnx.helper.tensor_dtype_to_np_dtype(kind))
        for name, kind in inputs.items()
        if name not in weights
    }


if __name__ == "__main__":
    sys.exit(main())
