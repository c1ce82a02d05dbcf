"""Whether a loss is the mean or the sum over the rows of a batch: found by trying."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from lstm_lower.errors import InvalidInputError, UnsupportedOpError
from lstm_lower.passes.training.evaluation import evaluation_of
from lstm_lower.runtime.session import Session
from lstm_lower.runtime.training.learner import Reduction
from lstm_lower.runtime.training.parallel.shards import Rowwise

Array = np.ndarray[Any, Any]

# Relative difference, by the dtype of the loss, that the order of sums accounts for.
_TOLERANCE = {"float16": 1e-2, "bfloat16": 5e-2, "float32": 2e-5, "float64": 1e-9}


def loss_of(step: ir.Model, state: Mapping[str, Array], name: str) -> Callable[[Mapping[str, Array]], Array]:
    """The loss of feeds under a state, without what is drawn, and without statistics of the batch.

    Args:
        step: the training step.
        state: state input -> value.
        name: of the loss.

    Raises:
        InvalidInputError: it is not known how the step is evaluated.
    """
    try:
        session = Session(evaluation_of(step))
    except UnsupportedOpError as error:
        raise InvalidInputError(
            "workers must know whether the loss is a mean or a sum over rows, which cannot be tried here: "
            f"reduction='mean' or 'sum' says it ({error})"
        ) from error

    def loss(feeds: Mapping[str, Array]) -> Array:
        known = {**state, **feeds}
        return session.run({each: known[each] for each in session.inputs if each in known}, [name])[name]

    return loss


def reduction_of(
    loss: Callable[[Mapping[str, Array]], Array], rowwise: Rowwise, feeds: Mapping[str, Array]
) -> Reduction:
    """Compares the loss of a batch with the losses of its first row and of the others.

    Args:
        loss: of feeds, always the same for the same ones.
        rowwise: where the rows lie.
        feeds: a batch of at least two rows.

    Raises:
        InvalidInputError: it is neither the mean nor the sum of them, or both.
    """
    count = rowwise.count(feeds)
    whole = loss(feeds)
    first, rest = (float(loss(part.feeds)) for part in rowwise.cut(feeds, [1, count - 1]))
    candidates: dict[Reduction, float] = {"mean": (first + rest * (count - 1)) / count, "sum": first + rest}
    bound = _TOLERANCE.get(whole.dtype.name, 2e-5) * (abs(first) + abs(rest))
    fitting = [name for name, value in candidates.items() if abs(value - float(whole)) <= bound]
    if len(fitting) == 1:
        return fitting[0]
    raise InvalidInputError(
        f"workers require a loss that is the mean or the sum over rows, got {float(whole):.6g} for {count} rows, "
        f"{first:.6g} for the first and {rest:.6g} for the others; reduction='mean' weighs the workers by their rows, "
        "reduction='sum' adds them up"
    )
