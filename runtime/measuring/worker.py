"""Measurements in a process of their own, which is asked over a pipe.

Sessions of onnxruntime spin against each other inside one process, frameworks bring thread pools of their own, and
memory belongs to a process; processes that take turns do not disturb each other. This file imports nothing heavy: a
process sets its number of threads before it imports what it measures.
"""

from __future__ import annotations

import abc
import contextlib
import ctypes
import dataclasses
import multiprocessing
import os
import sys
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from lstm_lower.errors import InvalidInputError

# The memory that a run needs at its peak, as Linux counts a process's pages.


# Of mallopt: blocks at least that large are mapped for themselves. Set once, glibc no longer moves the limit.
_MMAP_THRESHOLD = -3
_RESET, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


def peak_memory(run: Callable[[], object]) -> int | None:
    """Bytes of resident memory that a run adds at its peak.

    The run is repeated twice and its results dropped, so that what stays (code, weights, feeds) is there. glibc's heap
    would count freed memory that it happens to keep, so it is told to give blocks of a megabyte and more back at once
    (`mallopt`), and before the last run all it holds (`malloc_trim`). Then the kernel's high-water mark is put back
    (`5` into `/proc/self/clear_refs`), and after one more run the mark (`VmHWM`) is compared with the resident memory
    before it (`VmRSS`). Results count, feeds do not. What another allocator keeps between runs would be missing, so a
    run should give it back.

    Returns:
        Bytes; `None` where the system keeps no such mark.
    """
    _c_library("mallopt", _MMAP_THRESHOLD, 1 << 20)
    for _ in range(2):
        run()
    _c_library("malloc_trim", 0)
    try:
        _RESET.write_text("5", encoding="ascii")
    except OSError:
        return None
    before = _field("VmRSS")
    result = run()
    peak = _field("VmHWM")
    del result
    return peak - before


def _c_library(function: str, *numbers: int) -> None:
    """Calls a function of glibc's heap; other C libraries have no such function, and keep less."""
    with contextlib.suppress(OSError, AttributeError, TypeError):
        getattr(ctypes.CDLL(None), function)(*numbers)


def _field(name: str) -> int:
    lines = _STATUS.read_text(encoding="ascii", errors="replace").splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) * 1024


# Contestants take turns, so that whatever else the machine does falls on all of them.


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
        Seconds of every run of each worker, but for those of which a run failed: their `refusal` says how.
    """
    times: dict[Worker, list[float]] = {worker: [] for worker in workers}

    def timed(worker: Worker, count: int) -> list[float]:
        try:
            return worker.times(count)
        except WorkerError as error:
            worker.refusal = error.refusal
            del times[worker]
            return []

    counts, turns = {}, {}
    for worker in workers:
        runs = seconds / min(timed(worker, 1), default=seconds)
        counts[worker] = max(1, min(_MOST_RUNS, round(runs / rounds)))
        turns[worker] = min(rounds, max(_FEWEST_TURNS, round(runs)))
    for turn in range(rounds):
        for worker in list(times):
            if turn < turns[worker] and (found := timed(worker, counts[worker])):
                times[worker] += found
    return times


# A process that does not end by itself within this many seconds is killed.
_PATIENCE = 10.0
# Seconds of a run from which on it does not matter whose data the caches held before it.
_LONG_RUN = 0.5


class Measured(abc.ABC):
    """A thing that can be run again and again; a process makes one and answers by its methods.

    Attributes:
        facts: what was learned while it was made, by name.
    """

    facts: Mapping[str, Any]

    @abc.abstractmethod
    def run(self) -> object:
        """Runs it once and waits for the results."""

    def run_lean(self) -> object:
        """The same run with no memory kept for the next one, where that has to be asked for."""
        return self.run()

    def times(self, count: int) -> list[float]:
        """Seconds of some runs.

        A short one before them is not counted: others had the processor and its caches in between.
        """
        first = self._time()
        seconds = [first] if first > _LONG_RUN else []
        return seconds + [self._time() for _ in range(count - len(seconds))]

    def _time(self) -> float:
        start = time.perf_counter()
        result = self.run()
        seconds = time.perf_counter() - start
        del result
        return seconds

    def memory(self) -> int | None:
        """Bytes that a run needs at its peak beyond what is there before it, see `peak_memory`."""
        return peak_memory(self.run_lean)


@dataclasses.dataclass(frozen=True)
class NotMeasured:
    """Why there is nothing to measure.

    Attributes:
        kind: the name of the exception.
        text: its message.
        is_import: whether a module is missing.
    """

    kind: str
    text: str
    is_import: bool = False

    def __str__(self) -> str:
        return self.text if self.is_import else f"{self.kind}: {self.text}"


class Worker:
    """A process that makes something to measure, and measures it when asked.

    Attributes:
        facts: what was learned while it was made.
        refusal: why it was not made; such a process is not asked.
    """

    def __init__(self, make: Callable[..., Measured], *arguments: Any, threads: int, **options: Any) -> None:
        """Starts the process and waits until it has made what it measures and run it once.

        Args:
            make: a function of a module, called in the process.
            arguments: what it is called with; they are pickled.
            threads: of OpenMP in the process.
            options: what it is called with by name; pickled, too.
        """
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, threads), daemon=True)
        with _no_script():
            self._process.start()
        theirs.close()
        self.facts: Mapping[str, Any] = {}
        self.refusal: NotMeasured | None = None
        try:
            self._connection.send((make, arguments, options))
            self.facts = self._answer()
        except WorkerError as error:
            self.refusal = error.refusal
        except BaseException:
            self.close()
            raise

    def ask(self, method: str, *arguments: Any) -> Any:
        """Calls a method of what is measured.

        Raises:
            WorkerError: it failed, or the process ended.
        """
        with contextlib.suppress(BrokenPipeError):  # of a process that has ended; reading says how
            self._connection.send((method, arguments))
        return self._answer()

    def times(self, count: int) -> list[float]:
        """Seconds of some runs.

        Raises:
            WorkerError: a run failed, or the process ended.
        """
        seconds: list[float] = self.ask("times", count)
        return seconds

    def _answer(self) -> Any:
        try:
            answer = self._connection.recv()
        except (EOFError, ConnectionResetError) as error:
            self._process.join(_PATIENCE)
            refusal = NotMeasured("ProcessError", f"its process ended with exit code {self._process.exitcode}")
            raise WorkerError(refusal) from error
        if isinstance(answer, NotMeasured):
            raise WorkerError(answer)
        return answer

    def close(self) -> None:
        """Ends the process."""
        self._connection.close()
        self._process.join(_PATIENCE)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process.close()


@contextlib.contextmanager
def _no_script() -> Iterator[None]:
    """Hides the program that runs, which a new process would otherwise run once more for what is defined in it."""
    script = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


class WorkerError(InvalidInputError):
    """A measurement failed in its process.

    Attributes:
        refusal: how.
    """

    def __init__(self, refusal: NotMeasured) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


def _serve(connection: Connection, threads: int) -> None:
    """Makes what is asked for, then answers until the other end is closed."""
    # What libraries print must not reach standard output, which a program may read.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.environ["OMP_NUM_THREADS"] = str(threads)
    with contextlib.suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        measured = _attempt(connection, lambda: _tried(*connection.recv()))
        if measured is None:
            return
        connection.send(measured.facts)
        while True:
            method, arguments = connection.recv()
            answer = _attempt(connection, lambda: (getattr(measured, method)(*arguments),))  # noqa: B023 (called at once)
            if answer is not None:
                connection.send(answer[0])


def _tried(make: Callable[..., Measured], arguments: tuple[Any, ...], options: dict[str, Any]) -> Measured:
    measured = make(*arguments, **options)
    measured.run()
    return measured


def _attempt(connection: Connection, action: Callable[[], Any]) -> Any:
    """The result of an action; `None` after a failure, which is reported to the other end."""
    try:
        return action()
    except Exception as error:  # noqa: BLE001 (whatever a library raises is for the other process to judge)
        connection.send(NotMeasured(type(error).__name__, str(error), isinstance(error, ImportError)))
        return None
