"""Steps on workers where workers are asked for, and in this process where not."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from lstm_lower.errors import InvalidInputError
from lstm_lower.runtime.training.learner import Learner, Reduction


def spread(
    learner: Learner,
    workers: int | None,
    *,
    address: str | None = None,
    reduction: Reduction | None = None,
    sample_axis: Mapping[str, int] | None = None,
) -> contextlib.AbstractContextManager[Learner]:
    """A learner whose steps run on workers, which end with the block.

    Args:
        learner: the trainer.
        workers: their number; `None` for the trainer as it is.
        address: see `DistributedTrainer`.
        reduction: see `DistributedTrainer`.
        sample_axis: see `DistributedTrainer`.

    Raises:
        InvalidInputError: there are no workers that the other options are for, or the learner has workers already.
        LstmLowerError: whatever `DistributedTrainer` raises.
    """
    if workers is None:
        given = [name for name, value in {"address": address, "reduction": reduction}.items() if value is not None]
        if given:
            raise InvalidInputError(f"{given[0]} requires a number of workers, got none")
        return contextlib.nullcontext(learner)
    # The trainer knows this module, through its `fit`.
    from lstm_lower.runtime.training.parallel.trainer import DistributedTrainer
    from lstm_lower.runtime.training.trainer import Trainer

    if not isinstance(learner, Trainer):
        raise InvalidInputError(f"workers require a Trainer, got a {type(learner).__name__}, which has them already")
    return DistributedTrainer(learner, workers, address=address, reduction=reduction, sample_axis=sample_axis)
