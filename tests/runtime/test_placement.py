"""Which provider runs which nodes, and captures by a GPU as far as they can be tested without one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import lstm_lower as ll
from lstm_lower.errors import InvalidInputError, UnsupportedOpError
from lstm_lower.runtime import providers, session
from lstm_lower.runtime.measuring.model_run import ModelRun
from lstm_lower.runtime.placement import Placement, placement
from lstm_lower.runtime.providers import row_of
from lstm_lower.runtime.session import CapturedRuns
from tests.support.provider_plugins import needs

CAPTURING = [("CUDAExecutionProvider", {"enable_cuda_graph": "1"})]
STEPS = """
<ir_version: 8, opset_import: ["" : 18]>
g (float[4,3] x, float[3] h) => (float[3] last)
{ last = Scan<num_scan_inputs = 1, body = b (float[3] a, float[3] e) => (float[3] s)
  { p = Mul(a, e) s = Tanh(p) }>(h, x) }"""


def one(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> g {text}')


def test_the_processor_runs_everything() -> None:
    found = placement(one("(float[3] x) => (float[3] y) { a = Neg(x) y = Exp(a) }"))
    assert found.wanted == "CPUExecutionProvider"
    assert [node.split()[0] for node in found.nodes[found.wanted]] == ["Neg", "Exp"]
    assert found.elsewhere == []
    found.require_whole()


def test_what_runs_elsewhere_is_named() -> None:
    needs("ggml")
    # It takes a graph whole or not at all.
    found = placement(one("(float[3] x) => (float[3] y) { a = Neg(x) y = Asinh(a) }"), "ggml")
    with pytest.raises(InvalidInputError, match=r"must run every node, got elsewhere Neg .+, Asinh .+\(CPU"):
        found.require_whole()


def test_many_are_not_all_named() -> None:
    found = Placement("a", {"a": ["Add 'n'"], "b": [f"Mul '{number}'" for number in range(20)]})
    with pytest.raises(InvalidInputError, match="Mul '7' \\(b\\) and 12 more"):
        found.require_whole()


@pytest.mark.parametrize("value", ["1", 1, True, "true"])
def test_a_provider_that_captures_has_a_target_of_its_own(value: object) -> None:
    assert providers.target_of([("CUDAExecutionProvider", {"enable_cuda_graph": value})]) == "cuda-graph"
    assert providers.target_of([("CUDAExecutionProvider", {"enable_cuda_graph": "0"})]) == "cuda"
    assert providers.target_of([("CPUExecutionProvider", {"enable_cuda_graph": value})]) is None


def test_a_session_that_captures_refuses_what_no_capture_holds() -> None:
    """What would be opened on a GPU, told by the provider's options alone."""
    loops = onnx.parser.parse_model(STEPS)
    with pytest.raises(UnsupportedOpError, match="no Scan, got 'last'"):
        session._loadable(loops, CAPTURING)
    unrolled = ll.lower(loops, target="cuda-graph")
    assert session._loadable(unrolled, CAPTURING) is not None
    feeds = {"x": np.ones((4, 3), np.float32), "h": np.ones(3, np.float32)}
    np.testing.assert_allclose(ll.Session(unrolled).run(feeds)["last"], ll.Session(loops).run(feeds)["last"], rtol=1e-6)


def test_a_session_of_captured_runs_keeps_its_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Told by what the runs are given: copies go in and come out."""
    monkeypatch.setattr(providers, "is_captured", lambda _: True)
    opened = ll.Session(one("(float[3] x) => (float[3] y, float[3] z) { y = Neg(x) z = Exp(y) }"))
    seen = []
    run = opened.ort.run_with_iobinding

    def recorded(binding: ort.IOBinding, options: ort.RunOptions) -> None:
        run(binding, options)
        seen.append([value.data_ptr() for value in binding.get_outputs()])

    monkeypatch.setattr(opened.ort, "run_with_iobinding", recorded)
    kept = [opened.run({"x": np.full(3, number, np.float32)}, ["y"]) for number in (1, 2)]
    assert [found["y"].tolist() for found in kept] == [[-1] * 3, [-2] * 3], "later runs do not write to results"
    assert opened.run({"x": np.zeros(3, np.float32)})["z"].tolist() == [1] * 3
    assert seen == [seen[0]] * 3
    with pytest.raises(InvalidInputError, match=r"input 'x' requires shape \[3\], got \[4\]"):
        opened.run({"x": np.ones(4, np.float32)})


def test_a_default_is_no_input_of_captured_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers, "is_captured", lambda _: True)
    opened = ll.Session(one("(float[3] x, float[3] w) => (float[3] y) <float[3] w = {1, 2, 3}> { y = Mul(x, w) }"))
    x = np.ones(3, np.float32)
    with pytest.raises(InvalidInputError, match="keeps the default of 'w', got a value for it; leave it away"):
        opened.run({"x": x, "w": x})
    assert opened.run({"x": x})["y"].tolist() == [1, 2, 3]


def test_captured_runs_are_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(providers, "is_captured", lambda _: True)
    onnx.save(one("(float[3] x) => (float[3] y) { y = Neg(x) }"), tmp_path / "model.onnx")
    x = np.ones(3, np.float32)
    measured = ModelRun(str(tmp_path / "model.onnx"), {"x": x}, 1)
    assert isinstance(measured._bound, CapturedRuns)
    measured.run()
    assert measured.results()["y"].tolist() == [-1] * 3
    assert len(measured.profile(2)) == 2
    measured.run_lean()


def test_the_name_of_captured_runs() -> None:
    row = row_of("cuda-graph")
    resolved = [(row.name, row.configure({}, "tf32"))]
    assert resolved == [("CUDAExecutionProvider", {"use_tf32": "1", "enable_cuda_graph": "1"})]
    assert providers.is_captured(resolved)
    assert providers.target_of(resolved) == "cuda-graph"
    assert providers.uncaptured(resolved) == [("CUDAExecutionProvider", {"use_tf32": "1"})]
    assert row_of("CUDAExecutionProvider").short == "cuda"


def test_a_trainer_of_captured_runs_keeps_every_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A capture for each turn of the state and each choice of outputs, told by what the runs are given."""
    step = ll.from_onnx(
        one("(float[3,2] x) => (float[3,2] y) <float[2,2] w = {1,0,0,1}> { y = MatMul(x, w) }"), "mse", "adam"
    )
    plain = ll.Trainer(step)
    monkeypatch.setattr(providers, "is_captured", lambda _: True)
    trainer = ll.Trainer(step)
    runs: list[tuple[str, dict[str, int]]] = []
    run = trainer.session.ort.run_with_iobinding

    def recorded(binding: ort.IOBinding, options: ort.RunOptions) -> None:
        run(binding, options)
        made = {str(number): value.data_ptr() for number, value in enumerate(binding.get_outputs())}
        runs.append((options.get_run_config_entry("gpu_graph_id"), made))

    monkeypatch.setattr(trainer.session.ort, "run_with_iobinding", recorded)
    random = np.random.default_rng(0)
    for number in range(8):
        feeds = {name: random.standard_normal((3, 2)).astype(np.float32) for name in trainer.inputs}
        outputs = ["y"] if number % 4 > 1 and "y" in trainer.outputs else []
        expected, found = plain.step(feeds, outputs), trainer.step(feeds, outputs)
        assert found.loss == expected.loss
        assert all(np.array_equal(found.outputs[name], expected.outputs[name]) for name in outputs)
    assert [capture for capture, _ in runs] == ["1", "2", "3", "4", "1", "2", "3", "4"]
    assert runs[:4] == runs[4:]
    for name, value in plain.state_dict().items():
        assert np.array_equal(trainer.state_dict()[name], value)
