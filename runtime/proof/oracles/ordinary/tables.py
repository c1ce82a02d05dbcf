"""Oracles of ops that differ in their formula alone: tables from ops to numpy's functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from lstm_lower.opdef import REGISTRY, DType
from lstm_lower.runtime.proof.oracles.registry import oracle

Values = npt.NDArray[Any]


def wide(value: npt.ArrayLike) -> Values:
    """Floating-point numbers in float64, complex ones in complex128; integers and truth values as they are."""
    array = np.asarray(value)
    if array.dtype.kind in "biu":
        return array
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def ints(value: npt.ArrayLike) -> list[int]:
    """The entries of an integer operand."""
    return [int(entry) for entry in np.ravel(value)]


def index(number: int) -> np.dtype[Any]:
    """Numpy's dtype for ONNX's number of one."""
    return DType(number).numpy()


def oracles_by(table: Mapping[str, Callable[..., Any]]) -> None:
    """Registers oracles: each function takes the op's operands in order and gives its only output."""
    for op_type, function in table.items():
        oracle(op_type)(_oracle(op_type, function))


def _oracle(op_type: str, function: Callable[..., Any]) -> Callable[..., dict[str, Values]]:
    def evaluate(**operands: Any) -> dict[str, Values]:
        op = REGISTRY[op_type]
        with np.errstate(all="ignore"):
            result = function(*(wide(operands[declared.name]) for declared in op.inputs))
        return {op.outputs[0].name: np.asarray(result)}

    return evaluate
