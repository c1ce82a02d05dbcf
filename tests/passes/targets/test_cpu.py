"""Each row about onnxruntime's own kernels, by its example: whichever way that goes, what leaves is right."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from onnx import helper

import lstm_lower as ll
from lstm_lower.graph.facts import Facts
from lstm_lower.graph.subgraphs import all_nodes
from lstm_lower.passes.opset import installed
from lstm_lower.passes.targets.cpu import CPU
from lstm_lower.passes.targets.legalize import LegalizePass
from lstm_lower.runtime import session
from lstm_lower.tensorflow.finish import finish
from lstm_lower.tensorflow.model import ConvertedGraph
from tests.support import target_rows as rows
from tests.support.command_line import run as command

Door = Callable[[onnx.ModelProto, Path], onnx.ModelProto]


def from_tensorflow(model: onnx.ModelProto, _: Path) -> onnx.ModelProto:
    """The end of every import."""
    imported = ir.from_proto(model)
    names = [str(value.name) for value in imported.graph.inputs]
    made = ConvertedGraph("graph", imported, names, {}, [], [], None, [], None, 0, {}, [])
    return finish(made, weights=None, state={}, demanded=False)


def from_torch(model: onnx.ModelProto, _: Path) -> onnx.ModelProto:
    """A module whose trace is the model."""
    torch = pytest.importorskip("torch")
    from lstm_lower.torch import export, importer

    module = torch.nn.Identity()
    with pytest.MonkeyPatch.context() as patched:
        traced = export.Exported(ir.from_proto(model), {}, {}, None)  # type: ignore[arg-type]
        patched.setattr(importer, "_forms", lambda *_, **__: (traced, None))
        patched.setattr(importer._Making, "_certify", lambda *_: None)
        patched.setattr(importer, "_tell", lambda *_, **__: None)
        return ll.from_torch(module, torch.zeros(2), LOSS, what="forward")


def through_files(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """A command that writes a file."""
    before, after = folder / "before.onnx", folder / "after.onnx"
    onnx.save(model, before)
    assert command("lower", before, "-o", after).exit_code == 0
    return onnx.load(after)


LOSS = "l1"
DOORS: dict[str, Door] = {
    "lower": lambda model, _: ll.lower(model),
    "optimize": lambda model, _: ll.optimize(model),
    "gradient": lambda model, _: ll.gradient(model, model.graph.output[0].name, model.graph.input[0].name, seeds=True),
    "session": lambda model, _: ir.to_proto(session._loadable(model, [])[1]),
    "from_onnx": lambda model, _: ll.from_onnx(model, LOSS, what="forward"),
    "from_tensorflow": from_tensorflow,
    "from_torch": from_torch,
    "command line": through_files,
}
# Those that write what is slow in another form.
OPTIMIZING = ("optimize", "gradient")


def of(row: str, model: onnx.ModelProto) -> bool:
    """Whether there is a node that a row is about."""
    work = ir.from_proto(model)
    facts = Facts.of(work)
    views = [facts.view(node) for node in all_nodes(work.graph)]
    return any(view is not None and rows.ROWS[row].holds(view) for view in views)


def test_every_row_has_an_example_of_its_own() -> None:
    assert len(rows.ROWS) == len(CPU.lacks)
    for name, row in rows.ROWS.items():
        assert of(name, rows.example(row)), name


@pytest.mark.parametrize(
    ("name", "door"),
    [(name, door) for name, row in rows.SERVING.items() for door in (OPTIMIZING if row.slow else DOORS)],
)
def test_every_way_ends_without_it(name: str, door: str, tmp_path: Path) -> None:
    row = rows.ROWS[name]
    model = rows.example(row)
    feeds = rows.feeds_of(model)
    made = DOORS[door](model, tmp_path)
    assert not of(name, made)
    result = model.graph.output[0]
    expected = np.zeros(()) if row.refused else rows.right(model, feeds)
    known = {*feeds, *(value.name for value in made.graph.initializer)}
    others = [value for value in made.graph.input if value.name not in known]
    dtype = helper.tensor_dtype_to_np_dtype(result.type.tensor_type.elem_type)
    # A target, or a seed.
    feeds |= {value.name: np.zeros(expected.shape, dtype) for value in others}
    if row.refused:
        with pytest.raises(Exception, match="ONNXRuntimeError"):
            rows.run(made, feeds, result.name)
    else:
        assert not rows.is_wrong(rows.run(made, feeds, result.name), expected)


@pytest.mark.parametrize("name", [name for name, row in rows.SERVING.items() if not row.slow])
def test_what_is_exported_for_training_is_without_it(name: str, tmp_path: Path) -> None:
    """A weight that is added to the example's result is trained."""
    model = rows.example(rows.ROWS[name])
    graph = model.graph
    result = graph.output[0]
    dtype = result.type.tensor_type.elem_type
    graph.initializer.append(helper.make_tensor("weight", dtype, [1], [1.0]))
    graph.node.append(helper.make_node("Add", [result.name, "weight"], ["moved"]))
    graph.output.append(helper.make_tensor_value_info("moved", dtype, None))
    del graph.output[0]
    # What draws has nothing that evaluates it.
    random = any(node.op_type == "Bernoulli" for node in graph.node)
    files = ["init", "train"] if random else ["init", "train", "eval", "predict"]
    ll.export_training(ll.from_onnx(model, LOSS, "sgd"), tmp_path, files=files)
    assert not [file for file in files if of(name, onnx.load(tmp_path / f"{file}.onnx"))]


def test_a_row_serves_the_versions_that_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    row = dataclasses.replace(next(iter(CPU.lacks)), since="1.27", until="1.30.1")
    served = []
    for version in ("1.9.0", "1.26.2", "1.27.0", "1.30.0+cpu", "1.30.1", "1.31.0"):
        installed.is_version_between.cache_clear()
        monkeypatch.setattr(installed.ort, "__version__", version)
        served += [version] if list(dataclasses.replace(CPU, lacks=(row,)).rows()) else []
    installed.is_version_between.cache_clear()
    assert served == ["1.27.0", "1.30.0+cpu"]


def test_a_model_without_any_is_left_alone() -> None:
    text = '<ir_version: 8, opset_import: ["" : 18]> g (float[3] x) => (float[3] y) { y = Neg (x) }'
    assert not LegalizePass()(ir.from_proto(onnx.parser.parse_model(text))).modified


@pytest.mark.parametrize("door", ["lower", "optimize", "gradient", "session"])
@pytest.mark.parametrize("name", [name for name, row in rows.ROWS.items() if row.suspected])
def test_what_functions_may_hold_is_written_where_they_are_called(name: str, door: str, tmp_path: Path) -> None:
    made = DOORS[door](rows.example(rows.ROWS[name], called=True), tmp_path)
    assert not made.functions
    assert not of(name, made)


@pytest.mark.parametrize(("dtype", "wanted"), [("float", [2.5, 5, -5, -5 / 3]), ("int32", [0, 5, -5, 0])])
@pytest.mark.parametrize(("one", "shape"), [("", (4,)), ("[1]", (4,)), ("[1,1]", (1, 4))])
def test_one_by_something_is_multiplied_as_it_is(dtype: str, wanted: list[float], one: str, shape: tuple[int]) -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 18]> g ({dtype}[4] x) => ({dtype}[{",".join(map(str, shape))}] y)
    <{dtype}{one} one = {{1}}, {dtype} five = {{5}}> {{ a = Div(one, x) y = Mul(a, five) }}"""
    work = ir.from_proto(onnx.parser.parse_model(text))
    LegalizePass()(work)
    feeds = {"x": np.array([2, 1, -1, -3], "float32" if dtype == "float" else dtype)}
    # onnxruntime, optimised, divides 5 by x.
    np.testing.assert_allclose(rows.run(ir.to_proto(work), feeds, "y"), np.broadcast_to(wanted, shape), rtol=1e-6)


@pytest.mark.parametrize("by_columns", [0, 1])
def test_places_in_the_whole_image_are_told_where_windows_end_before_it(by_columns: int) -> None:
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 18]>
        pooled (float[N,2,5,5] x) => (float[?,2,3,2] y, int64[?,2,3,2] places)
        {{ m, places = MaxPool <kernel_shape = [2,1], strides = [2,3], ceil_mode = 1, storage_order = {by_columns}> (x)
          weights = Constant <value = float[2] {{1.0, 1.0}}> () y = Mul (m, weights) }}""")
    x = np.random.default_rng(0).random((3, 2, 5, 5), np.float32)
    found = ll.Session(model).run({"x": x})
    numbered = x.swapaxes(2, 3) if by_columns else x
    np.testing.assert_array_equal(numbered.reshape(-1)[found["places"]], found["y"])
