"""Ray: a cluster to run on, quietly."""

from __future__ import annotations

import contextlib
import importlib
import ipaddress
import logging
import os
from typing import Any

from lstm_lower.errors import InvalidInputError, some
from lstm_lower.extras import needed_by
from lstm_lower.replacement import replaced

# Ray takes no less.
_SMALLEST_STORE = 80 << 20
# Ray gives its own processes half a minute to start, which a busy machine may need twice.
_ATTEMPTS = 5


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
    made = not ray.is_initialized()
    if made:
        quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
        store = max(_SMALLEST_STORE, 2 * traffic)
        own = {"num_cpus": cpus, "include_dashboard": False, "object_store_memory": store} if address is None else {}
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with _loopback(ray) if address is None else contextlib.nullcontext():
                    ray.init(address=address or "local", **quiet, **own)
                break
            # That it started too late is an exception of no class of its own.
            except Exception as error:
                ray.shutdown()
                if address is None and "timed out" in str(error).lower() and attempt < _ATTEMPTS:
                    continue
                where = "a cluster on this machine" if address is None else f"a cluster of Ray at {address!r}"
                raise InvalidInputError(f"training on several workers requires {where}, got: {_line(error)}") from error
        # Ray writes to standard output that a worker died, and knows no option against it; the pool deals with it.
        ray._private.worker.print_to_stdstream = _unsaid
    try:
        _check_reach(ray, own=made and address is None)
    except InvalidInputError:
        if made:
            ray.shutdown()
        raise
    there = int(ray.cluster_resources().get("CPU", 0))
    if there < cpus:
        if made:
            ray.shutdown()
        raise InvalidInputError(f"workers require {cpus} processors of the cluster, got {there}")
    return made


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
    """What went wrong, and by what: Ray says that a token is missing in the cause only."""
    line = str(error).strip().partition("\n")[0]
    return line if error.__cause__ is None else f"{line}: {_line(error.__cause__)}"
