"""Checkpoints read without TensorFlow: every dtype, shards and slices of both kinds, and damage of any sort."""

from __future__ import annotations

import itertools
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lstm_lower as ll
from lstm_lower.checkpoints import checksums
from lstm_lower.checkpoints.bundle import Checkpoint, find_checkpoint, open_checkpoint, slice_key
from tests.support.examples import tried

FILES = Path(__file__).parents[1] / "data" / "tensorflow_files"
BUNDLE, TABLES = FILES / "bundle" / "model.ckpt", FILES / "tables" / "model.ckpt"

with np.load(FILES / "values.npz", allow_pickle=True) as data:
    VALUES = {name: data[name] for name in data.files if "/" not in name}


def same(read: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> bool:
    return read.shape == expected.shape and bool((read.astype(expected.dtype) == expected).all())


@pytest.mark.parametrize("path", [BUNDLE, TABLES])
def test_values_of_every_dtype(path: Path) -> None:
    checkpoint = open_checkpoint(path)
    missing = set() if path == BUNDLE else {"of_bfloat16", "of_uint32", "of_uint64"}
    assert set(checkpoint.tensors) == set(VALUES) - missing
    for name, stored in checkpoint.tensors.items():
        value = checkpoint.read(name)
        assert value.shape == stored.shape
        assert same(value, VALUES[name]), name
        if name.startswith("of_"):
            assert value.dtype.name == name.removeprefix("of_")


def test_names_are_known_before_values_are_read(tmp_path: Path) -> None:
    shutil.copy(f"{BUNDLE}.index", tmp_path / "model.ckpt.index")
    checkpoint = open_checkpoint(tmp_path / "model.ckpt")
    assert checkpoint.tensors["columns"].shape == (2, 200)
    assert len(checkpoint.tensors["columns"].slices) == 3
    with pytest.raises(
        ll.InvalidModelError, match=r"model\.ckpt: a checkpoint is required.*data-0000\d-of-00003 is miss"
    ):
        checkpoint.read("of_int8")


@pytest.mark.parametrize(
    "name", ["", "model.ckpt", "model.ckpt.index", "model.ckpt.meta", "model.ckpt.data-00000-of-00003"]
)
def test_what_a_path_may_be(name: str) -> None:
    assert find_checkpoint(FILES / "bundle" / name) == BUNDLE


def test_tables_by_pattern_and_folder() -> None:
    for path in (TABLES, TABLES.parent, TABLES.with_name("model.ckpt-?????-of-00003")):
        assert same(open_checkpoint(path).read("scalar"), VALUES["scalar"])
    one = open_checkpoint(TABLES.with_name("model.ckpt-00001-of-00003"))
    assert "texts" not in one.tensors or "of_bool" not in one.tensors


def test_a_folder_that_was_moved(tmp_path: Path) -> None:
    folder = tmp_path / "moved"
    shutil.copytree(BUNDLE.parent, folder)
    (folder / "checkpoint").write_text('model_checkpoint_path: "/somewhere/else/model.ckpt"\n')
    assert find_checkpoint(folder) == folder / "model.ckpt"
    (folder / "checkpoint").write_text("model_checkpoint_path: what")
    with pytest.raises(ll.InvalidModelError, match="a CheckpointState is required"):
        find_checkpoint(folder)
    (folder / "checkpoint").unlink()
    assert find_checkpoint(folder) == folder / "model.ckpt"
    shutil.copy(folder / "model.ckpt.index", folder / "other.index")
    with pytest.raises(ll.InvalidInputError, match=r"one checkpoint or a record of the latest, got 2 in .*other; name"):
        find_checkpoint(folder)


@pytest.mark.parametrize("name", ["nothing", "values.npz", "saved_1/assets", ".index", "a/.meta"])
def test_no_checkpoint(name: str) -> None:
    with pytest.raises(ll.InvalidInputError, match=r"checkpoint requires a prefix with .* beside it, or a folder"):
        open_checkpoint(FILES / name)


def test_keys_of_slices_are_in_order() -> None:
    """What the order is for: names first, then each number."""
    numbers = [-(2**62), -(2**31), -8193, -65, -64, -1, 0, 1, 63, 64, 8191, 8192, 2**20, 2**35, 2**62]
    pieces = list(itertools.product(["a", "a\0", "ab", "é"], numbers, numbers))
    ordered = sorted(pieces, key=lambda piece: (piece[0].encode(), *piece[1:]))
    keys = [slice_key(name, ((start, length),)) for name, start, length in ordered]
    assert keys == sorted(keys)
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("size", [0, 1, 9, 16383, 16384, 16385, 99_991, (1 << 23) + 17_001])
def test_checksum(size: int) -> None:
    """Against the definition, a bit at a time in its slow form."""
    content = random.Random(size).randbytes(size)
    table = checksums._byte_table()
    state = 0xFFFFFFFF
    for byte in content:
        state = table[(state ^ byte) & 255] ^ state >> 8
    assert checksums.crc32c(content) == state ^ 0xFFFFFFFF


def test_checksum_as_published() -> None:
    """RFC 3720, B.4."""
    assert checksums.crc32c(b"123456789") == 0xE3069283
    assert checksums.crc32c(bytes(32)) == 0x8A9136AA
    assert checksums.crc32c(bytes(range(32))) == 0x46DD794E
    assert checksums.unmasked(checksums.masked(0x46DD794E)) == 0x46DD794E


def test_the_other_order_of_bytes(tmp_path: Path) -> None:
    """As a machine with the other one writes it: said in the header, with checksums of its own."""
    shutil.copytree(BUNDLE.parent, tmp_path / "b")
    checkpoint = open_checkpoint(tmp_path / "b")
    before = checkpoint.read("of_int32")
    checkpoint._order = ">"
    np.testing.assert_array_equal(checkpoint.read("of_int32"), before.byteswap())


def read_everything(checkpoint: Checkpoint) -> dict[str, np.ndarray[Any, Any]]:
    return {name: checkpoint.read(name) for name in checkpoint.tensors}


@pytest.mark.slow
@tried(50)
@given(data=st.data())
@pytest.mark.parametrize("source", [BUNDLE, TABLES])
def test_damage(tmp_path_factory: pytest.TempPathFactory, source: Path, data: st.DataObject) -> None:
    """Bytes changed or cut off: one error, or the values as they were, where the bytes meant nothing."""
    folder = tmp_path_factory.getbasetemp() / f"damaged-{source.parent.name}"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source.parent, folder)
    path = data.draw(st.sampled_from(sorted(path for path in folder.iterdir())))
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content) - 1))]
    else:
        for _ in range(data.draw(st.integers(1, 4))):
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        values = read_everything(open_checkpoint(folder / source.name))
    except (ll.InvalidModelError, ll.InvalidInputError):
        return
    assert all(same(value, VALUES[name]) for name, value in values.items())


@pytest.mark.slow
@pytest.mark.parametrize("resource", [True, False])
def test_as_tensorflow_reads_it(tmp_path: Path, resource: bool) -> None:
    """A checkpoint of many sizes, past a block of the index and a chunk of the checksum."""
    tf = pytest.importorskip("tensorflow")
    v1 = tf.compat.v1
    rng = np.random.default_rng(3)
    with tf.Graph().as_default():
        for number in range(150):
            shape = [int(rng.integers(1, 40)) for _ in range(number % 4)]
            v1.get_variable(f"scope/{number}/weights", initializer=rng.standard_normal(shape), use_resource=resource)
        v1.get_variable(
            "large", initializer=rng.standard_normal((1100, 1000)).astype(np.float32), use_resource=resource
        )
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            prefix = v1.train.Saver().save(session, str(tmp_path / "model"), write_meta_graph=False)
    reader = tf.train.load_checkpoint(prefix)
    ours = open_checkpoint(Path(prefix))
    assert {name: list(stored.shape) for name, stored in ours.tensors.items()} == reader.get_variable_to_shape_map()
    for name in ours.tensors:
        np.testing.assert_array_equal(ours.read(name), reader.get_tensor(name))
