"""What happens at a step whose loss is infinite or NaN."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from lstm_lower.errors import NotFiniteError
from lstm_lower.records.state import TrainingState
from lstm_lower.runtime.training.learner import OnNan

Array = np.ndarray[Any, Any]


def updates(
    loss: float,
    step: int,
    on_nan: OnNan,
    spoilt: Callable[[], str | None],
    trace: Callable[[], object] | None = None,
) -> bool:
    """Whether a step changes the state.

    Args:
        loss: of the step.
        step: its number, for the message.
        on_nan: what is to become of it where the loss is not finite.
        spoilt: names a weight that is not finite before the step; asked where it stops.
        trace: says where the first such number comes from; asked where the step stops.

    Raises:
        NotFiniteError: the loss is not finite, and `on_nan` is `stop`.
    """
    finite = math.isfinite(loss)
    if not finite and on_nan == "stop":
        origin = "" if trace is None else f"; {trace()}"
        if (name := spoilt()) is not None:
            raise NotFiniteError(
                f"step {step}: the loss must be finite, got {loss}{origin}; '{name}' already held such numbers: a step "
                "whose own loss was finite wrote them, of an infinite feed or gradient; begin again from a checkpoint"
            )
        hint = "; trace_nan names the node that made the first such number" if trace is None else ""
        raise NotFiniteError(
            f"step {step}: the loss must be finite, got {loss}{origin}; the state is as before that step. "
            "A smaller learning rate or clip_norm may prevent it; on_nan 'skip' leaves such steps out, 'ignore' "
            f"goes on regardless{hint}"
        )
    return finite or on_nan == "ignore"


def spoilt(state: TrainingState, read: Callable[[Iterable[str]], Mapping[str, Array]]) -> str | None:
    """The first of the weights that steps update which holds what is infinite or no number; `read` reads them."""
    updated = [pair.input for pair in state.pairs if pair.role == "weight" and pair.output is not None]
    held = read(updated).items()
    return next((name for name, array in held if array.dtype.kind == "f" and not np.isfinite(array).all()), None)
