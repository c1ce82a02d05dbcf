"""Damaged input of several parts: TensorFlow's graphs with their checkpoints, runs of `train`, archives of others."""

from __future__ import annotations

import contextlib
import functools
import json
import random
import shutil
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf import text_format

import lstm_lower as ll
from lstm_lower.checkpoints import messages, table
from lstm_lower.checkpoints.checksums import crc32c, masked
from lstm_lower.records.content_kinds import Kind, content_of
from tests.support.fuzz.damage import ROOT, damage_json, damage_message, damaged_bytes
from tests.support.fuzz.entrances import Entrance, Incoming, invoke

DATA = ROOT / "tests/data"
TRAIN = ROOT / "examples/graphs/char_lstm_train.onnx"
_MESSAGES = {
    Kind.GRAPH_DEF: messages.GraphDef,
    Kind.META_GRAPH: messages.MetaGraphDef,
    Kind.SAVED_MODEL: messages.SavedModel,
}
# What a table's entry without a name and the others are: of a tensor bundle, of a checkpoint of the first kind.
_ENTRIES = {
    True: (messages.BundleHeader, messages.BundleEntry),
    False: (messages.SavedTensorSlices, messages.SavedTensorSlices),
}


def tensorflow(given: Incoming) -> None:
    """A graph with its checkpoint, one of whose files is damaged, through any way of reading it."""
    draw = given.draw
    source, options = draw.choice(_sources())
    folder = given.path.with_name("result.folder")
    if source.is_dir():
        shutil.copytree(source, folder)
        path = folder
    else:
        folder.mkdir()
        for file in source.parent.iterdir():
            if file.name == "checkpoint" or file.name.startswith(source.name.removesuffix(".meta")):
                shutil.copy(file, folder)
        path = folder / source.name
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    for _ in range(draw.choice([1, 1, 1, 2])):
        _damage_file(draw.choice(files), draw)
    _read(path, options, given)


@functools.cache
def _sources() -> list[tuple[Path, dict[str, Any]]]:
    """Graphs, and the options that they need."""
    graphs = [path for path in sorted((DATA / "graphs").glob("*.pb")) if path.stat().st_size < 60_000]
    files = DATA / "tensorflow_files"
    cut = {
        "inputs": ["fifo_queue_DequeueMany:0", "fifo_queue_DequeueMany:1", "keep:0"],
        "outputs": ["sparse_softmax_cross_entropy_loss/value:0", "train"],
    }
    others: list[tuple[Path, dict[str, Any]]] = [
        (files / "saved_1", {"signature": "train"}),
        (files / "saved_2", {"signature": "train"}),
        (DATA / "graphs/block_lstm_train.saved_model", {"signature": "train_assign"}),
        (files / "step/model.ckpt-0.meta", cut),
    ]
    return [*((path, {}) for path in graphs), *others * 5]


def _read(path: Path, options: dict[str, Any], given: Incoming) -> None:
    output, lowered = given.path.with_name("result"), given.path.with_name("result.onnx")
    checkpoint = DATA / "tensorflow_files" / given.draw.choice(["tables/model.ckpt", "bundle/model.ckpt", "objects"])
    words = [str(path)]
    for name, value in options.items():
        words += [f"--{name}", value if isinstance(value, str) else ",".join(value)]
    graph_words = ["--graph-inputs" if word == "--inputs" else word for word in words]
    ways: list[Callable[[], object]] = [
        lambda: ll.from_tensorflow(path, **options),
        lambda: ll.lower(ll.from_tensorflow(path, weights="inputs", **options)),
        lambda: ll.from_tensorflow(path, checkpoint=checkpoint, **options),
        lambda: invoke("inspect", *given.draw.choice([words, words[:1]]), *given.draw.choice([[], ["--json"]])),
        lambda: invoke("export", *words, "-o", str(output)),
        lambda: invoke("bench", *graph_words, "--seconds", "0.01"),
        lambda: invoke("check", *graph_words),
        lambda: invoke("lower", *words, "-o", str(lowered), *given.draw.choice([[], ["--check"]])),
    ]
    with contextlib.suppress(OSError):  # of a file that is gone, which it names
        given.draw.choice(ways)()


def _damage_file(path: Path, draw: random.Random) -> None:
    match draw.choice(["bytes", "fields", "fields", "fields", "remove", "folder", "exchange"]):
        case "remove" if path.is_file() and draw.random() < 0.3:
            path.unlink()
        case "folder" if path.is_file() and draw.random() < 0.3:
            path.unlink()
            path.mkdir()
        case "exchange" if path.is_file() and draw.random() < 0.3:
            others = [file for file in path.parent.rglob("*") if file.is_file()]
            path.write_bytes(draw.choice(others).read_bytes())
        case "fields" if path.is_file():
            _damage_fields(path, draw)
        case _ if path.is_file():
            path.write_bytes(damaged_bytes(path.read_bytes(), draw))


def _damage_fields(path: Path, draw: random.Random) -> None:
    """Changes the messages in a file, whose checksums are right."""
    if table.is_table(path):
        _write_table(path, _damaged_table(path, draw))
        return
    if path.name == "checkpoint":
        state = messages.parse_text(messages.CheckpointState, path.read_bytes(), "")
        damage_message(state, draw)
        path.write_text(text_format.MessageToString(state), encoding="utf-8")
        return
    content = content_of(path)
    kind = _MESSAGES.get(content.kind) if content else None
    if kind is None:
        path.write_bytes(damaged_bytes(path.read_bytes(), draw))
        return
    message = messages.parse(kind, path.read_bytes(), "")
    for _ in range(draw.choice([1, 1, 2, 4])):
        damage_message(message, draw)
    path.write_bytes(message.SerializePartialToString())
    if draw.random() < 0.1:
        text = text_format.MessageToString(message, as_utf8=False)
        path.with_suffix(".pbtxt").write_text(text, encoding="utf-8")
        path.unlink()


def _damaged_table(path: Path, draw: random.Random) -> list[tuple[bytes, bytes]]:
    region = table.FileRegion(path)
    entries = [entry for _, handle in table.blocks(region) for entry in table.entries(region, handle)]
    for _ in range(draw.choice([1, 1, 3])):
        index = draw.randrange(len(entries))
        key, value = entries[index]
        match draw.choice(["message", "message", "message", "key", "delete", "repeat"]):
            case "key":
                entries[index] = damaged_bytes(key, draw), value
            case "delete" if len(entries) > 1:
                del entries[index]
            case "repeat":
                entries.insert(index, (key, draw.choice(entries)[1]))
            case _:
                first, others = _ENTRIES[path.suffix == ".index"]
                message = messages.parse(others if key else first, value, "") if _parses(key, value, path) else first()
                damage_message(message, draw)
                entries[index] = key, message.SerializePartialToString()
    return entries


def _parses(key: bytes, value: bytes, path: Path) -> bool:
    first, others = _ENTRIES[path.suffix == ".index"]
    try:
        messages.parse(others if key else first, value, "")
    except ll.LstmLowerError:
        return False
    return True


def _write_table(path: Path, entries: Sequence[tuple[bytes, bytes]]) -> None:
    """A table of one block, and an index of it."""
    block = _block(entries)
    index = _block([(entries[-1][0], _varint(0) + _varint(len(block) - 5))])
    handles = _varint(0) * 2 + _varint(len(block)) + _varint(len(index) - 5)
    footer = handles.ljust(40, b"\0") + (0xDB4775248B80FB57).to_bytes(8, "little")
    path.write_bytes(block + index + footer)


def _block(entries: Sequence[tuple[bytes, bytes]]) -> bytes:
    rows = (_varint(0) + _varint(len(key)) + _varint(len(value)) + key + value for key, value in entries)
    content = b"".join(rows) + bytes(4) + (1).to_bytes(4, "little") + b"\0"
    return content + masked(crc32c(content)).to_bytes(4, "little")


def _varint(number: int) -> bytes:
    low, high = number & 127, number >> 7
    return bytes([low | 128]) + _varint(high) if high else bytes([low])


@functools.cache
def example() -> tuple[dict[str, Any], dict[str, Any]]:
    """Data and state of the model that is trained."""
    with np.load(TRAIN.with_suffix(".npz")) as file:
        values = {name.removeprefix("in:"): file[name] for name in file.files if name.startswith("in:")}
    data = {name: values.pop(name) for name in ("ids:0", "labels:0")}
    del values["learning_rate:0"]
    return data, values


def training_run(given: Incoming) -> None:
    """A run of `train` of which a file is damaged, continued, or exported from."""
    draw, folder = given.draw, given.path.with_name("result")
    data, values = given.path.with_name("result.data.npz"), given.path.with_name("result.values.npz")
    np.savez(data, **example()[0])
    np.savez(values, **example()[1])
    words = ("train", str(TRAIN), "--data", str(data), "-o", str(folder), "--no-plot", "--save-every", "1")
    words += ("--batch-size", "4", "--learning-rate", "0.1")
    assert invoke(*words, "--initial", str(values), "--epochs", "2") == 0
    files = sorted(file for file in folder.rglob("*") if file.is_file() and file.stat().st_size)
    for _ in range(draw.choice([1, 1, 2])):
        path = draw.choice(files)
        if path.is_file() and ".safetensors" in path.name and draw.random() < 0.7:
            _damage_safetensors(path, draw)
        elif path.is_file() and path.suffix == ".jsonl" and draw.random() < 0.5:
            with contextlib.suppress(ValueError):
                rows = [json.dumps(damage_json(json.loads(row), draw)) for row in path.read_text().splitlines()]
                path.write_text("\n".join(rows))
        else:
            _damage_file(path, draw)
    if draw.random() < 0.7:
        invoke(*words, "--epochs", "3")
    else:
        file = draw.choice(["best.safetensors", "checkpoint.safetensors"])
        invoke("export", str(TRAIN), "-o", str(given.path.with_name("result.bundle")), "--trained", str(folder / file))


def _damage_safetensors(path: Path, draw: random.Random) -> None:
    """Changes the header of a file of tensors, or what is written in it as JSON."""
    content = path.read_bytes()
    try:
        length = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + length])
        notes = header.get("__metadata__", {})
        if notes and draw.random() < 0.6:
            key = draw.choice(sorted(notes))
            try:
                notes[key] = json.dumps(damage_json(json.loads(notes[key]), draw))
            except ValueError:
                notes[key] = damage_json(notes[key], draw)
        else:
            header = damage_json(header, draw)
    except (ValueError, AttributeError, TypeError):
        path.write_bytes(damaged_bytes(content, draw))
        return
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])


def others(given: Incoming) -> None:
    """A damaged file of another kind than any command reads."""
    draw = given.draw
    name = draw.choice(["model.keras", "model.h5", "model.weights.h5", "model.pt", "model.npz", "model.tflite"])
    path = given.path.with_name(f"result.{name}")
    heads = {".h5": b"\x89HDF\r\n\x1a\n" + bytes(90), ".tflite": b"\x1c\0\0\0TFL3" + bytes(90)}
    if path.suffix in heads:
        path.write_bytes(heads[path.suffix])
    else:
        _write_archive(path, draw)
    if draw.random() < 0.5:
        path.write_bytes(damaged_bytes(path.read_bytes(), draw))
    output = given.path.with_name("result.out")
    ways: list[Callable[[], object]] = [
        lambda: ll.from_tensorflow(path),
        lambda: ll.from_onnx(path, "mse", "sgd"),
        lambda: ll.lower(path),
        lambda: ll.Session(path),
        lambda: invoke("train", str(path), "--data", str(path), "-o", str(output)),
        lambda: invoke("diff", str(path), str(path)),
        lambda: invoke("report", str(path), "-o", str(output)),
        lambda: invoke("export", str(TRAIN), "--trained", str(path), "-o", str(output)),
        lambda: invoke("export", str(TRAIN), "--initial", str(path), "-o", str(output)),
        lambda: invoke("lower", str(TRAIN), "--checkpoint", str(path), "-o", str(output)),
        lambda: invoke("lower", str(DATA / "tensorflow_files/saved_2"), "--checkpoint", str(path), "-o", str(output)),
    ]
    ways += [lambda name=name: invoke(name, str(path)) for name in ("inspect", "run", "check", "lower", "bench")]
    given.draw.choice(ways)()
    assert not list(path.parent.parent.glob("escaped*"))


def _write_archive(path: Path, draw: random.Random) -> None:
    config = {"module": "keras", "class_name": "Sequential", "config": {"layers": [{"class_name": "Dense"}]}}
    members = {
        ".keras": ["metadata.json", "config.json", "model.weights.h5"],
        ".pt": ["archive/data.pkl", "archive/data/0"],
        ".npz": ["emb:0.npy", "w:0.npy"],
    }[path.suffix]
    bad = ["../escaped", "/escaped", "../../escaped.npy", "", "a" * 5000, "a\0b", "é/..", "model.weights.h5", "w:0.npy"]
    chosen = draw.sample(members, draw.randint(0, len(members))) if draw.random() < 0.5 else members
    chosen = [*chosen, *draw.sample(bad, draw.choice([0, 0, 1, 3]))]
    packing = draw.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    with zipfile.ZipFile(path, "w", packing) as archive:
        for name in chosen:
            text = json.dumps(damage_json(config, draw)).encode()
            huge = bytes(1 << 24) if draw.random() < 0.05 else b""
            archive.writestr(name or "x", draw.choice([text, b"", b"\x89HDF\r\n\x1a\n", draw.randbytes(40), huge]))


ENTRANCES: dict[str, Entrance] = {
    "file of another kind": others,
    "folder of a run": training_run,
    "graph and checkpoint": tensorflow,
}
