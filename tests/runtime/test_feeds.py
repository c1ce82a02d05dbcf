"""Random feeds that a model accepts, and `.npz` files."""

from __future__ import annotations

import contextlib
import zipfile
from pathlib import Path

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest

from lstm_lower.errors import InvalidInputError, InvalidModelError
from lstm_lower.records import state as training_state
from lstm_lower.records.model_files import load
from lstm_lower.runtime.feeds import (
    DEFAULT_SIZE,
    drawn_sizes_explained,
    random_feeds,
    read_arrays,
    symbols,
    write_arrays,
)
from lstm_lower.runtime.session import Session
from tests.support.cudnn_cases import Case
from tests.support.models import single_node_model
from tests.support.op_inputs import valid_inputs

GRAPHS = Path(__file__).parents[2] / "examples" / "graphs"


def parse(inputs: str, body: str, outputs: str = "float[*] y") -> ir.Model:
    outputs = "float[n] y" if outputs == "float[*] y" else outputs
    text = f'<ir_version: 8, opset_import: ["" : 18]> agraph ({inputs}) => ({outputs}) {{ {body} }}'
    return ir.from_proto(onnx.parser.parse_model(text))


def test_sizes_and_dtypes() -> None:
    model = parse("float[A,3,B] a, float16[B] b, bool[B] c, double d, int32[B] e", "y = Identity(b)", "float16[B] y")
    assert symbols(model) == ["A", "B"]
    feeds = random_feeds(model, {"B": 50})
    assert {name: (array.dtype.name, array.shape) for name, array in feeds.items()} == {
        "a": ("float32", (DEFAULT_SIZE, 3, 50)),
        "b": ("float16", (50,)),
        "c": ("bool", (50,)),
        "d": ("float64", ()),
        "e": ("int32", (50,)),
    }
    assert np.abs(feeds["a"]).max() <= 0.5
    assert feeds["a"].std() > 0.2
    assert set(feeds["e"]) == {0, 1}


def test_state_begins_where_its_square_root_is_real() -> None:
    model = parse(
        "float[A] g, float[A] w_in, float[A] m_in", "w = Add(w_in, g) m = Mul(m_in, g)", "float[A] w, float[A] m"
    )
    pairs = (training_state.StatePair("w_in", "w"), training_state.StatePair("m_in", "m", "slot"))
    training_state.write(model, training_state.TrainingState(pairs))
    feeds = random_feeds(model, {"A": 200})
    assert feeds["m_in"].min() > 0
    assert feeds["w_in"].min() < 0 < feeds["w_in"].max()


def test_seed_and_sizes_are_all_that_matters() -> None:
    model = parse("float[N] a, float[N] b", "y = Add(a, b)")
    first, again, other = (random_feeds(model, {"N": 6}, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first["a"], again["a"])
    assert not np.array_equal(first["a"], other["a"])
    assert not np.array_equal(first["a"], first["b"])


def test_an_unknown_dimension_is_an_error() -> None:
    with pytest.raises(InvalidInputError, match=r"names of open sizes of inputs, \['N'\]"):
        random_feeds(parse("float[N] a", "y = Neg(a)"), {"B": 3})


def test_an_unknown_rank_is_an_error() -> None:
    model = parse("float[N] a", "y = Neg(a)")
    model.graph.inputs[0].shape = None
    with pytest.raises(InvalidModelError, match="input 'a' requires a known dtype and rank"):
        random_feeds(model)


def test_text_is_an_error() -> None:
    with pytest.raises(InvalidModelError, match="requires numbers"):
        random_feeds(parse("string[N] a", "y = Identity(a)", "string[N] y"))


@pytest.mark.parametrize(
    ("body", "size"),
    [
        ("y = Gather(table, i)", 5),
        ("y = Gather<axis = 1>(table, i)", 7),
        ("j = Cast<to = 7>(i)  k = Unsqueeze(j, zero)  y = Gather(table, k)", 5),
        ("d = Constant<value = int64 {9}>()  v = Constant<value = float[2] {0, 1}>()  y = OneHot(i, d, v)", 9),
        ("a = Gather(table, i)  b = Gather<axis = 1>(table, i)  y = Identity(a)", 5),
        ("f = Cast<to = 1>(i)  y = Mul(f, table)", 2),
    ],
)
def test_indices_stay_in_range(body: str, size: int) -> None:
    zero = "zero = Constant<value = int64[1] {0}>()  "
    model = parse("float[5,7] table, int32[200] i", zero + body, "float[p,q] y")
    assert set(random_feeds(model)["i"]) == set(range(size))


def test_the_smallest_table_limits() -> None:
    model = parse("float[5,4] a, float[3,4] b, int64[99] i", "c = Gather(a, i)  d = Gather(b, i)  y = Add(c, d)")
    assert random_feeds(model)["i"].max() == 2


def test_class_numbers_of_the_example() -> None:
    feeds = random_feeds(load(GRAPHS / "char_lstm_train.onnx"), {"batch": 50})
    assert set(feeds["labels:0"].ravel()) == set(feeds["ids:0"].ravel()) == set(range(25))


@pytest.mark.parametrize("seed", range(8))
def test_sequence_lengths(seed: int) -> None:
    model = ir.from_proto(single_node_model("BlockLSTM", valid_inputs("BlockLSTM", T=3)))
    assert 1 <= random_feeds(model, seed=seed)["seq_len_max"] <= 3
    case = Case(ragged=True)
    operands = case.operands(seed=0)
    names = ("input", "input_h", "input_c", "params", "sequence_lengths")
    given = {n: operands[n] if n == "sequence_lengths" else operands[n].astype(np.float32) for n in names}
    given["sequence_lengths"] = np.asarray(given["sequence_lengths"], np.int32)
    lengths = random_feeds(ir.from_proto(single_node_model("CudnnRNNV3", given)), seed=seed)["sequence_lengths"]
    assert lengths.min() >= 1
    assert lengths.max() <= case.steps


def test_files_with_prefixes_and_without(tmp_path: Path) -> None:
    write_arrays(tmp_path / "a.npz", {"in:x": np.ones(2), "out:y:0": np.zeros(3)})
    feeds, results = read_arrays(tmp_path / "a.npz")
    assert list(feeds) == ["x"]
    assert list(results) == ["y:0"]
    write_arrays(tmp_path / "b.npz", {"x": np.ones(2), "in:z": np.zeros(1)})
    feeds, results = read_arrays(tmp_path / "b.npz")
    assert list(feeds) == ["x", "in:z"]
    assert results == {}


def test_any_name_can_be_written(tmp_path: Path) -> None:
    arrays = {"file": np.float32(1), "a/b:0": np.arange(3), "": np.zeros((0, 2)), "half": np.ones(2, np.float16)}
    write_arrays(tmp_path / "a.npz", arrays)
    with np.load(tmp_path / "a.npz") as file:
        assert {name: file[name].dtype for name in file.files} == {n: np.asarray(a).dtype for n, a in arrays.items()}
        np.testing.assert_array_equal(file["a/b:0"], [0, 1, 2])


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(b"old")
    for bad in (np.array([object()]), [np.ones(2)], None):
        with pytest.raises(InvalidInputError, match="'bad' requires a tensor of numbers or strings"):
            write_arrays(path, {"good": np.ones(2), "bad": bad})  # type: ignore[dict-item]
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.npz"]


def test_strings_can_be_written(tmp_path: Path) -> None:
    write_arrays(tmp_path / "a.npz", {"words": np.array([["a", "bcd"]], object)})
    assert read_arrays(tmp_path / "a.npz")[0]["words"].tolist() == [["a", "bcd"]]


def test_a_damaged_file_is_an_error(tmp_path: Path) -> None:
    """Wherever a byte is changed: in the zip file's own records, in compressed data, in numpy's header."""
    np.savez_compressed(tmp_path / "whole.npz", x=np.arange(200))
    whole = (tmp_path / "whole.npz").read_bytes()
    for place in range(0, len(whole), 3):
        (tmp_path / "a.npz").write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        with contextlib.suppress(InvalidInputError):
            dict(read_arrays(tmp_path / "a.npz")[0])


@pytest.mark.parametrize("content", [b"", b"no zip at all", b"PK\x03\x04 broken"])
def test_a_bad_file_is_an_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(InvalidInputError, match=r"a\.npz: a \.npz file as numpy.savez writes it is required"):
        read_arrays(tmp_path / "a.npz")


def test_an_entry_that_is_no_array(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x", "no array")
    with pytest.raises(InvalidInputError, match="got another entry, 'x'"):
        read_arrays(tmp_path / "a.npz")[0]["x"]


def test_a_single_array_is_an_error(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones(2))
    with pytest.raises(InvalidInputError, match=r"a \.npz file as numpy.savez writes it is required"):
        read_arrays(tmp_path / "a.npy")


def test_sizes_without_names_that_do_not_fit_are_told() -> None:
    model = parse("float[M] a, float[N] b", "y = Add(a, b)")
    model.graph.inputs[0].shape = ir.Shape([None])
    with (
        pytest.raises(InvalidInputError, match=r"of N=7; .*sizes without names, a\.0=4; others by --dim or -i"),
        drawn_sizes_explained(model, {"N": 7}),
    ):
        Session(model).run(random_feeds(model, {"N": 7}))
    Session(model).run(random_feeds(model, {"N": 7, "a.0": 7}))
    with pytest.raises(InvalidInputError, match=r"\['N', 'a\.0'\], got 'a\.1'"):
        random_feeds(model, {"a.1": 7})


def test_sizes_are_told_of_errors_of_the_kind_asked_for() -> None:
    model = parse("float[N] a", "y = Identity(a)")
    with (
        pytest.raises(InvalidModelError, match=r"too small; the random feeds are of N=4; others by --dim NAME=SIZE"),
        drawn_sizes_explained(model, {}, error=InvalidModelError),
    ):
        raise InvalidModelError("too small")
