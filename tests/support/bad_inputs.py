"""Malformed calls of the block family's ops, and odd ones that are fine.

`BAD_INPUTS` is every one of `TABLE`, which holds what TensorFlow 2.21 was seen to do on the CPU (some of these calls
kill its process or read outside its buffers), and of `systematic`: for every operand of every op a wrong rank, wrong
sizes along each axis and wrong dtypes, wrong attributes, and missing operands. All of them must be refused with an
error of ours, with one exception: a `seq_len_max` out of range (kind `value`) that only shows at run time inside a
lowered graph is clamped there.

`GOOD_INPUTS` must be accepted. Among them are an empty batch and zero units for LSTMBlockCell, which TensorFlow
refuses: sizes are a run-time matter in a lowered graph, every other op of the family takes 0, and the result is empty.

Each row's `change` takes the keyword arguments of `op_inputs.valid_inputs(op)` (T=4, B=2, I=3, H=4, float32) and
returns the changed ones; it leaves its argument alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tests.support.op_inputs import ATTRIBUTES, OPS, SHAPES, operand_shapes, valid_inputs

Kwargs = dict[str, Any]
Change = Callable[[Kwargs], Kwargs]
Kind = Literal["rank", "size", "dtype", "value", "attribute", "missing"]

T, B, I, H = 4, 2, 3, 4  # noqa: E741 - the sizes of a valid call, as `valid_inputs` has them by default


class BadInput(NamedTuple):
    """One malformed call.

    Attributes:
        op: op type.
        id: unique within the op.
        change: makes the call malformed.
        kind: what is wrong.
        fault: the operand or attribute that was changed; an error may also name one that no longer fits it.
        tensorflow: what TensorFlow does: `rejects`, `aborts`, `accepts`, or `undefined` where it reads or writes
            outside its buffers; `None` for the systematic rows.
    """

    op: str
    id: str
    change: Change
    kind: Kind
    fault: str
    tensorflow: str | None = None


class GoodInput(NamedTuple):
    """One odd call that is fine."""

    op: str
    id: str
    change: Change


def with_shape(name: str, *shape: int, **attributes: Any) -> Change:
    """Replaces one operand by zeros of another shape."""
    return lambda call: {**call, name: np.zeros(shape, call[name].dtype), **attributes}


def with_value(name: str, value: Any) -> Change:
    """Replaces one operand or attribute."""
    return lambda call: {**call, name: value}


def with_dtype(dtype: npt.DTypeLike, *names: str) -> Change:
    """Converts some operands, or without names all but `seq_len_max`."""

    def change(call: Kwargs) -> Kwargs:
        chosen = names or [name for name in call if isinstance(call[name], np.ndarray) and name != "seq_len_max"]
        return {**call, **{name: call[name].astype(dtype) for name in chosen}}

    return change


def without(name: str) -> Change:
    """Leaves out one operand or attribute."""
    return lambda call: {key: value for key, value in call.items() if key != name}


def _sequence_rows(op: str) -> Iterator[BadInput]:
    """Rows that hold for the forward and the backward sequence ops alike."""
    too_long = with_value("seq_len_max", np.array(T + 1, np.int64))
    yield BadInput(op, "seq_len_max = T+1", too_long, "value", "seq_len_max", "aborts")
    negative = with_value("seq_len_max", np.array(-1, np.int64))
    yield BadInput(op, "seq_len_max = -1", negative, "value", "seq_len_max", "aborts")
    huge = with_value("seq_len_max", np.array(2**40, np.int64))
    yield BadInput(op, "seq_len_max = 2^40", huge, "value", "seq_len_max", "aborts")
    yield BadInput(op, "seq_len_max shape [1]", with_shape("seq_len_max", 1), "rank", "seq_len_max", "rejects")
    yield BadInput(op, "x rank 2", with_shape("x", T, B), "rank", "x", "rejects")
    yield BadInput(op, "cs_prev rank 1", with_shape("cs_prev", H), "rank", "cs_prev", "rejects")
    yield BadInput(op, "w rows wrong", with_shape("w", I + H + 1, 4 * H), "size", "w", "rejects")
    yield BadInput(op, "wci scalar", with_shape("wci"), "rank", "wci", "rejects")
    yield BadInput(op, "b length 4H+4", with_shape("b", 4 * H + 4), "size", "b", "rejects")
    yield BadInput(op, "float64 inputs", with_dtype(np.float64), "dtype", "x", "rejects")


def _forward_rows(op: str) -> Iterator[BadInput]:
    yield from _sequence_rows(op)
    yield BadInput(op, "seq_len_max int32", with_dtype(np.int32, "seq_len_max"), "dtype", "seq_len_max", "rejects")
    yield BadInput(op, "cs_prev batch B+1", with_shape("cs_prev", B + 1, H), "size", "cs_prev", "rejects")
    yield BadInput(op, "h_prev cell H+1", with_shape("h_prev", B, H + 1), "size", "h_prev", "rejects")
    yield BadInput(op, "w columns wrong", with_shape("w", I + H, 4 * H + 1), "size", "w", "rejects")
    longer = with_shape("wci", H + 1, use_peephole=False)
    yield BadInput(op, "wci length H+1, use_peephole false", longer, "size", "wci", "rejects")
    yield BadInput(op, "b length 4H+1", with_shape("b", 4 * H + 1), "size", "b", "rejects")
    yield BadInput(op, "x half, rest float", with_dtype(np.float16, "x"), "dtype", "x", "rejects")


def _backward_rows(op: str) -> Iterator[BadInput]:
    yield from _sequence_rows(op)
    yield BadInput(op, "cs_prev batch B+1", with_shape("cs_prev", B + 1, H), "size", "cs_prev", "undefined")
    yield BadInput(op, "h_prev cell H+1", with_shape("h_prev", B, H + 1), "size", "h_prev", "undefined")
    odd = with_shape("w", I + H, 4 * H + 1)
    yield BadInput(op, "w columns not a multiple of 4", odd, "size", "w", "undefined")
    yield BadInput(op, "w columns 0", with_shape("w", I + H, 0), "size", "w", "rejects")
    yield BadInput(op, "b length 4H+1", with_shape("b", 4 * H + 1), "size", "b", "accepts")
    for use_peephole in (False, True):
        longer = with_shape("wci", H + 1, use_peephole=use_peephole)
        name = f"wci length H+1, use_peephole {str(use_peephole).lower()}"
        yield BadInput(op, name, longer, "size", "wci", "undefined" if use_peephole else "accepts")
    yield BadInput(op, "i rank 2", with_shape("i", T, B), "rank", "i", "rejects")
    yield BadInput(op, "i time T-1", with_shape("i", T - 1, B, H), "size", "i", "aborts")
    yield BadInput(op, "i time T+1", with_shape("i", T + 1, B, H), "size", "i", "accepts")
    yield BadInput(op, "i cell H+1", with_shape("i", T, B, H + 1), "size", "i", "undefined")
    yield BadInput(op, "cs_grad rank 2", with_shape("cs_grad", B, H), "rank", "cs_grad", "aborts")
    yield BadInput(op, "h_grad rank 0", with_shape("h_grad"), "rank", "h_grad", "aborts")
    yield BadInput(op, "h_grad time T-1", with_shape("h_grad", T - 1, B, H), "size", "h_grad", "aborts")
    yield BadInput(op, "h_grad batch B+1", with_shape("h_grad", T, B + 1, H), "size", "h_grad", "undefined")


def _lstm_cell_rows() -> Iterator[BadInput]:
    op = "LSTMBlockCell"
    yield BadInput(op, "x rank 1", with_shape("x", I), "rank", "x", "aborts")
    yield BadInput(op, "x rank 3", with_shape("x", 1, B, I), "rank", "x", "rejects")
    yield BadInput(op, "cs_prev rank 1", with_shape("cs_prev", H), "rank", "cs_prev", "aborts")
    yield BadInput(op, "h_prev batch B+1", with_shape("h_prev", B + 1, H), "size", "h_prev", "rejects")
    yield BadInput(op, "w columns wrong", with_shape("w", I + H, 4 * H + 4), "size", "w", "rejects")
    yield BadInput(op, "w rank 1", with_shape("w", 4 * H), "rank", "w", "rejects")
    yield BadInput(op, "b scalar", with_shape("b"), "rank", "b", "rejects")
    yield BadInput(op, "b length wrong", with_shape("b", 4 * H + 1), "size", "b", "rejects")
    yield BadInput(op, "wci rank 2", with_shape("wci", 1, H), "rank", "wci", "rejects")
    longer = with_shape("wci", H + 1, use_peephole=False)
    yield BadInput(op, "wci length H+1, use_peephole false", longer, "size", "wci", "accepts")
    single = with_shape("wci", 1, use_peephole=True)
    yield BadInput(op, "wci length 1, use_peephole true", single, "size", "wci", "undefined")


def _lstm_cell_grad_rows() -> Iterator[BadInput]:
    op = "LSTMBlockCellGrad"
    yield BadInput(op, "h_grad batch B+1", with_shape("h_grad", B + 1, H), "size", "h_grad", "rejects")
    yield BadInput(op, "cs_grad rank 1", with_shape("cs_grad", H), "rank", "cs_grad", "rejects")
    yield BadInput(op, "f cell H+1", with_shape("f", B, H + 1), "size", "f", "rejects")
    yield BadInput(op, "x rank 1", with_shape("x", I), "rank", "x", "aborts")
    yield BadInput(op, "wci rank 2", with_shape("wci", 1, H), "rank", "wci", "aborts")
    yield BadInput(op, "wci scalar", with_shape("wci"), "rank", "wci", "aborts")
    for use_peephole in (False, True):
        longer = with_shape("wci", H + 1, use_peephole=use_peephole)
        name = f"wci length H+1, use_peephole {str(use_peephole).lower()}"
        yield BadInput(op, name, longer, "size", "wci", "undefined" if use_peephole else "accepts")
    yield BadInput(op, "w rows wrong", with_shape("w", I + H + 1, 4 * H), "size", "w", "rejects")


def _gru_rows() -> Iterator[BadInput]:
    op = "GRUBlockCell"
    yield BadInput(op, "x rank 3", with_shape("x", 1, B, I), "rank", "x", "rejects")
    yield BadInput(op, "h_prev batch B+1", with_shape("h_prev", B + 1, H), "size", "h_prev", "rejects")
    yield BadInput(op, "w_ru columns wrong", with_shape("w_ru", I + H, 3 * H), "size", "w_ru", "rejects")
    yield BadInput(op, "w_c rows wrong", with_shape("w_c", H, H), "size", "w_c", "rejects")
    yield BadInput(op, "b_ru rank 2", with_shape("b_ru", 1, 2 * H), "rank", "b_ru", "rejects")
    yield BadInput(op, "b_c length", with_shape("b_c", H + 1), "size", "b_c", "rejects")
    yield BadInput(op, "half inputs", with_dtype(np.float16), "dtype", "x", "rejects")
    op = "GRUBlockCellGrad"
    yield BadInput(op, "d_h batch B+1", with_shape("d_h", B + 1, H), "size", "d_h", "rejects")
    yield BadInput(op, "c rank 3", with_shape("c", 1, B, H), "rank", "c", "rejects")
    yield BadInput(op, "r cell H+1", with_shape("r", B, H + 1), "size", "r", "rejects")
    yield BadInput(op, "b_ru length", with_shape("b_ru", 2 * H + 1), "size", "b_ru", "rejects")


TABLE: tuple[BadInput, ...] = (
    *_forward_rows("BlockLSTM"),
    *_forward_rows("BlockLSTMV2"),
    *_backward_rows("BlockLSTMGrad"),
    *_backward_rows("BlockLSTMGradV2"),
    *_lstm_cell_rows(),
    *_lstm_cell_grad_rows(),
    *_gru_rows(),
)


def _wrong_shapes(op: str) -> Iterator[BadInput]:
    for name, shape in operand_shapes(op, T=T, B=B, I=I, H=H).items():
        yield BadInput(op, f"{name}: rank {len(shape) + 1}", with_shape(name, 1, *shape), "rank", name)
        if shape:
            yield BadInput(op, f"{name}: rank {len(shape) - 1}", with_shape(name, *shape[1:]), "rank", name)
        for axis, size in enumerate(shape):
            if name == "x" and axis == 0 and op in ("BlockLSTM", "BlockLSTMV2"):
                continue  # nothing else in the forward ops says how long the sequence is
            for wrong in (size + 1, 1, 0):  # 1 is what a careless implementation broadcasts
                resized = with_shape(name, *shape[:axis], wrong, *shape[axis + 1 :])
                yield BadInput(op, f"{name}: axis {axis} of size {wrong}", resized, "size", name)


def _wrong_dtypes(op: str) -> Iterator[BadInput]:
    for name in SHAPES[op]:
        wrong = (np.int32, np.float32) if name == "seq_len_max" else (np.float16, np.float64, np.int32, np.bool_)
        for dtype in wrong:
            yield BadInput(op, f"{name}: {np.dtype(dtype).name}", with_dtype(dtype, name), "dtype", name)
    impossible = [np.float64, ml_dtypes.bfloat16, np.int64, *([np.float16] if op.startswith("GRU") else [])]
    for dtype in impossible:
        first = next(name for name in SHAPES[op] if name != "seq_len_max")
        yield BadInput(op, f"all operands: {np.dtype(dtype).name}", with_dtype(dtype), "dtype", first)


FOREIGN: Kwargs = {"forget_bias": 1.0, "cell_clip": 3.0, "use_peephole": True}


def _wrong_attributes(op: str) -> Iterator[BadInput]:
    yield BadInput(op, "unknown attribute", with_value("activation", "tanh"), "attribute", "activation")
    for name in FOREIGN:
        if name not in ATTRIBUTES[op]:
            foreign = with_value(name, FOREIGN[name])
            yield BadInput(op, f"{name}, which the op does not have", foreign, "attribute", name)
        else:
            yield BadInput(op, f"{name} as text", with_value(name, "yes"), "attribute", name)
    if "Grad" in op and "use_peephole" in ATTRIBUTES[op]:
        yield BadInput(op, "use_peephole missing", without("use_peephole"), "attribute", "use_peephole", "rejects")


def systematic(op: str) -> Iterator[BadInput]:
    """Everything that can be wrong about one operand or attribute of the op."""
    yield from _wrong_shapes(op)
    yield from _wrong_dtypes(op)
    yield from _wrong_attributes(op)
    for name in SHAPES[op]:
        yield BadInput(op, f"{name} missing", without(name), "missing", name)


BAD_INPUTS: tuple[BadInput, ...] = (*TABLE, *(row for op in OPS for row in systematic(op)))


def _sized(op: str, **sizes: int) -> Change:
    def change(call: Kwargs) -> Kwargs:
        given = {name: call[name] for name in ATTRIBUTES[op]}
        return {**valid_inputs(op, **sizes), **given}  # type: ignore[arg-type]

    return change


def _good_inputs(op: str) -> Iterator[GoodInput]:
    yield GoodInput(op, "batch 0", _sized(op, B=0))
    yield GoodInput(op, "input size 0", _sized(op, I=0))
    yield GoodInput(op, "cell size 0", _sized(op, H=0))
    if "cell_clip" in ATTRIBUTES[op]:
        for clip in (float("nan"), -1.0, 0.0, float("inf")):
            yield GoodInput(op, f"cell_clip {clip}", with_value("cell_clip", clip))
    if "use_peephole" in ATTRIBUTES[op]:
        yield GoodInput(op, "use_peephole false", with_value("use_peephole", value=False))
    if "seq_len_max" in SHAPES[op]:
        yield GoodInput(op, "no time steps", _sized(op, T=0))
        yield GoodInput(op, "seq_len_max 0", with_value("seq_len_max", np.array(0, np.int64)))
        yield GoodInput(op, "seq_len_max T-1", with_value("seq_len_max", np.array(T - 1, np.int64)))
    if not op.startswith("GRU"):
        yield GoodInput(op, "half", with_dtype(np.float16))
    if ATTRIBUTES[op] and "Grad" not in op:
        yield GoodInput(op, "attributes at their defaults", _without_attributes(op))


def _without_attributes(op: str) -> Change:
    return lambda call: {name: value for name, value in call.items() if name not in ATTRIBUTES[op]}


GOOD_INPUTS: tuple[GoodInput, ...] = tuple(row for op in OPS for row in _good_inputs(op))
