"""A step beside its framework: what is compared, explained, refused and recorded."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import lstm_lower as ll
from lstm_lower.errors import InvalidModelError, UnsupportedOpError
from lstm_lower.records import certificate
from lstm_lower.report.analysis import analyse
from lstm_lower.report.contents import contents
from lstm_lower.runtime.proof import certification
from lstm_lower.runtime.proof.certification import compare
from tests.support.training_models import quadratic

Array = np.ndarray[Any, Any]


def array(*numbers: float, dtype: str = "float32") -> Array:
    return np.array(numbers, dtype)


def names(comparison: certification.StepComparison) -> list[tuple[str, str]]:
    return [(each.kind, each.name) for each in comparison.differences]


def test_rounding_passes() -> None:
    found = compare({"loss": {"loss": array(1.0)}}, {"loss": {"loss": array(1.00001)}})
    assert not found.differences
    assert found.errors["loss"]["loss"] == pytest.approx(1e-5, rel=1e-2)


@pytest.mark.parametrize(("got", "wanted"), [(None, array(0.1)), (array(0.1), None), (array(0.1), array(0.2))])
def test_a_gradient_that_differs_is_named(got: Array | None, wanted: Array | None) -> None:
    expected = {"gradient": {"a": wanted, "b": array(1)}}
    found = compare({"gradient": {"a": got, "b": array(1)}}, expected, moved=lambda: [expected] * 3)  # type: ignore[dict-item]
    assert names(found) == [("gradient", "a")]
    with pytest.raises(UnsupportedOpError, match=r"another gradient of 'a'"):
        certification.refuse_differences("Net", "PyTorch 2", found)


def test_no_gradient_is_one_of_zeros() -> None:
    assert not compare({}, {"gradient": {"a": array(0, 0)}}).differences
    assert not compare({"gradient": {"a": array(0, 0)}}, {"gradient": {"a": None}}).differences


def test_noise_in_place_of_zero_passes() -> None:
    """A bias before a batch normalization."""
    got, expected = array(3e-9, -2e-9), array(-1e-9, 1e-9)
    found = compare({"gradient": {"bias": got, "w": array(1)}}, {"gradient": {"bias": expected, "w": array(1)}})
    assert not found.differences
    assert found.errors["gradient"]["bias"] < 1e-6


def test_what_is_as_near_as_moved_weights_passes() -> None:
    expected = {"gradient": {"w": array(1.0)}}
    near, far = {"gradient": {"w": array(1.001)}}, {"gradient": {"w": array(1.5)}}
    assert not compare(near, expected, moved=lambda: [{"gradient": {"w": array(1.0005)}}]).differences  # type: ignore[arg-type]
    assert names(compare(far, expected, moved=lambda: [{"gradient": {"w": array(1.0005)}}]))  # type: ignore[arg-type]


@pytest.mark.parametrize(("error", "asked", "differs"), [(3e-3, 6, False), (3e-3, 5, True), (0.5, 4, True)])
def test_more_is_asked_of_the_framework_where_it_may_explain_a_difference(
    error: float, asked: int, *, differs: bool
) -> None:
    taken = 0

    def moved() -> Iterator[certification.Results]:
        nonlocal taken
        for number in range(6 if asked > 5 else 5):
            taken += 1
            yield {"gradient": {"w": array(1 + (8e-4 if number == 5 else 3e-4))}}

    found = compare({"gradient": {"w": array(1 + error)}}, {"gradient": {"w": array(1)}}, moved=moved)
    assert (bool(found.differences), taken) == (differs, asked)


def test_a_kink_is_not_decided() -> None:
    found = compare(
        {"gradient": {"w": array(2.0)}}, {"gradient": {"w": array(1.0)}}, moved=lambda: [{"gradient": {"w": array(2)}}]
    )
    assert not found.differences
    assert list(found.undecided) == ["gradient 'w'"]
    assert not found.errors["gradient"]


def test_updates_are_compared_by_what_they_change() -> None:
    before = {"w": array(1.0)}
    rounded = compare({"update": {"w": array(1.0 + 1e-3)}}, {"update": {"w": array(1.0010001)}}, before=before)
    assert not rounded.differences
    wrong = compare({"update": {"w": array(1.0 + 1e-4)}}, {"update": {"w": array(1.0 + 2e-4)}}, before=before)
    assert names(wrong) == [("update", "w")]
    assert wrong.errors["update"]["w"] == pytest.approx(0.5, rel=1e-2)


def test_no_update_is_no_change() -> None:
    before = {"w": array(1.0)}
    assert not compare({}, {"update": {"w": array(1.0)}}, before=before).differences
    assert names(compare({}, {"update": {"w": array(1.5)}}, before=before)) == [("update", "w")]
    assert not compare({"gradient": {"w": array(0)}}, {"gradient": {"w": None}}, before=before).differences


def test_shapes_kinds_and_infinities() -> None:
    assert names(compare({"output": {"y": array(1)}}, {"output": {"y": array(1, 1)}}))
    assert names(compare({"output": {"y": array(1, dtype="int64")}}, {"output": {"y": array(2, dtype="int64")}}))
    assert names(compare({"loss": {"loss": array(1)}}, {"loss": {"loss": array(math.nan)}}))
    assert not compare({"loss": {"loss": array(math.inf)}}, {"loss": {"loss": array(math.inf)}}).differences


def test_a_certificate_is_read_as_it_was_written() -> None:
    model = ir.Model(ir.Graph([], [], nodes=[]), ir_version=10)
    assert certificate.parse(model.metadata_props) is None
    compared = compare({"loss": {"loss": array(1.0)}}, {"loss": {"loss": array(1.0)}})
    made = certification.certificate("PyTorch 2", {"x": (2, 3)}, compared, {"updates": "no optimizer was given"})
    certificate.write(model, made)
    assert certificate.parse(model.metadata_props) == made
    assert made.described() == (
        "1 loss compared with PyTorch 2 at x [2, 3]; largest difference 0.0e+00 of loss 'loss'; updates not compared: "
        "no optimizer was given"
    )


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"version":2}', '{"version":1,"errors":[],"sizes":{}}'])
def test_a_malformed_certificate_is_refused(text: str) -> None:
    with pytest.raises(InvalidModelError, match=certificate.METADATA_KEY.replace(".", r"\.")):
        certificate.parse({certificate.METADATA_KEY: text})


def test_a_certificate_is_kept_and_shown(tmp_path: Path) -> None:
    step = quadratic()
    certificate.write(step, certificate.Certificate("PyTorch 2", {"x": [2, 3]}, {"gradient": {"w": 2e-7}}))
    for kept in (step, ll.lower(step), ll.optimize(step)):
        trainer = ll.Trainer(kept, optimizer="sgd", learning_rate=0.1)
        assert "certificate: 1 gradient compared with PyTorch 2 at x [2, 3]; largest difference 2.0e-07 of" in repr(
            trainer
        )
    folder = ll.export_training(trainer, tmp_path / "bundle")
    written = onnx.load(folder / "train.onnx")
    assert certificate.parse({entry.key: entry.value for entry in written.metadata_props}) is not None
    told = contents(analyse(step), "a", "b")
    assert told["certificate"].startswith("1 gradient compared")
    step.metadata_props[certificate.METADATA_KEY] = "[]"
    with pytest.raises(InvalidModelError, match="certificate"):
        ll.Trainer(step, optimizer="sgd", learning_rate=0.1)


def test_an_infinite_gradient_excuses_no_other() -> None:
    expected = {"gradient": {"a": array(np.inf), "b": array(1)}}
    found = compare({"gradient": {"a": array(np.inf), "b": array(2)}}, expected)
    assert names(found) == [("gradient", "b")]
