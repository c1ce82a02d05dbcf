"""Contestants in processes of their own."""

from __future__ import annotations

from benchmarks.block import Case
from benchmarks.contestants import MAY_REFUSE, CaseRun
from lstm_lower.errors import InvalidInputError
from lstm_lower.runtime.measuring.worker import Worker


def contestant(name: str, case: Case, threads: int, schedule: str) -> Worker:
    """A process that runs one contestant; one whose library is missing or refuses the case tells why.

    Args:
        name: out of `contestants.CONTESTANTS`.
        case: what it runs.
        threads: its threads.
        schedule: ours, where it is ours.

    Raises:
        InvalidInputError: another one fails.
    """
    worker = Worker(CaseRun, name, case, threads, schedule, threads=threads)
    if worker.refusal is not None and not worker.refusal.is_import and name not in MAY_REFUSE:
        raise InvalidInputError(f"benchmark contestant '{name}' requires a working process, got {worker.refusal}")
    return worker


def absence(worker: Worker) -> str | None:
    """Why a contestant takes no part, as short as a table has room for."""
    return None if worker.refusal is None else str(worker.refusal).partition("\n")[0].partition("; ")[0]
