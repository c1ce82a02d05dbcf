"""The halves of a training step, run one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

import lstm_lower as ll
from lstm_lower.passes.training.split import Halves, split
from lstm_lower.records import state

Array = np.ndarray[Any, Any]
Feeds = dict[str, Array]


def check_halves(model: ir.Model, batches: Sequence[Mapping[str, Array]]) -> Halves:
    """Compares every output of the halves, step by step, with that of the step as it was, bit for bit."""
    halves = split(model)
    trainer = ll.Trainer(model)
    outputs = [value.name for half in (halves.gradients, halves.updates) for value in half.graph.outputs]
    assert sorted(map(str, outputs)) == sorted(trainer.outputs)
    for feeds, results in zip(batches, _composed(model, halves, batches), strict=True):
        expected = trainer.step(feeds, trainer.outputs).outputs
        for name in trainer.outputs:
            np.testing.assert_array_equal(results[name], expected[name], name)
    return halves


def _composed(model: ir.Model, halves: Halves, batches: Sequence[Mapping[str, Array]]) -> Iterator[Feeds]:
    values = {name: tensor.numpy() for name, tensor in state.initial_values(model).items()}
    moves = {pair.output: pair.input for pair in halves.state.pairs if pair.output is not None}
    sessions = []
    for half in (halves.gradients, halves.updates):
        state.detach_initial_values(half)
        sessions.append(ll.Session(half))
    for batch in batches:
        known = values | dict(batch)
        results: Feeds = {}
        for session in sessions:
            results |= session.run({name: (known | results)[name] for name in session.inputs})
        values |= {moves[name]: value for name, value in results.items() if name in moves}
        yield results
