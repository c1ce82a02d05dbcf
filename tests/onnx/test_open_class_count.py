"""Heads whose class count stays open until training starts, next to heads of a fixed one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest

import lstm_lower as ll
from lstm_lower.cli.main import app
from lstm_lower.errors import InvalidInputError, InvalidModelError
from lstm_lower.runtime.training import checkpoint

X = np.random.default_rng(0).standard_normal((6, 4), np.float32)
FEEDS = {"x": X, "target": np.array([0, 4, 2, 1, 3, 0])}
U, V = (np.random.default_rng(1).uniform(-1, 1, shape).astype(np.float32) for shape in ((4, 8), (8, 3)))
FIVE = {"classes": 5}
OPTIONS: dict[str, dict[str, Any]] = {
    "sgd": {},
    "adam": {},
    "momentum": {"accumulate": 2, "clip_norm": 0.5, "ema": 0.9},
}


def model() -> onnx.ModelProto:
    """A classifier of three classes."""
    text = """<ir_version: 10, opset_import: ["" : 17]> f (float[B,4] x) => (float[B,3] y) <float[3] c = {1, 2, 3}>
        { a = MatMul(x, u)  h = Tanh(a)  y = Gemm(h, v, c) }"""
    made = onnx.parser.parse_model(text)
    made.graph.initializer.extend([onnx.numpy_helper.from_array(U, "u"), onnx.numpy_helper.from_array(V, "v")])
    return made


def step(classes: int | None = None, optimizer: str | None = "adam", trainable: str = "head.*") -> onnx.ModelProto:
    """A step that trains the head."""
    return ll.from_onnx(ll.replace_head(model(), classes, seed=3), "cross_entropy", optimizer, trainable=trainable)


@pytest.mark.parametrize("optimizer", OPTIONS)
def test_training_is_that_of_a_fixed_count(optimizer: str) -> None:
    options = OPTIONS[optimizer] | {"learning_rate": 0.1}
    opened = ll.Trainer(step(None, optimizer), sizes=FIVE, **options)
    fixed = ll.Trainer(step(5, optimizer), **options)
    first, bound = opened.state_dict(), 8**-0.5
    assert {name: value.shape for name, value in first.items()} == {
        name: value.shape for name, value in fixed.state_dict().items()
    }
    # The numbers of PyTorch's Linear, by another generator; what optimizers keep begins as ever.
    weight = first["head.weight"]
    assert 0.9 * bound < np.abs(weight).max() <= bound
    assert len(np.unique(weight)) == 40
    for name, value in fixed.state_dict().items():
        if name not in ("head.weight", "head.bias"):
            np.testing.assert_array_equal(first[name], value)
    fixed.load_state_dict(first)
    losses = [[trainer.step(FEEDS).loss for _ in range(8)] for trainer in (opened, fixed)]
    assert losses[0] == losses[1]
    assert losses[0][-1] < losses[0][0]
    assert opened.evaluate(FEEDS) == fixed.evaluate(FEEDS)
    np.testing.assert_array_equal(opened.predict({"x": X})["y"], fixed.predict({"x": X})["y"])


def test_first_values_follow_from_the_seed() -> None:
    """Those of more classes begin with no other bound, and another seed has others."""
    weights = [
        ll.Trainer(ll.from_onnx(ll.replace_head(model(), None, seed=seed), "cross_entropy", "sgd"), sizes=FIVE)
        .state_dict()["head.weight"]
        for seed in (3, 3, 4)
    ]  # fmt: skip
    np.testing.assert_array_equal(weights[0], weights[1])
    assert not np.array_equal(weights[0], weights[2])
    many = ll.Trainer(step(), sizes={"classes": 20_000}).state_dict()["head.weight"]
    assert many.shape == (8, 20_000)
    np.testing.assert_allclose([many.mean(), many.var()], [0, 1 / 8 / 3], atol=1e-3)


def test_sizes_are_checked() -> None:
    wrong: list[tuple[Any, str]] = [
        (None, "state 'head.weight' requires a number for its open size 'classes', got none"),
        ({"clases": 5}, "sizes requires names of the state's open sizes, classes, got 'clases'"),
        ({"classes": 0}, r"sizes\['classes'\] requires a whole number, at least 1, got 0"),
        ({"classes": 2.5}, "requires a whole number"),
        ({"classes": 2**63}, "requires a whole number"),
        ([5], "sizes requires a dictionary"),
    ]
    for sizes, message in wrong:
        with pytest.raises(InvalidInputError, match=message):
            ll.Trainer(step(), sizes=sizes)
    with pytest.raises(InvalidInputError, match="open sizes, none, got 'classes'"):
        ll.Trainer(step(5), sizes=FIVE)
    # A weight that is given says how many there are.
    weight = np.zeros((8, 7), np.float32)
    assert ll.Trainer(step(), initial_values={"head.weight": weight}).state_dict()["head.bias"].shape == (7,)
    with pytest.raises(InvalidInputError, match="requires 5 for 'classes', got 7"):
        ll.Trainer(step(), sizes=FIVE, initial_values={"head.weight": weight})
    named = model()
    named.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "classes"
    with pytest.raises(InvalidInputError, match="without an open size 'classes'"):
        ll.replace_head(named, None)


@pytest.mark.parametrize(
    "record", ["[]x", '{"head.weight": 1}', '{"head.weight": {"low": 0, "high": 1, "stream": [1]}}']
)
def test_a_damaged_record_is_refused(record: str) -> None:
    damaged = step()
    (entry,) = (entry for entry in damaged.metadata_props if entry.key == "lstm_lower.first_values")
    for text in (record, entry.value.replace("[3,0]", f"[{2**70},0]")):
        entry.value = text
        with pytest.raises(InvalidModelError, match=r"metadata 'lstm_lower\.first_values'"):
            ll.Trainer(damaged, sizes=FIVE)


def test_a_checkpoint_and_other_heads(tmp_path: Path) -> None:
    trainer = ll.Trainer(step(), sizes=FIVE)
    trainer.step(FEEDS)
    trainer.save(tmp_path / "checkpoint.safetensors")
    again = ll.Trainer(step(), initial_values=checkpoint.read(tmp_path / "checkpoint.safetensors")[0])
    again.resume(tmp_path / "checkpoint.safetensors")
    assert again.step(FEEDS).loss == trainer.step(FEEDS).loss
    with pytest.raises(InvalidInputError, match="head"):
        ll.Trainer(step(), sizes={"classes": 6}).resume(tmp_path / "checkpoint.safetensors")
    # A head that is open is replaced like any other, and stays as it is where it is not trained.
    fixed = ll.replace_head(ll.replace_head(model(), None), 4)
    assert [value.name for value in fixed.graph.input] == ["x"]
    kept = ll.Trainer(step(None, "sgd", "u"), sizes=FIVE)
    before = kept.state_dict()
    kept.step(FEEDS)
    np.testing.assert_array_equal(kept.state_dict()["head.weight"], before["head.weight"])
    assert not np.array_equal(kept.state_dict()["u"], before["u"])


def test_a_bundle(tmp_path: Path) -> None:
    """Its first state is that of the trainer bit for bit, and so are its losses."""
    bundle, adapter = tmp_path / "bundle", tmp_path / "adapter.safetensors"
    ll.export_training(step(), bundle)
    about = json.loads((bundle / "training.json").read_text())
    assert about["sizes"] == ["classes"]
    assert about["predict"]["state"] == ["head.weight", "head.bias"]
    init, train = (ort.InferenceSession(bundle / f"{name}.onnx") for name in ("init", "train"))
    state = dict(zip([x.name for x in init.get_outputs()], init.run(None, {"classes": np.array(5)}), strict=True))
    trainer = ll.Trainer(step(), sizes=FIVE)
    for name, value in trainer.state_dict().items():
        np.testing.assert_array_equal(state[name], value)
    rate = {about["learning_rate"]["name"]: np.array(about["learning_rate"]["value"], np.float32)}
    assert train.run([about["loss"]], {**state, **rate, **FEEDS})[0] == trainer.step(FEEDS).loss
    ll.export_adapter(bundle, trainer, adapter)
    merged = ll.merge(bundle, adapter)
    assert [dim.dim_value for dim in merged.graph.output[0].type.tensor_type.shape.dim][1] == 5
    (got,) = ort.InferenceSession(merged.SerializeToString()).run(None, {"x": X})
    expected = trainer.predict({"x": X})["y"]
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)
    trainer.export(tmp_path / "tuned.onnx")
    np.testing.assert_allclose(
        ort.InferenceSession(tmp_path / "tuned.onnx").run(None, {"x": X})[0], expected, rtol=1e-6, atol=1e-6
    )
    # Of a trainer the count is known.
    about = json.loads((ll.export_training(trainer, tmp_path / "known") / "training.json").read_text())
    assert (about["sizes"], about["predict"]["state"]) == ([], [])
    # Values of two counts are no adapter.
    arrays = {"head.weight": np.zeros((8, 5), np.float32), "head.bias": np.zeros(4, np.float32)}
    checkpoint.write_arrays(adapter, arrays)
    with pytest.raises(InvalidInputError, match=r"'head\.bias' requires float32\[5\], got float32\[4\]"):
        ll.merge(bundle, adapter)


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    monkeypatch.chdir(tmp_path)
    onnx.save(ll.replace_head(model(), None, seed=3), "open.onnx")
    np.savez("data.npz", **FEEDS)
    options = ["open.onnx", "--loss", "cross_entropy", "--optimizer", "adam", "--trainable", "head.*"]
    train = ["train", *options, "--data", "data.npz", "--out", "run", "--no-plot", "--no-shuffle", "--batch-size", "6"]
    failed = CliRunner().invoke(app, train)
    assert failed.exit_code == 1
    assert "--dim classes=5" in failed.output
    done = CliRunner().invoke(app, [*train, "--dim", "classes=5", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["loss"] == ll.Trainer(step(), sizes=FIVE).step(FEEDS).loss
    export = ["export", *options, "-o"]
    for more, sizes in (
        (["--clip-norm", "1"], ["classes"]),
        (["--dim", "classes=5"], []),
        (["--trained", "run/best.safetensors"], []),
    ):
        done = CliRunner().invoke(app, [*export, "bundle", *more])
        assert done.exit_code == 0, done.output
        assert json.loads(Path("bundle/training.json").read_text())["sizes"] == sizes
