"""Damaged input that is no model: arrays, checkpoints, TensorFlow graphs, metadata, operands of eager calls."""

from __future__ import annotations

import functools
import json
import random
from typing import Any

import numpy as np
import onnx
from google.protobuf import text_format
from onnx import helper

import lstm_lower as ll
from lstm_lower.records import contracts, state
from tests.support.fuzz.damage import ROOT, damage_bytes, damage_message
from tests.support.fuzz.entrances import Entrance, Incoming, invoke
from tests.support.models import single_node_model
from tests.support.op_inputs import OPS, valid_inputs

TRAIN = ROOT / "examples/graphs/char_lstm_train.onnx"
GRAPHS = ROOT / "tests/data/graphs"


def _damaged(data: bytes, draw: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(draw.choice([1, 1, 2, 5])):
        damage_bytes(changed, draw)
    return bytes(changed)


@functools.cache
def _values() -> dict[str, Any]:
    """Data and state of the model that is trained."""
    with np.load(TRAIN.with_suffix(".npz")) as file:
        return {name.removeprefix("in:"): file[name] for name in file.files if name.startswith("in:")}


@functools.cache
def _trainer() -> ll.Trainer:
    data = ("ids:0", "labels:0", "learning_rate:0")
    initial = {name: value for name, value in _values().items() if name not in data}
    return ll.Trainer(TRAIN, initial_values=initial, learning_rate=0.1)


def arrays(given: Incoming) -> None:
    """A damaged `.npz` file as feeds, as data to train with, or as initial values."""
    path, whole = given.path.with_name("result.npz"), given.path.with_name("result.whole.npz")
    np.savez(whole, **_values())
    path.write_bytes(_damaged(whole.read_bytes(), given.draw))
    train = ("train", str(TRAIN), "-o", str(given.path.with_name("result")), "--no-plot")
    words = {
        "run": ("run", str(TRAIN), "--inputs", str(path)),
        "check": ("check", str(TRAIN), "--inputs", str(path)),
        "data": (*train, "--data", str(path), "--initial", str(whole)),
        "initial": (*train, "--data", str(whole), "--initial", str(path)),
    }
    invoke(*words[given.draw.choice(sorted(words))])


def checkpoint(given: Incoming) -> None:
    """A damaged checkpoint; a trainer that refuses it is as it was."""
    trainer, path = _trainer(), given.path.with_name("result")
    trainer.save(path, {"epoch": 1, "batch": 2})
    path.write_bytes(_damaged(path.read_bytes(), given.draw))
    before = trainer.state_dict(), trainer.steps, trainer.learning_rate
    try:
        trainer.resume(path)
    except ll.LstmLowerError:
        after = trainer.state_dict(), trainer.steps, trainer.learning_rate
        np.testing.assert_equal(after, before)
        raise
    _trainer.cache_clear()


def graph(given: Incoming) -> None:
    """A damaged GraphDef."""
    from tensorflow.core.framework import graph_pb2

    source = given.draw.choice([path for path in sorted(GRAPHS.glob("*.pb")) if path.stat().st_size < 60_000])
    data = source.read_bytes()
    if given.draw.random() < 0.7:
        message = graph_pb2.GraphDef.FromString(data)
        for _ in range(given.draw.choice([1, 1, 2, 4])):
            damage_message(message, given.draw)
        data = message.SerializePartialToString()
        if given.draw.random() < 0.2:
            text = text_format.MessageToString(message, as_utf8=False)
            given.path.with_name("result.pbtxt").write_text(text, encoding="utf-8")
    else:
        data = _damaged(data, given.draw)
    path = given.path.with_name("result.pb")
    path.write_bytes(data)
    given.draw.choice(
        [
            lambda: ll.from_tensorflow(path),
            lambda: ll.from_tensorflow(path, weights="inputs"),
            lambda: invoke("lower", str(path), "-o", str(given.path.with_name("result"))),
        ]
    )()


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
        arguments[name] = given.draw.choice([*_ODD, *odd, *(np.array(odd) for odd in (-1, 2**31, 2**62))])
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
        entry.value = _damaged(entry.value.encode(), given.draw).decode(errors="replace")
    elif given.draw.random() < 0.1:
        entry.value = given.draw.choice("[{") * given.draw.choice([100, 900, 100_000])
    else:
        entry.value = json.dumps(_damaged_data(json.loads(entry.value), given.draw))
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


_ODD = [
    None,
    True,
    -1,
    2**70,
    1.5,
    float("nan"),
    "",
    "x",
    "é\0",
    [],
    [[]],
    {},
    {"x": None},
    [None, None],
    ["float32", [-1]],
]


def _damaged_data(data: Any, draw: random.Random) -> Any:
    """The data with something in it changed."""
    if draw.random() < 0.2:
        return draw.choice(_ODD)
    if isinstance(data, dict) and data:
        key = draw.choice(sorted(data))
        match draw.choice(["change", "change", "change", "delete", "rename"]):
            case "delete":
                return {name: value for name, value in data.items() if name != key}
            case "rename":
                return {draw.choice(["x", "op", "attributes"]) if name == key else name: data[name] for name in data}
            case _:
                return {name: _damaged_data(value, draw) if name == key else value for name, value in data.items()}
    if isinstance(data, list) and data:
        index = draw.randrange(len(data))
        return [_damaged_data(value, draw) if i == index else value for i, value in enumerate(data)]
    return draw.choice(_ODD)


ENTRANCES: dict[str, Entrance] = {
    "eager call": call,
    "eager call on segments": segments,
    "file of arrays": arrays,
    "file of a checkpoint": checkpoint,
    "file of a TensorFlow graph": graph,
    "notes in metadata": notes,
}
