"""Gradients of Einstein's summation, against central differences in float64."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.one_node import check_node

FORMS: dict[str, list[tuple[int, ...]]] = {
    "ij,jk->ik": [(2, 3), (3, 4)],
    "ij,jk": [(2, 3), (3, 4)],
    "ba, cb": [(2, 3), (4, 2)],
    "i,j->ji": [(2,), (3,)],
    "i,i": [(3,), (3,)],
    "i,i,i->": [(3,), (3,), (3,)],
    "ab,bc,cd->da": [(2, 3), (3, 4), (4, 2)],
    "ij->ji": [(2, 3)],
    "ij->ij": [(2, 3)],
    "ij->": [(2, 3)],
    "ijk->k": [(2, 3, 4)],
    "ii->i": [(3, 3)],
    "ii": [(3, 3)],
    "iij,ij->j": [(2, 2, 3), (2, 3)],
    "ijij->ji": [(2, 3, 2, 3)],
    "iii->": [(3, 3, 3)],
    "->": [()],
    ",ij->ij": [(), (2, 3)],
    ",": [(), ()],
    "ij,k->i": [(2, 3), (4,)],
    "...ij,...jk->...ik": [(5, 2, 3), (5, 3, 4)],
    "...ij,jk": [(5, 2, 3), (3, 4)],
    "...ij,...jk->...ki": [(2, 1, 2, 3), (1, 5, 3, 4)],
    "...,...->...": [(2, 3), (1, 3)],
    "...ii->...i": [(2, 3, 3)],
    "...ii->i...": [(2, 4, 3, 3)],
    "i...->...": [(2, 3, 4)],
    "...": [(2, 3)],
    "ij...,j...->i...": [(2, 3, 4), (3, 4)],
    "bhqd,bhkd->bhqk": [(2, 2, 3, 4), (2, 2, 5, 4)],
    "ij,jk->k": [(0, 3), (3, 4)],
}


@pytest.mark.parametrize("equation", FORMS)
def test_equation(equation: str) -> None:
    rng = np.random.default_rng(0)
    operands = [np.asarray(rng.standard_normal(shape)) for shape in FORMS[equation]]
    check_node("Einsum", operands, equation=equation, twice=len(operands) < 3)
