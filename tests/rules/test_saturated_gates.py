"""Gradients of saturated gates keep their digits, element by element: what is left of them is a difference near 0.

Weights are zeros, so that the biases are the gates' pre-activations and each element of the biases' gradient is one
gate's own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from lstm_lower.passes.lower import lower
from lstm_lower.runtime.proof.oracles.cudnn import cudnn_rnn_backprop_v3, cudnn_rnn_v3
from tests.rules.test_cudnn_lowering import backward_of, forward_of, with_forward
from tests.support.cudnn_cases import FORWARD, GATE_COUNT, Case
from tests.support.cudnn_models import attributes_of, node_model, training_model
from tests.support.loop_checks import run

Array = np.ndarray[Any, Any]
# As many units as a processor's widest vector holds numbers, so that onnxruntime computes all of them by one formula.
UNITS = 16
SATURATED = np.repeat([-8.0, -5.0, 5.0, 8.0], UNITS // 4)


def operands_of(case: Case, gate: int) -> dict[str, Array]:
    """One gate of every unit saturated, the others near their middle."""
    random = np.random.default_rng(1)
    biases = np.full((2, GATE_COUNT[case.mode], UNITS), 0.15)
    biases[0, gate], biases[1, gate] = SATURATED, 0.0
    weights = np.zeros(GATE_COUNT[case.mode] * UNITS * (1 + UNITS))
    sequence, state = (case.steps, case.batch, UNITS), (1, case.batch, UNITS)
    cell = state if case.mode == "lstm" else ()
    shapes = {
        "input": (case.steps, case.batch, 1), "input_h": state, "input_c": cell, "output": sequence, "output_h": state,
        "output_c": cell, "output_backprop": sequence, "output_h_backprop": state, "output_c_backprop": cell,
    }  # fmt: skip
    floats = {name: np.asarray(random.uniform(0.1, 1.0, shape)) for name, shape in shapes.items()}
    floats |= {"params": np.concatenate([weights, biases.reshape(-1)]), "reserve_space": np.zeros(0)}
    # Rounded, so that float64 is fed the same.
    operands = {name: np.asarray(x, np.float32) for name, x in floats.items()}
    return {**operands, "sequence_lengths": case.lengths, "host_reserved": np.zeros(0, np.int8)}


def bias_gradients(model: onnx.ModelProto, operands: dict[str, Array], *, optimised: bool) -> Array:
    """The gradient of all biases."""
    names = [output.name for output in model.graph.output]
    results = dict(zip(names, run(model, operands, optimised=optimised), strict=True))
    return results["params_backprop"]


@pytest.mark.parametrize("alone", [False, True], ids=["with_forward", "alone"])
@pytest.mark.parametrize(
    ("mode", "gate"), [*(("lstm", gate) for gate in range(4)), *(("gru", gate) for gate in range(3))]
)
def test_error_is_no_larger_than_that_of_the_formula(mode: str, gate: int, alone: bool) -> None:
    case = Case(mode, steps=2, batch=1)
    operands = operands_of(case, gate)
    wide = {name: np.asarray(x, np.float64) if x.dtype.kind == "f" else x for name, x in operands.items()}
    exact = backward_of(case, {**wide, **forward_of(case, wide)})["params_backprop"]
    if alone:
        operands = {name: np.asarray(x) for name, x in with_forward(case, operands).items()}
        model = node_model("CudnnRNNBackpropV3", operands, attributes_of("CudnnRNNBackpropV3", case))
    else:
        model = training_model(case, operands)
    ours, formula = lower(model), lower(model, optimize=False)
    for optimised in (False, True):
        error = np.abs(bias_gradients(ours, operands, optimised=optimised) - exact)
        allowed = np.abs(bias_gradients(formula, operands, optimised=optimised) - exact)
        assert (error <= allowed + 1e-6 * np.abs(exact) + 1e-12).all()


@pytest.mark.parametrize("seed", range(5))
def test_a_saturated_network_of_tanh_keeps_its_digits(seed: int) -> None:
    """Two layers whose weights are all positive, so that most units are near 1: 2e-4 with `(1-y)*(1+y)`."""
    case = Case("rnn_tanh", layers=2, steps=10)
    operands, random = case.operands(seed), np.random.default_rng(seed)
    operands |= {name: random.uniform(size=operands[name].shape) for name in ("params", "input", "input_h")}
    operands |= {name: np.ones_like(operands[name]) for name in ("output_backprop", "output_h_backprop")}
    narrow = {name: np.asarray(x, np.float32) if x.dtype.kind == "f" else x for name, x in operands.items()}
    wide = {name: np.asarray(x, np.float64) if x.dtype.kind == "f" else x for name, x in narrow.items()}
    outputs = cudnn_rnn_v3(**{name: wide[name] for name in FORWARD}, **case.attributes)
    wide |= {name: outputs[name] for name in ("output", "output_h", "output_c")}
    expected = cudnn_rnn_backprop_v3(**wide, **case.attributes)["params_backprop"]
    model = lower(training_model(case, narrow))
    got = bias_gradients(model, {x.name: narrow[x.name] for x in model.graph.input}, optimised=True)
    np.testing.assert_allclose(got, expected, rtol=0, atol=2e-6 * np.abs(expected).max())
