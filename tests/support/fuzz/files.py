"""Damaged input that is no model: arrays, checkpoints, metadata, operands of eager calls."""

from __future__ import annotations

import functools
import json

import numpy as np
import onnx
from onnx import helper

import lstm_lower as ll
from lstm_lower.records import contracts, state
from tests.support.fuzz import folders
from tests.support.fuzz.damage import ODD, damage_json, damaged_bytes
from tests.support.fuzz.entrances import Entrance, Incoming, invoke
from tests.support.fuzz.folders import TRAIN, example
from tests.support.models import single_node_model
from tests.support.op_inputs import OPS, valid_inputs


@functools.cache
def _trainer() -> ll.Trainer:
    return ll.Trainer(TRAIN, initial_values=example()[1], learning_rate=0.1)


def arrays(given: Incoming) -> None:
    """A damaged `.npz` file as feeds, as data to train with, or as initial values."""
    data, values = example()
    wholes = {"data": data, "initial": values, "run": data | values, "check": data | values}
    command = given.draw.choice(sorted(wholes))
    path, other = given.path.with_name("result.npz"), given.path.with_name("result.other.npz")
    np.savez(path, **wholes[command])
    np.savez(other, **wholes["initial" if command == "data" else "data"])
    path.write_bytes(damaged_bytes(path.read_bytes(), given.draw))
    train = ("train", str(TRAIN), "-o", str(given.path.with_name("result")), "--no-plot", "--learning-rate", "0.1")
    words = {
        "run": ("run", str(TRAIN), "--inputs", str(path)),
        "check": ("check", str(TRAIN), "--inputs", str(path)),
        "data": (*train, "--data", str(path), "--initial", str(other)),
        "initial": (*train, "--data", str(other), "--initial", str(path)),
    }
    invoke(*words[command])


def checkpoint(given: Incoming) -> None:
    """A damaged checkpoint; a trainer that refuses it is as it was."""
    trainer, path = _trainer(), given.path.with_name("result")
    trainer.save(path, {"epoch": 1, "batch": 2})
    path.write_bytes(damaged_bytes(path.read_bytes(), given.draw))
    before = trainer.state_dict(), trainer.steps, trainer.learning_rate
    try:
        trainer.resume(path)
    except ll.LstmLowerError:
        after = trainer.state_dict(), trainer.steps, trainer.learning_rate
        np.testing.assert_equal(after, before)
        raise
    _trainer.cache_clear()


def call(given: Incoming) -> None:
    """An eager call with odd operands and attributes."""
    op = given.draw.choice(OPS)
    arguments = valid_inputs(op)
    for name in given.draw.sample(sorted(arguments), given.draw.choice([1, 1, 2])):
        array = np.asarray(arguments[name])
        odd = [
            array[None],
            array[..., :0] if array.ndim else array,
            array.astype(object),
            array.astype(array.dtype.newbyteorder()),
        ]
        arguments[name] = given.draw.choice([*ODD, *odd, *(np.array(odd) for odd in (-1, 2**31, 2**62))])
    getattr(ll.raw_ops, op)(**arguments)


def segments(given: Incoming) -> None:
    """An eager call whose operands onnxruntime cannot bear."""
    numbers = [given.draw.choice([0, 1, 2, 3, -1, 2**31 - 1]) for _ in range(4)]
    data, ids = np.ones((3, 2), np.float32), np.array(numbers[:3], np.int32)
    op = given.draw.choice(["UnsortedSegmentSum", "UnsortedSegmentMax", "UnsortedSegmentProd"])
    getattr(ll.raw_ops, op)(data=data, segment_ids=ids, num_segments=np.int32(min(numbers[3], 9)))


@functools.cache
def _with_notes() -> bytes:
    """A lowered cell, with contracts, and a record of state."""
    operands = valid_inputs("BlockLSTMGrad")
    model = ll.lower(single_node_model("BlockLSTMGrad", operands, symbolic=True))
    pairs = (state.StatePair(model.graph.input[4].name, None),)
    helper.set_model_props(
        model, {p.key: p.value for p in model.metadata_props} | state.metadata(state.TrainingState(pairs))
    )
    return bytes(model.SerializeToString())


def notes(given: Incoming) -> None:
    """Metadata of ours that is no JSON, or JSON of another form."""
    model = onnx.ModelProto.FromString(_with_notes())
    keys = (contracts.METADATA_KEY, state.METADATA_KEY)
    entry = given.draw.choice([entry for entry in model.metadata_props if entry.key in keys])
    if given.draw.random() < 0.3:
        entry.value = damaged_bytes(entry.value.encode(), given.draw).decode(errors="replace")
    elif given.draw.random() < 0.1:
        entry.value = given.draw.choice("[{") * given.draw.choice([100, 900, 100_000])
    else:
        entry.value = json.dumps(damage_json(json.loads(entry.value), given.draw))
    given.path.with_name("result.onnx").write_bytes(model.SerializeToString())
    invoke("run", str(given.path.with_name("result.onnx")))
    session = ll.Session(model)
    given.draw.choice(
        [
            lambda: session.run({name: np.ones((2, 2), np.float32) for name in session.inputs}),
            lambda: session.run({}),
            lambda: ll.Trainer(model),
            lambda: ll.lower(model),
            lambda: invoke("check", str(given.path.with_name("result.onnx"))),
        ]
    )()


ENTRANCES: dict[str, Entrance] = folders.ENTRANCES | {
    "eager call": call,
    "eager call on segments": segments,
    "file of arrays": arrays,
    "file of a checkpoint": checkpoint,
    "notes in metadata": notes,
}
