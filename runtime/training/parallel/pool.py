"""Workers on Ray: one replica each, replaced where one dies."""

from __future__ import annotations

import contextlib
import importlib
import ipaddress
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from lstm_lower.errors import InvalidInputError, InvalidModelError, LstmLowerError, WorkersLostError, some
from lstm_lower.extras import needed_by
from lstm_lower.replacement import replaced
from lstm_lower.runtime.training.parallel.program import Program
from lstm_lower.runtime.training.parallel.replica import Replica, Shard, ShardResult

# Ray: a cluster to run on, quietly.


# Ray takes no less.
_SMALLEST_STORE = 80 << 20
# Ray gives its own processes half a minute to start, which a busy machine may need twice.
_RAY_ATTEMPTS = 5


# Processes without which a cluster does nothing, as Ray calls them: the store of its state, and what runs workers.
_DAEMONS = ("gcs_server", "raylet")


def ray_module() -> Any:
    """The package.

    Raises:
        MissingPackageError: it is not installed.
    """
    # Nothing is reported to anybody unless the user has said otherwise, and errors are those that the pool raises: what
    # one died of and another was to read is dealt with.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")
    with needed_by("training on several workers"):
        import ray
    return ray


def connect(address: str | None, cpus: int, traffic: int) -> bool:
    """Connects to a cluster, or starts one of processes on this machine.

    Args:
        address: `host:port` of a cluster's head, `auto` for the one of this machine, `None` for one of our own; a
            connection that this process has already is used.
        cpus: how many are needed.
        traffic: bytes that lie in shared memory at once, for a cluster of our own.

    Returns:
        Whether the connection was made here, and is to be ended by who asked for it.

    Raises:
        InvalidInputError: there is no such cluster, or it has fewer processors.
    """
    ray = ray_module()
    ours = not ray.is_initialized()
    if ours:
        quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
        store = max(_SMALLEST_STORE, 2 * traffic)
        own = {"num_cpus": cpus, "include_dashboard": False, "object_store_memory": store} if address is None else {}
        for attempt in range(1, _RAY_ATTEMPTS + 1):
            try:
                with _loopback(ray) if address is None else contextlib.nullcontext():
                    ray.init(address=address or "local", **quiet, **own)
                break
            # That it started too late is an exception of no class of its own.
            except Exception as error:
                ray.shutdown()
                if address is None and "timed out" in str(error).lower() and attempt < _RAY_ATTEMPTS:
                    continue
                where = "a cluster on this machine" if address is None else f"a cluster of Ray at {address!r}"
                raise InvalidInputError(f"training on several workers requires {where}, got: {_line(error)}") from error
        # Ray writes to standard output that a worker died, and knows no option against it; the pool deals with it.
        ray._private.worker.print_to_stdstream = _unsaid
    try:
        _check_reach(ray, own=ours and address is None)
    except InvalidInputError:
        if ours:
            ray.shutdown()
        raise
    there = int(ray.cluster_resources().get("CPU", 0))
    if there < cpus:
        if ours:
            ray.shutdown()
        raise InvalidInputError(f"workers require {cpus} processors of the cluster, got {there}")
    return ours


def _loopback(ray: Any) -> contextlib.AbstractContextManager[None]:
    """Has daemons, workers and driver of a cluster that is started meanwhile listen on loopback alone.

    They listen on all interfaces unless the host's address is that of loopback, for which Ray has no option: it takes
    another address in its place. It has a switch, a variable that it reads as it is imported, by which it does not.
    """
    return replaced(ray._private.ray_constants, "ENABLE_RAY_CLUSTER", value=False)


def _check_reach(ray: Any, *, own: bool) -> None:
    """Refuses a cluster that strangers on the network could command.

    Raises:
        InvalidInputError: a cluster of our own is not on loopback, or one of several hosts takes calls without tokens.
    """
    hosts = {node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
    if own and not all(ipaddress.ip_address(host).is_loopback for host in hosts):
        raise InvalidInputError(
            "a cluster on this machine requires a Ray that listens on loopback alone, got one at "
            f"{some(sorted(hosts))}; without workers= the run stays in this process"
        )
    if len(hosts) > 1 and not (_asks_for_tokens() and ray.get(ray.remote(num_cpus=0)(_asks_for_tokens).remote())):
        raise InvalidInputError(
            f"a cluster of {len(hosts)} hosts requires a Ray that asks for tokens, got one that runs whatever anybody "
            "on the network sends it; start it with RAY_AUTH_MODE=token on every host, and set that here, too"
        )


def _asks_for_tokens() -> bool:
    """Whether Ray asks for tokens in this process, and in the daemons that started it."""
    core: Any = importlib.import_module("ray._raylet")
    mode = getattr(core, "get_authentication_mode", None)  # older versions have no tokens
    return mode is not None and bool(mode() == core.AuthenticationMode.TOKEN)


def dead_daemon(ray: Any) -> str | None:
    """The name of a process of the cluster that was started here which has ended, or `None`."""
    node = ray._private.worker._global_node
    processes = {} if node is None else node.all_processes
    ended = (name for name in _DAEMONS if any(held.process.poll() is not None for held in processes.get(name, ())))
    return next(ended, None)


def _unsaid(*_: object, **__: object) -> None:
    """Prints nothing."""


def _line(error: BaseException) -> str:
    """The fault of a call, and its cause: Ray says that a token is missing in the cause only."""
    line = str(error).strip().partition("\n")[0]
    return line if error.__cause__ is None else f"{line}: {_line(error.__cause__)}"


Array = np.ndarray[Any, Any]

# A chunk that is summed by itself is worth a message of its own from about here.
_CHUNK_BYTES = 256 << 10
# Seconds until a worker must answer where others may hold the processors that it waits for. On a cluster of our own a
# worker answers, however late, or Ray says that it died. How often one is started in another's place at one time.
_START_SECONDS = 600
# Seconds after which somebody who waits for workers looks whether Ray's daemons live.
_LOOK_SECONDS = 0.2
_ATTEMPTS = 20


class LostError(Exception):
    """A worker, or what it returned, is gone; `recover` puts others in place."""


class WorkerPool:
    """Workers, all of which hold the same state.

    Every call is made of all workers at once, and what one worker needs of another travels between them through Ray's
    object stores. A worker runs its calls in the order in which they were made.

    Attributes:
        version: number of updates that the state has seen.
    """

    def __init__(self, program: Program, state: Mapping[str, Array], count: int, address: str | None) -> None:
        """Starts the workers.

        Args:
            program: what they run.
            state: state input -> value.
            count: number of workers.
            address: of the cluster, see `connect`.

        Raises:
            InvalidInputError: there is no cluster, or it is too small.
            InvalidModelError: the workers cannot open the model.
        """
        self.version = 0
        self._ray = ray_module()
        vector, held = program.layout.size * program.layout.dtype.itemsize, sum(x.nbytes for x in state.values())
        self._own = connect(address, count * program.threads, 2 * (count + 1) * vector + 2 * held)
        self._patience = None if self._own else _START_SECONDS
        self._chunks = max(1, min(count, vector // _CHUNK_BYTES))
        try:
            self._program = self._ray.put(program)
            self._kind = self._ray.remote(num_cpus=program.threads, max_restarts=0, max_task_retries=0)(Replica)
            given = self._ray.put(dict(state))
            self._actors = [self._started(rank, given, 0) for rank in range(count)]
            self._get([actor.at.remote() for actor in self._actors], self._patience)
        except LostError as error:
            self.close()
            raise InvalidModelError(f"workers require a model that onnxruntime opens there, got: {error}") from error
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return len(self._actors)

    def close(self) -> None:
        """Ends the workers, and the cluster if it is of this pool's own."""
        for actor in getattr(self, "_actors", []):
            self._ray.kill(actor)
        self._actors = []
        if self._own:
            self._ray.shutdown()
            self._own = False

    def processes(self) -> list[int]:
        """The workers' process ids, for tests and diagnosis.

        Raises:
            WorkersLostError: none is left.
        """
        numbers: list[int] = self._insisting(lambda: [actor.process.remote() for actor in self._actors])
        return numbers

    def gradients(self, shards: Sequence[Shard]) -> tuple[list[ShardResult], Sums]:
        """Computes the gradients of shards, of which there are as many as workers or fewer.

        Returns:
            What each shard gave, and sums that may still be under way.

        Raises:
            LostError: a worker is gone.
            InvalidInputError: onnxruntime fails on the rows.
        """
        returned = [
            actor.gradients.options(num_returns=2 + self._chunks).remote(self.version, shard, self._chunks)
            for actor, shard in zip(self._actors, shards, strict=False)
        ]
        columns = list(zip(*returned, strict=True))
        totals = [actor.total.remote(*parts) for actor, parts in zip(self._actors, columns[2:], strict=False)]
        # Places of streams are the first worker's: the others have moved theirs by as much.
        return self._get(list(columns[0])), (columns[1][0], totals)

    def vector(self, sums: Sums) -> Array:
        """The sums of a step as one vector.

        Raises:
            LostError: a worker is gone.
        """
        return np.concatenate(self._get(sums[1]))

    def update(self, sums: Sums, learning_rate: float | None, outputs: tuple[str, ...]) -> dict[str, Array]:
        """Updates the state of all workers.

        Returns:
            Those of the update half's outputs that are asked for.

        Raises:
            LostError: no worker has done it.
            WorkersLostError: none is left.
            InvalidInputError: onnxruntime fails.
        """
        calls = [actor.update.remote(self.version, learning_rate, outputs, sums[0], *sums[1]) for actor in self._actors]
        results: list[dict[str, Array]] = []
        lost: Exception | None = None
        for call in calls:
            try:
                results.append(self._get(call))
            except (LostError, LstmLowerError) as error:
                lost = error
        if isinstance(lost, LstmLowerError) and not results:
            raise lost
        before = self.version
        if lost is not None:
            # What one of them knows, all can learn; one whose answer was lost may know it, too.
            self.recover()
            if self.version == before:
                raise lost
        self.version = before + 1
        if outputs and not results:
            raise WorkersLostError(f"{list(outputs)} were lost with a worker, after the update; go on without them")
        return results[0] if results else {}

    def state(self, names: Iterable[str] | None = None) -> dict[str, Array]:
        """The state, copied from one worker.

        Raises:
            WorkersLostError: none is left.
        """
        wanted = None if names is None else list(names)
        held: dict[str, Array] = self._insisting(lambda: self._actors[0].state.remote(wanted))
        # What Ray returns lies in memory that cannot be written to.
        return {name: array.copy() for name, array in held.items()}

    def load(self, state: Mapping[str, Array]) -> None:
        """Puts another state in place of the workers'.

        Raises:
            WorkersLostError: none is left.
        """
        given = self._ray.put(dict(state))
        self.version += 1
        for rank, actor in enumerate(self._actors):
            try:
                self._get(actor.load.remote(self.version, given))
            except LostError:
                self._ray.kill(actor)
                self._actors[rank] = self._started(rank, given, self.version)
        self.recover()

    def recover(self) -> None:
        """Puts new workers in place of dead ones, and gives all the newest state that one has.

        Raises:
            WorkersLostError: none is left, or no new one can be started.
        """
        for _ in range(_ATTEMPTS):
            alive = self._alive()
            if not alive:
                raise WorkersLostError(
                    f"all {len(self)} workers died at once, and with them the state; go on from the last checkpoint"
                )
            newest = max(alive.values())
            if len(alive) == len(self) and set(alive.values()) == {newest}:
                self.version = newest
                return
            # Others than the newest lag by one update, or have none.
            source = next(rank for rank, version in alive.items() if version == newest)
            state = self._actors[source].state.remote()
            for rank, actor in enumerate(self._actors):
                if rank not in alive:
                    self._ray.kill(actor)
                    self._actors[rank] = self._started(rank, state, newest)
                elif alive[rank] != newest:
                    actor.load.remote(newest, state)
        raise WorkersLostError(f"a worker died, and {_ATTEMPTS} in its place; the last checkpoint has the state")

    def _alive(self) -> dict[int, int]:
        """The versions of the workers that answer."""
        calls = [actor.at.remote() for actor in self._actors]
        alive: dict[int, int] = {}
        for rank, call in enumerate(calls):
            try:
                alive[rank] = self._get(call, self._patience)
            except LostError:
                continue
        return alive

    def _insisting(self, calls: Callable[[], Any]) -> Any:
        """Results of calls that change nothing, made again where a worker is lost."""
        while True:
            try:
                return self._get(calls())
            except LostError:
                self.recover()

    def _started(self, rank: int, state: Any, version: int) -> Any:
        return self._kind.remote(self._program, rank, state, version)

    def _get(self, calls: Any, seconds: float | None = None) -> Any:
        """Results of calls.

        Raises:
            LostError: a worker that ran one of them, or what it was to read, is gone.
            WorkersLostError: a daemon of the cluster is gone.
            LstmLowerError: a call raised it.
        """
        errors, waited = self._ray.exceptions, 0.0
        try:
            while True:
                self._check_daemons()
                try:
                    return self._ray.get(calls, timeout=_LOOK_SECONDS)
                except errors.GetTimeoutError:
                    waited += _LOOK_SECONDS
                    if seconds is not None and waited >= seconds:
                        raise
        except errors.RayTaskError as error:
            cause = error.cause
            if isinstance(cause, LstmLowerError):
                raise cause from error
            if isinstance(cause, errors.RayError):
                raise LostError(str(cause)) from error
            raise
        except errors.RayError as error:
            self._check_daemons()
            raise LostError(str(error)) from error

    def _check_daemons(self) -> None:
        """Raises a WorkersLostError where a daemon that this process started has died: Ray would end the process."""
        died = dead_daemon(self._ray)
        if died is not None:
            raise WorkersLostError(
                f"{died}, the daemon of Ray's that the workers are run by, died, and with it they and the state; go on "
                "from the last checkpoint"
            )


# Where the new places of streams, and the chunks of the sum, will lie.
Sums = tuple[Any, list[Any]]
