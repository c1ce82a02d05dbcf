"""`--plugin` on every command, and what `ops` tells of the ops of others."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import typer.main

from lstm_lower.cli.main import app
from tests.support.command_line import fail, only_standard, run, succeed
from tests.support.plugins import EXAMPLE, LEAKY, doubling, own_registry  # noqa: F401

MODEL = EXAMPLE / "leaky.onnx"
PLUGIN = ("--plugin", LEAKY)

pytestmark = pytest.mark.usefixtures("own_registry")


def test_every_command_has_the_option() -> None:
    commands = typer.main.get_command(app).commands
    assert [name for name, command in commands.items() if all("--plugin" not in p.opts for p in command.params)] == []


def test_lower_and_run(tmp_path: Path) -> None:
    assert "1 LeakyIntegrator, 1 LeakyIntegratorGrad" in succeed(
        "lower", MODEL, "-o", tmp_path / "low.onnx", "--check", "--verify-each", *PLUGIN
    )
    only_standard(tmp_path / "low.onnx")
    np.savez(tmp_path / "in.npz", x=np.ones((2, 1, 3), np.float32), w=np.ones((3, 4), np.float32))
    outputs = json.loads(succeed("run", MODEL, "-i", tmp_path / "in.npz", "--json", *PLUGIN))["outputs"]
    assert outputs[0]["values"] == pytest.approx((9 + (3 + 0.8 * 3) ** 2) / 4)


@pytest.mark.slow
def test_inspect_check_and_optimize(tmp_path: Path) -> None:
    data = json.loads(succeed("inspect", MODEL, "--json", *PLUGIN))
    assert data["lowerable"] is True
    assert [composite["op"] for composite in data["before"]["composites"]] == ["LeakyIntegrator", "LeakyIntegratorGrad"]
    text = succeed("check", MODEL, "--finite-differences", "--dim", "T=3", *PLUGIN)
    assert "passed" in text
    assert "LeakyIntegratorGrad" in text
    message = fail("optimize", MODEL, "-o", tmp_path / "fast.onnx", *PLUGIN)
    assert "1 LeakyIntegrator, 1 LeakyIntegratorGrad: recurrent ops have loops only after lowering" in message


def test_train(tmp_path: Path) -> None:
    model = onnx.load(MODEL)
    model.graph.node.append(onnx.helper.make_node("Identity", ["w_grad"], ["grad_w"]))
    model.graph.output[1].name = "grad_w"
    onnx.save(model, tmp_path / "step.onnx")
    np.savez(tmp_path / "data.npz", x=np.ones((4, 2, 3), np.float32))
    np.savez(tmp_path / "weights.npz", w=np.ones((3, 4), np.float32))
    words = ("--data", tmp_path / "data.npz", "--initial", tmp_path / "weights.npz", "-o", tmp_path / "run")
    words += ("--optimizer", "sgd", "--learning-rate", "0.1", "--batch-size", "2", "--no-plot")
    assert "name it with --plugin" in fail("train", tmp_path / "step.onnx", *words)
    trained = run("train", tmp_path / "step.onnx", *words, *PLUGIN)
    assert trained.exit_code == 0
    assert "step 2 of 2" in trained.output


def test_without_the_plugin(tmp_path: Path) -> None:
    message = fail("lower", MODEL, "-o", tmp_path / "low.onnx")
    assert "LeakyIntegrator 'forward': domain 'com.example' is neither ai.onnx nor one of" in message
    assert "name it with --plugin" in message
    assert "name it with --plugin" in fail("run", MODEL)
    assert not (tmp_path / "low.onnx").exists()


def test_ops_lists_them_with_domain_and_module() -> None:
    listed = {row["op"]: row for row in json.loads(succeed("ops", "--json", *PLUGIN))}
    assert listed["LeakyIntegrator"]["domain"] == "com.example"
    assert listed["LeakyIntegrator"]["source"] == str(LEAKY)
    assert listed["LeakyIntegrator"]["oracle"] is True
    assert listed["BlockLSTM"]["source"] == "lstm-lower"
    text = succeed("ops", *PLUGIN)
    assert f"\n2 ops, as nodes of domain com.example, from {LEAKY}\n" in text
    assert " ops, as nodes of domain ai.onnx.converters.tensorflow or tf\n" in text


def test_ops_finds_names_and_what_they_may_have_meant(tmp_path: Path) -> None:
    assert "LeakyIntegrator" in succeed("ops", "com.example.LeakyIntegrator", *PLUGIN)
    assert "did you mean LeakyIntegrator" in fail("ops", "LeakyIntegrater", *PLUGIN)
    assert "did you mean com.example.LeakyIntegrator" in fail("ops", "com.example.leakyintegrator", *PLUGIN)
    two = [doubling(tmp_path / f"{name}.py", domain=f"{name}.example") for name in "ab"]
    options = [word for path in two for word in ("--plugin", path)]
    assert "several ops: a.example.Doubling or b.example.Doubling" in fail("ops", "Doubling", *options)
    assert json.loads(succeed("ops", "b.example.Doubling", "--json", *options))["source"] == str(two[1])


def test_a_plugin_at_fault_is_one_line(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("1 / 0")
    for command in (("ops",), ("lower", MODEL, "-o", tmp_path / "x.onnx"), ("check", MODEL)):
        message = fail(*command, "--plugin", broken)
        assert message.startswith(f"error: plugin '{broken}' requires ")
        assert message.count("\n") == 1
    error = json.loads(run("inspect", MODEL, "--json", "--plugin", "missing_ops").stdout)["error"]
    assert error["type"] == "InvalidInputError"
    assert "No module named 'missing_ops'" in error["message"]
