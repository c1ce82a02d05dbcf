"""Definitions of onnxruntime-training's recurrent layers and their gradients.

Signatures: the operator schemas of onnxruntime-training 1.19. T time steps, B batch, I inputs, H units, D directions.
Gates stand in ONNX's order, i, o, f, c and z, r, h; peephole weights are those of i, o and f.
"""

from __future__ import annotations

from lstm_lower.opdef import Call, attr, operand
from lstm_lower.ops.ort_elementwise import TrainingOp

_DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}


class _Recurrent(TrainingOp, abstract=True):
    """The common part of all recurrent layers."""

    class Types:
        T = ("float32", "float64")

    class Attrs:
        activation_alpha = attr(list[float], [])
        activation_beta = attr(list[float], [])
        activations = attr(list[str], [])
        clip = attr(float, 0.0)
        direction = attr(str, "forward", choices=tuple(_DIRECTIONS))
        hidden_size = attr(int)
        layout = attr(int, 0)

    @classmethod
    def verify(cls, call: Call) -> None:
        """Attributes and weights speak of the same sizes."""
        for symbol, name, size in (
            ("D", "direction", _DIRECTIONS[call.attributes["direction"]]),
            ("H", "hidden_size", call.attributes["hidden_size"]),
        ):
            found = call.sizes.get(symbol)
            if isinstance(found, int) and found != size:
                raise call.error(f"attribute {name}", f"{symbol} = {found} (from the weights)", size)
            call.sizes[symbol] = size


class _LSTM(_Recurrent, abstract=True):
    class Attrs(_Recurrent.Attrs):
        input_forget = attr(int, 0)


class LSTMTraining(_LSTM):
    """An LSTM layer that also gives what its gradient takes: all cell states and all gates."""

    class Inputs:
        X = operand("T B I")
        W = operand("D 4*H I")
        R = operand("D 4*H H")
        B = operand("D 8*H", optional=True)
        sequence_lens = operand("B", "int32", optional=True)
        initial_h = operand("D B H", optional=True)
        initial_c = operand("D B H", optional=True)
        P = operand("D 3*H", optional=True)

    class Outputs:
        all_hidden = operand("T D B H")
        final_hidden = operand("D B H")
        final_cell = operand("D B H")
        all_cell = operand("T D B H")
        iofc = operand("T D B 4*H")


class LSTMGrad(_LSTM):
    """Gradient of LSTMTraining.

    onnxruntime's op has no operand P, though gradients flow through the peepholes. In a graph that holds the
    LSTMTraining it gets that one's; else it is given where there are peepholes.
    """

    forward = "LSTMTraining"

    class Inputs:
        X = operand("T B I")
        W = operand("D 4*H I")
        R = operand("D 4*H H")
        sequence_lens = operand("B", "int32", optional=True)
        initial_h = operand("D B H", optional=True)
        initial_c = operand("D B H", optional=True)
        all_hidden = operand("T D B H")
        all_cell = operand("T D B H")
        iofc = operand("T D B 4*H")
        d_all_hidden = operand("T D B H", optional=True)
        d_final_hidden = operand("D B H", optional=True)
        d_final_cell = operand("D B H", optional=True)
        P = operand("D 3*H", optional=True)

    class Outputs:
        dX = operand("T B I")
        dW = operand("D 4*H I")
        dR = operand("D 4*H H")
        dB = operand("D 8*H")
        dH0 = operand("D B H")
        dC0 = operand("D B H")
        dP = operand("D 3*H")


class _GRU(_Recurrent, abstract=True):
    class Attrs(_Recurrent.Attrs):
        linear_before_reset = attr(int, 0, choices=(0, 1))


class GRUTraining(_GRU):
    """A GRU layer that also gives its gates, which its gradient takes."""

    class Inputs:
        X = operand("T B I")
        W = operand("D 3*H I")
        R = operand("D 3*H H")
        B = operand("D 6*H", optional=True)
        sequence_lens = operand("B", "int32", optional=True)
        initial_h = operand("D B H", optional=True)

    class Outputs:
        all_hidden = operand("T D B H")
        final_hidden = operand("D B H")
        zrh = operand("T D B 3*H")


class GRUGrad(_GRU):
    """Gradient of GRUTraining."""

    forward = "GRUTraining"

    class Inputs:
        X = operand("T B I")
        W = operand("D 3*H I")
        R = operand("D 3*H H")
        B = operand("D 6*H", optional=True)
        sequence_lens = operand("B", "int32", optional=True)
        initial_h = operand("D B H", optional=True)
        all_hidden = operand("T D B H")
        zrh = operand("T D B 3*H")
        d_all_hidden = operand("T D B H", optional=True)
        d_final_hidden = operand("D B H", optional=True)

    class Outputs:
        dX = operand("T B I")
        dW = operand("D 3*H I")
        dR = operand("D 3*H H")
        dB = operand("D 6*H")
        dH0 = operand("D B H")
