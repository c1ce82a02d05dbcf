"""Fixtures that every test may use."""

from __future__ import annotations

import contextlib
import difflib
import gc
import importlib.util
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

from lstm_lower import telemetry
from tests.support import forks, schema, waiting

# Before any test imports onnxruntime: it and the processes that tests start report nothing then.
telemetry.turn_off()

# PyTorch's second thread waits for work by spinning, and tests' tensors are small: a hundred steps of a small GRU took
# 15 s of processor time, and 1.4 s in one thread. Read where PyTorch is first imported, here and in processes of tests.
os.environ.setdefault("OMP_NUM_THREADS", "1")

waiting.without_spinning()

# Looks for garbage less often, a tenth of the tests' time: models, modules and tests are many small objects that stay.
# From the start, since every import and every test that is collected is among them.
gc.set_threshold(50_000, 20, 20)

# PyTorch imports triton late, with its first optimizer, and the process ends there if TensorFlow was imported before:
# both have an LLVM of their own.
if importlib.util.find_spec("tensorflow"):
    with contextlib.suppress(ImportError):
        importlib.import_module("triton")

# How long an example takes tells of the machine's other work, not of what is tested.
hypothesis.settings.register_profile("tests", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("tests")

GOLDENS = Path(__file__).parent / "golden"

Golden = Callable[..., None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--slow", action="store_true", help="run the tests marked slow, too, as continuous integration does"
    )
    parser.addoption("--update-goldens", action="store_true", help="write tests/golden/*.txt anew instead of comparing")
    parser.addoption("--update-pictures", action="store_true", help="take docs/images/train_in_browser.png anew")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves slow tests out, unless they are asked for: by an option that needs them all, or by name."""
    options = ("slow", "update_goldens", "update_pictures")
    if any(map(config.getoption, options)) or any("::" in argument for argument in config.args):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]


def pytest_collection_finish() -> None:
    """Does not look for garbage among what stays to the end."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _descriptions_fit_their_schema() -> Iterator[None]:
    """Every bundle that a test writes has a description as docs/training.schema.json says."""
    with schema.checked():
        yield


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compares texts with those kept in `tests/golden/<name>.txt`, or writes them under `--update-goldens`.

    `golden("block_lstm", before=dump(model), after=dump(lowered))`: one file, a section per keyword.
    """
    update: bool = request.config.getoption("--update-goldens")

    def compare(name: str, **sections: str) -> None:
        text = "\n".join(f"-- {title}\n{section.rstrip()}\n" for title, section in sections.items())
        path = GOLDENS / f"{name}.txt"
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        kept = path.read_text(encoding="utf-8") if path.is_file() else ""
        if kept != text:
            difference = "\n".join(
                difflib.unified_diff(kept.splitlines(), text.splitlines(), f"golden/{name}.txt", "now", lineterm="")
            )
            pytest.fail(
                f"{difference}\n\nIf this is meant, run pytest --update-goldens and read the diff.", pytrace=False
            )

    return compare


@pytest.fixture
def forked_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that measure are forks of one that has imported what they need; tests of the processes spawn them."""
    monkeypatch.setattr("lstm_lower.runtime.measuring.worker.multiprocessing", forks.forking("torch"))


@pytest.fixture
def many_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every LSTM is one of many sequences, whose steps stay a loop."""
    monkeypatch.setattr("lstm_lower.passes.targets.recurrent_kernels.MOST_GATES", 0)
