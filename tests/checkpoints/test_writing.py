"""Checkpoints written without TensorFlow: what is written is read again, here and by TensorFlow."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lstm_lower as ll
from lstm_lower.checkpoints import bundle, table
from lstm_lower.checkpoints.bundle import open_checkpoint
from lstm_lower.checkpoints.table import FileRegion
from lstm_lower.records.checkpoint_keys import METADATA_KEY, CheckpointKey, parse, write

FILES = Path(__file__).parents[1] / "data" / "tensorflow_files"


@pytest.mark.parametrize("source", ["bundle", "tables"])
@pytest.mark.parametrize("order", ["<", ">"])
def test_every_dtype_comes_back(source: str, order: bundle.Order, tmp_path: Path) -> None:
    before = open_checkpoint(FILES / source / "model.ckpt")
    values = {name: before.read(name) for name in before.tensors}
    pieces = [bundle.entry_of(name, value, before.tensors[name].dtype, order) for name, value in values.items()]
    bundle.write_bundle(tmp_path / "out", pieces, order)
    after = open_checkpoint(tmp_path / "out")
    assert set(after.tensors) == set(values)
    for name, value in values.items():
        read = after.read(name)
        assert read.dtype == value.dtype
        np.testing.assert_array_equal(read, value, err_msg=name)


@pytest.mark.parametrize("source", ["bundle", "tables"])
def test_what_is_copied_keeps_slices_and_texts(source: str, tmp_path: Path) -> None:
    before = open_checkpoint(FILES / source / "model.ckpt")
    left_out = "columns"
    bundle.write_bundle(tmp_path / "out", before.entries(without=[left_out]), before.order)
    after = open_checkpoint(tmp_path / "out")
    assert set(after.tensors) == set(before.tensors) - {left_out}
    for name in after.tensors:
        np.testing.assert_array_equal(after.read(name), before.read(name), err_msg=name)


@given(st.dictionaries(st.binary(min_size=1, max_size=40), st.binary(max_size=300), max_size=60))
def test_tables_hold_any_keys(tmp_path_factory: pytest.TempPathFactory, items: dict[bytes, bytes]) -> None:
    assert read_table(tmp_path_factory.mktemp("table") / "t", items) == items


def test_tables_of_many_blocks(tmp_path: Path) -> None:
    items = {f"a/long/common/beginning/{number:06d}".encode(): bytes(200) for number in range(5000)}
    assert read_table(tmp_path / "t", items) == items
    assert len(list(table.blocks(FileRegion(tmp_path / "t")))) > 3


def read_table(path: Path, items: dict[bytes, bytes]) -> dict[bytes, bytes]:
    path.write_bytes(table.written(sorted(items.items())))
    region = FileRegion(path)
    return dict(itertools.chain.from_iterable(table.entries(region, handle) for _, handle in table.blocks(region)))


def test_tensorflow_reads_it(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    before = open_checkpoint(FILES / "bundle" / "model.ckpt")
    many = (bundle.entry_of(f"many/{number}", np.full(3, number, np.float32), 1) for number in range(4000))
    bundle.write_bundle(tmp_path / "out", [*before.entries(), *many])
    reader = tf.train.load_checkpoint(str(tmp_path / "out"))
    for name in before.tensors:
        np.testing.assert_array_equal(reader.get_tensor(name), before.read(name), err_msg=name)
    assert reader.get_tensor("many/3999").tolist() == [3999] * 3


def test_the_record_goes_on(tmp_path: Path) -> None:
    for name in ("a", "b", "a"):
        bundle.write_record(tmp_path, name, tmp_path)
    lines = (tmp_path / "checkpoint").read_text().splitlines()
    assert lines == [
        'model_checkpoint_path: "a"',
        'all_model_checkpoint_paths: "b"',
        'all_model_checkpoint_paths: "a"',
    ]


def test_keys_are_recorded() -> None:
    model = ir.Model(ir.Graph([], [], nodes=[]), ir_version=10)
    write(model, [])
    assert not model.metadata_props
    assert parse(model.metadata_props) == {}
    keys = [CheckpointKey("w", "a/b", ((0, 2), (1, 5))), CheckpointKey("v", "c", None, is_complex=True)]
    write(model, keys)
    assert parse(model.metadata_props) == {"w": keys[0], "v": keys[1]}


@pytest.mark.parametrize("text", ["{", "[1]", '[{"input": "w"}]', '[{"input": "w", "key": "k", "box": 3}]'])
def test_a_damaged_record_is_refused(text: str) -> None:
    with pytest.raises(ll.InvalidModelError, match="requires the documented form"):
        parse({METADATA_KEY: text})
