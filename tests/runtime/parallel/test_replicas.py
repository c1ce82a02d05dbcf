"""Replicas without a cluster: their steps, put together by hand, against those of one trainer."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import lstm_lower as ll
from lstm_lower.errors import InvalidInputError, InvalidModelError
from lstm_lower.passes.training.split import split
from lstm_lower.runtime.training.parallel.program import layout_of, program_of
from lstm_lower.runtime.training.parallel.replica import Replica, Shard
from tests.support.parallel_steps import layers, lstm, lstm_batches

Array = np.ndarray[Any, Any]


class Together:
    """Replicas in one process."""

    def __init__(self, trainer: ll.Trainer, count: int, *, weigh: bool = True) -> None:
        program = program_of(split(trainer.model), threads=1, providers=trainer.providers)
        self.replicas = [Replica(program, rank, trainer.state_dict(), 0) for rank in range(count)]
        self._rate, self._weigh = trainer.learning_rate, weigh

    def step(self, parts: list[dict[str, Array]], rows: list[int], outputs: tuple[str, ...] = ()) -> list[Any]:
        shares = [count / sum(rows) for count in rows]
        version = self.replicas[0].at()
        returned = [
            replica.gradients(version, Shard(part, share, share if self._weigh else 1.0, outputs), 3)
            for replica, part, share in zip(self.replicas, parts, shares, strict=False)
        ]
        _, moved, *_ = returned[0]
        totals = [self.replicas[0].total(*chunk) for chunk in zip(*(chunks for _, _, *chunks in returned), strict=True)]
        for replica in self.replicas:
            replica.update(version, self._rate, (), moved, *totals)
        return [result for result, *_ in returned]


def parts_of(batch: dict[str, Array], rows: list[int], axis: int = 1) -> list[dict[str, Array]]:
    edges = np.cumsum(rows)[:-1]
    cut = {name: np.split(array, edges, axis) for name, array in batch.items()}
    return [{name: cut[name][number] for name in cut} for number in range(len(rows))]


@pytest.mark.parametrize("rows", [[11], [6, 5], [3, 3, 3, 2], [1, 10]], ids=str)
@pytest.mark.parametrize(
    "options", [{"optimizer": "adam"}, {"optimizer": "sgd", "clip_norm": 0.1, "accumulate": 2}], ids="-".join
)
def test_steps_equal_those_of_one_process(rows: list[int], options: dict[str, Any]) -> None:
    trainer = ll.Trainer(lstm(), **options)
    together = Together(trainer, len(rows) + 1)
    for batch in lstm_batches(6):
        results = together.step(parts_of(batch, rows), rows)
        loss = sum(result.loss * count for result, count in zip(results, rows, strict=True)) / 11
        np.testing.assert_allclose(loss, trainer.step(batch).loss, rtol=1e-6)
    expected = trainer.state_dict()
    # One that had no rows has made the same updates.
    states = [replica.state() for replica in together.replicas]
    for name, value in expected.items():
        np.testing.assert_allclose(states[0][name], value, rtol=1e-5, atol=1e-6)
        assert all(np.array_equal(states[0][name], other[name]) for other in states[1:])


def test_one_replica_equals_the_trainer_bit_for_bit() -> None:
    trainer = ll.Trainer(layers(dropout=True))
    together = Together(trainer, 1)
    batch = {"x": np.random.default_rng(0).random((4, 3), np.float32), "target": np.ones((4, 2), np.float32)}
    for _ in range(4):
        assert together.step([batch], [4])[0].loss == trainer.step(batch).loss
    for name, value in trainer.state_dict().items():
        np.testing.assert_array_equal(together.replicas[0].state()[name], value)


def test_sums_add_up() -> None:
    trainer = ll.Trainer(lstm("sum"), optimizer="sgd")
    together = Together(trainer, 2, weigh=False)
    for batch in lstm_batches(4):
        results = together.step(parts_of(batch, [4, 7]), [4, 7])
        np.testing.assert_allclose(sum(result.loss for result in results), trainer.step(batch).loss, rtol=1e-6)
    np.testing.assert_allclose(together.replicas[1].state()["w"], trainer.state_dict()["w"], rtol=1e-5)


def test_statistics_are_the_mean_over_rows() -> None:
    step = layers(dropout=False)
    together = Together(ll.Trainer(step), 2)
    random = np.random.default_rng(1)
    parts = [
        {"x": random.random((rows, 3), np.float32), "target": random.random((rows, 2), np.float32)} for rows in (3, 5)
    ]
    alone = [ll.Trainer(step) for _ in parts]
    for trainer, part in zip(alone, parts, strict=True):
        trainer.step(part)
    together.step(parts, [3, 5])
    found = together.replicas[1].state()
    for name in ("mean", "var"):
        first, second = (trainer.state_dict()[name] for trainer in alone)
        np.testing.assert_allclose(found[name], (3 * first + 5 * second) / 8, rtol=1e-6)


def test_workers_drop_differently() -> None:
    together = Together(ll.Trainer(layers(dropout=True)), 3)
    batch = {"x": np.random.default_rng(0).random((64, 3), np.float32), "target": np.ones((64, 2), np.float32)}
    first, second, third = together.step([batch] * 3, [64] * 3, ("y",))
    assert len({first.loss, second.loss, third.loss}) == 3
    places = [replica.state()["dropout_stream"].tolist() for replica in together.replicas]
    assert places == [[0, 1]] * 3


def test_what_cannot_be_summed_is_refused() -> None:
    trainer = ll.Trainer(lstm(), optimizer="sgd")
    halves = split(trainer.model)
    weight = next(value for value in halves.updates.graph.inputs if value.name == "w")
    weight.shape = ir.Shape([1, "n", 3])
    with pytest.raises(InvalidModelError, match="'w' requires a known shape"):
        layout_of(halves)
    with pytest.raises(InvalidInputError, match="after 3 updates, got one after 0"):
        Together(trainer, 1).replicas[0].update(3, None, (), {}, np.zeros(1, np.float32))
