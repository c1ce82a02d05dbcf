"""Bundles to be trained elsewhere, and how Python trains them; `--update-pictures` takes the page's picture anew."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.anywhere import conformance
from tests.anywhere.support import Case, compiled


@pytest.fixture(scope="session", params=conformance.CASES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A case of the conformance set, and its data in one file, too, as Node's example and the page take it."""
    if request.param == "torch_lstm":
        pytest.importorskip("torch", reason="PyTorch is not installed")
    if request.param == "keras_digits":
        pytest.importorskip("sklearn", reason="pip install scikit-learn has the digits")
    folder = tmp_path_factory.mktemp(request.param)
    np.savez_compressed(folder / "data.npz", **conformance.write(request.param, folder))
    expected = json.loads((folder / "expected.json").read_text())
    return Case(
        request.param, folder / "bundle", folder / "data.npz", expected["losses"], expected["classes"],
        expected["batch_size"],
    )  # fmt: skip


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example in C++."""
    return compiled(tmp_path_factory.mktemp("program"))
