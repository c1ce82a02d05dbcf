"""Sessions: what they refuse before onnxruntime sees it, and what is not a plain array."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

import lstm_lower as ll
from lstm_lower.errors import InvalidInputError, InvalidModelError
from lstm_lower.passes.tidy import verify_unique_names
from lstm_lower.records.model_files import load
from lstm_lower.runtime.feeds import random_feeds
from lstm_lower.runtime.loadable import check_loadable
from lstm_lower.runtime.measuring.forms import formed_models
from lstm_lower.runtime.proof.check import check
from lstm_lower.runtime.session import _loadable
from tests.support import forks
from tests.support.command_line import run


def test_denormal_numbers_stay_here_and_elsewhere() -> None:
    # Large enough for every thread of the session's pool, which the option of onnxruntime's that drops them is for.
    tiny = np.full((1 << 18, 3), 1e-40, np.float32)
    (doubled,) = (
        ll.Session(parse("agraph (float[N, 3] x) => (float[N, 3] y) { y = Add (x, x) }")).run({"x": tiny}).values()
    )
    np.testing.assert_array_equal(doubled, tiny + tiny)
    assert doubled.min() > 0


@pytest.mark.slow
def test_the_first_session_of_a_process_leaves_its_arithmetic_alone(tmp_path: Path) -> None:
    code = f"""if True:
        import numpy as np, lstm_lower as ll
        ll.Session("{forks.ROOT}/examples/onnx_saliency/digits.onnx")
        assert np.array([1e-310]) * 1.0 > 0
        assert np.array([1e-40], np.float32) * np.float32(1) > 0
    """
    environment = {**os.environ, "PYTHONPATH": str(forks.ROOT)}
    done = forks.run(["-c", code], tmp_path, environment, seconds=60)
    assert (done.returncode, done.stderr) == (0, "")


def parse(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}')


NEGATION = "agraph (float[N, 3] x) => (float[N, 3] y) { y = Neg (x) }"

# onnx's shape inference, and onnxruntime's, look for a size of the third part and end the process.
ABORTING = "agraph (float[2, 6] x) => (float[2, 6] a) { a, b, c = Split <axis = 1, num_outputs = 1> (x) }"
# onnx's checker accepts them, and onnxruntime ends the process.
LEFT_OUT = {
    "Split": 'agraph (float[4] x) => (float[2] a) { a, "" = Split <axis = 0, num_outputs = 2> (x) }',
    "If": """agraph (float[4] x, bool c) => (float[4] a) {
      a, "" = If (c) <then_branch = t () => (float[4] p, float[4] q) { p = Neg(x) q = Abs(x) },
        else_branch = e () => (float[4] r, float[4] s) { r = Neg(x) s = Exp(x) }> }""",
    "Loop": """agraph (float[4] x, int64 n, bool c) => (float[4] a) {
      a, "" = Loop (n, c, x, x) <body = b (int64 i, bool d, float[4] h, float[4] k) =>
        (bool e, float[4] p, float[4] q) { e = Identity(d) p = Neg(h) q = Abs(k) }> }""",
}
USES = ["ll.Session(m)", "ll.Session(ir.from_proto(m))", "ll.Trainer(m)", "check(m)", "random_feeds(ir.from_proto(m))"]


@pytest.mark.parametrize("op", LEFT_OUT)
def test_outputs_that_are_left_out(op: str, tmp_path: Path) -> None:
    onnx.save(parse(LEFT_OUT[op]), tmp_path / "m.onnx")
    feeds = {"x": np.arange(4, dtype=np.float32), "n": np.array(1), "c": np.bool_(1)}
    changed = [ll.lower(tmp_path / "m.onnx"), ll.optimize(tmp_path / "m.onnx")]
    assert all(name for model in changed for node in model.graph.node for name in node.output)
    for model in (tmp_path / "m.onnx", *changed):
        session = ll.Session(model)
        result = session.run({name: feeds[name] for name in session.inputs})["a"]
        np.testing.assert_array_equal(result, feeds["x"][:2] if op == "Split" else -feeds["x"])


def test_models_that_would_end_the_process_are_refused(tmp_path: Path) -> None:
    code = f"""
import lstm_lower as ll, onnx.parser, onnx_ir as ir
from lstm_lower.runtime.feeds import random_feeds
from lstm_lower.runtime.proof.check import check
from lstm_lower.runtime.session import _loadable
m = onnx.parser.parse_model({'<ir_version: 8, opset_import: ["" : 18]> ' + ABORTING!r})
for use in {USES!r}:
    try:
        eval(use)
    except ll.InvalidModelError as error:
        print(use, error, sep=": ")
"""
    environment = {"PYTHONPATH": str(forks.ROOT), "PYTHONWARNINGS": "error"}
    done = forks.run(["-c", code], tmp_path, environment, seconds=60)
    assert done.returncode == 0, done.stderr
    refused = done.stdout.splitlines()
    assert [line.partition(": ")[0] for line in refused] == USES
    assert all("Split" in line for line in refused)


def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    pipe = tmp_path / "model.onnx"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(parse(NEGATION).SerializeToString()), daemon=True)
    writer.start()
    session = ll.Session(pipe)
    writer.join(timeout=20)
    assert session.run({"x": np.ones((1, 3), np.float32)})["y"].tolist() == [[-1, -1, -1]]


def test_a_device_is_no_model() -> None:
    with pytest.raises(InvalidModelError, match="an ONNX file is required, got a device"):
        ll.Session("/dev/zero")


HIDDEN = """agraph (float[3] x, float[1, 3] t) => (float[3] y) {
  y = Scan <num_scan_inputs = 1, body = outer (float c) => (float last) {
    w = Scan <num_scan_inputs = 1, scan_input_axes = [1], body = inner (float[1] r) =>
      (float[1] last) { last = Neg (r) }> (t)
    sum = ReduceSum <keepdims = 0> (w)
    last = Add (c, sum)
  }> (x)
}"""


def test_names_of_a_rewritten_model_are_its_own() -> None:
    """onnxruntime takes a name twice where it infers no types, as of what runs along another axis, and else refuses."""
    feeds = {"x": np.arange(3, dtype=np.float32), "t": np.ones((1, 3), np.float32)}
    assert ll.Session(parse(HIDDEN)).run(feeds)["y"].tolist() == [-3, -2, -1]
    verify_unique_names(_loadable(parse(HIDDEN), [])[1])


UNORDERED = "agraph (float[N, 3] x) => (float[N, 3] y) { y = Neg (t) t = Abs (x) }"


@pytest.mark.parametrize("form", ["path", "proto", "bytes", "ir"])
def test_nodes_in_any_order(tmp_path: Path, form: str) -> None:
    """As onnxruntime takes them; the caller's model stays as it is."""
    model = parse(UNORDERED)
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    given: Any = {"path": path, "proto": model, "bytes": model.SerializeToString(), "ir": ir.from_proto(model)}[form]
    assert ll.Session(given).run({"x": -np.ones((1, 3), np.float32)})["y"].tolist() == [[-1, -1, -1]]
    if form == "ir":
        assert [node.op_type for node in given.graph] == ["Neg", "Abs"]


def test_no_outputs_are_none() -> None:
    assert ll.Session(parse(NEGATION)).run({"x": np.ones((1, 3), np.float32)}, []) == {}


@pytest.mark.parametrize("providers", [5, [5], [("cpu", 5)], [("cpu", {}, 1)], {"cpu": {}}, np.zeros(2)])
def test_providers_are_names(providers: Any) -> None:
    with pytest.raises(InvalidInputError, match="provider"):
        ll.Session(parse(NEGATION), providers)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimizer": np.zeros(2)}, "optimizer requires one of"),
        ({"clip_norm": "much"}, "clip_norm requires a positive number"),
        ({"clip_norm": 10**400}, "clip_norm requires a positive number"),
        ({"clip_value": [1.0]}, "clip_value requires a positive number"),
        ({"accumulate": 1.5}, "accumulate requires a number of steps"),
        ({"accumulate": 2**80}, "accumulate requires a number of steps"),
        ({"learning_rate_input": ["lr"]}, "learning_rate_input requires a name"),
        ({"on_nan": np.zeros(2)}, "on_nan requires one of"),
    ],
)
def test_options_of_a_trainer_are_what_they_are_said_to_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        ll.Trainer(parse(NEGATION), **options)


def test_what_is_no_tensor_cannot_be_checked() -> None:
    model = parse("agraph (float[N] x) => (seq(float[N]) s, float[N] y) { s = SequenceConstruct (x, x) y = Neg (x) }")
    report = check(model)
    assert [(row.name, row.verdict) for row in report.outputs] == [("s", "not a tensor"), ("y", "ok")]
    assert not report.passed


def test_reference_takes_part_in_no_failure_of_its_own() -> None:
    """Where a Loop makes no step, onnx.reference does not know the shapes of what it stacks."""
    body = (
        "body = b (int64 i, bool g, float s) => (bool c, float t, float o) { c = Identity (g) t = Neg (s) o = Neg (t) }"
    )
    model = parse(
        "agraph (float x) => (float f, float[N] y) "
        f"{{ none = Constant <value = int64 {{0}}> () f, y = Loop <{body}> (none, , x) }}"
    )
    with pytest.raises(InvalidModelError, match=r"onnx\.reference cannot evaluate the model"):
        check(model)


def test_random_feeds_that_no_memory_holds() -> None:
    model = ir.from_proto(parse(NEGATION))
    for size in (2**45, 2**70):
        with pytest.raises(InvalidInputError, match="do not fit into memory"):
            random_feeds(model, {"N": size})


def test_a_file_that_is_no_model_does_not_load(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"\xff" * 100)
    with pytest.raises(InvalidModelError, match="refuses the model"):
        check_loadable(tmp_path / "m.onnx")


@pytest.mark.parametrize("opens", [check_loadable, ll.Session])
def test_a_model_without_outputs_does_not_run(opens: Callable[[Path], object], tmp_path: Path) -> None:
    onnx.save(parse("agraph (float[N] x) => () {}"), tmp_path / "m.onnx")
    with pytest.raises(InvalidModelError, match="requires a model with outputs"):
        opens(tmp_path / "m.onnx")


def test_a_shape_in_external_data(tmp_path: Path) -> None:
    """onnxruntime reads no shape from such data where it opens a file itself."""
    model = parse("agraph (float[N, 2, 3] x) => (float[N, 6] y) <int64[2] s = {-1, 6}> { y = Reshape (x, s) }")
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.array([-1, 6]), "s"))
    path, copies = tmp_path / "m.onnx", tmp_path / "copies"
    onnx.save(model, path, save_as_external_data=True, location="m.data", size_threshold=0)
    copies.mkdir()
    feeds = {"x": np.arange(12, dtype=np.float32).reshape(2, 2, 3)}
    for opened in (path, next(formed_models(path, load(path), copies, forms=["original"], schedules=[])).path):
        assert opened is not None
        np.testing.assert_array_equal(ll.Session(opened).run(feeds)["y"], feeds["x"].reshape(2, 6))
    assert list(copies.iterdir())  # what `bench` hands to onnxruntime as it is
    (tmp_path / "m.data").unlink()
    shown = run("inspect", path)
    assert shown.exit_code == 1
    assert "f32[N,6]" in shown.stdout
    assert "requires data of [2] INT64, got none" in shown.stdout


@pytest.mark.parametrize("shape", [(), (2,), (2, 3)])
def test_an_input_without_a_declared_rank_takes_any(shape: tuple[int, ...]) -> None:
    """onnxruntime tells the same of it as of a scalar."""
    model = parse(NEGATION)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.ClearField("shape")
    assert ll.Session(model).run({"x": np.ones(shape, np.float32)})["y"].shape == shape


def test_sequences_and_what_is_optional_are_fed() -> None:
    sequence = parse("agraph (seq(float[2]) s, int64 at) => (float[2] y) { y = SequenceAt (s, at) }")
    optional = parse("agraph (optional(float[2]) o) => (bool y) { y = OptionalHasElement (o) }")
    first, second = np.float32([1, 2]), np.float32([3, 4])
    assert ll.Session(sequence).run({"s": [first, second], "at": 1})["y"].tolist() == [3, 4]
    asked = ll.Session(ll.lower(optional))
    assert [bool(asked.run({"o": value})["y"]) for value in (first, None)] == [True, False]
    with pytest.raises(InvalidInputError, match=r"input 's' requires a list of arrays, got ndarray"):
        ll.Session(sequence).run({"s": first, "at": 1})
    with pytest.raises(InvalidInputError, match=r"input 's', element 1, requires dtype float32, got float64"):
        ll.Session(sequence).run({"s": [first, np.ones(2)], "at": 1})
    with pytest.raises(InvalidInputError, match=r"input 'o' requires shape \[2\], got \[3\]"):
        asked.run({"o": np.ones(3, np.float32)})
