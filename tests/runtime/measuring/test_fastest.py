"""The fastest provider: who is measured, who is chosen, what is kept of it, and what opens with it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

import lstm_lower as ll
from lstm_lower.errors import InvalidInputError
from lstm_lower.records.model_files import load
from lstm_lower.runtime import providers
from lstm_lower.runtime.feeds import random_feeds
from lstm_lower.runtime.measuring import fastest
from lstm_lower.runtime.measuring.bench import usual_providers
from lstm_lower.runtime.measuring.fastest import UNROLL, Choice, Timing, choose
from lstm_lower.runtime.measuring.results import Engine
from tests.support.command_line import TRAIN, fail, run
from tests.support.measured import ProviderRun

ROOT = Path(__file__).parents[3]
X = np.ones((8, 64), np.float32)
COUNTING = """counting (float[3,4] x) => (float[4] last, float[3,4] sums) {
  zero = Constant<value = float[4] {0,0,0,0}>()
  last, sums = Scan <num_scan_inputs = 1, body = row (float[4] a, float[4] b) => (float[4] c, float[4] d) {
      c = Add(a, b)
      d = Identity(c)
  }> (zero, x)
}"""


def parsed(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]> {text}')


def product(further: str = "") -> onnx.ModelProto:
    """`tanh(x @ w)` with a weight that a step trains."""
    model = parsed(f"product (float[N,64] x) => (float[N,16] y) {{ xw = MatMul(x, w) {further} y = Tanh(xw) }}")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.full((64, 16), 0.01, np.float32), "w"))
    return model


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def there(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setattr(providers, "is_installed", lambda row: row.short in names)


@pytest.fixture
def measurements(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[Engine]]:
    """Records who is measured; another provider than the processor takes half the time."""
    calls: list[Sequence[Engine]] = []

    def measured(model: ir.Model, feeds: Any, there: Sequence[Engine], *_: object, **__: object) -> list[Timing]:
        calls.append(there)
        return [Timing("cpu", None, 0.02, 1.0), Timing("ggml", None, 0.01, 1.0)]

    monkeypatch.setattr(fastest, "measured", measured)
    there(monkeypatch, "cpu", "ggml")
    return calls


def timed(*rows: tuple[str, float, float]) -> str:
    return Choice(tuple(Timing(name, None, run, load) for name, run, load in rows)).provider


def test_the_choice_counts_loading_and_needs_more_than_noise() -> None:
    assert timed(("cpu", 2e-3, 1), ("ggml", 1e-3, 1), ("webgpu", 3e-3, 0)) == "ggml"
    assert timed(("cpu", 2e-3, 1), ("ggml", 1.96e-3, 1)) == "cpu", "two measurements differ by more"
    assert timed(("cpu", 1e-4, 0.2), ("ggml", 0.5e-4, 3)) == "cpu", "it would take 56,000 runs to gain that"
    assert Choice((Timing("cpu", None, 1.0), Timing("ggml", absence="wrong"))).provider == "cpu"


@pytest.mark.usefixtures("forked_workers")
def test_other_results_are_never_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fastest, "ModelRun", ProviderRun)
    there(monkeypatch, "cpu", "cuda", "ggml", "webgpu")
    choice = choose(ir.from_proto(product()), {"N": 4}, threads=1, seconds=0.05)
    by_name = {timing.provider: timing for timing in choice.timings}
    assert choice.provider == "cuda"
    assert by_name["cpu"].run == 0.02
    assert by_name["cpu"].load == pytest.approx(0.5, rel=0.5)
    assert by_name["ggml"].run is None, "although it is the fastest"
    assert "computes something else than the first contestant's results: output 'y'" in str(by_name["ggml"].absence)
    assert by_name["webgpu"].absence == "provider 'webgpu' finds no device"
    expected = (
        r"cuda [\d.]+ ms a run, 0\.5\d? s to load; cpu .+; not ggml, webgpu \(bench --recommend says why\); .+ N=4"
    )
    assert re.fullmatch(expected, str(choice))


@pytest.mark.usefixtures("forked_workers")
def test_one_that_fails_while_it_is_timed_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fastest, "ModelRun", ProviderRun)
    there(monkeypatch, "cpu", "coreml", "cuda")
    choice = choose(ir.from_proto(product()), {"N": 4}, threads=1, seconds=0.05)
    assert choice.provider == "cuda"
    by_name = {timing.provider: timing for timing in choice.timings}
    assert by_name["coreml"].run is None
    assert by_name["coreml"].absence == "it fails after a while"


@pytest.mark.usefixtures("forked_workers")
def test_what_cannot_be_compared_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fastest, "ModelRun", ProviderRun)
    there(monkeypatch, "cpu", "cuda")
    text = "random (float[4,16] x) => (float[4,16] y) { r = RandomUniformLike(x) y = Add(r, x) }"
    choice = choose(ir.from_proto(parsed(text)), threads=1, seconds=0.05)
    assert choice.provider == "cpu"
    assert choice.timings[1].absence == "its results, in which random numbers are, cannot be compared"


@pytest.mark.usefixtures("forked_workers")
def test_it_measures_what_is_here() -> None:
    choice = choose(ir.from_proto(product()), threads=1, seconds=0.02)
    assert choice.timings[0].provider == "cpu"
    # Where there is one provider alone, there is nothing to choose.
    assert (choice.timings[0].run is not None) == (len(choice.timings) > 1)
    assert choose(ir.from_proto(product()), threads=1).timings == choice.timings


def test_it_is_measured_once(measurements: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = ir.from_proto(product())
    first = choose(model, threads=2)
    assert (first.provider, first.remembered, len(measurements)) == ("ggml", False, 1)
    again = choose(ir.from_proto(product()), threads=2)
    assert (again.timings, again.remembered, len(measurements)) == (first.timings, True, 1)
    for changed in ({"fresh": True}, {"sizes": {"N": 5}}, {"threads": 3}):
        assert not choose(model, **{"threads": 2, **changed}).remembered
    assert len(measurements) == 4
    other = product("z = Exp(xw)")
    assert not choose(ir.from_proto(other), threads=2).remembered
    for name, value in (("processor", lambda: "another one"), ("lstm_lower.__version__", "0")):
        with monkeypatch.context() as patch:
            patch.setattr(f"lstm_lower.runtime.measuring.fastest.{name}", value)
            assert not choose(model, threads=2).remembered
    monkeypatch.setattr(providers, "version", lambda _: "9")
    assert not choose(model, threads=2).remembered
    assert choose(model, threads=2).remembered


@pytest.mark.parametrize("text", ["", "{", "[]", '[{"provider": "cpu"}]', '[{"provider": "abacus"}]', "5"])
def test_a_damaged_file_is_measured_again(measurements: list[Any], tmp_path: Path, text: str) -> None:
    model = ir.from_proto(product())
    choose(model, threads=2)
    (kept,) = (tmp_path / "cache/lstm-lower/fastest").iterdir()
    before = kept.read_text()
    kept.write_text(text)
    assert not choose(model, threads=2).remembered
    assert kept.read_text() == before


def test_without_a_place_to_keep_it(measurements: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    for count in (1, 2):
        assert choose(ir.from_proto(product()), threads=2).provider == "ggml"
        assert len(measurements) == count


def test_the_processor_alone_is_not_measured(measurements: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    there(monkeypatch, "cpu")
    session = ll.Session(product(), "fastest")
    assert str(session.choice) == "cpu (no other provider is installed)"
    assert session.run({"x": X})["y"].shape == (8, 16)
    trainer = ll.Trainer(ll.from_onnx(product(), "mse", "sgd"), ["fastest"], learning_rate=0.1)
    assert "chosen: cpu (no other provider is installed)" in repr(trainer)
    assert trainer.providers == [("CPUExecutionProvider", {})]
    assert measurements == []
    assert ll.Session(product()).choice is None


def test_what_does_not_run_on_the_processor_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is a model measured of which random data would take all memory; named sizes that do not fit are an error."""
    monkeypatch.setattr(fastest, "measured", lambda *_, **__: [Timing("cpu", absence="a wrong index")])
    there(monkeypatch, "cpu", "ggml")
    choice = choose(ir.from_proto(product()), threads=1)
    assert str(choice) == "cpu (not measured: a wrong index)"
    assert not choose(ir.from_proto(product()), threads=1).remembered
    large = parsed("large (float[300000000] x) => (float[300000000] y) { y = Tanh(x) }")
    assert str(choose(ir.from_proto(large), threads=1)).startswith("cpu (not measured: input 'x' requires sizes for")


def test_the_state_has_sizes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def measured(model: ir.Model, feeds: Any, *_: object, **__: object) -> list[Timing]:
        seen.append(feeds)
        return [Timing("cpu", run=1.0)]

    monkeypatch.setattr(fastest, "measured", measured)
    there(monkeypatch, "cpu", "ggml")
    text = "two (float[N,3] x, float[3,C] w, float[N,C] z) => (float[N,C] y) { p = MatMul(x, w) y = Add(p, z) }"
    choose(ir.from_proto(parsed(text)), {"N": 7}, values={"w": np.ones((3, 5), np.float32), "v": 1}, threads=1)
    assert {name: value.shape for name, value in seen[0].items()} == {"x": (7, 3), "w": (3, 5), "z": (7, 5)}


def test_sizes_that_it_is_measured_with(measurements: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def measured(model: ir.Model, feeds: Any, *_: object, **__: object) -> list[Timing]:
        seen.append(feeds)
        return [Timing("cpu", run=1.0)]

    monkeypatch.setattr(fastest, "measured", measured)
    step = ll.from_onnx(product(), "mse", "sgd")
    values = {"w": np.full((64, 16), 0.5, np.float32)}
    trainer = ll.Trainer(step, ("fastest", {"N": 32}), initial_values=values, learning_rate=0.1)
    assert trainer.choice is not None
    assert trainer.choice.sizes == {"N": 32}
    assert (seen[0]["x"].shape, seen[0]["w"][0, 0]) == ((32, 64), 0.5)
    with pytest.raises(InvalidInputError, match="require names of open sizes of inputs"):
        ll.Trainer(step, ("fastest", {"M": 32}))
    with pytest.raises(InvalidInputError, match="'fastest' stands alone, or with sizes to measure with, got"):
        ll.Session(product(), ["fastest", "cpu"])


@pytest.mark.usefixtures("measurements")
def test_a_session_opens_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model under the schedule that was the fastest."""
    rows = [Timing("cpu", None, 0.02, 1.0), Timing("cpu", UNROLL, 0.01, 1.0)]
    monkeypatch.setattr(fastest, "measured", lambda *_, **__: rows)
    lowered: list[ir.Model] = []

    def lower(model: ir.Model, **options: Any) -> ir.Model:
        lowered.append(ll.lower(model, **options))
        return lowered[-1]

    monkeypatch.setattr(fastest, "lower", lower)
    feeds = random_feeds(load(TRAIN))
    session = ll.Session(TRAIN, "fastest")
    assert session.choice is not None
    assert session.choice.chosen.name == "cpu, unrolled"
    assert not any(node.op_type == "Scan" for node in lowered[0].graph)
    expected = ll.Session(TRAIN).run(feeds)
    for name, value in session.run(feeds).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-4, atol=1e-6)


def test_who_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unrolled as well, where a provider runs loops, and a model has some."""
    engines = [Engine(name) for name in ("cpu", "openvino", "ggml")]
    names = lambda model: [timing.name for _, timing in fastest._entries(ir.from_proto(model), engines)]  # noqa: E731
    assert names(product()) == ["cpu", "openvino", "ggml"]
    assert names(parsed(COUNTING)) == ["cpu", "openvino", "openvino, unrolled", "ggml"]


def test_a_precision_has_its_own_field(measurements: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    there(monkeypatch, "cpu", "openvino", "ggml")
    choose(ir.from_proto(parsed(COUNTING)), precision="bfloat16", threads=1)
    assert measurements == [[Engine("openvino", "bfloat16")]], "float32 alone unless a precision is named"
    there(monkeypatch, "cpu")
    with pytest.raises(InvalidInputError, match="'bfloat16' requires a provider that computes in it, got none on this"):
        choose(ir.from_proto(product()), precision="bfloat16")


def test_words_name_a_provider_once() -> None:
    absent = [Timing("openvino", schedule, absence="no device") for schedule in (None, UNROLL)]
    rows = (Timing("cpu", None, 0.02, 1.0), *absent, Timing("ggml", None, 0.01, 2.0))
    expected = "ggml 10 ms a run, 2 s to load; cpu 20 ms a run, 1 s to load; not openvino (bench --recommend says why)"
    assert str(Choice(rows)) == f"{expected}; measured now"
    assert str(Choice(rows[:2], {"N": 4}, remembered=True)).endswith("; measured before, with N=4")


def test_a_comparison_is_on_what_offers_its_precisions() -> None:
    assert usual_providers() == usual_providers(["float32"]) == ["cpu"]
    assert usual_providers(["float32", "bfloat16"]) == ["cpu", "openvino"]


def test_the_command_recommends(measurements: list[Any], tmp_path: Path) -> None:
    result = run("bench", TRAIN, "--recommend", "--json", "--threads", "1")
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    assert (data["provider"], data["sizes"], len(data["timings"])) == ("ggml", {"batch": 4}, 2)
    for options in (["--provider", "cpu"], ["--schedule", "scan"], ["--plot", tmp_path / "a.svg"]):
        assert "--recommend times all providers with the model as it is, and takes no" in fail(
            "bench", TRAIN, "--recommend", *options
        )
    assert "cpu 20 ms a run, 1 s to load" in run("bench", TRAIN, "--recommend", "--threads", "1").stdout


def test_a_recommendation_is_what_a_trainer_opens(measurements: list[Any]) -> None:
    step = ll.from_onnx(product(), "mse", "adam")
    model, state = fastest.as_trained(ir.from_proto(step))
    choose(model, values=state)
    trainer = ll.Trainer(step, "fastest", learning_rate=0.01) if runs_ggml() else None
    assert len(measurements) == 1
    assert trainer is None or trainer.choice.remembered


def runs_ggml() -> bool:
    try:
        providers.resolve("ggml")
    except InvalidInputError:
        return False
    return True


def test_other_commands_refuse_it(tmp_path: Path) -> None:
    onnx.save(product(), tmp_path / "product.onnx")
    said = fail("check", tmp_path / "product.onnx", "--provider", "fastest")
    assert "provider 'fastest' requires a model to measure" in said


@pytest.mark.slow
def test_a_program_without_a_guard_is_not_run_again(tmp_path: Path) -> None:
    """A new process would otherwise run it once more, and that one start processes, too."""
    program = tmp_path / "program.py"
    program.write_text(
        "from lstm_lower.runtime.measuring.worker import Worker\n"
        "from tests.support.measured import Filler\n"
        "print('once')\n"
        "worker = Worker(Filler, 8, threads=1)\n"
        "print(worker.refusal, len(worker.times(2)))\n"
        "worker.close()\n"
    )
    done = subprocess.run(
        [sys.executable, str(program)], env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert done.stdout == "once\nNone 2\n", done.stderr
