"""Valid operands and attributes of the block family's ops, drawn from a seed.

The shapes are written down here a second time on purpose: tests that take them from the op definitions could not
notice a wrong definition.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Style = Literal["plausible", "wild"]
Array = npt.NDArray[Any]

_STATES = {"x": "B I", "cs_prev": "B H", "h_prev": "B H"}
_WEIGHTS = {"w": "I+H 4H", "wci": "H", "wcf": "H", "wco": "H", "b": "4H"}
_SEQUENCE = {"seq_len_max": "", **_STATES, "x": "T B I", **_WEIGHTS}
_SEQUENCE_SAVED = dict.fromkeys(("i", "cs", "f", "o", "ci", "co", "h", "cs_grad", "h_grad"), "T B H")
_CELL = {**_STATES, **_WEIGHTS}
_CELL_SAVED = dict.fromkeys(("i", "cs", "f", "o", "ci", "co", "cs_grad", "h_grad"), "B H")
_GRU = {"x": "B I", "h_prev": "B H", "w_ru": "I+H 2H", "w_c": "I+H H", "b_ru": "2H", "b_c": "H"}

# Operands of every op in TensorFlow's order, with their shapes: T steps, B batch, I inputs, H units.
SHAPES: dict[str, dict[str, str]] = {
    "BlockLSTM": _SEQUENCE,
    "BlockLSTMV2": _SEQUENCE,
    "BlockLSTMGrad": {**_SEQUENCE, **_SEQUENCE_SAVED},
    "BlockLSTMGradV2": {**_SEQUENCE, **_SEQUENCE_SAVED},
    "LSTMBlockCell": _CELL,
    "LSTMBlockCellGrad": {**_CELL, **_CELL_SAVED},
    "GRUBlockCell": _GRU,
    "GRUBlockCellGrad": {**_GRU, "r": "B H", "u": "B H", "c": "B H", "d_h": "B H"},
}
OPS = tuple(SHAPES)

# Attributes of a valid call. Peepholes are on so that their weights matter.
ATTRIBUTES: dict[str, dict[str, Any]] = {
    "BlockLSTM": {"forget_bias": 1.0, "cell_clip": 3.0, "use_peephole": True},
    "BlockLSTMV2": {"cell_clip": 0.0, "use_peephole": True},
    "BlockLSTMGrad": {"use_peephole": True},
    "BlockLSTMGradV2": {"use_peephole": True},
    "LSTMBlockCell": {"forget_bias": 1.0, "cell_clip": 3.0, "use_peephole": True},
    "LSTMBlockCellGrad": {"use_peephole": True},
    "GRUBlockCell": {},
    "GRUBlockCellGrad": {},
}

_GATES = ("i", "f", "o", "r", "u")
_TANHS = ("ci", "co", "c", "h", "h_prev")


def operand_shapes(op: str, *, T: int = 4, B: int = 2, I: int = 3, H: int = 4) -> dict[str, tuple[int, ...]]:  # noqa: E741
    """Returns the shape of every operand of the op for the given sizes."""
    sizes = {"T": T, "B": B, "I": I, "H": H, "2H": 2 * H, "4H": 4 * H, "I+H": I + H}
    return {name: tuple(sizes[size] for size in shape.split()) for name, shape in SHAPES[op].items()}


def valid_inputs(
    op: str,
    *,
    T: int = 4,
    B: int = 2,
    I: int = 3,  # noqa: E741
    H: int = 4,
    dtype: npt.DTypeLike = np.float32,
    seed: int = 0,
    steps: int | None = None,
    style: Style = "plausible",
    **attributes: Any,
) -> dict[str, Any]:
    """Returns the keyword arguments of a valid call: operands in TensorFlow's order, then attributes.

    Saved activations come from no forward pass: the gradient ops take them as they are.

    Args:
        op: op type.
        T: time steps; unused by the cells.
        B: batch.
        I: input size.
        H: units.
        dtype: of all operands but `seq_len_max`, which is an int64 scalar.
        seed: of all values. They are made from the bare bit stream of PCG64, whose stability numpy guarantees.
        steps: `seq_len_max`; T when `None`.
        style: `plausible` keeps activations in the range of their functions, `wild` does not.
        attributes: instead of, or besides, those of `ATTRIBUTES`.
    """
    bits = np.random.PCG64(seed)
    operands: dict[str, Any] = {}
    for name, shape in operand_shapes(op, T=T, B=B, I=I, H=H).items():
        if name == "seq_len_max":
            operands[name] = np.array(T if steps is None else steps, np.int64)
            continue
        low, high = _interval(name, I + H, style)
        operands[name] = (low + (high - low) * _uniform(bits, shape)).astype(dtype)
    return {**operands, **ATTRIBUTES[op], **attributes}


def _interval(operand: str, fan_in: int, style: Style) -> tuple[float, float]:
    if operand in ("w", "w_ru", "w_c"):
        bound = 2.0 / max(fan_in, 1) ** 0.5
        return -bound, bound
    if style == "wild":
        return -1.5, 1.5
    if operand in _GATES:
        return 0.0, 1.0
    return (-1.0, 1.0) if operand in _TANHS else (-2.0, 2.0)


def _uniform(bits: np.random.PCG64, shape: tuple[int, ...]) -> Array:
    """Numbers in [0, 1) from the upper 53 bits of each word."""
    count = int(np.prod(shape))
    words = np.asarray(bits.random_raw(count), np.uint64) if count else np.zeros(0, np.uint64)
    return ((words >> np.uint64(11)) * 2.0**-53).reshape(shape)
