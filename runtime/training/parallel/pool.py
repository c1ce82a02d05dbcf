"""Workers on Ray: one replica each, replaced where one dies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from lstm_lower.errors import InvalidModelError, LstmLowerError, WorkersLostError
from lstm_lower.runtime.training.parallel import cluster
from lstm_lower.runtime.training.parallel.program import Program
from lstm_lower.runtime.training.parallel.replica import Replica, Shard, ShardResult

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


class Pool:
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
            address: of the cluster, see `cluster.connect`.

        Raises:
            InvalidInputError: there is no cluster, or it is too small.
            InvalidModelError: the workers cannot open the model.
        """
        self.version = 0
        self._ray = cluster.ray_module()
        vector, held = program.layout.size * program.layout.dtype.itemsize, sum(x.nbytes for x in state.values())
        self._own = cluster.connect(address, count * program.threads, 2 * (count + 1) * vector + 2 * held)
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
        found: list[int] = self._insisting(lambda: [actor.process.remote() for actor in self._actors])
        return found

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
        """What calls that change nothing return, made again where a worker is lost."""
        while True:
            try:
                return self._get(calls())
            except LostError:
                self.recover()

    def _started(self, rank: int, state: Any, version: int) -> Any:
        return self._kind.remote(self._program, rank, state, version)

    def _get(self, calls: Any, seconds: float | None = None) -> Any:
        """What calls return.

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
        died = cluster.dead_daemon(self._ray)
        if died is not None:
            raise WorkersLostError(
                f"{died}, the daemon of Ray's that the workers are run by, died, and with it they and the state; go on "
                "from the last checkpoint"
            )


# Where the new places of streams, and the chunks of the sum, will lie.
Sums = tuple[Any, list[Any]]
