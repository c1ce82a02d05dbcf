"""What becomes of a step whose loss is infinite or no number."""

from __future__ import annotations

import math
from collections.abc import Callable

from lstm_lower.errors import NotFiniteError
from lstm_lower.runtime.training.learner import OnNan


def updates(loss: float, step: int, on_nan: OnNan, trace: Callable[[], object] | None = None) -> bool:
    """Whether a step changes the state.

    Args:
        loss: of the step.
        step: its number, for the message.
        on_nan: what is to become of it where the loss is not finite.
        trace: says where the first such number comes from; asked where the step stops.

    Raises:
        NotFiniteError: the loss is not finite, and `on_nan` is `stop`.
    """
    finite = math.isfinite(loss)
    if not finite and on_nan == "stop":
        origin = "" if trace is None else f"; {trace()}"
        hint = "; trace_nan names the node that made the first such number" if trace is None else ""
        raise NotFiniteError(
            f"step {step}: the loss must be finite, got {loss}{origin}; the state is as before that step. "
            "A smaller learning rate or clip_norm may prevent it; on_nan 'skip' leaves such steps out, 'ignore' "
            f"goes on regardless{hint}"
        )
    return finite or on_nan == "ignore"
