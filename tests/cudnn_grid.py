"""Lowered CudnnRNNV3 with CudnnRNNBackpropV3 against PyTorch's autograd in float64, over all configurations.

    python -m tests.cudnn_grid [STRIDE]

prints the worst relative errors; with STRIDE every so many configurations only. The test suite runs a part of them.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import lstm_lower as ll
from tests.support.cudnn_cases import CASES, Case
from tests.support.cudnn_models import node_model, training_model
from tests.support.cudnn_torch import reference

Array = np.ndarray[Any, Any]


def relative_error(value: Array, expected: Array) -> float:
    """Largest deviation over the largest expected magnitude (at least 1)."""
    if value.shape != expected.shape:
        return float("inf")
    scale = max(float(np.max(np.abs(expected), initial=0)), 1.0)
    return float(np.max(np.abs(value - expected), initial=0)) / scale


def errors_of(case: Case, dtype: Any = np.float64) -> float:
    """The worst relative error of a case's outputs and gradients.

    With masks the backward op stands alone, for the forward op draws its own.
    """
    operands = case.operands(seed=len(str(case)), dtype=dtype)
    forward, backward = reference(case, operands)
    if case.masks:
        operands |= {name: value.astype(dtype) for name, value in forward.items()}
        model, expected = node_model("CudnnRNNBackpropV3", operands, _plain(case)), backward
    else:
        model, expected = training_model(case, operands), {**forward, **backward}
    session = ll.Session(ll.lower(model))
    results = session.run({name: operands[name] for name in session.inputs})
    return max(relative_error(results[name], value) for name, value in expected.items())


def _plain(case: Case) -> dict[str, Any]:
    return {name: int(value) if isinstance(value, bool) else value for name, value in case.attributes.items()}


def main() -> None:
    stride = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    cases = CASES[::stride]
    for dtype, bound in ((np.float64, 1e-12), (np.float32, 5e-6)):
        errors = {str(case): errors_of(case, dtype) for case in cases}
        worst = max(errors, key=lambda name: errors[name])
        print(  # noqa: T201
            f"{np.dtype(dtype).name}: {len(cases)} configurations, worst relative error {errors[worst]:.1e} ({worst}), "
            f"{sum(error > bound for error in errors.values())} above {bound:.0e}"
        )


if __name__ == "__main__":
    main()
