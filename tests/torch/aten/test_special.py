"""Special functions next to PyTorch's, at poles, far out and where digits are lost."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402

from tests.support.aten import check  # noqa: E402

_NUMBERS = [-30.5, -4.3, -2.5, -1.2, -0.7, -1e-4, 1e-6, 0.3, 0.99, 1.0, 2.0, 3.7, 9.5, 40.0]
_SHARES = [1e-6, 0.02, 0.3, 0.5, 0.75, 0.999]


@pytest.mark.parametrize(
    "name", ["erf", "erfc", "special.erfcx", "special.ndtr", "special.log_ndtr", "lgamma", "digamma"]
)
def test_of_all_numbers(name: str) -> None:
    holder = torch.special if name.startswith("special.") else torch
    function = getattr(holder, name.removeprefix("special."))
    numbers = torch.tensor([x for x in _NUMBERS if x > -5 or name != "special.erfcx"], dtype=torch.float64)
    check(function, [numbers], [numbers[3:9]], tolerance=1e-4)


@pytest.mark.parametrize("name", ["erfinv", "special.ndtri"])
def test_of_shares(name: str) -> None:
    holder = torch.special if name.startswith("special.") else torch
    check(getattr(holder, name.removeprefix("special.")), [torch.tensor(_SHARES)], [torch.tensor(_SHARES[:3])])


def test_of_several_operands() -> None:
    positive = torch.tensor([0.4, 1.5, 3.0, 12.0])
    check(lambda x: torch.polygamma(0, x), [positive], [positive[:2]], tolerance=3e-5)
    check(lambda x: torch.polygamma(2, x), [positive], [positive[:2]], tolerance=3e-5)
    check(lambda x: torch.mvlgamma(x + 1, 2), [positive], [positive[:2]], tolerance=3e-5)
    check(torch.special.zeta, [positive + 1.5, positive], [positive[:2] + 2, positive[:2]], gradients=False)


def test_of_integers() -> None:
    def functions(x: Tensor) -> list[Tensor]:
        return [torch.erf(x), torch.lgamma(x), torch.special.ndtr(x)]

    check(functions, [torch.tensor([1, 2, 5])], [torch.tensor([3])], gradients=False, dtypes=[torch.float32])
