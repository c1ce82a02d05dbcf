"""Workers on Ray: as many processes as one, and what becomes of those that are killed."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lstm_lower as ll
from benchmarks import distributed as benchmark
from lstm_lower.errors import InvalidInputError, NotFiniteError, WorkersLostError
from lstm_lower.runtime.training.parallel import pool
from lstm_lower.runtime.training.parallel.trainer import DistributedTrainer
from tests.support.parallel_steps import layers, lstm, lstm_batches

ray = pytest.importorskip("ray", reason="pip install 'lstm-lower[ray]' for training on several workers")

Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module", autouse=True)
def one_cluster() -> Iterator[None]:
    """For all tests, since it takes seconds to start."""
    pool.connect(None, 4, 0)
    yield
    ray.shutdown()
    # What Ray leaves open is no fault of the test that happens to run when Python notices.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()


@pytest.mark.slow
def test_workers_equal_one_process() -> None:
    trainer, alone = (ll.Trainer(lstm(), optimizer="adam", clip_norm=0.1) for _ in range(2))
    with DistributedTrainer(trainer, 2) as workers:
        for batch in lstm_batches(6):
            result, expected = (each.step(batch, ["y", "grad/w", "new_w"]) for each in (workers, alone))
            assert list(result.outputs) == list(expected.outputs)
            np.testing.assert_allclose(result.loss, expected.loss, rtol=1e-5)
            for name, value in expected.outputs.items():
                np.testing.assert_allclose(result.outputs[name], value, rtol=1e-4, atol=1e-6, err_msg=name)
    assert trainer.steps == 6
    np.testing.assert_array_equal(trainer.state_dict()["w"], result.outputs["new_w"])


def run(kills: dict[int, list[int]], batches: list[dict[str, Array]]) -> tuple[list[float], dict[str, Array]]:
    """Losses and state of a run in which workers are killed before some steps."""
    trainer = ll.Trainer(lstm(), optimizer="adam")
    with DistributedTrainer(trainer, 2, reduction="mean") as workers:
        losses = []
        for number, batch in enumerate(batches):
            for rank in kills.get(number, []):
                os.kill(workers.processes()[rank], signal.SIGKILL)
            losses.append(workers.step(batch).loss)
    return losses, trainer.state_dict()


@pytest.mark.slow
def test_killed_workers_are_replaced_and_nothing_is_lost() -> None:
    batches = lstm_batches(5)
    losses, state = run({}, batches)
    again, found = run({1: [0], 3: [1]}, batches)
    assert losses == again
    for name, value in state.items():
        np.testing.assert_array_equal(found[name], value)


@pytest.mark.slow
def test_a_checkpoint_goes_on_without_workers(tmp_path: Path) -> None:
    batches = lstm_batches(4)
    path = tmp_path / "checkpoint.safetensors"
    workers = DistributedTrainer(ll.Trainer(lstm(), optimizer="adam"), 2)
    for batch in batches[:2]:
        workers.step(batch)
    workers.save(path, {"epoch": 1})
    for process in workers.processes():
        os.kill(process, signal.SIGKILL)
    with pytest.raises(WorkersLostError, match="go on from the last checkpoint"), workers:
        workers.step(batches[2])
    alone, whole = (ll.Trainer(lstm(), optimizer="adam") for _ in range(2))
    expected = [whole.step(batch).loss for batch in batches]
    assert alone.resume(path) == {"epoch": 1}
    np.testing.assert_allclose([alone.step(batch).loss for batch in batches[2:]], expected[2:], rtol=1e-5)


def test_what_workers_refuse() -> None:
    trainer = ll.Trainer(lstm(), optimizer="sgd")
    batch = lstm_batches(1)[0]
    with DistributedTrainer(trainer, 2, reduction="mean") as workers:
        before = workers.state_dict()
        with pytest.raises(NotFiniteError, match="step 1: the loss must be finite"):
            workers.step({**batch, "target": np.full_like(batch["target"], np.nan)})
        with pytest.raises(InvalidInputError, match="output 'z' must be one of"):
            workers.step(batch, ["z"])
        for name, value in workers.state_dict().items():
            np.testing.assert_array_equal(value, before[name])
    with pytest.raises(InvalidInputError, match="5 processors of the cluster, got 4"):
        DistributedTrainer(trainer, 5)
    for option in ({"workers": 0}, {"workers": 2, "threads": 0}, {"workers": 2, "reduction": "max"}):
        with pytest.raises(InvalidInputError, match=f"{list(option)[-1]} requires"):
            DistributedTrainer(trainer, **option)  # type: ignore[arg-type]


def test_a_loss_that_is_drawn_needs_to_be_told() -> None:
    trainer = ll.Trainer(layers(dropout=True))
    trainer.model.metadata_props.pop("lstm_lower.evaluation", None)
    batch = {"x": np.ones((4, 3), np.float32), "target": np.ones((4, 2), np.float32)}
    with DistributedTrainer(trainer, 2) as workers, pytest.raises(InvalidInputError, match="'sum' says it"):
        workers.step(batch)


@pytest.mark.slow
def test_the_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark, "SHAPES", ((2, 3, 2, 2),))
    benchmark.distributed([1], 0.0, tmp_path / "figures.json", as_json=False)
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert [row["workers"] for row in figures] == [0, 1]
    assert all(row["ms"] > 0 for row in figures)


@pytest.mark.slow
def test_every_process_listens_on_loopback_alone() -> None:
    psutil = pytest.importorskip("psutil")
    with DistributedTrainer(ll.Trainer(lstm(), optimizer="adam"), 2) as workers:
        workers.step(lstm_batches(1)[0])
        processes = [(this := psutil.Process()), *this.children(recursive=True)]
        found = [(each.name(), held.laddr.ip) for each in processes for held in each.net_connections("inet")]
    assert {"gcs_server", "raylet", "ray::Replica"} <= {name for name, _ in found}
    assert {address.removeprefix("::ffff:") for _, address in found} == {"127.0.0.1"}


@pytest.mark.slow
def test_a_daemon_that_dies_is_named() -> None:
    batch = lstm_batches(1)[0]
    try:
        with DistributedTrainer(ll.Trainer(lstm(), optimizer="adam"), 2, reduction="mean") as workers:
            workers.step(batch)
            (raylet,) = ray._private.worker._global_node.all_processes["raylet"]
            raylet.process.kill()
            raylet.process.wait()
            with pytest.raises(
                WorkersLostError, match=r"^raylet, the daemon of Ray's .* go on from the last checkpoint"
            ):
                workers.step(batch)
            workers._pool.close()
            workers._synced = workers._pool.version
    finally:
        ray.shutdown()
        pool.connect(None, 4, 0)


@pytest.mark.slow
@pytest.mark.parametrize("asks", [True, False])
def test_several_hosts_need_tokens(monkeypatch: pytest.MonkeyPatch, asks: bool) -> None:
    nodes = [{"Alive": True, "NodeManagerAddress": f"192.0.2.{number}"} for number in (1, 2)]
    monkeypatch.setattr(ray, "nodes", lambda: [*nodes, {"Alive": False, "NodeManagerAddress": "192.0.2.9"}])
    monkeypatch.setattr(pool, "_asks_for_tokens", lambda: asks)
    with contextlib.nullcontext() if asks else pytest.raises(InvalidInputError, match=r"2 hosts .* asks for tokens"):
        pool._check_reach(ray, own=False)
    with pytest.raises(InvalidInputError, match=r"listens on loopback alone, got one at 192\.0\.2\.1, 192\.0\.2\.2"):
        pool._check_reach(ray, own=True)


@pytest.mark.slow
@pytest.mark.parametrize(("says", "tries"), [("The current node timed out during startup.", 2), ("no room", 1)])
def test_a_cluster_that_starts_slowly_is_started_again(monkeypatch: pytest.MonkeyPatch, says: str, tries: int) -> None:
    begun: list[dict[str, Any]] = []

    def init(**options: Any) -> None:
        begun.append(options)
        if len(begun) == 1:
            raise Exception(says)  # noqa: TRY002

    for name, stub in {"init": init, "shutdown": lambda: None, "is_initialized": lambda: False}.items():
        monkeypatch.setattr(ray, name, stub)
    if tries == 1:
        with pytest.raises(InvalidInputError, match="requires a cluster on this machine, got: no room"):
            pool.connect(None, 4, 0)
    else:
        assert pool.connect(None, 4, 0)
    assert len(begun) == tries
