"""Loops and branches in all forms that TensorFlow makes of them: three training steps as TensorFlow takes them."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
import pytest

import lstm_lower as ll
from lstm_lower.errors import UnsupportedOpError
from lstm_lower.graph.subgraphs import all_nodes
from tests.tensorflow.loops.checks import WAYS, Maker, check, imported, meta_of, needs_tensorflow, tolerance_of
from tests.tensorflow.loops.grid import MADE_ON_THE_SPOT, REFUSED, SOME_FORMS
from tests.tensorflow.loops.kit import UNITS

pytest.importorskip("tensorboard")

NUMBERED = [pytest.param(number, name, id=name) for number, name in enumerate(SOME_FORMS)]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "name"), [form for form in NUMBERED if form.id not in MADE_ON_THE_SPOT])
def test_three_steps_recorded(recorded: Path, number: int, name: str) -> None:
    check(meta_of(recorded, name), WAYS[number % len(WAYS)], tolerance_of(name))


@pytest.mark.slow
@needs_tensorflow
@pytest.mark.parametrize(("number", "name"), [form for form in NUMBERED if form.id in MADE_ON_THE_SPOT])
def test_three_steps(maker: Maker, number: int, name: str) -> None:
    check(maker.graph(name), WAYS[number % len(WAYS)], tolerance_of(name))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "message"), [*REFUSED.items()], ids=[*REFUSED])
def test_refused(recorded: Path, name: str, message: str) -> None:
    with pytest.raises(UnsupportedOpError, match=message):
        imported(meta_of(recorded, name))


@pytest.mark.slow
def test_a_loop_runs_as_often_in_each_step_of_its_gradient(recorded: Path) -> None:
    """How often an inner loop has run is known before the outer one, so that the gradients of both are Scans."""
    lowered = ll.lower(imported(meta_of(recorded, "v2/nested_fixed")))
    kinds = [node.op_type for node in all_nodes(ir.from_proto(lowered).graph)]
    assert kinds.count("Scan") == 4
    assert "Loop" not in kinds


@needs_tensorflow
def test_a_fixed_number_of_steps_is_known_behind_a_loop(maker: Maker) -> None:
    """What a loop writes to a list has the list's length, however many steps the loop takes."""
    meta = maker.graph("v1/gru/lengths/sgd")
    model = ll.from_tensorflow(meta, outputs=["rnn/transpose_1:0"], shapes={"x:0": ["B", 5, None]}, weights="inputs")
    sizes = model.graph.output[0].type.tensor_type.shape.dim
    assert [size.dim_param or size.dim_value for size in sizes] == ["B", 5, UNITS]
