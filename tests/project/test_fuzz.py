"""A small part of what `python -m tests.fuzz` does for as long as one likes, and its own parts put to the test."""

from __future__ import annotations

import dataclasses
import time

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

from lstm_lower.graph.subgraphs import all_nodes
from tests.support.fuzz import comparison, damage, entrances, files, node_tests
from tests.support.fuzz.comparison import Case
from tests.support.fuzz.programs import program
from tests.support.fuzz.reducing import reduced
from tests.support.fuzz.work import cases_for, training

# Seeds that give a valid program.
PROGRAMS = (1, 3, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24)
DAMAGED = range(21)
# Seeds whose training steps can be compared.
TRAINED = (1, 2, 3, 4, 5, 6, 11, 12, 13, 17, 18, 24)
# Modules of onnx's node tests; all of them take long to make.
MODULES = ("reducesum", "slice", "transpose")


@pytest.mark.parametrize("seed", PROGRAMS)
def test_a_random_program_keeps_its_meaning(seed: int) -> None:
    generated = program(seed)
    assert comparison.failures(generated.model, generated.feeds, cases_for(seed)) == []


@pytest.mark.parametrize("seed", TRAINED)
def test_a_random_training_step_is_that_of_pytorch(seed: int) -> None:
    pytest.importorskip("torch")
    assert training(seed, {}, [], lambda _: None)["verdict"] == "right"


@pytest.mark.parametrize("seed", DAMAGED)
def test_a_damaged_model_is_refused_with_an_error_of_ours(seed: int) -> None:
    quick = [name for name in entrances.ENTRANCES if name not in entrances.RUNNING]
    chosen = {name: entrances.ENTRANCES[name] for name in [quick[seed % len(quick)]]}
    assert list(entrances.faults(damage.damaged(seed), seed, lambda _: None, chosen)) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", [name for name in files.ENTRANCES if "TensorFlow" not in name])
def test_a_damaged_file_is_refused_with_an_error_of_ours(name: str, seed: int) -> None:
    assert list(entrances.faults(b"", seed, lambda _: None, {name: files.ENTRANCES[name]})) == []


@pytest.mark.parametrize("name", node_tests.names(*MODULES))
def test_an_onnx_node_test_is_unchanged(name: str) -> None:
    for form, model, feeds in node_tests.forms(name, *MODULES):
        assert comparison.failures(model, [feeds], [Case("auto")]) == [], form


def test_statistics_that_a_loop_captures_stay_apart() -> None:
    """onnxruntime writes the new ones over the old ones, whoever else reads them."""
    for form, model, feeds in node_tests.forms("test_batchnorm_example_training_mode", "batch_normalization"):
        assert comparison.failures(model, [feeds], [Case("unroll")]) == [], form


@dataclasses.dataclass(frozen=True)
class WrongCase(Case):
    """A compiler that takes every Tanh for a Sigmoid."""

    def apply(self, model: onnx.ModelProto) -> onnx.ModelProto:
        work = onnx.ModelProto()
        work.CopyFrom(model)
        for node in work.graph.node:
            node.op_type = "Sigmoid" if node.op_type == "Tanh" else node.op_type
        return work


def tanh_among_others() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    nodes = [
        helper.make_node("Neg", ["x"], ["a"]),
        helper.make_node("Tanh", ["a"], ["b"]),
        helper.make_node("Mul", ["b", "x"], ["y"]),
        helper.make_node("Abs", ["x"], ["z"]),
    ]
    infos = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in "xyz"]
    graph = helper.make_graph(nodes, "graph", infos[:1], infos[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model, {"x": np.array([0.5, -1], np.float32)}


@pytest.mark.slow
def test_a_wrong_pass_is_found_and_its_model_made_small() -> None:
    model, feeds = tanh_among_others()
    found = comparison.failures(model, [feeds], [WrongCase()])
    assert [failure.kind for failure in found] == ["values (plain)"]
    small = reduced(model, feeds, lambda candidate: comparison.fails_alike(candidate, [feeds], found[0]))
    assert [node.op_type for node in small.graph.node] == ["Tanh"]


def test_a_right_pass_is_not_blamed() -> None:
    model, feeds = tanh_among_others()
    assert comparison.failures(model, [feeds], [Case("auto"), Case(opset=18)]) == []


def test_programs_are_small_and_quickly_made() -> None:
    """Long runs need tens of thousands of them."""
    begin = time.process_time()
    models = [program(seed).model for seed in PROGRAMS]
    assert time.process_time() - begin < len(PROGRAMS)
    assert max(model.ByteSize() for model in models) < 1 << 18
    assert max(sum(1 for _ in all_nodes(ir.from_proto(model).graph)) for model in models) < 1000


def test_a_seed_always_gives_the_same() -> None:
    assert program(3).model == program(3).model
    assert damage.damaged(3) == damage.damaged(3)
