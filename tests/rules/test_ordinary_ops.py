"""TensorFlow's ordinary ops: definitions and lowered models against TensorFlow and its recorded results."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterable
from typing import Self

import numpy as np
import onnx
import pytest

import lstm_lower as ll
from lstm_lower.opdef import REGISTRY, DType
from lstm_lower.ops.raw import SIGNATURES, RawOp
from tests.rules.test_gradients import run
from tests.support import gradient_cases, math_cases, spatial_cases
from tests.support.examples import TIMES
from tests.support.ordinary.case import BFLOAT16, Case, recording
from tests.support.ordinary.families import MODULES, all_cases, cases
from tests.support.ordinary.models import assert_close, model_of, results_of
from tests.support.recorded import assert_recorded
from tests.support.side_by_side import SideBySide

# Opsets of a model, whether sizes are open, and whether not even ranks are known.
FORMS = ((13, True, False), (18, False, False), (21, True, False))
UNRANKED = (21, True, True)

Group = list[tuple[str, Case]]


def grouped() -> dict[tuple[str, tuple[int, bool, bool]], Group]:
    """Cases by op and form: each form for a third of an op's cases."""
    found: dict[tuple[str, tuple[int, bool, bool]], Group] = {}
    for family, case in all_cases():
        form = FORMS[zlib.crc32(case.id.encode()) % len(FORMS)]
        found.setdefault((case.op, form), []).append((family, case))
        if case.unranked:
            found.setdefault((case.op, UNRANKED), []).append((family, case))
    return found


GROUPS = [
    pytest.param(group, *form, id=f"{op}-{form[0]}{'-open' * form[1]}{'-unranked' * form[2]}")
    for (op, form), group in grouped().items()
]


@dataclasses.dataclass
class Wanted:
    """What a case's model is compared with, and of which dtypes."""

    case: Case
    results: dict[str, np.ndarray]
    dtypes: list[np.dtype]

    @classmethod
    def of(cls, family: str, case: Case) -> Self:
        results = results_of(family, case)
        dtypes = [value.dtype if case.recorded else _narrow(case, value) for value in results.values()]
        return cls(case, results, dtypes)

    def compare(self, results: Iterable[np.ndarray]) -> None:
        for (name, value), ours, dtype in zip(self.results.items(), results, self.dtypes, strict=True):
            if dtype == BFLOAT16:
                ours = ours.astype(BFLOAT16)
            if dtype.kind == "c":
                ours = ours.view(dtype).reshape(ours.shape[:-1])
            label = f"{self.case.id}: {name}"
            assert ours.dtype == dtype, label
            assert_close(self.case, label, ours, value)


def _narrow(case: Case, exact: np.ndarray) -> np.dtype:
    """The dtype of a result that TensorFlow did not compute: as asked, integers as they are, else the operands'."""
    for name in ("T", "Tcomplex", "Treal"):
        if name in case.attributes:
            return DType(case.attributes[name]).numpy()
    if exact.dtype.kind in "biu":
        return exact.dtype
    parts = [part for value in case.operands.values() for part in (value if isinstance(value, list) else [value])]
    return next(part.dtype for part in parts if part.dtype.kind not in "biu")


@pytest.mark.parametrize(("group", "opset", "symbolic", "unranked"), GROUPS)
def test_lowered_equals_tensorflow(group: Group, opset: int, symbolic: bool, unranked: bool) -> None:
    """Cases side by side in one model; what an opset is too old for is refused."""
    taken, together = [], SideBySide()
    for family, case in group:
        wanted = Wanted.of(family, case)
        model, feeds = model_of(case, opset, wanted.dtypes, symbolic=symbolic, unranked=unranked)
        if symbolic and opset < case.since:
            with pytest.raises(ll.UnsupportedOpError):
                ll.lower(model)
            continue
        taken.append(wanted)
        together.add(model, feeds)
    if not taken:
        return
    # Two forms of three are optimised.
    lowered = ll.lower(together.model(), optimize=opset != 18)
    assert {node.domain for node in lowered.graph.node} <= {""}
    if not unranked:
        # The checker asks for the rank of every output.
        onnx.checker.check_model(lowered, full_check=True)
    for wanted, results in zip(taken, together.results(run(lowered, together.feeds)), strict=True):
        wanted.compare(results)


def test_sizes_of_equal_nodes_may_differ() -> None:
    """Nodes that differ in numbers alone share what a rule emits, and no size that follows from the numbers."""
    group = [(family, case) for family, case in all_cases() if case.op == "Range" and case.id.endswith("-float32")]
    assert len(group) > 1
    test_lowered_equals_tensorflow(group, 18, symbolic=False, unranked=False)


def test_every_op_has_a_case() -> None:
    """The others are among the cases of gradients, losses, segments and images."""
    elsewhere = {case.op for module in (gradient_cases, math_cases, spatial_cases) for case in module.cases()}
    ours = {op for op in REGISTRY.values() if issubclass(op, RawOp) and op.op_type not in elsewhere}
    # What draws has no results to compare, but statistics: test_drawing.py.
    drawing = {op.op_type for op in ours if op.draws({})}
    assert {op.op_type for op in ours} - drawing == {case.op for _, case in all_cases()}


def test_signatures_are_those_of_tensorflow() -> None:
    pytest.importorskip("tensorflow")
    from lstm_lower.tensorflow.signature_table import text

    assert SIGNATURES.read_text(encoding="utf-8") == text()


@pytest.mark.parametrize("family", MODULES)
def test_recording_is_what_tensorflow_computes(family: str) -> None:
    tf = pytest.importorskip("tensorflow")
    from tests.data.record_ordinary import record

    kept = recording(family)
    recorded = [case for case in cases(family) if case.recorded]
    assert [case.id for case in recorded] == list(kept)
    # What another version of TensorFlow computes otherwise shows in more than one case.
    for case in recorded[:: 1 if TIMES > 1 else 3]:
        try:
            computed = record(case)
        except tf.errors.UnimplementedError as error:
            # Of depthwise convolutions TensorFlow has this kernel for some processors only.
            assert "does not support dilations" in str(error)  # noqa: PT017
            continue
        for name, value in computed.items():
            assert value.dtype == kept[case.id][name].dtype, (case.id, name)
            assert_recorded(value, kept[case.id][name], 1e-6, case.id)
