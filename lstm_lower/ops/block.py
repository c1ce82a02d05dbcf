"""Definitions of TensorFlow's fused block ops: BlockLSTM, LSTMBlockCell, GRUBlockCell and their gradients.

Symbols: T time steps, B batch, I input size, H units (TensorFlow's cell_size). Sequences are time major.
Gates are packed in column blocks of width H: i, c, f, o ("icfo"), except in the V2 ops: i, f, c, o ("ifco").
"""

from __future__ import annotations

from typing import ClassVar

from lstm_lower.opdef import Call, OpDef, attr, operand

ICFO = ("i", "c", "f", "o")
IFCO = ("i", "f", "c", "o")


class BlockRecurrent(OpDef, abstract=True):
    """A cell of a recurrent layer, or a sequence of cells."""


class _BlockSequence(BlockRecurrent, abstract=True):
    """Common to the four ops over whole sequences."""

    gate_order: ClassVar[tuple[str, ...]] = ICFO

    class Inputs:
        seq_len_max = operand("", "int64", counts="T")
        x = operand("T B I")
        cs_prev = operand("B H")
        h_prev = operand("B H")
        w = operand("I+H 4*H")
        wci = operand("H")
        wcf = operand("H")
        wco = operand("H")
        b = operand("4*H")

    @classmethod
    def verify(cls, call: Call) -> None:
        """A constant seq_len_max must lie in 0..T."""
        length = call.operands["seq_len_max"].value
        if length is None:
            return
        steps = call.sizes.get("T")
        limit = "T" if not isinstance(steps, int) else str(steps)
        if int(length) < 0 or (isinstance(steps, int) and int(length) > steps):
            raise call.error("seq_len_max", f"0 <= seq_len_max <= {limit} (T from x)", int(length))


class BlockLSTM(_BlockSequence):
    """LSTM over a sequence with optional peepholes and cell clip; gates packed i, c, f, o."""

    class Outputs:
        i = operand("T B H")
        cs = operand("T B H")
        f = operand("T B H")
        o = operand("T B H")
        ci = operand("T B H")
        co = operand("T B H")
        h = operand("T B H")

    class Attrs:
        forget_bias = attr(float, 1.0, rounds_to="T")
        cell_clip = attr(float, 3.0, rounds_to="T")
        use_peephole = attr(bool, False)


class BlockLSTMV2(BlockLSTM):
    """LSTM over a sequence with optional peepholes and cell clip; gates packed i, f, c, o; no forget bias."""

    gate_order = IFCO

    class Attrs:
        cell_clip = attr(float, 0.0, rounds_to="T")
        use_peephole = attr(bool, False)


class BlockLSTMGrad(_BlockSequence):
    """Gradient of BlockLSTM over a sequence, from the saved activations; gates packed i, c, f, o.

    cs_grad and h_grad are gradients of the whole sequences cs and h. The cell clip has no gradient of its own.
    """

    forward = "BlockLSTM"

    # The forward op's operands, then its results.
    class Inputs(BlockLSTM.Outputs, _BlockSequence.Inputs):
        cs_grad = operand("T B H")
        h_grad = operand("T B H")

    class Outputs:
        x_grad = operand("T B I")
        cs_prev_grad = operand("B H")
        h_prev_grad = operand("B H")
        w_grad = operand("I+H 4*H")
        wci_grad = operand("H")
        wcf_grad = operand("H")
        wco_grad = operand("H")
        b_grad = operand("4*H")

    class Attrs:
        use_peephole = attr(bool)


class BlockLSTMGradV2(BlockLSTMGrad):
    """Gradient of BlockLSTMV2 over a sequence, from the saved activations; gates packed i, f, c, o."""

    gate_order = IFCO
    forward = "BlockLSTMV2"


class LSTMBlockCell(BlockRecurrent):
    """One LSTM step with optional peepholes and cell clip; gates packed i, c, f, o."""

    class Inputs:
        x = operand("B I")
        cs_prev = operand("B H")
        h_prev = operand("B H")
        w = operand("I+H 4*H")
        wci = operand("H")
        wcf = operand("H")
        wco = operand("H")
        b = operand("4*H")

    class Outputs:
        i = operand("B H")
        cs = operand("B H")
        f = operand("B H")
        o = operand("B H")
        ci = operand("B H")
        co = operand("B H")
        h = operand("B H")

    class Attrs:
        forget_bias = attr(float, 1.0, rounds_to="T")
        cell_clip = attr(float, 3.0, rounds_to="T")
        use_peephole = attr(bool, False)


class LSTMBlockCellGrad(BlockRecurrent):
    """Gradient of one LSTMBlockCell step; dicfo is the gradient of the gates' pre-activations, packed i, c, f, o.

    The gradients of x, h_prev, w and b are products with dicfo and are not part of the op.
    """

    forward = "LSTMBlockCell"

    class Inputs(LSTMBlockCell.Inputs):
        i = operand("B H")
        cs = operand("B H")
        f = operand("B H")
        o = operand("B H")
        ci = operand("B H")
        co = operand("B H")
        cs_grad = operand("B H")
        h_grad = operand("B H")

    class Outputs:
        cs_prev_grad = operand("B H")
        dicfo = operand("B 4*H")
        wci_grad = operand("H")
        wcf_grad = operand("H")
        wco_grad = operand("H")

    class Attrs:
        use_peephole = attr(bool)


class GRUBlockCell(BlockRecurrent):
    """One GRU step that applies the reset gate before the product; gates packed r, u."""

    class Types:
        T = ("float32",)

    class Inputs:
        x = operand("B I")
        h_prev = operand("B H")
        w_ru = operand("I+H 2*H")
        w_c = operand("I+H H")
        b_ru = operand("2*H")
        b_c = operand("H")

    class Outputs:
        r = operand("B H")
        u = operand("B H")
        c = operand("B H")
        h = operand("B H")


class GRUBlockCellGrad(GRUBlockCell):
    """Gradient of one GRUBlockCell step; d_c_bar and d_r_bar_u_bar are gradients of the pre-activations."""

    forward = "GRUBlockCell"

    class Inputs(GRUBlockCell.Inputs):
        r = operand("B H")
        u = operand("B H")
        c = operand("B H")
        d_h = operand("B H")

    class Outputs:
        d_x = operand("B I")
        d_h_prev = operand("B H")
        d_c_bar = operand("B H")
        d_r_bar_u_bar = operand("B 2*H")
