"""A small part of `python -m tests.fuzz torch`: random modules, their steps against PyTorch's own."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("onnxscript")

from tests.support.fuzz.torch_modules.ends import program
from tests.support.fuzz.torch_modules.judging import Trial, fault
from tests.support.fuzz.torch_modules.program import PLAIN, SGD, Input, Line, Program
from tests.support.fuzz.torch_modules.work import reduced

QUICK = (1, 2)
SLOW = (0, 4, 5, 7, 9, 10, 11, 12)


@pytest.mark.parametrize("seed", [*QUICK, *(pytest.param(seed, marks=pytest.mark.slow) for seed in SLOW)])
def test_a_random_module_trains_as_in_pytorch(seed: int) -> None:
    assert fault(program(seed)) == ("", "")


def test_a_seed_always_gives_the_same() -> None:
    assert program(3).source() == program(3).source()


def small(*lines: Line) -> Program:
    return Program([Input("x0", "torch.randn(b, 3)")], list(lines), [lines[-1].makes[0]], PLAIN, [], SGD)


LINEAR = Line("v1 = self.m0(x0)", ["v1"], ["self.m0 = nn.Linear(3, 2)"])


def test_a_wrong_gradient_is_found() -> None:
    trial = Trial(small(LINEAR))
    sizes = [(3, 5)]
    got = trial.steps(sizes)
    assert trial.compared(got, sizes) == ("", "")
    got[0]["grad/m0.weight"] = got[0]["grad/m0.weight"] + np.float32(1e-3)
    assert trial.compared(got, sizes)[0] == "wrong grad"


def test_a_module_is_made_small() -> None:
    kept = Line("v2 = torch.linalg.eigvalsh(v1.T @ v1)", ["v2"], [])
    large = small(LINEAR, Line("v3 = torch.tanh(v1)", ["v3"], []), kept, Line("v4 = v2 + v3.sum()", ["v4"], []))
    kind, _ = fault(large)
    assert "eigh" in kind or "eigvalsh" in kind
    found = reduced(large, kind)
    assert [line.makes for line in found.lines] in ([["v1"], ["v2"]], [["v2"]])
    assert found.outputs == ["v2"]
