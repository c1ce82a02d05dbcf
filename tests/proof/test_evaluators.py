"""The float64 reference next to onnxruntime: a small part of `python -m tests.fuzz reference`."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnx.reference.op_run
import pytest

from lstm_lower.runtime.proof import reference
from tests.support.fuzz import evaluators, node_tests
from tests.support.operator_cases import FORMS

# Operators that onnx's own evaluator has wrong, or once had.
MODULES = ("averagepool", "gru", "lppool", "lrn", "lstm", "maxpool", "rnn")
FINDINGS = (evaluators.REFUSED, evaluators.DIFFERS)


@pytest.mark.parametrize("op", sorted(FORMS))
def test_forms_of_operators(op: str) -> None:
    entries = list(evaluators.forms_of(op, 0, 3))
    assert [entry for entry in entries if entry[1] in FINDINGS] == []
    assert any(kind in (evaluators.AGREE, evaluators.FAULT) for _, kind, _ in entries)


@pytest.mark.parametrize("module", MODULES)
def test_node_tests(module: str) -> None:
    names = [name for name in node_tests.names(module) if node_tests.module_of(name.removeprefix("test_")) == module]
    entries = [entry for name in names[::3] for entry in evaluators.node_test(name, module)]
    assert entries
    assert [entry for entry in entries if entry[1] in FINDINGS] == []


MODEL = """<ir_version: 8, opset_import: ["" : 18]> g (float[3] x) => (float[3] y) { y = Softsign(x) }"""


@pytest.mark.parametrize(("factor", "kind"), [(1, evaluators.AGREE), (1.0001, evaluators.DIFFERS)])
def test_a_wrong_evaluator_is_found(factor: float, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    members = {"op_domain": "", "_run": lambda _, x: (factor * x / (1 + np.abs(x)),)}
    others = [known for known in reference.MENDED if known.__name__ != "Softsign"]
    monkeypatch.setattr(reference, "MENDED", (*others, type("Softsign", (onnx.reference.op_run.OpRun,), members)))
    model = onnx.parser.parse_model(MODEL)
    assert evaluators.outcome(model, {"x": np.float32([-1, 0.5, 3])})[0] == kind
    assert evaluators.opsets_of(model) == [18, 22]


def test_known_faults_of_onnxruntime_are_still_there() -> None:
    """Once they are mended, their entries go."""
    seen = {
        why
        for name in (
            "attention_4d_with_past_and_present_qk_matmul_bias_3d_mask_causal",
            "maxunpool_export_with_output_shape",
        )
        for _, kind, why in evaluators.node_test(f"test_{name}", "attention", "maxunpool")
        if kind == evaluators.FAULT
    }
    assert len(seen) == 2
