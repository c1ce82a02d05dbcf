"""A small part of `python -m tests.fuzz torch`: random modules, their steps against PyTorch's own."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from tests.support.fuzz.torch_modules.ends import program
from tests.support.fuzz.torch_modules.judging import Trial, fault
from tests.support.fuzz.torch_modules.program import PLAIN, SGD, Input, Line, Program
from tests.support.fuzz.torch_modules.work import reduced

QUICK = (1, 2)
SLOW = (5, 7, 9, 11, 12)


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


# Faults that random modules have shown: of `v1`, a result [b, t, 4] of a layer, or of `w`, a copy of it.
SHOWN = {
    "masks in lists beside indices": "v1[[True, False, True], [0, -1]]",
    "masks in lists beside numbers and indices": "v1[[True, True, True], -2, [0]]",
    "lists that are taken for tuples": "v1[[[True, False, True], [True, False, False, False, True]]]",
    "masks beside indices": "v1[v1[:, 0, 0] < 9, :, torch.arange(v1.size(0))]",
    "masks beside masked indices": "v1[v1[:, 0, 0] > 0, (torch.arange(v1.size(0)) % 2)[v1[:, 0, 0] > 0]]",
    "masks that are set": "w[[True, False, True], [0, 1]] = 0.5\nw[v1[:, 0, 0] < 9, [0, 1, 2]] *= 2",
    "parts of every other step": "v1[:, ::2].split(2, 1)[0]",
    "every other step": "torch.stack([x * number for number, x in enumerate(v1[:, ::2].unbind(1))])",
    "windows of one image": "F.fold(F.unfold(v1, 2), (v1.size(1), 4), 2)",
}


@pytest.mark.slow
@pytest.mark.parametrize("text", SHOWN.values(), ids=SHOWN)
def test_a_fault_that_was_shown(text: str) -> None:
    layer = Line("v1 = self.m0(x0)", ["v1"], ["self.m0 = nn.Linear(3, 4)"])
    text = f"w = v1 * 1\n{text}\nv2 = w" if "w[" in text else f"v2 = {text}"
    found = small(layer, Line(text, ["v2"], []))
    found.inputs = [Input("x0", "torch.randn(b, t, 3)")]
    assert fault(found) == ("", "")
