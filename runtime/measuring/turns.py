"""Contestants take turns, so that whatever else the machine does falls on all of them."""

from __future__ import annotations

from collections.abc import Sequence

from lstm_lower.runtime.measuring.worker import Worker

ROUNDS = 6
# Of a run so short that more of them say no more.
_MOST_RUNS = 200


def take_turns(workers: Sequence[Worker], *, seconds: float, rounds: int = ROUNDS) -> dict[Worker, list[float]]:
    """Times some workers in turns.

    Args:
        workers: processes that made what they measure.
        seconds: about how long each runs in all; at least one run in every round.
        rounds: how often each has its turn.

    Returns:
        Seconds of every run of each worker.

    Raises:
        WorkerError: a run failed.
    """
    times: dict[Worker, list[float]] = {worker: [] for worker in workers}
    counts = {worker: max(1, min(_MOST_RUNS, round(seconds / rounds / min(worker.times(2))))) for worker in workers}
    for _ in range(rounds):
        for worker in workers:
            times[worker] += worker.times(counts[worker])
    return times
