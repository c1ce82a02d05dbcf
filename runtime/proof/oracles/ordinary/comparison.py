"""Oracles of comparisons, tests and operations on truth values."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lstm_lower.runtime.proof.oracles.ordinary.tables import Values, oracles_by
from lstm_lower.runtime.proof.oracles.registry import oracle

oracles_by(
    {
        "Less": np.less,
        "LessEqual": np.less_equal,
        "Greater": np.greater,
        "GreaterEqual": np.greater_equal,
        "LogicalAnd": np.logical_and,
        "LogicalOr": np.logical_or,
        "LogicalNot": np.logical_not,
        "IsNan": np.isnan,
        "IsInf": np.isinf,
        "IsFinite": np.isfinite,
    }
)


@oracle("Equal")
def equal(*, x: npt.ArrayLike, y: npt.ArrayLike, incompatible_shape_error: bool = True) -> dict[str, Values]:
    """Whether they are the same; operands that do not broadcast are not, where that is no error."""
    try:
        return {"z": np.asarray(np.asarray(x) == np.asarray(y))}
    except ValueError:
        if incompatible_shape_error:
            raise
        return {"z": np.asarray(False)}  # noqa: FBT003


@oracle("NotEqual")
def not_equal(*, x: npt.ArrayLike, y: npt.ArrayLike, incompatible_shape_error: bool = True) -> dict[str, Values]:
    """The contrary."""
    same = equal(x=x, y=y, incompatible_shape_error=incompatible_shape_error)
    return {"z": np.logical_not(same["z"])}


@oracle("ApproximateEqual")
def approximate_equal(*, x: npt.ArrayLike, y: npt.ArrayLike, tolerance: float = 1e-5) -> dict[str, Values]:
    """Whether they are less than the tolerance apart; undefined for infinities."""
    with np.errstate(invalid="ignore"):
        return {"z": np.asarray(np.abs(np.asarray(x, np.float64) - np.asarray(y, np.float64)) < tolerance)}
