"""Data in every form it may come: the same samples in the same order, from any batch of an epoch on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lstm_lower.errors import InvalidInputError
from lstm_lower.runtime.training.data.layout import Layout
from lstm_lower.runtime.training.data.opening import open_data
from lstm_lower.runtime.training.data.prefetch import Prefetched
from lstm_lower.runtime.training.data.source import Order
from lstm_lower.runtime.training.data.table import Padding

Array = np.ndarray[Any, Any]
ROWS = 23


def declared(name: str, type_: str, *shape: int | str) -> Any:
    """An input as an onnxruntime session declares it."""
    return SimpleNamespace(name=name, type=f"tensor({type_})", shape=list(shape))


def layout(**options: Any) -> Layout:
    return Layout([declared("x:0", "float", "time", "batch", 2), declared("y", "int64", "batch")], **options)


def arrays() -> dict[str, Array]:
    """Samples that know their number: x[:, i] and y[i] hold i."""
    number = np.arange(ROWS)
    x = np.broadcast_to(number[None, :, None], (3, ROWS, 2)).astype(np.float32)
    return {"x:0": np.ascontiguousarray(x), "y": number.astype(np.int64)}


def as_arrays(_: Path) -> Any:
    return arrays()


def as_tuple(_: Path) -> Any:
    return tuple(arrays().values())


def as_lists(_: Path) -> Any:
    data = arrays()
    return {"x:0": [*np.moveaxis(data["x:0"], 1, 0)], "y": data["y"].tolist()}


def as_npz(folder: Path) -> Any:
    np.savez(folder / "data.npz", **arrays())
    return folder / "data.npz"


def as_npy(folder: Path) -> Any:
    for name, array in arrays().items():
        np.save(folder / f"{name.replace(':', '_')}.npy", array)
    return folder


def parts(data: dict[str, Array]) -> Iterator[dict[str, Array]]:
    for start, end in ((0, 7), (7, 8), (8, 18), (18, ROWS)):
        yield {"x:0": data["x:0"][:, start:end], "y": data["y"][start:end]}


def as_shards(folder: Path) -> Any:
    for number, part in enumerate(parts(arrays())):
        np.savez(folder / f"part-{number}.npz", **part)
    return folder


def columns(data: dict[str, Array]) -> Any:
    pa = pytest.importorskip("pyarrow")
    return pa.table({"x:0": np.moveaxis(data["x:0"], 1, 0).tolist(), "y": data["y"]}).cast(
        pa.schema([("x:0", pa.list_(pa.list_(pa.float32()))), ("y", pa.int64())])
    )


def as_parquet(folder: Path) -> Any:
    pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(columns(arrays()), folder / "data.parquet", row_group_size=5)
    return folder / "data.parquet"


def as_parquet_folder(folder: Path) -> Any:
    pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    for number, part in enumerate(parts(arrays())):
        pq.write_table(columns(part), folder / f"{number}.parquet", row_group_size=4)
    return str(folder)


def as_arrow(folder: Path) -> Any:
    pa = pytest.importorskip("pyarrow")
    with pa.ipc.new_file(folder / "data.arrow", columns(arrays()).schema) as file:
        for part in parts(arrays()):
            file.write(columns(part))
    return folder / "data.arrow"


FORMS = [
    as_arrays,
    as_tuple,
    as_lists,
    as_npz,
    as_npy,
    as_shards,
    as_parquet,
    as_parquet_folder,
    as_arrow,
]


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_holds_the_same_samples(form: Callable[[Path], Any], shuffle: bool, tmp_path: Path) -> None:
    source = open_data(form(tmp_path), layout(), window=2)
    order = Order(batch_size=4, shuffle=shuffle, seed=3)
    assert source.count == ROWS
    assert source.batches(order) == 6
    seen = []
    for epoch in range(2):
        batches = list(source.epoch(order, epoch))
        assert [batch["y"].size for batch in batches] == [4] * 5 + [3]
        for batch in batches:
            assert batch["x:0"].shape == (3, batch["y"].size, 2)
            assert batch["x:0"].dtype == np.float32
            np.testing.assert_array_equal(batch["x:0"][1, :, 1], batch["y"])
        seen.append(np.concatenate([batch["y"] for batch in batches]))
        np.testing.assert_array_equal(np.sort(seen[-1]), np.arange(ROWS))
        for first in range(1, 7):
            again = list(source.epoch(order, epoch, first))
            assert len(again) == 6 - first
            for left, right in zip(batches[first:], again, strict=True):
                for name in left:
                    np.testing.assert_array_equal(left[name], right[name])
    assert np.array_equal(seen[0], seen[1]) != shuffle
    if not shuffle:
        np.testing.assert_array_equal(seen[0], np.arange(ROWS))


def test_shards_are_read_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And those of batches that are done already not at all."""
    from lstm_lower.runtime import feeds

    opened: list[str] = []
    read = feeds.read_arrays

    def watched(path: Path) -> Any:
        opened.append(path.name)
        return read(path)

    source = open_data(as_shards(tmp_path), layout())
    monkeypatch.setattr(feeds, "read_arrays", watched)
    batches = source.epoch(Order(4, shuffle=False), 0)
    next(batches)
    assert opened == ["part-0.npz"]
    opened.clear()
    next(source.epoch(Order(4, shuffle=False), 0, 2))
    assert opened == ["part-2.npz"]


class Stream:
    """Batches as tuples, as a DataLoader gives them."""

    def __iter__(self) -> Iterator[tuple[Array, Array]]:
        data = arrays()
        for start in range(0, ROWS, 4):
            yield data["x:0"][:, start : start + 4], data["y"][start : start + 4]


@pytest.mark.parametrize(
    "data",
    [
        Stream(),
        lambda: iter(Stream()),
        lambda epoch: ({"x:0": x, "y": y, "weather": epoch} for x, y in Stream()),
        list(Stream()),
    ],
    ids=["iterable", "function", "function-of-epoch", "list"],
)
def test_streams(data: Any) -> None:
    source = open_data(data, layout())
    assert source.count is None
    assert source.batches(Order()) is None
    for epoch in range(2):
        batches = list(source.epoch(Order(), epoch))
        np.testing.assert_array_equal(np.concatenate([batch["y"] for batch in batches]), np.arange(ROWS))
        np.testing.assert_array_equal(next(source.epoch(Order(), epoch, 2))["y"], batches[2]["y"])


def test_a_generator_is_one_pass() -> None:
    source = open_data(iter(Stream()), layout())
    assert len(list(source.epoch(Order(), 0))) == 6
    with pytest.raises(InvalidInputError, match=r"read again in every epoch, got a generator.*data=lambda"):
        next(source.epoch(Order(), 1))


def test_tensors_of_others() -> None:
    torch = pytest.importorskip("torch")
    batches = [(torch.zeros(3, 4, 2, requires_grad=True), torch.arange(4))]
    (batch,) = open_data(batches, layout()).epoch(Order(), 0)
    np.testing.assert_array_equal(batch["y"], np.arange(4))


class Refilled:
    """A loader that has one array for all batches, as a source of its own."""

    count, layout = 6 * 4, layout()

    def __init__(self, tensor: Callable[[Array], Any] = np.asarray) -> None:
        self._tensor = tensor

    def __iter__(self) -> Iterator[dict[str, Any]]:
        x, y = np.zeros((3, 4, 2), np.float32), np.zeros(4, np.int64)
        for number in range(6):
            x[:], y[:] = number, number
            yield {"x:0": self._tensor(x), "y": self._tensor(y)}

    def epoch(self, *_: object) -> Iterator[dict[str, Any]]:
        return iter(self)

    def batches(self, _: Order) -> int:
        return 6

    def check_epochs(self, count: int) -> None:
        """It can be read again."""


@pytest.mark.parametrize("form", ["source", "iterable", "function", "tensors"])
def test_batches_of_a_loader_that_refills_its_arrays(form: str) -> None:
    data: Any = Refilled()
    if form == "tensors":
        data = Refilled(pytest.importorskip("torch").from_numpy)
    if form == "function":
        data = data.__iter__
    if form in ("iterable", "tensors"):
        data = map(dict, data)
    batches = list(open_data(data, layout()).epoch(Order(), 0))
    assert [batch["x:0"].max() for batch in batches] == [batch["y"].max() for batch in batches] == [*range(6)]


SEQUENCES = [np.full((length, 2), length, np.float32) for length in (5, 2, 7, 3, 3, 6, 1, 4)]


def ragged(tmp_path: Path, form: str) -> Any:
    labels = np.arange(len(SEQUENCES))
    if form == "lists":
        return {"x": SEQUENCES, "y": labels}
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    kind = pa.list_(pa.list_(pa.float32(), 2))
    table = pa.table({"x": pa.array([sequence.tolist() for sequence in SEQUENCES], kind), "y": labels})
    pq.write_table(table, tmp_path / "data.parquet", row_group_size=3)
    return tmp_path / "data.parquet"


def with_lengths() -> Layout:
    return Layout(
        [declared("x", "float", "time", "N", 2), declared("x_length", "int32", "N"), declared("y", "int64", "N")]
    )


@pytest.mark.parametrize("form", ["lists", "parquet"])
@pytest.mark.parametrize("buckets", [(), (3, 6, 8)])
def test_sequences_of_different_lengths(form: str, buckets: tuple[int, ...], tmp_path: Path) -> None:
    padding = Padding({"x": -1.0}, {"x_length": "x"}, buckets)
    source = open_data(ragged(tmp_path, form), with_lengths(), padding)
    order = Order(2, shuffle=True, seed=1)
    seen = []
    batches = list(source.epoch(order, 0))
    for batch in batches:
        lengths = batch["x_length"]
        assert batch["x_length"].dtype == np.int32
        longest = next((bound for bound in buckets if bound >= lengths.max()), lengths.max())
        assert batch["x"].shape == (longest, len(lengths), 2)
        for i, (length, label) in enumerate(zip(lengths, batch["y"], strict=True)):
            assert length == len(SEQUENCES[label])
            assert (batch["x"][:length, i] == length).all()
            assert (batch["x"][length:, i] == -1).all()
        if buckets:
            assert len({np.searchsorted(buckets, length) for length in lengths}) == 1
        seen += batch["y"].tolist()
    assert sorted(seen) == list(range(len(SEQUENCES)))
    assert source.batches(order) == (None if buckets else len(batches))
    for first in range(len(batches)):
        again = next(source.epoch(order, 0, first))
        np.testing.assert_array_equal(again["x"], batches[first]["x"])


def test_samples_lie_along_the_dimension_that_all_inputs_have() -> None:
    assert {name: field.axis for name, field in layout().fields.items()} == {"x:0": 1, "y": 0}
    both = [declared("ids", "int32", "time", "batch"), declared("labels", "int32", "time", "batch")]
    assert {field.axis for field in Layout(both).fields.values()} == {0}
    assert {field.axis for field in Layout(both, {"ids": 1, "labels": -1}).fields.values()} == {1}
    assert Layout([declared("x", "float", 5, 3)]).batch_size == 5


@pytest.mark.parametrize(
    ("data", "padding", "message"),
    [
        (3, {}, "data requires arrays, a path, or an iterable of batches, got int"),
        ({"y": np.arange(2)}, {}, r"data requires an array 'x:0' float32\[time, batch, 2\], got \['y'\]"),
        (
            (np.zeros((3, 2, 2), np.float32),),
            {},
            r"a value for each of .* in this order or by name, got 1",
        ),
        ({"x:0": [np.zeros((n, 2), np.float32) for n in (1, 2)], "y": np.arange(2)}, {}, r"pad=\{'x:0': value\}"),
        (
            {"x:0": np.zeros((3, 2, 2), np.int32), "y": np.arange(2)},
            {},
            r"got int32; array.astype\('float32'\) converts it",
        ),
        (arrays(), {"values": {"z": 0.0}}, "pad requires names of data inputs"),
        (arrays(), {"buckets": (3,)}, r"buckets require pad="),
        (arrays(), {"buckets": (4, 3), "values": {"x:0": 0}}, "buckets require ascending lengths"),
        (Stream(), {"buckets": (3,), "values": {"x:0": 0}}, "buckets require samples, got batches"),
    ],
)
def test_data_that_does_not_fit(data: Any, padding: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        list(open_data(data, layout(), Padding(**padding)).epoch(Order(2), 0))


def test_a_sequence_longer_than_all_buckets() -> None:
    source = open_data(ragged(Path(), "lists"), with_lengths(), Padding({"x": 0.0}, {"x_length": "x"}, (3, 6)))
    with pytest.raises(InvalidInputError, match="buckets require a length of 7 or more at their end"):
        list(source.epoch(Order(2), 0))


def test_folders_and_files_that_do_not_fit(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"files of one kind are required.*got none of them"):
        open_data(tmp_path, layout())
    (tmp_path / "a.npz").write_bytes(b"PK\x03\x04 no archive")
    with pytest.raises(InvalidInputError, match=r"a\.npz: a \.npz file of arrays is required"):
        open_data(tmp_path, layout())
    np.savez(tmp_path / "a.npz", y=np.arange(3))
    with pytest.raises(InvalidInputError, match=r"a\.npz requires an array 'x:0'"):
        open_data(tmp_path, layout())
    (tmp_path / "c.csv").write_text("x,y\n1,2\n")
    with pytest.raises(InvalidInputError, match=r"c\.csv: data requires a \.npz, Parquet or Arrow file, .* in \.csv"):
        open_data(tmp_path / "c.csv", layout())
    (tmp_path / "b.parquet").write_bytes(b"PAR1")
    with pytest.raises(InvalidInputError, match="got 1 of kind npz and 1 of kind columns"):
        open_data(tmp_path, layout())
    pytest.importorskip("pyarrow")
    with pytest.raises(InvalidInputError, match=r"b\.parquet: a Parquet or Arrow file is required"):
        open_data(tmp_path / "b.parquet", layout())
    with pytest.raises(FileNotFoundError):
        open_data(tmp_path / "c.parquet", layout())


@pytest.mark.parametrize("column", [[None, 1], ["a", "b"], [[[1], [1, 2]], [[1], [2]]]])
def test_columns_that_are_no_numbers(column: list[Any], tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"x": column}), tmp_path / "data.parquet")
    source = open_data(tmp_path / "data.parquet", Layout([declared("x", "int64", "N")]))
    with pytest.raises(InvalidInputError, match=r"data\.parquet: column 'x' requires"):
        list(source.epoch(Order(2), 0))


@pytest.mark.parametrize("column", [[1.0, 2.0], [[1.0], [1.0, 2.0]]])
def test_columns_of_another_dtype_say_how_to_write_them(column: list[Any], tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"x": column}), tmp_path / "data.parquet")
    sizes = ["N", "T"] if isinstance(column[0], list) else ["N"]
    source = open_data(tmp_path / "data.parquet", Layout([declared("x", "float", *sizes)]))
    with pytest.raises(InvalidInputError, match=r"column 'x' requires float32\[.*, got float64; write .* as float32"):
        list(source.epoch(Order(2), 0))


def test_a_model_that_fixes_the_batch_size() -> None:
    fixed = Layout([declared("x", "float", 4, 2)])
    source = open_data({"x": np.zeros((10, 2), np.float32)}, fixed)
    assert [len(batch["x"]) for batch in source.epoch(Order(4), 0)] == [4, 4]
    with pytest.raises(InvalidInputError, match="batch size requires 4, as the model has it, got 3"):
        source.batches(Order(3))


def test_a_thread_makes_batches_ahead() -> None:
    made: list[int] = []
    closed = threading.Event()

    def items() -> Iterator[dict[str, Array]]:
        try:
            for number in range(100):
                made.append(number)
                yield {"x": np.array(number)}
        finally:
            closed.set()

    ahead = Prefetched(items(), depth=2)
    assert int(next(ahead)["x"]) == 0
    time.sleep(0.05)
    assert len(made) <= 5
    ahead.close()
    assert closed.wait(5)
    assert not any(thread.name == "lstm_lower.prefetch" for thread in threading.enumerate())


def test_errors_of_the_thread_come_through() -> None:
    def items() -> Iterator[dict[str, Array]]:
        yield {"x": np.array(0)}
        raise InvalidInputError("bad shard")

    ahead = Prefetched(items())
    next(ahead)
    with pytest.raises(InvalidInputError, match="bad shard"):
        next(ahead)
    with pytest.raises(StopIteration):
        next(ahead)
    ahead.close()
