"""Central differences prove the backward oracles, and wrong formulas do not get past the checks."""

from __future__ import annotations

import inspect
import sys
from types import ModuleType

import numpy as np
import pytest

from lstm_lower.registry import Registry
from lstm_lower.runtime.proof.oracles import block, registry
from lstm_lower.runtime.proof.oracles.finite_differences import (
    PAIRINGS,
    TOLERANCE,
    Pairing,
    check_backward,
    gradient_errors,
)
from lstm_lower.runtime.proof.oracles.registry import ORACLES, Oracle
from tests.support.op_inputs import valid_inputs
from tests.support.tensorflow_cases import CASES, recording, relative_error

BACKWARD = ("BlockLSTMGrad", "BlockLSTMGradV2", "LSTMBlockCellGrad", "GRUBlockCellGrad")


@pytest.mark.parametrize("use_peephole", [False, True])
@pytest.mark.parametrize("directions", [None, 5])
@pytest.mark.parametrize("op", BACKWARD)
def test_backward_oracle_is_the_derivative(op: str, directions: int | None, use_peephole: bool) -> None:
    errors = check_backward(op, {"use_peephole": use_peephole}, directions=directions)
    operands = PAIRINGS[op].sample(np.random.default_rng(0), {})
    assert {error.operand for error in errors} == set(operands) - {"seq_len_max"}
    for error in errors:
        assert error.shape == operands[error.operand].shape
        assert error.relative <= 1e-7, error


@pytest.mark.parametrize("steps", [0, 1, 3])
@pytest.mark.parametrize("op", ["BlockLSTMGrad", "BlockLSTMGradV2"])
def test_takes_operands_and_forward_attributes(op: str, steps: int) -> None:
    call = valid_inputs(PAIRINGS[op].forward, T=3, B=1, I=1, H=2, steps=steps, forget_bias=-0.5)
    operands = {name: value for name, value in call.items() if isinstance(value, np.ndarray)}
    for error in check_backward(op, {"use_peephole": True, "forget_bias": -0.5}, operands):
        assert error.relative <= 1e-7, error


def test_an_active_clip_is_no_derivative() -> None:
    pairing = PAIRINGS["LSTMBlockCellGrad"]
    operands = pairing.sample(np.random.default_rng(0), {})
    forward, backward = ORACLES["LSTMBlockCell"], ORACLES["LSTMBlockCellGrad"]
    attributes = {"use_peephole": True, "cell_clip": 0.2}
    errors = gradient_errors(forward, backward, pairing, operands, attributes)
    assert max(error.relative for error in errors) > 0.1


def _square(*, x: np.ndarray, slope: float = 1.0) -> dict[str, np.ndarray]:
    return {"y": slope * x * x}


def _square_grad(*, x: np.ndarray, dy: np.ndarray, slope: float) -> dict[str, np.ndarray]:
    return {"dx": 2 * slope * x * dy}


SQUARE = Pairing(
    "Square", {"dy": "y"}, lambda _, outputs: {"x": outputs["dx"]}, lambda rng, _: {"x": rng.normal(size=3)}
)


def test_any_pair_of_functions_can_be_checked() -> None:
    (error,) = gradient_errors(_square, _square_grad, SQUARE, {"x": np.ones(3, np.float32)}, {"slope": 0.25})
    assert error.relative < 1e-9
    assert error.absolute < 1e-9


def test_a_gradient_of_another_shape_is_an_error() -> None:
    def transposed(*, x: np.ndarray, dy: np.ndarray) -> dict[str, np.ndarray]:
        return {"dx": 2 * (x * dy).T}

    with pytest.raises(ValueError, match=r"gradient of x requires shape \(3, 2\), got \(2, 3\)"):
        gradient_errors(_square, transposed, SQUARE, {"x": np.ones((3, 2))}, {})


def test_nan_is_an_error() -> None:
    def lost(*, x: np.ndarray, dy: np.ndarray) -> dict[str, np.ndarray]:
        return {"dx": np.full_like(x, np.nan)}

    (error,) = gradient_errors(_square, lost, SQUARE, {"x": np.ones(3)}, {})
    assert not error.relative <= TOLERANCE


def test_a_missing_gradient_is_an_error_of_its_whole_size() -> None:
    def zero(*, x: np.ndarray, dy: np.ndarray) -> dict[str, np.ndarray]:
        return {"dx": np.zeros_like(x)}

    (error,) = gradient_errors(_square, zero, SQUARE, {"x": np.ones(3)}, {})
    assert error.relative == pytest.approx(1.0)


# Wrong formulas: text, what replaces it. Central differences see those of the first list; those of the second
# are consistent between forward and backward, or vanish when the saved activations come from the forward oracle.
SEEN_BY_DIFFERENCES = [
    ('sigmoid(pre["i"] + peepholes.peep(peepholes.wci, cs_prev))', 'sigmoid(pre["i"])'),
    ('ci = np.tanh(pre["c"])', 'ci = sigmoid(pre["c"])'),
    ("cs = i * ci + f * cs_prev", "cs = i * ci + (1 - i) * cs_prev"),
    ("if cell_clip > 0:", "if cell_clip >= 0:"),
    ("peepholes.peep(peepholes.wco, cs))", "peepholes.peep(peepholes.wco, cs_prev))"),
    ('"h": o * co', '"h": o * cs'),
    ("do = o * (1 - o) * h_grad * co", "do = o * (1 - o) * h_grad"),
    ("do = o * (1 - o) * h_grad * co", "do = (1 - o * o) * h_grad * co"),
    ("(1 - co * co) * h_grad * o", "co * (1 - co) * h_grad * o"),
    ("* o + cs_grad +", "* o +"),
    (" + peepholes.peep(peepholes.wco, do)", ""),
    ("dci = (1 - ci * ci) * dcs * i", "dci = (1 - ci * ci) * dcs"),
    ("df = f * (1 - f) * dcs * cs_prev", 'df = f * (1 - f) * dcs * saved["cs"]'),
    ("di = i * (1 - i) * dcs * ci", "di = i * (1 + i) * dcs * ci"),
    ("cs_prev_grad = dcs * f + ", "cs_prev_grad = dcs * i + "),
    (" + peepholes.peep(peepholes.wci, di)", ""),
    (" + peepholes.peep(peepholes.wcf, df)", " - peepholes.peep(peepholes.wcf, df)"),
    ('((di, cs_prev), (df, cs_prev), (do, saved["cs"]))', "((di, cs_prev), (df, cs_prev), (do, cs_prev))"),
    ('((di, cs_prev), (df, cs_prev), (do, saved["cs"]))', '((df, cs_prev), (di, cs_prev), (do, saved["cs"]))'),
    ('join_gates({"i": di, "c": dci, "f": df, "o": do}', 'join_gates({"i": di, "c": df, "f": dci, "o": do}'),
    ("for t in range(clamp_steps(seq_len_max, len(x))):", "for t in range(len(x)):"),
    ("reversed(range(clamp_steps(seq_len_max, len(x))))", "range(clamp_steps(seq_len_max, len(x)))"),
    ("(cs[t - 1], h[t - 1]) if t", "(cs[t - 1], h[t]) if t"),
    ("(cs[t - 1], h[t - 1]) if t", "(cs[t], h[t - 1]) if t"),
    ("cs_grad[t] + dcs", "dcs"),
    ("cs_grad[t] + dcs", "cs_grad[t]"),
    ("h_grad[t] + dh", "h_grad[t]"),
    ("w_grad += ", "w_grad = "),
    ("b_grad += ", "b_grad = "),
    ("total + step.peepholes[name]", "step.peepholes[name]"),
    ("h_prev * r], axis=1", "h_prev], axis=1"),
    ("u * h_prev + (1 - u) * c", "(1 - u) * h_prev + u * c"),
    ("d_h * (1 - u) * (1 - c * c)", "d_h * u * (1 - c * c)"),
    ("d_h * (h_prev - c) * u * (1 - u)", "d_h * (c - h_prev) * u * (1 - u)"),
    ("d_hr * h_prev * r * (1 - r)", "d_hr * r * (1 - r)"),
    ("[d_r_bar, d_u_bar], axis=1", "[d_u_bar, d_r_bar], axis=1"),
    ("d_x_h[:, :inputs] + d_x_hr[:, :inputs]", "d_x_h[:, :inputs]"),
    ("d_hr * r + d_h * u", "d_hr * r + u"),
    ("d_hr * r + d_h * u", "d_hr + d_h * u"),
]
SEEN_BY_RECORDING_ONLY = [
    ('ICFO: GateOrder = ("i", "c", "f", "o")', 'ICFO: GateOrder = ("i", "f", "c", "o")'),
    ('IFCO: GateOrder = ("i", "f", "c", "o")', 'IFCO: GateOrder = ("i", "c", "f", "o")'),
    (" + forget_bias", ""),
    ("if cell_clip > 0:", "if cell_clip != 0:"),
    ("np.clip(cs, -cell_clip, cell_clip)", "np.clip(cs, 0, cell_clip)"),
    ("co = np.tanh(cs)", "co = np.tanh(i * ci + f * cs_prev)"),
    ("order=IFCO,\n", "order=ICFO,\n"),
    ("reversed(range(clamp_steps(seq_len_max, len(x))))", "reversed(range(len(x)))"),
]


def mutated(monkeypatch: pytest.MonkeyPatch, old: str, new: str) -> Registry[Oracle]:
    """Loads the oracles anew with one piece of their text replaced."""
    oracles: Registry[Oracle] = Registry("oracle", "lstm_lower.runtime.proof.oracles")
    monkeypatch.setattr(registry, "ORACLES", oracles)
    source = inspect.getsource(block)
    assert source.count(old) == 1, f"{old!r} occurs {source.count(old)} times"
    copy = ModuleType(block.__name__)
    monkeypatch.setitem(sys.modules, block.__name__, copy)
    exec(compile(source.replace(old, new), block.__name__, "exec"), copy.__dict__)
    return oracles


def differences(oracles: dict[str, Oracle]) -> float:
    """Largest relative error against central differences over the block family's pairs."""
    worst = []
    for op in BACKWARD:
        pairing = PAIRINGS[op]
        operands = pairing.sample(np.random.default_rng(0), {})
        attributes = {"use_peephole": True, **pairing.smooth}
        forward, backward = oracles[pairing.forward], oracles[op]
        errors = gradient_errors(forward, backward, pairing, operands, attributes, directions=3)
        worst += [error.relative for error in errors]
    return max(worst)


def recording_differs(oracles: dict[str, Oracle]) -> bool:
    for case in CASES:
        if case.dtype == "float32":
            outputs = oracles[case.op](**case.operands(), **case.attributes)
            for name, value in recording()[case.id].items():
                if not relative_error(value, case.defined(name, outputs[name])) <= 1e-3:
                    return True
    return False


def test_the_oracles_as_they_are_pass_both_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    oracles = mutated(monkeypatch, 'ci = np.tanh(pre["c"])', 'ci = np.tanh(pre["c"])')
    assert differences(oracles) <= 1e-7
    assert not recording_differs(oracles)


@pytest.mark.parametrize(("old", "new"), SEEN_BY_DIFFERENCES)
def test_differences_notice(monkeypatch: pytest.MonkeyPatch, old: str, new: str) -> None:
    assert differences(mutated(monkeypatch, old, new)) > 100 * TOLERANCE


@pytest.mark.parametrize(("old", "new"), SEEN_BY_DIFFERENCES + SEEN_BY_RECORDING_ONLY)
def test_the_recording_notices(monkeypatch: pytest.MonkeyPatch, old: str, new: str) -> None:
    assert recording_differs(mutated(monkeypatch, old, new))
