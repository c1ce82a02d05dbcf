"""Contestants take turns, so that whatever else the machine does falls on all of them."""

from __future__ import annotations

from collections.abc import Sequence

from lstm_lower.runtime.measuring.worker import Worker

ROUNDS = 6
# Of a run so short that more of them say no more.
_MOST_RUNS = 200
# Of a run that takes longer than the time given; one alone might fall on other work of the machine.
_FEWEST_TURNS = 2


def take_turns(workers: Sequence[Worker], *, seconds: float, rounds: int = ROUNDS) -> dict[Worker, list[float]]:
    """Times some workers in turns.

    Args:
        workers: processes that made what they measure.
        seconds: about how long each runs in all.
        rounds: how often each has its turn; one whose runs would take longer has fewer turns, but two.

    Returns:
        Seconds of every run of each worker.

    Raises:
        WorkerError: a run failed.
    """
    times: dict[Worker, list[float]] = {worker: [] for worker in workers}
    counts, turns = {}, {}
    for worker in workers:
        runs = seconds / min(worker.times(1))
        counts[worker] = max(1, min(_MOST_RUNS, round(runs / rounds)))
        turns[worker] = min(rounds, max(_FEWEST_TURNS, round(runs)))
    for turn in range(rounds):
        for worker in workers:
            if turn < turns[worker]:
                times[worker] += worker.times(counts[worker])
    return times
