"""TensorFlow's ordinary ops: definitions, oracles and lowered models against TensorFlow and its recorded results."""

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
from lstm_lower.runtime.proof.oracles.registry import ORACLES
from tests.rules.test_gradients import run
from tests.support.ordinary.case import BFLOAT16, Case, recording
from tests.support.ordinary.families import MODULES, all_cases, cases
from tests.support.ordinary.models import KERNEL, ROUNDING, assert_close, model_of, oracle_results
from tests.support.recorded import assert_recorded
from tests.support.side_by_side import SideBySide

RECORDED = [(family, case) for family, case in all_cases() if case.recorded]
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


@pytest.mark.parametrize("op", sorted({case.op for _, case in RECORDED}))
def test_oracle_equals_tensorflow(op: str) -> None:
    for family, case in RECORDED:
        if case.op != op:
            continue
        exact, recorded = oracle_results(case), recording(family)[case.id]
        assert list(exact) == list(recorded), case.id
        for name, kernel in recorded.items():
            assert_close(case, f"{case.id}: {name}", kernel, exact[name], KERNEL.get(kernel.dtype.name, 0))


IMAGE_GRADIENTS = {
    "ResizeNearestNeighborGrad": ("ResizeNearestNeighbor", "images", "grads"),
    "ResizeBilinearGrad": ("ResizeBilinear", "images", "grads"),
    "LRNGrad": ("LRN", "input", "input_grads"),
}


@pytest.mark.parametrize("op", IMAGE_GRADIENTS)
def test_oracle_of_images_is_the_derivative(op: str) -> None:
    forward, image, cotangent = IMAGE_GRADIENTS[op]
    rng, step = np.random.default_rng(3), 1e-6
    for _, case in all_cases():
        if case.op != op or "float32" not in case.what:
            continue
        (gradient,) = oracle_results(case).values()
        dy = np.asarray(case.operands[cotangent], np.float64)
        x, direction = rng.standard_normal((2, *gradient.shape))
        given = {"size": np.array(dy.shape[1:3])} if forward.startswith("Resize") else {}
        if op == "LRNGrad":
            x = np.asarray(case.operands["input_image"], np.float64)
        (plus,), (minus,) = (
            ORACLES[forward](**{image: x + h * direction}, **given, **case.attributes).values() for h in (step, -step)
        )
        difference = np.vdot(plus - minus, dy) / (2 * step)
        np.testing.assert_allclose(np.vdot(gradient, direction), difference, rtol=1e-6, atol=1e-7, err_msg=case.id)


@pytest.mark.parametrize(("op", "operand"), [("Input", "input"), ("Filter", "filter")])
def test_oracle_of_dilation_is_the_derivative(op: str, operand: str) -> None:
    rng, step = np.random.default_rng(3), 1e-6
    for case in cases("morphology"):
        if case.op != f"Dilation2DBackprop{op}" or "float64" not in case.what:
            continue
        (gradient,), given = oracle_results(case).values(), dict(case.operands)
        dy, x = np.asarray(given.pop("out_backprop")), np.asarray(given[operand])
        direction = rng.standard_normal(x.shape)
        (plus,), (minus,) = (
            ORACLES["Dilation2D"](**{**given, operand: x + h * direction}, **case.attributes).values()
            for h in (step, -step)
        )
        difference = np.vdot(plus - minus, dy) / (2 * step)
        np.testing.assert_allclose(np.vdot(gradient, direction), difference, rtol=1e-6, atol=1e-7, err_msg=case.id)


@pytest.mark.parametrize("order", range(1, 5))
def test_oracle_of_polygamma_is_the_derivative_of_the_order_before(order: int) -> None:
    x, step = np.array([-7.2, -1.4, -0.1, 0.3, 1.2, 4, 50]), 1e-6
    plus, minus = (ORACLES["Polygamma"](a=order - 1.0, x=x + h)["z"] for h in (step, -step))
    exact = ORACLES["Polygamma"](a=float(order), x=x)["z"]
    np.testing.assert_allclose((plus - minus) / (2 * step), exact, rtol=1e-6)


@dataclasses.dataclass
class Wanted:
    """What a case's model is compared with: exact results, those of TensorFlow, and dtypes."""

    case: Case
    exact: dict[str, np.ndarray]
    kernels: dict[str, np.ndarray]
    dtypes: list[np.dtype]

    @classmethod
    def of(cls, family: str, case: Case) -> Self:
        exact = oracle_results(case)
        kernels = recording(family)[case.id] if case.recorded else {}
        dtypes = [kernels[name].dtype if kernels else _narrow(case, value) for name, value in exact.items()]
        return cls(case, exact, kernels, dtypes)

    def compare(self, results: Iterable[np.ndarray]) -> None:
        for (name, value), ours, dtype in zip(self.exact.items(), results, self.dtypes, strict=True):
            if dtype == BFLOAT16:
                ours = ours.astype(BFLOAT16)
            if dtype.kind == "c":
                ours = ours.view(dtype).reshape(ours.shape[:-1])
            label = f"{self.case.id}: {name}"
            assert ours.dtype == dtype, label
            assert_close(self.case, label, ours, value, ROUNDING.get(dtype.name, 0), self.kernels.get(name))


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
    lowered = ll.lower(together.model())
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
    modules = ("lstm_lower.ops.ordinary.", "lstm_lower.ops.random")
    ours = {op for op in REGISTRY.values() if op.__module__.startswith(modules)}
    # What draws has no results to compare, but statistics: test_drawing.py.
    drawing = {op.op_type for op in ours if op.draws({})}
    assert {op.op_type for op in ours} - drawing == {case.op for _, case in all_cases()} - {"CTCLoss", "CTCLossV2"}


def test_definitions_are_those_of_tensorflow() -> None:
    pytest.importorskip("tensorflow")
    from tests.data.record_ordinary import differences

    ours = [op for op in REGISTRY.values() if op.__module__.startswith("lstm_lower.ops.ordinary.")]
    assert [line for op in ours for line in differences(op)] == []


@pytest.mark.parametrize("family", MODULES)
def test_recording_is_what_tensorflow_computes(family: str) -> None:
    tf = pytest.importorskip("tensorflow")
    from tests.data.record_ordinary import record

    kept = recording(family)
    recorded = [case for case in cases(family) if case.recorded]
    assert [case.id for case in recorded] == list(kept)
    for case in recorded:
        try:
            computed = record(case)
        except tf.errors.UnimplementedError as error:
            # Of depthwise convolutions TensorFlow has this kernel for some processors only.
            assert "does not support dilations" in str(error)  # noqa: PT017
            continue
        for name, value in computed.items():
            assert value.dtype == kept[case.id][name].dtype, (case.id, name)
            assert_recorded(value, kept[case.id][name], 1e-6, case.id)
